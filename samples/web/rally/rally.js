// A rally: two bats and a ball. The agent has the upper bat; the lower one is a simple rule's, or a person's.
// It uses + - * / alone, so that an episode is the same everywhere.
import { MultiEnvBridge } from "./ue_rl.js";

export const WIDE = 2; // the court: x from -1 to 1,
export const LONG = 3; // y from 0, the person's end, to 3, the agent's
export const BAT = 0.22; // half of a bat
export const BALL = 0.05; // its radius
const STEP = 1 / 30; // seconds
const REACH = 1.9; // the agent's bat a second
const RULE = 1.15; // the rule's bat a second: slower than the ball can be
const LONGEST = 900; // steps of an episode

const kept = (x, least, most) => (x < least ? least : x > most ? most : x);

/** Observation: the ball, its speed, and both bats. Action: left, stay, right. Reward: 1 a point won, -1 one lost. */
export class Rally extends MultiEnvBridge {
  constructor(numEnvs = 16) {
    super({
      obsSize: 6,
      actSize: 1,
      numEnvs,
      actSpace: "DISCRETE(3)",
      obsNames: ["ball.x", "ball.y", "ball.speed.x", "ball.speed.y", "own bat", "other bat"],
      actNames: ["left, stay, right"],
    });
    this.courts = Array.from({ length: numEnvs }, () => ({ x: 0, y: 0, dx: 0, dy: 0, agent: 0, other: 0, age: 0, end: "", hits: 0 }));
    /** Where a person wants the lower bat of an env to be; null: the rule plays. */
    this.person = Array.from({ length: numEnvs }, () => null);
    /** Of env 0: its points so far, and who made the last one. */
    this.rallies = 0;
    this.winner = "";
  }

  handleResetForEnv(envId) {
    const random = this.random[envId];
    const court = this.courts[envId];
    court.x = random.uniform(-0.5, 0.5);
    court.y = LONG / 2;
    court.dx = random.uniform(-0.8, 0.8);
    court.dy = random.integer(0, 1) ? 1.1 : -1.1;
    court.agent = 0;
    court.other = this.person[envId] === null ? 0 : court.other;
    court.age = 0;
    court.hits = 0;
    court.reward = 0;
    court.end = "";
    court.slip = random.uniform(-0.15, 0.15);
  }

  handleResponseActionsForEnv(envId, actions) {
    const court = this.courts[envId];
    const most = WIDE / 2 - BAT;
    court.agent = kept(court.agent + (actions[0] - 1) * REACH * STEP, -most, most);
    const wanted = this.person[envId];
    if (wanted === null) {
      const goal = court.dy < 0 ? court.x + court.slip : 0;
      court.other = kept(court.other + kept(goal - court.other, -RULE * STEP, RULE * STEP), -most, most);
    } else court.other = kept(court.other + kept(wanted - court.other, -2 * REACH * STEP, 2 * REACH * STEP), -most, most);
    court.x += court.dx * STEP;
    court.y += court.dy * STEP;
    court.age += 1;
    court.reward = 0;
    const wall = WIDE / 2 - BALL;
    if (court.x < -wall || court.x > wall) {
      court.x = kept(court.x, -wall, wall);
      court.dx = -court.dx;
    }
    if (court.y > LONG - 0.1 - BALL && court.dy > 0) this._meet(envId, court.agent, "the agent missed");
    if (court.y < 0.1 + BALL && court.dy < 0) this._meet(envId, court.other, "the agent won");
  }

  /** The ball is at one end: a bat sends it back, the farther from its middle the more to the side; or a point is made. */
  _meet(envId, bat, missed) {
    const court = this.courts[envId];
    const off = court.x - bat;
    if (off < -BAT - BALL || off > BAT + BALL) {
      court.end = missed;
      if (envId === 0) {
        this.rallies += 1;
        this.winner = missed;
      }
      court.reward = missed === "the agent won" ? 1 : -1;
      return;
    }
    const faster = kept(court.dy * -1.06, -2.6, 2.6);
    court.dy = faster;
    court.dx = kept(court.dx * 0.4 + (off / BAT) * 1.5, -1.9, 1.9);
    court.hits += 1;
    court.slip = this.random[envId].uniform(-0.15, 0.15);
    if (missed === "the agent missed") court.reward = 0.1;
  }

  createStateStringForEnv(envId) {
    const { x, y, dx, dy, agent, other } = this.courts[envId];
    return [x, y - LONG / 2, dx, dy, agent, other];
  }

  calculateRewardForEnv(envId) {
    const { reward, end, age } = this.courts[envId];
    return [reward, end !== "", end === "" && age >= LONGEST];
  }
}
