#!/usr/bin/env bash
# ws for Node: whether a message can be looked at as floats depends on its length and on what came before it.
#
# Guess: new Float32Array(data.buffer, data.byteOffset, n) works for each message of floats or for none.
# Seen (ws 8.23.0, Node 20): after rows of 4, 16 and 1000 floats in one go, the first lies at byte 6 of a buffer of 65
#   536, which raises RangeError ("a multiple of 4"); 16 floats and more lie behind it, at 28 (fine) or at 98 and 630
#   (RangeError); a row of 20 000 floats gets a buffer of its own. So tests with pictures pass and a game with four
#   numbers does not, or the other way round.
# Here: the JavaScript of docs/grpc.md copies the bytes first, for the same reason.
# Needs Node 20.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm install --silent --no-fund --no-audit ws@8.23.0
cat > look.mjs <<'JS'
import { readFileSync } from "fs"
import { WebSocket, WebSocketServer } from "ws"

const lengths = [4, 16, 31, 1000, 20000]
const version = JSON.parse(readFileSync("node_modules/ws/package.json")).version
const server = new WebSocketServer({ host: "127.0.0.1", port: 0 })
const seen = []
server.on("connection", (peer) => {
  peer.on("message", (data) => {
    try {
      new Float32Array(data.buffer, data.byteOffset, data.length / 4)
      seen.push("fine")
    } catch (error) {
      seen.push(error.name)
    }
    if (seen.length < lengths.length) return
    server.close()
    peer.terminate()
    console.log(`ws ${version}: rows of ${lengths} floats: ${seen}`)
    if (String(seen) !== "RangeError,fine,RangeError,RangeError,fine") throw new Error("this has changed")
  })
})
server.on("listening", () => {
  const client = new WebSocket(`ws://127.0.0.1:${server.address().port}`)
  client.on("open", () => lengths.forEach((length) => client.send(new Float32Array(length))))
  client.on("error", () => {})
})
JS
node look.mjs
