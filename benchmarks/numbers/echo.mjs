// Shows its action as its observation: echo.mjs PORT. Or numbers through JavaScript's own ways: echo.mjs WAY IN OUT
// (float64 files); the way "msgpack" needs FOLDER, in which @msgpack/msgpack is installed, behind them.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { MultiEnvBridge, listen } from "../../samples/web/ue_rl.js";

class Echo extends MultiEnvBridge {
  shown = new Float32Array(1000);

  handleResetForEnv() {}
  handleResponseActionsForEnv(envId, actions) {
    this.shown = Float32Array.from(actions);
  }
  createStateStringForEnv() {
    return this.shown;
  }
  calculateRewardForEnv() {
    return [0, false, false];
  }
}

const [way, from, to, folder] = process.argv.slice(2);
if (from) {
  const bytes = readFileSync(from);
  const values = new Float64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  let through = (x) => JSON.parse(JSON.stringify(x));
  if (way === "toString") through = (x) => Number(String(x));
  if (way === "msgpack") {
    const { encode, decode } = createRequire(`${folder}/`)("@msgpack/msgpack");
    through = (x) => decode(encode(x));
  }
  writeFileSync(to, Buffer.from(values.map(through).buffer));
} else {
  const parameters = {};
  for (let i = 0; i < 200; i++) parameters[`p${i}`] = [0, -Infinity, Infinity];
  const spec = { obsSize: 1000, actSize: 1000, numEnvs: 1, actSpace: "BOX(-inf:inf)", parameters };
  await listen(new Echo(spec), { port: Number(way) });
}
