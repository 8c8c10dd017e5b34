"""Servers that get mutated messages: an engine's session, and a policy server with several engines."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from tests.harness.do_nothing import do_nothing_model
from tests.harness.lab import Lab
from ue_rl.bridges.tcp.session import EngineSession
from ue_rl.devtools.check.garbage import mutate
from ue_rl.inference.server.engine import ServedEngine
from ue_rl.inference.server.server import PolicyServer
from ue_rl.protocol.spec import Channel
from ue_rl.system import errors

_SAID = re.compile(rb"(CONFIG:|OBS=|VALUES=|OK|PICTURE=|REW=|REFUSED=|ERROR=)[\x20-\x7e]*")


class _Wire:
    """What an EngineSession writes to: lines of the protocol; answers to calls only on the `first`."""

    peer = "fuzz"

    def __init__(self, first: bool = False) -> None:
        self._first = first

    def write(self, data: bytes) -> None:
        lines = data.splitlines()
        if not data.endswith(b"\n") or not all(map(_SAID.fullmatch, lines)):
            raise AssertionError(data)
        if not self._first and any(line.startswith((b"VALUES", b"REFUSED")) for line in lines):
            raise AssertionError(f"an env socket is told {data!r}")


class Engines:
    """An engine's session: lines in pieces, on the first connection and on env sockets."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._bridges = [Lab(2, channel=channel) for channel in (Channel.ANY, Channel.SHARED, Channel.PER_ENV)]
        for bridge in self._bridges:
            bridge.start_training()
        self._session: EngineSession | None = None
        self._places = 0

    def __call__(self, rng: random.Random) -> bytes:
        message = mutate(rng, rng.choice(self._lines), self._lines)
        try:
            self._feed(rng, message)
        except errors.UeRlError as error:
            if error.fault not in ("trainer", None):
                raise AssertionError(f"{error} for {message!r}") from error
            str(error)
            self._end()
        except Exception as error:
            raise AssertionError(f"{error!r} for {message[:2000]!r}") from error
        return message

    def _feed(self, rng: random.Random, message: bytes) -> None:
        session = self._session
        if session is None or session.finished or rng.random() < 0.02:
            self._end()
            self._session = session = EngineSession(rng.choice(self._bridges))
            self._places = session.add(_Wire(first=True)) + 1  # type: ignore[arg-type]
            while rng.random() < 0.3 and not session.full:
                self._places = session.add(_Wire()) + 1  # type: ignore[arg-type]
        data, bridge = message + b"\n", session.bridge
        place = rng.randrange(1 if session.shared else self._places)
        cut = rng.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            session.feed(place, piece)
            if bridge.lockstep.busy:
                bridge.update_rl(0.0)
                session.answer()

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
            bridge: Any = session.bridge
            bridge.lockstep.forget_requests()
            if bridge.lockstep.paused:
                raise AssertionError("the game stays paused behind a session")
            for noted in (bridge.log, bridge.scales, bridge.pauses):
                noted.clear()
            bridge.gravity[:] = [9.8] * len(bridge.gravity)


class _Handle:
    def __init__(self, what: Callable[..., object], *args: Any) -> None:
        self._what: Callable[[], object] | None = partial(what, *args)

    def cancel(self) -> None:
        self._what = None

    def run(self) -> None:
        if self._what is not None:
            self._what()


class _Loop:
    """As much of an event loop as the policy server asks for; timers never fire."""

    def __init__(self) -> None:
        self.soon: list[_Handle] = []

    def call_soon(self, what: Callable[..., object], *args: Any) -> _Handle:
        self.soon.append(_Handle(what, *args))
        return self.soon[-1]

    def call_later(self, delay: float, what: Callable[..., object], *args: Any) -> _Handle:
        return _Handle(what, *args)

    def run(self) -> None:
        while self.soon:
            self.soon.pop(0).run()


class _Transport(asyncio.Transport):
    """Takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.closing = False

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: Any) -> None:
        if not data.endswith(b"\n"):
            raise AssertionError(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading

    def get_write_buffer_size(self) -> int:
        return 0


class Policies:
    """A policy server with several engines, which say hello and ask."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._server = PolicyServer(SimpleNamespace(current=do_nothing_model(4, 2)))  # type: ignore[arg-type]
        self._loop = _Loop()
        self._server.loop = self._loop  # type: ignore[assignment]
        self._engines: list[ServedEngine] = []

    def __call__(self, rng: random.Random) -> bytes:
        self._engines = [engine for engine in self._engines if engine in self._server.engines]
        if len(self._engines) < 3:
            engine = ServedEngine(self._server)
            engine.connection_made(_Transport())
            self._engines.append(engine)
        engine = rng.choice(self._engines)
        if engine.spec is None:
            count = rng.choice((1, 2, 3, 64))
            line = f"CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT={count}".encode()
        elif engine.spec.num_envs > 1 and rng.random() < 0.5:
            line = b"||".join(b"OBS=0.1,2,-3,4e-1;ENV=%d" % env for env in range(rng.randrange(1, 4)))
        else:
            line = rng.choice(self._lines)
        message = line if engine.spec is None and rng.random() < 0.5 else mutate(rng, line, self._lines)
        data = message + b"\n"
        cut = rng.randrange(len(data) + 1)
        try:
            for piece in (data[:cut], data[cut:]):
                engine.data_received(piece)
                self._loop.run()
            if engine not in self._server.engines:
                engine.connection_lost(None)
        except Exception as error:
            raise AssertionError(f"{error!r} for {message[:2000]!r}") from error
        return message
