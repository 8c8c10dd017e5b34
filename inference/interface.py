"""InferenceInterface: a trained policy that acts in place of the trainer.

The names follow the Unreal plugin's `UInferenceInterface` (LoadModel, RunInference, IsModelLoaded).
An implementation turns a batch of observations into a batch of actions; it knows no socket, no engine
and no clock. Only NumPy is needed here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ModelLoadError, ModelMismatch
from ue_rl.inference.agreement import with_engine
from ue_rl.spaces.tree import Space
from ue_rl.spec import EnvSpec

ModelPath: TypeAlias = "str | PathLike[str]"
Observations: TypeAlias = "NDArray[Any] | Mapping[str, NDArray[Any]]"


class InferenceInterface(ABC):
    """A policy that can be loaded and run.

    Not thread-safe unless an implementation says so; a recurrent policy keeps one state per row between calls.
    """

    @abstractmethod
    def load_model(self, path: ModelPath) -> None:
        """Load the policy at `path`. When that fails, the policy loaded before stays in use.

        Raises:
            ModelLoadError: the file is missing or is not a readable policy.
            ModelMismatch: its names or sizes do not fit.
            ModelOutputError: it gives NaN, or a wrong shape or dtype.
        """

    @abstractmethod
    def is_model_loaded(self) -> bool:
        """Whether run_inference can be called."""

    @abstractmethod
    def run_inference(self, observations: Observations) -> NDArray[np.float32]:
        """Actions for a batch of observations.

        Args:
            observations: float32 [N, obs_size], one row per agent.

        Returns:
            float32 [N, act_size]: continuous actions in the units of the env, discrete ones as whole numbers
            from 0. The caller owns the array.
        """

    def run_inference_for(
        self, agents: Sequence[Hashable], observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """As run_inference, for agents by number: a recurrent policy keeps one state per agent, whoever else is asked.

        Args:
            agents: whose observation each row is; reset() takes the same numbers. Don't mix with run_inference.
            observations: one row per agent.
            action_masks: [N, choices], 1 = legal; ignored by a policy that takes none (`takes_masks`).
        """
        return self.run_inference(observations)

    @property
    def takes_masks(self) -> bool:
        """Whether run_inference_for heeds action masks."""
        return False

    def reset(self, rows: Sequence[Any] | None = None) -> None:  # noqa: B027 (nothing to do is a full answer)
        """A new episode begins in `rows`, or for these agents (None: for all of them).

        A recurrent policy forgets its state there; others have nothing to forget.
        """

    @property
    def obs_size(self) -> int | None:
        """Numbers per observation; None where the model does not say."""
        return None

    @property
    def act_size(self) -> int | None:
        """Numbers per action; None where the model does not say."""
        return None

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """What observations and actions are, in the form of `tree_from_json`; None where the model does not say."""
        return None, None

    def require_spaces(self, spec: EnvSpec, *, as_trainer: bool = False) -> None:
        """Refuse a model that is made for other observations or actions than an engine has.

        Args:
            spec: the engine's handshake. as_trainer: the model is fed from an env class such as UnrealVecEnv, whose
                observations have names, and not from the engine's rows.

        Raises:
            ModelLoadError: no model is loaded.
            ModelMismatch: other sizes; or names, kinds, shapes, counts or lowest choices, as far as both sides say.
        """
        self.require(spec.seen_size, spec.act_size)
        found = with_engine(spec, *self.spaces, as_trainer=as_trainer)
        if found is not None:
            raise ModelMismatch(
                "the model is made for another engine: its numbers mean something else",
                **found._asdict(),
                cure="load the model that was trained for this env",
            )

    def require(self, obs_size: int, act_size: int) -> None:
        """Refuse a model whose sizes are not these.

        Raises:
            ModelLoadError: no model is loaded.
            ModelMismatch: naming the model's sizes and the required ones.
        """
        if not self.is_model_loaded():
            raise ModelLoadError("no model is loaded", cure="call load_model first")
        mine = (self.obs_size, self.act_size)
        if any(own not in (None, need) for own, need in zip(mine, (obs_size, act_size), strict=True)):
            raise ModelMismatch(
                "the model and the env have different sizes",
                expected=f"{obs_size} observation numbers and {act_size} action numbers, as the env has",
                got=f"{mine[0]} observation numbers and {mine[1]} action numbers, as the model has",
                cure="load the model that was trained for this env, or set the env's sizes to the model's",
            )
