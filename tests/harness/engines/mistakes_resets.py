"""Mistakes in resets, and at the ends of episodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.harness.engines.right import Answer, Ask, RightEngine
from tests.harness.engines.ways import Way, collector

if TYPE_CHECKING:
    from collections.abc import Callable


WAYS: list[Way] = []
way = collector(WAYS)


def _unless(engine: RightEngine, cond: Callable[[Ask], bool]) -> None:
    """Resets for which `cond` holds do nothing."""
    begin = engine.begin
    engine.begin = lambda ask: None if cond(ask) else begin(ask)


@way("reset-ignored", "state", "the answer is the present state")
def _(engine: RightEngine) -> None:
    engine.begin = lambda ask: None


@way("reset-ignored", "zero-step", "a step with zeros is taken")
def _(engine: RightEngine) -> None:
    engine.begin = lambda ask: engine.points[ask.env].step([0.0, 0.0])


@way("reset-ignored", "no-answer", "nothing comes", also=("no-answer", "env-never-answered"))
def _(engine: RightEngine) -> None:
    perform = engine.perform
    engine.perform = lambda asks: perform([ask for ask in asks if ask.action is not None])


@way("reset-ignored", "mid-episode", "unless the episode is over")
def _(engine: RightEngine) -> None:
    _unless(engine, lambda ask: engine.points[ask.env].steps > 0 and not engine.points[ask.env].done)


@way("reset-ignored", "env-1", "in env 1")
def _(engine: RightEngine) -> None:
    _unless(engine, lambda ask: ask.env == 1)


@way("reset-ignored", "flag-only", "DONE is cleared, and the point stays where it is")
def _(engine: RightEngine) -> None:
    def begin(ask: Ask) -> None:
        point = engine.points[ask.env]
        point.done = point.truncated = False
        point.steps = 0

    engine.begin = begin


@way("resets-all", "all", "all envs begin anew")
def _(engine: RightEngine) -> None:
    def perform(asks: list[Ask]) -> list[Answer]:
        if any(ask.action is None for ask in asks):
            for point in engine.points:
                point.reset()
        return before(asks)

    before, engine.perform = engine.perform, perform


@way("resets-all", "next", "the next env begins anew, too")
def _(engine: RightEngine) -> None:
    begin = engine.begin

    def both(ask: Ask) -> None:
        begin(ask)
        engine.points[(ask.env + 1) % engine.num_envs].reset()

    engine.begin = both


def _self_reset(engine: RightEngine, shows_next: bool) -> None:
    """The next episode begins right behind the last state; the RESET that comes then changes nothing."""
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
def _(engine: RightEngine) -> None:
    _self_reset(engine, shows_next=True)


@way("resets-itself", "twice", "and once more when the RESET comes")
def _(engine: RightEngine) -> None:
    observe = engine.observe

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        if answer.done:
            engine.points[ask.env].reset()
            return replace(answer, obs=engine.points[ask.env].observation)
        return answer

    engine.observe = seen


def _stale(engine: RightEngine, numbers: slice) -> None:
    """These numbers of a reset's answer are those from before the reset."""
    one = engine.one

    def stale(ask: Ask) -> Answer:
        old = engine.points[ask.env].observation
        answer = one(ask)
        if ask.action is not None:
            return answer
        obs = list(answer.obs)
        obs[numbers] = old[numbers]
        return replace(answer, obs=obs)

    engine.one = stale


@way("stale-reset", "all", "the observation is the one before the reset")
def _(engine: RightEngine) -> None:
    _stale(engine, slice(None))


@way("stale-reset", "velocity", "some numbers are those from before the reset")
def _(engine: RightEngine) -> None:
    _stale(engine, slice(4))


@way("done-after-reset", "for-ever", "DONE stays 1")
def _(engine: RightEngine) -> None:
    observe, ever = engine.observe, [False] * engine.num_envs

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        ever[ask.env] = ever[ask.env] or answer.done
        return replace(answer, done=ever[ask.env])

    engine.observe = seen


@way("done-after-reset", "one-step", "until the first step has been answered")
def _(engine: RightEngine) -> None:
    observe, over = engine.observe, [False] * engine.num_envs

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        was = over[ask.env]
        if not answer.reset:
            over[ask.env] = answer.done
        return replace(answer, done=was or answer.done)

    engine.observe = seen


@way("done-after-reset", "counter", "the count of steps goes on, so that every step is the last one")
def _(engine: RightEngine) -> None:
    steps = [0] * engine.num_envs
    observe = engine.observe

    def seen(ask: Ask) -> Answer:
        steps[ask.env] += ask.action is not None
        answer = observe(ask)
        over = steps[ask.env] >= 25
        return replace(answer, done=answer.done or over, truncated=answer.truncated or (over and not answer.done))

    engine.observe = seen


@way("done-after-reset", "always", "DONE is 1 in every step", certain=False)
def _(engine: RightEngine) -> None:
    observe = engine.observe
    engine.observe = lambda ask: replace(observe(ask), done=True)


@way("limit-as-done", "all", "each episode ends after 30 steps, with DONE=1 alone", certain=False)
def _(engine: RightEngine) -> None:
    observe = engine.observe

    def seen(ask: Ask) -> Answer:
        answer = observe(ask)
        return replace(answer, done=answer.done or answer.steps >= 30, truncated=False)

    engine.observe = seen
    begin, act = engine.begin, engine.act

    def begins(ask: Ask) -> None:
        begin(ask)
        engine.points[ask.env].length = 10**9

    def acts(ask: Ask) -> None:
        point = engine.points[ask.env]
        point.done = point.done or point.steps >= 30
        act(ask)

    engine.begin, engine.act = begins, acts


@way("never-done", "all", "DONE is always 0", certain=False)
def _(engine: RightEngine) -> None:
    act = engine.act

    def acts(ask: Ask) -> None:
        act(ask)
        engine.points[ask.env].done = engine.points[ask.env].truncated = False

    engine.act = acts


@way("autoreset-wrong", "never", "AUTORESET is announced, and episodes wait for ACT=RESET", autoreset=True)
def _(engine: RightEngine) -> None:
    engine.follow = lambda answers: []


@way("autoreset-wrong", "seed", "the seed that was sent ahead is not used", autoreset=True)
def _(engine: RightEngine) -> None:
    follow = engine.follow
    engine.follow = lambda answers: [replace(ask, seed=None) for ask in follow(answers)]


@way("autoreset-wrong", "unknown", "AUTORESET is announced, and NEXT ends the session", autoreset=True)
def _(engine: RightEngine) -> None:
    engine.autoreset = False
