"""History: what the exchanges of a run brought, env by env, for checks that look at many of them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.peer import AnsweredStates
from ue_rl.devtools.check.sampling import one_specs
from ue_rl.protocol.spaces.tree import choices
from ue_rl.protocol.spec import EnvSpec

NOTHING = 0
STEP = 1
RESET = 2
_MOST_ENVS = 16
_MOST_NUMBERS = 16384  # of one exchange
_CLEAN = 40  # transitions that are enough to know how far a step goes
_SHOWN = 16
_FLOOR = 1e-6  # of a number's greatest value: less is rounding

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class HistoryArrays:
    """A tape as arrays; T exchanges of W envs. A row is an env's: with agents all of theirs, one behind the other.

    Args:
        obs: float32 [T, W, D], after the exchange. actions: float32 [T, W, A]. rewards: float32 [T, W].
        kinds: uint8 [T, W], what was asked: NOTHING, STEP or RESET.
        over: bool [T, W], the env can only be reset now. cut: bool [T, W], TRUNC=1 came.
        follows: bool [T], the exchange before it belongs to the same session.
        seeded: bool [T], a reset with seeds.
    """

    obs: Floats
    actions: Floats
    rewards: Floats
    kinds: NDArray[np.uint8]
    over: Flags
    cut: Flags
    follows: Flags
    seeded: Flags

    @property
    def steps(self) -> Flags:
        """[T, W]: a step of an episode that was not over."""
        before = np.roll(self.over, 1, axis=0)
        before[:1] = False
        steps: Flags = (self.kinds == STEP) & ~before & self.follows[:, None]
        return steps

    @property
    def ages(self) -> NDArray[np.intp]:
        """[T, W]: how many steps the episode has had; 0 before the first one."""
        ages = np.zeros(self.kinds.shape, np.intp)
        for t in range(1, len(ages)):
            ages[t] = np.where(self.kinds[t] == RESET, 0, ages[t - 1] * self.follows[t] + (self.kinds[t] == STEP))
        return ages

    @property
    def ordinary(self) -> Flags:
        """[T, W]: a step that did not end its episode."""
        ordinary: Flags = self.steps & ~self.over
        return ordinary

    @property
    def changes(self) -> Floats:
        """[T, W, D]: from the observation before to this one; 0 where none was before."""
        changes = np.zeros_like(self.obs)
        changes[1:] = self.obs[1:] - self.obs[:-1]
        changes[~self.follows] = 0
        return changes

    def usual(self) -> Floats:
        """[D]: the farthest that a number went in one ordinary step: none at an end, none next to a reset."""
        quiet = ~(self.kinds == RESET).any(axis=1)
        quiet[1:] &= quiet[:-1].copy()
        clean = self.ordinary & quiet[:, None]
        if clean.sum() < _CLEAN:
            clean = self.ordinary
        farthest: Floats = np.abs(self.changes[clean]).max(axis=0, initial=0.0)
        return farthest

    def jump(self, change: Floats) -> NDArray[np.float64]:
        """How many times the usual step a change [.., D] is, in the number where it is the most; [..]."""
        farthest: NDArray[np.float64] = self.jumps(change).max(axis=-1, initial=0.0)
        return farthest

    def jumps(self, change: Floats) -> NDArray[np.float64]:
        """How many times its usual step each number of a change went, [.., D]."""
        scale = np.abs(self.obs).max(axis=(0, 1), initial=0.0) * _FLOOR + 1e-30
        usual = np.maximum(self.usual(), scale)
        change = np.where(np.abs(change) <= scale, 0, np.abs(change))
        times: NDArray[np.float64] = change.astype(np.float64) / usual
        return times

    def came(self, t: NDArray[np.intp], env: NDArray[np.intp] | int) -> Floats:
        """[n, D + 1]: what the exchanges t of these envs changed in their observations, and their rewards."""
        return np.column_stack([self.obs[t, env] - self.obs[t - 1, env], self.rewards[t, env]])

    def starts(self, env: int) -> Floats:
        """[.., D]: the answers to this env's resets that had no seed."""
        found: Floats = self.obs[(self.kinds[:, env] == RESET) & ~self.seeded, env]
        return found

    def start_of(self, t: int, env: int) -> int:
        """The exchange in which the episode that runs at t began; -1 where that was before the tape."""
        found = np.flatnonzero(self.kinds[: t + 1, env] == RESET)
        if len(found):
            return int(found[-1])
        return -1

    def next_reset(self, t: int, env: int) -> int:
        """The first exchange behind t that resets this env; -1 for none."""
        found = np.flatnonzero(self.kinds[t + 1 :, env] == RESET)
        if len(found):
            return t + 1 + int(found[0])
        return -1

    def episodes(self, env: int) -> list[tuple[int, bool]]:
        """(steps, whether it came to its end) of each episode of this env, in their order."""
        said: list[tuple[int, bool]] = []
        length = 0
        running = False
        for t in range(len(self.kinds)):
            kind = self.kinds[t, env]
            if not self.follows[t] or kind == RESET:
                if running:
                    said.append((length, False))
                length = 0
                running = kind == RESET
            elif kind == STEP and running:
                length += 1
                if self.over[t, env]:
                    said.append((length, True))
                    running = False
        if running:
            said.append((length, False))
        return said

    def ends(self) -> list[tuple[int, int]]:
        """(t, env) of each step with which an episode ended."""
        found = np.argwhere(self.steps & self.over)
        return [(int(t), int(env)) for t, env in found]


