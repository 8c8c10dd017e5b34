"""Players: whoever acts for agents that the learner does not control, as float32 rows for the wire."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.observations import Observations
from ue_rl.envs.spaces import action_space
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.seeds import own_seed


class OtherPolicy(Protocol):
    """Acts for the rows of one AgentRows."""

    def act(self, buffers: StepBuffers) -> NDArray[np.float32]:
        """The wire's actions, float32 [rows, act_size], for the observations in `buffers`; all rows, live or not."""
        ...

    def begin(self, rows: Sequence[int]) -> None:
        """New episodes begin in these rows."""


class PolicyPlayer:
    """A Stable-Baselines3 model or policy (`predict`), or a function from observations to actions of the space.

    Both are given observations, and give actions, in the spaces of a GroupVecEnv over the same agents.

    Args:
        policy: see `as_player`. spec: of the AgentRows. deterministic: passed on to `predict`.
    """

    def __init__(self, policy: Any, spec: EnvSpec, deterministic: bool) -> None:
        self._predict = getattr(policy, "predict", None)
        self._function = policy
        self._deterministic = deterministic
        self._masked = bool(spec.mask_size) and self._predict is not None and _takes(self._predict, "action_masks")
        self._observations = Observations(spec, copy=False, zero_based=True)
        self._writer = ActionWriter(spec, True)

    def act(self, buffers: StepBuffers) -> NDArray[np.float32]:
        """See OtherPolicy."""
        observation = self._observations.read(buffers)
        if self._predict is None:
            return self._writer(self._function(observation))
        masks = {}
        if self._masked:
            masks["action_masks"] = buffers.masks != 0
        return self._writer(self._predict(observation, deterministic=self._deterministic, **masks)[0])

    def begin(self, rows: Sequence[int]) -> None:
        """See OtherPolicy; there is nothing to forget."""


class InferencePlayer:
    """An InferenceInterface (ue_rl.inference): an exported ONNX policy, or one that runs elsewhere."""

    def __init__(self, interface: Any, spec: EnvSpec) -> None:
        self._interface = interface
        self._rows = list(range(spec.num_envs))
        self._observations = Observations(spec, copy=False)

    def act(self, buffers: StepBuffers) -> NDArray[np.float32]:
        """See OtherPolicy."""
        masks = {}  # a policy that needs some refuses to act without
        if getattr(self._interface, "takes_masks", False) and buffers.masks.shape[1]:
            masks = {"action_masks": buffers.masks}
        given = self._interface.run_inference_for(self._rows, self._observations.read(buffers), **masks)
        return np.asarray(given, np.float32)

    def begin(self, rows: Sequence[int]) -> None:
        """See OtherPolicy."""
        self._interface.reset(list(rows))


class RandomPlayer:
    """Samples the action space."""

    def __init__(self, spec: EnvSpec, seed: int | None = None) -> None:
        self._space = action_space(spec)
        self._count = spec.num_envs
        self._writer = ActionWriter(spec)
        self._space.seed(own_seed(seed, "actions"))

    def act(self, buffers: StepBuffers) -> NDArray[np.float32]:
        """See OtherPolicy."""
        return self._writer(np.stack([self._space.sample() for _ in range(self._count)]))

    def begin(self, rows: Sequence[int]) -> None:
        """See OtherPolicy."""


class NormalizedPolicy:
    """A model that was trained inside VecNormalize, with its statistics: sees raw observations, as players do.

    Args:
        model: has `predict`. statistics: the VecNormalize; only its `normalize_obs` is used.
    """

    def __init__(self, model: Any, statistics: Any) -> None:
        self._model = model
        self._statistics = statistics

    def predict(self, observation: Any, deterministic: bool = False, action_masks: Any = None) -> tuple[Any, Any]:
        """As the model's, for observations as the engine sends them; the masks go to a model that takes some."""
        masks = {}
        if action_masks is not None and _takes(self._model.predict, "action_masks"):
            masks = {"action_masks": action_masks}
        seen = self._statistics.normalize_obs(observation)
        return self._model.predict(seen, deterministic=deterministic, **masks)  # type: ignore[no-any-return]


def as_player(policy: Any, spec: EnvSpec, deterministic: bool = False) -> OtherPolicy:
    """Whoever is meant by `policy`.

    Args:
        policy: an OtherPolicy; an object with `predict(observations, deterministic=..)`, such as an SB3 model; an
            InferenceInterface; a function from a batch of observations to a batch of actions; or "random".
        spec: of its AgentRows.

    Raises:
        ConfigurationError: none of these.
    """
    if policy == "random":
        return RandomPlayer(spec)
    if hasattr(policy, "act") and hasattr(policy, "begin"):
        return policy  # type: ignore[no-any-return]
    if hasattr(policy, "run_inference_for"):
        return InferencePlayer(policy, spec)
    if hasattr(policy, "predict") or callable(policy):
        return PolicyPlayer(policy, spec, deterministic)
    raise ConfigurationError(
        "not a policy",
        field="others",
        got=type(policy).__name__,
        expected='a model with predict(), an InferenceInterface, a function of observations, or "random"',
    )


def _takes(function: Any, keyword: str) -> bool:
    return keyword in inspect.signature(function).parameters
