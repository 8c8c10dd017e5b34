"""The life of a connection is the same on every carrier: what a mistake costs, what Ctrl-C leaves, who closes."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.harness.several import FragileSource
from tests.support.carriers import CARRIERS, WAITING, over
from tests.support.games import Sum
from tests.support.steps import advance, begin, totals
from ue_rl.bridges import run_in_thread
from ue_rl.connections import open_engine
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors

N = 2
SPEC = EnvSpec(1, 1, num_envs=N, features=frozenset({"SEED", "OPTIONS", "INFO"}))
posix = pytest.mark.skipif(os.name != "posix", reason="sends this process a signal as a terminal would")


class Gated(Sum):
    """An action of 99 holds the engine until `gate` is set; its start sets `held`."""

    def __init__(self) -> None:
        super().__init__(SPEC)
        self.gate, self.held = threading.Event(), threading.Event()
        self.on_hold: Callable[[], object] = lambda: self.gate.wait(20)
        self.in_step = self._hold

    def _hold(self, actions: Any) -> None:
        if actions[0, 0] == 99 and not self.held.is_set():
            self.held.set()
            self.on_hold()


@contextlib.contextmanager
def playing(carrier: str, bridge: Gated) -> Iterator[Any]:
    with over(carrier, bridge) as connection:
        yield connection
        bridge.gate.set()


every_carrier = pytest.mark.parametrize("carrier", CARRIERS)


def ones(value: float = 1.0) -> Any:
    return np.full((N, 1), value, np.float32)


@every_carrier
def test_options_that_are_no_json_cost_nothing_and_numpy_is_written(carrier: str) -> None:
    bridge = Gated()
    with playing(carrier, bridge) as connection:
        for bad, place in (
            ({"low": object()}, "object at options['low']"),
            ({"a": {"b": [1, {2}]}}, "set at options['a']['b'][1]"),
            ({"a": [1.0, np.float32("nan")]}, "nan at options['a'][1]"),
            ({(1, 2): 3}, "a key of type tuple at options"),
            ([1], "a list"),
        ):
            with pytest.raises(errors.ConfigurationError) as caught:
                connection.reset([0, 1], None, [{"fine": 1}, bad])  # type: ignore[list-item]
            assert (caught.value.env_id, caught.value.field, caught.value.got) == (1, "OPTIONS", place)
        with pytest.raises(errors.ConfigurationError, match=r"OPTIONS needs one value for each env.*expected 2; got 1"):
            connection.reset(None, None, [{"a": 1}])
        assert bridge.told == []
        given = {"low": np.float32(-0.5), "n": np.int64(3), "on": np.bool_(True), "at": np.arange(3.0), "s": "ü;|"}
        begin(connection, [1], [7], [given])
        ids, seeds, options = bridge.told[0]
        assert (ids, seeds) == ([1], [7])
        if carrier != "arrays":  # there nothing is written
            assert options == [{"low": -0.5, "n": 3, "on": True, "at": [0.0, 1.0, 2.0], "s": "ü;|"}]
        assert totals(connection) == [1] * N


@every_carrier
def test_seeds_and_options_may_be_any_sequence(carrier: str) -> None:
    bridge = Gated()
    with playing(carrier, bridge) as connection:
        for seeds in (np.array([5, 6]), (5, 6), range(5, 7)):
            connection.reset(None, seeds, ({"a": 1}, None))  # type: ignore[arg-type]
            connection.receive()
            came = sorted((row for reset in bridge.told for row in zip(*reset, strict=True)), key=lambda row: row[0])
            assert came == [(0, 5, {"a": 1}), (1, 6, None)]
            bridge.told.clear()
        connection.reset(np.array([1]), np.array([7]), np.array([{"a": 1}]))  # type: ignore[arg-type]
        connection.receive()
        ids, given, options = bridge.told[-1]
        assert (ids, given, list(options)) == ([1], [7], [{"a": 1}])
        for empty in ([], np.array([]), ()):  # as if none were given
            connection.reset(None, empty, [])  # type: ignore[arg-type]
            connection.receive()
        for bad in (7, {"a": 1}):
            with pytest.raises(errors.ConfigurationError, match="SEED is not a sequence"):
                connection.reset(None, bad)  # type: ignore[arg-type]
            with pytest.raises(errors.ConfigurationError, match="OPTIONS is not a sequence"):
                connection.reset(None, None, bad)  # type: ignore[arg-type]
        assert totals(connection) == [1] * N


@pytest.mark.parametrize("carrier", WAITING[:4])
def test_options_longer_than_a_line_cost_nothing(carrier: str) -> None:
    bridge = Gated()
    with playing(carrier, bridge) as connection:
        with pytest.raises(errors.ConfigurationError, match="longer than") as caught:
            connection.reset([0, 1], None, [{"a": 1}, {"long": "x" * 200_000}])
        assert (caught.value.env_id, caught.value.field, caught.value.fault) == (1, "OPTIONS", "caller")
        assert bridge.told == []
        begin(connection, [0, 1], None, [{"a": 1}, {"b": "x" * 60_000}])
        assert totals(connection) == [1] * N


def test_a_vec_env_takes_numpy_options_and_survives_those_that_are_no_json() -> None:
    bridge = Gated()
    with playing("shared", bridge) as connection:
        env = UnrealVecEnv(connection)
        env.set_options({"low": object()})  # type: ignore[arg-type]
        with pytest.raises(errors.ConfigurationError, match=r"env 0, field OPTIONS.*object at options\['low'\]"):
            env.reset()
        env.set_options({"low": np.float32(-0.5)})  # type: ignore[arg-type]
        env.reset()
        assert bridge.told[-1][2] == [{"low": -0.5}] * N


@posix
@pytest.mark.parametrize("carrier", WAITING)
def test_ctrl_c_in_a_step_is_never_answered_with_the_rows_of_the_step_before(carrier: str, slack: float) -> None:
    bridge = Gated()
    with playing(carrier, bridge) as connection:
        env = UnrealVecEnv(connection)
        env.reset()
        assert env.step(ones())[0].ravel().tolist() == [1] * N

        def interrupt() -> None:
            time.sleep(0.05)  # the trainer waits by now
            os.kill(os.getpid(), signal.SIGINT)
            bridge.gate.wait(20)

        bridge.on_hold = interrupt
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            env.step(ones(99))
        assert time.monotonic() - began < 3 * slack
        for use in (env.step_wait, env.reset, lambda: env.step(ones()), connection.receive):
            with pytest.raises(
                errors.ConnectionUnusable,
                match=r"interrupted \(KeyboardInterrupt\) while waiting for the engine.*Connect again",
            ):
                use()


def test_ctrl_c_in_a_tick_of_the_bridge_ends_the_transport_in_memory() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    bridge = Gated()
    with playing("memory", bridge) as connection:
        begin(connection)
        bridge.on_hold = interrupted
        with pytest.raises(KeyboardInterrupt):
            totals(connection, 99)
        with pytest.raises(errors.ConnectionUnusable, match="interrupted"):
            connection.receive()


@pytest.mark.parametrize("carrier", WAITING)
def test_close_from_another_thread_is_nobodys_fault(carrier: str) -> None:
    bridge = Gated()
    with playing(carrier, bridge) as connection:
        begin(connection)

        def close_it() -> None:
            bridge.held.wait(10)
            time.sleep(0.05)  # the trainer waits by now; without it the test is the same, only less often
            connection.close()
            bridge.gate.set()

        closer = threading.Thread(target=close_it)
        closer.start()
        with pytest.raises(errors.ConnectionUnusable, match="was closed"):
            totals(connection, 99)
        closer.join()


@posix
@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_connection_closed_by_another_thread_reads_nothing_of_other_files(channel: str) -> None:
    """The system gives a closed socket's number to the next file that is opened."""
    sent = came = 0
    for _ in range(30):
        bridge = Gated()
        with playing(channel, bridge) as connection:
            begin(connection)
            fds = {link.sock.fileno() for link in connection._wiring.links}  # type: ignore[attr-defined]

            def wait(connection: BaseTransport = connection) -> None:
                with contextlib.suppress(errors.UeRlError):
                    totals(connection, 99)

            waiting = threading.Thread(target=wait)
            waiting.start()
            bridge.held.wait(10)
            connection.close()
            pairs = [socket.socketpair() for _ in range(N + 2)]
            for pair in pairs:
                for end, peer in (pair, pair[::-1]):
                    if end.fileno() in fds:
                        for _ in range(5):
                            peer.sendall(b"mine")
                            time.sleep(0.0002)
                        sent += 20
            bridge.gate.set()
            for pair in pairs:
                for end in pair:
                    end.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        came += len(end.recv(100))
                for end in pair:
                    end.close()
            waiting.join(20)
            assert not waiting.is_alive()
            assert all(link.sock.fileno() == -1 for link in connection._links())  # type: ignore[attr-defined]
    assert came == sent


