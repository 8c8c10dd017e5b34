"""EpisodeRecord and RecordedEnv; they need no Ray."""

from __future__ import annotations

import sys

import numpy as np

from ue_rl.devtools.testing.chaos_engine import chaos_words
from ue_rl.plugins.rllib.engines import open_engines
from ue_rl.plugins.rllib.news import EpisodeRecord, RecordedEnv


def test_episodes_are_counted_as_they_were_played() -> None:
    record = EpisodeRecord(2)
    over = np.array([False, True])
    record.step(np.array([1.0, 2.0]), None, over)
    record.begin(over)
    record.step(np.array([1.0, 0.0]), ~over, np.array([True, False]))
    steps, episodes = record.take()
    assert (steps, [episode[:3] for episode in episodes]) == (3, [(2, 2.0, 1), (3, 2.0, 2)])
    record.paused = True
    record.step(np.ones(2), None, np.array([True, True]))
    assert record.take() == (0, [])


def test_what_a_loss_cuts_short_is_no_episode() -> None:
    calls = []
    words = chaos_words(port="{port}", num_envs="{num_envs}", seed="{seed}", fault="crash", after=60)
    assert words[0] == sys.executable
    engines = open_engines({"engine": words}, 2)
    env = RecordedEnv(engines, lambda: calls.append(1))
    try:
        env.reset(seed=1)
        total, ends, lost, steps = np.zeros(2), [], 0, 0
        over = np.zeros(2, np.bool_)
        for _ in range(80):
            steps += 2 - int(over.sum())
            total[over] = 0
            _, rewards, terminated, truncated, _ = env.step(np.zeros((2, *env.single_action_space.shape), np.float32))
            total += rewards
            over = terminated | truncated
            for number in np.flatnonzero(over).tolist():
                if number in engines.buffers.lost:
                    lost += 1
                else:
                    ends.append(total[number])
        assert lost >= 2
        assert ends
        assert len(calls) == 80
        taken, episodes = env.record.take()
        assert taken == steps
        np.testing.assert_allclose([episode.value for episode in episodes], ends)
    finally:
        env.close()
