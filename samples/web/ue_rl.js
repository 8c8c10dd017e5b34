// ue_rl.js: lets a trainer drive a game in a web page, or in Node. One module, no dependencies.
//
//     import { MultiEnvBridge, connect } from "./ue_rl.js";
//
//     class Walk extends MultiEnvBridge {
//       x = new Float64Array(this.numEnvs);
//       handleResetForEnv(envId) { this.x[envId] = this.random[envId].uniform(-1, 1); }
//       handleResponseActionsForEnv(envId, actions) { this.x[envId] += actions[0]; }
//       createStateStringForEnv(envId) { return [this.x[envId]]; }
//       calculateRewardForEnv(envId) { return [-Math.abs(this.x[envId]), Math.abs(this.x[envId]) > 3, false]; }
//     }
//
//     connect(new Walk({ obsSize: 1, actSize: 1, numEnvs: 4 }));  // a page can only dial: the trainer listens
//
// Lock-step: a request is answered at once, as fast as requests come, in a hidden tab too. Draw on frames, and never
// step on them. The protocol is ue_rl's docs/protocol.md, each line a message of the WebSocket; in Node `listen` serves
// the same game over TCP. What does not fit the protocol ends the session with a sentence that the trainer gets, too;
// then the next one is served.

const CALLS = ["GET", "SET", "TIME_SCALE", "PAUSE", "RENDER", "GOALS"];
const ABILITIES = { // FEATURE: the method of a game that has it
  MASK: "createActionMaskForEnv",
  RENDER: "render",
  PAUSE: "setPaused",
  TIME_SCALE: "setTimeScale",
  GOAL_REWARD: "computeReward",
};
const MOST_CALL = 1 << 20; // characters of a call
const MOST_SEED = 2n ** 63n - 1n;
const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const NEGATIVE_ZERO = "\0-0.0\0"; // stands for it in an info, since JSON.stringify() makes 0 of it
const INTEGER = /^\d+$/;
const PROOF_MS = 5000; // for a trainer to prove that it knows the token
const SILENT_MS = 30000; // a first connection that has said nothing for so long gives way to another one
const MOST_WAITING = 16; // trainers that were told BUSY
const TAKEN = 4409; // the trainer's word that another page is the engine there
const RETURNS = 100; // episodes of which the returns are kept
const MOST_PIXELS = 48 << 20; // bytes of a picture
const HALT_MS = 50; // between two looks whether a person lets a halted game go on
// Steps and their answers as float32 rows (docs/protocol.md, section 1), where this machine's numbers are little-endian.
const BINARY = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
const URB1 = 0x31425255;
const HEAD = 32; // bytes: URB1, kind, rows, numbers of a row, mask flags of a row, 0; two words of the request's number
const STEP = 1;
const ANSWER = 2;
const POWERS = Array.from({ length: 17 }, (_, n) => 10 ** n);

/** What the game or the trainer has done wrong, as a sentence; it ends the session, and not the game. */
export class SessionError extends Error {}

/**
 * A random generator (xoshiro128**) that gives the same numbers in every browser and in Node.
 * Math.random() cannot be seeded.
 */
export class Random {
  /** @param {number | bigint} seed of 64 bits */
  constructor(seed = 0) {
    this.seed(seed);
  }

  /** @param {number | bigint} seed from here on the numbers are those of this seed */
  seed(seed) {
    const whole = BigInt.asUintN(64, BigInt(seed));
    const low = Number(whole & 0xffffffffn);
    const high = Number(whole >> 32n);
    this.state = Uint32Array.from([1, 2, 3, 4], (n) => mixed(mixed(low + Math.imul(n, 0x9e3779b9)) ^ high));
    if (!this.state.some(Boolean)) this.state[0] = 1;
  }

  /** @returns {number} a whole number from 0 to 2^32 - 1 */
  bits() {
    const s = this.state;
    const product = Math.imul(s[1], 5);
    const result = Math.imul((product << 7) | (product >>> 25), 9) >>> 0;
    const shifted = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = (s[3] << 11) | (s[3] >>> 21);
    return result;
  }

  /** @returns {number} from `low` to below `high`, with 53 random bits */
  uniform(low = 0, high = 1) {
    const upper = this.bits() >>> 5;
    const lower = this.bits() >>> 6;
    return low + (high - low) * ((upper * 67108864 + lower) / 9007199254740992);
  }

  /** @returns {number} a whole number from `low` to `high`, both included */
  integer(low, high) {
    return low + Math.floor(this.uniform() * (high - low + 1));
  }
}

/** A word of 32 bits of which each depends on all of `word`. */
function mixed(word) {
  let z = word | 0;
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return z ^ (z >>> 15);
}

/**
 * A game of `numEnvs` envs. Derive from it, and write the four methods that throw here.
 *
 * What the game may define beside them is announced to the trainer by itself:
 *
 *     createActionMaskForEnv(envId)       flags: which choices are legal now (MASK)
 *     render(envId)                       a canvas, an ImageData or {width, height, data}: the picture of an env (RENDER)
 *     setParameter(name, value, envId)    a parameter of this env has changed
 *     setPaused(paused)                   a game with a clock of its own stops it (PAUSE)
 *     setTimeScale(scale)                 1: real time (TIME_SCALE)
 *     computeReward(achieved, desired)    of two goals (GOAL_REWARD)
 *     heuristic(envId, observation)       acts by a person's keys or a script, see `demonstrate` and `play`
 *
 * @property {Random[]} random a generator for each env; a trainer's seed starts it anew before handleResetForEnv
 * @property {number} stepsPerSecond for watching: no more requests for steps are answered a second; 0: all at once
 * @property {boolean} halted a person has stopped it: steps wait, and so does the trainer, as long as its timeout is
 * @property {{steps: number, returns: number[]}} played steps of all envs so far; returns of the last 100 episodes, as
 *   they ended
 */
export class MultiEnvBridge {
  /**
   * @param {object} spec
   * @param {number} spec.obsSize numbers of an observation
   * @param {number} spec.actSize numbers of an action
   * @param {number} [spec.numEnvs]
   * @param {string} [spec.actSpace] "DISCRETE(3)" and others: docs/protocol.md, section 3
   * @param {string} [spec.obsSpace] bounds or parts of the observation
   * @param {string[]} [spec.obsNames] for people: "speed[m/s]"
   * @param {string[]} [spec.actNames]
   * @param {string[]} [spec.features] of SEED, TRUNC, INFO, OPTIONS; without it SEED and TRUNC
   * @param {Object<string, number[]>} [spec.parameters] what a trainer may set: {gravity: [9.8, 0, 20]}
   * @param {number} [spec.renderFps] pictures a second of a film
   */
  constructor(spec) {
    const whole = { numEnvs: 1, actSpace: "BOX(-1:1)", features: ["SEED", "TRUNC"], parameters: {}, ...spec };
    const { numEnvs } = whole;
    requireCounts({ obsSize: whole.obsSize, actSize: whole.actSize, numEnvs });
    const random = Array.from({ length: numEnvs }, (_, envId) => new Random(envId));
    const played = { steps: 0, returns: [] };
    // A game that has something else by one of these names hears of it in its own line, and not as a broken session.
    for (const [name, value] of Object.entries({ spec: whole, numEnvs, random, played })) {
      Object.defineProperty(this, name, { value, enumerable: true });
    }
    this.stepsPerSecond = 0;
    this.halted = false;
    this._running = new Float64Array(this.numEnvs); // returns of the episodes that run
    this._infos = new Map();
    this._values = Array.from({ length: this.numEnvs }, () =>
      Object.fromEntries(Object.entries(this.spec.parameters).map(([name, [value]]) => [name, value])),
    );
    this._demo = null; // acts in the trainer's place
    this._seen = new Map(); // env -> its last observation, for those that act here
    this._shape = new Shape(this.spec, "");
    this._agents = 1; // rows of an env
  }

