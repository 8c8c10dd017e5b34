"""The journal of a VecEnv: seeds of episodes, what is kept and for how long, replays of histories of many lengths."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from tests.harness.exactness import N, bridge
from tests.support.games import Steps
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.journal import episode_seed
from ue_rl.envs.journal_transport import JournalTransport, journal_of
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spaces.tree import box
from ue_rl.protocol.spec import ActionSpec, EnvSpec
from ue_rl.system.errors import ConnectionUnusable, MalformedMessage


class Noted(MemoryTransport):
    """Notes the seeds and options of all resets."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.resets: list[tuple[Any, Any, Any]] = []
        self.steps = 0

    def _ask(self, actions: Any, resets: Any) -> None:
        self.steps += 1
        super()._ask(actions, resets)

    def _ask_resets(self, resets: Any) -> None:
        self.resets.append((resets.env_ids, resets.seeds, resets.options))
        super()._ask_resets(resets)


def env_of(kind: str = "box", **options: Any) -> UnrealVecEnv:
    return UnrealVecEnv(Noted(bridge(kind)), **options)


def journaled(env: UnrealVecEnv, seed: int) -> JournalTransport:
    journal = env.keep_journal(seed)
    assert journal is not None
    return journal


def resumed(env: UnrealVecEnv, state: Any) -> JournalTransport:
    journal = journaled(env, 0)
    journal.resume(state, env.read)
    return journal


def play(env: UnrealVecEnv, steps: int, seed: int = 0) -> list[Any]:
    """Acts by chance, legally."""
    draw = np.random.default_rng(seed)
    seen = []
    for _ in range(steps):
        if env.engine_spec.mask_size:
            actions = np.array([draw.choice(np.flatnonzero(mask)) for mask in env.env_method("action_masks")])
        else:
            actions = draw.uniform(-1, 1, (N, 2)).astype(np.float32)
        seen.append(env.step(actions))
    return seen


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one if key != "t")
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other))


def test_every_episode_has_a_seed_of_its_own() -> None:
    seeds = {episode_seed(run, env, episode) for run in range(4) for env in range(16) for episode in range(200)}
    assert len(seeds) > 12_790
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert episode_seed(1, 2, 3) == 1748607912  # runs that were saved must be understood later


def test_own_seeds_and_options_win_for_the_first_reset() -> None:
    env = env_of()
    env.keep_journal(5)
    env.seed(40)
    env.set_options({"start": 1.5})
    env.reset()
    transport: Any = env.transport
    assert transport.resets[0] == (None, [40, 41, 42], [{"start": 1.5}] * N)
    play(env, 60)
    later = [seed for ids, seeds, _ in transport.resets[1:] for seed in seeds]
    assert len(set(later)) == len(later) >= N
    first = next(ids for ids, _, _ in transport.resets[1:])[0]
    assert transport.resets[1][1][0] == episode_seed(5, first, 2)


def test_without_a_journal_no_seeds_are_sent() -> None:
    env = env_of()
    env.reset()
    play(env, 60)
    transport: Any = env.transport
    assert all(seeds is None for _, seeds, _ in transport.resets)


EACH_RUN = [(0, "box"), (17, "box"), (40, "box"), (17, "masked"), (40, "dict"), (0, "pictures")]


@pytest.mark.parametrize(
    ("marked", "kind"),
    [
        pytest.param(*case, marks=() if case in EACH_RUN else pytest.mark.exhaustive)
        for case in itertools.product([0, 17, 40], ["box", "masked", "dict", "pictures"])
    ],
)
def test_a_replay_and_what_was_given_out(tmp_path: Any, kind: str, marked: int) -> None:
    whole, before, after = env_of(kind), env_of(kind), env_of(kind)
    for env in (whole, before):
        journal = journaled(env, 9)
        env.set_options({"start": 0.25})
        shown = [env.reset(), *(obs for obs, *_ in play(env, marked))][-1]
        journal.mark()
    episodes = before.episode_state()
    expected = play(whole, 50 - marked, seed=1) + play(whole, 30, seed=2)
    play(before, 50 - marked, seed=1)
    resumed(after, pickle.loads(pickle.dumps(journal.state())))
    transport: Any = after.transport
    assert transport.steps < 50, "only the present episodes are played again"
    asked = transport.steps
    np.testing.assert_equal(after.reset(), shown)
    np.testing.assert_equal(after.reset(), shown)
    after.restore_episodes(episodes)
    seen = play(after, 50 - marked, seed=1)
    assert transport.steps == asked, "these steps are recorded"
    seen += play(after, 30, seed=2)
    assert transport.steps == asked + 30
    for one, other in zip(seen, expected, strict=True):
        assert same(one, other)


def test_what_is_given_out_may_be_changed() -> None:
    env = env_of()
    journal = journaled(env, 3)
    env.reset()
    journal.mark()
    for _, rewards, _, infos in (given := play(env, 40)):
        rewards[:] = 100
        for info in infos:
            info.clear()
    again = env_of()
    resumed(again, journal.state())
    again.reset()
    seen = play(again, 40)
    assert all((rewards < 50).all() for _, rewards, _, _ in seen)
    assert sum("episode" in info for _, _, _, infos in seen for info in infos) == sum(
        int(dones.sum()) for _, _, dones, _ in given
    )


