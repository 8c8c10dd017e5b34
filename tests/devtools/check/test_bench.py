"""What a check works with: the flags in the answer to a reset, and the tape."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devtools.check.games import Walk
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.check.bench import SHARED, Bench, Options
from ue_rl.devtools.check.diagnosing import of_row
from ue_rl.devtools.check.history import RESET, STEP, History, Watcher
from ue_rl.devtools.check.peer import AnsweredStates
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import RepeatedEnv


class SaysDone(Walk):
    """DONE=1 and a reward in the answers to resets, where they mean nothing."""

    def reset_envs(self, env_ids, seeds, options):  # type: ignore[no-untyped-def]
        super().reset_envs(env_ids, seeds, options)
        self.outbox.dones[env_ids] = 1
        self.outbox.rewards[env_ids] = 5


def test_flags_in_the_answer_to_a_reset_mean_nothing_until_the_next_step() -> None:
    with run_in_thread(SaysDone()) as engine:
        bench = Bench(("127.0.0.1", engine.port), Options(), SHARED)
        for states in (bench.reset(), bench.begin([1]), bench.play(bench.sampler.random(), resets=[2])):
            assert bench.over() == []
            assert not states.dones.any()
        assert bench.states is not None
        assert bench.states.rewards[2] == 0
        assert bench.states.rewards[0] < 0
        bench.drop()


def test_the_tape_says_what_was_asked_and_where_sessions_part() -> None:
    with run_in_thread(Walk()) as engine:
        bench = Bench(("127.0.0.1", engine.port), Options(), SHARED)
        bench.reset()
        for _ in range(30):
            bench.step()
        bench.drop()
        bench.reset()
        reel = bench.tape.reel()
        bench.drop()
    assert (reel.kinds[0] == RESET).all()
    assert (reel.kinds[1] == STEP).all()
    assert np.flatnonzero(~reel.follows).tolist() == [0, 31]
    for t, env in reel.ends():
        assert reel.next_reset(t, env) in (t + 1, 31)
    for env in range(3):
        lengths = [steps for steps, ended in reel.episodes(env) if ended]
        assert lengths
        assert all(12 <= steps < 20 for steps in lengths)
    assert 0.05 < reel.usual().max() <= 0.1 + 1e-6
    assert reel.jump(np.array([[0.0, 1.0]], np.float32))[0] > 9


def answered(spec: EnvSpec, **rows: object) -> AnsweredStates:
    """What all envs answer; `rows` in place of zeros."""
    buffers = StepBuffers.of(spec)
    for name, values in rows.items():
        getattr(buffers, name)[...] = values
    return AnsweredStates.of(buffers, 0.01)


def test_observations_outside_their_bounds_are_seen_the_first_of_each_number() -> None:
    spec = EnvSpec(2, 1, num_envs=3, obs_low=(-1.0, -1.0), obs_high=(1.0, 1.0))
    watcher = Watcher(spec)
    watcher.see(answered(spec, obs=[[0, 1], [-1, 0], [0.5, 0]]))
    assert watcher.outside == {}
    watcher.see(answered(spec, obs=[[0, 1], [-2, 0], [3, 0]]))
    watcher.see(answered(spec, obs=[[4, 0], [0, 1.5], [0, 0]]))
    assert watcher.outside == {(0, 0): (1, -2.0), (0, 1): (1, 1.5)}
    assert watcher.broken == {}


def test_of_many_envs_the_first_are_recorded() -> None:
    spec = EnvSpec(1, 1, num_envs=40)
    history = History(spec)
    assert history.envs == 16
    envs = range(40)
    history.add(answered(spec, obs=[[1]]), [], [], envs)
    history.add(answered(spec, obs=[[2]]), envs, envs, [])
    reel = history.reel()
    assert reel.kinds.shape == (2, 16)
    assert (reel.kinds == [[RESET], [STEP]]).all()


@pytest.mark.parametrize(
    ("ids", "asked", "given", "name"),
    [
        ([1], {0}, set(), "env-off-by-one"),
        ([1, 2], {0, 1}, set(), "env-off-by-one"),
        ([3], {2}, set(), "env-off-by-one"),
        ([1], {0, 1}, {0, 1}, "two-answers"),
    ],
)
def test_a_row_of_another_env_is_told_by_its_ids(ids: list[int], asked: set[int], given: set[int], name: str) -> None:
    line = b"||".join(b"OBS=0;REW=0;DONE=0;ENV=%d" % env for env in ids)
    error = RepeatedEnv("an env that was not asked", env_id=ids[0])
    assert of_row(error, line, EnvSpec(1, 1, num_envs=3), asked, given).mistake == name
