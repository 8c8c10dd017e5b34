"""Twenty models as Stable-Baselines3 alone saves them, and what predict(deterministic=True) makes of drawn rows."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

from tests.support.models import BOX, RandomEnv, scramble, vector
from ue_rl.inference import load_and_export
from ue_rl.inference.metadata import seal, unsealed

AGENTS = 100
_NETS = {"net_arch": [64, 64]}
_DICT = spaces.Dict({"near": vector(3), "level": spaces.Discrete(4), "pair": spaces.MultiDiscrete([2, 3])})
_BOXES = spaces.Dict({"near": vector(3), "far": spaces.Box(-2, 2, (2,), np.float32)})
_LSTM = {"net_arch": [16], "lstm_hidden_size": 32}


@dataclass(frozen=True)
class Kind:
    """How one of them is made: its algorithm, spaces, wrappers, and what the constructor takes besides."""

    algorithm: type
    action: spaces.Space[Any] = field(default_factory=lambda: BOX)
    observation: spaces.Space[Any] = field(default_factory=lambda: vector(5))
    normalize: bool = False
    stack: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> str:
        if self.algorithm is RecurrentPPO:
            return "MlpLstmPolicy"
        return "MultiInputPolicy" if isinstance(self.observation, spaces.Dict) else "MlpPolicy"


KINDS = {
    "PPO": Kind(PPO),
    "PPO, wide": Kind(PPO, options={"policy_kwargs": {"net_arch": [256, 256, 256], "activation_fn": th.nn.ReLU}}),
    "PPO, Discrete": Kind(PPO, spaces.Discrete(6)),
    "PPO, MultiDiscrete": Kind(PPO, spaces.MultiDiscrete([3, 4])),
    "PPO, VecNormalize": Kind(PPO, normalize=True),
    "PPO, Dict": Kind(PPO, observation=_DICT),
    "PPO, Dict, VecNormalize, Discrete": Kind(PPO, spaces.Discrete(4), _BOXES, normalize=True),
    "PPO, stacked": Kind(PPO, stack=4),
    "SAC": Kind(SAC),
    "SAC, VecNormalize": Kind(SAC, normalize=True),
    "SAC, Dict": Kind(SAC, observation=_BOXES),
    "SAC, VecNormalize, stacked": Kind(SAC, normalize=True, stack=3),
    "DQN": Kind(DQN, spaces.Discrete(6)),
    "DQN, VecNormalize": Kind(DQN, spaces.Discrete(3), normalize=True),
    "DQN, stacked": Kind(DQN, spaces.Discrete(4), stack=2),
    "MaskablePPO": Kind(MaskablePPO, spaces.Discrete(5)),
    "MaskablePPO, MultiDiscrete, VecNormalize": Kind(MaskablePPO, spaces.MultiDiscrete([3, 4]), normalize=True),
    "MaskablePPO, Dict": Kind(MaskablePPO, spaces.Discrete(5), _DICT),
    "RecurrentPPO": Kind(RecurrentPPO),
    "RecurrentPPO, VecNormalize, Discrete": Kind(RecurrentPPO, spaces.Discrete(4), normalize=True),
}


class MaskedEnv(RandomEnv):
    """With masks for MaskablePPO."""

    def action_masks(self) -> NDArray[np.bool_]:
        count = self.action_space.n if isinstance(self.action_space, spaces.Discrete) else sum(self.action_space.nvec)
        return np.ones(int(count), bool)


@dataclass
class Case:
    """One exported file, what goes in, and what the policy makes of it.

    Attributes:
        asked: for play.mjs. actions, raw: float32 [rows, n], raw from its last layer. counts: of its choices, () where
            actions are numbers. masks: [rows, choices] or None. unit: of each action number, in the env's: where tanh
            gives numbers from -1 to 1, what 1 of them is after that.
    """

    asked: dict[str, Any]
    actions: NDArray[Any]
    raw: NDArray[Any]
    counts: tuple[int, ...]
    masks: NDArray[Any] | None
    unit: NDArray[Any]


def case(name: str, folder: Path, rows: int) -> Case:
    """Makes, saves, exports and plays a model of KINDS; the same one each time."""
    kind = KINDS[name]
    seed = zlib.crc32(name.encode())
    saved = _saved(kind, folder / f"{seed}", seed)
    file = folder / f"{seed}.onnx"
    load_and_export(saved, file, n_verify=1000)
    file.write_bytes(_with_raw(file.read_bytes()))
    model = kind.algorithm.load(saved, device="cpu")
    statistics = None
    if kind.normalize:
        statistics = VecNormalize.load(f"{folder / f'{seed}'}_vecnormalize.pkl", _vec_env(kind, stacked=True))
        statistics.training = False
    return _played(kind, model, statistics, file, rows, seed)


def _vec_env(kind: Kind, stacked: bool) -> Any:
    env: Any = DummyVecEnv([lambda: MaskedEnv(kind.observation, kind.action)])
    return VecFrameStack(env, kind.stack) if stacked and kind.stack > 1 else env


def _saved(kind: Kind, path: Path, seed: int) -> Path:
    env = _vec_env(kind, stacked=True)
    env.seed(seed)
    if kind.normalize:
        env = VecNormalize(env, norm_reward=False)
    options = {"policy_kwargs": _LSTM if kind.algorithm is RecurrentPPO else _NETS, **kind.options}
    options["policy_kwargs"] = dict(options["policy_kwargs"])
    # learnt as little as may be: what it learns of noise is scrambled, and its statistics are the env's
    if kind.algorithm in (SAC, DQN):
        options |= {"buffer_size": 512, "learning_starts": 1000}
    else:
        options |= {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
    model = kind.algorithm(kind.policy, env, device="cpu", seed=seed % 2**31, **options)
    model.learn(32)
    scramble(model.policy, seed, gain=1.0)
    model.save(path)
    if kind.normalize:
        env.save(f"{path}_vecnormalize.pkl")
    return path.with_suffix(".zip")


def _with_raw(content: bytes) -> bytes:
    """The file with what its last layer gives as a further output, `raw`."""
    model = onnx.load_from_string(content)
    last = next(node for node in reversed(model.graph.node) if node.op_type == "Gemm")
    model.graph.node.add(op_type="Identity", input=[last.output[0]], output=["raw"])
    model.graph.output.append(onnx.helper.make_tensor_value_info("raw", onnx.TensorProto.FLOAT, ["batch", "raw_size"]))
    blank = unsealed(model.SerializeToString())
    assert blank is not None
    return seal(blank)[0]


def _last_layer(model: Any) -> th.nn.Module:
    if isinstance(model, SAC):
        return model.actor.mu
    if isinstance(model, DQN):
        return model.q_net.q_net[-1]
    return model.policy.action_net


def _drawn(space: spaces.Space[Any], rng: np.random.Generator) -> NDArray[Any]:
    """AGENTS observations, normal ones: farther out float32 rounds predict() itself by more than is compared."""
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=AGENTS)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=(AGENTS, len(space.nvec)))
    return rng.standard_normal((AGENTS, *space.shape)).astype(np.float32)


def _flat(observed: Any, space: spaces.Space[Any]) -> NDArray[np.float32]:
    parts = [observed[key] for key in space.spaces] if isinstance(space, spaces.Dict) else [observed]
    return np.concatenate([np.asarray(part, np.float32).reshape(AGENTS, -1) for part in parts], axis=1)


def _played(kind: Kind, model: Any, statistics: Any, file: Path, rows: int, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    layer_gave: list[NDArray[Any]] = []
    _last_layer(model).register_forward_hook(
        lambda _module, _given, out: layer_gave.append(out.detach().numpy().copy())
    )
    stacker: Any = None
    if kind.stack > 1:
        stacker = StackedObservations(AGENTS, kind.stack, kind.observation)
    counts = ()
    if isinstance(kind.action, spaces.Discrete):
        counts = (int(kind.action.n),)
    elif isinstance(kind.action, spaces.MultiDiscrete):
        counts = tuple(int(n) for n in kind.action.nvec)
    steps: list[dict[str, Any]] = []
    actions: list[NDArray[Any]] = []
    all_masks: list[NDArray[Any]] = []
    state = None
    for step in range(rows // AGENTS):
        starts = rng.random(AGENTS) < 0.1
        starts |= step == 0
        observed = _observation(kind.observation, rng)
        asked: dict[str, Any] = {
            "obs": _text(_flat(observed, kind.observation)),
            "starts": np.flatnonzero(starts).tolist(),
        }
        seen: Any = observed
        if stacker is not None:
            if step == 0:
                seen = stacker.reset(observed)
            else:
                seen, _ = stacker.update(
                    observed, starts, [{"terminal_observation": observed[i]} for i in range(AGENTS)]
                )
            seen = seen.copy()
        if statistics is not None:
            seen = statistics.normalize_obs(seen)
        more: dict[str, Any] = {}
        if kind.algorithm is MaskablePPO:
            masks = rng.random((AGENTS, sum(counts))) < 0.6
            masks[:, np.cumsum([0, *counts[:-1]])] = True  # one of each choice is legal
            all_masks.append(masks)
            asked["masks"] = _text(masks)
            more["action_masks"] = masks
        if kind.algorithm is RecurrentPPO:
            more |= {"state": state, "episode_start": starts}
        action, state = model.predict(seen, deterministic=True, **more)
        actions.append(np.asarray(action).reshape(AGENTS, -1))
        steps.append(asked)
    content = base64.b64encode(file.read_bytes()).decode()
    unit = np.ones(1)
    if kind.algorithm is SAC:
        unit = (kind.action.high.astype(np.float64) - kind.action.low) / 2
    return Case(
        {"file": content, "stack": kind.stack, "steps": steps},
        np.concatenate(actions),
        np.concatenate(layer_gave),
        counts,
        np.concatenate(all_masks) if all_masks else None,
        unit,
    )


def _observation(space: spaces.Space[Any], rng: np.random.Generator) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _drawn(part, rng) for key, part in space.spaces.items()}
    return _drawn(space, rng)


def _text(numbers: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, np.float32).tobytes()).decode()
