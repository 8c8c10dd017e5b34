/** Plays the files that `ue-rl export` writes, in a web page or in Node; see policy.js. */

/** What a file or a call has wrong, as a sentence. */
export class PolicyError extends Error {}

export type Numbers = ArrayLike<number>;

export interface LoadOptions {
  /** The module onnxruntime-web or onnxruntime-node; without it a file is played by the operations of policy.js. */
  runtime?: unknown;
  /** Frames that VecFrameStack put together in training: `act` then takes one of them. */
  stack?: number;
  /** From 0 to below 1, for a file that samples its actions. */
  random?: () => number;
}

export interface Given {
  /** `maskSize` flags for each agent. */
  masks?: ArrayLike<number | boolean>;
  /** Of a file that samples its actions; without it: drawn. */
  noise?: Numbers;
}

export interface Port {
  name: string;
  /** Without the axis of rows. */
  shape: number[];
  role: "observation" | "state" | "episode_start" | "noise" | "action_masks" | "actions";
  key: string | null;
  distribution?: "normal" | "uniform" | null;
}

/** The metadata `ue_rl` of a file; one without them has inputs and outputs alone. */
export interface Description {
  algorithm?: string;
  policy?: string;
  observation_space?: Record<string, unknown>;
  action_space?: Record<string, unknown>;
  inputs: Port[];
  outputs: Port[];
  normalization?: Record<string, unknown> | null;
  obs_names?: string[];
  act_names?: string[];
  [name: string]: unknown;
}

export interface Tensor {
  dims: number[];
  data: Float32Array;
}

/** A trained policy. What it remembers is kept for each row of a call: row i must be the same agent in each call. */
export class Policy {
  /** Throws PolicyError: it cannot be read or played, and why. `file`: an address, in Node also a path, or bytes. */
  static load(file: string | URL | ArrayBuffer | Uint8Array, options?: LoadOptions): Promise<Policy>;
  private constructor();
  readonly description: Description;
  /** Numbers of one observation, all keys of a Dict together. */
  readonly obsSize: number;
  /** Numbers of one action. */
  readonly actSize: number;
  readonly stack: number;
  readonly isRecurrent: boolean;
  /** The flags of legal choices that it needs with each observation; 0: it takes none. */
  readonly maskSize: number;
  /** What the graph gave last, by name. */
  readonly outputs: Record<string, Tensor>;
  /** New episodes begin, of these agents or of all. */
  reset(rows?: Iterable<number>): void;
  /** The actions of predict(deterministic=True), float32, `actSize` numbers for each agent. Throws PolicyError. */
  act(observations: Numbers | Record<string, Numbers>, given?: Given): Promise<Float32Array>;
  /** As `act`, at once: without a runtime only. */
  actNow(observations: Numbers | Record<string, Numbers>, given?: Given): Float32Array;
  /** All outputs of the graph by name, of inputs by name; nothing is kept or checked. */
  runRaw(feeds: Record<string, Tensor>): Promise<Record<string, Tensor>>;
}

/** A game of ue_rl.js that a policy plays, without a trainer; each call is one step of all envs. */
export function player(bridge: unknown, policy: Policy): { step: () => Promise<void> };

/** The policy that `ue-rl export --page` has put beside this page; null: there is none. */
export function trained(): Promise<Policy | null>;

/** The operations of ONNX that are played without a runtime. */
export const OPERATIONS: readonly string[];
