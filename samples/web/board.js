// The board of the samples' pages: the envs as a grid, return and speed, a pause. It trains, or plays the agent that
// `ue-rl export --page` has put beside the page. What is drawn is drawn on frames; steps come with a trainer's messages.
import { player, trained } from "./policy.js";
import { connect } from "./ue_rl.js";

const GAP = 10; // CSS pixels between two envs
const POINTS = 240; // of the curve
const FILMED = 240; // CSS pixels of an env's picture in a trainer's film
const at = (id) => document.getElementById(id);

/** As many pixels as the screen has; drawn in CSS pixels. */
function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

/** The page's colours by name, which change with the light or dark of the system. */
function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    ["ink", "soft", "paper", "card", "line", "accent", "warm", "cool", "sky", "ground"].map((name) => [name, style.getPropertyValue(`--${name}`)]),
  );
}

/**
 * @param {any} game a MultiEnvBridge
 * @param {object} options
 * @param {(pen: CanvasRenderingContext2D, envId: number, size: {width: number, height: number}, paint: Record<string, string>) => void}
 *   options.draw one env, at 0, 0
 * @param {number} options.shape height of an env's picture as a share of its width
 * @param {number} options.narrow CSS pixels that a picture has at least, where the page is wide
 * @param {number} [options.stepsPerSecond] at which the trained agent plays
 * @param {() => void} [options.onPlay] a trained agent is there
 * @param {() => void} [options.onStep] after each step of the trained agent
 */
export async function show(game, { draw, shape, narrow, stepsPerSecond = 30, onPlay, onStep }) {
  const board = at("board");
  const curve = [];
  let paint = colours();
  let told = "";
  let before = { time: performance.now(), steps: game.played.steps };

  function say(state, text) {
    document.documentElement.dataset.state = state;
    if (text !== told) at("state").textContent = told = text;
  }

  function press(id, value) {
    at(id).setAttribute("aria-pressed", String(value));
  }

  at("pause").addEventListener("click", () => {
    game.halted = !game.halted;
    press("pause", game.halted);
  });
  at("pace").addEventListener("click", () => {
    game.stepsPerSecond = game.stepsPerSecond ? 0 : stepsPerSecond;
    press("pace", game.stepsPerSecond > 0);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    paint = colours();
  });

  function frame() {
    // Before it is laid out, and where it is hidden, the board has no width for a picture.
    if (board.clientWidth > GAP) drawAll(board.clientWidth);
    requestAnimationFrame(frame);
  }

  function drawAll(wide) {
    const least = wide < 520 ? (wide - GAP) / 2 : narrow;
    const columns = Math.max(1, Math.min(game.numEnvs, Math.floor((wide + GAP) / (least + GAP))));
    let width = (wide - GAP * (columns - 1)) / columns;
    if (game.numEnvs === 1) width = Math.min(wide, 440, Math.max(160, (innerHeight - 190) / shape)); // all of it is seen
    board.dataset.width = String(width);
    const size = { width, height: width * shape };
    const rows = Math.ceil(game.numEnvs / columns);
    const pen = fit(board, rows * (size.height + GAP) - GAP);
    for (let envId = 0; envId < game.numEnvs; envId++) {
      pen.save();
      const left = game.numEnvs === 1 ? (wide - width) / 2 : (envId % columns) * (width + GAP);
      pen.translate(left, Math.floor(envId / columns) * (size.height + GAP));
      pen.beginPath();
      pen.roundRect(0, 0, size.width, size.height, 8);
      pen.clip();
      draw(pen, envId, size, paint);
      pen.restore();
    }
  }

  function drawCurve() {
    const canvas = at("curve");
    const pen = fit(canvas, 32);
    if (curve.length < 2) return;
    const low = Math.min(...curve);
    const span = Math.max(...curve) - low || 1;
    pen.beginPath();
    curve.forEach((value, i) => {
      pen.lineTo((i / (curve.length - 1)) * canvas.clientWidth, 30 - ((value - low) / span) * 28);
    });
    pen.strokeStyle = paint.accent;
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.stroke();
  }

  function count() {
    const now = performance.now();
    at("speed").textContent = Math.round(((game.played.steps - before.steps) * 1000) / (now - before.time)).toLocaleString("en");
    at("steps").textContent = game.played.steps.toLocaleString("en");
    if (game.played.returns.length) {
      const mean = game.played.returns.reduce((sum, x) => sum + x) / game.played.returns.length;
      at("return").textContent = mean.toFixed(1);
      if (game.played.steps > before.steps) curve.push(mean);
      if (curve.length > POINTS) for (let i = 1; i < curve.length; i++) curve.splice(i, 1); // every second one
    }
    before = { time: now, steps: game.played.steps };
    drawCurve();
  }

  async function play(policy) {
    at("pace").hidden = true;
    if (onPlay) onPlay();
    const playing = player(game, policy);
    say("playing", "A trained agent plays.");
    let due = performance.now();
    for (;;) {
      if (!game.halted) {
        await playing.step();
        if (onStep) onStep();
      }
      due = Math.max(due + 1000 / stepsPerSecond, performance.now() - 200);
      await new Promise((done) => setTimeout(done, due - performance.now()));
    }
  }

  const film = document.createElement("canvas");
  game.render = (envId) => {
    film.width = FILMED;
    film.height = Math.round(FILMED * shape);
    draw(film.getContext("2d", { willReadFrequently: true }), envId, film, paint);
    return film;
  };
  frame();
  setInterval(count, 500);
  const says = {
    dialling: "It waits for a trainer.",
    connected: "A trainer is there.",
    training: "They are learning.",
    refused: "Another page is the engine now; this one waits.",
    closed: "It waits for a trainer.",
  };
  try {
    const policy = await trained();
    if (policy) return await play(policy);
    return connect(game, { onState: (state) => say(state, says[state]) });
  } catch (error) {
    say("failed", error.message);
    throw error;
  }
}
