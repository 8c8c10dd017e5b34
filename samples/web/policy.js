// policy.js: plays the files that `ue-rl export` writes, in a web page or in Node. One module, no dependencies.
//
//     import { Policy } from "./policy.js";
//
//     const policy = await Policy.load("agent.onnx");
//     const actions = policy.actNow([0.1, -0.3]); // the numbers that the game sent in training; what it got then
//
// Normalisation, clipping and the choice of the best action are in the file. Networks of plain layers, LSTMs among them,
// are played by the operations at the end of this module. Others, such as those for images, need onnxruntime-web or
// onnxruntime-node:
//
//     const policy = await Policy.load("agent.onnx", { runtime: await import("onnxruntime-web") });
//     const actions = await policy.act(observation);
//
// The form of an ONNX file is that of onnx.proto (https://onnx.ai); that of its description, the metadata `ue_rl`, is
// in ue_rl's inference/metadata.py.

const FORMAT = 1; // of the description, the newest that is known here
const TYPES = { 1: "float32", 7: "int64", 9: "bool", 11: "float64" }; // TensorProto.DataType
const ARRAYS = { float32: Float32Array, int64: Float64Array, bool: Uint8Array, float64: Float64Array };
const OF_ONNX = ["", "ai.onnx"]; // domains of its own operations

/** What a file or a call has wrong, as a sentence. */
export class PolicyError extends Error {}

/**
 * A trained policy.
 *
 * @property {object} description the file's metadata: spaces, inputs, outputs, normalisation
 * @property {number} obsSize numbers of one observation, all keys of a Dict together
 * @property {number} actSize numbers of one action
 * @property {Object<string, {dims: number[], data: Float32Array}>} outputs what the graph gave last, by name
 *
 * It keeps what a recurrent policy remembers, and the frames of a stack, for each row of a call: row i must be the same
 * agent in each call. Call `reset` when episodes begin.
 */
export class Policy {
  /**
   * @param {string | URL | ArrayBuffer | Uint8Array} file its address, in Node also its path, or its bytes
   * @param {object} [options]
   * @param {any} [options.runtime] the module onnxruntime-web or onnxruntime-node; without it a file is played by the
   *   operations of this module
   * @param {number} [options.stack] frames that VecFrameStack put together in training: `act` then takes one of them
   * @param {() => number} [options.random] from 0 to below 1, for a file that samples its actions
   * @returns {Promise<Policy>}
   * @throws {PolicyError} it cannot be read or played, and why
   */
  static async load(file, options = {}) {
    const bytes = await bytesOf(file);
    const model = readModel(bytes);
    await requireIntact(bytes);
    const description = describe(model);
    let network;
    if (options.runtime) network = await Session.open(bytes, model, options.runtime);
    else network = new Network(model);
    return new Policy(description, network, options);
  }

  /** @param {object} description @param {object} network @param {object} options see `load` */
  constructor(description, network, options = {}) {
    this.description = description;
    this._network = network;
    this._random = options.random ?? Math.random;
    this._observed = description.inputs.filter((port) => port.role === "observation");
    this._states = description.inputs.filter((port) => port.role === "state");
    this._masks = description.inputs.find((port) => port.role === "action_masks") ?? null;
    this.stack = options.stack ?? 1;
    this.outputs = {};
    const stacked = this._observed.reduce((sum, port) => sum + sizeOf(port.shape), 0);
    for (const port of this._observed) {
      const last = port.shape.length ? port.shape[port.shape.length - 1] : 1;
      if (!Number.isInteger(this.stack) || this.stack < 1 || last % this.stack) {
        throw new PolicyError(`stack: ${port.name} holds ${last} numbers in its last axis, not ${this.stack} frames`);
      }
    }
    this.obsSize = stacked / this.stack;
    this.actSize = sizeOf(description.outputs.find((port) => port.role === "actions").shape);
    this.reset();
  }

  /** Whether it remembers from step to step. */
  get isRecurrent() {
    return this._states.length > 0;
  }

  /** The flags of legal choices that it needs with each observation; 0: it takes none. */
  get maskSize() {
    return this._masks ? sizeOf(this._masks.shape) : 0;
  }

  /** New episodes begin. @param {Iterable<number>} [rows] of these agents; without them: of all */
  reset(rows) {
    if (rows === undefined) {
      this._count = 0;
      this._memory = new Map();
      this._starts = null;
      this._frames = null;
      return;
    }
    for (const row of rows) {
      if (!Number.isInteger(row) || row < 0) throw new PolicyError(`reset: ${row} is no row`);
      if (this._starts && row < this._count) this._starts[row] = 1;
    }
  }

  /**
   * The actions that `predict(deterministic=True)` gives.
   *
   * @param {ArrayLike<number> | Object<string, ArrayLike<number>>} observations `obsSize` numbers for each agent, one
   *   agent after the other; or of a Dict the numbers of each key
   * @param {object} [given]
   * @param {ArrayLike<number | boolean>} [given.masks] `maskSize` flags for each agent
   * @param {ArrayLike<number>} [given.noise] of a file that samples its actions; without it: drawn here
   * @returns {Promise<Float32Array>} `actSize` numbers for each agent
   * @throws {PolicyError} what was given does not fit the policy
   */
  async act(observations, given = {}) {
    const [feeds, count] = this._feeds(observations, given);
    return this._take(await this._network.run(feeds), count);
  }

