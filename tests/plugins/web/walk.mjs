// The game of tests/carriers/contract.py for a page: node walk.mjs NAME ws://HOST:PORT [text]. NAME: Walk, MaskedWalk or
// Quiet, as there; `text`: the trainer is not offered the binary form.
import { MultiEnvBridge, connect } from "../../../samples/web/ue_rl.js";

const [name, url, form] = process.argv.slice(2);
const N = 4;

class Walk extends MultiEnvBridge {
  constructor() {
    const features = name === "Quiet" ? ["TRUNC", "INFO"] : ["TRUNC", "SEED", "OPTIONS", "INFO"];
    super({ obsSize: 4, actSize: 1, numEnvs: N, actSpace: "DISCRETE(3)", features, parameters: { gravity: [9.8, 0, 20] } });
    this.seeds = new Array(N).fill(-1);
    this.steps = new Array(N).fill(0);
    this.acted = new Array(N).fill(0);
  }
  handleResetForEnv(envId, { seed }) {
    this.seeds[envId] = seed ?? -1;
    this.steps[envId] = 0;
    this.acted[envId] = 0;
  }
  handleResponseActionsForEnv(envId, [action]) {
    this.steps[envId] += 1;
    this.acted[envId] = action;
  }
  createStateStringForEnv(envId) {
    return [envId, Number(this.seeds[envId]), this.steps[envId], this.acted[envId]];
  }
  calculateRewardForEnv(envId) {
    const seed = Number(this.seeds[envId]);
    const step = this.steps[envId];
    const over = step >= (seed < 0 ? 4 : 3 + (seed % 4));
    this.writeInfo(envId, { step });
    const byLimit = over && seed % 2 === 1 && seed > 0;
    return [step + this.acted[envId] / 4, over && !byLimit, byLimit];
  }
}

class MaskedWalk extends Walk {
  createActionMaskForEnv(envId) {
    return [true, this.steps[envId] % 2 === 0, this.steps[envId] % 2 === 1];
  }
}

connect(name === "MaskedWalk" ? new MaskedWalk() : new Walk(), { url, binary: form !== "text" });
