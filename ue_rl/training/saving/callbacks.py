"""Callbacks of SB3 around saving: StopCallback, where a signal ends learning, and what is called beside AutoSave."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList

from ue_rl.training.saving.stopping import Stopping

WAITING = 0.25  # seconds that a step under way is given: a game's frame ends within them, a hung engine does not
LEARNING = 5.0  # seconds that the gradient steps of an update are given: docker stop kills after 10
CALLS = ("on_training_start", "on_rollout_start", "on_step", "on_rollout_end", "on_training_end")  # of a callback
STEPS = ("step_async", "step_wait", "ask_some", "take_answers")  # of an UnrealVecEnv


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


def leaves(callback: BaseCallback) -> Iterator[BaseCallback]:
    """The callbacks in it, out of lists within lists."""
    if isinstance(callback, CallbackList):
        for each in callback.callbacks:
            yield from leaves(each)
    else:
        yield callback


@contextmanager
def guarded(
    objects: Sequence[object], methods: Sequence[str], failed: Callable[[BaseException], object]
) -> Iterator[None]:
    """While the block runs, what a method of one of these objects raises is told to `failed` before it goes its way."""
    before = [(vars(each), name, vars(each).get(name)) for each in objects for name in methods]
    for each in objects:
        for name in methods:
            setattr(each, name, _telling(getattr(each, name), failed))
    try:
        yield
    finally:
        for own, name, method in before:
            del own[name]
            if method is not None:
                own[name] = method


def _telling(method: Callable[..., Any], failed: Callable[[BaseException], object]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(*given: Any) -> Any:
        try:
            return method(*given)
        except BaseException as error:
            failed(error)
            raise

    return told
