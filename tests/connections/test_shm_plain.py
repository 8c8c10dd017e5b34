"""Producers of the plain layout."""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pytest

import ue_rl
from tests.connections.shm_games import ones
from ue_rl.protocol.memory.header import CLIENT_PID
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.segment import Segment

pytestmark = pytest.mark.usefixtures("nothing_left")


class Plain(threading.Thread):
    """An engine that knows nothing of our extension: it steps all envs in every frame. Env i ends after i + 3 steps."""

    def __init__(self, n: int = 1, gymnasium_flags: bool = False) -> None:
        super().__init__(daemon=True)
        header, size = plan(n, 2, 1, ring_size=0, config=None, server_pid=os.getpid())
        self.segment = Segment.create(size)
        self.memory = StepMemory.create(self.segment.memory, header)
        self.n, self.flags, self.stop = n, gymnasium_flags, threading.Event()
        self.age, self.given = np.zeros(n, np.int64), np.zeros(n)

    def run(self) -> None:
        memory = self.memory
        bell = memory.bell(engine=True)
        seen = 0
        while not self.stop.is_set():
            now = bell.wait(seen, 0, 20)
            if now == seen:
                continue
            assert now == seen + 1
            seen = now
            resets = memory.resets != 0
            self.age = np.where(resets, 0, self.age + 1)
            memory.obs[:, 0], memory.obs[:, 1] = self.age, memory.actions[:, 0]
            memory.rewards[:] = np.where(resets, 0, 1)
            self.given += memory.rewards
            over = self.age >= np.arange(self.n) + 3
            memory.truncated[:] = over
            memory.dones[:] = over & (not self.flags)
            bell.publish()
        bell.release()

    def __enter__(self) -> Plain:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.join()
        self.memory.release()
        self.segment.close()


@pytest.mark.parametrize("gymnasium_flags", [False, True])
def test_a_plain_producer_trains_one_env_exactly(gymnasium_flags: bool) -> None:
    with Plain(1, gymnasium_flags) as engine, contextlib.closing(ue_rl.connect(f"shm://{engine.segment.name}")) as env:
        assert env.reset().tolist() == [[0, 0]]
        seen = [env.step(np.full((1, 1), 0.5, np.float32)) for _ in range(7)]
        assert [s[0][0, 0] for s in seen] == [1, 2, 0, 1, 2, 0, 1]
        assert [bool(s[2][0]) for s in seen] == [False, False, True, False, False, True, False]
        assert seen[2][3][0]["terminal_observation"].tolist() == [3, 0.5]
        assert seen[2][3][0]["TimeLimit.truncated"]
        assert env.transport.describe()["protocol"].startswith("plain layout")
        assert engine.memory.load_u32(CLIENT_PID) == os.getpid()
    assert engine.memory is not None


def test_a_plain_producer_with_several_envs_loses_no_reward_and_no_end() -> None:
    n = 3
    with Plain(n) as engine, contextlib.closing(ue_rl.connect(f"shm://{engine.segment.name}")) as env:
        env.reset()
        rewards, ends = np.zeros(n), np.zeros(n, int)
        for _ in range(60):
            _, reward, dones, infos = env.step(ones(0.5, n))
            rewards += reward
            ends += dones
            for i in np.flatnonzero(dones):
                assert infos[i]["terminal_observation"][0] >= i + 3
        assert (ends > 8).all()
        # what a frame brought while others were reset came with the next step; the last frame's may be on its way
        owed = engine.given - rewards
        assert ((owed == 0) | (owed == 1)).all(), owed
