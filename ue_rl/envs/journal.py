"""What the envs of a run were asked and have answered, so that a stopped run is resumed exactly.

Two things are kept. Of each env its present episode (PresentEpisodes): seed, options, parameters and the actions since,
with which an engine that is deterministic can be brought to the same state again. And each request since the last
`mark` with its answer (ExchangeRecord): those steps can be answered again without asking the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec

MOST_STEPS = 100_000  # an episode with more steps, or more bytes of actions, is not kept
MOST_BYTES = 64 << 20
_TRIM_FROM = 1000  # steps
_MASK64 = (1 << 64) - 1


class PresentEpisodes:
    """Of each env the episode that it is in, as far as it can be played again.

    Args:
        spec: of the session.
        most_steps: an episode with more is not kept.

    Attributes:
        numbers: how many episodes each env has begun.
        begun: the step before which the present one began. Steps are counted as long as this object lives.
        known: it can be played again: its seed is known, and it is not too long.
        seeds, options, parameters: what it began with.
        rows: of each step since the oldest of them began the actions, bytes of float32 [num_envs, act_size].
        rewards: likewise, bytes of float32 [num_envs].
    """

    def __init__(self, spec: EnvSpec, most_steps: int = MOST_STEPS) -> None:
        n = spec.num_envs
        self._spec = spec
        self._limit = max(1, min(most_steps, MOST_BYTES // (4 * n * spec.act_size)))
        self.numbers = [0] * n
        self.begun = [0] * n
        self.known = [False] * n
        self.seeds: list[int | None] = [None] * n
        self.options: list[Mapping[str, Any] | None] = [None] * n
        self.parameters: list[Mapping[str, float] | None] = [None] * n
        self.rows: list[bytes] = []
        self.rewards: list[bytes] = []
        self._first = 0  # which step `rows` begins with
        self._trim_at = min(_TRIM_FROM, self._limit + 1)

    def begin(
        self,
        env: int,
        seed: int | None,
        options: Mapping[str, Any] | None,
        parameters: Mapping[str, float] | None,
    ) -> None:
        """An env has begun another episode."""
        self.numbers[env] += 1
        self.begun[env] = self._first + len(self.rows)
        self.seeds[env] = seed
        self.options[env] = options
        self.parameters[env] = parameters
        self.known[env] = seed is not None

    def step(self, rows: bytes, rewards: bytes) -> None:
        """All envs have taken a step."""
        self.rows.append(rows)
        self.rewards.append(rewards)
        if len(self.rows) >= self._trim_at:
            self.trim()

    def complete_step(self, rows: bytes, rewards: bytes, stepped: Sequence[int]) -> None:
        """Of the last step these envs have taken their part now."""
        for kept, new, width in ((self.rows, rows, self._spec.act_size), (self.rewards, rewards, 1)):
            whole = _floats(kept[-1], width).copy()
            whole[list(stepped)] = _floats(new, width)[list(stepped)]
            kept[-1] = whole.tobytes()

    def forget(self) -> None:
        """All envs begin anew."""
        self.rows = []
        self.rewards = []
        self._first = 0
        self._trim_at = min(_TRIM_FROM, self._limit + 1)
        self.known = [False] * len(self.known)

    def trim(self) -> None:
        """Forgets the actions that no episode needs, and the episodes that are too long."""
        now = self._first + len(self.rows)
        for env, begun in enumerate(self.begun):
            self.known[env] = self.known[env] and now - begun <= self._limit
        oldest = min((begun for begun, known in zip(self.begun, self.known, strict=True) if known), default=now)
        del self.rows[: oldest - self._first]
        del self.rewards[: oldest - self._first]
        self._first = oldest
        self._trim_at = min(max(_TRIM_FROM, 2 * len(self.rows)), self._limit + 1)

    def actions_of(self, step: int) -> NDArray[np.float32]:
        """Of one of `rows`, float32 [num_envs, act_size]."""
        return _floats(self.rows[step], self._spec.act_size)

    def rewards_of(self, step: int) -> NDArray[np.float32]:
        """Of one of `rewards`, float32 [num_envs]."""
        return _floats(self.rewards[step], 1)[:, 0]

    def state(self) -> dict[str, Any]:
        """Everything, as dicts, lists, bytes, numbers and texts."""
        self.trim()
        return {
            "numbers": list(self.numbers),
            "known": list(self.known),
            "begun": [begun - self._first for begun in self.begun],
            "seeds": list(self.seeds),
            "options": list(self.options),
            "parameters": list(self.parameters),
            "rows": list(self.rows),
            "rewards": list(self.rewards),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state()` gave."""
        self.numbers = list(state["numbers"])
        self.known = list(state["known"])
        self.begun = list(state["begun"])
        self.seeds = list(state["seeds"])
        self.options = list(state["options"])
        self.parameters = list(state["parameters"])
        self.rows = list(state["rows"])
        self.rewards = list(state["rewards"])
        self._first = 0
        self._trim_at = min(len(self.rows) + _TRIM_FROM, self._limit + 1)


