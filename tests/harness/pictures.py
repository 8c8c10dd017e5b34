"""Pictures: an engine with large images, and a trainer that loses it again and again.

python -m tests.harness.pictures serve --port PORT      the engine; it offers shared memory
python -m tests.harness.pictures lose TIMES             a trainer that kills it so often, and says what came back
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import ShmUpgrader, VectorBridge, serve
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.connections.launching.engine import LaunchedEngine
from ue_rl.protocol.spec import EnvSpec, ImageSpec

ENVS, IMAGE = 12, ImageSpec(480, 640, 3)  # 11 MB in all
FAILS = 9.0  # an action


class Pictures(VectorBridge):
    """Every pixel of a row is its step. It fails where an action is FAILS.

    Args:
        image: of each env; None: it has none.
    """

    def __init__(self, num_envs: int = ENVS, image: ImageSpec | None = IMAGE) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=num_envs, image=image))

    def _show(self, env_ids: NDArray[np.intp]) -> None:
        if self.outbox.image is not None:
            for env in env_ids.tolist():
                self.outbox.image[env] = self.outbox.obs[env, 0]

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        self.outbox.obs[env_ids] = 0
        self._show(env_ids)

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        if (actions == FAILS).any():
            raise RuntimeError("told to fail")
        self.outbox.obs[env_ids] += 1
        self._show(env_ids)


def mapped() -> list[str]:
    """Names of the segments that this process has mapped, once for each mapping."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [found[1] for line in lines if (found := re.search(r"/(ue_rl_\d+_\w+)", line))]


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def _lose(times: int) -> dict[str, list[Any]]:
    """Without the cyclic collector, which in a training may not come by for a long time."""
    command = [sys.executable, "-m", "tests.harness.pictures", "serve", "--port", "{port}"]
    source = LaunchedEngine(command, None, None, 0, None, open_transport)
    seen: dict[str, list[Any]] = {"carrier": [], "mapped": [], "descriptors": []}
    gc.collect()
    gc.disable()
    with EnginesTransport([source], restarts=Restarts(1000, 1.0, first_pause=0.0)) as transport:
        for _ in range(times + 1):
            transport.reset()
            transport.receive()
            transport.send_actions(np.zeros((ENVS, 1), np.float32))
            image = transport.receive().image
            assert image is not None
            assert (image[:, 0, 0, 0] == 1).all()
            seen["carrier"].append(transport.describe()["transport"])
            seen["mapped"].append(len(mapped()))
            seen["descriptors"].append(descriptors())
            assert source.pid is not None
            os.kill(source.pid, signal.SIGKILL)
            transport.send_actions(np.zeros((ENVS, 1), np.float32))
            assert transport.receive().lost == set(range(ENVS))
    return seen


def main() -> None:
    """See the module's docstring."""
    if sys.argv[1] == "serve":
        serve(Pictures(), port=int(sys.argv[3]), upgrader=ShmUpgrader())
    else:
        print(json.dumps(_lose(int(sys.argv[2]))))


if __name__ == "__main__":
    main()