  /** A new episode of this env. @param {number} envId @param {{seed: bigint | null, options: object | null}} given */
  handleResetForEnv(envId, given) {
    throw new SessionError(`handleResetForEnv is not written (env ${envId}, ${given})`);
  }

  /** One step of this env. @param {number} envId @param {number[]} actions `actSize` numbers */
  handleResponseActionsForEnv(envId, actions) {
    throw new SessionError(`handleResponseActionsForEnv is not written (env ${envId}, ${actions})`);
  }

  /** What its agent sees, after a reset too. @param {number} envId @returns {ArrayLike<number>} `obsSize` numbers */
  createStateStringForEnv(envId) {
    throw new SessionError(`createStateStringForEnv is not written (env ${envId})`);
  }

  /**
   * What the last step was worth, and whether it ended the episode; the trainer begins the next one.
   * @param {number} envId
   * @returns {[number, boolean, boolean?]} reward, terminated, truncated
   */
  calculateRewardForEnv(envId) {
    throw new SessionError(`calculateRewardForEnv is not written (env ${envId})`);
  }

  /** With the feature INFO, from within a step: what else the trainer should see. @param {number} envId @param {object} info */
  writeInfo(envId, info) {
    this._infos.set(envId, { ...this._infos.get(envId), ...info });
  }

  /** @param {string} name @param {number} envId @returns {number} the value of a parameter */
  getParameter(name, envId = 0) {
    return this._values[envId][name];
  }

  /**
   * Has the game act itself while a trainer asks, to be recorded (FEATURES=DEMO); before `connect` or `listen`.
   * @param {((envId: number, observation: number[]) => ArrayLike<number>) | null} [act] a person's keys or a script;
   *   without one the game's `heuristic`; null: the trainer acts again
   */
  demonstrate(act = (envId, observation) => this.heuristic(envId, observation)) {
    if (act && this._agents > 1) throw new RangeError("a game with agents cannot be recorded");
    this._demo = act;
  }

  /** @returns {string[]} FEATURES of the handshake */
  features() {
    const found = new Set(["ERROR", "SEQ", ...this.spec.features]);
    if (this._agents === 1) found.add("AUTORESET");
    for (const [feature, method] of Object.entries(ABILITIES)) if (typeof this[method] === "function") found.add(feature);
    if (this._demo) found.add("DEMO").add("INFO");
    return [...found].sort();
  }

  /** @param {string[]} [more] FEATURES of the carrier @returns {string} the handshake */
  describe(more = []) {
    const { spec } = this;
    const features = [...new Set([...this.features(), ...more])].sort();
    const fields = [`OBS=${spec.obsSize}`, `ACT=${spec.actSize}`, "ENV_TYPE=MULTI", `ENV_COUNT=${this.numEnvs}`];
    fields.push("VERSION=1", "CHANNEL=SHARED", `FEATURES=${features.join(",")}`, ...this._spaces());
    if (spec.renderFps) fields.push(`RENDER_FPS=${spec.renderFps}`);
    const parameters = Object.entries(spec.parameters).map(([name, numbers]) => [encodeName(name), ...numbers].join(":"));
    if (parameters.length) fields.push(`PARAMS=${parameters.join(",")}`);
    return `CONFIG:${fields.join(";")}`;
  }

  /** @returns {number} the most characters of a line that a trainer sends */
  lineLimit() {
    const { spec } = this;
    const features = this.features();
    const wide = features.includes("INFO") || features.includes("OPTIONS") || Object.keys(spec.parameters).length;
    const row = 48 * Math.max(spec.obsSize + 1, spec.actSize) + (wide ? 65536 : 64) + this._mostFlags();
    return Math.max(1024 + this.numEnvs * this._agents * row, MOST_CALL);
  }

  // -- for the session: what differs where an env holds several agents

  _spaces() {
    return this._shape.describe("");
  }

  _mostFlags() {
    return this._shape.flags;
  }

  /** The action of a row. */
  _read(fields, text) {
    return this._shape.read(fields.get("ACT"), text);
  }

  /** What two rows of one env ask together; null: they do not go together. */
  _join() {
    return null;
  }

  /** @throws {SessionError} this step cannot be done now */
  _require() {}

  _begin(envId, ask) {
    if (ask.settings) this._set(ask.settings, envId);
    if (ask.seed !== null) this.random[envId].seed(ask.seed);
    this._running[envId] = 0;
    this._infos.delete(envId);
    this._reset(envId, { seed: ask.seed, options: ask.options });
  }

  _reset(envId, given) {
    this.handleResetForEnv(envId, given);
  }

  _act(envId, asked) {
    this._infos.delete(envId);
    let action = asked;
    if (this._demo) {
      action = Array.from(this._demo(envId, this._seen.get(envId) ?? this._observe(envId)), Number);
      if (action.length !== this.spec.actSize || !action.every(Number.isFinite)) {
        throw new SessionError(`whoever plays env ${envId} gave ${action}, not ${this.spec.actSize} numbers`);
      }
      this.writeInfo(envId, { demo_action: action });
    }
    this.handleResponseActionsForEnv(envId, action);
  }

  _observe(envId) {
    return Array.from(this.createStateStringForEnv(envId), Number);
  }

  /** [the env's rows, is its episode over?] */
  _answer(envId, acted) {
    return this._state(envId, acted, (...state) => this._shape.row(...state));
  }

  /** What `put` makes of an env's state, and whether its episode is over. */
  _state(envId, acted, put) {
    const seen = this.createStateStringForEnv(envId);
    const [reward, terminated, truncated] = acted ? this.calculateRewardForEnv(envId) : [0, false, false];
    const over = Boolean(terminated || truncated);
    const mask = this.createActionMaskForEnv ? this.createActionMaskForEnv(envId) : null;
    const info = acted ? this._infos.get(envId) : null;
    const row = put(seen, reward, terminated, truncated, `;ENV=${envId}`, mask, info);
    if (this._demo) this._seen.set(envId, Array.from(seen, Number));
    if (acted) this._count(envId, reward, over);
    return [row, over];
  }

  _count(envId, reward, over) {
    this._running[envId] += reward;
    if (!over) return;
    const { returns } = this.played;
    returns.push(this._running[envId]);
    if (returns.length > RETURNS) returns.shift();
  }

  _set(settings, envId) {
    Object.assign(this._values[envId], settings);
    if (this.setParameter) for (const [name, value] of Object.entries(settings)) this.setParameter(name, value, envId);
  }
}

/**
 * Envs in which several agents act, who may come and go. Derive from it, and write the four methods that throw here. An
 * agent is called by its name: `striker_0`, `striker_1`; of a group of one, by the group's own. What else a game may
 * define stands at MultiEnvBridge; instead of createActionMaskForEnv, and of writeInfo:
 *
 *     actionMasks(envId)   {name: flags} of the agents that have any
 *     infos(envId)         {name: object}; with the feature INFO
 */
