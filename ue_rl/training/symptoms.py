"""What a game does that learning cannot succeed with, although no message of it is wrong; in the words of a user.

`ue-rl train` says it while it learns, `ue-rl inspect` after its random steps. Most steps cost a comparison of two
integers: a sample of steps and rows is looked at, and what has been seen once is not looked for again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spec import EnvSpec

LONG = 3000  # steps of each env without an end of an episode, or without a reward, that are worth a word
ENOUGH = 1000  # steps of each env after which a number that never changed is one that does not change
_EVERY = 13  # one step in so many is looked at; a prime, so that it is in step with no game
_MOST_ROWS = 64  # looked at in a step
_RING = 128  # step times kept
_NAGLE = (0.0385, 0.0455)  # seconds: Linux delays an acknowledgement by 40 ms, and scheduling adds to it
_SHOWN = 5  # names in a sentence


class Symptoms:
    """Looks at one step after the other.

    Args:
        spec: of the engine, or of the group of agents whose rows are given.
        carrier: what the steps travel over, as in Transport.describe()["transport"]; delays are looked for over "tcp".
        long, enough: steps, see LONG and ENOUGH.

    Attributes:
        steps: so far, of each env.
    """

    def __init__(self, spec: EnvSpec, carrier: str = "tcp", *, long: int = LONG, enough: int = ENOUGH) -> None:
        self.steps = 0
        self._spec = spec
        self._long = long
        self._enough = enough
        self._low, self._high = low, high = spec.obs_limits
        self._bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())
        self._numbers = spec.image is None or not spec.image.only  # beside an only image the row means nothing
        self._least = np.full(spec.obs_size, np.inf, np.float32)
        self._greatest = np.full(spec.obs_size, -np.inf, np.float32)
        self._first_image: NDArray[np.uint8] | None = None
        self._image_changed = False
        self._rows = slice(None, None, -(-spec.num_rows // _MOST_ROWS))
        self._ended = self._rewarded = self._outside = self._constant = False
        if "tcp" in carrier:
            self._seconds = [0.0] * _RING
        else:
            self._seconds = []

    def step(
        self, obs: NDArray[np.float32], image: NDArray[np.uint8] | None, rewards: Any, dones: Any, seconds: float
    ) -> Sequence[str]:
        """Looks at one step of all envs.

        Args:
            obs: float32 [num_rows, obs_size], as the engine sent them. image: uint8 [num_rows, *shape] or None.
            rewards: float [num_rows]. dones: [num_rows], true where an episode ended.
            seconds: that the step took.

        Returns:
            sentences; each one is said once.
        """
        self.steps = steps = self.steps + 1
        if not self._ended:
            self._ended = bool(np.any(dones))
        if not self._rewarded:
            self._rewarded = bool(np.any(rewards))
        if self._seconds:
            self._seconds[steps % _RING] = seconds
        if steps % _EVERY and steps not in (self._long, self._enough):
            return ()
        return self._look(obs, image)

    def _look(self, obs: NDArray[np.float32], image: NDArray[np.uint8] | None) -> list[str]:
        said: list[str] = []
        steps = self.steps
        if self._numbers and not (self._constant and self._outside):
            rows = obs[self._rows]
            least = rows.min(axis=0)
            greatest = rows.max(axis=0)
            if not self._constant:
                np.minimum(self._least, least, out=self._least)
                np.maximum(self._greatest, greatest, out=self._greatest)
            if self._bounded and not self._outside:
                self._look_outside(least, greatest, said)
        if image is not None and not self._image_changed:
            if self._first_image is None:
                self._first_image = image[0].copy()
            elif not self._constant:
                self._image_changed = not np.array_equal(self._first_image, image[0])
        if not self._constant and steps >= self._enough and (self._ended or steps >= self._long):
            self._constant = True
            self._look_constant(image is not None, said)
        if steps >= self._long:
            if not self._ended:
                self._ended = True
                said.append(
                    f"no episode has ended in {steps:,} steps of each env: returns stay unknown. The engine must say "
                    "DONE=1 in the last step of an episode; --max-episode-steps ends them here"
                )
            if not self._rewarded:
                self._rewarded = True
                said.append(f"every reward was 0 in {steps:,} steps of each env: there is nothing to learn from")
        if self._seconds and steps >= _RING and steps % (8 * _EVERY) == 0:
            self._look_at_time(said)
        return said

    def _look_outside(self, least: NDArray[np.float32], greatest: NDArray[np.float32], said: list[str]) -> None:
        wrong = np.flatnonzero((least < self._low) | (greatest > self._high))
        if not len(wrong):
            return
        self._outside = True
        parts = [
            self._spec.out_of_bounds(i, float(least[i] if least[i] < self._low[i] else greatest[i]))
            for i in wrong[:_SHOWN].tolist()
        ]
        said.append(
            f"observations outside the space that the engine announced: {'; '.join(parts)}{_more(wrong)}. Policies and "
            "VecNormalize take them; a game whose OBS_SPACE is wrong misleads who reads it"
        )

    def _look_constant(self, has_image: bool, said: list[str]) -> None:
        if self._numbers:
            constant = np.flatnonzero(self._least == self._greatest)
        else:
            constant = np.zeros(0, np.intp)
        if has_image and not self._image_changed:
            said.append(f"the image of env 0 was the same in {self.steps:,} steps")
        if len(constant) and len(constant) == self._spec.obs_size:
            said.append(f"the observation never changed in {self.steps:,} steps of each env: nothing can be learnt")
        elif len(constant):
            names = ", ".join(f"{self._spec.obs_name(i)} ({self._least[i]:g})" for i in constant[:_SHOWN].tolist())
            said.append(
                f"{len(constant)} of {self._spec.obs_size} numbers of the observation never changed in "
                f"{self.steps:,} steps of each env: {names}{_more(constant)}"
            )

    def _look_at_time(self, said: list[str]) -> None:
        middle = sorted(self._seconds)[_RING // 2]
        if text := delayed(middle):
            self._seconds = []
            said.append(text)


def delayed(seconds: float) -> str:
    """A sentence where a step over TCP takes as long as a delayed acknowledgement; "" otherwise."""
    if not _NAGLE[0] < seconds < _NAGLE[1]:
        return ""
    return (
        f"a step takes {seconds * 1e3:.0f} ms, as long as TCP delays an acknowledgement: unless that is the game's "
        "tick, it writes a message in several sends. Send each message at once, and set TCP_NODELAY on the engine's "
        "socket"
    )


def _more(indices: NDArray[np.intp]) -> str:
    if len(indices) > _SHOWN:
        return f"; and {len(indices) - _SHOWN} more"
    return ""
