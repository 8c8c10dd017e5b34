"""What a callback raises in learn() reaches those who save the run: Stable-Baselines3 tells no other callback."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback, CallbackList

_CALLS = ("on_training_start", "on_rollout_start", "on_step", "on_rollout_end", "on_training_end")


def leaves(callback: BaseCallback) -> Iterator[BaseCallback]:
    """The callbacks in it, out of lists within lists."""
    if isinstance(callback, CallbackList):
        for each in callback.callbacks:
            yield from leaves(each)
    else:
        yield callback


@contextmanager
def guarded(callbacks: Sequence[BaseCallback], failed: Callable[[BaseException], object]) -> Iterator[None]:
    """While the block runs, what one of `callbacks` raises is told to `failed` before it goes on its way."""
    before = [(vars(each), name, vars(each).get(name)) for each in callbacks for name in _CALLS]
    for each in callbacks:
        for name in _CALLS:
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
