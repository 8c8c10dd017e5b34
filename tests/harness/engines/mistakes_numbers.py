"""Mistakes in numbers: how many there are, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.harness.engines.right import Answer
from tests.harness.engines.ways import (
    Edit,
    config,
    field_of,
    number,
    numbers_of,
    row,
    sometimes,
    with_numbers,
)

_REAL = re.compile(r"(?<=[=,])-?\d[\d.e+-]*")


def _commas(text: str) -> str:
    return text.replace(".", ",")


def _second(answer: Answer) -> bool:
    return answer.env == 1


def _late(answer: Answer) -> bool:
    return answer.steps >= 15


def _numbers(edit: Callable[[str], str]) -> Edit:
    """The observation is written otherwise."""
    return lambda text, answer: with_numbers(text, edit(numbers_of(text)))


def _last(word: str) -> Edit:
    """This stands in place of the last number."""
    return _numbers(lambda numbers: f"{numbers.rpartition(',')[0]},{word}")


def _reward(word: str) -> Edit:
    return lambda text, answer: text.replace(field_of(text, "REW"), f"REW={word}")


def _two_decimals(text: str, answer: Answer) -> str:
    return _commas(_REAL.sub(lambda n: f"{float(n[0]):.2f}" if "." in n[0] else n[0], text))


_one_more, _two = _numbers(lambda n: f"{n},0.5"), _numbers(lambda n: "0,0")
row("wrong-count", "one-less", "the last number is missing", _numbers(lambda n: n.rpartition(",")[0]))
row("wrong-count", "one-more", "a number too many", _one_more)
row("wrong-count", "env-1", "in env 1 alone", sometimes(_one_more, _second))
row("wrong-count", "reset", "in answers to resets", sometimes(_two, lambda a: a.reset))
row("wrong-count", "done", "in the last state", sometimes(_two, lambda a: a.done))
row("wrong-count", "late", "after 15 steps", sometimes(_one_more, _late))
row("wrong-count", "comma", "a comma behind the last", _numbers(lambda n: f"{n},"), also=("not-a-number",))
row("wrong-count", "doubled", "each observation twice", _numbers(lambda n: f"{n},{n}"))
config("wrong-count", "announced", "OBS is wrong", lambda c: c.replace("OBS=6", "OBS=5"))
row("wrong-count", "none", "OBS is empty", _numbers(lambda n: ""), also=("not-a-number",))
# how they are written
row("decimal-comma", "all", "all numbers", lambda t, a: _commas(t))
row("decimal-comma", "reward", "the reward", lambda t, a: t.replace(field_of(t, "REW"), _commas(field_of(t, "REW"))))
row("decimal-comma", "obs", "the observation", _numbers(_commas))
row("decimal-comma", "env-1", "in env 1", sometimes(lambda t, a: _commas(t), _second))
_semicolons = _numbers(lambda n: _commas(n.replace(",", ";")))
row("decimal-comma", "semicolons", "numbers separated by semicolons", _semicolons)
row("decimal-comma", "two-decimals", "with two decimals", _two_decimals)
row("not-a-number", "none", "None", _last("None"))
row("reward-not-a-number", "text", "good", _reward("good"))
row("nan", "obs", "in the observation", _last("nan"))
row("nan", "late", "after 15 steps", sometimes(_last("nan"), _late))
row("nan", "reward", "an infinite reward", _reward("-inf"))
row("nan", "done", "in the last state", sometimes(_numbers(lambda n: "nan,nan,nan,nan,nan,nan"), lambda a: a.done))
row("nan", "windows", "as Windows writes it", _last("-nan(ind)"), also=("not-a-number",))
row("nan", "huge", "1e39", _last("1e39"))
row("nan", "env-1", "in env 1", sometimes(_reward("NaN"), _second))


def _rounded(mistake: str, name: str, says: str, change: Callable[[float], float], reward: bool) -> None:
    def edit(answer: Answer) -> dict[str, object]:
        rounded = {"obs": [change(x) for x in answer.obs]}
        return rounded | {"reward": change(answer.reward)} if reward else rounded

    number(mistake, name, says, edit, certain=False)


_rounded("rounded", "three", "to three decimals", lambda x: round(x, 3), reward=True)
_rounded("rounded", "f", "%f", lambda x: float(f"{x:f}"), reward=False)
_rounded("rounded", "stream", "six digits, as C++ streams write", lambda x: float(f"{x:g}"), reward=False)
_rounded("two-decimals", "all", "observation and reward", lambda x: round(x, 2), reward=True)
