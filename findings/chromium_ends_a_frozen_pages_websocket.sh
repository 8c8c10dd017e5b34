#!/usr/bin/env bash
# Chromium: a page that was frozen to save energy loses its WebSocket when it wakes, though the page itself lives on.
#
# Guess: a frozen page runs no code, and what comes meanwhile waits: after "resume" its handlers get it, as the Page
#   Lifecycle says of all tasks. A connection on which nothing was sent is as it was.
# Seen (Chromium 156, puppeteer-core 25.16.0, ws 8.23.0, Node 20): the connection stays open for as long as the page is
#   frozen. In the moment in which it wakes Chromium closes it: the peer gets code 1001 (going away), as when a page is
#   left, the page's own "close" has code 1006, and its variables are those from before. So it is where something was
#   sent meanwhile, which no handler gets, and where nothing was. A page that was hidden for as long, and not frozen,
#   keeps its connection.
# Here: a page that is a game's engine is a lost engine then, and dials again; a trainer with reconnect= goes on.
# Needs Node 20 and Chromium: `chromium`, or the path in CHROMIUM.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CHROMIUM=${CHROMIUM:-$(command -v chromium)}
export CHROMIUM
cd "$work"
npm install --silent --no-fund --no-audit puppeteer-core@25.16.0 ws@8.23.0
cat > freeze.mjs <<'JS'
import { createServer } from "http"
import puppeteer from "puppeteer-core"
import { WebSocketServer } from "ws"

const PAGE = `<script>
  globalThis.told = []
  globalThis.born = Math.random()
  const socket = new WebSocket("ws://" + location.host)
  socket.onopen = () => told.push("open")
  socket.onmessage = (event) => told.push("got " + event.data)
  socket.onclose = (event) => told.push("close " + event.code)
  for (const name of ["freeze", "resume"]) document.addEventListener(name, () => told.push(name))
</script>`
const rest = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))
const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] })

async function asleep(freezes, sends) {
  const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end(PAGE))
  const peers = new WebSocketServer({ server })
  const seen = []
  peers.on("connection", (peer) => peer.on("close", (code) => seen.push(code)))
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve))
  const page = await browser.newPage()
  await page.goto(`http://127.0.0.1:${server.address().port}/`)
  await page.waitForFunction("told.includes('open')")
  const born = await page.evaluate("born")
  const tools = await page.createCDPSession()
  const other = await browser.newPage()
  await other.bringToFront()
  if (freezes) await tools.send("Page.setWebLifecycleState", { state: "frozen" })
  await rest(1)
  if (sends) for (const peer of peers.clients) peer.send("1")
  await rest(2)
  const meanwhile = [...seen]
  if (freezes) await tools.send("Page.setWebLifecycleState", { state: "active" })
  await page.bringToFront()
  await rest(3)
  const told = await page.evaluate("told")
  const lives = born === await page.evaluate("born")
  const closes = [...seen] // the page's own end below is one more
  await page.close()
  await other.close()
  for (const peer of peers.clients) peer.terminate()
  server.close()
  return JSON.stringify({ meanwhile, seen: closes, told, lives })
}

const frozen = await asleep(true, false)
const sent = await asleep(true, true)
const hidden = await asleep(false, true)
console.log(`${await browser.version()}\nfrozen:          ${frozen}\nand written to:  ${sent}\nhidden:          ${hidden}`)
await browser.close()
const closed = '{"meanwhile":[],"seen":[1001],"told":["open","freeze","resume","close 1006"],"lives":true}'
if (frozen !== closed || sent !== closed) throw new Error("a frozen page's WebSocket: this has changed")
if (hidden !== '{"meanwhile":[],"seen":[],"told":["open","got 1"],"lives":true}') throw new Error("a hidden page's: this has changed")
JS
node freeze.mjs
