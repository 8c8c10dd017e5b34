"""Whatever an engine does wrong becomes a named error in time: both wirings of TCP, shared memory, both kernels."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.harness.engines.shm_faulty import ShmFaultyEngine
from tests.support.clocks import EngineClock, once
from tests.support.steps import advance, begin
from ue_rl.connections import MultiTcpConnection, SharedMemoryConnection, SingleTcpConnection
from ue_rl.devtools.testing import Fault, FaultKind, FaultyEngine, PluginStandIn, RawClient, Script
from ue_rl.devtools.testing.engines.loop import EngineStopped
from ue_rl.devtools.testing.fault_cases import FAULT_CASES, NUM_ENVS, FaultCase, provoke
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors
from ue_rl.system.timing import SYSTEM_TIMING, Timing

Engine = Callable[..., FaultyEngine]
TIMEOUT = 0.3

WIRINGS = ("shared", "per_env")
KERNELS = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "pure"])


def to(engine: FaultyEngine | PluginStandIn, channel: str, **options: object) -> MultiTcpConnection:
    return MultiTcpConnection(engine.host, engine.port, channel=channel, **{"timeout": TIMEOUT, **options})  # type: ignore[arg-type]


@pytest.fixture
def shm_engine() -> Iterator[Callable[[Script], ShmFaultyEngine]]:
    with contextlib.ExitStack() as stack:
        yield lambda script: stack.enter_context(ShmFaultyEngine(script, num_envs=NUM_ENVS))


def fault_cases() -> Iterator[object]:
    """Each case on each wiring; once more with the pure kernels where they read something: not in a handshake.

    Text is spoken with an engine that acts when the trainer looks at the clock; by each tenth, and where it sends for
    ever, with one that has a thread.
    """
    for number, case in enumerate(FAULT_CASES):
        endless = any(fault.kind is FaultKind.OVERSIZE for fault in case.script.faults)
        threaded = endless or number % 10 == 5
        for wiring in case.only:
            yield pytest.param(case, wiring, True, threaded, id=f"{case.name}-{wiring}-compiled")
            if wiring in WIRINGS and (case.script.faults or case.script.handshake == Script().handshake):
                yield pytest.param(case, wiring, False, threaded, id=f"{case.name}-{wiring}-pure")


@pytest.mark.parametrize(("case", "wiring", "compiled", "threaded"), list(fault_cases()))
def test_each_fault_has_its_named_error_in_time(
    ue_rl_faulty_engine: Engine,
    shm_engine: Callable[[Script], ShmFaultyEngine],
    case: FaultCase,
    wiring: str,
    compiled: bool,
    threaded: bool,
    slack: float,
) -> None:
    wanted = case.wanted_on(wiring)
    # Only where it is waited for does the deadline matter: on a busy machine a right answer may come late, too.
    late = wanted.kind is errors.EngineTimeout or case.script.handshake is None
    connection: Transport
    if wiring == "shm":
        hosted = shm_engine(case.script)
        timing = once(lambda: hosted.quiet)
        timeout = 30 * TIMEOUT
        connection = SharedMemoryConnection(engine=hosted.address, timeout=timeout, timing=timing)
        longest = 1e5
    elif threaded:
        engine = ue_rl_faulty_engine(case.script, num_envs=NUM_ENVS)
        timing = SYSTEM_TIMING
        timeout = TIMEOUT * slack if late else 30 * TIMEOUT
        connection = to(engine, wiring, compiled=compiled, timeout=timeout)
        longest = (timeout if late or wanted.kind is errors.LineTooLong else TIMEOUT) + 1.2 * slack
    else:
        engine = ue_rl_faulty_engine(case.script, num_envs=NUM_ENVS, threaded=False)
        timing = EngineClock(engine.turn).timing
        timeout = TIMEOUT
        connection = to(engine, wiring, compiled=compiled, timeout=timeout, timing=timing)
        longest = TIMEOUT + 1.2
    error, took = provoke(connection, now=timing.now)
    text = str(error)
    assert isinstance(error, wanted.kind), repr(error)
    assert timeout * late <= took < longest
    if wanted.env_id is not None:
        assert error.env_id == wanted.env_id, text
        assert f"env {wanted.env_id}" in text
    if wanted.field is not None:
        assert error.field == wanted.field, text
        assert f"field {wanted.field}" in text
    for part in wanted.text:
        assert part in text
    assert error.fault is not None
    assert error.got is not None or error.expected is not None
    assert len(text) < 1000  # the line is cut short
    # after a failure the connection is dead, and says why
    with pytest.raises(errors.ConnectionUnusable, match="failed before") as dead:
        connection.reset()
    assert error.message in str(dead.value)
    connection.close()
    connection.close()


@KERNELS
@pytest.mark.parametrize("wiring", WIRINGS)
def test_latency_and_any_fragmentation_are_no_faults(ue_rl_faulty_engine: Engine, wiring: str, compiled: bool) -> None:
    for script in (Script(latency=0.02), Script(fragment=1), Script(fragment=7, fragment_delay=0.0005)):
        with to(ue_rl_faulty_engine(script, num_envs=NUM_ENVS), wiring, compiled=compiled, timeout=20) as connection:
            begin(connection)
            for step in (1, 2):
                buffers = advance(connection, 0)
                assert buffers.obs.tolist() == [[env + step / 4] * 4 for env in range(NUM_ENVS)]
                assert buffers.rewards.tolist() == [step] * NUM_ENVS


class Dripping(FaultyEngine):
    """Sends one byte whenever the trainer looks at the clock, and time passes."""

    def __init__(self) -> None:
        super().__init__(num_envs=NUM_ENVS, threaded=False)
        self._left: list[tuple[socket.socket, bytes]] = []

    def _send(self, sock: socket.socket, data: bytes) -> None:
        self._left += [(sock, bytes([byte])) for byte in data]

    def turn(self) -> bool:
        super().turn()
        if self._left:
            with contextlib.suppress(EngineStopped):  # the trainer has had enough
                super()._send(*self._left.pop(0))
        return False


@KERNELS
@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_deadline_is_for_the_whole_answer_not_for_each_byte(wiring: str, compiled: bool) -> None:
    with Dripping() as engine:
        timing = EngineClock(engine.turn).timing
        connection = to(engine, wiring, compiled=compiled, connect_timeout=20, timing=timing)
        connection.connect()
        error, took = provoke(connection, now=timing.now)  # each byte comes in time, the line would take longer
    assert isinstance(error, errors.EngineTimeout)
    assert "unfinished line" in str(error)
    assert TIMEOUT <= took < TIMEOUT + 1.2


@KERNELS
@pytest.mark.parametrize("wiring", WIRINGS)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_an_answer_too_many_that_comes_late_shifts_no_rollout(
    ue_rl_faulty_engine: Engine, wiring: str, compiled: bool, num_envs: int
) -> None:
    """The second answer arrives after the first was read: the next step must not take it for its own."""
    fault = Fault(FaultKind.TWICE, env=num_envs - 1, step=2)
    row = FaultyEngine(num_envs=num_envs).good_row(fault.env, 2)
    engine = ue_rl_faulty_engine(Script(faults=(fault,), fragment=len(row) + 1, fragment_delay=0.02), num_envs=num_envs)
    with to(engine, wiring, compiled=compiled, timeout=20) as connection:
        begin(connection)
        with pytest.raises((errors.UnexpectedMessage, errors.RepeatedEnv)) as caught:
            for step in (1, 2, 3):
                assert advance(connection, 0).rewards.tolist() == [step] * num_envs
                if step == 2:
                    last = connection._wiring.links[-1]
                    # it has come: waits in the socket, or was read in one go with the first on a busy machine
                    assert len(last.lines) or select.select([last.sock], [], [], 20)[0]
        assert step in (2, 3)  # in a batch it can show itself at once
        assert wiring == "shared" or caught.value.env_id == fault.env


# -- the deployed plugin's own traps


def manual(ue_rl_plugin_stand_in: Callable[..., PluginStandIn], **options: object) -> tuple[PluginStandIn, Timing]:
    """A game whose ticks come when the trainer looks at the clock."""
    game = ue_rl_plugin_stand_in(manual=True, **options)
    return game, EngineClock(game.tick).timing


def test_the_plugin_waits_for_more_env_sockets_than_it_announced(
    ue_rl_plugin_stand_in: Callable[..., PluginStandIn],
) -> None:
    config = "CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2"
    game, timing = manual(ue_rl_plugin_stand_in, num_envs=3, handshake=config)
    error, took = provoke(to(game, "per_env", connect_timeout=20, timing=timing), now=timing.now)
    assert isinstance(error, errors.EngineTimeout)
    assert "0 of 2 envs" in str(error)
    assert TIMEOUT < took < TIMEOUT + 1.2


def test_the_plugin_does_not_serve_the_shared_channel(ue_rl_plugin_stand_in: Callable[..., PluginStandIn]) -> None:
    game, timing = manual(ue_rl_plugin_stand_in, num_envs=2)
    error, _ = provoke(to(game, "shared", connect_timeout=20, timing=timing))
    assert isinstance(error, errors.EngineTimeout)
    assert "channel='per_env'" in str(error)


def test_the_plugin_gives_a_second_trainer_no_handshake(ue_rl_plugin_stand_in: Callable[..., PluginStandIn]) -> None:
    game, timing = manual(ue_rl_plugin_stand_in, num_envs=2)
    with RawClient(game.address) as first:
        game.tick()
        assert first.line() == game.handshake
        error, took = provoke(to(game, "auto", timing=timing), now=timing.now)
    assert isinstance(error, errors.HandshakeError)
    assert "press Play again" in str(error)
    assert TIMEOUT < took < TIMEOUT + 1.2


def test_the_plugins_stray_line_is_named(ue_rl_plugin_stand_in: Callable[..., PluginStandIn]) -> None:
    error, _ = provoke(to(ue_rl_plugin_stand_in(num_envs=2, tag_lines=False), "per_env", timeout=20))
    assert isinstance(error, errors.MalformedMessage)
    assert "PROBLEM IS HERE" in str(error)
    assert error.env_id == 0


@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(FaultKind.NAN, step=2), errors.NonFiniteValue),
        (Fault(FaultKind.INF, step=2), errors.NonFiniteValue),
        (Fault(FaultKind.TOO_FEW, step=2), errors.WrongCount),
        # RLBASE names no fields: one number too many shifts the reward into the flag's place
        (Fault(FaultKind.TOO_MANY, step=2), (errors.WrongCount, errors.MalformedMessage)),
        (Fault(FaultKind.MALFORMED, step=2), errors.MalformedMessage),
        (Fault(FaultKind.MISSING, step=2), errors.EngineTimeout),
        (Fault(FaultKind.SILENCE, step=0), errors.EngineTimeout),
        (Fault(FaultKind.DROP, step=2), errors.EngineDisconnected),
        (Fault(FaultKind.HALF_LINE, step=2), errors.EngineDisconnected),
        (Fault(FaultKind.OVERSIZE, step=2), errors.LineTooLong),
        (Fault(FaultKind.GARBAGE, step=2), errors.ProtocolError),
    ],
    ids=lambda value: value.kind.name if isinstance(value, Fault) else "",
)
def test_single_envs_fail_by_name_too(
    ue_rl_faulty_engine: Engine,
    env_type: str,
    fault: Fault,
    kind: type[errors.UeRlError] | tuple[type[errors.UeRlError], ...],
) -> None:
    endless = fault.kind is FaultKind.OVERSIZE
    engine = ue_rl_faulty_engine(fault, num_envs=1, env_type=env_type, threaded=endless)
    timing = EngineClock(engine.turn).timing
    timeout = TIMEOUT
    if endless:
        timing = SYSTEM_TIMING
        timeout = 30 * TIMEOUT
    connection = SingleTcpConnection(engine.host, engine.port, timeout=timeout, timing=timing)
    error, took = provoke(connection, now=timing.now)
    assert isinstance(error, kind), repr(error)
    assert took < timeout + 1.2
    assert took > timeout or kind is not errors.EngineTimeout
    with pytest.raises(errors.ConnectionUnusable):
        connection.reset()
