"""Mistakes in numbers: how many there are, and how they are written."""

from __future__ import annotations

import re

from tests.harness.engines.right import Answer
from tests.harness.engines.ways import (
    Way,
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


WAYS: list[Way] = [
    row(
        "wrong-count",
        "one-less",
        "the last number is missing",
        lambda t, a: with_numbers(t, numbers_of(t).rpartition(",")[0]),
    ),
    row("wrong-count", "one-more", "a number too many", lambda t, a: with_numbers(t, numbers_of(t) + ",0.5")),
    row(
        "wrong-count",
        "env-1",
        "in env 1 alone",
        sometimes(lambda t, a: with_numbers(t, numbers_of(t) + ",0.5"), _second),
    ),
    row(
        "wrong-count",
        "reset",
        "in answers to resets",
        sometimes(lambda t, a: with_numbers(t, "0,0"), lambda a: a.reset),
    ),
    row("wrong-count", "done", "in the last state", sometimes(lambda t, a: with_numbers(t, "0,0"), lambda a: a.done)),
    row("wrong-count", "late", "after 15 steps", sometimes(lambda t, a: with_numbers(t, numbers_of(t) + ",1"), _late)),
    row(
        "wrong-count",
        "comma",
        "a comma behind the last",
        lambda t, a: with_numbers(t, numbers_of(t) + ","),
        also=("not-a-number",),
    ),
    row(
        "wrong-count",
        "doubled",
        "each observation twice",
        lambda t, a: with_numbers(t, f"{numbers_of(t)},{numbers_of(t)}"),
    ),
    config("wrong-count", "announced", "OBS is wrong", lambda c: c.replace("OBS=6", "OBS=5")),
    row("wrong-count", "none", "OBS is empty", lambda t, a: with_numbers(t, ""), also=("not-a-number",)),
    # numbers
    row("decimal-comma", "all", "all numbers", lambda t, a: _commas(t)),
    row(
        "decimal-comma", "reward", "the reward", lambda t, a: t.replace(field_of(t, "REW"), _commas(field_of(t, "REW")))
    ),
    row("decimal-comma", "obs", "the observation", lambda t, a: with_numbers(t, _commas(numbers_of(t)))),
    row("decimal-comma", "env-1", "in env 1", sometimes(lambda t, a: _commas(t), _second)),
    row(
        "decimal-comma",
        "semicolons",
        "numbers separated by semicolons",
        lambda t, a: with_numbers(t, _commas(numbers_of(t).replace(",", ";"))),
    ),
    row(
        "decimal-comma",
        "two-decimals",
        "with two decimals",
        lambda t, a: _commas(_REAL.sub(lambda n: f"{float(n[0]):.2f}" if "." in n[0] else n[0], t)),
    ),
    row("not-a-number", "none", "None", lambda t, a: with_numbers(t, numbers_of(t).rpartition(",")[0] + ",None")),
    row("reward-not-a-number", "text", "good", lambda t, a: t.replace(field_of(t, "REW"), "REW=good")),
    row("nan", "obs", "in the observation", lambda t, a: with_numbers(t, numbers_of(t).rpartition(",")[0] + ",nan")),
    row(
        "nan",
        "late",
        "after 15 steps",
        sometimes(lambda t, a: with_numbers(t, numbers_of(t).rpartition(",")[0] + ",nan"), _late),
    ),
    row("nan", "reward", "an infinite reward", lambda t, a: t.replace(field_of(t, "REW"), "REW=-inf")),
    row(
        "nan",
        "done",
        "in the last state",
        sometimes(lambda t, a: with_numbers(t, "nan,nan,nan,nan,nan,nan"), lambda a: a.done),
    ),
    row(
        "nan",
        "windows",
        "as Windows writes it",
        lambda t, a: with_numbers(t, numbers_of(t).rpartition(",")[0] + ",-nan(ind)"),
        also=("not-a-number",),
    ),
    row("nan", "huge", "1e39", lambda t, a: with_numbers(t, numbers_of(t).rpartition(",")[0] + ",1e39")),
    row("nan", "env-1", "in env 1", sometimes(lambda t, a: t.replace(field_of(t, "REW"), "REW=NaN"), _second)),
    number(
        "rounded",
        "three",
        "to three decimals",
        lambda a: {"obs": [round(x, 3) for x in a.obs], "reward": round(a.reward, 3)},
        certain=False,
    ),
    number("rounded", "f", "%f", lambda a: {"obs": [float(f"{x:f}") for x in a.obs]}, certain=False),
    number(
        "rounded",
        "stream",
        "six digits, as C++ streams write",
        lambda a: {"obs": [float(f"{x:g}") for x in a.obs]},
        certain=False,
    ),
    number(
        "two-decimals",
        "all",
        "observation and reward",
        lambda a: {"obs": [round(x, 2) for x in a.obs], "reward": round(a.reward, 2)},
        certain=False,
    ),
]
