"""Exported files of each kind of policy, with what goes in and what the policy makes of it: for other runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import QRDQN, TQC, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, SAC, TD3

from tests.support.models import make
from ue_rl.inference import OnnxInference, export_onnx
from ue_rl.inference.export.observations import find_leaves
from ue_rl.inference.export.sb3 import predict
from ue_rl.inference.metadata import ACTION_MASKS, EPISODE_START, OBSERVATION, STATE

ROWS = 64
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)
PARTS = spaces.Dict({"speed": spaces.Box(-np.inf, np.inf, (4,)), "level": spaces.Discrete(3)})
MODELS = {
    "PPO, Box": make,
    "PPO, Box, VecNormalize": lambda: make(normalize={}),
    "PPO, Discrete": lambda: make(action=spaces.Discrete(5)),
    "PPO, MultiDiscrete": lambda: make(action=spaces.MultiDiscrete([3, 4])),
    "PPO, MultiBinary": lambda: make(action=spaces.MultiBinary(3)),
    "PPO, images": lambda: make(observation=IMAGE, policy="CnnPolicy"),
    "PPO, Dict": lambda: make(observation=PARTS, policy="MultiInputPolicy"),
    "A2C, gSDE": lambda: make(A2C, use_sde=True),
    "SAC": lambda: make(SAC),
    "TQC": lambda: make(TQC),
    "TD3": lambda: make(TD3),
    "DDPG": lambda: make(DDPG),
    "DQN": lambda: make(DQN, spaces.Discrete(5)),
    "QRDQN": lambda: make(QRDQN, spaces.Discrete(5)),
    "MaskablePPO": lambda: make(MaskablePPO, spaces.MultiDiscrete([3, 4])),
    "RecurrentPPO": lambda: make(
        RecurrentPPO, policy="MlpLstmPolicy", policy_kwargs={"net_arch": [16], "lstm_hidden_size": 16}
    ),
}


@dataclass
class Case:
    """One file.

    Attributes:
        feeds: by the input's name, float32 [ROWS, ..]. actions: what predict() makes of them, float64 [ROWS, n], and
            what onnxruntime in Python makes of the file, float32. discrete: whether all actions are choices.
        span: the range of each action.
    """

    name: str
    file: Path
    feeds: dict[str, NDArray[np.float32]]
    actions: NDArray[np.float64]
    of_python: NDArray[np.float32]
    discrete: bool
    span: float

    def off(self, actions: NDArray[np.float32]) -> float:
        """How far these are from predict()'s at most: a share of the range, or of choices the share of other ones."""
        if self.discrete:
            return float((actions != self.actions).any(axis=1).mean())
        return float(np.abs(actions - self.actions).max() / self.span)


def cases(folder: Path, names: tuple[str, ...] = tuple(MODELS)) -> Iterator[Case]:
    """Export the files into `folder`; a case is the same, whichever others there are."""
    for name in names:
        number = list(MODELS).index(name)
        model = MODELS[name]()
        file = folder / f"{number}.onnx"
        report = export_onnx(model, file)
        rng = np.random.default_rng(number)
        leaves = find_leaves(model.observation_space, model.get_env(), "auto")
        feeds, seen, state, masks = {}, {}, [], None
        for port in report.metadata.inputs:
            shape = (ROWS, *port.shape)
            array = rng.standard_normal(shape).astype(np.float32)
            if port.role == OBSERVATION:
                leaf = next(leaf for leaf in leaves if leaf.name == port.key)
                if isinstance(leaf.space, spaces.Discrete):
                    array = rng.integers(leaf.space.n, size=shape).astype(np.float32)
                elif leaf.space.dtype == np.uint8:
                    array = rng.integers(256, size=shape).astype(np.float32)
                seen[leaf.key] = leaf.to_python(array)
            elif port.role == STATE:
                state.append(array)
            elif port.role == EPISODE_START:
                array = (rng.random(shape) < 0.3).astype(np.float32)
            elif port.role == ACTION_MASKS:
                array = (rng.random(shape) < 0.5).astype(np.float32)
                array[:, [0, 3]] = 1.0  # one of each choice is legal
                masks = array
            feeds[port.name] = array
        starts = feeds.get("episode_start", np.ones((ROWS, 1), np.float32))[:, 0]
        stats = model.get_vec_normalize_env()
        wanted, _ = predict(model, stats, seen.get(None, seen), state, starts, masks)
        of_python = OnnxInference(file).run_raw(feeds, "actions")
        box = isinstance(model.action_space, spaces.Box)
        span = float((model.action_space.high - model.action_space.low).min()) if box else 1.0
        yield Case(name, file, feeds, np.asarray(wanted, np.float64), of_python, not box, span)
