"""Warnings while SB3 learns: what the game does (symptoms.py), and losses that are no numbers any more."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.envs.journal_transport import journal_of
from ue_rl.protocol.spec import EnvSpec
from ue_rl.training.symptoms import Symptoms

_log = logging.getLogger("ue_rl.training.watching")  # `ue-rl train` knows it by this name
_LOSSES_EVERY = 64  # rollouts of an algorithm whose rollouts are single steps


class Watching(BaseCallback):
    """Each warning is one line of the log and one call of `tell`, and comes once. Envs of other libraries are not
    looked at, but for their losses.

    Args:
        tell: shows a sentence.
        symptoms: makes what looks at the steps, of the engine's EnvSpec and the name of its transport.
    """

    def __init__(
        self, tell: Callable[[str], object] | None = None, symptoms: Callable[[EnvSpec, str], Symptoms] = Symptoms
    ) -> None:
        super().__init__()
        self._tell = tell
        self._new_symptoms = symptoms
        self._symptoms: Symptoms | None = None
        self._transport: Any = None
        self._rollouts = 0
        self._finite = True

    def _on_training_start(self) -> None:
        engine: Any = self.training_env.unwrapped
        self._engine = engine
        transport: Any = getattr(engine, "transport", None)
        if hasattr(transport, "buffers"):
            self._transport = transport
            self._symptoms = self._new_symptoms(engine.engine_spec, transport.describe().get("transport", ""))
        self._at = time.perf_counter()

    def _on_rollout_start(self) -> None:
        self._rollouts += 1
        if self._finite and (self._rollouts % _LOSSES_EVERY == 0 or self.locals.get("n_rollout_steps", 0) > 1):
            self._look_at_losses()
        self._at = time.perf_counter()  # what an update takes is no part of a step

    def _on_step(self) -> bool:
        if from_record(self._engine):  # what came from the engine last is not of this step
            self._at = time.perf_counter()
        elif self._symptoms is not None:
            now = time.perf_counter()
            buffers = self._transport.buffers
            dones = self.locals["dones"]
            inactive = getattr(self._engine, "inactive", None)
            if inactive is not None:
                dones = dones & ~inactive
            said = self._symptoms.step(buffers.obs, buffers.image, self.locals["rewards"], dones, now - self._at)
            for text in said:
                self._say(text)
            self._at = now
        return True

    def _on_training_end(self) -> None:
        if self._finite:
            self._look_at_losses()

    def _look_at_losses(self) -> None:
        text = diverged(self.logger.name_to_value, self.num_timesteps)
        if text is not None:
            self._finite = False
            self._say(text)

    def _say(self, text: str) -> None:
        _log.warning("%s", text)
        if self._tell is not None:
            self._tell(text)


def from_record(engine: Any) -> bool:
    """Was the last step of this env one of a resumed run's rollout, for which no engine was asked?"""
    journal = journal_of(engine)
    return journal is not None and journal.from_record


def diverged(values: Mapping[str, Any], env_steps: int) -> str | None:
    """A sentence where one of the losses among a logger's values is no number any more; None otherwise."""
    for key, value in values.items():
        if key.startswith("train/") and isinstance(value, (int, float)) and not math.isfinite(value):
            return (
                f"{key} is {value} after {env_steps:,} env-steps: the policy is lost from here on. Go back to a "
                "checkpoint, with a lower learning rate or --normalize; look for huge rewards"
            )
    return None
