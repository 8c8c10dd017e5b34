// The game of bench_pages.py, in Node: node pages_game.mjs WHERE ENVS NUMBERS FORM MS, or in a page, where index.html of
// that script calls `begin`. Its numbers are as long as those of physics: a game of whole numbers would be quicker in text.
import { MultiEnvBridge, connect, listen } from "./ue_rl.js";

class Drift extends MultiEnvBridge {
  constructor(numEnvs, obsSize, ms) {
    super({ obsSize, actSize: 2, numEnvs });
    this.ms = ms;
    this.rows = Array.from({ length: numEnvs }, () => new Float32Array(obsSize));
  }
  handleResetForEnv(envId) {
    const row = this.rows[envId];
    for (let i = 0; i < row.length; i++) row[i] = this.random[envId].uniform(-1, 1);
  }
  handleResponseActionsForEnv(envId, [a, b]) {
    const until = performance.now() + this.ms;
    while (envId === 0 && performance.now() < until);
    const row = this.rows[envId];
    for (let i = 0; i < row.length; i++) row[i] = 0.97 * row[i] + 0.03 * a + 0.001 * b;
  }
  createStateStringForEnv(envId) {
    return this.rows[envId];
  }
  calculateRewardForEnv(envId) {
    return [-Math.abs(this.rows[envId][0]), false];
  }
}

/**
 * Dials a trainer, or listens at a port.
 * @param {string | null} where null: the page's own server
 * @param {string} ms that a step takes at least
 */
export async function begin(where, numEnvs, obsSize, form, ms) {
  const game = new Drift(Number(numEnvs), Number(obsSize), Number(ms));
  if (where !== null && !where.includes("://")) await listen(game, { port: Number(where) });
  else connect(game, { ...(where === null ? {} : { url: where }), binary: form === "binary" });
}

if (globalThis.process) await begin(...process.argv.slice(2));
