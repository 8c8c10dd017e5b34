"""Mistakes in what an engine does with resets, actions, envs, seeds and values."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ue_rl.testing.engines.ways import Change, Way, collector, config, made, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from ue_rl.testing.engines.mistaken import Answer, Ask, MistakenEngine

_WAYS: list[Way] = []


way = collector(_WAYS)


def _unless(engine: MistakenEngine, cond: Callable[[Ask], bool]) -> None:
    """Resets for which `cond` holds do nothing."""
    begin = engine.begin
    engine.begin = lambda ask: None if cond(ask) else begin(ask)


# -- resets


@way("reset-ignored", "state", "the answer is the present state")
def _(engine: MistakenEngine) -> None:
    engine.begin = lambda ask: None


@way("reset-ignored", "zero-step", "a step with zeros is taken")
def _(engine: MistakenEngine) -> None:
    engine.begin = lambda ask: engine.points[ask.env].step([0.0, 0.0])


@way("reset-ignored", "no-answer", "nothing comes", also=("no-answer", "env-never-answered"))
def _(engine: MistakenEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: perform([ask for ask in asks if ask.action is not None])


@way("reset-ignored", "mid-episode", "unless the episode is over")
def _(engine: MistakenEngine) -> None:
    _unless(engine, lambda ask: engine.points[ask.env].steps > 0 and not engine.points[ask.env].done)


@way("reset-ignored", "env-1", "in env 1")
def _(engine: MistakenEngine) -> None:
    _unless(engine, lambda ask: ask.env == 1)


@way("reset-ignored", "flag-only", "DONE is cleared, and the point stays where it is")
def _(engine: MistakenEngine) -> None:
    def begin(ask: Ask) -> None:
        point = engine.points[ask.env]
        point.done = point.truncated = False
        point.steps = 0

    engine.begin = begin


@way("resets-all", "all", "all envs begin anew")
def _(engine: MistakenEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        if any(ask.action is None for ask in asks):
            for point in engine.points:
                point.reset()
        return before(asks)

    before, engine.perform = engine.perform, perform


@way("resets-all", "next", "the next env begins anew, too")
def _(engine: MistakenEngine) -> None:
    begin = engine.begin

    def both(ask: Ask) -> None:
        begin(ask)
        engine.points[(ask.env + 1) % engine.num_envs].reset()

    engine.begin = both


def _self_reset(engine: MistakenEngine, shows_next: bool) -> None:
    observe = engine.observe
    fresh = [False] * engine.num_envs

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        if answer.done:
            engine.points[ask.env].reset()
            fresh[ask.env] = True
            if shows_next:
                return replace(answer, obs=engine.points[ask.env].observation)
        return answer

    engine.observe = seen
    begin = engine.begin

    def begins(ask: Ask) -> None:
        if not fresh[ask.env] or ask.seed is not None:
            begin(ask)
        fresh[ask.env] = False

    engine.begin = begins


@way("resets-itself", "shows-next", "the last state has the next episode's first observation, as vector envs do")
def _(engine: MistakenEngine) -> None:
    _self_reset(engine, shows_next=True)


@way("resets-itself", "silently", "right behind the last state; the RESET that comes then changes nothing")
def _(engine: MistakenEngine) -> None:
    _self_reset(engine, shows_next=False)


@way("resets-itself", "twice", "and once more when the RESET comes")
def _(engine: MistakenEngine) -> None:
    observe = engine.observe

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        if answer.done:
            engine.points[ask.env].reset()
            return replace(answer, obs=engine.points[ask.env].observation)
        return answer

    engine.observe = seen


@way("stale-reset", "all", "the observation is the one before the reset")
def _(engine: MistakenEngine) -> None:
    one = engine.one

    def stale(ask: Ask) -> Answer:
        old = engine.points[ask.env].observation
        answer = one(ask)
        return replace(answer, obs=old) if ask.action is None else answer

    engine.one = stale


@way("stale-reset", "velocity", "some numbers are those from before the reset")
def _(engine: MistakenEngine) -> None:
    one = engine.one

    def stale(ask: Ask) -> Answer:
        old = engine.points[ask.env].observation
        answer = one(ask)
        return replace(answer, obs=old[:4] + answer.obs[4:]) if ask.action is None else answer

    engine.one = stale


@way("done-after-reset", "for-ever", "DONE stays 1")
def _(engine: MistakenEngine) -> None:
    observe, ever = engine.observe, [False] * engine.num_envs

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        ever[ask.env] = ever[ask.env] or answer.done
        return replace(answer, done=ever[ask.env])

    engine.observe = seen


@way("done-after-reset", "one-step", "until the first step has been answered")
def _(engine: MistakenEngine) -> None:
    observe, over = engine.observe, [False] * engine.num_envs

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        was = over[ask.env]
        if not answer.reset:
            over[ask.env] = answer.done
        return replace(answer, done=was or answer.done)

    engine.observe = seen


@way("done-after-reset", "counter", "the count of steps goes on, so that every step is the last one")
def _(engine: MistakenEngine) -> None:
    steps = [0] * engine.num_envs
    observe = engine.observe

    def seen(ask: Ask) -> Answer:
        steps[ask.env] += ask.action is not None
        answer = observe(ask)
        over = steps[ask.env] >= 25
        return replace(answer, done=answer.done or over, truncated=answer.truncated or (over and not answer.done))

    engine.observe = seen


@way("never-done", "all", "DONE is always 0", certain=False)
def _(engine: MistakenEngine) -> None:
    for point in engine.points:
        _endless(point)

    def begin(ask: Ask) -> None:
        engine.points[ask.env].reset(ask.seed)
        _endless(engine.points[ask.env])

    engine.begin = begin


def _endless(point: Any) -> None:
    point.length = 10**9
    point.goal = [4.5, 4.5]


# -- actions and envs


@way("one-step-late", "obs", "the observation is the one before the action", also=("action-ignored",))
def _(engine: MistakenEngine) -> None:
    one = engine.one

    def late(ask: Ask) -> Answer:
        old = engine.points[ask.env].observation
        answer = one(ask)
        return answer if ask.action is None else replace(answer, obs=old)

    engine.one = late


@way("one-step-late", "action", "the action before is applied")
def _(engine: MistakenEngine) -> None:
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
def _(engine: MistakenEngine) -> None:
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
def _(engine: MistakenEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        for ask in asks:
            if ask.action is None:
                engine.begin(ask)
            else:
                engine.act(replace(ask, env=(1, 0, 2)[ask.env]))
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


@way("wrong-env-acted", "first", "env 0 alone, whichever is named", also=("action-ignored",))
def _(engine: MistakenEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, env=0))


@way("wrong-env-acted", "position", "by the row's place in the line", also=("row-order", "partial-batch"))
def _(engine: MistakenEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        for place, ask in enumerate(asks):
            if ask.action is None:
                engine.begin(ask)
            else:
                engine.act(replace(ask, env=place))
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


@way(
    "wrong-env-acted",
    "reset-position",
    "resets go by the row's place",
    also=("row-order", "partial-batch", "mixed-batch", "resets-all", "reset-ignored"),
)
def _(engine: MistakenEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        for place, ask in enumerate(asks):
            if ask.action is None:
                engine.begin(replace(ask, env=place))
            else:
                engine.act(ask)
        return [engine.observe(ask) for ask in asks]

    engine.perform = perform


@way(
    "row-order",
    "answers",
    "rows are read by place, and answered so",
    also=("unasked-env", "wrong-env-acted", "partial-batch"),
)
def _(engine: MistakenEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: perform([replace(ask, env=place) for place, ask in enumerate(asks)])


@way("row-order", "refused", "rows must come in order")
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Refused

    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        asks = parse(data, own)
        if [ask.env for ask in asks] != sorted(ask.env for ask in asks):
            raise Refused("rows are out of order")
        return asks

    engine.parse = strictly


@way("action-ignored", "all", "nothing moves by it")
def _(engine: MistakenEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[0.3, 0.3]))


@way("action-ignored", "drift", "the point moves by itself, as its seed says")
def _(engine: MistakenEngine) -> None:
    act = engine.act

    def own(ask: Ask) -> None:
        rng = engine.points[ask.env].rng
        act(replace(ask, action=[rng.uniform(-1, 1), rng.uniform(-2, 2)]))

    engine.act = own


@way("action-ignored", "env-2", "in env 2")
def _(engine: MistakenEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[0.3, 0.3]) if ask.env == 2 else ask)


@way("action-ignored", "first", "the first action of an episode is repeated")
def _(engine: MistakenEngine) -> None:
    act, held = engine.act, {}

    def acts(ask: Ask) -> None:
        if engine.points[ask.env].steps == 0:
            held[ask.env] = ask.action
        act(replace(ask, action=held[ask.env]))

    engine.act = acts


@way("action-order", "first-only", "the second number is not read", also=("action-ignored",))
def _(engine: MistakenEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[(ask.action or [0.0])[0], 0.0]))


@way("action-order", "first-twice", "the first number is used twice", also=("action-ignored",))
def _(engine: MistakenEngine) -> None:
    act = engine.act
    engine.act = lambda ask: act(replace(ask, action=[(ask.action or [0.0])[0]] * 2))


@way("same-trajectory", "one-state", "all envs share one state", also=("wrong-env-acted", "resets-all"))
def _(engine: MistakenEngine) -> None:
    engine.points = [engine.points[0]] * engine.num_envs


@way("same-trajectory", "first-answers", "all answer with env 0's state", also=("wrong-env-acted", "action-ignored"))
def _(engine: MistakenEngine) -> None:
    observe = engine.observe

    def perform(asks: list[Ask]) -> list[Answer]:
        for ask in asks:
            (engine.begin if ask.action is None else engine.act)(ask)
        return [replace(observe(replace(ask, env=0)), env=ask.env) for ask in asks]

    engine.perform = perform


@way("same-trajectory", "one-generator", "all envs have the same seed, and begin alike", certain=False)
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.point import Point

    engine.points = [Point(0) for _ in range(engine.num_envs)]
    _unseeded(engine)


def _unseeded(engine: MistakenEngine) -> None:
    engine.config = engine.config.replace("OPTIONS,SEED", "OPTIONS")
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=None))


# -- seeds


@way("seed-ignored", "random", "every episode begins somewhere")
def _(engine: MistakenEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=None))


@way("seed-ignored", "fixed", "every episode begins at the same place")
def _(engine: MistakenEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=1))


@way("seed-ignored", "clock", "the time is the seed")
def _(engine: MistakenEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(replace(ask, seed=time.perf_counter_ns()))


@way("seed-ignored", "first-only", "only the first one counts")
def _(engine: MistakenEngine) -> None:
    begin, seeded = engine.begin, set[int]()

    def begins(ask: Ask) -> None:
        if ask.seed is not None and ask.env in seeded:
            ask = replace(ask, seed=None)
        elif ask.seed is not None:
            seeded.add(ask.env)
        begin(ask)

    engine.begin = begins


@way("seed-ignored", "env-0", "only env 0 is seeded")
def _(engine: MistakenEngine) -> None:
    begin = engine.begin
    engine.begin = lambda ask: begin(ask if ask.env == 0 else replace(ask, seed=None))


@way(
    "seed-ignored",
    "shared",
    "one generator for all envs, seeded by each reset",
    also=("not-repeatable", "carriers-differ"),
)
def _(engine: MistakenEngine) -> None:
    for point in engine.points:
        point.rng = engine.points[0].rng

    def begins(ask: Ask) -> None:
        if ask.seed is not None:
            shared = random.Random(ask.seed)
            for point in engine.points:
                point.rng = shared
        engine.points[ask.env].reset()

    act = engine.act

    def acts(ask: Ask) -> None:
        act(ask)
        engine.points[ask.env].velocity[0] += engine.points[ask.env].rng.uniform(-0.01, 0.01)

    engine.begin, engine.act = begins, acts


@way("seed-ignored", "late", "it counts from the next episode on")
def _(engine: MistakenEngine) -> None:
    def begins(ask: Ask) -> None:
        engine.points[ask.env].reset()
        if ask.seed is not None:
            engine.points[ask.env].rng = random.Random(ask.seed)

    engine.begin = begins


@way("not-repeatable", "noise", "the dynamics have noise of their own", also=("seed-ignored",))
def _(engine: MistakenEngine) -> None:
    act, rng = engine.act, random.Random()

    def acts(ask: Ask) -> None:
        act(ask)
        engine.points[ask.env].position[0] += rng.uniform(-0.01, 0.01)

    engine.act = acts


@way("not-repeatable", "clock", "a step is as long as the time since the last one", also=("seed-ignored",))
def _(engine: MistakenEngine) -> None:
    act, last = engine.act, [time.perf_counter()]

    def acts(ask: Ask) -> None:
        act(ask)
        now = time.perf_counter()
        engine.points[ask.env].position[1] += min(now - last[0], 0.05)
        last[0] = now

    engine.act = acts


@way("not-repeatable", "length", "the episode's length is not seeded", also=("seed-ignored",))
def _(engine: MistakenEngine) -> None:
    begin, rng = engine.begin, random.Random()

    def begins(ask: Ask) -> None:
        begin(ask)
        engine.points[ask.env].length = rng.randint(5, 25)

    engine.begin = begins


@way(
    "not-repeatable", "velocity", "the velocity outlives a reset", also=("seed-ignored", "reset-ignored", "stale-reset")
)
def _(engine: MistakenEngine) -> None:
    begin = engine.begin

    def begins(ask: Ask) -> None:
        old = engine.points[ask.env].velocity
        begin(ask)
        engine.points[ask.env].velocity = old

    engine.begin = begins


# -- spaces and values


def _refusing(says: str, wrong: Callable[[list[float]], bool]) -> Change:
    def change(engine: MistakenEngine) -> None:
        from ue_rl.testing.engines.mistaken import Refused

        act = engine.act

        def acts(ask: Ask) -> None:
            if ask.action is not None and wrong(ask.action):
                raise Refused(says)
            act(ask)

        engine.act = acts

    return change


def _dropping(wrong: Callable[[list[float]], bool]) -> Change:
    def change(engine: MistakenEngine) -> None:
        perform = engine.perform
        engine.perform = lambda asks: perform([ask for ask in asks if ask.action is None or not wrong(ask.action)])

    return change


def _growing(a: Answer) -> dict[str, Any]:
    return {"obs": [6.0 + a.steps if a.steps >= 15 else a.obs[0], *a.obs[1:]]}


_TABLE: list[Way] = [
    made("choice-refused", "one-based", "1 to 4 are the choices", choices=True)(_refusing("no such action", lambda a: a[0] == 0)),
    made("choice-refused", "last", "the last one", choices=True)(_refusing("no such action", lambda a: a[0] == 3)),
    made("choice-refused", "silent", "0 is never answered", choices=True, also=("env-never-answered", "no-answer"))(_dropping(lambda a: a[0] == 0)),
    made("bound-refused", "highest", "the highest number")(_refusing("out of range", lambda a: a[1] >= 2)),
    made("bound-refused", "lowest", "the lowest number, without an answer", also=("no-answer",))(_dropping(lambda a: a[0] <= -1)),
    made("bound-refused", "unit", "what is beyond 1", also=("ends-session",))(_refusing("out of range", lambda a: max(map(abs, a)) > 1)),
    config("outside-obs-space", "narrow", "OBS_SPACE is too narrow", lambda c: c.replace("-5:5", "-0.1:0.1")),
    number("outside-obs-space", "one", "one number", lambda a: {"obs": [*a.obs[:5], 7.5]}),
    number("outside-obs-space", "late", "after 15 steps", _growing),
    number("outside-obs-space", "done", "in the last state", lambda a: {"obs": [-9.0, *a.obs[1:]] if a.done else a.obs}),
    number("outside-obs-space", "reset", "after a reset", lambda a: {"obs": [99.0] * 6 if a.reset else a.obs}),
    number("outside-obs-space", "env-2", "in env 2", lambda a: {"obs": [x + 8 * (a.env == 2) for x in a.obs]}),
    number("constant-observation", "zeros", "all zeros", lambda a: {"obs": [0.0] * 6}, certain=False, also=("action-ignored", "reset-ignored", "same-trajectory", "seed-ignored")),
    number("zero-reward", "all", "every reward", lambda a: {"reward": 0.0}, certain=False),
]  # fmt: skip


@way("options-refused", "session", "the session ends")
def _(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Refused

    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        if b"OPTIONS" in data:
            raise Refused("what is OPTIONS?")
        return parse(data, own)

    engine.parse = strictly


@way("options-refused", "silent", "nothing comes", also=("no-answer",))
def _(engine: MistakenEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: perform([ask for ask in asks if "OPTIONS" not in ask.fields])


WAYS: list[Way] = [*_TABLE, *_WAYS]
