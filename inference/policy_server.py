"""PolicyServer: answers observations of engines that cannot run ONNX themselves. Protocol: docs/policy-server.md.

One asyncio loop; the observations of all engines that are there when the loop comes round are answered by one batched
call of the model. A newer model file is picked up between two batches. An engine that breaks the protocol loses its own
connection and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import (
    HandshakeError,
    MalformedMessage,
    ModelMismatch,
    NonFiniteValue,
    UeRlError,
    UnknownEnv,
    WrongCount,
)
from ue_rl.handshake import MAX_HANDSHAKE, decode_handshake
from ue_rl.inference.reload import ReloadingInference
from ue_rl.kernels_pure import float32_text
from ue_rl.session import LineBuffer
from ue_rl.spec import EnvSpec

_log = logging.getLogger("ue_rl.inference.policy_server")

Request = tuple["_Engine", int, NDArray[np.float32], bool, float]


class PolicyServer:
    """Serves one model to many engines.

    Args:
        policy: the model; its file is followed (ReloadingInference.poll is called between batches).
        host, port: where to listen; port 0 takes a free one.
        max_batch: rows per call of the model at most.

    Attributes:
        engines: connected now. requests: answered so far. latencies: seconds from an observation's arrival to its
            answer, of the last 10 000.
    """

    def __init__(
        self, policy: ReloadingInference, host: str = "127.0.0.1", port: int = 7778, *, max_batch: int = 4096
    ) -> None:
        self.policy, self.host = policy, host
        self._asked_port, self._max_batch = port, max_batch
        self._server: asyncio.Server | None = None
        self._waiting: list[Request] = []
        self._due = False
        self.engines: set[_Engine] = set()
        self.requests = 0
        self.batches = 0
        self.latencies: deque[float] = deque(maxlen=10_000)
        self._follower: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port listened on."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listens; raises OSError where it cannot."""
        self._loop = asyncio.get_running_loop()
        self._server = await self._loop.create_server(lambda: _Engine(self), self.host, self._asked_port, backlog=512)
        self._follower = self._loop.create_task(self._follow())

    async def close(self) -> None:
        """Stops listening and closes every connection; idempotent."""
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
            self._follower = None
        if self._server is not None:
            self._server.close()
        for engine in list(self.engines):
            engine.drop()

    async def __aenter__(self) -> PolicyServer:
        """Starts."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes."""
        await self.close()

    def percentiles(self) -> tuple[float, float] | None:
        """(p50, p99) of the recent latencies in seconds, None before the first answer."""
        if not self.latencies:
            return None
        p50, p99 = np.percentile(np.array(self.latencies), [50, 99])
        return float(p50), float(p99)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self.policy.poll():
                _log.info("a newer model is in use")
                for engine in self.engines:
                    engine.forget_states()

    def submit(self, request: Request) -> None:
        """Queues one observation; all that are there at the loop's next turn are answered together."""
        self._waiting.append(request)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        self._due = False
        batch, self._waiting = self._waiting[: self._max_batch], self._waiting[self._max_batch :]
        if self._waiting:
            self._due = True
            self._loop.call_soon(self._answer)
        batch = [request for request in batch if request[0] in self.engines]
        if not batch:
            return
        try:
            actions = self._run(batch)
        except UeRlError as error:
            _log.error("the model failed: %s", error)
            for engine in {request[0] for request in batch}:
                engine.drop()
            return
        lines: dict[_Engine, list[str]] = {}
        for (engine, env, _, _, _), row in zip(batch, actions, strict=True):
            text = ",".join(map(float32_text, row))
            tag = f";ENV={env}" if engine.spec is not None and engine.spec.num_envs > 1 else ""
            lines.setdefault(engine, []).append(f"ACT={text}{tag}")
        now = time.perf_counter()
        for engine, rows in lines.items():
            engine.write(("||".join(rows) + "\n").encode())
        self.latencies.extend(now - request[4] for request in batch)
        self.requests += len(batch)
        self.batches += 1

    def _run(self, batch: list[Request]) -> NDArray[np.float32]:
        model = self.policy.current
        observations = np.stack([request[2] for request in batch])
        if not model.is_recurrent:
            return model.run_inference(observations)
        zero = model.initial_state(1)
        states = [engine.states.get(env, zero) for engine, env, *_ in batch]
        joined = {name: np.concatenate([state[name] for state in states]) for name in zero}
        starts = np.array([[request[3]] for request in batch], np.float32)
        actions, after = model.run(observations, state=joined, episode_start=starts)
        for row, (engine, env, *_) in enumerate(batch):
            engine.states[env] = {name: array[row : row + 1] for name, array in after.items()}
        return actions


