"""Checkpoints as learning goes on, whatever learns: when the next one is due, and how one is taken."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ue_rl.system.errors import UeRlError
from ue_rl.training.saving.checkpoints import Checkpoint, CheckpointStore

_log = logging.getLogger(__name__)


class Periodic:
    """Saves into `store` every `save_freq` env-steps or `save_interval` seconds; 0 of one: the other alone counts.

    Attributes:
        last: the Checkpoint that was saved last by this object; None before.
    """

    def __init__(self, store: CheckpointStore, save_freq: int, save_interval: float) -> None:
        self.last: Checkpoint | None = None
        self._store = store
        self._steps_between = save_freq or math.inf
        self._seconds_between = save_interval or math.inf
        self.begin(0)

    def begin(self, env_steps: int) -> None:
        """The next one is due that much after this moment."""
        self._steps = env_steps
        self._at = time.monotonic()

    def due(self, env_steps: int, times: int = 1) -> bool:
        """Is it time for one, `times` over?"""
        return (
            env_steps - self._steps >= times * self._steps_between
            or time.monotonic() - self._at >= times * self._seconds_between
        )

    def save(
        self,
        env_steps: int,
        is_finite: Callable[[], bool],
        write: Callable[[Path], Mapping[str, object]],
        reason: str = "",
    ) -> Checkpoint | None:
        """Saves one now; None where it could not be saved, which is logged. The next try comes when it is due.

        Args:
            is_finite: is every weight of the policy a number? One of which that is not so is not saved: the last good
                one would have to go for it.
            write: see CheckpointStore.save.
        """
        started = time.monotonic()
        try:
            if not is_finite():
                if self.last is None:
                    kept = ""
                else:
                    kept = f"; checkpoint {self.last} is kept"
                _log.error(
                    "not saved: the policy's weights are not finite any more, learning has diverged%s. Lower the "
                    "learning rate, or clip the rewards",
                    kept,
                )
                return None
            self.last = self._store.save(env_steps, write)
        except Exception as error:  # noqa: BLE001 - a learner's process may be gone; what was saved before is there
            _log.error("not saved: %s", error if isinstance(error, UeRlError) else f"{type(error).__name__}: {error}")
            return None
        finally:
            self.begin(env_steps)
        _log.info("saved checkpoint %s in %.1f s%s", self.last, time.monotonic() - started, reason and f": {reason}")
        return self.last
