"""StopCallback: where a signal ends SB3's learning."""

from __future__ import annotations

from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.saving.stopping import Stopping

WAITING = 0.25  # seconds that a step under way is given: a game's frame ends within them, a hung engine does not
LEARNING = 5.0  # seconds that the gradient steps of an update are given: docker stop kills after 10


class StopCallback(BaseCallback):
    """Ends SB3's learning where it does no harm: after a step, or before the next rollout.

    Args:
        stopping: whose `interruptible` block learn() runs in.
    """

    def __init__(self, stopping: Stopping) -> None:
        super().__init__()
        self._stopping = stopping

    def _on_rollout_start(self) -> None:
        self._stopping.check()
        self._stopping.grace = WAITING

    def _on_step(self) -> bool:
        self._stopping.check()
        return True

    def _on_rollout_end(self) -> None:
        self._stopping.grace = LEARNING
