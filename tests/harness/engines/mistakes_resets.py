"""Mistakes in resets, and at the ends of episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import instead, way

Begin = Callable[[Ask], None]
Observe = Callable[[Ask], Answer]


def _ignored(name: str, says: str, cond: Callable[[RightEngine, Ask], bool]) -> None:
    """Resets for which `cond` holds do nothing."""
    instead("begin", "reset-ignored", name, says)(lambda engine, begin, ask: None if cond(engine, ask) else begin(ask))


def _in_the_middle(engine: RightEngine, ask: Ask) -> bool:
    return engine.points[ask.env].steps > 0 and not engine.points[ask.env].done


_ignored("state", "the answer is the present state", lambda engine, ask: True)
instead("begin", "reset-ignored", "zero-step", "a step with zeros is taken")(
    lambda engine, begin, ask: engine.points[ask.env].step([0.0, 0.0])
)
_SILENT = ("no-answer", "env-never-answered")
instead("perform", "reset-ignored", "no-answer", "nothing comes", also=_SILENT)(
    lambda engine, perform, asks: perform([ask for ask in asks if ask.action is not None])
)
_ignored("mid-episode", "unless the episode is over", _in_the_middle)
_ignored("env-1", "in env 1", lambda engine, ask: ask.env == 1)


@instead("begin", "reset-ignored", "flag-only", "DONE is cleared, and the point stays where it is")
def _(engine: RightEngine, begin: Begin, ask: Ask) -> None:
    point = engine.points[ask.env]
    point.done = point.truncated = False
    point.steps = 0


@instead("perform", "resets-all", "all", "all envs begin anew")
def _(engine: RightEngine, perform: Callable[[list[Ask]], list[Answer]], asks: list[Ask]) -> list[Answer]:
    if any(ask.action is None for ask in asks):
        for point in engine.points:
            point.reset()
    return perform(asks)


@instead("begin", "resets-all", "next", "the next env begins anew, too")
def _(engine: RightEngine, begin: Begin, ask: Ask) -> None:
    begin(ask)
    engine.points[(ask.env + 1) % engine.num_envs].reset()


def _shows_next(engine: RightEngine, observe: Observe, ask: Ask) -> Answer:
    """With the last state the next episode begins, and is shown."""
    answer = observe(ask)
    if not answer.done:
        return answer
    engine.points[ask.env].reset()
    return replace(answer, obs=engine.points[ask.env].observation)


@way("resets-itself", "shows-next", "the last state has the next episode's first observation, as vector envs do")
def _(engine: RightEngine) -> None:
    """The RESET that comes then changes nothing."""
    observe, begin, fresh = engine.observe, engine.begin, [False] * engine.num_envs

    def seen(ask: Ask) -> Answer:
        answer = _shows_next(engine, observe, ask)
        fresh[ask.env] |= answer.done
        return answer

    def begins(ask: Ask) -> None:
        if not fresh[ask.env] or ask.seed is not None:
            begin(ask)
        fresh[ask.env] = False

    engine.observe, engine.begin = seen, begins


instead("observe", "resets-itself", "twice", "and once more when the RESET comes")(_shows_next)


@instead("observe", "resets-itself", "won", "where the point arrives or is lost, not where a limit ends it")
def _(engine: RightEngine, observe: Observe, ask: Ask) -> Answer:
    answer = observe(ask)
    return answer if answer.truncated else _shows_next(engine, lambda _: answer, ask)


def _stale(name: str, says: str, numbers: slice) -> None:
    """These numbers of a reset's answer are those from before the reset."""

    @instead("one", "stale-reset", name, says)
    def _(engine: RightEngine, one: Observe, ask: Ask) -> Answer:
        old = engine.points[ask.env].observation
        answer = one(ask)
        if ask.action is None:
            answer.obs[numbers] = old[numbers]
        return answer


_stale("all", "the observation is the one before the reset", slice(None))
_stale("velocity", "some numbers are those from before the reset", slice(4))


@instead("observe", "done-after-reset", "for-ever", "DONE stays 1")
def _(engine: RightEngine, observe: Observe, ask: Ask) -> Answer:
    answer = observe(ask)
    engine.kept[ask.env] = engine.kept.get(ask.env, False) or answer.done
    return replace(answer, done=engine.kept[ask.env])


@instead("observe", "done-after-reset", "one-step", "until the first step has been answered")
def _(engine: RightEngine, observe: Observe, ask: Ask) -> Answer:
    answer, was = observe(ask), engine.kept.get(ask.env, False)
    if not answer.reset:
        engine.kept[ask.env] = answer.done
    return replace(answer, done=was or answer.done)


@instead("observe", "done-after-reset", "counter", "the count of steps goes on, so that every step is the last one")
def _(engine: RightEngine, observe: Observe, ask: Ask) -> Answer:
    steps = engine.kept[ask.env] = engine.kept.get(ask.env, 0) + (ask.action is not None)
    answer, over = observe(ask), steps >= 25
    return replace(answer, done=answer.done or over, truncated=answer.truncated or (over and not answer.done))


instead("observe", "done-after-reset", "always", "DONE is 1 in every step", certain=False)(
    lambda engine, observe, ask: replace(observe(ask), done=True)
)


@way("limit-as-done", "all", "each episode ends after 30 steps, with DONE=1 alone", certain=False)
def _(engine: RightEngine) -> None:
    observe, begin, act = engine.observe, engine.begin, engine.act

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        return replace(answer, done=answer.done or answer.steps >= 30, truncated=False)

    def begins(ask: Ask) -> None:
        begin(ask)
        engine.points[ask.env].length = 10**9

    def acts(ask: Ask) -> None:
        point = engine.points[ask.env]
        point.done = point.done or point.steps >= 30
        act(ask)

    engine.observe, engine.begin, engine.act = seen, begins, acts


@instead("act", "never-done", "all", "DONE is always 0", certain=False)
def _(engine: RightEngine, act: Callable[[Ask], None], ask: Ask) -> None:
    act(ask)
    engine.points[ask.env].done = engine.points[ask.env].truncated = False


instead(
    "follow", "autoreset-wrong", "never", "AUTORESET is announced, and episodes wait for ACT=RESET", autoreset=True
)(lambda engine, follow, answers: [])
instead("follow", "autoreset-wrong", "seed", "the seed that was sent ahead is not used", autoreset=True)(
    lambda engine, follow, answers: [replace(ask, seed=None) for ask in follow(answers)]
)


@way("autoreset-wrong", "unknown", "AUTORESET is announced, and NEXT ends the session", autoreset=True)
def _(engine: RightEngine) -> None:
    engine.autoreset = False
