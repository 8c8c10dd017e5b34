// Sends the connection of samples/web/ue_rl.js what no trainer would: node --expose-gc fuzz.mjs MESSAGES SEED
// A line of JSON at the end: how many sessions ended, and the bytes by which the heap has grown behind the first tenth.
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
  if (random.integer(0, 500) === 0) return new Uint8Array(random.integer(0, 99)).buffer;
  if (random.integer(0, 2000) === 0) return "A".repeat(3 << 20);
  return text;
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
console.log(JSON.stringify({ sessions, growth: process.memoryUsage().heapUsed - before }));
process.exit(0);