class Watcher:
    """Looks at every observation of every env, whether it is in OBS_SPACE.

    Args:
        spec: of the engine.

    Attributes:
        outside: (agent of its env, number) -> (row, value), the first that was below or above the bounds.
        broken: the same, the first choice that was not a whole number.
    """

    def __init__(self, spec: EnvSpec) -> None:
        ones = one_specs(spec)
        low, high = np.full((2, len(ones), spec.obs_size), np.inf, np.float32)
        low *= -1
        whole = np.zeros((len(ones), spec.obs_size), np.bool_)
        for agent, one in enumerate(ones):
            low[agent, : one.obs_size], high[agent, : one.obs_size] = one.obs_limits
            if one.obs_space is not None and one.obs_space.size:
                whole[agent, : one.obs_size] = choices(one.obs_space) > 0
        self._low = low
        self._high = high
        self._whole = whole
        self._judges = bool(np.isfinite(low).any() or np.isfinite(high).any()) and not (spec.image and spec.image.only)
        self.outside: dict[tuple[int, int], tuple[int, float]] = {}
        self.broken: dict[tuple[int, int], tuple[int, float]] = {}

    def see(self, states: AnsweredStates) -> None:
        """One exchange."""
        if not self._judges:
            return
        obs = states.obs.reshape(-1, *self._low.shape)
        there = states.present.reshape(len(obs), -1, 1) != 0
        self._note(self.outside, obs, ((obs < self._low) | (obs > self._high)) & there)
        if self._whole.any():
            self._note(self.broken, obs, (obs != np.round(obs)) & self._whole & there)

    def _note(self, known: dict[tuple[int, int], tuple[int, float]], obs: Floats, wrong: Flags) -> None:
        if wrong.any():
            for env, agent, number in np.argwhere(wrong)[:_SHOWN].tolist():
                known.setdefault((agent, number), (env * len(self._low) + agent, float(obs[env, agent, number])))


class History:
    """Records the first envs of an engine, as many as fit; `watcher` sees all of them.

    Args:
        spec: of the engine.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self.watcher = Watcher(spec)
        self._agents = spec.agents_per_env
        numbers = max(1, self._agents * max(spec.obs_size, spec.act_size))
        self.envs = min(spec.num_envs, _MOST_ENVS, max(2, _MOST_NUMBERS // numbers))
        self._rows = self.envs * self._agents
        self._none = np.zeros((self._rows, spec.act_size), np.float32)
        self._kept: list[tuple[Floats, Floats, Floats, NDArray[np.uint8], Flags, Flags, bool, bool]] = []
        self._follows = False

    def __len__(self) -> int:
        return len(self._kept)

    def cut(self) -> None:
        """What comes next belongs to another session."""
        self._follows = False

    def add(
        self,
        states: AnsweredStates,
        over: Sequence[int],
        stepped: Sequence[int],
        reset: Sequence[int],
        actions: Floats | None = None,
        seeded: bool = False,
    ) -> None:
        """One exchange.

        Args:
            states: after it. over: the envs that can only be reset now. stepped, reset: the envs that were asked.
            actions: float32 [num_rows, act_size]. seeded: the resets had seeds.
        """
        self.watcher.see(states)
        kinds = np.zeros(self.envs, np.uint8)
        ended = np.zeros(self.envs, np.bool_)
        kinds[[env for env in stepped if env < self.envs]] = STEP
        kinds[[env for env in reset if env < self.envs]] = RESET
        ended[[env for env in over if env < self.envs]] = True
        rows = slice(0, self._rows)
        shown = np.where(states.present[rows, None] != 0, states.obs[rows], 0).reshape(self.envs, -1)
        rewards = states.rewards[rows].reshape(self.envs, -1).sum(axis=1)
        cut: Flags = (states.truncated[rows].reshape(self.envs, -1) != 0).any(axis=1)
        if actions is None:
            actions_taken = self._none
        else:
            actions_taken = actions[rows].copy()
        taken = actions_taken.reshape(self.envs, -1)
        self._kept.append((shown, taken, rewards, kinds, ended, cut, self._follows, seeded))
        self._follows = True

    def reel(self, since: int = 0) -> HistoryArrays:
        """What was recorded, from exchange number `since` on; at least one."""
        reel = HistoryArrays(*(np.array(column) for column in zip(*self._kept[since:], strict=True)))
        reel.follows[0] = False
        return reel
