"""Games of the tests of shared memory, and what hosts and steps them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.games import Sum
from ue_rl.bridges import ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.spec import EnvSpec

posix = pytest.mark.skipif(os.name != "posix", reason="signals and files under a mapping are POSIX's")
N = 3


def summing(num_envs: int = N, **fields: Any) -> Sum:
    return Sum(EnvSpec(2, 1, num_envs=num_envs, **fields))


def ones(value: float = 1.0, n: int = N) -> np.ndarray:
    return np.full((n, 1), value, np.float32)


def kinds() -> list[Any]:
    return [pytest.param(False, id="by-name"), pytest.param(True, id="upgraded")]


@contextlib.contextmanager
def hosted(bridge: Any, upgraded: bool, timeout: float = 20) -> Iterator[tuple[Any, SharedMemoryConnection]]:
    if upgraded:
        with run_in_thread(bridge, upgrader=ShmUpgrader()) as server:
            yield server, SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=timeout)
    else:
        with run_shm_in_thread(bridge) as host:
            yield host, SharedMemoryConnection(host.name, timeout=timeout)
