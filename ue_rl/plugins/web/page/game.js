// A game for a trainer: each agent steers a disc to its target. Change it into yours; docs/browser.md says how.
import { MultiEnvBridge } from "./ue_rl.js";

/** Observation: from the disc to its target, x and y. Action: a push to the right and down, each in [-1, 1]. */
export class Game extends MultiEnvBridge {
  constructor(numEnvs = 16) {
    super({ obsSize: 2, actSize: 2, numEnvs, obsNames: ["right", "down"], actNames: ["push right", "push down"] });
    this.discs = Array.from({ length: numEnvs }, () => ({ x: 0, y: 0, targetX: 0, targetY: 0, age: 0 }));
  }

  /** A new episode. A seed that came has started random[envId] anew; Math.random() cannot be seeded. */
  handleResetForEnv(envId) {
    const random = this.random[envId];
    Object.assign(this.discs[envId], {
      x: random.uniform(-1, 1), y: random.uniform(-1, 1), targetX: random.uniform(-1, 1), targetY: random.uniform(-1, 1), age: 0,
    });
  }

  /** One step of the game; within the field. */
  handleResponseActionsForEnv(envId, [right, down]) {
    const disc = this.discs[envId];
    disc.x = Math.max(-1, Math.min(1, disc.x + 0.1 * right));
    disc.y = Math.max(-1, Math.min(1, disc.y + 0.1 * down));
    disc.age += 1;
  }

  /** What the policy sees; after a reset, too. */
  createStateStringForEnv(envId) {
    const { x, y, targetX, targetY } = this.discs[envId];
    return [targetX - x, targetY - y];
  }

  /** [reward, terminated, truncated]. The next episode begins when the trainer says so, not here. */
  calculateRewardForEnv(envId) {
    const [right, down] = this.createStateStringForEnv(envId);
    const distance = Math.sqrt(right * right + down * down);
    const reached = distance < 0.1;
    return [reached ? 1 : -0.1 * distance, reached, !reached && this.discs[envId].age >= 100];
  }
}
