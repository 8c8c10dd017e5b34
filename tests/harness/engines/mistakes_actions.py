"""Mistakes in what actions do, and to which env."""

from __future__ import annotations

from dataclasses import replace

from tests.harness.engines.right import Answer, Ask, Refused, RightEngine
from tests.harness.engines.ways import Way, collector

WAYS: list[Way] = []
way = collector(WAYS)


@way("one-step-late", "obs", "the observation is the one before the action", certain=False)
def _(engine: RightEngine) -> None:
    one = engine.one

    def late(ask: Ask) -> Answer:
        old = engine.points[ask.env].observation
        answer = one(ask)
        return answer if ask.action is None else replace(answer, obs=old)

    engine.one = late


@way("one-step-late", "action", "the action before is applied", certain=False)
def _(engine: RightEngine) -> None:
    act, before = engine.act, [[0.0, 0.0]] * engine.num_envs
    begin = engine.begin

    def acts(ask: Ask) -> None:
        assert ask.action is not None
        act(replace(ask, action=before[ask.env]))
        before[ask.env] = ask.action

    def begins(ask: Ask) -> None:
        before[ask.env] = [0.0, 0.0]
        begin(ask)

    engine.act, engine.begin = acts, begins


@way("wrong-env-acted", "next", "the env behind it")
def _(engine: RightEngine) -> None:
    act = engine.act

    def perform(asks: list[Ask]) -> list[Answer]:
        for ask in asks:
            if ask.action is None:
                engine.begin(ask)
            else:
                act(replace(ask, env=(ask.env + 1) % engine.num_envs))
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


@way("wrong-env-acted", "swapped", "envs 0 and 1")
def _(engine: RightEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        for ask in asks:
            if ask.action is None:
                engine.begin(ask)
            else:
                engine.act(replace(ask, env=(1, 0, 2)[ask.env]))
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


@way("wrong-env-acted", "position", "by the row's place in the line", also=("row-order", "partial-batch"))
def _(engine: RightEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        for place, ask in enumerate(asks):
            if ask.action is None:
                engine.begin(ask)
            else:
                engine.act(replace(ask, env=place))
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


@way(
    "row-order",
    "answers",
    "rows are read by place, and answered so",
    also=("unasked-env", "wrong-env-acted", "partial-batch"),
)
def _(engine: RightEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: perform([replace(ask, env=place) for place, ask in enumerate(asks)])


@way("row-order", "refused", "rows must come in order")
def _(engine: RightEngine) -> None:
    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        asks = parse(data, own)
        if [ask.env for ask in asks] != sorted(ask.env for ask in asks):
            raise Refused("rows are out of order")
        return asks

    engine.parse = strictly


@way("action-ignored", "all", "nothing moves by it")
def _(engine: RightEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[0.3, 0.3]))


@way("action-ignored", "env-2", "in env 2")
def _(engine: RightEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[0.3, 0.3]) if ask.env == 2 else ask)


@way("action-ignored", "first", "the first action of an episode is repeated")
def _(engine: RightEngine) -> None:
    act, held = engine.act, {}

    def acts(ask: Ask) -> None:
        if engine.points[ask.env].steps == 0:
            held[ask.env] = ask.action
        act(replace(ask, action=held[ask.env]))

    engine.act = acts


@way("action-order", "first-only", "the second number is not read", certain=False)
def _(engine: RightEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[(ask.action or [0.0])[0], 0.0]))


def _clipped(engine: RightEngine, least: float) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[min(max(x, least), 1.0) for x in ask.action or []]))


@way("actions-clipped", "both-ends", "the number of -2 to 2 is clipped to -1 to 1", certain=False)
def _(engine: RightEngine) -> None:
    _clipped(engine, -1.0)


@way("actions-clipped", "unseeded", "the same, and the game takes no seeds", certain=False)
def _(engine: RightEngine) -> None:
    _clipped(engine, -1.0)
    _unseeded(engine)


@way("same-trajectory", "one-state", "all envs share one state", also=("wrong-env-acted", "resets-all"))
def _(engine: RightEngine) -> None:
    engine.points = [engine.points[0]] * engine.num_envs

    def perform(asks: list[Ask]) -> list[Answer]:
        for ask in asks:
            (engine.begin if ask.action is None else engine.act)(ask)
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


def _unseeded(engine: RightEngine) -> None:
    engine.config = engine.config.replace("OPTIONS,SEED", "OPTIONS")
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=None))