export class MultiAgentBridge extends MultiEnvBridge {
  /**
   * @param {object} spec as of MultiEnvBridge, without sizes, spaces and names: those are a group's
   * @param {Object<string, {count?: number, obsSize: number, actSize: number, actSpace?: string, obsSpace?: string,
   *   obsNames?: string[], actNames?: string[]}>} spec.groups by name; `count`: the most agents that one env has
   */
  constructor(spec) {
    const groups = Object.entries(spec.groups);
    if (!groups.length) throw new RangeError("agents stand in groups: give one or more");
    super({
      ...spec,
      obsSize: Math.max(...groups.map(([, group]) => group.obsSize)),
      actSize: Math.max(...groups.map(([, group]) => group.actSize)),
    });
    this._shapes = []; // of each agent
    this.agentNames = [];
    for (const [name, group] of groups) {
      const { count = 1 } = group;
      requireCounts({ [`${name}'s count`]: count, [`${name}'s obsSize`]: group.obsSize, [`${name}'s actSize`]: group.actSize });
      const shape = new Shape({ actSpace: "BOX(-1:1)", ...group }, name);
      for (let i = 0; i < count; i++) {
        this._shapes.push(shape);
        this.agentNames.push(count === 1 ? name : `${name}_${i}`);
      }
    }
    this._agents = this._shapes.length;
    this._live = Array.from({ length: this.numEnvs }, () => new Set()); // agents whose episode is not over
  }

  /** A new episode of this env. @param {number} envId @param {{seed: bigint | null, options: object | null}} given */
  resetEnv(envId, given) {
    throw new SessionError(`resetEnv is not written (env ${envId}, ${given})`);
  }

  /** One step. @param {number} envId @param {Object<string, number[]>} actions of all agents whose episode is not over */
  stepEnv(envId, actions) {
    throw new SessionError(`stepEnv is not written (env ${envId}, ${Object.keys(actions)})`);
  }

  /**
   * What the agents see: after a reset those that begin, one at least; after a step all that acted, those that ended
   * among them, and those that have just come.
   * @param {number} envId
   * @returns {Object<string, ArrayLike<number>>}
   */
  observe(envId) {
    throw new SessionError(`observe is not written (env ${envId})`);
  }

  /**
   * Of every agent that acted: reward, terminated, truncated.
   * @param {number} envId
   * @returns {Object<string, [number, boolean, boolean?]>}
   */
  results(envId) {
    throw new SessionError(`results is not written (env ${envId})`);
  }

  features() {
    const found = new Set(super.features());
    if (this.actionMasks) found.add("MASK");
    return [...found].sort();
  }

  _spaces() {
    const groups = [...new Set(this._shapes)];
    const counts = groups.map((group) => this._shapes.filter((shape) => shape === group).length);
    const names = groups.map((group, i) => `${encodeName(group.name)}:${counts[i]}`);
    const sizes = groups.flatMap((group) => {
      const name = encodeName(group.name);
      return [`OBS.${name}=${group.spec.obsSize}`, `ACT.${name}=${group.spec.actSize}`, ...group.describe(`.${name}`)];
    });
    return [`AGENTS=${names.join(",")}`, ...sizes];
  }

  _mostFlags() {
    return Math.max(...this._shapes.map((shape) => shape.flags));
  }

  _read(fields, text) {
    const value = fields.get("AGENT");
    if (value === undefined || !INTEGER.test(value) || Number(value) >= this._agents) {
      throw refusal("AGENT is missing, or there is no such agent", text);
    }
    return new Map([[Number(value), this._shapes[Number(value)].read(fields.get("ACT"), text)]]);
  }

  _join(actions, more) {
    for (const agent of more.keys()) if (actions.has(agent)) return null;
    return new Map([...actions, ...more]);
  }

  _require(envId, actions) {
    const live = this._live[envId];
    for (const agent of live) {
      if (!actions.has(agent)) throw new SessionError(`${this.agentNames[agent]} of env ${envId} can act, and was not asked`);
    }
    for (const agent of actions.keys()) {
      if (!live.has(agent)) throw new SessionError(`${this.agentNames[agent]} of env ${envId} was asked, and cannot act`);
    }
  }

  _reset(envId, given) {
    this.resetEnv(envId, given);
  }

  _act(envId, actions) {
    this.stepEnv(envId, Object.fromEntries([...actions].map(([agent, numbers]) => [this.agentNames[agent], numbers])));
  }

  _answer(envId, acted) {
    const seen = this._byAgent(envId, this.observe(envId), "observe");
    const results = acted ? this._byAgent(envId, this.results(envId), "results") : new Map();
    const masks = this._byAgent(envId, this.actionMasks ? this.actionMasks(envId) : {}, "actionMasks");
    const infos = this._byAgent(envId, acted && this.infos ? this.infos(envId) : {}, "infos");
    const acting = acted ? this._live[envId] : new Set();
    if (!acted && !seen.size) throw new SessionError(`the episode of env ${envId} begins without any agent`);
    for (const agent of acting) {
      const missing = !results.has(agent) ? "result" : !seen.has(agent) ? "observation" : null;
      if (missing) throw new SessionError(`${this.agentNames[agent]} of env ${envId} acted, but there is no ${missing} of it`);
    }
    const live = new Set();
    let sum = 0;
    const rows = [...seen].map(([agent, numbers]) => {
      const [reward, terminated, truncated] = acting.has(agent) ? results.get(agent) : [0, false, false];
      sum += reward;
      if (!(terminated || truncated)) live.add(agent);
      const where = `;ENV=${envId};AGENT=${agent}`;
      const [mask, info] = [masks.get(agent), infos.get(agent)];
      return this._shapes[agent].row(numbers, reward, terminated, truncated, where, mask, info);
    });
    this._live[envId] = live;
    if (acted) this._count(envId, sum, !live.size);
    return [rows.join("||"), !live.size];
  }

  /** {name: value} as a map from the agents' numbers, in their order. */
  _byAgent(envId, given, method) {
    const found = new Map();
    for (const name of Object.keys(given)) {
      if (!this.agentNames.includes(name)) throw new SessionError(`${method} of env ${envId} names ${name}, and there is no such agent`);
    }
    this.agentNames.forEach((name, agent) => {
      if (Object.hasOwn(given, name)) found.set(agent, given[name]);
    });
    return found;
  }
}

/** The sizes and spaces of a row: of an env, or of the agents of a group. */
class Shape {
  constructor(spec, name) {
    this.spec = spec;
    this.name = name;
    this._leftOut = new Set(); // keys of infos that a warning was about
    this.choices = choices(spec.actSpace, spec.actSize);
    this.flags = this.choices.reduce((sum, ends) => sum + (ends ? ends[1] - ends[0] + 1 : 0), 0);
    if (this.choices.length !== spec.actSize && !spec.groups) {
      throw new RangeError(`the action space has ${this.choices.length} numbers, but actSize is ${spec.actSize}`);
    }
    const seen = spec.obsSpace ? choices(spec.obsSpace, spec.obsSize).length : spec.obsSize;
    if (seen !== spec.obsSize) throw new RangeError(`the observation space has ${seen} numbers, but obsSize is ${spec.obsSize}`);
  }

  /** Fields of the handshake; `of`: ".GROUP". */
  describe(of) {
    const { spec } = this;
    const fields = [`ACT_SPACE${of}=${spec.actSpace}`];
    if (spec.obsSpace) fields.push(`OBS_SPACE${of}=${spec.obsSpace}`);
    if (spec.obsNames) fields.push(`OBS_NAMES${of}=${spec.obsNames.map(encodeName).join(",")}`);
    if (spec.actNames) fields.push(`ACT_NAMES${of}=${spec.actNames.map(encodeName).join(",")}`);
    return fields;
  }