  /** As `act`, at once: without a runtime only. */
  actNow(observations, given = {}) {
    if (!(this._network instanceof Network)) throw new PolicyError("a runtime answers later: call `await act(..)`");
    const [feeds, count] = this._feeds(observations, given);
    return this._take(this._network.runNow(feeds), count);
  }

  /**
   * All outputs of the graph by name, of inputs by name; nothing is kept or checked.
   * @param {Object<string, {dims: number[], data: Float32Array}>} feeds
   * @returns {Promise<Object<string, {dims: number[], data: Float32Array}>>}
   */
  async runRaw(feeds) {
    return this._network.run(feeds);
  }

  _feeds(observations, given) {
    const parts = this._parts(observations);
    const count = parts[0].length / (sizeOf(this._observed[0].shape) / this.stack);
    this._begin(count);
    const feeds = {};
    this._observed.forEach((port, i) => {
      let data = parts[i];
      if (this.stack > 1) data = this._stacked(i, data, port.shape, count);
      feeds[port.name] = { dims: [count, ...port.shape], data };
    });
    for (const port of this.description.inputs) {
      if (port.role === "observation") continue;
      feeds[port.name] = { dims: [count, ...port.shape], data: this._beside(port, count, given) };
    }
    if (given.masks && !this._masks) throw new PolicyError("masks: this policy takes none; only MaskablePPO's do");
    return [feeds, count];
  }

  /** The numbers for each input that takes observations. */
  _parts(observations) {
    const sizes = this._observed.map((port) => sizeOf(port.shape) / this.stack);
    if (observations.length === undefined) {
      const parts = this._observed.map((port, i) => {
        const part = observations[port.key ?? port.name];
        if (!part) throw new PolicyError(`observations: the key ${port.key ?? port.name} is missing`);
        return numbers(part, sizes[i], port.key ?? port.name);
      });
      const counts = parts.map((part, i) => part.length / sizes[i]);
      if (counts.some((count) => count !== counts[0])) throw new PolicyError("observations: not as many of each key");
      return parts;
    }
    const whole = numbers(observations, this.obsSize, "observations");
    if (this._observed.length === 1) return [whole];
    const count = whole.length / this.obsSize;
    let from = 0;
    return sizes.map((size) => {
      const part = new Float32Array(count * size);
      for (let row = 0; row < count; row++) {
        part.set(whole.subarray(row * this.obsSize + from, row * this.obsSize + from + size), row * size);
      }
      from += size;
      return part;
    });
  }

  /** What is kept for each agent: all anew where their number has changed. */
  _begin(count) {
    if (this._count !== count) {
      this._count = count;
      this._starts = new Float32Array(count).fill(1);
      this._memory = new Map(this._states.map((port) => [port.name, new Float32Array(count * sizeOf(port.shape))]));
      this._frames = this._observed.map((port) => new Float32Array(count * sizeOf(port.shape)));
    }
  }

  /** The last frames of an input, the newest behind the others, as VecFrameStack has them: zeros at first. */
  _stacked(i, newest, shape, count) {
    const frames = this._frames[i];
    const wide = shape[shape.length - 1];
    const narrow = wide / this.stack;
    const lines = sizeOf(shape) / wide;
    for (let row = 0; row < count; row++) {
      const begin = row * lines;
      if (this._starts[row]) frames.fill(0, begin * wide, (begin + lines) * wide);
      for (let line = begin; line < begin + lines; line++) {
        frames.copyWithin(line * wide, line * wide + narrow, (line + 1) * wide);
        frames.set(newest.subarray(line * narrow, (line + 1) * narrow), (line + 1) * wide - narrow);
      }
    }
    return frames.slice();
  }

  _beside(port, count, given) {
    const size = count * sizeOf(port.shape);
    switch (port.role) {
      case "state":
        return this._memory.get(port.name);
      case "episode_start":
        return this._starts.slice();
      case "action_masks": {
        if (!given.masks) throw new PolicyError(`masks: this policy needs ${sizeOf(port.shape)} flags for each agent`);
        if (given.masks.length !== size) throw new PolicyError(`masks: ${given.masks.length} flags, not ${size}`);
        return Float32Array.from(given.masks, Number);
      }
      case "noise": {
        if (given.noise) return numbers(given.noise, size, "noise");
        return Float32Array.from({ length: size }, () => this._drawn(port.distribution));
      }
      default:
        throw new PolicyError(`the input ${port.name} has the role ${port.role}, which is not known here`);
    }
  }

  _drawn(distribution) {
    const uniform = Math.min(Math.max(this._random(), 1e-7), 1 - 1e-7);
    if (distribution === "uniform") return uniform;
    return Math.sqrt(-2 * Math.log(uniform)) * Math.cos(2 * Math.PI * this._random()); // Box and Muller
  }

