"""The same episode, same seed and same actions at the same ticks, is equal to the bit whatever carries it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import ue_rl
from tests.plugins.sessions.game import Drift
from tests.plugins.sessions.talking import mcp_client
from tests.support.steps import advance, begin
from ue_rl.bridges import run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.plugins.sessions.grpc.client import SessionClient
from ue_rl.plugins.sessions.grpc.client.client import numbers
from ue_rl.plugins.sessions.openenv import application
from ue_rl.protocol.transport import Transport

SEED = 11
Episode = list[tuple[bytes, float, bool, bool]]  # observation, reward, terminated, truncated


def actions() -> np.ndarray:
    return np.random.default_rng(2).uniform(-3, 3, (60, 2)).astype(np.float32)


def of_transport(transport: Transport, env: int) -> Episode:
    """Of one env; the others play something else, and the first of them rests in every other step."""
    with closing(transport):
        num_envs = transport.connect().num_envs
        seen = begin(transport, seeds=[SEED if each == env else 5 + each for each in range(num_envs)])
        episode: Episode = [(seen.obs[env].tobytes(), 0.0, False, False)]
        for number, action in enumerate(actions()):
            rows = np.full((num_envs, 2), 0.25, np.float32)
            rows[env] = action
            ended = np.flatnonzero(seen.dones).tolist()
            rests = [0] if number % 2 and num_envs > 1 and 0 not in ended else []
            before = seen.obs[0].copy()
            seen = advance(transport, rows, resets=ended, resting=rests)
            assert not rests or np.array_equal(seen.obs[0], before)
            cut = bool(seen.truncated[env])
            done = bool(seen.dones[env])
            episode.append((seen.obs[env].tobytes(), float(seen.rewards[env]), done and not cut, cut))
            if done:
                break
        return episode


def over_memory() -> Episode:
    return of_transport(MemoryTransport(Drift(3)), 1)


def over_text() -> Episode:
    with run_in_thread(Drift(3)) as engine:
        return of_transport(open_transport(engine.url), 1)


def over_step_all(served: Any) -> Episode:
    _, server = served("grpc")
    return of_transport(open_transport(server.url, num_envs=3), 1)


def over_step_all_one_by_one(served: Any) -> Episode:
    _, server = served("grpc", together=False)
    return of_transport(open_transport(server.url, num_envs=3), 1)


def over_fast_advance(served: Any) -> Episode:
    async def play() -> Episode:
        async with SessionClient(served("grpc")[1].url) as client:
            seen = await client.reset(SEED)
            episode: Episode = [(numbers(seen).tobytes(), 0.0, False, False)]
            for action in actions():
                seen = await client.advance(1, [action])
                episode.append((numbers(seen).tobytes(), seen.reward, seen.terminated, seen.truncated))
                if seen.terminated or seen.truncated:
                    break
            return episode

    return asyncio.run(play())


def of_json(shown: dict[str, Any], reward: float | None, done: bool) -> tuple[bytes, float, bool]:
    return np.array(shown["observation"], np.float32).tobytes(), np.float32(reward or 0).item(), done


def over_openenv(make_pool: Any) -> Episode:
    client = TestClient(application(make_pool()))
    with client.websocket_connect("/ws") as socket:

        def ask(kind: str, data: dict[str, Any]) -> Any:
            socket.send_text(json.dumps({"type": kind, "data": data}))
            answer = json.loads(socket.receive_text())
            assert answer["type"] == "observation", answer
            return answer["data"]

        told = [ask("reset", {"seed": SEED})]
        for action in actions():
            told.append(ask("step", {"action": action.tolist()}))
            if told[-1]["done"]:
                break
    return [
        (
            *of_json(each["observation"], each["reward"], False)[:2],
            each["done"] and cut(each),
            each["done"] and not cut(each),
        )
        for each in told
    ]


def cut(answer: dict[str, Any]) -> bool:
    return answer["observation"]["result"] != "draw"


def over_mcp(served: Any) -> Episode:
    async def play() -> Episode:
        async with mcp_client(served("mcp")[1].url) as call:
            told = [await call("reset", {"seed": SEED})]
            for action in actions():
                told.append(await call("step", {"action": action.tolist()}))
                if told[-1]["terminated"] or told[-1]["truncated"]:
                    break
            return [(*of_json(each, each["reward"], False)[:2], each["terminated"], each["truncated"]) for each in told]

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("carrier", "needs"),
    [
        (over_text, None), (over_step_all, "served"), (over_step_all_one_by_one, "served"),
        (over_fast_advance, "served"), (over_openenv, "make_pool"), (over_mcp, "served"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_an_episode_is_the_same(carrier: Callable[..., Episode], needs: str | None, request: Any) -> None:
    expected = over_memory()
    assert len(expected) > 10
    assert any(expected[-1][2:]), "it ends"
    got = carrier(*([request.getfixturevalue(needs)] if needs else []))
    assert got == expected


@pytest.mark.exhaustive  # that the rows are the same is tried in each run
def test_a_policy_that_learns_over_grpc_is_the_one_that_learns_over_text(served: Any) -> None:
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO

    from ue_rl.bridges import GymnasiumBridge

    def weights(url: str, **options: Any) -> list[np.ndarray]:
        env = ue_rl.connect(url, **options)
        with closing(env):
            env.seed(4)
            model = PPO("MlpPolicy", env, n_steps=16, batch_size=24, n_epochs=1, seed=3, device="cpu").learn(96)
            return [value.detach().numpy().copy() for value in model.policy.state_dict().values()]

    with run_in_thread(GymnasiumBridge("CartPole-v1", 3)) as engine:
        text = weights(engine.url)
    _, server = served("grpc", "CartPole-v1")
    for got, expected in zip(weights(server.url, num_envs=3), text, strict=True):
        np.testing.assert_array_equal(got, expected)