  /** The numbers of an action. */
  read(value, text) {
    const action = value.split(",").map((one) => readNumber(one.trim(), text));
    if (action.length !== this.spec.actSize) throw refusal(`ACT holds ${action.length} numbers, not ${this.spec.actSize}`, text);
    return this.legal(action, text);
  }

  /** The same action. @throws {SessionError} a number of it is no choice of its space */
  legal(action, text) {
    action.forEach((x, i) => {
      const ends = this.choices[i];
      if (ends && !(Number.isInteger(x) && x >= ends[0] && x <= ends[1])) {
        throw refusal(`ACT holds a choice that is not one of ${ends[0]} to ${ends[1]}`, text);
      }
    });
    return action;
  }

  /** @throws {SessionError} an observation has not the numbers of the handshake */
  requireSize(seen, where) {
    if (seen?.length !== this.spec.obsSize) {
      throw new SessionError(`the game gave ${seen?.length} numbers as an observation, not ${this.spec.obsSize}: ${where.slice(1)}`);
    }
  }

  /** @throws {SessionError} a mask has not the flags of the action space */
  requireFlags(mask, where) {
    if (mask.length !== this.flags) throw new SessionError(`the game gave ${mask.length} flags, not ${this.flags}: ${where.slice(1)}`);
  }

  /** A state, as the game gave it. `where`: the fields that say whose it is. */
  row(seen, reward, terminated, truncated, where, mask, info) {
    this.requireSize(seen, where);
    const over = Boolean(terminated || truncated);
    let row = `OBS=${writeNumber(seen[0], "an observation", where)}`;
    for (let i = 1; i < seen.length; i++) row += `,${writeNumber(seen[i], "an observation", where)}`;
    row += `;REW=${writeNumber(reward, "a reward", where)};DONE=${over ? 1 : 0}${where}`;
    if (truncated && !terminated) row += ";TRUNC=1";
    if (mask && !over) {
      this.requireFlags(mask, where);
      row += `;MASK=${Array.from(mask, (flag) => (flag ? "1" : "0")).join("")}`;
    }
    const told = info ? this._told(info) : "{}";
    if (told !== "{}") row += `;INFO=${encode(told)}`;
    return row;
  }

  /** An info as JSON, with the signs of its zeros. What holds NaN or infinity, of which JSON.stringify() makes null, is left out. */
  _told(info) {
    const parts = [];
    for (const [key, value] of Object.entries(info)) {
      let finite = true;
      const text = JSON.stringify(value, (_, x) => {
        if (typeof x === "number" && !Number.isFinite(x)) finite = false;
        return Object.is(x, -0) ? NEGATIVE_ZERO : x;
      });
      if (finite && text !== undefined) parts.push(`${JSON.stringify(key)}:${text.replaceAll(JSON.stringify(NEGATIVE_ZERO), "-0.0")}`);
      if (finite || this._leftOut.has(key)) continue;
      this._leftOut.add(key);
      console.warn(`ue_rl: the info "${key}" is left out: it holds NaN or infinity, which JSON cannot carry`);
    }
    return `{${parts.join(",")}}`;
  }
}

/** States of envs as they come, to be sent as one binary message, or as text where one of them has an INFO. */
class Rows {
  /** @param {MultiEnvBridge} bridge @param {number} count envs @param {ArrayLike<number>} number of the request, two words */
  constructor(bridge, count, number) {
    const { spec, _shape: shape } = bridge;
    this._bridge = bridge;
    this._marks = bridge.createActionMaskForEnv ? shape.flags : 0;
    this._message = new ArrayBuffer(HEAD + count * (4 + 4 + 4 * spec.obsSize + 1 + this._marks));
    this._number = number;
    this._filled = 0;
    this._infos = new Map(); // row -> what text alone can say
    new Uint32Array(this._message, 0, HEAD / 4).set([URB1, ANSWER, count, spec.obsSize, this._marks, 0, ...number]);
    let at = HEAD;
    this._ids = new Uint32Array(this._message, at, count);
    at += 4 * count;
    this._rewards = new Float32Array(this._message, at, count);
    at += 4 * count;
    this._seen = new Float32Array(this._message, at, count * spec.obsSize);
    at += 4 * count * spec.obsSize;
    this._ends = new Uint8Array(this._message, at, count); // 1: DONE, 3: DONE and TRUNC
    this._masks = new Uint8Array(this._message, at + count, count * this._marks).fill(1);
  }

  /** The next env's state. @returns {boolean} is its episode over? */
  add(envId, acted) {
    const row = this._filled++;
    this._ids[row] = envId;
    const put = (...state) => this._put(row, ...state);
    return this._bridge._state(envId, acted, put)[1];
  }

  _put(row, seen, reward, terminated, truncated, where, mask, info) {
    const { _shape: shape } = this._bridge;
    shape.requireSize(seen, where);
    const width = shape.spec.obsSize;
    for (let i = 0, to = row * width; i < width; i++, to++) {
      this._seen[to] = seen[i];
      if (!Number.isFinite(this._seen[to])) throw new SessionError(`the game gave ${seen[i]} as an observation: ${where.slice(1)}`);
    }
    this._rewards[row] = reward;
    if (!Number.isFinite(this._rewards[row])) throw new SessionError(`the game gave ${reward} as a reward: ${where.slice(1)}`);
    this._ends[row] = terminated ? 1 : truncated ? 3 : 0;
    if (mask && !this._ends[row]) {
      shape.requireFlags(mask, where);
      for (let i = 0; i < this._marks; i++) this._masks[row * this._marks + i] = mask[i] ? 1 : 0;
    }
    if (info && Object.keys(info).length) this._infos.set(row, info);
  }

  /** @returns {ArrayBuffer | string} */
  message() {
    if (!this._infos.size) return this._message;
    const { _shape: shape } = this._bridge;
    const width = shape.spec.obsSize;
    const rows = Array.from(this._ids, (envId, row) => {
      const seen = this._seen.subarray(row * width, (row + 1) * width);
      const mask = this._marks ? this._masks.subarray(row * this._marks, (row + 1) * this._marks) : null;
      const [terminated, truncated] = [this._ends[row] === 1, this._ends[row] === 3];
      return shape.row(seen, this._rewards[row], terminated, truncated, `;ENV=${envId}`, mask, this._infos.get(row));
    });
    const [low, high] = this._number;
    return `${rows.join("||")};SEQ=${(BigInt(high) << 32n) | BigInt(low)}`;
  }
}

/** What one trainer says, from the handshake on: each message is taken, and what is to be answered comes back. */
export class Session {
  /** @param {MultiEnvBridge} bridge */
  constructor(bridge) {
    this.bridge = bridge;
    this._next = new Map(); // env -> with what its next episode begins, asked ahead
    this._paused = false;
  }

  /**
   * @param {string} line without its line feed
   * @returns {string[]} the lines that answer it
   * @throws {SessionError} it does not fit the protocol, or the game's answer does not
   */
  take(line) {
    const word = line.split(/[=;]/, 1)[0].trim().toUpperCase();
    if (word === "" && line.trim() === "") return [];
    if (word === "NEXT") {
      this._takeAhead(line);
      return [];
    }
    if (CALLS.includes(word)) return [this._call(line)];
    return this._request(line);
  }