  _take(outputs, count) {
    this.outputs = outputs;
    for (const port of this.description.outputs) {
      if (port.role === "state") this._memory.set(port.key, outputs[port.name].data);
    }
    this._starts.fill(0);
    const { data } = outputs[this.description.outputs.find((port) => port.role === "actions").name];
    if (data.length !== count * this.actSize || !data.every(Number.isFinite)) {
      throw new PolicyError(`the file gave ${data.length} actions, NaN or infinity; expected ${count * this.actSize} numbers`);
    }
    return data;
  }
}

/**
 * A game of ue_rl.js that a policy plays, without a trainer.
 *
 * @param {any} bridge a MultiEnvBridge
 * @param {Policy} policy
 * @returns {{step: () => Promise<void>}} each call is one step of all envs; finished episodes begin anew
 */
export function player(bridge, policy) {
  const { numEnvs } = bridge;
  const { obsSize, actSize } = bridge.spec;
  if (obsSize !== policy.obsSize || actSize !== policy.actSize) {
    throw new PolicyError(
      `the game has ${obsSize} -> ${actSize} numbers, the policy ${policy.obsSize} -> ${policy.actSize}: another game's?`,
    );
  }
  const begin = (envId) => bridge._begin(envId, { seed: null, options: null, settings: null });
  for (let envId = 0; envId < numEnvs; envId++) begin(envId);
  return {
    async step() {
      const observations = new Float32Array(numEnvs * obsSize);
      for (let envId = 0; envId < numEnvs; envId++) {
        observations.set(bridge.createStateStringForEnv(envId), envId * obsSize);
      }
      const given = {};
      if (policy.maskSize) {
        given.masks = [];
        for (let envId = 0; envId < numEnvs; envId++) given.masks.push(...bridge.createActionMaskForEnv(envId));
      }
      const actions = await policy.act(observations, given);
      const over = [];
      for (let envId = 0; envId < numEnvs; envId++) {
        const own = Array.from(actions.subarray(envId * actSize, (envId + 1) * actSize));
        bridge.handleResponseActionsForEnv(envId, own);
      }
      for (let envId = 0; envId < numEnvs; envId++) {
        const [reward, terminated, truncated] = bridge.calculateRewardForEnv(envId);
        const ended = Boolean(terminated || truncated);
        bridge._count(envId, reward, ended);
        if (ended) {
          over.push(envId);
          begin(envId);
        }
      }
      bridge.played.steps += numEnvs;
      policy.reset(over);
    },
  };
}

/**
 * The policy that `ue-rl export --page` has put beside this page, and named in its <meta name="ue_rl-agent">.
 * @returns {Promise<Policy | null>} null: there is none, and the page is there for a trainer
 */
export async function trained() {
  const meta = globalThis.document?.querySelector('meta[name="ue_rl-agent"]');
  if (!meta) return null;
  const { stack = "1", runtime } = meta.dataset;
  const options = { stack: Number(stack) };
  if (runtime) {
    try {
      options.runtime = await import(new URL(runtime, document.baseURI).href);
    } catch {
      throw new PolicyError("this agent needs onnxruntime-web: run `npm ci` in the folder runtime beside the page");
    }
    options.runtime.env.wasm.numThreads = 1; // more need headers that few static servers send
  }
  return Policy.load(new URL(meta.content, document.baseURI), options);
}

