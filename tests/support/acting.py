"""What a test does in the middle of a training run: a callback that the run's options name, as a user's would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

_acts: dict[int, Callable[[], object]] = {}


class Acts(BaseCallback):
    """Calls what `at_step` was given under this number, when so many env-steps are done; once, whoever resumes."""

    def __init__(self, number: int, env_steps: int) -> None:
        super().__init__()
        self._number = number
        self._env_steps = env_steps

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._env_steps and self._number in _acts:
            _acts.pop(self._number)()
        return True


def at_step(env_steps: int, act: Callable[[], object]) -> dict[str, Any]:
    """The value of the option `callback` with which `act` is called after so many env-steps, in this process."""
    number = id(act)
    _acts[number] = act
    return {f"{__name__}:Acts": {"number": number, "env_steps": env_steps}}
