// Shows its action as its observation: echo.mjs PORT, or as a page echo.mjs ws://HOST:PORT. After an action that begins
// with ASKED it shows what is not finite, or its options as its info (numbers_on_the_way.py). Or numbers through
// JavaScript's own ways: echo.mjs WAY IN OUT (float64 files); the way "msgpack" needs FOLDER, in which @msgpack/msgpack is
// installed, behind them. How each that is not finite was written is printed.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { MultiEnvBridge, connect, listen } from "../../samples/web/ue_rl.js";

class Echo extends MultiEnvBridge {
  shown = new Float32Array(1000);

  handleResetForEnv(envId, given) {
    this.shown.fill(0);
    this.options = given.options;
  }
  handleResponseActionsForEnv(envId, actions) {
    this.shown = Float32Array.from(actions);
    this.reward = 0;
    if (this.shown[0] !== Math.fround(1e30)) return;
    const what = this.shown[1];
    const special = [NaN, Infinity, -Infinity][(what - 1) % 3];
    if (what < 4) this.shown[0] = special;
    else if (what < 7) this.reward = special;
    else this.writeInfo(envId, what < 10 ? { x: special } : this.options);
  }
  createStateStringForEnv() {
    return this.shown;
  }
  calculateRewardForEnv() {
    return [this.reward, false, false];
  }
}

const [way, from, to, folder] = process.argv.slice(2);
if (from) {
  const bytes = readFileSync(from);
  const values = new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  let written = JSON.stringify;
  let read = JSON.parse;
  if (way === "toString") [written, read] = [String, Number];
  if (way === "msgpack") {
    const { encode, decode } = createRequire(`${folder}/`)("@msgpack/msgpack");
    [written, read] = [encode, decode];
  }
  const through = (x) => {
    const text = written(x);
    if (!Number.isFinite(x)) console.log(`fate: ${typeof text === "string" ? text : ""}`);
    const value = read(text);
    if (typeof value !== "number") console.log(`refused: it is ${value}`);
    return value ?? NaN;
  };
  writeFileSync(to, Buffer.from(values.map(through).buffer));
} else {
  const parameters = {};
  for (let i = 0; i < 200; i++) parameters[`p${i}`] = [0, -Infinity, Infinity];
  const features = ["INFO", "OPTIONS"];
  const spec = { obsSize: 1000, actSize: 1000, numEnvs: 1, actSpace: "BOX(-inf:inf)", parameters, features };
  if (way.startsWith("ws:")) connect(new Echo(spec), { url: way });
  else await listen(new Echo(spec), { port: Number(way) });
}
