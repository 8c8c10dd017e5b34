// Plays cases with samples/web/policy.js, in Node or in a page.
//
//   node play.mjs POLICY.JS own|node|web CASES > RESULTS.json
//
// CASES: [{"file": base64, "stack": frames, "agents": N, "steps": [{"obs", "masks"?, "starts"} ..]}], numbers in base64 of
// float32. RESULTS: for each {"actions": [..], "raw": [..]}, one of each step, or {"error": text}.

/** Bytes of base64. */
function bytesOf(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function textOf(numbers) {
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(text);
}

const numbersOf = (text) => new Float32Array(bytesOf(text).buffer);

/** What the policies do in these cases; `runtime`: null, or a module of onnxruntime. */
export async function play(Policy, runtime, cases) {
  const results = [];
  for (const { file, stack, steps } of cases) {
    try {
      const policy = await Policy.load(bytesOf(file), { runtime, stack });
      const found = { actions: [], raw: [] };
      for (const { obs, masks, starts } of steps) {
        policy.reset(starts);
        found.actions.push(textOf(await policy.act(numbersOf(obs), masks ? { masks: numbersOf(masks) } : {})));
        if (policy.outputs.raw) found.raw.push(textOf(policy.outputs.raw.data));
      }
      results.push(found);
    } catch (error) {
      results.push({ error: String(error.message ?? error) });
    }
  }
  return results;
}

if (globalThis.process?.argv) {
  const { readFileSync } = await import("node:fs");
  const { pathToFileURL } = await import("node:url");
  const [module, which, cases] = process.argv.slice(2);
  const { Policy } = await import(pathToFileURL(module).href);
  let runtime = null;
  if (which === "web") {
    runtime = await import("onnxruntime-web");
    runtime.env.wasm.numThreads = 1; // no worker threads: they would keep Node from ending
  } else if (which === "node") {
    runtime = await import("onnxruntime-node");
  }
  const text = JSON.stringify(await play(Policy, runtime, JSON.parse(readFileSync(cases, "utf-8"))));
  await new Promise((done) => process.stdout.write(text, done));
  process.exit(0); // the web runtime leaves something open
}
