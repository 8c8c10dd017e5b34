"""Games of the tests of shared memory, and what hosts and steps them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ue_rl.bridges import (
    ShmUpgrader,
    VectorBridge,
    run_in_thread,
    run_shm_in_thread,
)
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.spec import EnvSpec

posix = pytest.mark.skipif(os.name != "posix", reason="signals and files under a mapping are POSIX's")
N = 3


class Sum(VectorBridge):
    """Adds up the actions; says how often it was reset."""

    def __init__(self, num_envs: int = N, **fields: Any) -> None:
        super().__init__(EnvSpec(2, 1, num_envs=num_envs, **fields))
        self.told: list[Any] = []

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.told.append((list(env_ids), list(seeds), list(options)))
        self.outbox.obs[env_ids, 0] = 0
        self.outbox.obs[env_ids, 1] += 1

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.obs[env_ids, 0] += actions[env_ids, 0]
        self.outbox.rewards[env_ids] = actions[env_ids, 0]


def ones(value: float = 1.0, n: int = N) -> np.ndarray:
    return np.full((n, 1), value, np.float32)


def kinds() -> list[Any]:
    return [pytest.param(False, id="by-name"), pytest.param(True, id="upgraded")]


@contextlib.contextmanager
def hosted(bridge: Any, upgraded: bool, timeout: float = 5) -> Iterator[tuple[Any, SharedMemoryConnection]]:
    if upgraded:
        with run_in_thread(bridge, upgrader=ShmUpgrader()) as server:
            yield server, SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=timeout)
    else:
        with run_shm_in_thread(bridge) as host:
            yield host, SharedMemoryConnection(host.name, timeout=timeout)