class _Engine(asyncio.Protocol):
    """One engine's connection."""

    def __init__(self, server: PolicyServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._lines = LineBuffer(MAX_HANDSHAKE)
        self.spec: EnvSpec | None = None
        self.states: dict[int, Any] = {}
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server.engines.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.engines.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._lines.feed(data)
            while self in self._server.engines:
                line = self._lines.next_line()
                if line is None:
                    return
                if self.spec is None:
                    self._greet(line)
                else:
                    self._take(line)
        except UeRlError as error:
            _log.error("engine %s dropped: %s", self.peer, error)
            self.drop()

    def _greet(self, line: bytes) -> None:
        spec = decode_handshake(line)
        policy = self._server.policy
        try:
            policy.require(spec.obs_size, spec.act_size)
        except ModelMismatch as error:
            raise HandshakeError(
                "the engine's sizes are not the model's", fault="engine", expected=error.expected, got=line
            ) from error
        self.spec = spec
        self._lines.max_line = 1024 + 64 * spec.num_envs * (spec.obs_size + 1)
        _log.info("engine %s: %d envs", self.peer, spec.num_envs)

    def _take(self, line: bytes) -> None:
        arrived = time.perf_counter()
        for row in line.split(b"||"):
            env, values, starts = parse_row(row, self._spec)
            if starts:
                self.states.pop(env, None)
            self._server.submit((self, env, values, starts, arrived))

    @property
    def _spec(self) -> EnvSpec:
        assert self.spec is not None
        return self.spec

    def forget_states(self) -> None:
        """A new model: recurrent envs begin anew."""
        self.states.clear()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def drop(self) -> None:
        self._server.engines.discard(self)
        if self._transport is not None:
            self._transport.close()


def parse_row(row: bytes, spec: EnvSpec) -> tuple[int, NDArray[np.float32], bool]:
    """(env, observation float32 [obs_size], does an episode start) of `OBS=..[;ENV=..][;RESET=1]`.

    Raises:
        MalformedMessage, WrongCount, NonFiniteValue, UnknownEnv.
    """
    fields: dict[str, str] = {}
    for part in row.decode("ascii", "replace").split(";"):
        key, equals, value = part.partition("=")
        key = key.strip().upper()
        if not equals:
            if not key:
                continue
            raise MalformedMessage("not a field", fault="engine", expected="OBS=..;ENV=..", got=row)
        if key in fields:
            raise MalformedMessage("a field comes twice in one row", fault="engine", field=key, got=row)
        fields[key] = value.strip()
    try:
        env = int(fields.get("ENV", "0"))
        values = np.array([float(text) for text in fields["OBS"].split(",")])
    except (KeyError, ValueError):
        raise MalformedMessage("numbers were expected", fault="engine", field="OBS", got=row) from None
    if not 0 <= env < spec.num_envs or ("ENV" not in fields and spec.num_envs > 1):
        raise UnknownEnv(
            "the env id does not exist or is missing", fault="engine", field="ENV",
            expected=f"0 to {spec.num_envs - 1}", got=row,
        )  # fmt: skip
    if len(values) != spec.obs_size:
        raise WrongCount(
            "the observation has the wrong number of numbers", fault="engine", env_id=env, field="OBS",
            expected=spec.obs_size, got=len(values),
        )  # fmt: skip
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise NonFiniteValue(
            "a value is NaN, infinite or beyond float32", fault="engine", env_id=env, field="OBS", got=row
        )
    return env, narrow, fields.get("RESET") == "1"
