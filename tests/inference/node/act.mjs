// Runs exported files with onnxruntime-node or onnxruntime-web, in Node.
//
//   node act.mjs node|web CASES.json > RESULTS.json
//
// CASES: [{"file": .., "feeds": {name: {"shape": [..], "data": base64 of float32}}}]. RESULTS: for each {"inputs": [..],
// "outputs": {name: {"shape", "data"}}}, or {"error": text}.
import { readFileSync } from "node:fs";

const [which, cases] = process.argv.slice(2);
const ort = await import(which === "web" ? "onnxruntime-web" : "onnxruntime-node");
if (which === "web") ort.env.wasm.numThreads = 1; // no worker threads: they would keep Node from ending
const results = [];
for (const { file, feeds } of JSON.parse(readFileSync(cases, "utf-8"))) {
  try {
    const session = await ort.InferenceSession.create(which === "web" ? readFileSync(file) : file);
    const given = {};
    for (const [name, { shape, data }] of Object.entries(feeds)) {
      const bytes = Uint8Array.from(Buffer.from(data, "base64")); // a copy: its buffer begins where the numbers do
      given[name] = new ort.Tensor("float32", new Float32Array(bytes.buffer), shape);
    }
    const outputs = {};
    for (const [name, { dims, data }] of Object.entries(await session.run(given)))
      outputs[name] = {
        shape: dims,
        data: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64"),
      };
    results.push({ inputs: session.inputNames, outputs });
  } catch (error) {
    results.push({ error: String(error.message ?? error) });
  }
}
console.log(JSON.stringify(results));
process.exit(0); // the web runtime leaves something open
