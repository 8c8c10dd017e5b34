"""GrpcConnection: N sessions of a game behind one gRPC port as N envs; each step is one message, StepAll."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
from grpc.experimental import ChannelOptions
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.grpc.client.access import Access
from ue_rl.plugins.sessions.grpc.client.errors import named, of_a_run
from ue_rl.plugins.sessions.limits import FLOAT, MAX_TICKS, SERVICE
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import MAX_ENVS, EnvSpec, EnvType
from ue_rl.protocol.text import decode_handshake
from ue_rl.system.errors import (
    ConfigurationError,
    EngineTimeout,
    MalformedMessage,
    NonFiniteValue,
    UeRlError,
    WrongCount,
)
from ue_rl.system.json_text import json_object, json_text

_CARRIED = frozenset({"TRUNC", "SEED", "OPTIONS", "INFO", "MASK"})  # FEATURES that these messages have words for
_SINGLE = ChannelOptions.SingleThreadedUnaryStream
_FAREWELL = 2.0  # seconds for the server to hear that the sessions are given back


class GrpcConnection(BaseTransport):
    """See the module's docstring.

    Args:
        target: "HOST:PORT". num_envs: sessions to create. game: its name; None: the one that is served.
        ticks: of each step, 1 to 5000: the game goes on by so many, and the reward is their sum.
        timeout, connect_timeout, wait: see BaseTransport. access: token and TLS of this side; None: neither.

    Raises:
        ConfigurationError: an invalid argument.
    """

    carries = "gRPC"

    def __init__(
        self,
        target: str,
        *,
        num_envs: int = 1,
        game: str | None = None,
        ticks: int = 1,
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        wait: float = 0.0,
        access: Access | None = None,
    ) -> None:
        super().__init__(timeout, connect_timeout, wait)
        for name, value, most in (("num_envs", num_envs, MAX_ENVS), ("ticks", ticks, MAX_TICKS)):
            if not 1 <= value <= most:
                raise ConfigurationError("out of range", field=name, expected=f"1 to {most}", got=value)
        self.target = target
        self.num_envs = num_envs
        if not game:
            game = ""
        self.game = game
        self.ticks = ticks
        if not access:
            access = Access()
        self.access = access
        self._ids: list[str] = []
        self._rows: slice | NDArray[np.intp] = slice(None)
        self._answer: Any = None
        self._kept: Any = None
        self._channel: grpc.Channel | None = None
        self._process = os.getpid()

    # -- opening

    def _open(self) -> EnvSpec:
        channel: grpc.Channel = self.access.channel(grpc, self.target, [(_SINGLE, 1)])
        self._channel = channel
        self._stub = SessionsStub(channel)
        # On the wire one answer and a stream of one are the same. For such a stream gRPC needs no thread of its own.
        self._step_all = channel.unary_stream(
            f"/{SERVICE}/StepAll", messages.StepAllRequest.SerializeToString, messages.StepAllResponse.FromString
        )
        first = self._create(self.wait > 0, self.wait + self.connect_timeout)
        try:
            info = self._result(first.result)
        except EngineTimeout:
            if not self.wait:
                raise
            # who waits for a server is not told why it cannot be reached; who does not wait is, at once
            info = self._result(self._create(False, self.connect_timeout).result)
        self._ids.append(info.session_id)
        self.handshake = info.handshake
        others = [self._create(False, self.connect_timeout) for _ in range(self.num_envs - 1)]
        failed: UeRlError | None = None
        for other in others:  # also behind one that has failed: what was created is to be given back
            try:
                self._ids.append(self._result(other.result).session_id)
            except UeRlError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        self._keep()
        spec = decode_handshake(self.handshake.encode("ascii"))
        spec = replace(
            spec,
            num_envs=self.num_envs,
            env_type=EnvType.MULTI,
            features=spec.features & _CARRIED,
            parameters=(),
            channel=None,
        )
        self.buffers = StepBuffers.of(spec)
        return spec

    def _create(self, patient: bool, seconds: float) -> Any:
        request = messages.CreateSessionRequest(game=self.game)
        return self._stub.CreateSession.future(
            request, timeout=seconds, wait_for_ready=patient, metadata=self.access.metadata
        )

    def _keep(self) -> None:
        """Says that the sessions are in use for as long as this connection is there, however long nothing is asked.

        An older server has no such call, and reaps those that are idle.
        """
        keep = self._channel.unary_stream(  # type: ignore[union-attr]
            f"/{SERVICE}/Keep", messages.KeepRequest.SerializeToString, messages.KeepResponse.FromString
        )
        # cancelled once nothing refers to it
        self._kept = keep(messages.KeepRequest(session_ids=self._ids), metadata=self.access.metadata)
        try:
            next(self._kept)  # they are in use from here on
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:  # type: ignore[attr-defined]
                raise named(error, self.target) from error

    def _result(self, answer: Callable[[], Any]) -> Any:
        try:
            return answer()
        except grpc.RpcError as error:
            found = named(error, self.target)
            raise found if self._spec is None else of_a_run(found) from error

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        carried = "grpc with tls"
        if self.access.credentials is None:
            carried = "grpc"
        count = str(len(self._ids))
        return {"address": self.target, "transport": carried, "protocol": "ue_rl.v1", "sessions": count}

    # -- requests and answers

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        names = self._ids
        told = []
        self._rows = slice(None)
        if resets is None:
            self._check_step(actions, ())
        else:
            envs = sorted(set(range(len(self._ids))).difference(resets.resting))
            told = _resets(resets, [envs.index(env) for env in resets.env_ids or ()])
            names = [self._ids[env] for env in envs]
            self._rows = np.array(envs, np.intp)
        request = messages.StepAllRequest(
            session_ids=names,
            actions=actions[self._rows].astype(FLOAT, copy=False).tobytes(),
            ticks=self.ticks,
            resets=told,
        )
        self._send(request, resets, steps=True)

    def _ask_resets(self, resets: Resets) -> None:
        if resets.env_ids is not None:
            chosen = resets.env_ids
        else:
            chosen = range(len(self._ids))
        envs = list(chosen)
        self._rows = np.array(envs, np.intp)
        request = messages.StepAllRequest(
            session_ids=[self._ids[env] for env in envs], resets=_resets(resets, range(len(envs)))
        )
        self._send(request, resets, steps=False)

    def _send(self, request: messages.StepAllRequest, resets: Resets | None, steps: bool) -> None:
        self.expect_answers(resets, steps)
        self._answer = self._step_all(request, timeout=self.timeout, metadata=self.access.metadata)

    def _collect(self) -> None:
        answer: messages.StepAllResponse = self._result(lambda: next(self._answer, None))
        if answer is None or self._result(lambda: next(self._answer, None)) is not None:
            raise MalformedMessage("the server did not give one answer", fault="engine", expected="one StepAllResponse")
        spec = self.spec
        buffers = self.buffers
        rows = self._rows
        if isinstance(rows, slice):
            envs = range(len(self._ids))
        else:
            envs = rows.tolist()
        count = len(envs)
        buffers.obs[rows] = obs = _array("observations", answer.observations, FLOAT, count, spec.obs_size)
        rewards = _array("rewards", answer.rewards, FLOAT, count)
        terminated = _array("terminated", answer.terminated, "u1", count)
        truncated = _array("truncated", answer.truncated, "u1", count)
        for field, finite in (("OBS", np.isfinite(obs).all(axis=1)), ("REW", np.isfinite(rewards))):
            if not finite.all():
                raise NonFiniteValue(
                    "the game gave NaN or infinity",
                    fault="engine",
                    env_id=envs[int((~finite).argmax())],
                    field=field,
                    expected="finite numbers",
                )
        for field, flags in (("DONE", terminated), ("TRUNC", truncated)):
            if flags.max(initial=0) > 1:
                raise MalformedMessage(
                    "a flag is neither 0 nor 1",
                    fault="engine",
                    env_id=envs[int(flags.argmax())],
                    field=field,
                    expected="0 or 1",
                    got=int(flags.max()),
                )
        buffers.rewards[rows] = rewards
        buffers.dones[rows] = terminated | truncated
        buffers.truncated[rows] = truncated & ~terminated & 1
        if spec.mask_size:
            buffers.masks[rows] = _array("masks", answer.masks, "u1", count, spec.mask_size)
        for row, text in answer.infos_json.items():
            info = json_object(text)
            if info is None or row >= count:
                raise MalformedMessage("an info is no JSON object of a row", fault="engine", field="INFO", got=text)
            buffers.infos[envs[row]] = info
        for row, result in answer.results.items():
            if row < count:
                buffers.infos.setdefault(envs[row], {})["result"] = result
        buffers.pending[:] = 0

    # -- the end

    def _drop(self) -> None:
        """Gives the sessions back, where the server still hears it, and closes the channel."""
        channel = self._channel
        self._channel = None
        if channel is None or os.getpid() != self._process:
            return
        until = time.monotonic() + _FAREWELL
        with contextlib.suppress(grpc.RpcError, grpc.FutureTimeoutError, ValueError):
            said = [
                self._stub.DestroySession.future(
                    messages.SessionRequest(session_id=name), timeout=_FAREWELL, metadata=self.access.metadata
                )
                for name in self._ids
            ]
            for call in said:
                call.result(max(0.0, until - time.monotonic()))
        channel.close()


def _resets(resets: Resets, rows: Any) -> list[messages.SessionReset]:
    """What goes with the resets; `rows` are their places in the request."""
    told = []
    for n, row in enumerate(rows):
        reset = messages.SessionReset(row=row)
        seed = None
        if resets.seeds is not None:
            seed = resets.seeds[n]
        options = None
        if resets.options is not None:
            options = resets.options[n]
        if seed is not None:
            reset.seed = int(seed)
        if options is not None:
            reset.options_json = json_text(options, "OPTIONS")
        told.append(reset)
    return told


def _array(name: str, data: bytes, dtype: str | np.dtype[Any], rows: int, size: int | None = None) -> NDArray[Any]:
    """[rows, size], or [rows] without a size."""
    if len(data) % np.dtype(dtype).itemsize == 0:
        found = np.frombuffer(data, dtype)
    else:
        found = np.zeros(0, dtype)
    width = size
    if not width:
        width = 1
    if len(found) != rows * width:
        raise WrongCount(
            "an answer has a wrong size", field=name, expected=rows * (size or 1), got=f"{len(data)} bytes"
        )
    if size is None:
        return found
    return found.reshape(rows, size)
