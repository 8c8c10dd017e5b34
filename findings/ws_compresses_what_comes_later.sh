#!/usr/bin/env bash
# ws for Node: an array that is written to after send() goes out with its new numbers, once compression is on.
#
# Guess: send() takes the message; the array may be filled with the next step's numbers at once, as a browser allows.
# Seen (ws 8.23.0, Node 20): of 50 messages sent in a row from one Float32Array, each with its own number, at most 2
#   arrive as they were sent where the peers agreed on compression; the others hold the last number. Without
#   compression all 50 do, on an idle connection. A client of ws offers compression unless it is told not to, so which
#   of the two it is depends on the server that it meets.
# Here: an engine side in JavaScript that sends arrays over WebSocket sends a copy, or text, which cannot change.
# Needs Node 20.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ws@8.23.0
cat > send.mjs <<'JS'
import { readFileSync } from "fs"
import { WebSocket, WebSocketServer } from "ws"

function asSent(perMessageDeflate) {
  return new Promise((resolve) => {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate })
    let count = 0
    let right = 0
    server.on("connection", (peer) => {
      peer.on("message", (data) => {
        right += data.readFloatLE(0) === count
        count += 1
        if (count === 50) {
          peer.terminate()
          server.close(() => resolve(right))
        }
      })
    })
    server.on("listening", () => {
      const client = new WebSocket(`ws://127.0.0.1:${server.address().port}`)
      client.on("open", () => {
        const array = new Float32Array(16)
        for (let step = 0; step < 50; step++) {
          array.fill(step)
          client.send(array)
        }
      })
      client.on("error", () => {})
    })
  })
}

const version = JSON.parse(readFileSync("node_modules/ws/package.json")).version
const plain = await asSent(false)
const compressed = await asSent(true)
console.log(`ws ${version}: as sent, of 50: ${plain} without compression, ${compressed} with it`)
if (plain !== 50 || compressed > 2) throw new Error("this has changed")
JS
node send.mjs