  /**
   * A binary message: a step.
   * @param {ArrayBuffer} message
   * @returns {(ArrayBuffer | string)[]} the messages that answer it
   * @throws {SessionError} as `take`
   */
  takeRows(message) {
    const { bridge } = this;
    const { numEnvs, spec } = bridge;
    if (message.byteLength < HEAD) throw new SessionError(`a binary message of ${message.byteLength} bytes came`);
    const [magic, kind, count, width, marks, nothing, ...number] = new Uint32Array(message, 0, HEAD / 4);
    const shown = `URB1=${magic === URB1};KIND=${kind};ROWS=${count};ACT=${width}`;
    if (magic !== URB1 || kind !== STEP || marks !== 0 || nothing !== 0) throw refusal("a binary message that is no step", shown);
    if (width !== spec.actSize) throw refusal(`ACT holds ${width} numbers, not ${spec.actSize}`, shown);
    if (count < 1 || count > numEnvs) throw refusal(`a step is of 1 to ${numEnvs} envs`, shown);
    const length = HEAD + 4 * count * (1 + width);
    if (message.byteLength !== length) throw refusal(`a binary message of ${message.byteLength} bytes, not ${length}`, shown);
    const [low, high] = number;
    if ((low === 0 && high === 0) || high * 2 ** 32 + low >= 1e18) throw refusal("SEQ has 1 to 18 digits, from 1", shown);
    const ids = new Uint32Array(message, HEAD, count);
    const numbers = new Float32Array(message, HEAD + 4 * count, count * width);
    const actions = [];
    const asked = new Uint8Array(numEnvs);
    for (let row = 0; row < count; row++) { // nothing is done before all of it is understood
      const where = `ENV=${ids[row]}`;
      if (ids[row] >= numEnvs) throw refusal("there is no such env", where);
      if (asked[ids[row]]) throw refusal("an env asked twice", where);
      asked[ids[row]] = 1;
      const action = Array.from(numbers.subarray(row * width, (row + 1) * width));
      if (!action.every(Number.isFinite)) throw refusal("ACT holds something that is not a finite number", where);
      actions.push(bridge._shape.legal(action, where));
    }
    for (let row = 0; row < count; row++) bridge._act(ids[row], actions[row]);
    const rows = new Rows(bridge, count, number);
    const begun = [];
    for (const envId of ids) {
      const over = rows.add(envId, true);
      bridge.played.steps += 1;
      if (over && this._next.has(envId)) begun.push(envId);
    }
    const answers = [rows.message()];
    if (begun.length) {
      this._beginNext(begun);
      const first = new Rows(bridge, begun.length, number);
      for (const envId of begun) first.add(envId, false);
      answers.push(first.message());
    }
    return answers;
  }

  /** Episodes that were asked ahead. */
  _beginNext(envIds) {
    for (const envId of envIds) {
      const ask = this._next.get(envId);
      if (ask.once) this._next.delete(envId);
      this.bridge._begin(envId, ask);
    }
  }

  /** The trainer has gone: a game that it paused goes on. */
  end() {
    if (this._paused) this.bridge.setPaused(false);
    this._paused = false;
  }

  _request(line) {
    const { bridge } = this;
    const texts = line.split("||");
    const asks = new Map();
    let number = "";
    texts.forEach((text, i) => { // nothing is done before all of it is understood
      const fields = readFields(text, i + 1 === texts.length);
      const envId = this._env(fields, text);
      const before = asks.get(envId);
      let ask = this._ask(fields, text);
      if (before) {
        const action = before.action && ask.action && bridge._join(before.action, ask.action);
        if (!action) throw refusal("an env asked twice", text);
        ask = { action };
      }
      asks.set(envId, ask);
      if (fields.has("SEQ")) number = `;SEQ=${fields.get("SEQ")}`;
    });
    for (const [envId, ask] of asks) if (ask.action) bridge._require(envId, ask.action);
    for (const [envId, ask] of asks) if (ask.action) bridge._act(envId, ask.action);
    for (const [envId, ask] of asks) {
      if (!ask.action) {
        this._next.delete(envId);
        bridge._begin(envId, ask);
      }
    }
    const begun = [];
    const rows = [];
    for (const [envId, ask] of asks) {
      const [row, over] = bridge._answer(envId, Boolean(ask.action));
      rows.push(row);
      if (ask.action) bridge.played.steps += 1;
      if (over && this._next.has(envId)) begun.push(envId);
    }
    const answers = [rows.join("||") + number];
    if (begun.length) {
      this._beginNext(begun);
      answers.push(begun.map((envId) => bridge._answer(envId, false)[0]).join("||") + number);
    }
    return answers;
  }

  _takeAhead(line) {
    if (this.bridge._agents > 1) throw refusal("NEXT, to a game with agents", line);
    const next = new Map();
    for (const text of line.split("||")) {
      const fields = readFields(text, false);
      if (!fields.has("NEXT") || fields.get("NEXT").toUpperCase() !== "RESET") throw refusal("NEXT is not RESET", text);
      const envId = this._env(fields, text);
      if (next.has(envId)) throw refusal("an env asked twice", text);
      const ask = this._reset(fields, text);
      next.set(envId, { ...ask, once: ask.seed !== null || ask.settings !== null });
    }
    for (const [envId, ask] of next) this._next.set(envId, ask);
  }

  _env(fields, text) {
    const value = fields.get("ENV");
    if (value === undefined && this.bridge.numEnvs === 1) return 0;
    if (value === undefined || !INTEGER.test(value) || Number(value) >= this.bridge.numEnvs) {
      throw refusal("ENV is missing, or there is no such env", text);
    }
    return Number(value);
  }

  _ask(fields, text) {
    const value = fields.get("ACT");
    if (value === undefined) throw refusal("no ACT", text);
    if (value.toUpperCase() === "RESET") return this._reset(fields, text);
    return { action: this.bridge._read(fields, text) };
  }

  _reset(fields, text) {
    const { spec } = this.bridge;
    const ask = { action: null, seed: null, options: null, settings: null };
    if (fields.has("AGENT") && this.bridge._agents > 1) throw refusal("one agent alone cannot be reset", text);
    if (fields.has("SEED")) {
      const value = fields.get("SEED");
      if (!INTEGER.test(value) || BigInt(value) > MOST_SEED) throw refusal("SEED is not a number from 0 to 2^63 - 1", text);
      ask.seed = BigInt(value);
    }
    if (fields.has("OPTIONS") && spec.features.includes("OPTIONS")) ask.options = readObject(fields.get("OPTIONS"), text);
    if (fields.has("SET") && Object.keys(spec.parameters).length) {
      const settings = this._settings(fields.get("SET"));
      if (typeof settings === "string") throw refusal(settings, text);
      ask.settings = settings;
    }
    return ask;
  }

  // -- calls

  _call(line) {
    let fields;
    try {
      fields = readFields(line, true);
    } catch (error) {
      return refused(error.message);
    }
    const number = fields.has("SEQ") ? `;SEQ=${fields.get("SEQ")}` : "";
    let answer;
    try {
      answer = this._answer(fields);
    } catch (error) { // a call that cannot be followed costs never the session
      if (!(error instanceof SessionError)) console.error(error);
      answer = refused(String(error?.message ?? error));
    }
    return answer + number;
  }

