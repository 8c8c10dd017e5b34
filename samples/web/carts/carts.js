// Carts on a line: keep each near 0. The action pushes, and an episode has 100 steps.
// The same file runs in a page (index.html) and in Node (node.js). It uses + - * / alone: browsers and Node differ in
// the last bits of Math.sin and others.
import { MultiEnvBridge } from "./ue_rl.js";

/** Observation: position and speed. Action: one number in [-1, 1]. Reward: 1 - distance from 0. */
export class Carts extends MultiEnvBridge {
  constructor(numEnvs = 16) {
    super({ obsSize: 2, actSize: 1, numEnvs, obsNames: ["x", "speed"], actNames: ["push"] });
    this.x = new Float32Array(numEnvs);
    this.speed = new Float32Array(numEnvs);
    this.age = new Uint32Array(numEnvs);
  }

  /** A new episode begins, anywhere between -1 and 1. A seed that came has started random[envId] anew. */
  handleResetForEnv(envId) {
    this.x[envId] = this.random[envId].uniform(-1, 1);
    this.speed[envId] = 0;
    this.age[envId] = 0;
  }

  /** One step of the game. */
  handleResponseActionsForEnv(envId, actions) {
    this.speed[envId] += 0.1 * actions[0];
    this.x[envId] += this.speed[envId];
    this.age[envId] += 1;
  }

  /** What the policy sees; after a reset, too. */
  createStateStringForEnv(envId) {
    return [this.x[envId], this.speed[envId]];
  }

  /** [reward, terminated, truncated]. The next episode begins when the trainer says so, not here. */
  calculateRewardForEnv(envId) {
    const distance = Math.abs(this.x[envId]);
    const lost = distance > 3;
    return [1 - distance, lost, !lost && this.age[envId] >= 100];
  }
}