@posix
@pytest.mark.parametrize("carrier", WAITING)
def test_a_forked_child_that_closes_ends_nothing(carrier: str) -> None:
    with playing(carrier, Gated()) as connection:
        begin(connection)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which here only closes
            child = os.fork()
        if child == 0:
            connection.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert totals(connection) == [1] * N


def in_child(use: Callable[[], object]) -> str:
    """What `use` raises in a forked child; "" where it does not."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which here only fails
        child = os.fork()
    if child == 0:
        said = ""
        try:
            use()
        except errors.UeRlError as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@posix
@pytest.mark.parametrize("carrier", WAITING)
def test_a_forked_child_cannot_take_its_parents_answers(carrier: str) -> None:
    with playing(carrier, Gated()) as connection:
        begin(connection)
        for use in (lambda: totals(connection), connection.reset, connection.receive):
            assert "is its parent's" in in_child(use)
        connection.send_actions(ones())
        assert "is its parent's" in in_child(connection.receive)
        assert connection.receive().obs[:, 0].tolist() == [1] * N
        assert totals(connection) == [2] * N


def test_a_forked_child_has_its_own_copy_of_a_bridge_in_memory() -> None:
    with playing("memory", Gated()) as connection:
        begin(connection)
        assert not in_child(lambda: totals(connection))
        assert totals(connection) == [1] * N


@posix
def test_several_engines_stay_with_the_process_that_opened_them() -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(run_in_thread(Gated())) for _ in range(2)]
        ports = iter([server.port for server in servers])
        sources = [FragileSource(lambda life: open_engine("127.0.0.1", next(ports), timeout=20)) for _ in servers]
        connection = stack.enter_context(EnginesTransport(sources))
        begin(connection)
        assert "is its parent's" in in_child(lambda: connection.send_actions(np.ones((2 * N, 1), np.float32)))
        assert not in_child(connection.close)
        assert advance(connection, 1).obs[:, 0].tolist() == [1] * 2 * N


@every_carrier
def test_each_call_has_its_time(carrier: str) -> None:
    with playing(carrier, Gated()) as connection:
        assert connection.connect() == connection.connect()
        connection.reset()
        with pytest.raises(errors.UnexpectedMessage, match="still unanswered"):
            connection.send_actions(ones())
        connection.receive()
        with pytest.raises(errors.UnexpectedMessage):
            connection.receive()
        connection.close()
        connection.close()
        for use in (connection.reset, connection.receive, lambda: connection.send_actions(ones())):
            with pytest.raises(errors.ConnectionUnusable, match="was closed"):
                use()
        assert connection.spec.num_envs == N


class Held:
    """Something in the frame of who dials, such as the connection that is made in the end."""


def dialled_in_vain(url: str, **options: Any) -> weakref.ref[Held]:
    held = Held()
    with contextlib.suppress(errors.UeRlError):
        open_transport(url, **options)
    return weakref.ref(held)


@pytest.mark.parametrize("wait", [0.0, 0.3])
@pytest.mark.parametrize("closes", [False, True], ids=["nobody listens", "closed at once"])
def test_who_dials_in_vain_is_not_kept(closes: bool, wait: float) -> None:
    """An error that its own traceback leads to is freed by the cyclic collector alone, with all frames on the way."""
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = bound.getsockname()[1]
        if closes:

            def close_each() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        bound.accept()[0].close()

            threading.Thread(target=close_each, daemon=True).start()
        else:
            bound.close()
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        held = dialled_in_vain(f"tcp://127.0.0.1:{port}", wait=wait, timeout=2.0)
        assert held() is None
