"""EpisodeCutter: what is noted beside what is sent, steps of other kinds, and which env and step a part is of."""

from __future__ import annotations

import numpy as np

from ue_rl.plugins.rllib.rllink.episodes import EpisodeCutter


def test_parts_know_their_env_and_their_first_step() -> None:
    cutter = EpisodeCutter(2, room=2)
    cutter.begin(np.zeros((2, 1)))
    nothing, never = np.zeros((2, 0), np.float32), np.zeros(2, np.bool_)

    def step(number: int, over: tuple[bool, bool] = (False, False), acted: tuple[bool, bool] | None = None) -> None:
        cutter.add(
            np.full(2, number),
            nothing,
            nothing,
            np.full(2, number / 2),
            np.full((2, 1), number),
            np.array(over),
            never,
            None if acted is None else np.array(acted),
            {("twice",): np.array([2 * number, -2 * number])},
        )

    step(1)
    step(2, over=(True, False))
    cutter.begin(np.full((2, 1), 7.0), np.array([True, False]))
    step(3, acted=(False, True))
    assert cutter.lengths == [0, 3]
    step(4)
    assert (cutter.lengths, cutter.steps) == ([1, 4], 7)
    first, again, other = cutter.take()
    assert [(part.env, part.first) for part in (first, again, other)] == [(0, 0), (0, 3), (1, 0)]
    assert first.terminated
    assert first.id_ != again.id_
    assert first.extra[("twice",)].tolist() == [2, 4]
    assert other.extra[("twice",)].tolist() == [-2, -4, -6, -8]
    assert again.obs.ravel().tolist() == [7, 4]
    assert other.rewards.tolist() == [0.5, 1, 1.5, 2]
    assert cutter.lengths == [0, 0]


def test_another_kind_of_steps_behind_take() -> None:
    cutter = EpisodeCutter(1)
    cutter.begin(np.zeros((1, 2)))
    never = np.zeros(1, np.bool_)
    zero = np.zeros(1, np.float32)
    kinds = (np.zeros(1, np.int32), np.zeros((1, 3), np.float32)), (np.full((1, 2), 0.5), np.zeros((1, 4), np.float32))
    for number, (actions, logits) in enumerate(kinds):
        cutter.add(actions, logits, zero, zero, np.ones((1, 2)), never, never)
        (chunk,) = cutter.take()
        assert (chunk.actions.dtype, chunk.actions.shape) == (actions.dtype, actions.shape)
        assert chunk.logits.shape == logits.shape
        assert chunk.t_started == number
