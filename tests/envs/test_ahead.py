"""Resets that are asked ahead (FEATURES=AUTORESET): no step needs a second round trip, and all else is as without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

import ue_rl
from tests.support.games import Steps
from tests.support.same import assert_same
from tests.support.steps import advance, begin
from ue_rl.bridges import VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.buffers import Resets
from ue_rl.protocol.calls.parameters import randomize
from ue_rl.protocol.spec import ActionSpec, EnvSpec
from ue_rl.system.errors import ConfigurationError, NonFiniteValue
from ue_rl.training import Curriculum

N, STEPS = 5, 60
CARRIERS = ("text", "memory")
SPEC = EnvSpec(3, 1, num_envs=N, features=frozenset({"SEED", "INFO", "TRUNC"}), action=ActionSpec.box(1))


class Announces:
    """AUTORESET, or not."""

    announces = True

    def offered(self) -> frozenset[str]:
        offered: frozenset[str] = super().offered()  # type: ignore[misc]
        return offered - (frozenset() if self.announces else {"AUTORESET"})


class Walks(Announces, VectorBridge):
    """Sums of actions and of numbers that are drawn, kept in the observations; episodes of 3 to 9 steps."""

    def __init__(self, spec: EnvSpec = SPEC, announces: bool = True) -> None:
        self.announces, self.pace, self.lift = announces, [1.0] * spec.num_envs, [0.0] * spec.num_envs
        super().__init__(spec)
        self.draws: list[Any] = [np.random.default_rng(n) for n in range(spec.num_envs)]
        self.left = [0] * spec.num_envs
        self.common = np.random.default_rng(77)
        self.resets = 0

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"pace": (1.0, 0.0, 10.0), "lift": (0.0, 0.0, 10.0)}

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        values = self.pace if name == "pace" else self.lift
        for env in range(self.num_envs) if env_id == -1 else [env_id]:
            values[env] = value

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.resets += 1
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self.draws[env] = np.random.default_rng(seed)
            self.left[env] = int(self.draws[env].integers(3, 10))
            common = self.common.uniform() if seed is None else 0
            self.outbox.obs[env] = [self.pace[env], common + self.lift[env], self.left[env]]
            self.write_info(env, {"begun": self.left[env]})
            if self.spec.mask_size:
                self.outbox.masks[env] = [1, 1, env % 2]

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        out = self.outbox
        for env in env_ids.tolist():
            self.left[env] -= 1
            out.obs[env] += np.float32(self.draws[env].uniform() * self.pace[env]) + actions[env]
            out.rewards[env], out.truncated[env] = out.obs[env, 0], self.left[env] == 0
            if self.left[env] == 0:
                self.write_info(env, {"ended": env})


class Slow(Announces, Steps):
    """An action of env i runs for i ticks; no seeds."""

    def __init__(self, announces: bool = True) -> None:
        self.announces = announces
        super().__init__(EnvSpec(2, 1, num_envs=3))

    def show(self, env: int) -> list[float]:
        return [self.begun[env], self.steps[env]]

    def earn(self, env: int) -> tuple[float, bool]:
        return self.steps[env], self.steps[env] == 3 + env

    def runs(self, env: int) -> int:
        return env + 1  # the look that ends it counts

    @property
    def resets(self) -> int:
        return sum(self.begun)


def over_text_and(cases: Iterable[ParameterSet], *again: str) -> list[ParameterSet]:
    """Each case over text, and those of the names `again` over shared memory too; the rest is exhaustive."""
    params = []
    for case in cases:
        for carrier in CARRIERS:
            each_run = carrier == "text" or case.id in again
            marks = () if each_run else pytest.mark.exhaustive
            params.append(pytest.param(carrier, *case.values, marks=marks, id=f"{carrier}-{case.id}"))
    return params


@pytest.fixture(params=CARRIERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., UnrealVecEnv]]:
    with ExitStack() as stack:

        def open_env(bridge: Any, **options: Any) -> UnrealVecEnv:
            run = run_in_thread if request.param == "text" else run_shm_in_thread
            url = stack.enter_context(run(bridge)).url
            channel = {"channel": "shared"} if request.param == "text" else {}
            env = ue_rl.connect(url, timeout=10, **channel, **options)
            stack.callback(env.close)
            return env

        yield open_env


def count_asked(env: UnrealVecEnv) -> list[list[int] | None]:
    """Filled with what is asked to be reset, by a request of its own."""
    asked: list[list[int] | None] = []
    transport: Any = env.transport
    ask = transport._ask_resets

    def counted(resets: Resets) -> None:
        asked.append(None if resets.env_ids is None else list(resets.env_ids))
        ask(resets)

    transport._ask_resets = counted
    return asked


def rollout(env: UnrealVecEnv, steps: int = STEPS, between: Callable[[int], object] = lambda step: None) -> list[Any]:
    rng = np.random.default_rng(3)
    seen: list[Any] = [env.reset(), [dict(info) for info in env.reset_infos]]
    for step in range(steps):
        between(step)
        obs, rewards, dones, infos = env.step(rng.uniform(-1, 1, (env.num_envs, 1)).astype(np.float32))
        told = [{key: value for key, value in info.items() if key != "episode"} for info in infos]
        seen += [obs.copy(), rewards.copy(), dones.copy(), told, [dict(info) for info in env.reset_infos]]
    return seen


def with_and_without(
    opened: Callable[..., UnrealVecEnv],
    game: Callable[[bool], Any],
    prepare: Callable[[UnrealVecEnv], Any],
    steps: int = STEPS,
) -> tuple[list[list[int] | None], Any]:
    """The resets that were asked where the engine announces AUTORESET, and its bridge; rollouts are the same."""
    bridge, before = game(True), game(False)
    new, old = opened(bridge), opened(before)
    assert isinstance(new.transport, BaseTransport)
    assert new.transport.asks_ahead
    asked, rollouts = count_asked(new), []
    for env in (new, old):
        rollouts.append(rollout(env, steps, prepare(env) or (lambda step: None)))
    assert_same(*rollouts)
    return asked, bridge


def test_episodes_without_seeds_are_the_same_and_are_asked_for_once(opened: Any) -> None:
    asked, bridge = with_and_without(opened, lambda announces: Walks(announces=announces), lambda env: None)
    assert asked == [None]
    assert bridge.resets > 30


def test_seeds_of_a_journal_go_ahead(opened: Any) -> None:
    asked, _ = with_and_without(
        opened, lambda announces: Walks(announces=announces), lambda env: env.keep_journal(5) and None
    )
    assert asked == [None]


@pytest.mark.parametrize("journal", [True, False])
def test_parameters_that_are_drawn_go_ahead(opened: Any, journal: bool) -> None:
    def prepare(env: UnrealVecEnv) -> None:
        randomize(env.transport, {"pace": (1, 9)}, seed=4)
        if journal:
            env.keep_journal(5)

    asked, _ = with_and_without(opened, lambda announces: Walks(announces=announces), prepare)
    assert asked == [None]


BEGINS = [
    pytest.param(True, STEPS, id="True"),
    *(pytest.param(False, begins, id=f"False-{begins}") for begins in (28, 31, STEPS)),
]


@pytest.mark.parametrize(
    ("opened", "journal", "begins"), over_text_and(BEGINS, "True", "False-31"), indirect=["opened"]
)
def test_a_lesson_that_begins_meanwhile_holds_from_the_next_episode_on(opened: Any, journal: bool, begins: int) -> None:
    """Episodes that end in one step begin in one go, whenever it begins: without seeds they draw from one generator."""

    def prepare(env: UnrealVecEnv) -> Callable[[int], object]:
        lesson = {"measure": "progress", "threshold": 0.5, "min_lesson_length": 1}
        curriculum = Curriculum(
            [{"name": "slow", "params": {"pace": [1, 2]}, "completion_criteria": lesson},
             {"name": "fast", "params": {"pace": [5, 9]}}], seed=2,
        )  # fmt: skip
        curriculum.attach(env)
        if journal:
            env.keep_journal(5)
        return lambda step: step == begins and curriculum.courses[0].advance(1.0)

    asked, _ = with_and_without(opened, lambda announces: Walks(announces=announces), prepare, STEPS + 24)
    again = [env for envs in asked[1:] for env in envs or ()]
    if journal:
        assert sorted(again) == list(range(N)), "one of each env was asked ahead in the lesson before"
    else:
        assert len(again) > N, "none was, as long as another lesson could begin"


LESSON = {"measure": "progress", "threshold": 0.5, "min_lesson_length": 1}
TWO_LESSONS = [{"name": "a", "params": {"pace": [1, 2]}, "completion_criteria": LESSON}, {"params": {"pace": 3}}]


def randomized(env: UnrealVecEnv, ranges: Any = MappingProxyType({"pace": (1, 9)})) -> None:
    randomize(env.transport, ranges, seed=4)


def attached(env: UnrealVecEnv, lessons: Any = ({"params": {"pace": [5, 9]}},)) -> None:
    Curriculum(list(lessons), seed=2).attach(env)


CHANGES: dict[str, tuple[Any, Any]] = {
    "randomized": (lambda env: None, randomized),
    "no more": (randomized, lambda env: randomized(env, None)),
    "lessons": (lambda env: None, attached),
    "lessons over ranges": (randomized, attached),
    "ranges under lessons": (attached, lambda env: randomized(env, {"lift": (1, 9)})),
}
CHANGED = [pytest.param(name, journal, id=f"{name}-{journal}") for name in CHANGES for journal in (False, True)]


@pytest.mark.parametrize(
    ("opened", "change", "journal"),
    over_text_and(CHANGED, "randomized-False", "lessons over ranges-True"),
    indirect=["opened"],
)
def test_who_draws_is_another_from_some_step_on(opened: Any, change: str, journal: bool) -> None:
    first, then = CHANGES[change]

    def prepare(env: UnrealVecEnv) -> Callable[[int], object]:
        first(env)
        if journal:
            env.keep_journal(5)
        return lambda step: step == 20 and then(env)

    asked, _ = with_and_without(opened, lambda announces: Walks(announces=announces), prepare, 36)
    assert asked == [None], "those that were asked ahead were asked again before their episodes began"


def test_lessons_over_lessons_whose_next_one_is_not_known(opened: Any) -> None:
    def prepare(env: UnrealVecEnv) -> None:
        attached(env, TWO_LESSONS)
        attached(env)

    asked, bridge = with_and_without(opened, lambda announces: Walks(announces=announces), prepare)
    assert bridge.resets == len(asked), "no episode was begun twice"


def test_an_engine_that_may_be_lost_and_come_back_is_asked_ahead(opened: Any) -> None:
    bridge = Walks()
    env = opened(bridge, reconnect=5)
    assert isinstance(env.transport, EnginesTransport)
    randomized(env)
    env.reset()
    env.step(np.zeros((N, 1), np.float32))
    assert sorted(bridge.inbox.ahead) == list(range(N))


def test_actions_that_take_several_ticks(opened: Any) -> None:
    asked, bridge = with_and_without(opened, Slow, lambda env: None)
    assert asked == [None]
    assert bridge.resets > 30


def test_masks_and_what_else_answers_have(opened: Any) -> None:
    """Over shared memory masks have no place beside those of the step: there it is as before."""
    spec = EnvSpec(
        3, 1, num_envs=N, features=frozenset({"SEED", "INFO", "TRUNC", "MASK"}), action=ActionSpec.discrete(3)
    )
    new, old = opened(Walks(spec)), opened(Walks(spec, announces=False))
    asked, rollouts = count_asked(new), []
    for env in (new, old):
        seen: list[Any] = [env.reset()]
        for _ in range(STEPS):
            obs, rewards, dones, infos = env.step(np.zeros(N, np.int64))
            seen += [obs, rewards, dones, [info["action_mask"].copy() for info in infos]]
        rollouts.append(seen)
    assert_same(*rollouts)
    assert (asked == [None]) == new.transport.asks_ahead


def test_where_episodes_are_cut_off_by_the_trainer_each_end_is_asked_for(opened: Any) -> None:
    bridges = [Walks(), Walks(announces=False)]
    new, old = (opened(bridge, max_episode_steps=5) for bridge in bridges)
    assert_same(rollout(new), rollout(old))
    assert bridges[0].resets == bridges[1].resets


def test_another_reset_than_was_asked_ahead_is_asked_again(opened: Any) -> None:
    """Some envs' in the same request as those that have begun; and a call between the two."""
    env = opened(Walks())
    transport: Any = env.transport
    begin(transport, None, [1] * N)
    actions, ends = np.zeros((N, 1), np.float32), []
    transport.ask_ahead(range(N), [7, 7, 7, 8, 8])
    while len(ends) < 2:
        transport.send_actions(actions)
        ends = np.flatnonzero(transport.receive().dones).tolist()
    assert ends == list(range(N)), "the same seed"
    asked = count_asked(env)
    with pytest.raises(ConfigurationError):
        transport.reset([4, 0, 3], [8, 7, -9])
    first = begin(transport, [4, 0, 3], [8, 7, 9]).obs.copy()
    assert asked == [[3]]
    transport.reset([0, 3, 4], [7, 9, 8])
    assert np.array_equal(first[[0, 3, 4]], transport.receive().obs[[0, 3, 4]])
    transport.ask_ahead([0], [5])
    env.get_params()
    begin(transport, [0], [6])
    advance(transport, actions)
    assert asked[-1] == [0], "a reset voids what was asked ahead"


def test_a_first_observation_that_is_no_number_is_named(opened: Any) -> None:
    bridge = Walks()
    env = opened(bridge)
    env.reset()
    bridge.pace[:] = [np.nan] * N
    bridge.outbox.obs[:] = 0
    with pytest.raises(NonFiniteValue, match="env"):
        for _ in range(20):
            env.step(np.zeros((N, 1), np.float32))
