"""ShmCommands: requests and answers over the command rings, the trainer's side (docs/commands.md).

    connection.commands.set_parameters({"gravity": 3.7})
    connection.commands.request(Method.GET_ENTITY, messages().GetEntityT(id=7))
    for event in connection.commands.poll(): ...

One thread, between two steps or while one is under way. What the engine sends unasked is kept, oldest first, up to a
limit, until `poll` or `wait_event` gives it out; infos of envs go into the step that they belong to. A request that
was refused, or not answered in time, leaves the connection as it was; whatever else fails makes it dead.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ue_rl.protocol.commands.entries import (
    ENV_INFO,
    FIRST_INFO,
    TextReader,
    check_object,
    is_json,
    is_text,
    json_entry,
    read_json_entry,
    text_entries,
)
from ue_rl.protocol.commands.envelope import (
    Command,
    Method,
    decode,
    encode,
    messages,
    method_name,
    mismatch,
    text,
    write_within,
)
from ue_rl.protocol.memory.ring import Ring
from ue_rl.protocol.text.calls import PICTURE_LIMIT
from ue_rl.protocol.text.connection_state import ConnectionEvent, ConnectionState
from ue_rl.system.errors import (
    CommandFailed,
    ConfigurationError,
    EngineTimeout,
    MalformedMessage,
    ProtocolError,
    RingFull,
    TransportError,
    UeRlError,
    UnsupportedByEngine,
)
from ue_rl.system.spin import TRAINER_SLICE_MS

_log = logging.getLogger("ue_rl.connections")

MAX_EVENTS = 10_000
MAX_EVENT_BYTES = 64 * 2**20
_ALIVE_SECONDS = 0.1

T = TypeVar("T")


class ShmCommands:
    """See the module's docstring.

    Args:
        out, incoming: the rings; None with an engine that has none.
        nudge: wakes the engine.
        wait: waits for a message for at most that many milliseconds; raises EngineDisconnected where it has gone.
        check: raises ConnectionUnusable where the connection is closed or dead.
        fail: makes the connection dead.
        infos: where the infos of rows go. num_rows: how many rows there are.
        timeout: seconds for a request, unless it says otherwise.
        now: the clock of the deadlines for answers and messages, as in Timing.

    Attributes:
        first_infos: row -> info of an episode that was asked ahead.
        timeout: as given; may be changed.
        max_events, max_event_bytes: how much that was sent unasked is kept until it is taken; may be changed.
        dropped: events that were not taken in time, or that could
            not be read because flatbuffers is not installed.
    """

    def __init__(
        self,
        out: Ring | None,
        incoming: Ring | None,
        *,
        nudge: Callable[[], None],
        wait: Callable[[int], None],
        check: Callable[[], object],
        fail: Callable[[UeRlError], None],
        infos: dict[int, dict[str, Any]],
        num_rows: int,
        timeout: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = out
        self._in = incoming
        self._nudge = nudge
        self._wait = wait
        self._check = check
        self._fail = fail
        self._infos = infos
        self._num_rows = num_rows
        self._last_id = 0
        self._answers: dict[int, Command | None] = {}
        self._events: deque[tuple[int, Command]] = deque()
        self._event_bytes = 0
        self._texts = TextReader("engine", PICTURE_LIMIT)
        self._called = 0
        self._call_answer: bytes | None = None
        self._next_check = 0.0
        self._now = now
        self.timeout = timeout
        self.max_events = MAX_EVENTS
        self.max_event_bytes = MAX_EVENT_BYTES
        self.dropped = 0
        self.first_infos: dict[int, dict[str, Any]] = {}

    def request(self, method: int, payload: Any = None, timeout: float | None = None) -> Any:
        """The answer's payload.

        Args:
            method: a Method or a number of the game's own. payload: of ue_rl.protocol.commands.messages(), or None.
            timeout: seconds for writing and answer together; None: `self.timeout`.

        Raises:
            CommandFailed: the engine refused, with its reason. EngineTimeout: no answer in time; a later
                one is dropped.
            RingFull: the engine does not read. UnsupportedByEngine: it has no command rings.
            ConfigurationError: an invalid payload or timeout.
            Also what receive() raises where the engine has died or breaks the protocol: then the connection is dead.
        """
        seconds = self._seconds(timeout)
        deadline = self._now() + seconds
        self._last_id += 1
        number = self._last_id
        data = encode(method, payload, number)
        self._answers[number] = None
        try:
            self._write(data, seconds)
            self._await(
                lambda: self._answers[number] is not None,
                deadline,
                f"an answer to method {method_name(method)} within {seconds:g} s",
            )
        finally:
            answer = self._answers.pop(number)
        assert answer is not None
        if answer.error is not None:
            raise CommandFailed("the engine refused a command", field=method_name(method), got=answer.error)
        problem = mismatch(method, answer.payload, answer=True)
        if answer.method != int(method):
            problem = f"an answer to {method_name(answer.method)}"
        if problem is not None:
            error = MalformedMessage(
                "an answer that does not belong to its request", fault="engine", field=method_name(method), got=problem
            )
            self._fail(error)
            raise error
        return answer.payload

    def send(self, method: int, payload: Any = None, timeout: float | None = None) -> None:
        """Sends a message that gets no answer.

        Args:
            timeout: seconds to wait for room in the ring; None: `self.timeout`.

        Raises:
            As `request`, without CommandFailed and EngineTimeout.
        """
        self._write(encode(method, payload), self._seconds(timeout))

    def poll(self) -> list[Command]:
        """What the engine has sent unasked since the last call, oldest first.

        Raises:
            What receive() raises where the engine breaks the protocol.
        """
        self._check()
        self.drain()
        events = [event for _, event in self._events]
        self._events.clear()
        self._event_bytes = 0
        return events

    def wait_event(self, timeout: float | None = None) -> Command:
        """The oldest message that the engine has sent unasked; waits for one.

        Raises:
            EngineTimeout: none came within `timeout` (None: `self.timeout`) seconds. Also what receive() raises.
        """
        self._check()
        seconds = self._seconds(timeout)
        deadline = self._now() + seconds
        self._await(lambda: bool(self._events), deadline, f"a message within {seconds:g} s")
        size, event = self._events.popleft()
        self._event_bytes -= size
        return event

    def drain(self) -> int:
        """Takes in what has come, one ringful at most; how many messages. For the connection: see `poll`.

        Raises:
            MalformedMessage, SegmentInvalid, UnknownEnv: the engine sent something invalid; the connection is dead.
        """
        return self._or_dead(self._take_in)

    # -- the usual ones

    def ping(self) -> float:
        """Seconds that a command takes there and back."""
        begun = time.perf_counter_ns()
        answer = self.request(Method.PING, messages().PingT(stamp=begun))
        if int(answer.stamp) != begun:
            raise MalformedMessage("a ping came back changed", fault="engine", field="stamp", expected=begun)
        return (time.perf_counter_ns() - begun) / 1e9

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """The env parameters: name to (value, low, high)."""
        answer = self.request(Method.LIST_PARAMETERS, messages().ListParametersT())
        return {text(p.name): (p.value, p.low, p.high) for p in answer.parameters or ()}

    def get_parameters(self, names: Sequence[str] = (), env_id: int = -1) -> dict[str, float]:
        """The values of `names` (all, if none), of one env or (-1) those that are set for all."""
        payload = messages().GetParametersT(names=list(names), envId=env_id)
        return {text(p.name): p.value for p in self.request(Method.GET_PARAMETERS, payload).parameters or ()}

    def set_parameters(self, values: Mapping[str, float], env_id: int = -1) -> None:
        """Sets env parameters, of one env or (-1) of all. Names and ranges are checked before the first is set.

        Raises:
            CommandFailed: an unknown name or env, or out of its range. Otherwise as `request`.
        """
        m = messages()
        parameters = [m.ParameterT(name=name, value=float(value), envId=env_id) for name, value in values.items()]
        self.request(Method.SET_PARAMETERS, m.SetParametersT(parameters=parameters))

    def set_time_scale(self, scale: float) -> None:
        """How fast simulated time runs; 1 is real time. Goes over as float32."""
        self.request(Method.SET_TIME_SCALE, messages().SetTimeScaleT(scale=scale))

    def get_schema(self) -> dict[str, Any]:
        """The CONFIG line, names of observations and actions, and the methods that the engine knows."""
        answer = self.request(Method.GET_SCHEMA, messages().GetSchemaT())
        return {
            "config": text(answer.config),
            "observation_names": [text(name) for name in answer.observationNames or ()],
            "action_names": [text(name) for name in answer.actionNames or ()],
            "methods": [int(method) for method in (() if answer.methods is None else answer.methods)],
        }

    def set_contract(
        self,
        *,
        seed: int | None = None,
        parameters: Mapping[str, float] | None = None,
        randomization: Mapping[str, tuple[float, float]] | None = None,
        env_ids: Sequence[int] = (),
    ) -> None:
        """What the episodes from the next reset on are simulated under.

        Args:
            seed: of the randomisation, 0 to 2**63 - 1. parameters: name to value.
            randomization: name to (low, high), the range that a value is drawn from.
            env_ids: none: all envs.

        Raises:
            ConfigurationError: a negative seed. CommandFailed: the engine refuses it. Otherwise as `request`.
        """
        if seed is not None and seed < 0:
            raise ConfigurationError("a seed cannot be negative", field="seed", got=seed)
        m = messages()
        if seed is None:
            contract_seed = -1
        else:
            contract_seed = seed
        contract = m.SimulationContractT(
            seed=contract_seed,
            parameters=[m.ParameterT(name=k, value=float(v)) for k, v in (parameters or {}).items()],
            randomization=[
                m.RandomizationRangeT(name=k, low=float(low), high=float(high))
                for k, (low, high) in (randomization or {}).items()
            ],
        )
        self.request(Method.RESET_AGENT, m.ResetAgentT(contract=contract, envIds=list(env_ids)))

    def call(self, line: bytes, seconds: float) -> bytes:
        """The answer to a request of the text protocol (ue_rl/protocol/text/calls.py), both without line ending.

        Raises:
            UnsupportedByEngine: no rings. EngineTimeout, RingFull: not within so many seconds. Also what receive()
                raises.
        """
        ring = self._ring()
        deadline = self._now() + seconds
        self._last_id += 1
        number = self._called = self._last_id % 2**32
        self._call_answer = None
        for entry in text_entries(number, line, ring.max_payload):
            self._write(entry, max(deadline - time.monotonic(), 0.0))
        name = line[:40].partition(b"=")[0].partition(b";")[0].decode("ascii", "replace")
        self._await(lambda: self._call_answer is not None, deadline, f"an answer to {name} within {seconds:g} s")
        answer = self._call_answer
        self._call_answer = None
        assert answer is not None
        return answer

    def close(self, reason: str = "") -> None:
        """Tells the engine that this trainer leaves, and why. The connection stays open: close it afterwards."""
        self.request(Method.CLOSE, messages().CloseT(reason=reason))

    def reset_entry(self, method: int, row: int, value: Mapping[str, Any]) -> bytes:
        """A message for `send_entry`: options or parameters of a reset that is asked in the next frame. For the
        connection.

        Raises:
            ConfigurationError: no JSON, or longer than the ring takes. UnsupportedByEngine: no rings.
        """
        return json_entry(method, row, value, self._ring().max_payload)

    def send_entry(self, data: bytes, seconds: float | None = None) -> None:
        """Writes an encoded message within so many seconds; None: `self.timeout`."""
        if seconds is None:
            timeout = self.timeout
        else:
            timeout = seconds
        self._write(data, timeout)

    def end(self, session: ConnectionState) -> None:
        """The connection has ended, and is not known here any more; what is asked next raises as `session` says."""

        def ended(*_: object) -> None:
            session.require(ConnectionEvent.ASK)

        self._check = self._nudge = self._wait = ended
        self._fail = lambda error: None

    # -- helpers

    def _seconds(self, timeout: float | None) -> float:
        if timeout is None:
            seconds = self.timeout
        else:
            seconds = timeout
        if not 0 <= seconds < float("inf"):
            raise ConfigurationError("a deadline must be finite", field="timeout", got=seconds)
        return seconds

    def _ring(self) -> Ring:
        self._check()
        if self._out is None:
            raise UnsupportedByEngine(
                "this engine has no command rings", fault="engine", field="cmd_ring_size", expected="a size", got=0
            )
        return self._out

    def _write(self, data: bytes, seconds: float) -> None:
        ring = self._ring()
        self._or_dead(lambda: write_within(self._try_write, data, seconds, ring.name, self._meanwhile))

    def _try_write(self, data: bytes) -> bool:
        assert self._out is not None
        written = self._out.try_write(data)
        self._nudge()
        return written

    def _meanwhile(self) -> None:
        """While the ring is full: reads the other one, and checks now and then that the engine is alive."""
        self._take_in()
        now = time.monotonic()
        if now >= self._next_check:
            self._wait(1)
            self._next_check = now + _ALIVE_SECONDS

    def _await(self, done: Callable[[], bool], deadline: float, what: str) -> None:
        while True:
            self.drain()
            if done():
                return
            left = deadline - self._now()
            if left <= 0:
                raise EngineTimeout(f"the engine did not send {what}", cure="does its tick poll the command ring?")
            milliseconds = min(TRAINER_SLICE_MS, int(left * 1000) + 1)
            self._or_dead(lambda: self._wait(milliseconds))  # noqa: B023 - called at once

    def _or_dead(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except RingFull:  # nothing was written
            raise
        except (TransportError, ProtocolError) as error:
            self._fail(error)
            raise

    def _take_in(self) -> int:
        count = taken = 0
        ring = self._in
        while ring is not None and taken < ring.capacity and (data := ring.try_read()) is not None:
            count = count + 1
            taken = taken + len(data)
            if is_json(data):
                method, row, info = read_json_entry(data, (ENV_INFO, FIRST_INFO), self._num_rows)
                (self._infos if method == ENV_INFO else self.first_infos)[row] = info
                continue
            if is_text(data):
                whole = self._texts.take(data)
                if whole is not None and whole[0] == self._called:
                    self._call_answer = whole[1]
                continue
            try:
                command = decode(data)
            except ConfigurationError as error:  # flatbuffers is not installed: nobody here can read events then
                if not self.dropped:
                    _log.warning("what the engine sends unasked is dropped: %s", error)
                self.dropped += 1
                continue
            if command.correlation_id:
                if command.correlation_id in self._answers:
                    self._answers[command.correlation_id] = command
                continue
            problem = None
            if command.error is None:
                problem = mismatch(command.method, command.payload)
            if problem is not None:
                raise MalformedMessage("a message with a wrong payload", fault="engine", field="payload", got=problem)
            if command.method == Method.ENV_INFO:  # of an older engine
                payload: Any = command.payload or messages().EnvInfoT(envId=-1)
                found = check_object(ENV_INFO, int(payload.envId), payload.json or b"", self._num_rows)
                self._infos[found[0]] = found[1]
            else:
                self._keep(command, len(data))
        return count

    def _keep(self, event: Command, size: int) -> None:
        self._events.append((size, event))
        self._event_bytes += size
        while len(self._events) > self.max_events or self._event_bytes > self.max_event_bytes:
            self._event_bytes -= self._events.popleft()[0]
            self.dropped += 1
