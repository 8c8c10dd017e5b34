"""What a check works with: the flags in the answer to a reset, and the tape."""

from __future__ import annotations

import numpy as np

from tests.devtools.check.games import Walk
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.check.bench import SHARED, Bench, Options
from ue_rl.devtools.check.history import RESET, STEP


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
