"""Sessions as the envs of an engine, over text and shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra train is not installed: a trainer plays here")

from tests.plugins.sessions.realtime.games import OneByOne, Sums
from tests.support.steps import advance, begin
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.check import check
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.engine import SessionsBridge, serve
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError, EngineDisconnected, UeRlError


def rollout(transport: Transport, steps: int, seeds: list[int]) -> list[Any]:
    """All that an engine answers to the same requests."""
    spec = transport.connect()
    random = np.random.default_rng(1)
    found: list[Any] = [begin(transport, seeds=seeds).obs.tobytes()]
    for _ in range(steps):
        size = (spec.num_envs, spec.act_size)
        actions = random.integers(0, 2, size) if spec.action_spec.counts else random.uniform(-1, 1, size)
        got = advance(transport, actions.astype(np.float32))
        found.append((got.obs.tobytes(), got.rewards.tobytes(), got.dones.tobytes(), got.truncated.tobytes()))
        if over := np.flatnonzero(got.dones).tolist():
            found.append(begin(transport, over).obs.tobytes())
    transport.close()
    return found


@pytest.mark.parametrize(("game", "together"), [("CartPole-v1", None), ("Pendulum-v1", True)])
def test_episodes_are_equal_to_the_bit_to_those_without_sessions(game: str, together: bool | None) -> None:
    seeds = [5, 6, 7]
    wanted = rollout(MemoryTransport(GymnasiumBridge(game, 3)), 120, seeds)
    with SessionPool(game, max_sessions=6, workers=2, together=together) as pool:
        assert rollout(MemoryTransport(SessionsBridge(pool, 3)), 120, seeds) == wanted
        for transport in ("tcp", "auto"):
            with serve(pool, "127.0.0.1", 0, num_envs=3) as server:
                carrier = open_transport(server.url, transport)
                assert rollout(carrier, 120, seeds) == wanted
            assert len(pool.sessions()) == 3, "the engine's have gone with it"


def test_a_step_may_be_several_ticks() -> None:
    with SessionPool(Sums, max_sessions=4, workers=1) as pool:
        transport = MemoryTransport(SessionsBridge(pool, 2, ticks=5))
        begin(transport)
        assert advance(transport, 3).obs[:, 1:3].tolist() == [[5, 3], [5, 3]]
        with pytest.raises(ConfigurationError, match="fewer sessions than envs"):
            SessionsBridge(pool, 5)


def test_an_env_whose_session_has_ended_gets_another_one() -> None:
    with SessionPool(OneByOne, max_sessions=4, workers=1) as pool:
        bridge = SessionsBridge(pool, 1)
        with run_in_thread(bridge) as server:
            transport = open_transport(server.url, "tcp")
            begin(transport)
            transport.send_actions(np.full((1, 1), 7, np.float32))
            with pytest.raises(EngineDisconnected, match="ZeroDivisionError"):
                transport.receive()
            transport.close()
            again = open_transport(server.url, "tcp", wait=10)
            assert begin(again, seeds=[3]).obs[0].tolist() == [3, 0, 0, 0]
            again.close()


def test_in_real_time_a_step_takes_the_newest_observation() -> None:
    with SessionPool(Sums, max_sessions=2, workers=1, tick_rate=200, kwargs={"length": 10**9}) as pool:
        with serve(pool, "127.0.0.1", 0, num_envs=2) as server:
            transport = open_transport(server.url, "tcp")
            spec = transport.connect()
            assert {"REALTIME", "INFO"} <= spec.features
            begin(transport, seeds=[1, 2])
            ticks = [0, 0]
            total = np.zeros(2)
            for _ in range(20):
                got = advance(transport, 1)
                for env in range(2):
                    info = got.infos[env]
                    assert info["tick"] == ticks[env] + info["ticks_advanced"] > ticks[env]
                    ticks[env] = info["tick"]
                total += got.rewards
            assert (got.obs[:, 0] == [1, 2]).all()
            assert (total == got.obs[:, 2]).all(), "no reward is lost with an observation that nobody has seen"
            transport.close()


@pytest.mark.slow
def test_a_check_blames_no_engine_in_real_time_for_what_comes_meanwhile() -> None:
    only = ["what partial batches do", "requests in two pieces", "several lines in one write", "a seed twice"]
    with SessionPool("tests.plugins.sessions.game:Drift", max_sessions=2, workers=1, tick_rate=50) as pool:
        with serve(pool, "127.0.0.1", 0, num_envs=2) as server:
            report = check(server.url, only=only)
    texts = {each.check: each.text for each in report.findings}
    assert report.mistakes == []
    assert "do not repeat" in texts["what partial batches do"]
    assert "in real time no seed" in texts["a seed twice"]


@pytest.mark.parametrize("rate", [None, 200.0])
def test_an_env_whose_episode_is_over_stays_as_it_is(rate: float | None) -> None:
    with SessionPool(Sums, max_sessions=2, workers=1, tick_rate=rate, kwargs={"length": 3}) as pool:
        transport = MemoryTransport(SessionsBridge(pool, 2))
        begin(transport)
        for _ in range(6):
            got = advance(transport, 1)
        assert (got.obs[:, 1].tolist(), got.dones.tolist(), got.rewards.tolist()) == ([3, 3], [1, 1], [0, 0])
        begin(transport, [1])
        assert advance(transport, 1).dones[0]


def test_what_a_session_cannot_do_is_not_announced() -> None:
    with SessionPool("Pendulum-v1", max_sessions=1, workers=1, kwargs={"render_mode": "rgb_array"}) as pool:
        assert pool.spec.features <= {"SEED", "OPTIONS", "TRUNC", "MASK", "INFO"}
        assert "ENV_COUNT=1" in pool.handshake
    with pytest.raises(UeRlError, match="cannot be loaded"):
        SessionPool("no_such_module:Game")
    with pytest.raises(ConfigurationError, match="cannot be called so"):
        SessionPool(Sums, kwargs={"nothing": 1})
