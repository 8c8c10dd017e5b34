// Games for the tests of samples/web/ue_rl.js: node games.mjs NAME WHERE [text], a port to listen on or ws://HOST:PORT to
// dial; `text`: the trainer is not offered the binary form.
import { Carts } from "../../../samples/web/carts/carts.js";
import { MultiAgentBridge, MultiEnvBridge, connect, listen } from "../../../samples/web/ue_rl.js";

/** All that an engine of single agents may offer. Two choices move a point, and a wall makes one of them illegal. */
class Everything extends MultiEnvBridge {
  constructor() {
    super({
      obsSize: 2, actSize: 1, numEnvs: 3, actSpace: "DISCRETE(2)", obsSpace: "BOX(-20:20,0:99)", obsNames: ["x[m]", "age"],
      actNames: ["side"], features: ["SEED", "TRUNC", "INFO", "OPTIONS"], parameters: { pace: [1, 0, 4], limit: [20, 5, 50] },
      renderFps: 12,
    });
    this.x = new Float64Array(3);
    this.age = new Uint32Array(3);
    this.told = { paused: false, scale: 1 };
  }
  handleResetForEnv(envId, { options }) {
    this.x[envId] = options?.x ?? this.random[envId].uniform(-1, 1);
    this.age[envId] = 0;
  }
  handleResponseActionsForEnv(envId, [side]) {
    this.x[envId] += (side === 1 ? 0.5 : -0.5) * this.getParameter("pace", envId);
    this.age[envId] += 1;
    this.writeInfo(envId, { paused: this.told.paused, scale: this.told.scale, text: "é;|%" });
  }
  createStateStringForEnv(envId) {
    return [this.x[envId], this.age[envId]];
  }
  calculateRewardForEnv(envId) {
    return [-Math.abs(this.x[envId]), Math.abs(this.x[envId]) > 12, this.age[envId] >= this.getParameter("limit", envId)];
  }
  createActionMaskForEnv(envId) {
    return [this.x[envId] > -10, this.x[envId] < 10];
  }
  heuristic(envId, [x]) {
    return [x < 0 ? 1 : 0];
  }
  render(envId) {
    return { width: 3, height: 2, data: new Uint8Array(24).fill(255).fill(envId, 0, 3) }; // RGBA
  }
  setPaused(paused) {
    this.told.paused = paused;
  }
  setTimeScale(scale) {
    if (scale > 100) throw new Error("so fast it cannot be");
    this.told.scale = scale;
  }
  computeReward(achieved, desired) {
    return -Math.abs(achieved[0] - desired[0]);
  }
}

/** Has something to say beside its numbers in a few steps only. */
class Quiet extends Everything {
  handleResponseActionsForEnv(envId, actions) {
    super.handleResponseActionsForEnv(envId, actions);
    if (this.age[envId] % 7) this._infos.delete(envId);
  }
}

/** Infos with numbers that JSON.stringify() loses. */
class Figures extends Everything {
  handleResponseActionsForEnv(envId) {
    const infos = [
      { zero: -0, nan: NaN, parts: { list: [1.5, -0, 0] }, deep: { list: [[-Infinity]] }, none: null, text: "-0" },
      { one: 1, gone: undefined },
      { nan: NaN },
    ];
    this.writeInfo(envId, infos[envId]);
  }
}

/** Two strikers and a goalie. A striker ends after its own number of steps, and the second one comes one step late. */
class Pitch extends MultiAgentBridge {
  constructor() {
    super({
      numEnvs: 2, features: ["SEED", "TRUNC", "INFO"],
      groups: {
        striker: { count: 2, obsSize: 2, actSize: 2, obsNames: ["x", "age"] },
        goalie: { obsSize: 3, actSize: 1, actSpace: "DISCRETE(3)", obsSpace: "BOX(-9:9)" },
      },
    });
    this.age = [0, 0];
    this.start = [0, 0];
  }
  resetEnv(envId) {
    this.age[envId] = 0;
    this.start[envId] = this.random[envId].uniform(-1, 1);
  }
  stepEnv(envId, actions) {
    this.age[envId] += 1;
    this.start[envId] += 0.1 * (actions.striker_0?.[0] ?? actions.striker_1?.[1] ?? 0);
  }
  observe(envId) {
    const age = this.age[envId];
    const seen = {};
    if (age <= 4) seen.striker_0 = [this.start[envId], age];
    if (age >= 1 && age <= 6) seen.striker_1 = [1, age];
    if (age <= 6) seen.goalie = [this.start[envId], 0.1, -0.1];
    return seen;
  }
  results(envId) {
    const age = this.age[envId];
    return { striker_0: [0.5, age === 4], striker_1: [0.25, age === 6], goalie: [-1, false, age === 6] };
  }
  actionMasks() {
    return { goalie: [true, false, true] };
  }
  infos(envId) {
    return { goalie: { age: this.age[envId] } };
  }
}

const [name, where, form] = process.argv.slice(2);
const games = { agents: Pitch, carts: Carts, figures: Figures, quiet: Quiet };
const game = new (games[name] ?? Everything)();
if (name === "demo") game.demonstrate();
if (where.includes("://")) connect(game, { url: where, binary: form !== "text" });
else await listen(game, { port: Number(where) });
