"""Journal: what the envs of an UnrealVecEnv were asked and have answered, so that a stopped run is resumed exactly.

Two things are kept. Of each env its present episode: seed, options, parameters and the actions since, with which an
engine that is deterministic can be brought to the same state again (ue_rl/envs/resumable.py). And what was given out
since the last `mark()`: those steps can be answered again without asking the engine.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.observations import Observation, mapped
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Options, Seeds, Transport

MOST_STEPS, MOST_BYTES = 100_000, 64 << 20  # an episode with more steps, or more bytes of actions, is not kept
_TRIM_FROM = 1000  # steps
_FORMAT = 1
_MASK64 = (1 << 64) - 1

_log = logging.getLogger(__name__)


class RecordedStep(NamedTuple):
    """One step of all envs as it was given out; `asked`: the wire's actions. infos: None where all are empty."""

    asked: NDArray[np.float32]
    obs: Observation
    rewards: NDArray[np.float32]
    dones: NDArray[np.bool_]
    infos: list[dict[str, Any]] | None
    masks: NDArray[np.int8] | None


_outcome = functools.partial(tuple.__new__, RecordedStep)  # of a tuple; half the time of RecordedStep(..)


class Journal:
    """See the module.

    Args:
        spec: of the session. seed: of the run; the seeds of all episodes are derived from it.

    Attributes:
        obs, masks: what the last recorded step or reset gave out.
        lost: env id -> why its episode cannot be continued: it ends as truncated at the next live step.
        replayable: the engine takes seeds.
        from_record: the step that was given out last was a recorded one, for which the engine was not asked.
    """

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        n = spec.num_envs
        self.seed = seed
        self.replayable = "SEED" in spec.features
        self.obs: Observation = None
        self.masks: NDArray[np.int8] | None = None
        self.lost: dict[int, str] = {}
        self.from_record = False
        self._limit = max(1, min(MOST_STEPS, MOST_BYTES // (4 * n * spec.act_size)))
        # Of each env's present episode. `begun` counts the vec-steps of this journal.
        self.numbers, self.begun = [0] * n, [0] * n
        self.known = [False] * n  # it can be replayed: its seed is known and it is not too long
        self.seeds: list[int | None] = [None] * n
        self.options: list[Mapping[str, Any] | None] = [None] * n
        self.parameters: list[Mapping[str, float] | None] = [None] * n
        # The actions of all envs since the oldest of these episodes began.
        self.rows: list[NDArray[np.float32]] = []
        self._first = 0  # which vec-step `rows` begins with
        self._trim_at = min(_TRIM_FROM, self._limit + 1)
        # What was asked but not answered yet.
        self._asked: NDArray[np.float32]
        self._beginning: dict[int, tuple[int | None, Mapping[str, Any] | None]] = {}
        self._drawn: dict[int, Mapping[str, float] | None] = {}
        # Since mark(); `_next`: the one that is given out next, None where none is left.
        self._outcomes: list[RecordedStep] | None = None
        self._next: int | None = None
        self._told = False
        self._untouched = False  # resumed, and no step has been taken
        self._marked: tuple[Observation, NDArray[np.int8] | None] = (None, None)

    # -- episodes

    def next_seeds(self, envs: Sequence[int]) -> list[int | None] | None:
        """Those of the next episodes of these envs; None: the engine takes none."""
        return [episode_seed(self.seed, env, self.numbers[env] + 1) for env in envs] if self.replayable else None

    def reset(
        self, transport: Transport, env_ids: Sequence[int] | None = None, seeds: Seeds = None, options: Options = None
    ) -> None:
        """As Transport.reset: envs without a given seed get their own, and what they are asked is noted.

        Parameters are drawn once for each episode, however often its reset is tried.
        """
        envs = range(len(self.known)) if env_ids is None else env_ids
        own = self.next_seeds(envs)
        if own is not None:
            seeds = [
                own[place] if seed is None else seed
                for place, seed in zip(range(len(envs)), seeds or repeat(None), strict=False)
            ]
        draw, parameters = transport.draw_parameters, None
        if draw is not None:
            for env in envs:
                if env not in self._drawn:
                    self._drawn[env] = draw(env)
            parameters = {env: self._drawn[env] for env in envs}
        transport.reset(env_ids, seeds, options, parameters)
        for env, seed, chosen in zip(envs, seeds or repeat(None), options or repeat(None), strict=False):
            self._beginning[env] = (seed, chosen)

    def _begin(self) -> None:
        now = self._first + len(self.rows)
        for env, (seed, options) in self._beginning.items():
            self.numbers[env] += 1
            self.begun[env] = now
            self.seeds[env], self.options[env] = seed, options
            self.parameters[env] = self._drawn.pop(env, None)
            self.known[env] = seed is not None
        self._beginning.clear()

    def began(self, obs: Observation, masks: NDArray[np.int8] | None) -> None:
        """All envs were reset, and `obs` was given out."""
        self.rows, self._first, self._trim_at = [], 0, min(_TRIM_FROM, self._limit + 1)
        self._begin()
        self.obs, self.masks = obs, masks
        self.lost.clear()
        self._next, self._untouched = None, False
        if self._outcomes is not None:
            self.mark()

    def _trim(self) -> None:
        """Forgets the actions that no episode needs, and the episodes that are too long."""
        now = self._first + len(self.rows)
        for env, begun in enumerate(self.begun):
            self.known[env] = self.known[env] and now - begun <= self._limit
        oldest = min((begun for begun, known in zip(self.begun, self.known, strict=True) if known), default=now)
        del self.rows[: oldest - self._first]
        self._first = oldest
        self._trim_at = min(max(_TRIM_FROM, 2 * len(self.rows)), self._limit + 1)

    # -- steps

    def ask(self, rows: NDArray[np.float32]) -> bool:
        """A step is asked for. True: it is recorded, so the engine is not to be asked; `next_recorded` answers it."""
        self._asked = rows.copy()
        if self._next is None:
            return False
        assert self._outcomes is not None
        before = self._outcomes[self._next].asked
        if self._asked.tobytes() == before.tobytes():
            return True
        if np.allclose(self._asked, before, rtol=1e-3, atol=1e-5):
            if not self._told:
                self._told = True
                _log.warning("not exact: this machine computes slightly other actions than the one before")
            return True
        self._give_up("the policy acts differently than before: its weights, libraries or machine have changed")
        return False

    def answered(
        self,
        obs: Observation,
        rewards: NDArray[np.float32],
        dones: NDArray[np.bool_],
        infos: list[dict[str, Any]] | None,
        masks: NDArray[np.int8] | None,
    ) -> None:
        """A step is about to be given out; infos: None where all are empty."""
        rows = self.rows
        rows.append(self._asked)
        self.from_record = self._untouched = False
        if self.lost:  # they have ended with this step
            self.lost.clear()
        self.obs, self.masks = obs, masks
        if self._beginning:
            self._begin()
        if len(rows) >= self._trim_at:
            self._trim()
        if self._outcomes is not None:
            # Stable-Baselines3 adds to rewards in place, and VecNormalize replaces what is in infos.
            kept = None if infos is None else [_copied(info) for info in infos]
            self._outcomes.append(_outcome((self._asked, obs, rewards.copy(), dones, kept, masks)))

    def mark(self) -> None:
        """What is given out from now on is kept, until the next mark()."""
        if self._next is None:
            self._outcomes, self._marked = [], (self.obs, self.masks)
            return
        assert self._outcomes is not None
        if self._next:
            last = self._outcomes[self._next - 1]
            self._outcomes, self._marked = self._outcomes[self._next :], (last.obs, last.masks)
            self._next = 0

    def unmark(self) -> None:
        """Nothing of what is given out is kept any more."""
        if self._next is None:
            self._outcomes, self._marked = None, (None, None)

    # -- recorded steps

    @property
    def replaying(self) -> bool:
        """The next step is answered by `next_recorded`."""
        return self._next is not None

    @property
    def first(self) -> tuple[Observation, NDArray[np.int8] | None] | None:
        """What a reset gives after `resume`, as long as no step was taken: the observations, and masks, at mark()."""
        return self._marked if self._untouched else None

    def next_recorded(self) -> RecordedStep:
        """The next recorded step: copies of what the caller may change."""
        assert self._outcomes is not None
        assert self._next is not None
        outcome = self._outcomes[self._next]
        self._next += 1
        self.from_record = True
        self._untouched = False
        if self._next == len(self._outcomes):
            self._next = None
        infos = None if outcome.infos is None else [_copied(info) for info in outcome.infos]
        return outcome._replace(rewards=outcome.rewards.copy(), dones=outcome.dones.copy(), infos=infos)

    def _give_up(self, why: str) -> None:
        """The recorded steps are worth nothing: all episodes end where they are now."""
        assert self._outcomes is not None
        del self._outcomes[self._next :]
        last = self._outcomes[-1] if self._outcomes else None
        self.obs, self.masks = self._marked if last is None else (last.obs, last.masks)
        self._next, self._untouched = None, False
        self.lost = dict.fromkeys(range(len(self.known)), why)
        self.known = [False] * len(self.known)
        _log.warning("%s: the run goes on with fresh episodes", why)

    def lose(self, why: Mapping[int, str]) -> None:
        """These envs could not be brought back to where they were: their episodes end."""
        self.lost.update(why)
        for env in why:
            self.known[env] = False
        for reason in dict.fromkeys(why.values()):
            envs = sorted(env for env in why if why[env] == reason)
            whose = "all envs" if len(envs) == len(self.known) else f"env {', '.join(map(str, envs[:20]))}"
            _log.warning("not exact: %s begin%s a fresh episode: %s", whose, "s"[len(envs) > 1 :], reason)

    # -- on the disk

    def state(self) -> dict[str, Any]:
        """Everything, as dicts, lists, arrays, numbers and texts."""
        self._trim()
        outcomes = self._outcomes or []
        return {
            "format": _FORMAT, "seed": self.seed, "numbers": list(self.numbers), "known": list(self.known),
            "begun": [begun - self._first for begun in self.begun],
            "seeds": list(self.seeds), "options": list(self.options), "parameters": list(self.parameters),
            "drawn": dict(self._drawn), "rows": np.array(self.rows, np.float32),
            "obs": self.obs, "masks": self.masks, "marked": list(self._marked if self._outcomes is not None else
                                                                  (self.obs, self.masks)),
            "lost": dict(self.lost),
            "outcomes": [_stacked([outcome[field] for outcome in outcomes]) for field in range(4)] if outcomes else [],
            "infos": [outcome.infos for outcome in outcomes],
            "all_masks": [outcome.masks for outcome in outcomes],
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state()` gave; the engine is not asked.

        Raises:
            ValueError: of another version, or of another number of envs.
        """
        if state["format"] != _FORMAT or len(state["numbers"]) != len(self.numbers):
            raise ValueError("the saved journal is of another version or of another number of envs")
        self.seed, self.numbers, self.known = int(state["seed"]), list(state["numbers"]), list(state["known"])
        self.begun, self.seeds = list(state["begun"]), list(state["seeds"])
        self.options, self.parameters = list(state["options"]), list(state["parameters"])
        self._drawn, self.rows, self._first = dict(state["drawn"]), list(state["rows"]), 0
        self._trim_at = min(len(self.rows) + _TRIM_FROM, self._limit + 1)
        self.obs, self.masks, self.lost = state["obs"], state["masks"], dict(state["lost"])
        self._marked = (state["marked"][0], state["marked"][1])
        count = len(state["infos"])
        self._outcomes = []
        for n in range(count):
            fields = [mapped(itemgetter(n), values) for values in state["outcomes"]]
            self._outcomes.append(_outcome((*fields, state["infos"][n], state["all_masks"][n])))
        self._next, self._untouched = 0 if count else None, True


def episode_seed(seed: int, env: int, episode: int) -> int:
    """The seed of one episode, 31 bits: engines keep seeds in an int32. By the finalizer of SplitMix64."""
    value = 0
    for part in (seed, env, episode):
        value = ((value ^ part) + 0x9E3779B97F4A7C15) & _MASK64
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
        value ^= value >> 31
    return value >> 33


def _copied(info: dict[str, Any]) -> dict[str, Any]:
    info = info.copy()
    terminal = info.get("terminal_observation")
    if type(terminal) is dict:  # VecFrameStack replaces what is in it
        info["terminal_observation"] = terminal.copy()
    return info


def _stacked(observations: list[Observation]) -> Observation:
    """Those of several steps as one, its arrays [steps, num_envs, ...]."""
    return mapped(lambda *arrays: np.stack(arrays), *observations)