  _answer(fields) {
    const { bridge } = this;
    const [[word, value]] = fields;
    const env = fields.get("ENV");
    if (env !== undefined && !(INTEGER.test(env) && Number(env) < bridge.numEnvs)) return refused("there is no such env");
    switch (word) {
      case "GET":
      case "SET":
        return this._values(word, value, env);
      case "PAUSE":
        if (!bridge.setPaused) break;
        if (value !== "0" && value !== "1") return refused("PAUSE is 0 or 1");
        this._paused = value === "1";
        bridge.setPaused(this._paused);
        return "OK";
      case "TIME_SCALE":
        if (!bridge.setTimeScale) break;
        if (!(value !== null && NUMBER.test(value) && Number(value) > 0 && Number.isFinite(Number(value)))) {
          return refused("TIME_SCALE is a number above 0");
        }
        bridge.setTimeScale(Number(value));
        return "OK";
      case "RENDER":
        if (!bridge.render) break;
        return writePicture(bridge.render(Number(env ?? 0)));
      case "GOALS":
        if (!bridge.computeReward) break;
        return `REW=${readGoals(value ?? "").map(([achieved, desired]) => bridge.computeReward(achieved, desired)).map((x) => writeNumber(x, "a reward", ""))}`;
    }
    return refused("this game cannot do that");
  }

  _values(word, value, env) {
    const { bridge } = this;
    const known = Object.keys(bridge.spec.parameters);
    if (!known.length) return refused("this game has no parameters");
    if (word === "GET") {
      const names = value === null ? known : value.split(",").map((name) => decode(name.trim()));
      return this._valuesOf(Number(env ?? 0), names);
    }
    const settings = this._settings(value ?? "");
    if (typeof settings === "string") return refused(settings);
    for (let envId = 0; envId < bridge.numEnvs; envId++) {
      if (env === undefined || Number(env) === envId) bridge._set(settings, envId);
    }
    return this._valuesOf(Number(env ?? 0), Object.keys(settings));
  }

  _valuesOf(envId, names) {
    const values = this.bridge._values[envId];
    const missing = names.find((name) => name === null || !Object.hasOwn(values, name));
    if (missing !== undefined) return refused(`there is no parameter ${missing}`);
    return `VALUES=${names.map((name) => `${encodeName(name)}:${writeDouble(values[name])}`).join(",")}`;
  }

  /** {name: number}, or a sentence that says what is wrong. */
  _settings(text) {
    const { parameters } = this.bridge.spec;
    const found = {};
    for (const pair of text.split(",")) {
      const colon = pair.indexOf(":");
      const name = colon < 0 ? null : decode(pair.slice(0, colon).trim());
      const value = pair.slice(colon + 1).trim();
      if (!name || !NUMBER.test(value) || !Number.isFinite(Number(value))) return "SET holds something that is not name:number";
      if (!Object.hasOwn(parameters, name) || Object.hasOwn(found, name)) {
        return `SET names a parameter that there is not, or one twice: ${name}`;
      }
      const [, low = -Infinity, high = Infinity] = parameters[name];
      if (Number(value) < low || Number(value) > high) return `${name} is from ${low} to ${high}`;
      found[name] = Number(value);
    }
    return found;
  }
}

/**
 * Heuristic mode: the game's `heuristic` acts in the place of a trainer, a person's keys or a script; no connection.
 *
 * @param {MultiEnvBridge} bridge
 * @param {object} [options]
 * @param {number} [options.stepsPerSecond] of each env
 * @param {(envId: number, text: string) => void} [options.onSeen] a line of what its agent sees and got, after each
 *   step and reset
 * @returns {{close: () => void}}
 */
export function play(bridge, options = {}) {
  if (bridge._agents > 1 || typeof bridge.heuristic !== "function") throw new RangeError("heuristic(envId, observation) is not written");
  const { stepsPerSecond = 30, onSeen = () => {} } = options;
  const names = bridge.spec.obsNames ?? [];
  const envs = Array.from({ length: bridge.numEnvs }, () => ({ seen: null, steps: 0, sum: 0 }));

  function see(envId, env, end) {
    env.seen = bridge._observe(envId);
    const numbers = env.seen.map((x, i) => `${names[i] ?? `obs[${i}]`}=${Number(x.toPrecision(4))}`);
    onSeen(envId, `env ${envId}: ${numbers.join(" ")} | ${end}`);
  }

  function tick() {
    envs.forEach((env, envId) => {
      if (env.seen === null) {
        bridge._begin(envId, { seed: null, options: null, settings: null });
        Object.assign(env, { steps: 0, sum: 0 });
        see(envId, env, "a new episode");
        return;
      }
      bridge.handleResponseActionsForEnv(envId, Array.from(bridge.heuristic(envId, env.seen), Number));
      const [reward, terminated, truncated] = bridge.calculateRewardForEnv(envId);
      env.steps += 1;
      env.sum += reward;
      bridge.played.steps += 1;
      const over = Boolean(terminated || truncated);
      bridge._count(envId, reward, over);
      const ended = terminated ? ", done" : truncated ? ", truncated" : "";
      see(envId, env, `reward ${Number(reward.toPrecision(4))}, return ${Number(env.sum.toPrecision(4))}, step ${env.steps}${ended}`);
      if (over) env.seen = null;
    });
  }

  const timer = setInterval(() => {
    if (!bridge.halted) tick();
  }, 1000 / stepsPerSecond);
  return { close: () => clearInterval(timer) };
}

// -- text

/** The fields of a row or call by key; a call's name alone has the value null. SEQ may stand only where a line ends. */
function readFields(text, last) {
  const found = new Map();
  for (const field of text.split(";")) {
    const at = field.indexOf("=");
    const key = (at < 0 ? field : field.slice(0, at)).trim().toUpperCase();
    if (key === "" || (at < 0 && !(found.size === 0 && CALLS.includes(key)))) throw refusal("a field without key=value", text);
    if (found.has("SEQ") || (key === "SEQ" && !last)) throw refusal("SEQ stands once, at the end of the line", text);
    if (found.has(key)) throw refusal(`${key} given twice`, text);
    const value = at < 0 ? null : field.slice(at + 1).trim();
    if (key === "SEQ" && !(INTEGER.test(value) && value.length <= 18 && Number(value) >= 1)) {
      throw refusal("SEQ has 1 to 18 digits, from 1", text);
    }
    found.set(key, key === "SEQ" ? String(BigInt(value)) : value);
  }
  return found;
}

function readNumber(text, row) {
  const number = Math.fround(Number(text));
  if (!NUMBER.test(text) || !Number.isFinite(number)) throw refusal("ACT holds something that is not a finite number", row);
  return number;
}

function readObject(text, row) {
  try {
    const found = JSON.parse(decodeURIComponent(text));
    if (found !== null && typeof found === "object" && !Array.isArray(found)) return found;
  } catch {
    // said below
  }
  throw refusal("OPTIONS are no JSON object", row);
}

/** String(-0) is 0. */
function writeDouble(x) {
  return Object.is(x, -0) ? "-0" : String(x);
}

/** The shortest text that reads back as the same float32, or nearly the shortest where that is hard to find. */
function writeNumber(x, what, where) {
  const single = Math.fround(x);
  if (!Number.isFinite(single)) throw new SessionError(`the game gave ${x} as ${what}: ${where.slice(1)}`);
  if (single === 0) return 1 / single < 0 ? "-0" : "0";
  const size = Math.abs(single);
  if (size >= 1e-6 && size < 1e6) {
    // Seven digits do for most of them, and nine for all.
    let digits = 7 - 1;
    for (let top = 1; top > size; top /= 10) digits++;
    for (let top = 10; top <= size; top *= 10) digits--;
    for (const last = digits + 2; digits <= last; digits++) {
      const power = POWERS[digits];
      const number = Math.round(size * power);
      if (Math.fround(number / power) === size) {
        // Written as two whole numbers, which takes a fifth of the time that the text of a double does.
        const whole = Math.floor(number / power);
        let rest = number - whole * power;
        if (rest === 0) return String(whole * Math.sign(single));
        while (rest % 10 === 0) {
          rest /= 10;
          digits--;
        }
        return `${single < 0 ? "-" : ""}${whole}.${String(rest).padStart(digits, "0")}`;
      }
    }
  }
  return String(single);
}

