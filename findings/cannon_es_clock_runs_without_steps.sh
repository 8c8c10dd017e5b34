#!/usr/bin/env bash
# cannon-es: world.step(1/60, dt, 100) stops by the wall clock, and world.time counts what was left out.
#
# Guess: a physics engine's step computes the same for the same arguments, however fast the machine is.
# Seen (cannon-es 0.20.0, Node 20): three calls of half a second each take 90 steps of 1/60 s, and the sphere falls
#   11.3 m. With a listener that takes 20 ms, they take 3 steps and it falls 0.02 m: each call ends after 1/60 s of
#   wall time. world.time is 1.5 in both. So what an agent learns depends on the machine's load, and the clock does not
#   tell.
# Here: an engine side that steps cannon-es calls world.step(1 / 60) with one argument, which always is one step.
# Needs Node 20.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit cannon-es@0.20.0
cat > fall.mjs <<'JS'
import { readFileSync } from "fs"
import { Body, Sphere, Vec3, World } from "cannon-es"

function fall(milliseconds) {
  const world = new World({ gravity: new Vec3(0, -10, 0) })
  const body = new Body({ mass: 1, shape: new Sphere(1) })
  world.addBody(body)
  world.addEventListener("postStep", () => {
    const end = performance.now() + milliseconds
    while (performance.now() < end);
  })
  for (let call = 0; call < 3; call++) world.step(1 / 60, 0.5, 100)
  return [world.time, world.stepnumber, body.position.y.toFixed(2)]
}

const version = JSON.parse(readFileSync("node_modules/cannon-es/package.json")).version
const seen = `alone ${fall(0)}, with 20 ms a step ${fall(20)}`
console.log(`cannon-es ${version}: time, steps, height: ${seen}`)
if (seen !== "alone 1.5,90,-11.32, with 20 ms a step 1.5,3,-0.02") throw new Error("this has changed")
JS
node fall.mjs
