// A lander on a physics library: each env sets its craft down on a pad, on two legs.
//
// Rapier is compiled to WebAssembly, whose + - * / and sqrt are the same everywhere: the same actions give the same
// bits in Node and in browsers. Libraries that call Math.sin, such as Matter.js and Planck, drift apart there. What is
// computed here uses + - * / and Math.sqrt, and a polynomial for the sine. `npm ci` in this folder brings Rapier.
import RAPIER from "./node_modules/@dimforge/rapier2d-compat/dist/rapier.mjs";
import { MultiEnvBridge } from "./ue_rl.js";

await RAPIER.init();

const STEP = 1 / 30; // seconds
const LONGEST = 450; // steps of an episode
const GRAVITY = 2;
const MAIN = 5; // m/s^2 of the engine
const TURN = 4; // rad/s^2 of the thrusters
const HARD = 1.6; // m/s at which a leg breaks
export const WIDE = 6; // metres from the pad to the edge of the world
export const HIGH = 10; // from the ground to the top
export const PAD = 1.2; // from its middle to its end

/** Of small angles, by + and * alone: within 1e-6 up to 1.5. */
function sine(x) {
  const z = x * x;
  return x * (1 - (z / 6) * (1 - (z / 20) * (1 - (z / 42) * (1 - (z / 72) * (1 - z / 110)))));
}

function cosine(x) {
  const z = x * x;
  return 1 - (z / 2) * (1 - (z / 12) * (1 - (z / 30) * (1 - (z / 56) * (1 - z / 90))));
}

/**
 * Observation: place, speed, tilt, turning, and does each leg stand? Action: the engine (below 0: off) and the
 * thrusters. Reward: for what came nearer to standing on the pad, less fuel; 10 for standing there, -10 for a crash.
 */
export class Landers extends MultiEnvBridge {
  constructor(numEnvs = 16) {
    super({
      obsSize: 8,
      actSize: 2,
      numEnvs,
      obsNames: ["x[m]", "height[m]", "speed.x[m/s]", "speed.y[m/s]", "tilt[rad]", "turning[rad/s]", "left leg", "right leg"],
      actNames: ["engine", "thrusters"],
    });
    this.crafts = Array.from({ length: numEnvs }, () => null);
  }

  /** A world of its own for each episode: what a solver remembers of the last one must not count. */
  handleResetForEnv(envId) {
    this.crafts[envId]?.world.free();
    const random = this.random[envId];
    const world = new RAPIER.World({ x: 0, y: -GRAVITY });
    world.timestep = STEP;
    const ground = world.createCollider(RAPIER.ColliderDesc.cuboid(4 * WIDE, 0.5).setTranslation(0, -0.5).setFriction(1));
    const body = world.createRigidBody(
      RAPIER.RigidBodyDesc.dynamic()
        .setTranslation(random.uniform(-3.5, 3.5), random.uniform(6.5, 8.5))
        .setLinvel(random.uniform(-0.7, 0.7), random.uniform(-0.7, 0))
        .setRotation(random.uniform(-0.25, 0.25))
        .setAngvel(random.uniform(-0.2, 0.2))
        .setCanSleep(false),
    );
    const hull = world.createCollider(RAPIER.ColliderDesc.cuboid(0.4, 0.3).setTranslation(0, 0.15).setDensity(1), body);
    const legs = [-0.5, 0.5].map((x) =>
      world.createCollider(RAPIER.ColliderDesc.cuboid(0.1, 0.25).setTranslation(x, -0.3).setDensity(0.5).setFriction(1), body),
    );
    const craft = { world, ground, body, hull, legs, stands: [false, false], age: 0, still: 0, engine: 0, turn: 0, was: 0 };
    this.crafts[envId] = craft;
    craft.end = "";
    craft.was = this._worth(craft);
  }

  handleResponseActionsForEnv(envId, actions) {
    const craft = this.crafts[envId];
    const { world, body } = craft;
    craft.engine = Math.min(Math.max(actions[0], 0), 1);
    craft.turn = Math.min(Math.max(actions[1], -1), 1);
    const tilt = body.rotation();
    const push = craft.engine * MAIN * STEP * body.mass();
    body.applyImpulse({ x: -sine(tilt) * push, y: cosine(tilt) * push }, true);
    body.setAngvel(body.angvel() - craft.turn * TURN * STEP, true);
    const before = body.linvel();
    const falling = Math.sqrt(before.x * before.x + before.y * before.y);
    world.step();
    craft.age += 1;
    const touches = (collider) => {
      let found = false;
      world.contactPair(collider, craft.ground, (manifold) => {
        found = found || manifold.numContacts() > 0;
      });
      return found;
    };
    craft.stands = craft.legs.map(touches);
    const { x, y } = body.translation();
    const after = body.linvel();
    const quiet = after.x * after.x + after.y * after.y < 0.04 && craft.stands[0] && craft.stands[1];
    craft.still = quiet ? craft.still + 1 : 0;
    const touched = craft.stands[0] || craft.stands[1];
    if (touches(craft.hull) || (touched && falling > HARD) || Math.abs(tilt) > 1.4) craft.end = "crashed";
    else if (Math.abs(x) > WIDE || y > HIGH) craft.end = "lost";
    else if (craft.still >= 15) craft.end = Math.abs(x) <= PAD ? "landed" : "beside the pad";
  }

  createStateStringForEnv(envId) {
    const { body, stands } = this.crafts[envId];
    const place = body.translation();
    const speed = body.linvel();
    return [place.x, place.y, speed.x, speed.y, body.rotation(), body.angvel(), stands[0] ? 1 : 0, stands[1] ? 1 : 0];
  }

  calculateRewardForEnv(envId) {
    const craft = this.crafts[envId];
    const worth = this._worth(craft);
    let reward = worth - craft.was - 0.01 * craft.engine - 0.005;
    craft.was = worth;
    if (craft.end === "landed") reward += 10;
    else if (craft.end !== "") reward -= craft.end === "beside the pad" ? 2 : 10;
    return [reward, craft.end !== "", craft.end === "" && craft.age >= LONGEST];
  }

  /** How near a craft is to standing on the pad: of what came nearer the reward is made. */
  _worth({ body, stands }) {
    const { x, y } = body.translation();
    const speed = body.linvel();
    const far = Math.sqrt(x * x + (y - 0.55) * (y - 0.55));
    const fast = Math.sqrt(speed.x * speed.x + speed.y * speed.y);
    return -far - 1.5 * fast - 2 * Math.abs(body.rotation()) + 0.5 * stands.filter(Boolean).length;
  }
}