/** @returns {[number[], number[]][]} achieved and desired */
function readGoals(text) {
  const pairs = text.split("||").map((pair) => pair.split("/").map((goal) => goal.split(",").map((x) => readNumber(x.trim(), text))));
  const size = pairs[0][0].length;
  if (!pairs.every((goals) => goals.length === 2 && goals.every((goal) => goal.length === size))) {
    throw refusal("GOALS are pairs of goals of one size", text);
  }
  return pairs;
}

/** A canvas, an ImageData, or what looks like one, without its transparency: on white. */
function writePicture(image) {
  if (!image) return refused("there is no picture of this env now");
  const { width, height } = image;
  const data = image.data ?? pixelsOf(image);
  const channels = data.length / (width * height);
  if (![1, 3, 4].includes(channels) || 3 * width * height > MOST_PIXELS) {
    throw new SessionError(`the game gave a picture of ${width} x ${height} pixels and ${data.length} bytes`);
  }
  const bytes = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; to < bytes.length; from += channels, to += 3) {
    const alpha = channels === 4 ? data[from + 3] : 255;
    for (let i = 0; i < 3; i++) bytes[to + i] = (data[from + (channels === 1 ? 0 : i)] * alpha + 255 * (255 - alpha)) / 255 + 0.5;
  }
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x6000) { // a multiple of 3, and few enough arguments
    text += btoa(String.fromCharCode(...bytes.subarray(at, at + 0x6000)));
  }
  return `PICTURE=${height},${width},3;DATA=${text}`;
}

/** Of a canvas that may be one of WebGL. */
function pixelsOf(canvas) {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, canvas.width, canvas.height).data;
}

/** @throws {RangeError} one is no whole number from 1 on */
function requireCounts(counts) {
  for (const [name, value] of Object.entries(counts)) {
    if (!Number.isInteger(value) || value < 1) throw new RangeError(`${name} must be a whole number from 1 on, not ${value}`);
  }
}

