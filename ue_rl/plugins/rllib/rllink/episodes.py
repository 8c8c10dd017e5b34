"""EpisodeCutter: steps of N envs, as they are taken, to the chunks of episodes that one message holds. No I/O.

RLlib wants whole episodes or parts of them; a part that ends without an end goes on in the next message under the same
id, and its first observation is the last one of the part before.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.rllib.rllink.messages import Chunk


class EpisodeCutter:
    """Collects steps until `take`.

    Args:
        num_envs: how many envs step together. room: steps of each env for which there is room at first; it grows.

    Attributes:
        steps: env-steps collected since the last `take`.
    """

    def __init__(self, num_envs: int, room: int = 256) -> None:
        self.num_envs = num_envs
        self.steps = 0
        self._ids = [uuid.uuid4().hex for _ in range(num_envs)]
        self._started = [0] * num_envs  # steps of the episode that were sent already
        self._first: list[int | None] = [None] * num_envs  # where the env's part begins in the arrays
        self._waiting = set(range(num_envs))  # envs without such a part
        self._room = room
        self._arrays: dict[Any, NDArray[Any]] = {}  # an argument of `add` by its name, a part of `extra` by its path
        self._count = 0
        self._starts: NDArray[Any] | None = None  # the observation that the next step of each env begins with
        self._ready: list[Chunk] = []

    def begin(self, obs: NDArray[Any], envs: NDArray[np.bool_] | None = None) -> None:
        """New episodes of these envs (bool [num_envs]; None: all), which begin with obs [num_envs, ...]."""
        if self._starts is None:
            self._starts = obs.copy()
        if envs is None:
            chosen = np.ones(self.num_envs, np.bool_)
        else:
            chosen = envs
        self._starts[chosen] = obs[chosen]
        for env in np.flatnonzero(chosen).tolist():
            self._cut(env, False, False)  # a part of an episode that nobody ends: an engine was lost
            self._ids[env] = uuid.uuid4().hex
            self._started[env] = 0

    def add(
        self,
        actions: NDArray[Any],
        logits: NDArray[np.float32],
        logp: NDArray[np.float32],
        rewards: NDArray[Any],
        obs: NDArray[Any],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        acted: NDArray[np.bool_] | None = None,
        extra: Mapping[tuple[str, ...], NDArray[Any]] | None = None,
    ) -> None:
        """One step: what was done, and what came of it.

        Args:
            actions: [num_envs, ...]. logits: float32 [num_envs, n]. logp: float32 [num_envs]. rewards: [num_envs].
            obs: [num_envs, ...] after the step, of an episode that ends its last one.
            terminated, truncated: bool [num_envs]. acted: bool [num_envs], the envs that took the step; None: all.
            extra: path of names -> [num_envs, ...], what else is noted of the step; the same between two `take`. A
                path is no name of the arguments, whatever is noted.
        """
        assert self._starts is not None
        step: dict[Any, NDArray[Any]] = {
            "obs": self._starts,
            "actions": actions,
            "logits": logits,
            "logp": logp,
            "rewards": rewards,
        }
        if extra:
            step |= extra
        if self._count in (0, self._room):
            self._grow(step)
        for name, values in step.items():
            self._arrays[name][self._count] = values
        at = self._count
        self._count = self._count + 1
        if self._waiting:
            for env in [env for env in self._waiting if acted is None or acted[env]]:
                self._first[env] = at
                self._waiting.discard(env)
        if acted is None:
            self._starts[...] = obs
            self.steps += self.num_envs
        else:
            self._starts[acted] = obs[acted]
            self.steps += int(np.count_nonzero(acted))
        over = terminated | truncated
        if over.any():
            if acted is None:
                ended = over
            else:
                ended = over & acted
            for env in np.flatnonzero(ended).tolist():
                self._cut(env, bool(terminated[env]), bool(truncated[env]) and not terminated[env])
                self._ids[env] = uuid.uuid4().hex
                self._started[env] = 0

    @property
    def lengths(self) -> list[int]:
        """Of each env's part of an episode that is not over."""
        return [0 if first is None else self._count - first for first in self._first]

    def end(self, env: int) -> None:
        """The env's episode is cut off behind its last step: it counts as truncated there."""
        self._cut(env, False, True)

    def take(self) -> list[Chunk]:
        """All that was collected; episodes that are not over go on with the next step."""
        for env in range(self.num_envs):
            self._cut(env, False, False)
        chunks = self._ready
        self._ready = []
        self._count = self.steps = 0
        return chunks

    def _grow(self, step: dict[str, NDArray[Any]]) -> None:
        """Room for one more step, which is of another kind only where there is none yet."""
        if self._count == 0:
            kinds = {name: (values.dtype, values.shape) for name, values in step.items()}
            if kinds != {name: (values.dtype, values.shape[1:]) for name, values in self._arrays.items()}:
                self._arrays = {name: np.zeros((self._room, *shape), dtype) for name, (dtype, shape) in kinds.items()}
            return
        self._room *= 2
        for name, values in self._arrays.items():
            wider = np.zeros((self._room, *values.shape[1:]), values.dtype)
            wider[: len(values)] = values
            self._arrays[name] = wider

    def _cut(self, env: int, terminated: bool, truncated: bool) -> None:
        """Makes a chunk of what there is of this env."""
        first = self._first[env]
        if first is None:
            return
        assert self._starts is not None
        part = slice(first, self._count)
        arrays = {name: values[part, env].copy() for name, values in self._arrays.items() if name != "obs"}
        obs = np.concatenate([self._arrays["obs"][part, env], self._starts[env : env + 1]])
        actions, rewards, logits, logp = (arrays.pop(name) for name in ("actions", "rewards", "logits", "logp"))
        whose = self._ids[env], self._started[env]
        chunk = Chunk(*whose, obs, actions, rewards, logits, logp, terminated, truncated, env, first, arrays)
        self._ready.append(chunk)
        self._started[env] += len(chunk.rewards)
        self._first[env] = None
        self._waiting.add(env)
