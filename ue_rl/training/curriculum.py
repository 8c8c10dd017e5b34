"""Curriculum: a callback of Stable-Baselines3 that raises the game's difficulty lesson by lesson.

from ue_rl.training import Curriculum

model.learn(100_000, callback=Curriculum([
    {"name": "near", "params": {"distance": 2},
     "completion_criteria": {"measure": "success", "threshold": 0.8, "min_lesson_length": 50}},
    {"name": "far", "params": {"distance": [5, 10]}},
]))

A lesson's parameters go with the resets from then on: an episode under way ends as it began, and counts for no lesson.
Source of the words and of the smoothing: ML-Agents, "environment parameters and curriculum".
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.protocol.calls.parameters import Randomizer, Range, check_ranges, drawer_of, owner_of
from ue_rl.protocol.transport import Draw
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.lessons import Course, parse_curriculum, ranges_of

_log = logging.getLogger(__name__)


class Curriculum(BaseCallback):
    """See the module.

    Args:
        lessons: as ue_rl.training.lessons describes them, or such a `curriculum:` read from YAML.
        seed: of what is drawn from ranges; None: another one each time.
        timesteps: env-steps of the whole run, for the measure `progress`; None: those given to learn().
        tell: called with a sentence at the beginning of each lesson.

    Attributes:
        courses: the lessons, and which of them holds now.
        below: what draws the parameters that no lesson names; None: nothing does.

    Raises:
        ConfigurationError: the lessons are malformed. At the beginning of learn(), or in `attach`: also where the
            engine has no such parameter; UnsupportedByEngine where it has none at all.
    """

    def __init__(
        self,
        lessons: Any,
        *,
        seed: int | None = None,
        timesteps: int | None = None,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        super().__init__()
        self.courses: list[Course] = parse_curriculum(lessons)
        self._seed = seed
        self._timesteps = timesteps
        self._tell_user = tell
        self.below: Draw | None = None
        self._randomizer: Randomizer | None = None
        self._attached: Any = None  # the transport whose resets get the lessons' parameters
        self._told = False
        self._returns: dict[str, deque[float]] = {}  # of each course, what its last episodes counted
        self._stale: dict[str, NDArray[np.bool_]] = {}  # rows of envs whose episode began before the lesson did
        self._agents: int | None = None  # rows of each env; None: its episode ends with its only row
        self._reset: set[int] = set()  # envs that were reset since the last step
        self._was: Mapping[str, Any] = {}  # what restore() was given

    def attach(self, env: VecEnv) -> None:
        """Sets the parameters from the next reset on; learn() does it by itself, but after its own first reset.

        A second call for the same env changes nothing; one for another env goes on there, in the present lesson.

        Args:
            env: a connected UnrealVecEnv, in wrappers or not.
        """
        inner: Any = env.unwrapped
        transport = getattr(inner, "transport", None)
        spec = getattr(inner, "engine_spec", None)
        if transport is None or spec is None:
            what = "a curriculum needs an engine's env"
            cure = "make it with ue_rl.connect"
            raise ConfigurationError(what, field="env", expected="UnrealVecEnv", got=type(inner).__name__, cure=cure)
        if transport is self._attached:
            return
        for where, ranges in ranges_of(self.courses):
            check_ranges(spec, ranges, where)
        self._attached = transport
        if drawer_of(transport) is not self:
            self.below = transport.draw_parameters
            transport.draw_parameters = self.draw
        self._randomizer = Randomizer(spec, {}, self._seed)
        for course in self.courses:
            self._announce(str(course))

    def draw(self, env_id: int) -> dict[str, float]:
        """The parameters of this env's next episode: those of whoever drew before, under those of the lessons."""
        assert self._randomizer is not None
        self._reset.add(env_id)
        below = None
        if self.below:
            below = self.below(env_id)
        if not below:
            below = {}
        self._randomizer.ranges = self._ranges()
        return {**below, **self._randomizer(env_id)}

    def _ranges(self) -> dict[str, Range]:
        return {name: value for course in self.courses for name, value in course.params.items()}

    def peek(self, env_id: int, certain: bool = False) -> dict[str, float] | None:
        """What `draw` is going to give in the present lesson; nothing is used up.

        Args:
            certain: None while another lesson may begin before that. None, too, where nobody can tell what comes below.
        """
        if certain and not all(course.is_last for course in self.courses):
            return None
        below: dict[str, float] | None = {}
        if self.below is not None:
            peek = getattr(owner_of(self.below), "peek", None)
            if peek is None:
                return None
            below = peek(env_id, certain)
        if below is None:
            return None
        assert self._randomizer is not None
        self._randomizer.ranges = self._ranges()
        return {**below, **self._randomizer.peek(env_id)}

    def show_drawn(self, values: Mapping[int, Mapping[str, float]]) -> None:
        """See Randomizer.show_drawn."""
        for drawer in (self._randomizer, self.below):
            show = getattr(owner_of(drawer), "show_drawn", None)
            if show is not None:
                show(values)

    def generators(self) -> list[Any]:
        """The states of what draws, as JSON values, see ue_rl.envs.replay.draws_of."""
        below = getattr(owner_of(self.below), "generators", None)
        own = None
        if self._randomizer is not None:
            own = self._randomizer.generators()
        others = None
        if below is not None:
            others = below()
        return [own, others]

    def set_generators(self, states: Sequence[Any]) -> None:
        """Goes on drawing from what `generators()` gave."""
        for drawer, state in zip((self._randomizer, self.below), states, strict=True):
            go_on = getattr(owner_of(drawer), "set_generators", None)
            if state is not None and go_on is not None:
                go_on(state)

    def state(self) -> dict[str, Any]:
        """Where the run is in its lessons, and what its last episodes counted, as JSON values."""
        return {
            course.key: {
                "lesson": course.at,
                "name": course.lesson.name,
                "counted": list(self._returns.get(course.key, ())),
                "stale": self._stale[course.key].tolist() if course.key in self._stale else [],
            }
            for course in self.courses
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on in the lessons that `state()` named; lessons that exist no longer are begun anew."""
        for course in self.courses:
            names = [lesson.name for lesson in course.lessons]
            was = state.get(course.key) or {}
            if was.get("name") in names:
                at = int(was.get("lesson", 0))
                if at < len(names) and names[at] == was["name"]:
                    course.at = at
                else:
                    course.at = names.index(was["name"])
        self._was = state
        if self._returns:  # else when learning begins
            self._count_on()

    def _count_on(self) -> None:
        """Takes over what the episodes before a resume counted."""
        for course in self.courses:
            was = self._was.get(course.key) or {}
            stale = self._stale[course.key]
            if was.get("name") == course.lesson.name and len(was.get("stale", ())) == len(stale):
                self._returns[course.key] = deque(was["counted"], self._returns[course.key].maxlen)
                stale[:] = was["stale"]
        self._was = {}

    # -- what Stable-Baselines3 calls

    def _on_training_start(self) -> None:
        before = self._attached
        self.attach(self.training_env)
        first = before is not self._attached
        num_envs = self.training_env.num_envs
        self._agents = getattr(getattr(self._attached, "part", None), "size", None)
        # learn() has reset the envs already where nobody called attach().
        self._stale = {course.key: np.full(num_envs, first) for course in self.courses}
        self._returns = {course.key: self._window(course) for course in self.courses}
        self._count_on()
        self._record()

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        ended = [(row, infos[row]) for row in np.flatnonzero(self.locals["dones"]).tolist()]
        ended = [(row, info) for row, info in ended if not info.get("inactive")]  # a row that waits for its agent
        begun = self._begun([row for row, _ in ended])
        for course in self.courses:
            criteria = course.lesson.criteria
            if course.is_last or criteria is None:
                continue
            window = self._returns[course.key]
            stale = self._stale[course.key]
            fresh = 0
            for row, info in ended:
                if stale[row]:
                    value = None
                else:
                    value = self._value(criteria.measure, info)
                if value is not None:
                    fresh += 1
                    window.append(value)
            stale[begun] = False
            if len(window) < criteria.min_lesson_length or not (fresh or criteria.measure == "progress"):
                continue
            if criteria.measure == "progress":
                measure = self._progress()
            else:
                measure = float(np.mean(window))
            if course.advance(measure):
                self._returns[course.key] = self._window(course)
                stale[:] = True
                why = f"{criteria.measure} {measure:.3g} of {criteria.threshold:g}"
                self._announce(f"{course}, from {self.num_timesteps} env-steps on ({why})")
                self._record()
        return True

    def _on_rollout_end(self) -> None:
        self._record()

    # -- helpers

    def _begun(self, ended: list[int]) -> list[int]:
        """The rows of envs that were reset since the last step. An agent that ends may come back before its env is."""
        envs = self._reset
        self._reset = set()
        size = self._agents
        if size is None:
            return ended
        return [env * size + agent for env in envs for agent in range(size)]

    def _value(self, measure: str, info: Mapping[str, Any]) -> float | None:
        """What an episode that has just ended counts; None where the env does not say, which is told once."""
        if measure == "progress":
            return 0.0
        if measure == "reward" and "episode" in info:
            return float(info["episode"]["r"])
        if measure == "success" and "is_success" in info:
            return float(bool(info["is_success"]))
        if not self._told and not info.get("engine_lost"):  # such an episode counts for nothing
            self._told = True
            needed = "is_success in the engine's INFO"
            if measure == "reward":
                needed = "an env with monitor=True"
            text = f"the curriculum stays where it is: its measure {measure!r} needs {needed} at an episode's end"
            _log.warning(text)
            self._tell_user(text)
        return None

    def _progress(self) -> float:
        total = self._timesteps or int(getattr(self.model, "_total_timesteps", 0))
        return self.num_timesteps / max(total, 1)

    @staticmethod
    def _window(course: Course) -> deque[float]:
        criteria = course.lesson.criteria
        maxlen = 1
        if criteria:
            maxlen = criteria.min_lesson_length
        return deque(maxlen=maxlen)

    def _record(self) -> None:
        for course in self.courses:
            name = "curriculum"
            if course.key:
                name = f"curriculum/{course.key}"
            self.logger.record(f"{name}/lesson", course.at + 1)

    def _announce(self, text: str) -> None:
        _log.info("%s", text)
        self._tell_user(text)