function encode(text) {
  const whole = text.replace(/\p{Surrogate}/gu, "\ufffd"); // halves of characters, where a text was cut
  return encodeURIComponent(whole).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

function encodeName(name) {
  return encode(name).replace(/%(2F|5B|5D|5E|2A)/g, (coded) => decodeURIComponent(coded));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

function refused(why) {
  return `REFUSED=${encode(why)}`;
}

function refusal(why, text) {
  return new SessionError(`${why}: '${text.slice(0, 120)}'`);
}

/** [lowest, highest] for each number of an action that is a choice, null for one of a BOX. */
function choices(space, numbers) {
  const tree = /^\s*(DICT|TUPLE)/i.test(space);
  const found = [];
  for (const [, word, inside, shape] of space.matchAll(/(MULTI_DISCRETE|MULTI_BINARY|DISCRETE|BOX)\(([^()]*)\)(\[[\d,]*\])?/gi)) {
    const parts = inside.split(",");
    switch (word.toUpperCase()) {
      case "BOX": {
        const sides = shape ? shape.slice(1, -1).split(",").filter(Boolean) : null;
        const count = sides ? sides.reduce((product, side) => product * Number(side), 1) : tree ? parts.length : numbers;
        for (let i = 0; i < count; i++) found.push(null);
        break;
      }
      case "MULTI_BINARY":
        for (let i = 0; i < Number(parts[0]); i++) found.push([0, 1]);
        break;
      default:
        for (const part of parts) {
          const ends = part.split(":").map(Number);
          found.push(ends.length === 1 ? [0, ends[0] - 1] : ends);
        }
    }
  }
  return found;
}

// -- tokens

/** Lets a trainer in that proves to know the token (docs/protocol.md, section 3). */
class Door {
  constructor(token) {
    this._token = new TextEncoder().encode(token.trim());
    if (this._token.length < 16) throw new RangeError("a token has 16 bytes or more");
    this._nonce = null;
  }

  async ask() {
    this._crypto = globalThis.crypto ?? (await import("node:crypto")).webcrypto;
    if (!this._crypto.subtle) throw new Error("a token needs a page from https:// or from 127.0.0.1");
    const key = { name: "HMAC", hash: "SHA-256" };
    this._key = await this._crypto.subtle.importKey("raw", this._token, key, false, ["sign", "verify"]);
    this._nonce = hex(this._crypto.getRandomValues(new Uint8Array(32)));
    return `AUTH=${this._nonce}`;
  }

  /** The answer to a right proof. @throws {SessionError} */
  async prove(line) {
    const told = /^AUTH=([0-9a-f]{64}),([0-9a-f]{64})$/.exec(line.trim());
    if (!told) throw new SessionError("this engine asks for a token, and no proof came");
    const text = (who) => new TextEncoder().encode(`${who}:${this._nonce}:${told[1]}`);
    const proof = Uint8Array.from(told[2].match(/../g), (pair) => parseInt(pair, 16));
    // verify compares in constant time
    if (!(await this._crypto.subtle.verify("HMAC", this._key, proof, text("trainer")))) throw new SessionError("wrong token");
    return `AUTH=${hex(new Uint8Array(await this._crypto.subtle.sign("HMAC", this._key, text("engine"))))}`;
  }
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// -- connections

/** One connection: a trainer at the door, then the handshake, then requests and answers. */
class Conversation {
  /**
   * @param {MultiEnvBridge} bridge
   * @param {(message: string | ArrayBuffer) => void} send
   * @param {() => void} close
   * @param {string | null} token
   * @param {(conversation: Conversation) => void} admit called once the trainer is let in: it begins, or waits
   * @param {boolean} [binary] the carrier has binary messages
   */
  constructor(bridge, send, close, token, admit, binary = false) {
    this.bridge = bridge;
    this.binary = binary && BINARY && bridge._agents === 1;
    this.spoken = false;
    this.closed = false;
    this._send = send;
    this._close = close;
    this._admit = admit;
    this._lines = [];
    this._busy = false;
    this._session = null;
    this._due = 0;
    this._door = token ? new Door(token) : null;
    if (this._door) this._ask();
    else admit(this);
  }

  async _ask() {
    this._late = setTimeout(() => this.end(new SessionError("no proof of the token came in time")), PROOF_MS);
    this._busy = true;
    try {
      this._tell(await this._door.ask());
    } catch (error) {
      this.end(error);
    }
    this._busy = false;
    this._work();
  }

  begin() {
    this._session = new Session(this.bridge);
    this._tell(this.bridge.describe(this.binary ? ["BINARY"] : []));
    this._work();
  }

  /** May binary messages come now? */
  get takesRows() {
    return this.binary && this._session !== null;
  }

  tell(line) {
    this._tell(line);
  }

  /** Lines that have come, or binary messages. */
  hear(lines) {
    this._lines.push(...lines);
    if (!this._busy) this._work();
  }

  _tell(line) {
    if (!this.closed) this._send(line);
  }

  _work() {
    try {
      while (this._lines.length && !this.closed && !this._busy) {
        if (this._door) {
          this._prove(this._lines.shift());
          return;
        }
        if (!this._session) return; // it waits for its turn
        const { stepsPerSecond, halted } = this.bridge;
        if ((stepsPerSecond > 0 || halted) && isStep(this._lines[0])) {
          const left = halted ? HALT_MS : this._due - performance.now();
          if (left > 0) {
            this._busy = true;
            setTimeout(() => {
              this._busy = false;
              this._work();
            }, left);
            return;
          }
          this._due = performance.now() + 1000 / stepsPerSecond;
        }
        this.spoken = true;
        const message = this._lines.shift();
        const answers = typeof message === "string" ? this._session.take(message) : this._session.takeRows(message);
        for (const answer of answers) this._tell(answer);
      }
    } catch (error) {
      this.end(error);
    }
  }

  async _prove(line) {
    this._busy = true;
    try {
      this._tell(await this._door.prove(line));
      clearTimeout(this._late);
      this._door = null;
      if (!this.closed) this._admit(this);
    } catch (error) {
      this.end(error);
    }
    this._busy = false;
    this._work();
  }

  /** Ends it because of an error, which both sides get. */
  end(error) {
    if (this.closed) return;
    console.error(error instanceof SessionError ? `ue_rl: ${error.message}. The trainer is disconnected.` : error);
    this._tell(`ERROR=${encode(String(error?.message ?? error).slice(0, 1000))}`);
    this.over();
    this._close();
  }

  /** Nothing is said or heard here any more. */
  over() {
    this.closed = true;
    clearTimeout(this._late);
    this._session?.end();
  }
}

function isStep(message) {
  return typeof message !== "string" || (message.startsWith("ACT=") && !message.startsWith("ACT=RESET"));
}

/**
 * Dials the trainer at a page:// address, and again whenever the connection is lost, until `close` is called.
 *
 * @param {MultiEnvBridge} bridge
 * @param {object} [options]
 * @param {string} [options.url] "ws://127.0.0.1:7780/"; without one a page dials the server that it comes from, under
 *   the name behind #engine= in its address
 * @param {string} [options.token] a secret of both sides; without one a page takes that behind #token= in its address
 * @param {number} [options.retry] milliseconds between two tries
 * @param {(state: "dialling" | "connected" | "training" | "refused" | "closed", text: string) => void} [options.onState]
 * @param {boolean} [options.binary] false: steps are text, which a person can read; else the trainer may ask in binary
 * @param {typeof WebSocket} [options.WebSocket] for a Node that has none: that of the package `ws`
 * @returns {{close: () => void}}
 */
export function connect(bridge, options = {}) {
  const words = new URLSearchParams(globalThis.location ? globalThis.location.hash.slice(1) : "");
  const url = options.url ?? addressOf(words.get("engine") ?? "");
  const token = options.token ?? words.get("token");
  const retry = options.retry ?? 500;
  const say = options.onState ?? (() => {});
  const Socket = options.WebSocket ?? globalThis.WebSocket;
  if (!Socket) throw new Error("there is no WebSocket here: take Node 22, or give options.WebSocket, that of the package ws");
  const limit = bridge.lineLimit();
  let socket = null;
  let closed = false;
  let timer = null;

  function dial() {
    say("dialling", `waiting for a trainer at ${url}`);
    socket = new Socket(url);
    socket.binaryType = "arraybuffer";
    let talk = null;
    let ended = false;
    const current = socket;
    current.onopen = () => {
      say("connected", `connected to ${url}`);
      const send = (message) => current.send(message);
      talk = new Conversation(bridge, send, () => current.close(), token, (it) => it.begin(), options.binary ?? true);
    };
    current.onmessage = (event) => {
      if (typeof event.data !== "string" && !talk.takesRows) talk.end(new SessionError("a binary message came"));
      else if (event.data.length > limit) talk.end(new SessionError(`a line of more than ${limit} characters came`));
      else {
        if (!talk.spoken) say("training", `a trainer at ${url} asks`);
        talk.hear([event.data]);
      }
    };
    const over = (event) => {
      if (ended) return;
      ended = true;
      if (talk) talk.over();
      if (closed) return;
      say(event.code === TAKEN ? "refused" : "closed", event.reason || `no connection to ${url}`);
      timer = setTimeout(dial, talk?.spoken ? 0 : retry); // at once after a session: the next trainer may wait already
    };
    current.onclose = over;
    current.onerror = () => setTimeout(over, 0, {}); // Node 20 says no end where nobody listens; browsers say it at once
  }

  dial();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
      socket.close();
    },
  };
}

function addressOf(name) {
  const { location } = globalThis;
  if (!location || !location.host) return `ws://127.0.0.1:7780/${name}`;
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/${name}`;
}

/**
 * In Node: listens for a trainer over TCP, as engines in other languages do.
 *
 * @param {MultiEnvBridge} bridge
 * @param {object} [options]
 * @param {string} [options.host]
 * @param {number} [options.port] 0: one that is free
 * @param {string} [options.token] a secret of both sides
 * @returns {Promise<{port: number, close: () => void}>} once it listens
 */
export async function listen(bridge, options = {}) {
  const { createServer } = await import("node:net");
  const limit = bridge.lineLimit();
  const waiting = [];
  let served = null;
  let since = 0;

  function admit(talk) {
    if (served && !served.closed && served.silent && !served.spoken) {
      served.over();
      served.drop();
      served = null;
    }
    if (!served || served.closed) {
      served = talk;
      since = performance.now();
      talk.silent = false;
      const timer = setTimeout(() => {
        talk.silent = true;
        if (!talk.spoken && waiting.length) talk.end(new SessionError("nothing was said for 30 s, and others wait"));
      }, SILENT_MS);
      timer.unref();
      talk.begin();
    } else if (waiting.length < MOST_WAITING) {
      waiting.push(talk);
      talk.tell(`BUSY;SINCE=${((performance.now() - since) / 1000).toFixed(1)};PEER=${served.peer}`);
    } else {
      talk.tell("BUSY");
      talk.over();
      talk.drop();
    }
  }

  const server = createServer((socket) => {
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 10000);
    socket.setEncoding("latin1"); // a byte is a character: what is not ASCII is refused where it stands
    socket.on("error", () => {}); // the end follows
    let rest = "";
    const talk = new Conversation(
      bridge,
      (line) => socket.write(`${line}\n`, "latin1"),
      () => socket.end(),
      options.token ?? null,
      (it) => {
        it.peer = `${socket.remoteAddress}:${socket.remotePort}`;
        it.drop = () => socket.destroy();
        admit(it);
      },
    );
    socket.on("data", (text) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop();
      if (rest.length > limit || lines.some((line) => line.length > limit)) {
        talk.end(new SessionError(`a line of more than ${limit} characters came`));
      } else if (!talk.closed) {
        talk.hear(lines.map((line) => line.replace(/\r$/, "")));
      }
    });
    socket.on("close", () => {
      talk.over();
      const at = waiting.indexOf(talk);
      if (at >= 0) waiting.splice(at, 1);
      if (talk === served) {
        served = null;
        const following = waiting.shift();
        if (following) admit(following);
      }
    });
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 7777, options.host ?? "127.0.0.1", resolve);
  });
  return {
    port: server.address().port,
    close() {
      server.close();
      if (served) served.drop();
      for (const talk of waiting) talk.drop();
    },
  };
}
