"""Several engines asked and read in one go: as engine by engine, whatever happens between the two."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.connections.engines.test_several import one, played
from tests.harness.several import Walk
from tests.support.clocks import once
from tests.support.same import assert_same
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.bridges import VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.connections.engines.url_engine import UrlEngine
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors
from ue_rl.system.compiled import load

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets are read in one call on POSIX only")
SIZES = (3, 1, 2)
CARRIERS = ["tcp", "shm"]


class Odd(VectorBridge):
    """Observations say which env and step it is; `then` is called in the next step.

    Args:
        first: the number of its first env among those of all engines.
    """

    def __init__(self, num_envs: int, first: int, features: Sequence[str] = ()) -> None:
        super().__init__(EnvSpec(2, 1, num_envs=num_envs, features=frozenset(features)))
        self.first, self.step = first, 0
        self.then: Callable[[Odd], object] | None = None

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        self.step = 0
        self.outbox.obs[env_ids, 0], self.outbox.obs[env_ids, 1] = env_ids + self.first, 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        self.step += 1
        self.outbox.obs[env_ids, 1] = self.step + actions[:, 0] / 4
        then, self.then = self.then, None
        if then is not None:
            then(self)


@contextlib.contextmanager
def engines(carrier: str, bridges: Sequence[Any], restarts: Restarts | None = None, **options: Any) -> Iterator[Any]:
    """One connection to all of them."""
    if carrier == "shm" and load("sync") is None:
        pytest.skip("shared memory needs the compiled module")
    run: Any = run_in_thread if carrier == "tcp" else run_shm_in_thread
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(run(bridge)).url for bridge in bridges]
        transport = EnginesTransport(
            [
                UrlEngine(url, lambda *_, url=url: open_transport(url, carrier, **options), reconnect=10.0)  # type: ignore[misc]
                for url in urls
            ],
            restarts=restarts,
        )
        yield stack.enter_context(transport)


def odd(features: Sequence[str] = ()) -> list[Odd]:
    starts = np.cumsum((0, *SIZES))
    return [Odd(n, int(at), features) for n, at in zip(SIZES, starts, strict=False)]


def begun(transport: EnginesTransport) -> int:
    """All envs have begun, and the engines are asked in one go from here on; how many steps they took until then."""
    begin(transport)
    return joined(transport, 0)


def joined(transport: EnginesTransport, n: int) -> int:
    """The same, after n steps. On a busy machine an answer may take longer than a slice: then each is waited for."""
    for taken in range(n + 1, n + 100):
        assert step(transport) == taken
        if transport._once.again:
            return taken
    pytest.fail("the engines are never asked in one go")


def step(transport: EnginesTransport, action: float = 0.0) -> float:
    """One step of all; the number that all envs show."""
    transport.send_actions(np.full((6, 1), action, np.float32))
    return shown(transport)


def shown(transport: EnginesTransport) -> float:
    buffers = transport.receive()
    assert buffers.obs[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert len(set(buffers.obs[:, 1].tolist())) == 1
    return float(buffers.obs[0, 1])


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_rollout_with_resets_and_infos_is_that_of_one_engine(carrier: str) -> None:
    starts = np.cumsum((0, *SIZES))
    walks = [Walk(n, int(at)) for n, at in zip(SIZES, starts, strict=False)]
    with engines(carrier, walks) as transport:
        assert_same(played(transport), played(one()))


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("features", [(), ("SEQ",)])
def test_whole_steps_are_asked_and_answered_in_one_go(carrier: str, features: Sequence[str]) -> None:
    with engines(carrier, odd(features)) as transport:
        begin = begun(transport)
        for n in range(begin + 1, begin + 20):
            assert step(transport, n % 3) == n + n % 3 / 4
        n = joined(transport, n)
        assert [len(transport.latencies(engine)) for engine in range(3)] == [n] * 3
        assert advance(transport, 0, [0, 1, 2]).obs[:, 1].tolist() == [
            0,
            0,
            0,
            n + 1,
            n + 1,
            n + 1,
        ]
        assert not transport._once.again
        assert advance(transport, 0).obs[:, 1].tolist() == [1, 1, 1, n + 2, n + 2, n + 2]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_two_engines_are_asked_in_one_go(carrier: str) -> None:
    with engines(carrier, [Odd(3, 0), Odd(3, 3)]) as transport:
        begun(transport)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_engine_that_takes_longer_than_a_slice_is_waited_for(carrier: str) -> None:
    bridges = odd()
    with engines(carrier, bridges) as transport:
        n = begun(transport)
        bridges[1].then = lambda bridge: time.sleep(0.6)
        assert step(transport) == n + 1
        assert not transport._once.again
        assert transport.latencies(1)[-1] >= 0.6
        n = joined(transport, n + 1)
        bridges[1].then = lambda bridge: time.sleep(0.05)
        assert step(transport) == n + 1
        assert transport.latencies(1)[-1] >= 0.05


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_engine_that_does_not_answer_in_time_is_lost_alone(carrier: str) -> None:
    bridges, free = odd(["SEQ"]), threading.Event()
    hangs = threading.Event()
    # what the others have stepped arrives during the looks that come before the deadline
    timing = once(lambda: hangs.is_set() and not free.is_set(), 0.05 if carrier == "tcp" else 1.0)
    with engines(carrier, bridges, Restarts(), timeout=10.0, timing=timing) as transport:
        n = begun(transport)

        def hang(bridge: Odd) -> None:
            # The clock goes on once the others have acted, however late their threads come to that.
            assert eventually(lambda: bridges[0].step == bridges[2].step == n + 1)
            hangs.set()
            free.wait(30)

        bridges[1].then = hang
        buffers = advance(transport, 0)
        assert buffers.lost == {3}
        assert buffers.dones.tolist() == [0, 0, 0, 1, 0, 0]
        assert buffers.obs[:, 1].tolist() == [n + 1, n + 1, n + 1, n, n + 1, n + 1]
        assert "did not" in buffers.infos[3]["engine_lost"] or "within" in buffers.infos[3]["engine_lost"]
        free.set()
        assert begin(transport, [3]).obs[3].tolist() == [3, 0]
        assert advance(transport, 0).obs[:, 1].tolist() == [
            n + 2,
            n + 2,
            n + 2,
            1,
            n + 2,
            n + 2,
        ]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_an_engine_that_breaks_off_is_lost_alone(carrier: str) -> None:
    """It shows a number that is none, which ends its session; the last good observation stays."""
    bridges = odd()
    with engines(carrier, bridges, Restarts()) as transport:
        n = begun(transport)

        def spoil(bridge: Odd) -> None:
            bridge.outbox.obs[0, 1] = np.nan

        bridges[2].then = spoil
        buffers = advance(transport, 0)
        assert buffers.lost == {4, 5}
        assert buffers.obs[:, 1].tolist() == [n + 1] * 4 + [n] * 2
        begin(transport, [4, 5])
        assert advance(transport, 0).obs[:, 1].tolist() == [n + 2] * 4 + [1] * 2


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_cannot_be_asked_is_refused_before_any_is_asked(carrier: str) -> None:
    with engines(carrier, odd()) as transport:
        n = begun(transport)
        actions = np.zeros((6, 1), np.float32)
        actions[4] = np.nan
        with pytest.raises(errors.ActionError, match="env 4"):
            transport.send_actions(actions)
        for wrong in (actions[:5], actions.astype(np.float64), np.zeros((6, 2), np.float32), None):
            with pytest.raises(errors.UeRlError):
                transport.send_actions(wrong)
        assert step(transport) == n + 1


@pytest.mark.parametrize("carrier", CARRIERS)
def test_closed_by_another_thread_while_it_waits(carrier: str) -> None:
    bridges, free = odd(), threading.Event()
    with engines(carrier, bridges) as transport:
        begun(transport)
        bridges[0].then = lambda bridge: free.wait(30)
        transport.send_actions(np.zeros((6, 1), np.float32))
        threading.Timer(0.1, transport.close).start()
        with pytest.raises(errors.ConnectionUnusable, match="closed"):
            transport.receive()
        free.set()


class Narrow:
    """Sockets of which the second takes three bytes."""

    def __init__(self, kernels: Any) -> None:
        self.receive_lines = kernels.receive_lines

    @staticmethod
    def send_lines(fds: Any, lines: list[bytes]) -> tuple[int, int]:
        os.write(int(fds[0]), lines[0])
        return 1, os.write(int(fds[1]), lines[1][:3])


class Torn:
    """Answers of which the second has come but for its last four bytes."""

    def __init__(self, kernels: Any) -> None:
        self.send_lines = kernels.send_lines

    @staticmethod
    def receive_lines(fds: Any, data: bytearray, stride: int, fill: Any, *_: Any) -> int:
        for at, descriptor in enumerate(fds.tolist()):
            with socket.socket(fileno=os.dup(descriptor)) as sock:
                eventually(lambda: sock.recv(stride, socket.MSG_PEEK).endswith(b"\n"))
                count = len(sock.recv(stride, socket.MSG_PEEK)) - (4 if at == 1 else 0)
                data[at * stride : at * stride + count] = sock.recv(count)
                fill[at] = count
        return 1


@pytest.mark.parametrize("kind", [Narrow, Torn])
def test_what_did_not_go_over_in_one_go_goes_on_where_it_was(kind: Any) -> None:
    """A request that did not fit its socket is sent to its end, and what has come of a line is not lost."""
    with engines("tcp", odd()) as transport:
        n = begun(transport)
        together = transport._once.together
        kernels = together.kernels
        together.kernels = kind(kernels)
        assert step(transport) == n + 1
        if kind is Torn:
            assert not transport._once.again
        together.kernels = kernels
        joined(transport, n + 1)


def test_engines_of_two_carriers_are_asked_one_by_one() -> None:
    bridges = odd()
    with run_in_thread(bridges[0]) as text, run_shm_in_thread(bridges[1]) as memory:
        urls = [(text.url, "tcp"), (memory.url, "shm")]
        sources = [UrlEngine(url, lambda *_, url=url, how=how: open_transport(url, how)) for url, how in urls]  # type: ignore[misc]
        with EnginesTransport(sources) as transport:
            begin(transport)
            for n in range(1, 4):
                assert advance(transport, 0).obs[:, 1].tolist() == [n] * 4
            assert transport._once.together is None


def test_bells_are_checked_before_they_are_joined() -> None:
    words = load("sync")
    if words is None:
        pytest.skip("shared memory needs the compiled module")
    memory = bytearray(64)
    numbers, flags = np.zeros((2, 1), np.float32), np.zeros(2, np.uint8)
    rewards = np.zeros(2, np.float32)
    step = numbers.copy(), rewards, flags, flags.copy()
    taken = tuple(array.copy() for array in step)
    bells = tuple(words.Bell(memory, 0, 8) for _ in range(2))
    whole = [np.zeros((4, 1), np.float32), np.zeros(4, np.float32), np.zeros(4, np.uint8), np.zeros(4, np.uint8)]
    with pytest.raises(ValueError, match="not bound"):
        words.Bells(bells, *whole)
    for bell in bells:
        bell.bind(numbers, *step, 16)
    with pytest.raises(ValueError, match="copies nothing"):
        words.Bells(bells, *whole)
    for bell in bells:
        bell.bind(numbers.copy(), *step, 16, 0, 0, taken)
    for wrong in ([whole[0][:2], *whole[1:]], [*whole[:3], whole[3][:3]]):
        with pytest.raises(ValueError, match="disagree"):
            words.Bells(bells, *wrong)
    for given in ((object(),), list(bells)):
        with pytest.raises(TypeError):
            words.Bells(given, *whole)
    joined = words.Bells(bells, *whole)
    with pytest.raises(RuntimeError, match="once"):
        joined.__init__(bells, *whole)
    assert not joined.ask(np.zeros((2, 1), np.float32))
    assert not joined.ask(np.full((4, 1), np.inf, np.float32))
    assert words.load_u64(memory, 0) == 0, "nobody was asked"
    with pytest.raises(TypeError):
        joined.ask(np.zeros((4, 1)))
    for wrong in (([0], 1), ([0, 0],), ((0, 0), 1)):
        with pytest.raises(TypeError):
            joined.answer(*wrong)
    never = words.Bells.__new__(words.Bells)
    for call in (lambda: never.ask(whole[0]), lambda: never.answer([], 1)):
        with pytest.raises(RuntimeError, match="not initialised"):
            call()
    bells[1].release()
    for call in (lambda: joined.ask(whole[0]), lambda: joined.answer([0, 0], 1)):
        with pytest.raises(ValueError, match="released"):
            call()


def test_a_bell_that_was_bound_to_more_since_writes_over_nothing() -> None:
    words = load("sync")
    if words is None:
        pytest.skip("shared memory needs the compiled module")
    memory = bytearray(64)

    def bind(rows: int) -> None:
        step = np.zeros((rows, 1), np.float32), np.zeros(rows, np.float32), np.zeros(rows, np.uint8), flags(rows)
        bell.bind(np.zeros((rows, 1), np.float32), *step, 16, 0, 0, tuple(array.copy() for array in step))

    def flags(rows: int) -> Any:
        return np.zeros(rows, np.uint8)

    bell = words.Bell(memory, 0, 8)
    bind(2)
    joined = words.Bells((bell,), np.zeros((2, 1), np.float32), np.zeros(2, np.float32), flags(2), flags(2))
    bind(200_000)
    assert joined.ask(np.zeros((200_000, 1), np.float32))
    words.store_u64(memory, 16, 1)  # answered_seq
    words.increment_u64(memory, 8)
    with pytest.raises(ValueError, match="disagree"):
        joined.answer([0], 100)
