"""Mistakes in seeds, spaces and values."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.harness.engines.right import Ask, Refused, RightEngine
from tests.harness.engines.ways import Change, Way, collector, config, made, number

if TYPE_CHECKING:
    from collections.abc import Callable


WAYS: list[Way] = []
way = collector(WAYS)


# -- seeds


@way("seed-ignored", "random", "every episode begins somewhere")
def _(engine: RightEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=None))


@way("seed-ignored", "fixed", "every episode with a seed begins at the same place")
def _(engine: RightEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=None if ask.seed is None else 1))


@way("seed-ignored", "clock", "the time is the seed")
def _(engine: RightEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=time.perf_counter_ns()))


@way("seed-ignored", "first-only", "only the first one counts")
def _(engine: RightEngine) -> None:
    begin, seeded = engine.begin, set[int]()

    def begins(ask: Ask) -> None:
        if ask.seed is not None and ask.env in seeded:
            ask = replace(ask, seed=None)
        elif ask.seed is not None:
            seeded.add(ask.env)
        begin(ask)

    engine.begin = begins


@way("seed-ignored", "env-0", "only env 0 is seeded")
def _(engine: RightEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(ask if ask.env == 0 else replace(ask, seed=None))


@way("seed-refused", "32-bits", "a seed beyond 32 bits ends the session")
def _(engine: RightEngine) -> None:
    begin = engine.begin

    def begins(ask: Ask) -> None:
        if ask.seed is not None and ask.seed >= 2**31:
            raise Refused("the seed is too large")
        begin(ask)

    engine.begin = begins


@way("carriers-differ", "env-sockets", "episodes are others on env sockets")
def _(engine: RightEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=ask.seed + 1) if ask.seed is not None and engine._envs else ask)


@way("not-repeatable", "one-generator", "all envs draw from one generator, which each seed seeds")
def _(engine: RightEngine) -> None:
    begin, act, rng = engine.begin, engine.act, random.Random(0)

    def begins(ask: Ask) -> None:
        if ask.seed is not None:
            rng.seed(ask.seed)
        begin(ask)

    def acts(ask: Ask) -> None:
        act(ask)
        engine.points[ask.env].velocity[0] += rng.uniform(-0.01, 0.01)

    engine.begin, engine.act = begins, acts


@way("not-repeatable", "clock", "a step is as long as the time since the last one", also=("seed-ignored",))
def _(engine: RightEngine) -> None:
    act, last = engine.act, [time.perf_counter()]

    def acts(ask: Ask) -> None:
        act(ask)
        now = time.perf_counter()
        engine.points[ask.env].position[1] += min(now - last[0], 0.05)
        last[0] = now

    engine.act = acts


@way("not-repeatable", "length", "the episode's length is not seeded", also=("seed-ignored",))
def _(engine: RightEngine) -> None:
    begin, rng = engine.begin, random.Random()

    def begins(ask: Ask) -> None:
        begin(ask)
        engine.points[ask.env].length = rng.randint(5, 25)

    engine.begin = begins


@way(
    "not-repeatable", "velocity", "the velocity outlives a reset", also=("seed-ignored", "reset-ignored", "stale-reset")
)
def _(engine: RightEngine) -> None:
    begin = engine.begin

    def begins(ask: Ask) -> None:
        old = engine.points[ask.env].velocity
        begin(ask)
        engine.points[ask.env].velocity = old

    engine.begin = begins


# -- spaces and values


def _refusing(says: str, wrong: Callable[[list[float]], bool]) -> Change:
    def change(engine: RightEngine) -> None:
        act = engine.act

        def acts(ask: Ask) -> None:
            if ask.action is not None and wrong(ask.action):
                raise Refused(says)
            act(ask)

        engine.act = acts

    return change


def _dropping(wrong: Callable[[list[float]], bool]) -> Change:
    def change(engine: RightEngine) -> None:
        perform = engine.perform
        engine.perform = lambda asks: perform([ask for ask in asks if ask.action is None or not wrong(ask.action)])

    return change


_TABLE: list[Way] = [
    made("choice-refused", "one-based", "1 to 4 are the choices", choices=True)(
        _refusing("no such action", lambda a: a[0] == 0)
    ),
    made("choice-refused", "last", "the last one", choices=True)(_refusing("no such action", lambda a: a[0] == 3)),
    made("bound-refused", "highest", "the highest number")(_refusing("out of range", lambda a: a[1] >= 2)),
    made("bound-refused", "lowest", "the lowest number, without an answer", also=("no-answer",))(
        _dropping(lambda a: a[0] <= -1)
    ),
    config("outside-obs-space", "narrow", "OBS_SPACE is too narrow", lambda c: c.replace("-5:5", "-0.1:0.1")),
    number(
        "outside-obs-space", "done", "in the last state", lambda a: {"obs": [-9.0, *a.obs[1:]] if a.done else a.obs}
    ),
    number(
        "constant-observation",
        "zeros",
        "all zeros",
        lambda a: {"obs": [0.0] * 6},
        certain=False,
        also=("action-ignored", "reset-ignored", "same-trajectory", "seed-ignored"),
    ),
    number("zero-reward", "all", "every reward", lambda a: {"reward": 0.0}, certain=False),
]


@way("options-refused", "session", "the session ends")
def _(engine: RightEngine) -> None:
    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        if b"OPTIONS" in data:
            raise Refused("what is OPTIONS?")
        return parse(data, own)

    engine.parse = strictly


WAYS += _TABLE
