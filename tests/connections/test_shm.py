"""SharedMemoryConnection against real hosts: attaching, the upgrade from text, who may come, and every kind of end."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ue_rl
from ue_rl import errors
from ue_rl.bridges import (
    MultiEnvBridge,
    ShmHost,
    ShmUpgrader,
    VectorBridge,
    run_in_thread,
    run_shm_in_process,
    run_shm_in_thread,
)
from ue_rl.connections import MultiTcpConnection, SharedMemoryConnection, open_engine
from ue_rl.errors import ConfigurationError
from ue_rl.shm import segment
from ue_rl.shm.header import _NAMES, CLIENT_PID, FRAME_SEQ, HEADER_SIZE, SERVER_STATE
from ue_rl.shm.memory import StepMemory, plan
from ue_rl.shm.segment import Segment
from ue_rl.spec import EnvSpec
from ue_rl.transport import Transport

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


def step(connection: Transport, value: float = 1.0) -> list[float]:
    connection.send_actions(ones(value, connection.spec.num_envs))
    return connection.receive().obs[:, 0].tolist()


def reset(connection: Transport) -> None:
    connection.reset()
    connection.receive()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every test leaves /dev/shm as it found it."""

    def there() -> set[str]:
        return {p.name for p in segment.SHM_DIR.glob(f"{segment.PREFIX}{os.getpid()}_*")}

    before = there()
    yield
    assert there() == before


# -- attaching by name


def test_views_and_copies() -> None:
    """The engine writes into the segment; the connection's numbers are checked copies, good until its next request."""
    with run_shm_in_thread(Sum()) as host, SharedMemoryConnection(host.name) as connection:
        reset(connection)
        assert step(connection, 2.5) == [2.5] * N
        memory = connection.memory
        # the bridge's side has no copy: it writes what the trainer takes
        bridge = host.host.bridge
        assert bridge.outbox.obs is host.host.memory.obs
        bridge.outbox.obs[1, 1] = 77
        assert memory.obs[1, 1] == 77
        assert connection.buffers.obs[1, 1] != 77, "what was checked does not change afterwards"
        memory.actions[2, 0] = 0.5
        assert bridge.inbox.actions[2, 0] == 0.5
    assert not np.shares_memory(bridge.outbox.obs, memory.obs)
    assert memory.obs[1, 1] == 77, "arrays stay readable after the end"


@pytest.mark.parametrize("copy", [True, False])
def test_copy_false_gives_the_segments_arrays(copy: bool) -> None:
    with run_shm_in_thread(Sum()) as host, contextlib.closing(ue_rl.connect(host.url, copy=copy)) as env:
        env.reset()
        first = env.step(ones())[0]
        kept = first.copy()
        second = env.step(ones())[0]
        assert np.shares_memory(first, second) is not copy
        assert (first == kept).all() == copy


def test_two_engines_without_tokens_are_two_engines() -> None:
    """By name the token is unused, and may be zero in every segment (docs/shared-memory.md, section 7)."""
    with run_shm_in_thread(Sum()) as one, run_shm_in_thread(Sum()) as other:
        for host in (one, other):
            with contextlib.closing(Segment.open(host.name)) as mapped:
                mapped.memory[224:240] = bytes(16)
        with (
            SharedMemoryConnection(one.name, timeout=5) as first,
            SharedMemoryConnection(other.name, timeout=5) as second,
        ):
            assert first.memory.header.token == second.memory.header.token == bytes(16)
            for connection in (first, second, first):
                reset(connection)
                assert step(connection) == [1] * N