def test_episodes_that_are_too_long_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    env = env_of()
    journal = JournalTransport(env.transport, 3, most_steps=5)
    env.stepper.transport = journal
    env.reset()
    play(env, 200)
    assert len(journal.episodes.rows) <= 6
    state = journal.state()
    known = sum(journal.episodes.known)
    assert len(resumed(env_of(), state).lost) == N - known
    assert "too long" in caplog.text


def test_memory_stays_small() -> None:
    """Actions are kept since the oldest present episode began, steps only since mark()."""
    env = env_of()
    journal = journaled(env, 3)
    env.reset()
    play(env, 1000)
    assert len(journal.episodes.rows) <= 400
    assert len(journal.episodes.rewards) <= 400
    journal.mark()
    play(env, 10)
    assert len([fields for fields in journal.state()["exchanges"] if fields[0] != ()]) == 10
    journal.unmark()
    play(env, 10)
    assert journal.state()["exchanges"] == []


class Doors(Steps):
    """Of three doors the one that is open changes with each step; whoever takes a closed one has not read the mask."""

    def __init__(self, ends: tuple[int, int]) -> None:
        features = frozenset({"SEED"})
        super().__init__(EnvSpec(1, 1, num_envs=2, action=ActionSpec.discrete(3), features=features))
        self.ends = ends

    def open_door(self, env_id: int) -> int:
        first = self.begun[env_id] if self.seeds[env_id] is None else self.seeds[env_id]
        return (first + self.steps[env_id]) % 3

    def create_action_mask_for_env(self, env_id: int) -> list[bool]:
        return [door == self.open_door(env_id) for door in range(3)]

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        assert int(actions[0]) == self.open_door(env_id), f"env {env_id} was sent through a closed door"
        super().handle_response_actions_for_env(env_id, actions)

    def earn(self, env: int) -> tuple[float, bool]:
        return 0.0, self.steps[env] >= self.ends[env]


def test_an_env_whose_episode_ended_sooner_in_a_replay_gets_legal_actions_from_then_on() -> None:
    before = UnrealVecEnv(MemoryTransport(Doors((30, 30))))
    journal = journaled(before, 1)
    before.reset()
    for _ in range(9):
        masks = np.array(before.env_method("action_masks"))
        before.step(masks.argmax(axis=1))
    again = UnrealVecEnv(MemoryTransport(Doors((30, 2))))
    lost = resumed(again, journal.state()).lost
    assert lost.keys() == {1}
    assert "ended sooner than before" in lost[1]


class Interrupted(Exception):
    """A step is broken off."""


def test_a_step_whose_resets_were_not_asked_for_is_given_out_after_a_resume() -> None:
    """The engine has taken it, and the run was ended before its finished envs were reset."""
    whole, before, after = env_of(), env_of(), env_of()
    journal = journaled(before, 9)
    for env in (whole, before):
        journaled(env, 9)
        env.reset()
    journal.mark()
    episodes = before.episode_state()
    expected = play(whole, 80)
    transport: Any = before.transport
    ask = transport._ask_resets
    left = iter(range(2))

    def refuse(resets: Any) -> None:
        if next(left, None) is None:
            raise Interrupted
        ask(resets)

    transport._ask_resets = refuse
    with pytest.raises(Interrupted):
        play(before, 80)
    journal = resumed(after, pickle.loads(pickle.dumps(journal.state())))
    assert not journal.lost
    after.reset()
    after.restore_episodes(episodes)
    for one, other in zip(play(after, 80), expected, strict=True):
        assert same(one, other)


class Counts(Steps):
    """A number that grows beyond what float32 holds."""

    def __init__(self, step: int) -> None:
        counted = box((1,), 0, 2**30, "int64")
        super().__init__(EnvSpec(1, 1, num_envs=2, features=frozenset({"SEED"}), obs_space=counted))
        self.step = step

    def show(self, env: int) -> list[float]:
        return [float(self.steps[env] * self.step)]


def test_a_run_that_an_answer_has_ended_goes_on_when_the_game_is_mended() -> None:
    before = UnrealVecEnv(MemoryTransport(Counts(2**23)))
    journal = journaled(before, 9)
    first = before.reset()
    journal.mark()
    actions = np.zeros((2, 1), np.float32)
    seen = [before.step(actions)[0] for _ in range(2)]
    with pytest.raises(MalformedMessage):
        before.step(actions)
    after = UnrealVecEnv(MemoryTransport(Counts(1)))
    assert resumed(after, journal.state()).lost.keys() == {0, 1}
    assert same(after.reset(), first)
    assert same([after.step(actions)[0] for _ in range(2)], seen)
    obs, _, dones, infos = after.step(actions)
    np.testing.assert_array_equal(obs, [[0], [0]])
    assert dones.all()
    assert [info["engine_lost"] for info in infos] == ["the last answer could not be read"] * 2
    np.testing.assert_array_equal(after.step(actions)[0], [[1], [1]])


def test_what_else_a_transport_has_is_passed_on() -> None:
    env = env_of()
    journal = journaled(env, 1)
    assert journal.spec is env.engine_spec
    assert journal.connect() is env.engine_spec
    assert journal.describe() == env.transport.describe()
    assert env.keep_journal(2) is journal
    assert journal_of(env) is journal
    assert journal.seed == 1
    env.close()
    with pytest.raises(ConnectionUnusable):
        env.step(np.zeros((N, 2), np.float32))
