/** Lets a trainer drive a game in a web page, or in Node; see ue_rl.js. */

/** What the game or the trainer has done wrong, as a sentence; it ends the session, and not the game. */
export class SessionError extends Error {}

/** A random generator that gives the same numbers in every browser and in Node. */
export class Random {
  constructor(seed?: number | bigint);
  /** From here on the numbers are those of this seed, of 64 bits. */
  seed(seed: number | bigint): void;
  /** A whole number from 0 to 2^32 - 1. */
  bits(): number;
  /** A number from `low` to below `high`. */
  uniform(low?: number, high?: number): number;
  /** A whole number from `low` to `high`, both included. */
  integer(low: number, high: number): number;
}

/** Sizes and spaces of a row. */
export interface Shape {
  /** Numbers of an observation. */
  obsSize: number;
  /** Numbers of an action. */
  actSize: number;
  /** "DISCRETE(3)" and others: docs/protocol.md, section 3. */
  actSpace?: string;
  /** Bounds or parts of the observation. */
  obsSpace?: string;
  /** For people: "speed[m/s]". */
  obsNames?: string[];
  actNames?: string[];
}

export interface Game {
  numEnvs?: number;
  /** Without it SEED and TRUNC; what follows from methods of the game is announced by itself. */
  features?: Array<"SEED" | "TRUNC" | "INFO" | "OPTIONS" | "MASK">;
  /** What a trainer may set: value at the start, lowest, highest. */
  parameters?: Record<string, [number] | [number, number, number]>;
  /** Pictures a second of a film. */
  renderFps?: number;
}

export interface Spec extends Shape, Game {}

export interface Reset {
  seed: bigint | null;
  options: Record<string, unknown> | null;
}

/** Reward, terminated, truncated. */
export type Result = [number, boolean, boolean?];

/** A canvas, an ImageData, or rows of pixels of 1, 3 or 4 bytes. */
export type Picture =
  | { width: number; height: number; data: ArrayLike<number> }
  | (CanvasImageSource & { width: number; height: number });

/** A game of `numEnvs` envs. */
export class MultiEnvBridge {
  constructor(spec: Spec);
  readonly spec: Spec & Required<Pick<Spec, "numEnvs" | "actSpace" | "features" | "parameters">>;
  readonly numEnvs: number;
  /** A generator for each env; a trainer's seed starts it anew before handleResetForEnv. */
  readonly random: Random[];
  /** For watching: no more requests for steps are answered a second; 0: all at once. */
  stepsPerSecond: number;
  /** A person has stopped it: steps wait, and so does the trainer, as long as its timeout is. */
  halted: boolean;
  /** Steps of all envs so far; returns of the last 100 episodes. */
  readonly played: { steps: number; returns: number[] };
  handleResetForEnv(envId: number, given: Reset): void;
  handleResponseActionsForEnv(envId: number, actions: number[]): void;
  createStateStringForEnv(envId: number): ArrayLike<number>;
  calculateRewardForEnv(envId: number): Result;
  /** A flag for each choice: is it legal now? */
  createActionMaskForEnv?(envId: number): ArrayLike<boolean | number>;
  /** The picture of an env. */
  render?(envId: number): Picture | null;
  /** A parameter of this env has changed. */
  setParameter?(name: string, value: number, envId: number): void;
  /** A game with a clock of its own stops it. */
  setPaused?(paused: boolean): void;
  /** 1: real time. */
  setTimeScale?(scale: number): void;
  /** Of a goal that was achieved, and the one that was desired. */
  computeReward?(achieved: number[], desired: number[]): number;
  /** Acts by a person's keys or a script. */
  heuristic?(envId: number, observation: number[]): ArrayLike<number>;
  /** With the feature INFO, from within a step. */
  writeInfo(envId: number, info: Record<string, unknown>): void;
  getParameter(name: string, envId?: number): number;
  /** The game acts itself while a trainer asks, to be recorded; without an argument by `heuristic`. */
  demonstrate(act?: ((envId: number, observation: number[]) => ArrayLike<number>) | null): void;
  /** FEATURES of the handshake. */
  features(): string[];
  /** The handshake, with these FEATURES of the carrier. */
  describe(more?: string[]): string;
  /** The most characters of a line that a trainer sends. */
  lineLimit(): number;
}

export interface AgentsSpec extends Game {
  /** By name; `count`: the most agents that one env has. */
  groups: Record<string, Shape & { count?: number }>;
}

/** Envs in which several agents act, who may come and go. Agents are called by their names. */
export class MultiAgentBridge extends MultiEnvBridge {
  constructor(spec: AgentsSpec);
  /** `name_0`, `name_1`, .. of a group; of a group of one, its own name. */
  readonly agentNames: string[];
  resetEnv(envId: number, given: Reset): void;
  /** Actions of all agents whose episode is not over. */
  stepEnv(envId: number, actions: Record<string, number[]>): void;
  /** Of all that begin, acted, or have just come. */
  observe(envId: number): Record<string, ArrayLike<number>>;
  /** Of all that acted. */
  results(envId: number): Record<string, Result>;
  actionMasks?(envId: number): Record<string, ArrayLike<boolean | number>>;
  infos?(envId: number): Record<string, Record<string, unknown>>;
}

/** What one trainer says, from the handshake on. */
export class Session {
  constructor(bridge: MultiEnvBridge);
  /** The lines that answer this one. Throws SessionError. */
  take(line: string): string[];
  /** The messages that answer a step in binary form (FEATURES=BINARY). Throws SessionError. */
  takeRows(message: ArrayBuffer): Array<ArrayBuffer | string>;
  /** The trainer has gone: a game that it paused goes on. */
  end(): void;
}

/** Heuristic mode: the game's `heuristic` acts, and no trainer. */
export function play(
  bridge: MultiEnvBridge,
  options?: { stepsPerSecond?: number; onSeen?: (envId: number, text: string) => void },
): { close: () => void };

export type State = "dialling" | "connected" | "training" | "refused" | "closed";

export interface ConnectOptions {
  /** "ws://127.0.0.1:7780/"; without one a page dials the server that it comes from. */
  url?: string;
  /** A secret of both sides; without one a page takes that behind #token= in its address. */
  token?: string;
  /** Milliseconds between two tries. */
  retry?: number;
  onState?: (state: State, text: string) => void;
  /** false: steps are text, which a person can read; otherwise the trainer may ask in binary. */
  binary?: boolean;
  /** For a Node that has none: that of the package `ws`. */
  WebSocket?: new (url: string) => unknown;
}

export interface ListenOptions {
  host?: string;
  /** 0: one that is free. */
  port?: number;
  token?: string;
}

/** Dials the trainer at a page:// address, and again whenever the connection is lost, until `close` is called. */
export function connect(bridge: MultiEnvBridge, options?: ConnectOptions): { close: () => void };

/** In Node: listens for a trainer over TCP. */
export function listen(bridge: MultiEnvBridge, options?: ListenOptions): Promise<{ port: number; close: () => void }>;
