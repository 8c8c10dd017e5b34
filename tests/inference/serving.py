"""A policy server on loopback, the engines that dial it, and the models that it serves."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.models import SMALL, SMALL_RECURRENT, export_briefly
from ue_rl.inference import ReloadingInference
from ue_rl.inference.server.server import PolicyServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def exported(env_id: str, path: Path, algorithm: str = "PPO", policy: str = "MlpPolicy", seed: int = 0) -> Path:
    """The file of a model that was not trained."""
    import gymnasium as gym
    import sb3_contrib
    import stable_baselines3

    kind = getattr(stable_baselines3 if algorithm == "PPO" else sb3_contrib, algorithm)
    small = dict(SMALL_RECURRENT if algorithm == "RecurrentPPO" else SMALL)
    short: Any = {"n_steps": 8, "batch_size": 8, "policy_kwargs": small}
    export_briefly(kind(policy, gym.make(env_id), seed=seed, device="cpu", **short), path)
    return path


class Server(PolicyServer):
    """Its end closes the connections that were dialled."""

    def __init__(self, policy: ReloadingInference, **options: Any) -> None:
        super().__init__(policy, **options)
        self._dialled: list[asyncio.StreamWriter] = []

    async def dial(self, hello: str = "CONFIG:OBS=3;ACT=1\n", **options: Any) -> Streams:
        streams = await asyncio.open_connection("127.0.0.1", self.port, **options)
        self._dialled.append(streams[1])
        streams[1].write(hello.encode())
        return streams

    async def __aexit__(self, *_: object) -> None:
        for writer in self._dialled:
            writer.close()
        await super().__aexit__()


@asynccontextmanager
async def serving(
    path: Path, kind: type[ReloadingInference] = ReloadingInference, **options: Any
) -> AsyncIterator[Server]:
    with kind(path, interval=None) as policy:
        async with Server(policy, port=0, reload_interval=0.05, **options) as server:
            yield server  # type: ignore[misc]


async def ask(streams: Streams, text: str) -> str:
    streams[1].write(text.encode())
    return (await asyncio.wait_for(streams[0].readline(), 30)).decode()


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def numbers(answer: str) -> list[float]:
    return [float(text) for text in re.findall(r"ACT=([^;|\n]+)", answer)]
