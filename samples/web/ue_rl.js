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
const MOST_CALL = 1 << 20; // characters of a call
const MOST_SEED = 2n ** 63n - 1n;
const NUMBER = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const INTEGER = /^\d+$/;
const PROOF_MS = 5000; // for a trainer to prove that it knows the token
const SILENT_MS = 30000; // a first connection that has said nothing for so long gives way to another one
const MOST_WAITING = 16; // trainers that were told BUSY
const TAKEN = 4409; // the trainer's word that another page is the engine there
const RETURNS = 100; // episodes of which the returns are kept

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
 * @property {Random[]} random a generator for each env; a trainer's seed starts it anew before handleResetForEnv
 * @property {number} stepsPerSecond for watching: no more requests for steps are answered a second; 0: all at once
 * @property {number} steps steps of all envs so far
 * @property {number[]} returns of the last 100 episodes, as they ended
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
   * @param {string[]} [spec.features] of SEED, TRUNC, INFO, MASK, OPTIONS
   * @param {Object<string, number[]>} [spec.parameters] what a trainer may set: {gravity: [9.8, 0, 20]}
   */
  constructor(spec) {
    this.spec = { numEnvs: 1, actSpace: "BOX(-1:1)", features: ["SEED", "TRUNC"], parameters: {}, ...spec };
    this.numEnvs = this.spec.numEnvs;
    this.random = Array.from({ length: this.numEnvs }, (_, envId) => new Random(envId));
    this.stepsPerSecond = 0;
    this.steps = 0;
    this.returns = [];
    this._running = new Float64Array(this.numEnvs); // returns of the episodes that run
    this._infos = new Map();
    this._values = Array.from({ length: this.numEnvs }, () =>
      Object.fromEntries(Object.entries(this.spec.parameters).map(([name, [value]]) => [name, value])),
    );
    this._choices = choices(this.spec.actSpace, this.spec.actSize);
    this._flags = this._choices.reduce((sum, ends) => sum + (ends ? ends[1] - ends[0] + 1 : 0), 0);
    for (const [name, value] of [["obsSize", this.spec.obsSize], ["actSize", this.spec.actSize], ["numEnvs", this.numEnvs]]) {
      if (!Number.isInteger(value) || value < 1) throw new RangeError(`${name} must be a whole number from 1 on, not ${value}`);
    }
    if (this._choices.length !== this.spec.actSize) {
      throw new RangeError(`the action space has ${this._choices.length} numbers, but actSize is ${this.spec.actSize}`);
    }
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

  /** With the feature MASK: a flag for each choice, is it legal now? @param {number} envId @returns {ArrayLike<any>} */
  createActionMaskForEnv(envId) {
    throw new SessionError(`createActionMaskForEnv is not written (env ${envId})`);
  }

  /** With the feature INFO, from within a step: what else the trainer should see. @param {number} envId @param {object} info */
  writeInfo(envId, info) {
    this._infos.set(envId, { ...this._infos.get(envId), ...info });
  }

  /** @param {string} name @param {number} envId @returns {number} the value of a parameter */
  getParameter(name, envId = 0) {
    return this._values[envId][name];
  }

  /** @returns {string} the handshake */
  describe() {
    const { spec } = this;
    const features = ["AUTORESET", "ERROR", "SEQ", ...spec.features];
    const fields = [`OBS=${spec.obsSize}`, `ACT=${spec.actSize}`, "ENV_TYPE=MULTI", `ENV_COUNT=${this.numEnvs}`];
    fields.push("VERSION=1", "CHANNEL=SHARED", `ACT_SPACE=${spec.actSpace}`, `FEATURES=${features.join(",")}`);
    if (spec.obsSpace) fields.push(`OBS_SPACE=${spec.obsSpace}`);
    if (spec.obsNames) fields.push(`OBS_NAMES=${spec.obsNames.map(encodeName).join(",")}`);
    if (spec.actNames) fields.push(`ACT_NAMES=${spec.actNames.map(encodeName).join(",")}`);
    const parameters = Object.entries(spec.parameters).map(([name, numbers]) => [encodeName(name), ...numbers].join(":"));
    if (parameters.length) fields.push(`PARAMS=${parameters.join(",")}`);
    return `CONFIG:${fields.join(";")}`;
  }

  /** @returns {number} the most characters of a line that a trainer sends */
  lineLimit() {
    const { spec } = this;
    const wide = spec.features.includes("INFO") || spec.features.includes("OPTIONS") || Object.keys(spec.parameters).length;
    const row = 48 * Math.max(spec.obsSize + 1, spec.actSize) + (wide ? 65536 : 64) + this._flags;
    return Math.max(1024 + this.numEnvs * row, MOST_CALL);
  }
}

