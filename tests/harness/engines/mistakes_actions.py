"""Mistakes in what actions do, and to which env."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.harness.engines.right import Answer, Ask, Refused, RightEngine
from tests.harness.engines.ways import instead, way


@instead("one", "one-step-late", "obs", "the observation is the one before the action", certain=False)
def _(engine: RightEngine, one: Callable[[Ask], Answer], ask: Ask) -> Answer:
    old = engine.points[ask.env].observation
    answer = one(ask)
    return answer if ask.action is None else replace(answer, obs=old)


@way("one-step-late", "action", "the action before is applied", certain=False)
def _(engine: RightEngine) -> None:
    act, begin, before = engine.act, engine.begin, [[0.0, 0.0]] * engine.num_envs

    def acts(ask: Ask) -> None:
        assert ask.action is not None
        act(replace(ask, action=before[ask.env]))
        before[ask.env] = ask.action

    def begins(ask: Ask) -> None:
        before[ask.env] = [0.0, 0.0]
        begin(ask)

    engine.act, engine.begin = acts, begins


def _acts_on(env_of: Callable[[RightEngine, int, Ask], int]) -> Callable[..., list[Answer]]:
    """Another env acts than the one that is asked: `env_of` is told the place of the row in the line."""

    def perform(engine: RightEngine, before: Any, asks: list[Ask]) -> list[Answer]:
        for place, ask in enumerate(asks):
            if ask.action is None:
                engine.begin(ask)
            else:
                engine.act(replace(ask, env=env_of(engine, place, ask)))
        return [engine.observe(ask) for ask in asks]

    return perform


instead("perform", "wrong-env-acted", "next", "the env behind it")(
    _acts_on(lambda engine, place, ask: (ask.env + 1) % engine.num_envs)
)
instead("perform", "wrong-env-acted", "swapped", "envs 0 and 1")(
    _acts_on(lambda engine, place, ask: (1, 0, 2)[ask.env])
)
_ROWS = ("row-order", "partial-batch")
instead("perform", "wrong-env-acted", "position", "by the row's place in the line", also=_ROWS)(
    _acts_on(lambda engine, place, ask: place)
)
_OTHERS = ("unasked-env", "wrong-env-acted", "partial-batch")
instead("perform", "row-order", "answers", "rows are read by place, and answered so", also=_OTHERS)(
    lambda engine, perform, asks: perform([replace(ask, env=place) for place, ask in enumerate(asks)])
)


@instead("parse", "row-order", "refused", "rows must come in order")
def _(engine: RightEngine, parse: Callable[..., list[Ask]], data: bytes, own: int | None) -> list[Ask]:
    asks = parse(data, own)
    if [ask.env for ask in asks] != sorted(ask.env for ask in asks):
        raise Refused("rows are out of order")
    return asks


def _taken(action: Callable[[Ask], list[float]]) -> Callable[..., None]:
    """Another action is taken."""
    return lambda engine, act, ask: act(replace(ask, action=action(ask)))


instead("act", "action-ignored", "all", "nothing moves by it")(_taken(lambda ask: [0.3, 0.3]))
instead("act", "action-ignored", "env-2", "in env 2")(
    _taken(lambda ask: [0.3, 0.3] if ask.env == 2 else ask.action or [])
)


@instead("act", "action-ignored", "first", "the first action of an episode is repeated")
def _(engine: RightEngine, act: Callable[[Ask], None], ask: Ask) -> None:
    if engine.points[ask.env].steps == 0:
        engine.kept[ask.env] = ask.action
    act(replace(ask, action=engine.kept[ask.env]))


instead("act", "action-order", "first-only", "the second number is not read", certain=False)(
    _taken(lambda ask: [(ask.action or [0.0])[0], 0.0])
)
_clipped = _taken(lambda ask: [min(max(x, -1.0), 1.0) for x in ask.action or []])
instead("act", "actions-clipped", "both-ends", "the number of -2 to 2 is clipped to -1 to 1", certain=False)(_clipped)


@way("actions-clipped", "unseeded", "the same, and the game takes no seeds", certain=False)
def _(engine: RightEngine) -> None:
    begin = engine.begin
    engine.config = engine.config.replace("OPTIONS,SEED", "OPTIONS")
    engine.act = partial(_clipped, engine, engine.act)
    engine.begin = lambda ask: begin(replace(ask, seed=None))


@way("same-trajectory", "one-state", "all envs share one state", also=("wrong-env-acted", "resets-all"))
def _(engine: RightEngine) -> None:
    engine.points = [engine.points[0]] * engine.num_envs
    engine.perform = partial(_acts_on(lambda engine, place, ask: ask.env), engine, None)
