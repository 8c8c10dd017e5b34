// Sends the connection of samples/web/ue_rl.js what no trainer would: node --expose-gc fuzz.mjs MESSAGES SEED
// A line of JSON at the end: how many sessions ended, how many answers were
// binary, and the bytes by which the heap has grown behind the first tenth.
import { MultiEnvBridge, Random, connect } from "../../../samples/web/ue_rl.js";

const [count, seed] = process.argv.slice(2).map(Number);
const random = new Random(seed);
const pick = (list) => list[random.integer(0, list.length - 1)];
const GOOD = [
  "ACT=0.5;ENV=0||ACT=1;ENV=1;SEQ=7", "ACT=RESET;ENV=0;SEED=42||ACT=RESET;ENV=1;SEQ=8", "NEXT=RESET;ENV=0;SEED=4;SET=pace:2||NEXT=RESET;ENV=1",
  "GET", "GET=pace;ENV=1;SEQ=9", "SET=pace:2,limit:9", "PAUSE=1", "PAUSE=0", "TIME_SCALE=4", "RENDER;ENV=1", "GOALS=1/2||3/4", "",
  "ACT=RESET;ENV=1;OPTIONS=%7B%22x%22%3A1%7D;SET=limit:5",
];
const PIECES = ["||", ";", "=", ",", ":", "%", "%00", "%ff", "\0", "\n", "\r", "é", "\ud800", "ACT=", "RESET", "ENV=", "SEED=", "SET=", "__proto__:1",
  "constructor", "nan", "inf", "1e999", "-0", "9".repeat(40), "0x10", "GET", "NEXT=RESET", "RENDER", "GOALS=", "CONFIG:", "AUTH=", "a".repeat(5000)];

class Game extends MultiEnvBridge {
  constructor() {
    super({ obsSize: 1, actSize: 1, numEnvs: 2, features: ["SEED", "TRUNC", "INFO", "OPTIONS"], parameters: { pace: [1, 0, 4], limit: [20, 5, 50] } });
    this.x = [0, 0];
  }
  handleResetForEnv(envId) { this.x[envId] = this.random[envId].uniform(-1, 1); }
  handleResponseActionsForEnv(envId, [push]) { this.x[envId] += push; }
  createStateStringForEnv(envId) { return [this.x[envId]]; }
  calculateRewardForEnv(envId) { return [this.x[envId], Math.abs(this.x[envId]) > 2]; }
  render() { return { width: 1, height: 1, data: [0, 0, 0] }; }
  setPaused() {}
  setTimeScale() {}
  computeReward([a], [b]) { return a - b; }
}

function changed() {
  let text = pick(GOOD);
  for (let n = random.integer(0, 4); n > 0; n--) {
    const at = random.integer(0, text.length);
    switch (random.integer(0, 3)) {
      case 0: text = text.slice(0, at) + pick(PIECES) + text.slice(at); break;
      case 1: text = text.slice(0, at) + text.slice(at + random.integer(1, 9)); break;
      case 2: text = text.slice(0, at) + String.fromCharCode(random.integer(0, 300)) + text.slice(at + 1); break;
      default: text += pick(GOOD).slice(random.integer(0, 20));
    }
  }
  if (random.integer(0, 2) === 0) return changedRows();
  if (random.integer(0, 2000) === 0) return "A".repeat(3 << 20);
  return text;
}

// A step of both envs in binary, in which words and bytes are changed as a rule.
const WORDS = [0, 1, 2, 3, 0x7fc00000, 0xff800000, 0x7f7fffff, 0xffffffff];
function changedRows() {
  const words = Uint32Array.of(0x31425255, 1, 2, 1, 0, 0, 7, 0, 0, 1, 0, 0x3f800000);
  if (random.integer(0, 2) === 0) return words.buffer;
  for (let n = random.integer(1, 2); n > 0; n--) words[random.integer(0, 11)] = pick(WORDS);
  if (random.integer(0, 4) > 0) return words.buffer;
  const bytes = new Uint8Array(words.buffer);
  bytes[random.integer(0, 47)] = random.integer(0, 255);
  return bytes.slice(0, random.integer(0, 48)).buffer;
}

let inRows = 0;
/** Throws if an answer in binary is none. */
function look(message) {
  const [magic, kind, count, width, marks, nothing] = new Uint32Array(message, 0, 6);
  const right = magic === 0x31425255 && kind === 2 && count >= 1 && count <= 2 && width === 1 && marks === 0 && nothing === 0;
  if (!right || message.byteLength !== 32 + count * 13) throw new Error(`it sent ${new Uint8Array(message)}`);
  if (!new Float32Array(message, 32 + 4 * count, 2 * count).every(Number.isFinite)) throw new Error("it sent what is not finite");
  inRows += 1;
}

let open = null;
let sessions = 0;
class Fake {
  constructor() {
    open = this;
    sessions += 1;
    setImmediate(() => this.onopen());
  }
  send(text) {
    if (text instanceof ArrayBuffer) return look(text);
    if (typeof text !== "string" || /[^\x20-\x7e]/.test(text)) throw new Error(`it sent ${text.slice(0, 200)}`);
    if (/NaN|Infinity|undefined/.test(text.replace(/^(ERROR|REFUSED)=.*/, ""))) throw new Error(`it sent ${text.slice(0, 200)}`);
  }
  close() {
    if (open !== this) return;
    open = null;
    setImmediate(() => this.onclose({ code: 1000, reason: "" }));
  }
}

console.error = () => {};
const game = new Game();
connect(game, { url: "ws://fuzz/", retry: 0, WebSocket: Fake });
let before = 0;
for (let n = 0; n < count; n++) {
  while (!open?.greeted) {
    await new Promise((resolve) => setImmediate(resolve));
    if (open && !open.greeted) {
      await new Promise((resolve) => setImmediate(resolve));
      open.greeted = true;
    }
  }
  open.onmessage({ data: changed() });
  if (n === Math.floor(count / 10)) {
    globalThis.gc();
    before = process.memoryUsage().heapUsed;
  }
}
globalThis.gc();
console.log(JSON.stringify({ sessions, inRows, growth: process.memoryUsage().heapUsed - before }));
process.exit(0);
