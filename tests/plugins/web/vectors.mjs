// Has the session of samples/web/ue_rl.js read the requests and calls of docs/protocol-vectors.json on its stdin.
// For each a line of JSON: {name, asks} or {name, refused}.
import { readFileSync } from "node:fs";
import { MultiEnvBridge, Session } from "../../../samples/web/ue_rl.js";

class Listening extends MultiEnvBridge {
  asks = [];
  handleResetForEnv(env, { seed, options }) {
    const ask = { env, reset: true };
    if (seed !== null) ask.seed = String(seed);
    if (options !== null) ask.options = options;
    if (Object.keys(this.spec.parameters).length) ask.values = { ...this._values[env] };
    this.asks.push(ask);
  }
  handleResponseActionsForEnv(env, action) {
    this.asks.push({ env, action });
  }
  createStateStringForEnv() {
    return new Array(this.spec.obsSize).fill(0);
  }
  calculateRewardForEnv() {
    return [0, false, false];
  }
  createActionMaskForEnv() {
    return new Array(this._flags).fill(true);
  }
}

function bridgeOf(config) {
  const said = Object.fromEntries(config.slice(7).split(";").filter(Boolean).map((field) => field.split(/=(.*)/s)));
  const features = (said.FEATURES ?? "").split(",").filter((name) => ["SEED", "TRUNC", "INFO", "MASK", "OPTIONS"].includes(name));
  const parameters = {};
  for (const one of (said.PARAMS ?? "").split(",").filter(Boolean)) {
    const [name, ...numbers] = one.split(":");
    parameters[decodeURIComponent(name)] = numbers.map(Number);
  }
  return new Listening({
    obsSize: Number(said.OBS), actSize: Number(said.ACT), numEnvs: Number(said.ENV_COUNT ?? 1),
    actSpace: said.ACT_SPACE ?? "BOX(-1:1)", features, parameters,
  });
}

for (const vector of JSON.parse(readFileSync(0, "utf8"))) {
  const bridge = bridgeOf(vector.config);
  let told;
  try {
    const answers = new Session(bridge).take(vector.request ?? vector.call);
    told = { name: vector.name, asks: bridge.asks, answers };
  } catch (error) {
    told = { name: vector.name, refused: error.message, asks: bridge.asks };
  }
  console.log(JSON.stringify(told));
}