/** The lines of one trainer, from the handshake on: each is taken, and what is to be answered comes back. */
export class Session {
  /** @param {MultiEnvBridge} bridge */
  constructor(bridge) {
    this.bridge = bridge;
    this._next = new Map(); // env -> with what its next episode begins, asked ahead
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

  _request(line) {
    const { bridge } = this;
    const texts = line.split("||");
    const asks = new Map();
    let number = "";
    texts.forEach((text, i) => { // nothing is done before all of it is understood
      const fields = readFields(text, i + 1 === texts.length);
      const envId = this._env(fields, text);
      if (asks.has(envId)) throw refusal("an env asked twice", text);
      asks.set(envId, this._ask(fields, text));
      if (fields.has("SEQ")) number = `;SEQ=${fields.get("SEQ")}`;
    });
    const stepped = [];
    for (const [envId, ask] of asks) {
      if (ask.action) {
        bridge._infos.delete(envId);
        bridge.handleResponseActionsForEnv(envId, ask.action);
        stepped.push(envId);
      }
    }
    for (const [envId, ask] of asks) {
      if (!ask.action) {
        this._next.delete(envId);
        this._begin(envId, ask);
      }
    }
    const begun = [];
    const rows = [];
    for (const [envId, ask] of asks) {
      const [row, over] = this._row(envId, Boolean(ask.action));
      rows.push(row);
      if (over && this._next.has(envId)) begun.push(envId);
    }
    const answers = [rows.join("||") + number];
    if (begun.length) {
      for (const envId of begun) {
        const ask = this._next.get(envId);
        if (ask.once) this._next.delete(envId);
        this._begin(envId, ask);
      }
      answers.push(begun.map((envId) => this._row(envId, false)[0]).join("||") + number);
    }
    bridge.steps += stepped.length;
    return answers;
  }

  _takeAhead(line) {
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
    const { _choices: ends, spec } = this.bridge;
    const action = value.split(",").map((one) => readNumber(one.trim(), text));
    if (action.length !== spec.actSize) throw refusal(`ACT holds ${action.length} numbers, not ${spec.actSize}`, text);
    action.forEach((x, i) => {
      if (ends[i] && !(Number.isInteger(x) && x >= ends[i][0] && x <= ends[i][1])) {
        throw refusal(`ACT holds a choice that is not one of ${ends[i][0]} to ${ends[i][1]}`, text);
      }
    });
    return { action };
  }

  _reset(fields, text) {
    const { spec } = this.bridge;
    const ask = { action: null, seed: null, options: null, settings: null };
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

  _begin(envId, ask) {
    const { bridge } = this;
    if (ask.settings) Object.assign(bridge._values[envId], ask.settings);
    if (ask.seed !== null) bridge.random[envId].seed(ask.seed);
    bridge._running[envId] = 0;
    bridge._infos.delete(envId);
    bridge.handleResetForEnv(envId, { seed: ask.seed, options: ask.options });
  }

  /** [the row, is the episode over?] */
  _row(envId, acted) {
    const { bridge } = this;
    const { spec } = bridge;
    const seen = bridge.createStateStringForEnv(envId);
    if (seen.length !== spec.obsSize) {
      throw new SessionError(`createStateStringForEnv gave ${seen.length} numbers of env ${envId}, not ${spec.obsSize}`);
    }
    let row = "OBS=";
    for (let i = 0; i < spec.obsSize; i++) row += (i ? "," : "") + writeNumber(seen[i], "an observation", envId);
    let over = false;
    if (acted) {
      const [reward, terminated, truncated] = bridge.calculateRewardForEnv(envId);
      over = Boolean(terminated || truncated);
      row += `;REW=${writeNumber(reward, "a reward", envId)};DONE=${over ? 1 : 0};ENV=${envId}`;
      if (truncated && !terminated) row += ";TRUNC=1";
      bridge._running[envId] += reward;
      if (over) {
        bridge.returns.push(bridge._running[envId]);
        if (bridge.returns.length > RETURNS) bridge.returns.shift();
      }
    } else {
      row += `;REW=0;DONE=0;ENV=${envId}`;
    }
    if (spec.features.includes("MASK") && !over) row += `;MASK=${this._mask(envId)}`;
    const info = bridge._infos.get(envId);
    if (info && acted && spec.features.includes("INFO")) row += `;INFO=${encode(JSON.stringify(info))}`;
    return [row, over];
  }

  _mask(envId) {
    const mask = this.bridge.createActionMaskForEnv(envId);
    if (mask.length !== this.bridge._flags) {
      throw new SessionError(`createActionMaskForEnv gave ${mask.length} flags of env ${envId}, not ${this.bridge._flags}`);
    }
    return Array.from(mask, (flag) => (flag ? "1" : "0")).join("");
  }

  // -- calls

  _call(line) {
    let fields;
    try {
      fields = readFields(line, true);
    } catch (error) {
      return `REFUSED=${encode(error.message)}`;
    }
    const number = fields.has("SEQ") ? `;SEQ=${fields.get("SEQ")}` : "";
    return this._answer(fields) + number;
  }

  _answer(fields) {
    const { bridge } = this;
    const known = Object.keys(bridge.spec.parameters);
    const env = fields.get("ENV");
    if (env !== undefined && !(INTEGER.test(env) && Number(env) < bridge.numEnvs)) return refused("there is no such env");
    if (fields.has("GET") && known.length) {
      const value = fields.get("GET");
      const names = value === null ? known : value.split(",").map((name) => decode(name.trim()));
      return this._valuesOf(Number(env ?? 0), names);
    }
    if (fields.has("SET") && fields.get("SET") !== null && known.length) {
      const settings = this._settings(fields.get("SET"));
      if (typeof settings === "string") return refused(settings);
      bridge._values.forEach((values, envId) => {
        if (env === undefined || Number(env) === envId) Object.assign(values, settings);
      });
      return this._valuesOf(Number(env ?? 0), Object.keys(settings));
    }
    return refused("this game cannot do that");
  }

  _valuesOf(envId, names) {
    const values = this.bridge._values[envId];
    const missing = names.find((name) => name === null || !Object.hasOwn(values, name));
    if (missing !== undefined) return refused(`there is no parameter ${missing}`);
    return `VALUES=${names.map((name) => `${encodeName(name)}:${values[name]}`).join(",")}`;
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

/** The shortest text of the double; its reader rounds to float32. */
function writeNumber(x, what, envId) {
  if (!Number.isFinite(Math.fround(x))) throw new SessionError(`the game gave ${x} as ${what} of env ${envId}`);
  return x === 0 && 1 / x < 0 ? "-0" : String(x);
}

function encode(text) {
  return encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
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
   * @param {(line: string) => void} send
   * @param {() => void} close
   * @param {string | null} token
   * @param {(conversation: Conversation) => void} admit called once the trainer is let in: it begins, or waits
   */
  constructor(bridge, send, close, token, admit) {
    this.bridge = bridge;
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
    this._tell(this.bridge.describe());
    this._work();
  }

  tell(line) {
    this._tell(line);
  }

  /** Lines that have come. */
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
        const pace = this.bridge.stepsPerSecond;
        if (pace > 0 && this._lines[0].startsWith("ACT=") && !this._lines[0].startsWith("ACT=RESET")) {
          const left = this._due - performance.now();
          if (left > 0) {
            this._busy = true;
            setTimeout(() => {
              this._busy = false;
              this._work();
            }, left);
            return;
          }
          this._due = performance.now() + 1000 / pace;
        }
        this.spoken = true;
        const answers = this._session.take(this._lines.shift());
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
  }
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
    let talk = null;
    let ended = false;
    const current = socket;
    current.onopen = () => {
      say("connected", `connected to ${url}`);
      talk = new Conversation(bridge, (line) => current.send(line), () => current.close(), token, (it) => it.begin());
    };
    current.onmessage = (event) => {
      if (typeof event.data !== "string") talk.end(new SessionError("a binary message came"));
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
      timer = setTimeout(dial, retry);
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