class Exchange(NamedTuple):
    """A request and its answer, in bytes.

    Attributes:
        stepping: the envs that were asked for a step; None: all.
        begin: those that were asked to begin an episode.
        actions: of all envs, b"" where nobody steps.
        envs: whose rows the answer has; None: all. obs .. image: these rows; b"" where the engine sends no such thing.
        infos, lost: as in StepBuffers; None where there are none.
    """

    stepping: tuple[int, ...] | None
    begin: tuple[int, ...]
    actions: bytes
    envs: tuple[int, ...] | None
    obs: bytes
    rewards: bytes
    dones: bytes
    truncated: bytes
    masks: bytes
    image: bytes
    infos: dict[int, dict[str, Any]] | None
    lost: tuple[int, ...] | None

    def put(self, buffers: StepBuffers) -> None:
        """Writes the answer into these buffers."""
        rows: Any = slice(None) if self.envs is None else list(self.envs)
        _put(buffers.obs, rows, self.obs)
        _put(buffers.rewards, rows, self.rewards)
        _put(buffers.dones, rows, self.dones)
        _put(buffers.truncated, rows, self.truncated)
        if self.masks:
            _put(buffers.masks, rows, self.masks)
        if buffers.image is not None:
            _put(buffers.image, rows, self.image)
        buffers.infos = {env: info.copy() for env, info in (self.infos or {}).items()}
        buffers.lost = set(self.lost or ())


class LastShown(NamedTuple):
    """What all envs have shown last, in bytes; see Exchange. lost: see StepBuffers."""

    obs: bytes
    masks: bytes
    image: bytes
    lost: tuple[int, ...]

    @classmethod
    def of(cls, buffers: StepBuffers) -> LastShown:
        """That of these buffers."""
        image = b"" if buffers.image is None else buffers.image.tobytes()
        return cls(buffers.obs.tobytes(), buffers.masks.tobytes(), image, tuple(sorted(buffers.lost)))

    def put(self, buffers: StepBuffers) -> None:
        """Writes it into these buffers, as the answer to a reset."""
        _put(buffers.obs, slice(None), self.obs)
        if self.masks:
            _put(buffers.masks, slice(None), self.masks)
        if buffers.image is not None:
            _put(buffers.image, slice(None), self.image)
        for array in (buffers.rewards, buffers.dones, buffers.truncated):
            array[:] = 0
        buffers.infos = {}
        buffers.lost = set(self.lost)


class ExchangeRecord:
    """What was asked and answered since `mark`.

    Args:
        marked: what the envs had shown last by then.
        left: what is to be answered again.

    Attributes:
        exchanges: since then, the fields of an Exchange each. Plain tuples: Python's garbage collector would look at
            thousands of named ones again and again, as at everything that could hold a reference.
        playing: the next request is answered from here.
    """

    def __init__(self, marked: LastShown, left: Sequence[tuple[Any, ...]] = ()) -> None:
        self.marked = marked
        self.exchanges = list(left)
        self.playing = len(left) > 0
        self._answered = 0

    @property
    def next(self) -> Exchange:
        """The request that is to come, and its answer."""
        return Exchange(*self.exchanges[self._answered])

    def advance(self) -> None:
        """It has come."""
        self._answered += 1
        self.playing = self._answered < len(self.exchanges)

    def drop_rest(self) -> None:
        """What was not answered again is worth nothing any more."""
        del self.exchanges[self._answered :]
        self.playing = False

    def drop_last_step(self) -> None:
        """The last step, and the resets that belong to it, are not to be answered again."""
        while self.exchanges:
            stepping, *_ = self.exchanges.pop()
            if stepping != ():
                break
        self.playing = self._answered < len(self.exchanges)

    def rest(self, marked: LastShown) -> ExchangeRecord:
        """What was not answered again, with what the envs have shown by now."""
        return ExchangeRecord(marked, self.exchanges[self._answered :])


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of one episode, 31 bits: engines keep seeds in an int32. By the finalizer of SplitMix64."""
    value = 0
    for part in (seed, env, episode):
        value = ((value ^ part) + 0x9E3779B97F4A7C15) & _MASK64
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
        value ^= value >> 31
    return value >> 33


def _floats(content: bytes, width: int) -> NDArray[np.float32]:
    return np.frombuffer(content, np.float32).reshape(-1, width)


def _put(array: NDArray[Any], rows: Any, content: bytes) -> None:
    array[rows] = np.frombuffer(content, array.dtype).reshape(-1, *array.shape[1:])
