"""The lessons of a curriculum, as a YAML file or a script gives them; the words are those of ML-Agents. No SB3 here.

A list of lessons for all parameters together, or a mapping of parameters to such lists:

    curriculum:
      - name: near
        params: {distance: 2}
        completion_criteria: {measure: success, threshold: 0.8, min_lesson_length: 50}
      - name: far
        params: {distance: [5, 10]}

    curriculum:
      gravity:
        - {value: 3, completion_criteria: {measure: progress, threshold: 0.3}}
        - {value: [3, 9.8]}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ue_rl.protocol.calls.parameters import Range, as_ranges, shown
from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.system.known import require_known

MEASURES = ("reward", "progress", "success")
_LESSON_KEYS = ("name", "params", "value", "completion_criteria")


@dataclass(frozen=True)
class Criteria:
    """When a lesson is learnt: the measure exceeds the threshold.

    Args:
        measure: reward: mean return of the last `min_lesson_length` episodes; success: the share of them whose info
            has a true `is_success`; progress: the share of the run's env-steps that are done, from 0 to 1.
        threshold: see measure. min_lesson_length: episodes, of all envs together, that a lesson has at least.
        signal_smoothing: count the measure of the check before by a quarter (reward and success).
    """

    measure: str
    threshold: float
    min_lesson_length: int = 1
    signal_smoothing: bool = True

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            cure = nearest(str(self.measure), MEASURES)
            raise _invalid("no such measure", "measure", ", ".join(MEASURES), self.measure, cure)
        number = isinstance(self.threshold, (int, float)) and not isinstance(self.threshold, bool)
        if not number or not math.isfinite(self.threshold):
            raise _invalid("a threshold is a number", "threshold", got=repr(self.threshold))
        if self.measure != "reward" and not 0 <= self.threshold < 1:
            raise _invalid(
                "this threshold is a share, and must be exceeded",
                "threshold",
                "0 or more, and less than 1",
                self.threshold,
            )
        length = self.min_lesson_length
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise _invalid("must be a number of episodes", "min_lesson_length", "1 or more", length)
        if not isinstance(self.signal_smoothing, bool):
            raise _invalid("must be true or false", "signal_smoothing", got=self.signal_smoothing)


@dataclass(frozen=True)
class Lesson:
    """Parameters that hold until the criteria are met; the last lesson has none."""

    name: str
    params: Mapping[str, Range]
    criteria: Criteria | None = None


@dataclass
class Course:
    """Lessons one after the other, and where a run is in them.

    Attributes:
        key: the parameter that they are about; "" for all. at: index of the present lesson.
        smoothed: the measure of the check before, None at the beginning of a lesson.
    """

    key: str
    lessons: tuple[Lesson, ...]
    at: int = 0
    smoothed: float | None = None

    @property
    def lesson(self) -> Lesson:
        """The present one."""
        return self.lessons[self.at]

    @property
    def params(self) -> dict[str, Range]:
        """What holds now: what a lesson does not name stays as in the lessons before it."""
        return {name: value for lesson in self.lessons[: self.at + 1] for name, value in lesson.params.items()}

    @property
    def is_last(self) -> bool:
        """Whether no lesson follows."""
        return self.at == len(self.lessons) - 1

    def advance(self, measure: float) -> bool:
        """Goes on to the next lesson if `measure` meets the criteria; whether it did."""
        criteria = self.lesson.criteria
        if self.is_last or criteria is None:
            return False
        if criteria.signal_smoothing and criteria.measure != "progress":
            # ML-Agents begins with 0, which hides a threshold below it; the first measure counts as it is here.
            if self.smoothed is not None:
                measure = 0.25 * self.smoothed + 0.75 * measure
            self.smoothed = measure
        if not measure > criteria.threshold:
            return False
        self.at = self.at + 1
        self.smoothed = None
        return True

    def __str__(self) -> str:
        values = ", ".join(f"{name} {shown(*value)}" for name, value in self.params.items())
        about = ""
        if self.key:
            about = f"{self.key}: "
        return f"{about}lesson {self.at + 1} of {len(self.lessons)}, {self.lesson.name!r}: {values}"


def parse_curriculum(given: Any) -> list[Course]:
    """The courses of a `curriculum:`; see the module.

    Raises:
        ConfigurationError: an unknown key, a lesson without parameters or criteria, or what Criteria refuses.
    """
    if isinstance(given, Mapping) and set(given) == {"lessons"}:
        given = given["lessons"]
    if isinstance(given, Mapping):
        courses = []
        for name, value in given.items():
            nested = isinstance(value, Mapping) and len(value) == 1 and set(value) <= {"lessons", "curriculum"}
            if nested:
                lessons = next(iter(value.values()))
            else:
                lessons = value
            courses.append(_course(lessons, str(name)))
        return courses
    return [_course(given, "")]


def ranges_of(courses: Iterable[Course]) -> list[tuple[str, Mapping[str, Range]]]:
    """(where, parameters) of every lesson, to be checked against the engine."""
    return [(f"curriculum, lesson {lesson.name!r}", lesson.params) for course in courses for lesson in course.lessons]


def _course(lessons: Any, key: str) -> Course:
    if not isinstance(lessons, (list, tuple)) or not lessons:
        field = key
        if not field:
            field = "curriculum"
        raise _invalid("a curriculum is a list of lessons", field, got=lessons)
    made = [_lesson(lesson, key, number) for number, lesson in enumerate(lessons, 1)]
    for lesson in made[:-1]:
        if lesson.criteria is None:
            cure = "say when it is learnt; only the last lesson needs no completion_criteria"
            raise _invalid(f"the lesson {lesson.name!r} never ends", "completion_criteria", cure=cure)
    return Course(key, tuple(made))


def _lesson(given: Any, key: str, number: int) -> Lesson:
    if key:
        where = f"{key}.lesson {number}"
    else:
        where = f"lesson {number}"
    if not isinstance(given, Mapping):
        raise _invalid("a lesson is a mapping", where, ", ".join(_LESSON_KEYS), given)
    require_known(given, _LESSON_KEYS, "an unknown key", f"curriculum: {where}")
    if key and ("value" in given) == ("params" in given):
        raise _invalid(f"a lesson of one parameter has its value: {key}", where, "value: a number or [low, high]")
    if not key and ("value" in given or not given.get("params")):
        raise _invalid("a lesson has its parameters", where, "params: {name: value}", dict(given))
    if "value" in given:
        values = {key: given["value"]}
    else:
        values = given["params"]
    params = as_ranges(values, where)
    if key and set(params) != {key}:
        raise _invalid("a lesson of another parameter", where, key, ", ".join(params))
    criteria = given.get("completion_criteria")
    if criteria is not None:
        if isinstance(criteria, Mapping):
            require_known(criteria, tuple(Criteria.__dataclass_fields__), "an unknown key", f"curriculum: {where}")
        if not isinstance(criteria, Mapping) or not {"measure", "threshold"} <= set(criteria):
            raise _invalid("completion_criteria has a measure and a threshold", where, got=criteria)
        try:
            criteria = Criteria(**criteria)
        except ConfigurationError as error:
            error.field = f"curriculum: {where}.{str(error.field).removeprefix('curriculum: ')}"
            raise
    return Lesson(str(given.get("name", f"lesson {number}")), params, criteria)


def _invalid(
    what: str, where: str, expected: Any = None, got: Any = None, cure: str | None = None
) -> ConfigurationError:
    if where.startswith("curriculum"):
        field = where
    else:
        field = f"curriculum: {where}"
    return ConfigurationError(
        what,
        field=field,
        expected=expected,
        got=got,
        cure=cure,
    )
