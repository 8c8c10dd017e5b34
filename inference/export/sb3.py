"""Sb3Inference: a Stable-Baselines3 model behind the InferenceInterface (needs torch).

For everything that plays a policy and should take a model.zip as well as an .onnx file. It answers with
predict(deterministic=True), normalised if statistics are given: it is what an exported file is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ModelLoadError, ModelMismatch
from ue_rl.inference.interface import InferenceInterface, ModelPath, Observations
from ue_rl.inference.metadata import space_size, space_to_json


class Sb3Inference(InferenceInterface):
    """A model of Stable-Baselines3 or sb3-contrib.

    Args:
        model: the model, or the path of its zip file; None to call load_model later.
        vec_normalize: a VecNormalize, the path of a saved one, or None.
        deterministic: as in predict().
        algorithm: the algorithm of a zip file, such as "PPO"; None: found out from the file.
    """

    def __init__(
        self,
        model: Any = None,
        vec_normalize: Any = None,
        *,
        deterministic: bool = True,
        algorithm: str | None = None,
    ) -> None:
        from ue_rl.inference.export.models import load_vec_normalize

        self._stats = load_vec_normalize(vec_normalize)
        self._deterministic = deterministic
        self._algorithm = algorithm
        self._model: Any = None
        self._state: Any = None
        self._starts: NDArray[np.bool_] | None = None
        self._agents: dict[int, Any] = {}
        if isinstance(model, (str, Path)):
            self.load_model(model)
        else:
            self._model = model

    def load_model(self, path: ModelPath) -> None:
        """Load a model.zip; raises ModelLoadError."""
        from ue_rl.errors import ExportError
        from ue_rl.inference.export.models import load_sb3_model

        try:
            self._model = load_sb3_model(Path(path), self._algorithm)
        except ExportError as error:
            raise ModelLoadError(error.message, fault=error.fault, got=error.got, cure=error.cure) from error
        self.reset()

    def is_model_loaded(self) -> bool:
        """Whether a model is in use."""
        return self._model is not None

    @property
    def obs_size(self) -> int | None:
        """Numbers per observation, over all keys."""
        return space_size(space_to_json(self._model.observation_space)) if self._model else None

    @property
    def act_size(self) -> int | None:
        """Numbers per action."""
        return space_size(space_to_json(self._model.action_space)) if self._model else None

    def run_inference(self, observations: Observations) -> NDArray[np.float32]:
        """Actions for a batch of observations in the shape of the model's space; see InferenceInterface."""
        if self._model is None:
            raise ModelLoadError("no model is loaded", fault="caller", cure="call load_model first")
        obs: Any = dict(observations) if isinstance(observations, Mapping) else observations
        n = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        if self._stats is not None:
            obs = self._stats.normalize_obs(obs)
        if self._starts is None:
            self._starts = np.ones(n, dtype=bool)
        try:
            actions, self._state = self._model.predict(
                obs, state=self._state, episode_start=self._starts, deterministic=self._deterministic
            )
        except (ValueError, RuntimeError) as error:
            raise ModelMismatch("the model cannot take these observations", fault="caller", got=str(error)) from error
        self._starts = np.zeros(n, dtype=bool)
        return np.asarray(actions, np.float32).reshape(n, -1)

    def run_inference_for(self, agents: Sequence[int], observations: Observations) -> NDArray[np.float32]:
        """As run_inference, with a state per agent number; see InferenceInterface.run_inference_for."""
        known = [self._agents.get(agent) for agent in agents]
        if any(state is not None for state in known):
            # sb3-contrib's state is (h, c), each [layers, n, hidden]; what a starting row holds is multiplied by 0.
            blank = next(state for state in known if state is not None)
            parts = [blank if state is None else state for state in known]
            self._state = tuple(np.concatenate(rows, axis=1) for rows in zip(*parts, strict=True))
        else:
            self._state = None
        self._starts = np.array([state is None for state in known])
        actions = self.run_inference(observations)
        if self._state is not None:
            for row, agent in enumerate(agents):
                self._agents[agent] = tuple(array[:, row : row + 1] for array in self._state)
        self._state = self._starts = None  # of run_inference, which counts rows and not agents
        return actions

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """A new episode begins in `rows` (None: everywhere)."""
        if rows is None:
            self._agents.clear()
        elif self._agents:
            for agent in rows:
                self._agents.pop(agent, None)
            return
        if rows is None or self._starts is None:
            self._state = self._starts = None
        else:
            self._starts[list(rows)] = True
