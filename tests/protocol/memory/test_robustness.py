"""Shared memory where something else goes wrong: broken rings, ends from every thread, two trainers in one process."""

from __future__ import annotations

import logging
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.support.games import Sum
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.bridges import ShmHost, ShmUpgrader, run_in_process, run_in_thread, run_shm_in_thread
from ue_rl.bridges.hosting import UpgradableSession
from ue_rl.bridges.shm import segment as engine_segment
from ue_rl.bridges.shm.upgrade import ShmSession
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm import attach
from ue_rl.protocol.memory import segment
from ue_rl.protocol.memory.header import CLIENT_PID, FRAME_SEQ, HEADER_SIZE
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.offer import accept_line, parse_offer
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system import processes
from ue_rl.system.compiled import load
from ue_rl.system.errors import ConfigurationError, ConnectionUnusable, EngineDisconnected, EngineUnreachable, UeRlError

posix = pytest.mark.skipif(os.name != "posix", reason="files under a mapping and signals are POSIX's")
N = 3
ONES = np.ones((N, 2), np.float32)


class Sevens(Sum):
    """An episode begins with 7, which no fresh memory shows."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(2, 2, num_envs=N))

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        super().reset_envs(env_ids, seeds, options)
        self.outbox.obs[env_ids] = 7


class Still:
    """A policy."""

    def run_inference(self, observations: Any) -> Any:
        return np.zeros((len(observations), 2), np.float32)


def play(name: str) -> SharedMemoryConnection:
    connection = SharedMemoryConnection.attach(name, timeout=20.0)
    assert begin(connection).obs.tolist() == [[7.0, 7.0]] * N
    assert advance(connection).obs[:, 0].tolist() == [8.0] * N
    return connection


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    if segment.SHM_DIR.is_dir():
        assert list(segment.SHM_DIR.glob(f"ue_rl_{os.getpid()}_*")) == []


# -- the host


def test_words_behind_an_accepted_offer_do_not_stop_the_server() -> None:
    """The session ends while the thread that was to carry it waits for the bridge: neither may wait for the other."""
    with run_in_thread(Sevens(), upgrader=ShmUpgrader()) as server:
        with socket.create_connection(("127.0.0.1", server.port), 20) as trainer:
            offer = decode_handshake(trainer.makefile("rb").readline()).shm
            assert offer is not None
            name, _ = parse_offer(offer)
            memory = StepMemory(Segment.open(name).memory)
            trainer.sendall(accept_line(memory.header.proof) + b"RESET\n")
            while trainer.recv(64):
                pass
        with SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20.0) as following:
            begin(following)


class Dead(socket.socket):
    def sendall(self, *_: Any) -> None:
        raise BrokenPipeError("gone")


class GoneMeanwhile:
    """A session whose trainer is gone when its socket is taken."""

    def __init__(self, session: UpgradableSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def detach(self) -> socket.socket:
        return Dead(fileno=self._session.detach().detach())


class LosesTheFirst(ShmUpgrader):
    """The first trainer that takes an offer is gone before it is answered."""

    lost = False

    def accept(self, line: bytes, session: UpgradableSession) -> ShmSession | None:
        if self.lost:
            return super().accept(line, session)
        self.lost = True
        return super().accept(line, cast(UpgradableSession, GoneMeanwhile(session)))


def test_a_trainer_that_is_gone_before_ready_leaves_nothing() -> None:
    with run_in_thread(Sevens(), upgrader=LosesTheFirst()) as server:
        with pytest.raises(EngineDisconnected):
            SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20.0).connect()
        with SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20.0) as following:
            begin(following)


@pytest.mark.parametrize("ring", ["cmd_c2s", "cmd_s2c"])
@pytest.mark.parametrize("position", [0, 4])
def test_a_trainer_that_breaks_a_ring_ends_its_session_and_nothing_else(ring: str, position: int, slack: float) -> None:
    with run_shm_in_thread(Sevens()) as host:
        connection = play(host.name)
        memory = connection.memory
        memory.store_u32(memory.header.regions[ring][0] + position, 0xFFFFFFF0)
        with pytest.raises(UeRlError):
            advance(connection)
            raise EngineDisconnected("this position is not looked at", fault="engine")
        connection.close()
        eventually(lambda: holder(host.host) == 0, 3 * slack)
        play(host.name).close()


def holder(host: ShmHost) -> int:
    return host.memory.load_u32(CLIENT_PID)


def test_by_name_no_trainer_is_served_in_inference_mode(caplog: pytest.LogCaptureFixture) -> None:
    bridge = Sevens()
    bridge.set_inference_interface(Still())
    with run_shm_in_thread(bridge) as host, caplog.at_level(logging.WARNING):
        bridge.start_inference()
        connection = SharedMemoryConnection.attach(host.name, timeout=20.0)
        with pytest.raises(EngineDisconnected):
            begin(connection)
        assert "inference mode" in caplog.text
        bridge.start_training()
        play(host.name).close()


def test_a_bridge_configured_anew_to_the_same_sizes_is_laid_over_the_segment_again() -> None:
    bridge = Sevens()
    with run_shm_in_thread(bridge) as host:
        bridge.configure(bridge.spec)
        play(host.name).close()
        assert bridge.outbox.obs is host.host.memory.obs


@pytest.mark.parametrize("what", ["handle", "host"])
def test_a_callback_may_close_what_hosts_it(what: str) -> None:
    before = set(threading.enumerate())
    bridge = Sevens()
    host = run_shm_in_thread(bridge)
    connection = play(host.name)
    close = host.close if what == "handle" else host.host.close
    bridge.in_step = lambda actions: close()
    connection.send_actions(ONES)
    try:
        connection.receive()
    except EngineDisconnected:
        assert what == "host"
    eventually(lambda: set(threading.enumerate()) <= before)
    connection.close()


def test_closing_a_host_from_another_thread_ends_its_run() -> None:
    host = ShmHost(Sevens())
    thread = threading.Thread(target=host.run)
    thread.start()
    time.sleep(0.05)
    host.close()
    thread.join(30)
    assert not thread.is_alive()


# -- the trainer


def test_a_session_that_was_ended_does_not_disturb_the_next_of_the_same_process(slack: float) -> None:
    bridge = Sevens()
    with run_shm_in_thread(bridge) as host:
        earlier = play(host.name)
        bridge.disconnect()
        eventually(lambda: not holder(host.host), 3 * slack)
        following = play(host.name)
        with pytest.raises(UeRlError, match=r"ended the session.*the game left training mode"):
            earlier.send_actions(ONES)
        earlier.close()
        time.sleep(0.1)
        assert advance(following).obs[:, 0].tolist() == [9.0] * N
        following.close()


def bell_over(memory: mmap.mmap) -> Any:
    words = load("sync")
    arrays = [np.frombuffer(memory, kind, 4, at) for kind, at in (("f4", 4096), ("f4", 4196), ("f4", 4296))]
    flags = [np.frombuffer(memory, np.uint8, 4, at) for at in (4396, 4400)]
    bell = words.Bell(memory, 40, FRAME_SEQ, 268, 264, 0, None, 0.0)
    bell.bind(*arrays, *flags, 288)
    return bell


@pytest.mark.parametrize("answered", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_a_bell_that_is_released_while_somebody_waits_keeps_its_memory_until_then(answered: bool) -> None:
    memory = mmap.mmap(-1, 8192)
    bell = bell_over(memory)
    bell.ask(None)

    def end() -> None:
        if sys.platform == "linux":  # its flag says that it sleeps on the futex
            eventually(lambda: load("sync").load_u32(memory, 268))
        else:
            time.sleep(0.02)
        bell.release()
        if answered:
            load("sync").increment_u64(memory, FRAME_SEQ)
        with pytest.raises(BufferError):
            memory.close()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(ValueError, match="released"):
        while True:
            bell.answer(0, 1000)  # ms, within which the other thread mostly does all this
    thread.join()
    memory.close()


@posix
def test_a_signals_handler_may_close_a_connection_that_waits() -> None:
    bridge = Sevens()
    with run_shm_in_thread(bridge) as host:
        connection = play(host.name)
        free = threading.Event()
        bridge.in_step = lambda actions: free.wait(20)
        before = signal.signal(signal.SIGALRM, lambda *_: connection.close())
        try:
            connection.send_actions(ONES)
            with pytest.raises(ConnectionUnusable):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                connection.receive()
        finally:
            free.set()
            signal.signal(signal.SIGALRM, before)


class Forks(Sevens):
    """An engine with a helper process, which inherits every socket, and lives as long as the file that HELPED names."""

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        super().reset_envs(env_ids, seeds, options)
        if os.fork() == 0:
            until = time.monotonic() + 60.0
            while os.path.exists(os.environ["HELPED"]) and time.monotonic() < until:
                time.sleep(0.01)
            os._exit(0)


@posix
def test_a_killed_engine_is_noticed_though_a_fork_of_it_holds_the_socket(
    slack: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helped = tmp_path / "helped"
    helped.touch()
    monkeypatch.setenv("HELPED", str(helped))
    with run_in_process(Forks, upgrader=ShmUpgrader()) as server:
        connection = SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20.0)
        begin(connection)
        server.process.kill()
        begun = time.monotonic()
        connection.send_actions(ONES)
        with pytest.raises(EngineDisconnected):
            connection.receive()
        assert time.monotonic() - begun < 3 * slack
        helped.unlink()


def test_over_tcp_a_trainer_whose_pid_is_not_to_be_seen_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_in_thread(Sevens(), upgrader=ShmUpgrader()) as server:
        monkeypatch.setattr(processes, "alive", lambda *_: False)  # both are in containers of their own
        # Else the engine's next segment would have those of all other workers deleted: their engines seem dead, too.
        monkeypatch.setattr(engine_segment, "reclaim_stale", list)
        with SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=20.0) as connection:
            for _ in range(3):
                begin(connection)
                time.sleep(0.1)
        monkeypatch.undo()


# -- files and names


@posix
def test_a_relative_path_is_deleted_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = Segment.create(8192, "./arena")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Path("arena").write_text("precious")
    mine.close()
    assert Path("arena").read_text() == "precious"
    assert not (tmp_path / "arena").exists()


@posix
def test_what_has_taken_the_place_of_a_segment_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "arena"
    mine = Segment.create(8192, str(path))
    path.unlink()
    path.write_text("precious")
    mine.close()
    assert path.read_text() == "precious"


@posix
def test_a_fork_of_the_engine_does_not_delete_its_segment(tmp_path: Path) -> None:
    mine = Segment.create(8192, str(tmp_path / "arena"))
    child = os.fork()
    if child == 0:
        mine.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "arena").exists()
    mine.close()
    assert not (tmp_path / "arena").exists()


@pytest.mark.skipif(not segment.SHM_DIR.is_dir(), reason="no /dev/shm")
def test_a_plain_producer_that_does_not_say_who_it_is_is_not_taken_for_dead() -> None:
    header, size = plan(2, 3, 1)
    with Segment.create(size, f"ue_rl_plain{os.getpid()}") as made:
        made.memory[:HEADER_SIZE] = header.pack()
        assert not segment.reclaim(made.name)
        assert (segment.SHM_DIR / made.name).exists()


@pytest.mark.parametrize("name", ["/tmp/a\0b", "/tmp/\ud800"])
def test_what_can_be_no_path_is_named(name: str) -> None:
    for use in (lambda: Segment.open(name), lambda: Segment.create(8192, name)):
        with pytest.raises(ConfigurationError, match="path"):
            use()


def test_waiting_covers_a_segment_that_is_just_being_made_and_one_of_a_dead_engine(tmp_path: Path) -> None:
    for header in (bytes(HEADER_SIZE), plan(2, 3, 1, server_pid=2**31 - 2)[0].pack()):
        with Segment.create(1 << 20, str(tmp_path / "arena")) as made:
            made.memory[:HEADER_SIZE] = header
            with pytest.raises(EngineUnreachable):
                attach.open_segment(made.name, 0.0)
            timer = threading.Timer(0.1, made.memory.__setitem__, (slice(0, 4096), plan(2, 3, 1)[0].pack()))
            timer.start()
            attach.open_segment(made.name, 20.0).close()
            timer.join()