def test_names_urls_and_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with run_shm_in_thread(Sum()) as host:
        monkeypatch.setenv("LUCKY_SHM_NAME", host.name)
        for url in (host.url, "shm://"):
            with contextlib.closing(ue_rl.connect(url, "shm")) as env:
                assert env.reset().shape == (N, 2)
                assert env.transport.describe()["address"] == host.url
    path = tmp_path / "engine.shm"
    with run_shm_in_thread(Sum(), name=str(path)) as host:
        assert host.url == f"shm://{path}"
        with contextlib.closing(ue_rl.connect(host.url)) as env:
            assert env.num_envs == N
    assert not path.exists()
    with pytest.raises(errors.EngineUnreachable, match=r"no shared memory named 'nobody'.*running"):
        ue_rl.connect("shm://nobody")
    for options in ({"transport": "tcp"}, {"channel": "shared"}):
        with pytest.raises(ConfigurationError, match="this address is shared memory"):
            ue_rl.connect("shm://nobody", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no such transport"):
        ue_rl.connect("tcp://127.0.0.1:7", "carrier-pigeon")
    with pytest.raises(ConfigurationError, match="channel is a wiring of TCP"):
        ue_rl.connect("tcp://127.0.0.1:7", "shm", channel="shared")


def test_the_trainer_may_start_first(tmp_path: Path) -> None:
    path = str(tmp_path / "late.shm")
    connection = SharedMemoryConnection(path, wait=20)
    thread = threading.Thread(target=connection.connect)
    thread.start()
    with run_shm_in_thread(Sum(), name=path):
        thread.join()
        reset(connection)
        assert step(connection) == [1.0] * N
        connection.close()


def test_one_trainer_at_a_time_and_the_next_is_served() -> None:
    bridge = Sum()
    with run_shm_in_thread(bridge) as host:
        for turn in range(3):
            with SharedMemoryConnection(host.name, connect_timeout=5) as connection:
                reset(connection)
                assert step(connection) == [1.0] * N
                with pytest.raises(ConfigurationError, match=rf"another trainer.*process {os.getpid()}"):
                    SharedMemoryConnection(host.name).connect()
                if turn == 1:  # leaves in the middle of a request: its answer must not reach the next one
                    connection.send_actions(ones(1000))
        assert host.host.sessions == 3


def test_seeds_and_options_need_their_feature() -> None:
    bridge = Sum(features=frozenset({"SEED", "OPTIONS"}))
    with run_shm_in_thread(bridge) as host, SharedMemoryConnection(host.name) as connection:
        connection.reset([0, 2], [7, None], [None, {"level": 3}])
        connection.receive()
        assert bridge.told == [([0, 2], [7, None], [None, {"level": 3}])]
    with run_shm_in_thread(Sum()) as host, SharedMemoryConnection(host.name) as connection:
        for wrong in ({"seeds": [1] * N}, {"options": [{"a": 1}] * N}):
            with pytest.raises(errors.UnsupportedByEngine, match="FEATURES="):
                connection.reset(**wrong)  # type: ignore[arg-type]
        reset(connection)


def test_an_engine_with_a_loop_of_its_own_ticks_the_host() -> None:
    with ShmHost(Sum()) as host:
        stop = threading.Event()

        def game() -> None:
            while not stop.is_set():
                host.tick(0.01)
                stop.wait(0.0005)

        thread = threading.Thread(target=game)
        thread.start()
        with SharedMemoryConnection(host.name) as connection:
            reset(connection)
            assert [step(connection)[0] for _ in range(5)] == [1, 2, 3, 4, 5]
        stop.set()
        thread.join()


def test_a_bridge_has_one_host_at_a_time() -> None:
    bridge = Sum()
    with run_shm_in_thread(bridge), pytest.raises(ConfigurationError, match="hosted already"):
        ShmHost(bridge)
    with run_in_thread(bridge), pytest.raises(ConfigurationError, match="hosted already"):
        ShmHost(bridge)
    with run_shm_in_thread(bridge) as host, SharedMemoryConnection(host.name) as connection:
        reset(connection)


# -- the upgrade


@pytest.mark.parametrize("transport", ["auto", "shm"])
def test_the_offer_is_taken(transport: str, caplog: pytest.LogCaptureFixture) -> None:
    with run_in_thread(Sum(), upgrader=ShmUpgrader()) as server:
        for _ in range(3):  # one trainer after the other, each with a segment of its own
            with contextlib.closing(ue_rl.connect(server.url, transport)) as env:
                assert isinstance(env.transport, SharedMemoryConnection)
                env.reset()
                assert env.step(ones(3))[0][:, 0].tolist() == [3.0] * N
                assert env.transport.describe()["wiring"] == "shared memory, socket doorbell"
        assert server.server.sessions == 3


def test_no_offer_no_wish_or_a_named_channel_is_text() -> None:
    with run_in_thread(Sum(), upgrader=ShmUpgrader()) as server:
        for options in ({"transport": "tcp"}, {"channel": "shared"}, {"channel": "per_env"}):
            with contextlib.closing(open_engine("127.0.0.1", server.port, **options)) as connection:  # type: ignore[arg-type]
                assert isinstance(connection, MultiTcpConnection)
                reset(connection)
                assert step(connection) == [1.0] * N
    with run_in_thread(Sum()) as server:
        with contextlib.closing(open_engine("127.0.0.1", server.port)) as connection:
            assert isinstance(connection, MultiTcpConnection)
        with pytest.raises(errors.UnsupportedByEngine, match=r"does not offer it.*ue-rl serve --shm"):
            ue_rl.connect(server.url, "shm")


class Elsewhere(ShmUpgrader):
    """Offers what the trainer cannot map, or should not."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._how = how

    def offer(self, bridge: Any) -> str | None:
        text = super().offer(bridge)
        assert text is not None
        assert self._host is not None
        if self._how == "another machine":
            return text.replace(segment.PREFIX, "not_here_")
        if self._how == "another token":
            return text[:-4] + ("0000" if text[-4:] != "0000" else "1111")
        if self._how == "another size":
            self._host.memory.buffer[28] = 9
        elif self._how == "no proof":
            self._host.memory.header.proof = bytes(16)
        elif self._how == "not serving":
            self._host.memory.store_u32(SERVER_STATE, 2)
        return text if self._how != "unreadable" else "nonsense"


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("another machine", "no shared memory named"),
        ("another token", "another segment has the offered name"),
        ("another size", "leaves the segment|overlap|disagree"),
        ("no proof", "proof is not this segment's"),
        ("not serving", "has closed the segment"),
        ("unreadable", "malformed offer of shared memory"),
    ],
)
def test_what_cannot_be_taken_goes_on_in_text_and_says_why(
    how: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ue_rl.connections")
    with run_in_thread(Sum(), upgrader=Elsewhere(how)) as server:
        with contextlib.closing(open_engine("127.0.0.1", server.port, timeout=5)) as connection:
            assert isinstance(connection, MultiTcpConnection)
            reset(connection)
            assert step(connection) == [1.0] * N
        told = [r.getMessage() for r in caplog.records if "goes on over TCP" in r.getMessage()]
        assert len([line for line in told if line.startswith("no shared memory, the run")]) == 1
        assert any(re.search(why, line) for line in told), told
        with pytest.raises(errors.UnsupportedByEngine, match=why):
            ue_rl.connect(server.url, "shm", timeout=5)


def test_where_there_is_no_memory_to_offer_the_server_serves_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> Any:
        raise ConfigurationError("a segment of 9 bytes cannot be made", fault="caller")

    monkeypatch.setattr(Segment, "create", full)
    with run_in_thread(Sum(), upgrader=ShmUpgrader()) as server:
        with contextlib.closing(ue_rl.connect(server.url)) as env:
            assert isinstance(env.transport, MultiTcpConnection)
            env.reset()
    assert "no shared memory to offer" in caplog.text


def test_a_segment_goes_as_soon_as_the_trainer_has_spoken_text() -> None:
    with run_in_thread(Sum(), upgrader=ShmUpgrader()) as server:
        with contextlib.closing(open_engine("127.0.0.1", server.port, transport="tcp")) as connection:
            reset(connection)
            assert not list(segment.SHM_DIR.glob(f"{segment.PREFIX}{os.getpid()}_*"))


def test_at_a_tick_rate_the_upgraded_session_keeps_it() -> None:
    with run_in_thread(Sum(), upgrader=ShmUpgrader(), tick_rate=100) as server:
        with contextlib.closing(ue_rl.connect(server.url, "shm")) as env:
            env.reset()
            begun = time.perf_counter()
            for _ in range(10):
                env.step(ones())
            assert time.perf_counter() - begun >= 0.09


# -- ends


def kinds() -> list[Any]:
    return [pytest.param(False, id="by-name"), pytest.param(True, id="upgraded")]


@contextlib.contextmanager
def hosted(bridge: Any, upgraded: bool) -> Iterator[tuple[Any, SharedMemoryConnection]]:
    if upgraded:
        with run_in_thread(bridge, upgrader=ShmUpgrader()) as server:
            yield server, SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=5)
    else:
        with run_shm_in_thread(bridge) as host:
            yield host, SharedMemoryConnection(host.name, timeout=5)


@pytest.mark.parametrize("upgraded", kinds())
def test_an_engine_that_closes_is_noticed_at_once(upgraded: bool, slack: float) -> None:
    with hosted(Sum(), upgraded) as (engine, connection):
        with connection:
            reset(connection)
            engine.close()
            begun = time.monotonic()
            with pytest.raises(errors.EngineDisconnected, match="the engine stops"):
                step(connection)
            assert time.monotonic() - begun < slack
            with pytest.raises(errors.ConnectionUnusable, match="failed before"):
                connection.reset()


@pytest.mark.parametrize("upgraded", kinds())
def test_a_game_that_fails_ends_its_session(upgraded: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Buggy(Sum):
        bugs = 1

        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            if actions[0, 0] == 13 and self.bugs:
                self.bugs -= 1
                raise RuntimeError("a bug of the game's")

    with hosted(Buggy(), upgraded) as (engine, connection):
        with connection:
            reset(connection)
            with pytest.raises(errors.EngineDisconnected):
                step(connection, 13)
        assert "a bug of the game's" in caplog.text
        assert "Traceback" in caplog.text
        again = (
            SharedMemoryConnection(engine=("127.0.0.1", engine.port))
            if upgraded
            else SharedMemoryConnection(engine.name, connect_timeout=5)
        )
        with again:
            reset(again)
            assert step(again, 13)[0] == 13


@pytest.mark.parametrize("upgraded", kinds())
@pytest.mark.parametrize("how", ["start_inference", "configure", "disconnect"])
def test_a_bridge_that_turns_to_something_else_ends_the_session(upgraded: bool, how: str) -> None:
    class Policy:
        obs_size, act_size = 2, 1

        def run_inference(self, observations: Any) -> Any:
            return np.zeros((len(observations), 1), np.float32)

    bridge = Sum()
    with hosted(bridge, upgraded) as (_, connection):
        with connection:
            reset(connection)
            if how == "start_inference":
                bridge.set_inference_interface(Policy())  # type: ignore[arg-type]
                bridge.start_inference()
            elif how == "configure":
                bridge.configure(EnvSpec(5, 1, num_envs=N))
            else:
                bridge.disconnect()
            with pytest.raises(errors.EngineDisconnected):
                step(connection)
                step(connection)
        assert bridge.outbox.obs.shape == (N, 5 if how == "configure" else 2)


@pytest.mark.parametrize("upgraded", kinds())
def test_a_step_in_which_the_game_turns_away_is_not_answered(upgraded: bool) -> None:
    """What the callback wrote before it switched belongs to a request that is void."""

    class Turns(Sum):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            if actions[0, 0] == 9:
                self.configure(EnvSpec(2, 1, num_envs=N))

    with hosted(Turns(), upgraded) as (_, connection), connection:
        reset(connection)
        assert step(connection, 2) == [2.0] * N
        with pytest.raises(errors.EngineDisconnected, match="the game left training mode, or was given other sizes"):
            step(connection, 9)


def test_a_callback_may_disconnect_without_waiting_for_itself() -> None:
    class Leaves(Sum):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            if actions[0, 0] == 9:
                self.disconnect()

    bridge = Leaves()
    handle = run_in_thread(bridge, upgrader=ShmUpgrader())
    bridge._server = handle
    with SharedMemoryConnection(engine=("127.0.0.1", handle.port), timeout=5) as connection:
        reset(connection)
        with pytest.raises(errors.EngineDisconnected):
            step(connection, 9)
    handle.close()


@posix
def test_a_killed_engine_is_named_within_a_moment_and_leaves_nothing(slack: float) -> None:
    with run_shm_in_process(Sum) as host:
        connection = SharedMemoryConnection(host.name, timeout=20)
        connection.connect()
        reset(connection)
        os.kill(host.process.pid, signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(errors.EngineDisconnected, match=rf"process {host.process.pid} has died"):
            while True:
                step(connection)
        assert time.monotonic() - begun < 2 * slack
        connection.close()
        host.process.join()
        with pytest.raises(errors.EngineUnreachable, match=r"has died|no shared memory named"):
            SharedMemoryConnection(host.name).connect()
        with run_shm_in_thread(Sum()):  # the next engine clears up
            assert not (segment.SHM_DIR / host.name).exists()


def trainer(target: str, then: str) -> subprocess.Popen[str]:
    """A trainer in a process of its own that has stepped once."""
    code = (
        "import sys, os, time, numpy as np\nfrom ue_rl.connections import SharedMemoryConnection, open_engine\n"
        "t = sys.argv[1]\n"
        "c = open_engine('127.0.0.1', int(t), transport='shm') if t.isdigit() else SharedMemoryConnection.attach(t)\n"
        f"c.reset(); c.receive(); a = np.ones(({N}, 1), np.float32); c.send_actions(a); c.receive()\n"
        f"print('READY', flush=True)\n{then}"
    )
    process = subprocess.Popen([sys.executable, "-c", code, target], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"
    return process


@posix
@pytest.mark.parametrize("upgraded", kinds())
@pytest.mark.parametrize("then", ["time.sleep(60)", "c.send_actions(a); time.sleep(60)", "os._exit(1)", "1 / 0"])
def test_a_trainer_that_dies_makes_room_for_the_next(upgraded: bool, then: str) -> None:
    with hosted(Sum(), upgraded) as (engine, _):
        process = trainer(str(engine.port) if upgraded else engine.name, then)
        process.kill()
        process.wait()
        again = (
            SharedMemoryConnection(engine=("127.0.0.1", engine.port), connect_timeout=5)
            if upgraded
            else SharedMemoryConnection(engine.name, connect_timeout=5)
        )
        with again:
            reset(again)
            assert step(again) == [1.0] * N


@posix
@pytest.mark.parametrize("upgraded", kinds())
def test_a_stalling_peer_loses_and_doubles_nothing(upgraded: bool) -> None:
    """Both sides are stopped by a signal at any moment, again and again; every action counts exactly once."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from soak_shm import Counting
    finally:
        sys.path.pop(0)
    steps = 4000
    with hosted(Counting(), upgraded) as (engine, _):
        code = (
            "import sys; sys.path.insert(0, sys.argv[2])\nfrom soak_shm import soak\n"
            "from ue_rl.connections import SharedMemoryConnection, open_engine\n"
            "t = sys.argv[1]\n"
            "over = {'engine': ('127.0.0.1', int(t))} if t.isdigit() else {'name': t}\n"
            "c = SharedMemoryConnection(**over)\nc.connect()\n"
            f"print('READY', flush=True)\nsoak(c, {steps})\n"
            f"print(c.memory.load_u64({FRAME_SEQ}), flush=True)\nc.close()"
        )
        target = str(engine.port) if upgraded else engine.name
        process = subprocess.Popen(
            [sys.executable, "-c", code, target, str(Path(__file__).parents[2] / "benchmarks")],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        rng = np.random.default_rng(0)
        while process.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(float(rng.uniform(0, 0.004)))  # not a wait for something: the stall itself
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(float(rng.uniform(0, 0.004)))
        assert process.stdout.read() == f"{steps + 1}\n"


# -- actions that take ticks, and engines that count wrongly


class Walk(MultiEnvBridge):
    """Env i needs i + 1 ticks for an action; env 2 never ends one of 99."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=N))
        self.left, self.at, self.asked = [0] * N, [0.0] * N, [0.0] * N

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
        return self.at[env_id], False

    def create_state_string_for_env(self, env_id: int) -> list[float]:
        return [self.at[env_id]]

    def handle_reset_for_env(self, env_id: int) -> None:
        self.at[env_id] = 0

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self.left[env_id], self.asked[env_id] = env_id + 1, actions[0]

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left[env_id] -= self.asked[env_id] != 99 or env_id != N - 1
        if self.left[env_id] == 0:
            self.at[env_id] += self.asked[env_id]
        return self.left[env_id] > 0


def test_actions_that_run_for_several_ticks_and_one_that_never_ends() -> None:
    with run_shm_in_thread(Walk()) as host, SharedMemoryConnection(host.name, timeout=0.4) as connection:
        reset(connection)
        assert step(connection, 2) == [2.0] * N
        with pytest.raises(errors.EngineTimeout, match=r"2 of 3 envs.*env 2.*Its loop runs on") as caught:
            step(connection, 99)
        assert caught.value.env_id == N - 1


def test_an_engine_that_counts_wrongly_is_found_out() -> None:
    with run_shm_in_thread(Sum()) as host, SharedMemoryConnection(host.name) as connection:
        reset(connection)
        connection.memory.store_u64(FRAME_SEQ, 55)
        with pytest.raises(errors.UnexpectedMessage, match=r"frame that nobody asked for.*frame_seq"):
            step(connection)


# -- producers of the plain layout


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


# -- hostile memory


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(_NAMES), st.integers(0, 2**64 - 1) | st.integers(0, 8192)), min_size=1, max_size=4
    ),
    st.binary(max_size=40),
    st.integers(0, HEADER_SIZE - 40),
    st.booleans(),
)
def test_attaching_to_anything_is_a_named_error_or_works(
    tmp_path: Path, changes: list[tuple[str, int]], noise: bytes, at: int, plain: bool
) -> None:
    config = None if plain else b"CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3\n"
    header, size = plan(3, 2, 1, ring_size=256, config=config, server_pid=os.getpid())
    path = tmp_path / "hostile.shm"
    memory = bytearray(size)
    StepMemory.create(memory, header, config or b"").release()
    for name, value in changes:
        with contextlib.suppress(struct.error, TypeError):
            setattr(header, name, value)
            memory[:HEADER_SIZE] = header.pack()
    memory[at : at + len(noise)] = noise
    path.write_bytes(memory)
    connection = SharedMemoryConnection(str(path), timeout=0.001, connect_timeout=0.001)
    with contextlib.suppress(errors.UeRlError):
        connection.connect()
        connection.reset()
        connection.receive()
    connection.close()


def test_rings_that_turn_hostile_while_running() -> None:
    with run_shm_in_thread(Sum(), ring_size=256) as host:
        for position in (8, 3, 2**31, 0xFFFFFFFF):
            with SharedMemoryConnection(host.name, timeout=1, connect_timeout=5) as connection:
                reset(connection)
                start, _ = connection.memory.header.regions["cmd_s2c"]
                connection.memory.store_u32(start, position)
                with pytest.raises((errors.SegmentInvalid, errors.MalformedMessage)):
                    step(connection)
            host.host.memory.store_u32(start, 0)
            host.host.memory.store_u32(start + 4, 0)


def test_a_trainer_that_breaks_the_rules_is_sent_away() -> None:
    bridge = Sum()
    with run_shm_in_thread(bridge) as host:
        for how in ("ask", "count", "nan"):
            with SharedMemoryConnection(host.name, timeout=2, connect_timeout=5) as connection:
                reset(connection)
                memory = connection.memory
                assert memory.ask is not None
                if how == "ask":
                    connection._mixed = False
                    memory.ask[1] = 9
                elif how == "count":
                    connection._bell.publish()
                else:
                    connection._mixed = False
                    memory.ask[:] = 1
                    memory.actions[1, 0] = np.nan
                    connection._bell.ask(None)
                with pytest.raises((errors.EngineDisconnected, errors.UnexpectedMessage)):
                    step(connection)
                    step(connection)
        with SharedMemoryConnection(host.name, connect_timeout=5) as connection:
            reset(connection)
            assert np.isfinite(step(connection)).all()


def test_a_raw_trainer_that_lies_about_the_proof_stays_in_text() -> None:
    with run_in_thread(Sum(), upgrader=ShmUpgrader()) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock, sock.makefile("rb") as lines:
            assert b";SHM=" in lines.readline()
            sock.sendall(b"SHM=ACCEPT;PROOF=" + b"0" * 32 + b"\n")
            assert lines.readline().startswith(b"SHM=REFUSED;WHY=")
            sock.sendall(b"ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2\n")
            assert lines.readline().startswith(b"OBS=")


def test_a_process_that_writes_at_any_time_never_gets_a_nan_through() -> None:
    """What is checked is what is given out: a game's late thread, or a hostile process, costs the session at most."""
    with run_shm_in_thread(Sum()) as host:
        memory, stop = host.host.memory, threading.Event()
        spoilt = memory.obs, memory.rewards

        def spoil() -> None:
            while not stop.is_set():
                for array in spoilt:
                    array.reshape(-1)[-1] = np.nan
                for array in spoilt:
                    array.reshape(-1)[-1] = 1.0

        thread = threading.Thread(target=spoil)
        thread.start()
        seen = steps = 0
        try:
            deadline = time.monotonic() + 0.7
            while time.monotonic() < deadline:
                with contextlib.suppress(errors.UeRlError), SharedMemoryConnection(host.name, wait=2.0) as connection:
                    reset(connection)
                    while time.monotonic() < deadline:
                        step(connection, 0.5)
                        steps += 1
                        out = connection.buffers
                        for array in spoilt:  # later than any check
                            array.reshape(-1)[0] = np.nan
                        seen += not (np.isfinite(out.obs).all() and np.isfinite(out.rewards).all())
                        for array in spoilt:
                            array.reshape(-1)[0] = 1.0
        finally:
            stop.set()
            thread.join()
        assert steps
        assert seen == 0
