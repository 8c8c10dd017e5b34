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

export interface Spec {
  /** Numbers of an observation. */
  obsSize: number;
  /** Numbers of an action. */
  actSize: number;
  numEnvs?: number;
  /** "DISCRETE(3)" and others: docs/protocol.md, section 3. */
  actSpace?: string;
  obsSpace?: string;
  obsNames?: string[];
  actNames?: string[];
  features?: Array<"SEED" | "TRUNC" | "INFO" | "MASK" | "OPTIONS">;
  /** What a trainer may set: value at the start, lowest, highest. */
  parameters?: Record<string, [number] | [number, number, number]>;
}

export interface Reset {
  seed: bigint | null;
  options: Record<string, unknown> | null;
}

/** A game of `numEnvs` envs. */
export class MultiEnvBridge {
  constructor(spec: Spec);
  readonly spec: Required<Pick<Spec, "numEnvs" | "actSpace" | "features" | "parameters">> & Spec;
  readonly numEnvs: number;
  /** A generator for each env; a trainer's seed starts it anew before handleResetForEnv. */
  readonly random: Random[];
  /** For watching: no more requests for steps are answered a second; 0: all at once. */
  stepsPerSecond: number;
  /** Steps of all envs so far. */
  readonly steps: number;
  /** Returns of the last 100 episodes. */
  readonly returns: number[];
  handleResetForEnv(envId: number, given: Reset): void;
  handleResponseActionsForEnv(envId: number, actions: number[]): void;
  createStateStringForEnv(envId: number): ArrayLike<number>;
  /** Reward, terminated, truncated. */
  calculateRewardForEnv(envId: number): [number, boolean, boolean?];
  /** With the feature MASK: a flag for each choice. */
  createActionMaskForEnv(envId: number): ArrayLike<boolean | number>;
  /** With the feature INFO, from within a step. */
  writeInfo(envId: number, info: Record<string, unknown>): void;
  getParameter(name: string, envId?: number): number;
  /** The handshake. */
  describe(): string;
  /** The most characters of a line that a trainer sends. */
  lineLimit(): number;
}

/** The lines of one trainer, from the handshake on. */
export class Session {
  constructor(bridge: MultiEnvBridge);
  /** The lines that answer this one. Throws SessionError. */
  take(line: string): string[];
}

export type State = "dialling" | "connected" | "training" | "refused" | "closed";

export interface ConnectOptions {
  /** "ws://127.0.0.1:7780/"; without one a page dials the server that it comes from. */
  url?: string;
  /** A secret of both sides; without one a page takes that behind #token= in its address. */
  token?: string;
  /** Milliseconds between two tries. */
  retry?: number;
  onState?: (state: State, text: string) => void;
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
