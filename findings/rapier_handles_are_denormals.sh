#!/usr/bin/env bash
# Rapier for JavaScript: handles are the doubles 0, 5e-324, 1e-323: as a float32, an integer or by arithmetic all are 0.
#
# Guess: a handle is a small whole number, so it may stand in a Float32Array row as an entity's id, or in `handle | 0`.
# Seen (@dimforge/rapier3d-compat 0.21.0, Node 20): the bits of index and generation are read as a double. The second
#   and third body are 5e-324 and 1e-323; a Float32Array makes 0 of each, and Math.round and `| 0` do, too. As text and
#   in JSON they survive.
# Here: an observation is float32, so an entity's id in it must be a number that the game counts itself.
# Needs Node 20.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit @dimforge/rapier3d-compat@0.21.0
cat > handles.mjs <<'JS'
import rapier from "@dimforge/rapier3d-compat"

await rapier.init()
const world = new rapier.World({ x: 0, y: -9.8, z: 0 })
const handles = [1, 2, 3].map(() => world.createRigidBody(rapier.RigidBodyDesc.dynamic()).handle)
const seen = [handles, [...new Float32Array(handles)], handles.map((handle) => handle | 0), handles.map(Math.round)]
const text = JSON.stringify(seen)
console.log(`rapier ${rapier.version()}: as they are, as float32, as int, rounded: ${text}`)
if (text !== "[[0,5e-324,1e-323],[0,0,0],[0,0,0],[0,0,0]]") throw new Error("this has changed")
JS
node handles.mjs 2>/dev/null
