// A mind that blocks its event loop; see blocked_minds.py.
// usage: node blocked_minds.js grpc|websocket asked|each|"" URL SECONDS TURNS
'use strict'

const [carrier, way, url, seconds, turns] = process.argv.slice(2)

function block () {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000 * Number(seconds))
}

function said (info, dropped) {
  const age = info.made === undefined ? 0 : Date.now() / 1000 - info.made
  console.log(JSON.stringify({ age, dropped: Number(dropped) }))
}

async function overGrpc () {
  const grpc = require('@grpc/grpc-js')
  const { loadSync } = require('@grpc/proto-loader')
  const proto = loadSync('sessions.proto', { includeDirs: [__dirname] })
  const { Sessions } = grpc.loadPackageDefinition(proto).ue_rl.v1
  const client = new Sessions(url.replace('grpc://', ''), grpc.credentials.createInsecure())
  const call = (name, request) => new Promise((resolve, reject) =>
    client[name](request, (error, answer) => error ? reject(error) : resolve(answer)))
  const { sessionId } = await call('CreateSession', { tickRate: 20 })
  const metadata = new grpc.Metadata()
  metadata.set('session-id', sessionId)
  if (way === 'asked') metadata.set('observations', 'asked')
  const stream = client.Play(metadata)
  if (way === 'asked') stream.write({ ask: true })
  let left = Number(turns)
  for await (const seen of stream) {
    said(JSON.parse(seen.infoJson || '{}'), seen.droppedObservations)
    left -= 1
    if (!left) break
    block()
    stream.write({ action: Buffer.alloc(8), ask: way === 'asked' })
  }
  stream.on('error', () => {}) // it was cancelled
  stream.cancel()
  await call('DestroySession', { sessionId })
}

function overWebSocket () {
  const { WebSocket } = require('ws')
  const socket = new WebSocket(url.replace('http', 'ws') + '/ws')
  let left = Number(turns)
  socket.on('open', () => socket.send(JSON.stringify({ type: 'reset', data: {} })))
  socket.on('message', text => {
    const { data } = JSON.parse(text)
    const { info } = data.observation
    said(info, info.dropped_observations)
    left -= 1
    if (!left) return socket.close()
    block()
    socket.send(JSON.stringify({ type: 'step', data: { action: [0, 0] } }))
  })
  return new Promise((resolve, reject) => {
    socket.on('error', reject)
    socket.on('close', code => left ? reject(new Error(`closed: ${code}`)) : resolve())
  })
}

(carrier === 'grpc' ? overGrpc() : overWebSocket()).catch(error => {
  console.error(String(error))
  process.exit(1)
})
