"""Mistakes in seeds, spaces and values."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from tests.harness.engines.right import Ask, Refused, RightEngine
from tests.harness.engines.ways import config, instead, number, way

Begin = Callable[[Ask], None]


# -- seeds


def _seeded(mistake: str, name: str, says: str, seed: Callable[[RightEngine, Ask], int | None]) -> None:
    """An episode begins with another seed, None: with the next random numbers."""
    instead("begin", mistake, name, says)(lambda engine, begin, ask: begin(replace(ask, seed=seed(engine, ask))))


def _first_only(engine: RightEngine, ask: Ask) -> int | None:
    return ask.seed if ask.seed is not None and engine.kept.setdefault(ask.env, ask) is ask else None


_seeded("seed-ignored", "random", "every episode begins somewhere", lambda engine, ask: None)
_seeded(
    "seed-ignored", "fixed", "every episode with a seed begins at the same place",
    lambda engine, ask: None if ask.seed is None else 1,
)  # fmt: skip
_seeded("seed-ignored", "clock", "the time is the seed", lambda engine, ask: time.perf_counter_ns())
_seeded("seed-ignored", "first-only", "only the first one counts", _first_only)
_seeded("seed-ignored", "env-0", "only env 0 is seeded", lambda engine, ask: ask.seed if ask.env == 0 else None)


@instead("begin", "seed-refused", "32-bits", "a seed beyond 32 bits ends the session")
def _(engine: RightEngine, begin: Begin, ask: Ask) -> None:
    if ask.seed is not None and ask.seed >= 2**31:
        raise Refused("the seed is too large")
    begin(ask)


_seeded(
    "carriers-differ", "env-sockets", "episodes are others on env sockets",
    lambda engine, ask: ask.seed + 1 if ask.seed is not None and engine.env_socks else ask.seed,
)  # fmt: skip


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


@instead("act", "not-repeatable", "clock", "a step is as long as the time since the last one", also=("seed-ignored",))
def _(engine: RightEngine, act: Callable[[Ask], None], ask: Ask) -> None:
    act(ask)
    now = time.perf_counter()
    engine.points[ask.env].position[1] += min(now - engine.kept.get("last", now), 0.05)
    engine.kept["last"] = now


@instead("begin", "not-repeatable", "length", "the episode's length is not seeded", also=("seed-ignored",))
def _(engine: RightEngine, begin: Begin, ask: Ask) -> None:
    begin(ask)
    engine.points[ask.env].length = random.randint(5, 25)


_OTHERS = ("seed-ignored", "reset-ignored", "stale-reset")


@instead("begin", "not-repeatable", "velocity", "the velocity outlives a reset", also=_OTHERS)
def _(engine: RightEngine, begin: Begin, ask: Ask) -> None:
    old = engine.points[ask.env].velocity
    begin(ask)
    engine.points[ask.env].velocity = old


# -- spaces and values


def _refuses(mistake: str, name: str, says: str, wrong: Callable[[list[float]], bool], **needs: bool) -> None:
    """An action that is wrong ends the session."""

    @instead("act", mistake, name, says, **needs)
    def _(engine: RightEngine, act: Callable[[Ask], None], ask: Ask) -> None:
        if ask.action is not None and wrong(ask.action):
            raise Refused("no such action")
        act(ask)


_refuses("choice-refused", "one-based", "1 to 4 are the choices", lambda a: a[0] == 0, choices=True)
_refuses("choice-refused", "last", "the last one", lambda a: a[0] == 3, choices=True)
_refuses("bound-refused", "highest", "the highest number", lambda a: a[1] >= 2)
instead("perform", "bound-refused", "lowest", "the lowest number, without an answer", also=("no-answer",))(
    lambda engine, perform, asks: perform([ask for ask in asks if ask.action is None or ask.action[0] > -1])
)
config("outside-obs-space", "narrow", "OBS_SPACE is too narrow", lambda c: c.replace("-5:5", "-0.1:0.1"))
number("outside-obs-space", "done", "in the last state", lambda a: {"obs": [-9.0, *a.obs[1:]] if a.done else a.obs})
_FOLLOWS = ("action-ignored", "reset-ignored", "same-trajectory", "seed-ignored")
number("constant-observation", "zeros", "all zeros", lambda a: {"obs": [0.0] * 6}, certain=False, also=_FOLLOWS)
number(
    "constant-observation", "env-1", "all zeros, of env 1", lambda a: {"obs": [0.0] * 6 if a.env == 1 else a.obs},
    certain=False, also=_FOLLOWS,
)  # fmt: skip
number("zero-reward", "all", "every reward", lambda a: {"reward": 0.0}, certain=False)


@instead("parse", "options-refused", "session", "the session ends")
def _(engine: RightEngine, parse: Callable[..., list[Ask]], data: bytes, own: int | None) -> list[Ask]:
    if b"OPTIONS" in data:
        raise Refused("what is OPTIONS?")
    return parse(data, own)
