"""The lessons of a curriculum as they are given, and when one is learnt."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.system import errors
from ue_rl.training.lessons import Course, parse_curriculum

LESSONS: list[dict[str, Any]] = [
    {
        "name": "low",
        "params": {"height": 1},
        "completion_criteria": {"measure": "reward", "threshold": 0.4, "min_lesson_length": 10},
    },
    {"name": "high", "params": {"height": [2, 3]}},
]


def test_ml_agents_words() -> None:
    (course,) = parse_curriculum({"lessons": LESSONS})
    low, high = course.lessons
    assert (low.name, low.params) == ("low", {"height": (1.0, 1.0)})
    assert low.criteria is not None
    assert (low.criteria.measure, low.criteria.threshold, low.criteria.min_lesson_length) == ("reward", 0.4, 10)
    assert low.criteria.signal_smoothing is True  # ML-Agents' default
    assert (high.params, high.criteria) == ({"height": (2.0, 3.0)}, None)


def test_lessons_for_each_parameter() -> None:
    done = {"measure": "progress", "threshold": 0.5}
    given = {
        "gravity": [{"value": 3, "completion_criteria": done}, {"value": [3, 9]}],
        "wind": {"curriculum": [{"value": 0}]},
    }
    gravity, wind = parse_curriculum(given)
    assert (gravity.key, [lesson.params for lesson in gravity.lessons]) == (
        "gravity",
        [{"gravity": (3.0, 3.0)}, {"gravity": (3.0, 9.0)}],
    )
    assert (wind.key, wind.lessons[0].name) == ("wind", "lesson 1")


def test_what_a_lesson_does_not_name_stays() -> None:
    done = {"measure": "progress", "threshold": 0.5}
    first = {"params": {"gravity": 3, "wind": 0}, "completion_criteria": done}
    (course,) = parse_curriculum([first, {"params": {"wind": 2}}])
    course.at = 1
    assert course.params == {"gravity": (3.0, 3.0), "wind": (2.0, 2.0)}


def lesson(**criteria: Any) -> list[dict[str, Any]]:
    return [{"params": {"g": 1}, "completion_criteria": criteria}]


@pytest.mark.parametrize(
    ("lessons", "said"),
    [
        ([], "a curriculum is a list of lessons"),
        ("low", "a curriculum is a list of lessons"),
        (["low"], "a lesson is a mapping"),
        ([{"name": "low"}], "a lesson has its parameters"),
        ([{"params": {"g": 1}}, {"params": {"g": 2}}], "never ends"),
        ([{"params": {"g": 1}, "completion": 1}], "unknown key.*did you mean 'completion_criteria'"),
        ([{"params": {"g": "much"}}], "not a value of a parameter"),
        ([{"params": {"g": [2, 1]}}], r"\[low, high\] with low <= high"),
        (lesson(measure="sucess", threshold=0.5), "did you mean 'success'"),
        (lesson(measure="success", threshold=1), "is a share, and must be exceeded"),
        (lesson(measure="reward"), "a measure and a threshold"),
        (lesson(measure="reward", threshold=1, min_lesson_length=0), "number of episodes"),
        (lesson(measure="reward", threshold=1, behavior="x"), "unknown key"),
        ({"gravity": [{"params": {"wind": 1}}]}, "a lesson of another parameter"),
        ({"gravity": [{"name": "x"}]}, "a lesson of one parameter has its value"),
    ],
)
def test_what_is_not_a_curriculum_is_refused_by_name(lessons: Any, said: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"(?si){said}"):
        parse_curriculum(lessons)


# -- when a lesson is learnt


def course(**criteria: Any) -> Course:
    done = {"measure": "reward", "threshold": 1.0, **criteria}
    (made,) = parse_curriculum([{"params": {"g": 1}, "completion_criteria": done}, {"params": {"g": 2}}])
    return made


def test_the_threshold_must_be_exceeded() -> None:
    made = course(signal_smoothing=False)
    assert not made.advance(1.0)
    assert made.advance(1.01)
    assert made.is_last
    assert not made.advance(99.0)


def test_smoothing_counts_the_measure_before_by_a_quarter() -> None:
    made = course()
    assert not made.advance(0.0)
    assert not made.advance(1.3)  # 0.975
    assert made.advance(1.1)  # 1.069
    one = course()
    assert one.advance(1.1)  # nothing before it: not 0.825
