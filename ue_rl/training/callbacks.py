"""What happens while SB3 learns: episodes noted, the game's numbers followed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.connections.engines.lifecycle import LifeState
from ue_rl.devtools.metrics.names import TRAINING, Metrics
from ue_rl.envs.infos import is_number
from ue_rl.envs.journal_transport import journal_of
from ue_rl.system.errors import printable
from ue_rl.training.fleet import Fleet
from ue_rl.training.watching import from_record
from ue_rl.training.writing import Episodes, WriteGuard

_MAX_KEYS = 200  # numbers of the game that are followed: what an engine sends must not fill the disk
_PREFIX = "engine/"
# What infos hold for SB3 and its wrappers; anything else is the game's own.
_SB3_KEYS = frozenset(
    ("episode", "terminal_observation", "TimeLimit.truncated", "is_success", "action_mask", "action_masks", "engine")
)

_LOGGED_EVERY = 60.0  # seconds

_log = logging.getLogger(__name__)


class LookingOn(BaseCallback):
    """A callback that only looks on: the first Exception that it raises is a warning, and none of them ends the run.

    Args:
        callback: what it returns from a step is not asked for. warn: shows the warning.
    """

    def __init__(self, callback: BaseCallback, warn: Callable[[str], object]) -> None:
        super().__init__()
        self._callback = callback
        self._guard = WriteGuard(type(callback).__name__, warn, Exception)

    def _init_callback(self) -> None:
        with self._guard:
            self._callback.init_callback(self.model)

    def update_child_locals(self, locals_: dict[str, Any]) -> None:
        """See BaseCallback."""
        self._callback.update_locals(locals_)

    def _on_training_start(self) -> None:
        with self._guard:
            self._callback.on_training_start(self.locals, self.globals)

    def _on_rollout_start(self) -> None:
        with self._guard:
            self._callback.on_rollout_start()

    def _on_step(self) -> bool:
        with self._guard:
            self._callback.on_step()
        return True

    def _on_rollout_end(self) -> None:
        with self._guard:
            self._callback.on_rollout_end()

    def _on_training_end(self) -> None:
        with self._guard:
            self._callback.on_training_end()


class EpisodeLog(BaseCallback):
    """Fills `episodes` with what ends, and with how far the run is."""

    def __init__(self, episodes: Episodes) -> None:
        super().__init__()
        self._episodes = episodes
        self._engine: Any = None  # the env, from the start of training on

    def _on_training_start(self) -> None:
        self._engine = self.training_env.unwrapped
        journal = journal_of(self._engine)
        if journal is None or not journal.replaying:
            self._episodes.at(self.num_timesteps)

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            episode = info.get("episode")
            if episode is not None:
                self._episodes.add(self.num_timesteps, episode["r"], episode["l"], episode["t"])
        if not from_record(self._engine):  # these were counted before the run was stopped, and cost no time now
            self._episodes.at(self.num_timesteps)
        return True


class RunNumbers(BaseCallback):
    """The metrics of a run; a line of the log has them each minute, and at the end.

    Args:
        episodes: of the run. fleet: its engines.

    Attributes:
        metrics: what `serve_metrics` serves.
        first: env-steps of the run before the first one that an engine was asked for here.
    """

    def __init__(self, episodes: Episodes, fleet: Fleet) -> None:
        super().__init__()
        self._episodes = episodes
        self._fleet = fleet
        self.metrics = Metrics(TRAINING, self._refresh)
        self._times = self.metrics.histogram("ue_rl_step_seconds")
        self._engine: Any = None  # the env, from the start of training on
        self.first = 0
        self._logged = perf_counter()

    def _on_training_start(self) -> None:
        self._engine = self.training_env.unwrapped
        self.first = self.num_timesteps

    def _on_rollout_start(self) -> None:
        self._at = now = perf_counter()  # what an update takes is no part of a step
        if now - self._logged > _LOGGED_EVERY:
            self._log()

    def _on_step(self) -> bool:
        now = perf_counter()
        if from_record(self._engine):
            self.first = self.num_timesteps
        else:
            self._times.observe(now - self._at)
        self._at = now
        return True

    def _on_training_end(self) -> None:
        self._log()

    def _log(self) -> None:
        self._logged = perf_counter()
        _log.info("%d env-steps", self.num_timesteps, extra={"metrics": self.metrics.flat()})

    def _refresh(self, metrics: Metrics) -> None:
        mean = self._episodes.mean_return
        metrics.total("ue_rl_env_steps_total", self.num_timesteps)
        metrics.total("ue_rl_episodes_total", self._episodes.count)
        if mean is None:
            value = math.nan
        else:
            value = mean
        metrics.gauge("ue_rl_return", value)
        for status in self._fleet.statuses():
            for state in LifeState:
                is_so = int(state is status.state)
                metrics.gauge("ue_rl_engine_state", is_so, str(status.number), state.value.replace(" ", "_"))
        metrics.total("ue_rl_restarts_total", self._fleet.restarts)
        if self._engine is not None:
            here = max(0, self.num_timesteps - self.first)  # the trainer may be between the two
            metrics.exchanged(self._engine.engine_spec, here)
            metrics.gauge("ue_rl_queue", self._engine.transport.awaited_rows)


class EngineNumbers(BaseCallback):
    """The numbers of the game's INFO by name in SB3's logger, over a rollout: `engine/KEY` its mean, `engine/KEY_max`.

    Keys that SB3 reads (`episode`, `is_success` and so on) are left to it; where a game uses one of them for something
    else, UnrealVecEnv has it in `info["engine"]`, and it is followed from there. For an algorithm whose rollouts are
    shorter than what its logger shows, the numbers are those since the last time that it showed them.

    A run has at most 200 of them: each is two columns of its table.

    Args:
        known: columns that the table of a resumed run has already.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        super().__init__()
        self._sums: dict[str, tuple[float, int, float]] = {}  # name -> sum, count, maximum
        self._names = {name for name in known if name.startswith(_PREFIX) and not name.endswith("_max")}
        self._keys: dict[str, str] = {}  # key -> name
        self._told = False
        self._recorded: str | None = None

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if not info or info.get("inactive") is True:  # of an agent that is away nothing was said
                continue
            for key, value in info.items():
                if key not in _SB3_KEYS:
                    self._add(key, value)
            own = info.get("engine")
            if isinstance(own, Mapping):
                for key, value in own.items():
                    self._add(key, value)
        return True

    def _add(self, key: str, value: object) -> None:
        if not is_number(value):
            return
        name = self._keys.get(key) or self._name(key)
        if name is None:
            return
        number = float(value)  # type: ignore[arg-type]
        total, count, top = self._sums.get(name, (0.0, 0, -math.inf))
        self._sums[name] = total + number, count + 1, max(top, number)

    def _name(self, key: str) -> str | None:
        """What it is called in the tables; None where the run has as many names already as it may have."""
        name = f"{_PREFIX}{printable(key)[:80]}"
        if name not in self._names:
            if len(self._names) >= _MAX_KEYS:
                if not self._told:
                    self._told = True
                    _log.warning("the engine's INFO has more than %d numbers by name: others are not shown", _MAX_KEYS)
                return None
            self._names.add(name)
        if len(self._keys) < _MAX_KEYS:
            self._keys[key] = name
        return name

    def _on_rollout_start(self) -> None:
        # The logger forgets what it has shown: then the next numbers begin anew.
        if self._recorded is not None and self._recorded not in self.logger.name_to_value:
            self._sums.clear()

    def _on_rollout_end(self) -> None:
        for name, (total, count, top) in self._sums.items():
            self.logger.record(name, total / count)
            self.logger.record(f"{name}_max", top)
            self._recorded = name