function sizeOf(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

/** A float32 copy of rows of `size` numbers each. */
function numbers(given, size, name) {
  if (given.length === 0 || given.length % size) {
    throw new PolicyError(`${name}: ${given.length} numbers, which are not rows of ${size}`);
  }
  const copy = Float32Array.from(given);
  const wrong = copy.findIndex((x) => !Number.isFinite(x));
  if (wrong >= 0) throw new PolicyError(`${name}: number ${wrong} is ${given[wrong]}`);
  return copy;
}

// -- the file

async function bytesOf(file) {
  if (file instanceof Uint8Array) return file;
  if (file instanceof ArrayBuffer) return new Uint8Array(file);
  const address = String(file);
  if (globalThis.process?.versions?.node && !/^https?:/.test(address)) {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(address.startsWith("file:") ? new URL(address) : address));
  }
  const answer = await fetch(address);
  if (!answer.ok) throw new PolicyError(`${address} cannot be had: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** Throws where a file is not as it was written: it holds the sha256 of itself with zeros in that place. */
async function requireIntact(bytes) {
  const subtle = globalThis.crypto?.subtle; // not there on pages from plain http://, but for one's own machine
  const text = new TextDecoder("latin1").decode(bytes);
  const found = [...text.matchAll(/"sha256": "([0-9a-f]{64})"/g)].pop();
  if (!subtle || !found) return;
  const at = found.index + '"sha256": "'.length;
  const blank = bytes.slice().fill(48, at, at + 64);
  const digest = new Uint8Array(await subtle.digest("SHA-256", blank));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex !== found[1]) throw new PolicyError("the file was changed or cut after it was exported: export it again");
}

/** Its inputs and outputs with their roles. */
function describe(model) {
  const text = model.metadata.get("ue_rl");
  if (text === undefined) {
    const [obs, ...others] = model.inputs.filter((port) => !model.weights.has(port.name));
    const actions = model.outputs.find((port) => port.name === "actions");
    if (!obs || obs.name !== "obs" || others.length || !actions) {
      throw new PolicyError("the file has no description of ue_rl's, and is not one input obs and an output actions");
    }
    return {
      inputs: [{ ...obs, shape: obs.shape.slice(1), role: "observation", key: null }],
      outputs: [{ ...actions, shape: actions.shape.slice(1), role: "actions", key: null }],
    };
  }
  let description;
  try {
    description = JSON.parse(text);
  } catch {
    throw new PolicyError("the file's description (metadata ue_rl) is not JSON: export it again");
  }
  if (description.format > FORMAT) throw new PolicyError("the file is of a later ue_rl: take its policy.js");
  return description;
}

/** The fields of one protobuf message: calls take(number, value), of which a value is a number or bytes. */
function readFields(bytes, take) {
  let at = 0;
  const varint = () => {
    let low = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (at >= bytes.length || shift > 63n) throw new PolicyError("this is no ONNX file, or it was cut off");
      const byte = bytes[at++];
      low |= BigInt(byte & 127) << shift;
      if (byte < 128) return low;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    let size = null;
    switch (tag & 7) {
      case 0:
        take(tag >>> 3, Number(BigInt.asIntN(64, varint())));
        continue;
      case 1:
        size = 8;
        break;
      case 2:
        size = Number(varint());
        break;
      case 5:
        size = 4;
        break;
      default:
        throw new PolicyError("this is no ONNX file, or it was cut off");
    }
    if (at + size > bytes.length) throw new PolicyError("this is no ONNX file, or it was cut off");
    take(tag >>> 3, bytes.subarray(at, at + size));
    at += size;
  }
}

const textOf = (bytes) => new TextDecoder().decode(bytes);

/** Whole numbers of a repeated field, packed or one by one. */
function pushWhole(list, value) {
  if (typeof value === "number") {
    list.push(value);
    return;
  }
  for (let at = 0; at < value.length; ) {
    let whole = 0n;
    let shift = 0n;
    for (; value[at] > 127; shift += 7n) whole |= BigInt(value[at++] & 127) << shift;
    whole |= BigInt(value[at++]) << shift;
    list.push(Number(BigInt.asIntN(64, whole)));
  }
}

/** ModelProto: the nodes of its graph, weights by name, inputs, outputs, metadata. */
function readModel(bytes) {
  const model = { nodes: [], weights: new Map(), inputs: [], outputs: [], metadata: new Map(), opset: 0 };
  let graph = null;
  readFields(bytes, (field, value) => {
    if (field === 7) graph = value;
    else if (field === 8) {
      let domain = "";
      let version = 0;
      readFields(value, (inner, part) => {
        if (inner === 1) domain = textOf(part);
        else if (inner === 2) version = part;
      });
      if (OF_ONNX.includes(domain)) model.opset = version;
    } else if (field === 14) {
      const pair = ["", ""];
      readFields(value, (inner, part) => {
        pair[inner - 1] = textOf(part);
      });
      model.metadata.set(pair[0], pair[1]);
    }
  });
  if (!graph || !(graph instanceof Uint8Array)) throw new PolicyError("this is no ONNX file");
  readFields(graph, (field, value) => {
    if (field === 1) model.nodes.push(readNode(value));
    else if (field === 5) {
      const tensor = readTensor(value);
      model.weights.set(tensor.name, tensor);
    } else if (field === 11) model.inputs.push(readPort(value));
    else if (field === 12) model.outputs.push(readPort(value));
  });
  return model;
}

function readNode(bytes) {
  const node = { type: "", domain: "", inputs: [], outputs: [], attributes: {} };
  readFields(bytes, (field, value) => {
    if (field === 1) node.inputs.push(textOf(value));
    else if (field === 2) node.outputs.push(textOf(value));
    else if (field === 4) node.type = textOf(value);
    else if (field === 5) {
      const [name, content] = readAttribute(value);
      node.attributes[name] = content;
    } else if (field === 7) node.domain = textOf(value);
  });
  return node;
}

function readAttribute(bytes) {
  let name = "";
  let content = null;
  const listed = [];
  readFields(bytes, (field, value) => {
    if (field === 1) name = textOf(value);
    else if (field === 2) content = new DataView(value.buffer, value.byteOffset, 4).getFloat32(0, true);
    else if (field === 3) content = value;
    else if (field === 4) content = textOf(value);
    else if (field === 5) content = readTensor(value);
    else if (field === 8) pushWhole(listed, value);
  });
  return [name, content ?? listed];
}

function readTensor(bytes) {
  const tensor = { name: "", type: "", dims: [], data: null };
  const whole = [];
  let raw = null;
  let floats = null;
  readFields(bytes, (field, value) => {
    if (field === 1) pushWhole(tensor.dims, value);
    else if (field === 2) tensor.type = TYPES[value] ?? `number ${value} of TensorProto.DataType`;
    else if (field === 4 || field === 10) floats = value;
    else if (field === 5 || field === 7) pushWhole(whole, value);
    else if (field === 8) tensor.name = textOf(value);
    else if (field === 9) raw = value;
    else if (field === 14 && value) throw new PolicyError("its weights lie in another file: export it as one");
  });
  const Numbers = ARRAYS[tensor.type];
  if (!Numbers) return tensor; // who uses it says so
  const stored = raw ?? floats;
  if (stored) {
    const copy = stored.slice().buffer; // numbers begin where their size divides the place
    if (tensor.type === "int64") tensor.data = Float64Array.from(new BigInt64Array(copy), Number);
    else tensor.data = new Numbers(copy);
  } else {
    tensor.data = Numbers.from(whole);
  }
  return tensor;
}

function readPort(bytes) {
  const port = { name: "", shape: [] };
  const within = (value, wanted, take) => readFields(value, (field, part) => field === wanted && take(part));
  readFields(bytes, (field, value) => {
    if (field === 1) port.name = textOf(value);
    else if (field === 2) {
      within(value, 1, (tensor) => within(tensor, 2, (shape) => within(shape, 1, (dim) => {
        let size = 1; // a name stands for any number
        within(dim, 1, (n) => {
          size = n;
        });
        port.shape.push(size);
      })));
    }
  });
  return port;
}

// -- by a runtime

/** A session of onnxruntime-web or onnxruntime-node. */
class Session {
  static async open(bytes, model, runtime) {
    const optional = model.inputs.find((port) => model.weights.has(port.name));
    if (optional) {
      throw new PolicyError(
        `the input ${optional.name} is optional, which this runtime does not know: export with --masks required`,
      );
    }
    try {
      return new Session(await runtime.InferenceSession.create(bytes), runtime);
    } catch (error) {
      throw new PolicyError(`the runtime cannot play the file: ${error.message ?? error}`);
    }
  }

  constructor(session, runtime) {
    this._session = session;
    this._runtime = runtime;
  }

  async run(feeds) {
    const given = {};
    for (const [name, { dims, data }] of Object.entries(feeds)) {
      given[name] = new this._runtime.Tensor("float32", data, dims);
    }
    const outputs = {};
    for (const [name, { dims, data }] of Object.entries(await this._session.run(given))) outputs[name] = { dims, data };
    return outputs;
  }
}

// -- by operations of its own

/** A graph that the operations below play. */
class Network {
  constructor(model) {
    const { nodes, opset } = model;
    const missing = new Set(
      nodes
        .filter((node) => !OF_ONNX.includes(node.domain) || !OPERATIONS.includes(node.type))
        .map((node) => (node.domain ? `${node.domain}.${node.type}` : node.type)),
    );
    if (missing.size) {
      throw new PolicyError(
        `policy.js has no operation ${[...missing].join(", ")}: give onnxruntime-web or onnxruntime-node as runtime`,
      );
    }
    for (const tensor of model.weights.values()) requireType(tensor);
    this._known = new Map(model.weights);
    this._nodes = [];
    for (const node of nodes) {
      if (node.type === "Constant") this._known.set(node.outputs[0], constantOf(node));
      else this._nodes.push({ ...node, opset });
    }
    this._outputs = model.outputs.map((port) => port.name);
  }

  async run(feeds) {
    return this.runNow(feeds);
  }

  runNow(feeds) {
    const values = new Map(this._known);
    for (const [name, { dims, data }] of Object.entries(feeds)) values.set(name, { type: "float32", dims, data });
    for (const node of this._nodes) {
      const given = node.inputs.map((name) => (name ? values.get(name) : undefined));
      const made = RUN[node.type](given, node.attributes, node);
      if (Array.isArray(made)) made.forEach((tensor, i) => values.set(node.outputs[i], tensor));
      else values.set(node.outputs[0], made);
    }
    return Object.fromEntries(this._outputs.map((name) => [name, values.get(name)]));
  }
}

function requireType(tensor) {
  if (!ARRAYS[tensor.type]) throw new PolicyError(`policy.js has no tensors of the type ${tensor.type}: give a runtime`);
  return tensor;
}

function constantOf(node) {
  const { value, value_float: float, value_int: int, value_ints: ints } = node.attributes;
  if (value) return requireType(value);
  if (float !== undefined) return tensorOf("float32", [], [float]);
  if (int !== undefined) return tensorOf("int64", [], [int]);
  if (ints) return tensorOf("int64", [ints.length], ints);
  throw new PolicyError("policy.js has no Constant of this kind: give a runtime");
}

/** @returns a tensor; float32 data are rounded here, once for each number, as a float32 processor does */
function tensorOf(type, dims, data) {
  return { type, dims, data: data instanceof ARRAYS[type] ? data : ARRAYS[type].from(data) };
}

function empty(type, dims) {
  return { type, dims, data: new ARRAYS[type](sizeOf(dims)) };
}

/** Steps through a tensor's numbers, of its own shape, as if it had the shape `dims`. */
function strides(tensor, dims) {
  const steps = new Array(dims.length).fill(0);
  let step = 1;
  for (let i = tensor.dims.length - 1, j = dims.length - 1; i >= 0; i--, j--) {
    if (tensor.dims[i] !== 1) steps[j] = step;
    step *= tensor.dims[i];
  }
  return steps;
}

function common(tensors) {
  const rank = Math.max(...tensors.map((tensor) => tensor.dims.length));
  return Array.from({ length: rank }, (_, axis) => {
    const sizes = tensors.map((tensor) => tensor.dims[axis - rank + tensor.dims.length] ?? 1);
    const size = sizes.find((n) => n !== 1) ?? 1;
    if (sizes.some((n) => n !== 1 && n !== size)) throw new PolicyError(`shapes that do not go together: ${sizes}`);
    return size;
  });
}

/** f of the numbers that lie in one place of each tensor, spread to one shape. */
function spread(tensors, f, type) {
  const dims = common(tensors);
  const out = empty(type, dims);
  const steps = tensors.map((tensor) => strides(tensor, dims));
  const place = new Array(dims.length).fill(0);
  const at = tensors.map(() => 0);
  const given = tensors.map(() => 0);
  for (let n = 0; n < out.data.length; n++) {
    for (let i = 0; i < tensors.length; i++) given[i] = tensors[i].data[at[i]];
    out.data[n] = f(...given);
    for (let axis = dims.length - 1; axis >= 0; axis--) {
      place[axis] += 1;
      for (let i = 0; i < tensors.length; i++) at[i] += steps[i][axis];
      if (place[axis] < dims[axis]) break;
      place[axis] = 0;
      for (let i = 0; i < tensors.length; i++) at[i] -= steps[i][axis] * dims[axis];
    }
  }
  return out;
}

const map = (f) => ([x]) => {
  const out = empty(x.type, x.dims);
  for (let i = 0; i < x.data.length; i++) out.data[i] = f(x.data[i]);
  return out;
};
const join = (f) => (tensors) => tensors.reduce((a, b) => spread([a, b], f, a.type));
const compare = (f) => (tensors) => spread(tensors, f, "bool");
const axisOf = (axis, dims) => (axis < 0 ? axis + dims.length : axis);

/** Around an axis: [numbers before, its size, numbers behind]. */
function around(dims, axis) {
  return [sizeOf(dims.slice(0, axis)), dims[axis], sizeOf(dims.slice(axis + 1))];
}

/** f of each line along an axis, which puts its numbers into `put(i, value)`. */
function along(x, axis, size, type, f) {
  const [before, count, behind] = around(x.dims, axis);
  const out = empty(type, x.dims.map((n, i) => (i === axis ? size : n)));
  const line = new Float64Array(count);
  for (let b = 0; b < before; b++) {
    for (let k = 0; k < behind; k++) {
      for (let i = 0; i < count; i++) line[i] = x.data[(b * count + i) * behind + k];
      f(line, (i, value) => {
        out.data[(b * size + i) * behind + k] = value;
      });
    }
  }
  return out;
}

/** A reduction over axes, one after the other. */
const reduce = (f) => ([x, given], attributes) => {
  const all = x.dims.map((_, i) => i);
  const axes = (given ? Array.from(given.data) : attributes.axes ?? all).map((axis) => axisOf(axis, x.dims));
  if (axes.length !== 1) throw new PolicyError("policy.js reduces one axis at a time: give a runtime");
  const out = along(x, axes[0], 1, x.type, (line, put) => put(0, f(line)));
  if (attributes.keepdims === 0) out.dims = out.dims.filter((_, i) => i !== axes[0]);
  return out;
};

function logSumExp(line) {
  let most = -Infinity;
  for (const x of line) most = Math.max(most, x);
  if (!Number.isFinite(most)) return most;
  let sum = 0;
  for (const x of line) sum += Math.exp(x - most);
  return most + Math.log(sum);
}

function half(x) {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest < 0.5) return floor;
  if (rest > 0.5) return floor + 1;
  return floor % 2 ? floor + 1 : floor; // to the even one
}

function reshaped(x, dims) {
  return { type: x.type, dims, data: x.data };
}

function product(a, b, transA, transB) {
  const [rows, depth] = transA ? [a.dims[1], a.dims[0]] : a.dims;
  const columns = transB ? b.dims[0] : b.dims[1];
  const sums = new Float64Array(rows * columns);
  const [stepA, lineA] = transA ? [a.dims[1], 1] : [1, a.dims[1]];
  const [stepB, lineB] = transB ? [1, b.dims[1]] : [b.dims[1], 1];
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      let sum = 0; // in double precision: nearer to the exact sum than any order of float32
      for (let k = 0, i = r * lineA, j = c * lineB; k < depth; k++, i += stepA, j += stepB) sum += a.data[i] * b.data[j];
      sums[r * columns + c] = sum;
    }
  }
  return { type: a.type, dims: [rows, columns], data: sums };
}

const wholes = (tensor, otherwise) => (tensor ? Array.from(tensor.data) : otherwise);

/** The operations: of the tensors that go in, a node's attributes, and the node. */
const RUN = {
  Abs: map(Math.abs),
  Exp: map(Math.exp),
  Floor: map(Math.floor),
  Log: map(Math.log),
  Neg: map((x) => -x),
  Relu: map((x) => (x > 0 ? x : 0)),
  Round: map(half),
  Sigmoid: map((x) => 1 / (1 + Math.exp(-x))),
  Softplus: map((x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))),
  Sqrt: map(Math.sqrt),
  Tanh: map(Math.tanh),
  Identity: ([x]) => x,
  Elu: (given, { alpha = 1 }) => map((x) => (x > 0 ? x : alpha * Math.expm1(x)))(given),
  LeakyRelu: (given, { alpha = 0.01 }) => map((x) => (x > 0 ? x : alpha * x))(given),
  Add: join((a, b) => a + b),
  Sub: join((a, b) => a - b),
  Mul: join((a, b) => a * b),
  Div: ([a, b]) => spread([a, b], a.type === "int64" ? (x, y) => Math.trunc(x / y) : (x, y) => x / y, a.type),
  Max: join(Math.max),
  Min: join(Math.min),
  Greater: compare((a, b) => a > b),
  Less: compare((a, b) => a < b),
  Equal: compare((a, b) => a === b),
  Not: map((x) => !x),
  Where: ([when, a, b]) => spread([when, a, b], (w, x, y) => (w ? x : y), a.type),
  Clip: ([x, low, high]) => {
    const least = low ? low.data[0] : -Infinity;
    const most = high ? high.data[0] : Infinity;
    return map((value) => Math.min(Math.max(value, least), most))([x]);
  },
  Cast: ([x], { to }) => {
    const type = TYPES[to];
    if (!type) throw new PolicyError(`policy.js casts to no type ${to} of TensorProto.DataType: give a runtime`);
    if (type === "bool") return tensorOf(type, x.dims, Array.from(x.data, Boolean));
    if (type === "int64") return tensorOf(type, x.dims, Array.from(x.data, Math.trunc));
    return { type, dims: x.dims, data: ARRAYS[type].from(x.data) };
  },
  Gemm: ([a, b, c], { alpha = 1, beta = 1, transA = 0, transB = 0 }) => {
    const sums = product(a, b, transA, transB);
    const columns = sums.dims[1];
    const out = empty(a.type, sums.dims);
    const steps = c ? strides(c, sums.dims) : null;
    for (let i = 0; i < out.data.length; i++) {
      const column = i % columns;
      const bias = c ? c.data[((i - column) / columns) * steps[0] + column * steps[1]] : 0;
      out.data[i] = alpha * sums.data[i] + beta * bias;
    }
    return out;
  },
  MatMul: ([a, b]) => {
    if (b.dims.length !== 2) throw new PolicyError("policy.js multiplies by matrices of two axes: give a runtime");
    const dims = [...a.dims.slice(0, -1), b.dims[1]];
    const flat = reshaped(a, [sizeOf(a.dims.slice(0, -1)), a.dims[a.dims.length - 1]]);
    return { type: a.type, dims, data: ARRAYS[a.type].from(product(flat, b, 0, 0).data) };
  },
  Softmax: ([x], { axis = -1 }) =>
    along(x, axisOf(axis, x.dims), x.dims[axisOf(axis, x.dims)], x.type, (line, put) => {
      const whole = logSumExp(line);
      line.forEach((value, i) => put(i, Math.exp(value - whole)));
    }),
  ReduceLogSumExp: reduce(logSumExp),
  ReduceMean: reduce((line) => line.reduce((sum, x) => sum + x, 0) / line.length),
  ReduceSum: reduce((line) => line.reduce((sum, x) => sum + x, 0)),
  ReduceMax: reduce((line) => line.reduce((a, b) => Math.max(a, b))),
  ArgMax: ([x], { axis = 0, keepdims = 1, select_last_index: last = 0 }) => {
    const where = axisOf(axis, x.dims);
    const out = along(x, where, 1, "int64", (line, put) => {
      let best = 0;
      line.forEach((value, i) => {
        if (value > line[best] || (last && value === line[best])) best = i;
      });
      put(0, best);
    });
    if (!keepdims) out.dims = out.dims.filter((_, i) => i !== where);
    return out;
  },
  Shape: ([x]) => tensorOf("int64", [x.dims.length], x.dims),
  ConstantOfShape: ([shape], { value }) => {
    const out = empty(value ? value.type : "float32", Array.from(shape.data));
    if (value) out.data.fill(value.data[0]);
    return out;
  },
  Reshape: ([x, shape], { allowzero = 0 }) => {
    const dims = Array.from(shape.data, (n, i) => (n === 0 && !allowzero ? x.dims[i] : n));
    const open = dims.indexOf(-1);
    if (open >= 0) dims[open] = x.data.length / -sizeOf(dims);
    return reshaped(x, dims);
  },
  Flatten: ([x], { axis = 1 }) => {
    const where = axisOf(axis, x.dims);
    return reshaped(x, [sizeOf(x.dims.slice(0, where)), sizeOf(x.dims.slice(where))]);
  },
  Unsqueeze: ([x, given], attributes) => {
    const axes = wholes(given, attributes.axes);
    const rank = x.dims.length + axes.length;
    const dims = [...x.dims];
    for (const axis of axes.map((n) => (n < 0 ? n + rank : n)).sort((a, b) => a - b)) dims.splice(axis, 0, 1);
    return reshaped(x, dims);
  },
  Squeeze: ([x, given], attributes) => {
    const axes = wholes(given, attributes.axes);
    const gone = axes ? axes.map((axis) => axisOf(axis, x.dims)) : x.dims.flatMap((n, i) => (n === 1 ? [i] : []));
    return reshaped(x, x.dims.filter((_, i) => !gone.includes(i)));
  },
  Transpose: ([x], { perm = x.dims.map((_, i) => i).reverse() }) => {
    const steps = strides({ dims: x.dims }, x.dims);
    const dims = perm.map((axis) => x.dims[axis]);
    const out = empty(x.type, dims);
    const place = new Array(dims.length).fill(0);
    for (let n = 0; n < out.data.length; n++) {
      out.data[n] = x.data[place.reduce((at, value, i) => at + value * steps[perm[i]], 0)];
      for (let axis = dims.length - 1; axis >= 0 && ++place[axis] === dims[axis]; axis--) place[axis] = 0;
    }
    return out;
  },
  Concat: (tensors, { axis }) => {
    const where = axisOf(axis, tensors[0].dims);
    const dims = [...tensors[0].dims];
    dims[where] = tensors.reduce((sum, tensor) => sum + tensor.dims[where], 0);
    const out = empty(tensors[0].type, dims);
    const [before, whole, behind] = around(dims, where);
    let from = 0;
    for (const { dims: own, data } of tensors) {
      const size = own[where] * behind;
      for (let b = 0; b < before; b++) out.data.set(data.subarray(b * size, (b + 1) * size), b * whole * behind + from);
      from += size;
    }
    return out;
  },
  Split: ([x, given], attributes, node) => {
    const where = axisOf(attributes.axis ?? 0, x.dims);
    const [before, whole, behind] = around(x.dims, where);
    const parts = node.outputs.length;
    const each = Math.ceil(whole / parts);
    const equal = Array.from({ length: parts }, (_, i) => Math.min(each, whole - i * each));
    const sizes = wholes(given, attributes.split ?? equal);
    let from = 0;
    return sizes.map((size) => {
      const out = empty(x.type, x.dims.map((n, i) => (i === where ? size : n)));
      for (let b = 0; b < before; b++) {
        const begin = (b * whole + from) * behind;
        out.data.set(x.data.subarray(begin, begin + size * behind), b * size * behind);
      }
      from += size;
      return out;
    });
  },
  Gather: ([x, indices], { axis = 0 }) => {
    const where = axisOf(axis, x.dims);
    const [before, whole, behind] = around(x.dims, where);
    const count = indices.data.length;
    const out = empty(x.type, [...x.dims.slice(0, where), ...indices.dims, ...x.dims.slice(where + 1)]);
    for (let b = 0; b < before; b++) {
      for (let i = 0; i < count; i++) {
        const index = indices.data[i] < 0 ? indices.data[i] + whole : indices.data[i];
        const begin = (b * whole + index) * behind;
        out.data.set(x.data.subarray(begin, begin + behind), (b * count + i) * behind);
      }
    }
    return out;
  },
  Slice: ([x, starts, ends, given, steps]) => {
    let out = x;
    wholes(given, Array.from(starts.data.keys())).forEach((each, i) => {
      if (steps && steps.data[i] !== 1) throw new PolicyError("policy.js slices in steps of 1: give a runtime");
      const where = axisOf(each, out.dims);
      const size = out.dims[where];
      const within = (n) => Math.min(Math.max(n < 0 ? n + size : n, 0), size);
      const range = [];
      for (let at = within(starts.data[i]); at < within(ends.data[i]); at++) range.push(at);
      out = RUN.Gather([out, tensorOf("int64", [range.length], range)], { axis: where });
    });
    return out;
  },
  OneHot: ([indices, depth, values], { axis = -1 }) => {
    if (axis !== -1) throw new PolicyError("policy.js puts OneHot's choices last: give a runtime");
    const size = depth.data[0];
    const out = empty(values.type, [...indices.dims, size]);
    out.data.fill(values.data[0]);
    indices.data.forEach((index, i) => {
      const choice = index < 0 ? index + size : index;
      if (choice >= 0 && choice < size) out.data[i * size + choice] = values.data[1];
    });
    return out;
  },
};

/** The operations of ONNX that are played without a runtime. */
export const OPERATIONS = ["Constant", ...Object.keys(RUN)].sort();
