"""connect([url, ..], reconnect=..): several engines over real carriers, and engines that come back."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.harness.several import MaskedWalk, Walk
from tests.support.listening import nobody
from tests.support.steps import advance, begin
from tests.support.vanishing import can_vanish, cut_from
from ue_rl.bridges import ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.lifecycle import Change, Life, LifeState
from ue_rl.connections.engines.url_engine import UrlEngine
from ue_rl.devtools.testing import MemoryTransport, PluginStandIn
from ue_rl.envs.connect import make_env, make_vector_env
from ue_rl.system import errors

A = np.zeros(6, np.int64)


def rollout(env: Any) -> list[bytes]:
    env.seed(7)
    seen = [env.reset().tobytes()]
    random = np.random.default_rng(2)
    for _ in range(25):
        obs, rewards, dones, infos = env.step(random.integers(0, 2, 6))
        seen += [obs.tobytes(), rewards.tobytes(), dones.tobytes()]
        seen += [repr(sorted((key, str(value)) for key, value in info.items())).encode() for info in infos]
    env.close()
    return seen


@pytest.mark.parametrize("kind", [Walk, MaskedWalk])
def test_mixed_carriers_give_what_one_engine_gives(kind: Any) -> None:
    from ue_rl.envs.vec_env import UnrealVecEnv

    with contextlib.ExitStack() as stack:
        text = stack.enter_context(run_in_thread(kind(2, 0)))
        upgraded = stack.enter_context(run_in_thread(kind(1, 2), upgrader=ShmUpgrader()))
        memory = stack.enter_context(run_shm_in_thread(kind(3, 3)))
        env = ue_rl.connect([text.url, upgraded.url, memory.url], timeout=10, monitor=False)
        facts = env.transport.describe()  # type: ignore[attr-defined]
        assert facts["engines"] == "3"
        assert facts["transport"] == "tcp, shared memory"
        seen = rollout(env)
    assert seen == rollout(UnrealVecEnv(MemoryTransport(kind(6)), monitor=False))


def test_the_gymnasium_envs_of_several_urls() -> None:
    with run_in_thread(Walk(2)) as one, run_in_thread(Walk(4, 2)) as other:
        vector = make_vector_env([one.url, other.url], num_envs=6, timeout=10)
        obs, _ = vector.reset(seed=4)
        assert obs[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        vector.close()
    with run_in_thread(Walk(2)) as one, run_in_thread(Walk(4, 2)) as other:
        with pytest.raises(errors.ConfigurationError, match=r"expected 6; got 5"):
            make_vector_env([one.url, other.url], num_envs=5, timeout=10)


def test_one_address_twice() -> None:
    with pytest.raises(errors.ConfigurationError, match="serves one trainer"):
        ue_rl.connect(["tcp://127.0.0.1:1", "tcp://127.0.0.1:1"])


def test_a_wrong_address_is_found_before_any_is_dialled() -> None:
    with pytest.raises(errors.ConfigurationError, match="not an address"):
        ue_rl.connect(["tcp://127.0.0.1:1", "http://x"])
    for wrong in (None, 7777, b"tcp://127.0.0.1:1", ["tcp://127.0.0.1:1", 7777]):
        with pytest.raises(errors.ConfigurationError, match="address is a text"):
            ue_rl.connect(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("reconnect", [-1.0, float("inf"), float("nan")])
def test_times_that_are_none(reconnect: float) -> None:
    with pytest.raises(errors.ConfigurationError, match="reconnect"):
        ue_rl.connect("tcp://127.0.0.1:1", reconnect=reconnect)


def test_an_engine_that_nobody_has_started() -> None:
    with nobody() as port, pytest.raises(errors.EngineUnreachable):
        ue_rl.connect(f"tcp://127.0.0.1:{port}", reconnect=60, timeout=5)


@pytest.mark.parametrize("carrier", ["text", "upgraded", "shm"])
def test_an_engine_that_comes_back_is_dialled_again(carrier: str) -> None:
    changes: list[Change] = []

    def serve(port: int = 0, name: str | None = None) -> Any:
        if carrier == "shm":
            return run_shm_in_thread(Walk(2), **({} if name is None else {"name": name}))
        options = {"upgrader": ShmUpgrader()} if carrier == "upgraded" else {}
        return run_in_thread(Walk(2), port=port, **options)

    first = serve()
    env = ue_rl.connect(first.url, reconnect=20, timeout=10, on_change=changes.append)
    try:
        env.reset()
        env.step(A[:2])
        again: list[Any] = []
        if carrier == "shm":
            name = first.name
            first.close()
            start = threading.Timer(0.1, lambda: again.append(serve(name=name)))
        else:
            port = first.port
            first.close()
            start = threading.Timer(0.1, lambda: again.append(serve(port)))
        start.start()
        obs, rewards, dones, infos = env.step(A[:2])
        start.join()
        assert dones.all()
        assert rewards.tolist() == [0, 0]
        assert obs[:, 2].tolist() == [0, 0]
        assert infos[0]["terminal_observation"][2] == 1
        assert "engine_lost" in infos[1]
        assert env.step(A[:2])[0][:, 2].tolist() == [1, 1]
        states = [change.after for change in changes if not change.of_episodes]
        begin = [LifeState.CONNECTING, LifeState.STREAMING, LifeState.PLAYING]
        assert states == [*begin, LifeState.CONNECTION_LOST, LifeState.CLEANUP, *begin]
    finally:
        env.close()
        for host in again:
            host.close()


@can_vanish
def test_an_engine_that_was_only_disconnected() -> None:
    """The engine goes on and takes the next trainer: it is dialled at once."""
    with run_in_thread(Walk(2)) as served:
        env = ue_rl.connect(served.url, "tcp", reconnect=20, timeout=10)
        env.reset()
        assert cut_from(served.port)
        began = time.monotonic()
        _, _, dones, _ = env.step(A[:2])
        assert dones.all()
        assert time.monotonic() - began < 5
        env.step(A[:2])
        env.close()


def test_an_engine_that_does_not_come_back() -> None:
    served = run_in_thread(Walk(2))
    env = ue_rl.connect(served.url, reconnect=0.3, timeout=10)
    env.reset()
    served.close()
    with pytest.raises(errors.RestartsSpent, match=r"did not come back within 0.3 s"):
        env.step(A[:2])
    with pytest.raises(errors.ConnectionUnusable, match=r"did not come back"):
        env.reset()


def test_no_try_is_begun_that_has_no_time_left() -> None:
    """It would fail for that, and the error would hide why all before it failed."""
    waits: list[float] = []

    def dial(wait: float | None, _: float | None) -> Any:
        if wait is None:
            return MemoryTransport(Walk(1))
        waits.append(wait)
        raise errors.EngineDisconnected("the engine closed the connection", fault="engine")

    source, life = UrlEngine("tcp://127.0.0.1:7777", dial, reconnect=0.5), Life(0)
    source.open(life)
    life.to(LifeState.CLEANUP)
    with pytest.raises(errors.RestartsSpent, match="the engine closed the connection"):
        source.open(life)
    assert len(waits) > 1
    assert min(waits) >= 0.2


def test_a_gymnasium_env_that_reconnects() -> None:
    served = run_in_thread(Walk(1))
    env = make_env(served.url, reconnect=20, timeout=10)
    env.reset(seed=5)
    port = served.port
    served.close()
    _, reward, ended, cut, _ = env.step(0)
    assert (reward, ended, cut) == (0, False, True)
    with run_in_thread(Walk(1), port=port):
        obs, _ = env.reset(seed=6)
        assert obs.tolist() == [0, 6, 0, 0]
        env.close()


def test_the_deployed_plugin_is_dialled_until_it_is_played_again(caplog: pytest.LogCaptureFixture) -> None:
    played = PluginStandIn(num_envs=2).__enter__()
    transport = open_transport(played.url, reconnect=30, timeout=10)
    begin(transport)
    port = played.port
    played.__exit__(None, None, None)
    silent = _silent_listener(port)  # its old listener takes connections and says nothing
    actions = np.zeros((2, transport.spec.act_size), np.float32)
    assert advance(transport, actions).lost == {0, 1}

    def play_again() -> None:
        silent.accept()
        silent.close()
        games.append(PluginStandIn(num_envs=2, port=port).__enter__())

    games: list[Any] = []
    playing = threading.Thread(target=play_again)
    playing.start()
    with caplog.at_level(logging.WARNING, "ue_rl.connections.engines"):
        transport.reset()
    transport.receive()
    playing.join()
    assert sum("press Play again" in record.getMessage() for record in caplog.records) == 1
    assert advance(transport, actions).lost == set()
    transport.close()
    games[0].__exit__(None, None, None)


def _silent_listener(port: int) -> Any:
    import socket

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener
