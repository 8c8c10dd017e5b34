// Has the session of samples/web/ue_rl.js read the requests and calls of docs/protocol-vectors.json on its stdin.
// For each a line of JSON: {name, asks} or {name, refused}.
import { readFileSync } from "node:fs";
import { MultiAgentBridge, MultiEnvBridge, Session } from "../../../samples/web/ue_rl.js";

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
}

/** Of its calls it says what it was told, and answers as the vector does. */
class Called extends Listening {
  setPaused() {}
  setTimeScale() {}
  render() {
    return { width: 1, height: 2, data: [0, 1, 2, 3, 4, 255] };
  }
  computeReward(achieved) {
    return achieved[0] === 1 ? -1 : 0;
  }
}

class Crowd extends MultiAgentBridge {
  asks = [];
  resetEnv(env) {
    this.asks.push({ env, reset: true });
  }
  stepEnv(env, actions) {
    for (const [name, action] of Object.entries(actions)) this.asks.push({ env, agent: this.agentNames.indexOf(name), action });
  }
  observe() {
    return Object.fromEntries(this.there.map((name) => [name, new Array(name.startsWith("striker") ? 2 : 3).fill(0)]));
  }
  results() {
    return Object.fromEntries(this.there.map((name) => [name, [0, false]]));
  }
}

function bridgeOf(config) {
  const said = Object.fromEntries(config.slice(7).split(";").filter(Boolean).map((field) => field.split(/=(.*)/s)));
  if (said.AGENTS) return crowd();
  const features = (said.FEATURES ?? "").split(",").filter((name) => ["SEED", "TRUNC", "INFO", "OPTIONS"].includes(name));
  const parameters = {};
  for (const one of (said.PARAMS ?? "").split(",").filter(Boolean)) {
    const [name, ...numbers] = one.split(":");
    parameters[decodeURIComponent(name)] = numbers.map(Number);
  }
  return new (said.FEATURES?.includes("GOAL_REWARD") ? Called : Listening)({
    obsSize: Number(said.OBS), actSize: Number(said.ACT), numEnvs: Number(said.ENV_COUNT ?? 1),
    actSpace: said.ACT_SPACE ?? "BOX(-1:1)", features, parameters,
  });
}

/** That of the vectors, after a reset of both envs in which the goalie and the first striker have begun. */
function crowd() {
  const bridge = new Crowd({
    numEnvs: 2,
    groups: { striker: { count: 2, obsSize: 2, actSize: 2 }, goalie: { obsSize: 3, actSize: 1, actSpace: "DISCRETE(3)" } },
  });
  bridge.there = ["striker_0", "goalie"];
  new Session(bridge).take("ACT=RESET;ENV=0||ACT=RESET;ENV=1");
  bridge.asks = [];
  return bridge;
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
