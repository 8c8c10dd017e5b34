"""The client's TCP transports: MultiTcpConnection and SingleTcpConnection (ue_rl/transport.py says what they must do).

One process, one loop: everything is sent, then everything is received. Two wirings carry a session
(docs/protocol.md, section 4): the shared channel, one socket for the whole batch, and per-env sockets, one for
each env, opened in order because the engine numbers them as it accepts them. After any failure a connection is dead.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.commands.envelope import no_commands
from ue_rl.connections.arguments import check_actions, check_deadlines, check_offered, check_reset
from ue_rl.connections.base import BaseConnection
from ue_rl.connections.tcp.link import Link, dial
from ue_rl.connections.tcp.wirings import PerEnvWiring, SharedWiring, Wiring
from ue_rl.errors import (
    ConfigurationError,
    EngineTimeout,
    EngineUnreachable,
    HandshakeError,
    UeRlError,
    UnexpectedMessage,
    UnsupportedByEngine,
)
from ue_rl.session import Event, State
from ue_rl.spec import Channel, EnvSpec, EnvType
from ue_rl.wire import MAX_HANDSHAKE, Codec, decode_handshake

_log = logging.getLogger("ue_rl.connections")

CHANNELS = ("auto", "shared", "per_env")


class _Failing:
    """`with` this, any of the project's errors leaves the connection dead."""

    def __init__(self, connection: TcpConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UeRlError):
            self._connection.fail(error)


class TcpConnection(BaseConnection):
    """What both TCP transports share: address, deadlines, handshake, life cycle. Use one of the two below.

    Args:
        host, port: where the engine listens.
        channel: "auto": the handshake's CHANNEL decides, and where it is silent per-env sockets are tried, with a
            fall-back to the shared channel where the listener refuses them; or "shared" or "per_env".
        timeout: seconds for a step or reset to be answered.
        connect_timeout: seconds for connecting and, again, for the handshake; None: `timeout`.
        wait: keep trying to connect this many seconds while nobody listens.
        compiled: see ue_rl.wire.Codec.

    Raises:
        ConfigurationError: an argument that cannot be.
    """

    _types: tuple[EnvType, ...] = tuple(EnvType)

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 7777,
        *,
        channel: str = "auto",
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        wait: float = 0.0,
        compiled: bool | None = None,
    ) -> None:
        super().__init__()
        if channel not in CHANNELS:
            raise ConfigurationError(
                "no such channel",
                fault="caller",
                field="channel",
                expected=" or ".join(CHANNELS),
                got=channel,
            )
        if not 0 < port < 65_536:
            raise ConfigurationError("no such port", fault="caller", field="port", expected="1 to 65535", got=port)
        check_deadlines(timeout, connect_timeout)
        self.host, self.port, self.channel = host, port, channel
        self.timeout = timeout
        self.connect_timeout = timeout if connect_timeout is None else connect_timeout
        self.wait = wait
        self._compiled = compiled
        self._admin: Link | None = None
        self._wiring: Wiring | None = None
        self._due = 0
        self._failing = _Failing(self)

    # -- life cycle

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        self.handshake()
        if self._wiring is None:
            with self._failing:
                self._wire_up()
            _log.info("%s", self.describe())
        return self.spec

    def handshake(self) -> EnvSpec:
        """Only the first half of `connect`: one socket and the CONFIG line. For upgrades and inspection."""
        if self._spec is not None:
            return self._spec
        self._session.on(Event.CONNECT)
        with self._failing:
            self._admin, spec = shake_hands(self.host, self.port, self.connect_timeout, self.wait)
            self._adopt(spec)
        return spec

    def take_over(self, link: Link, spec: EnvSpec) -> None:
        """Goes on where `shake_hands` ended."""
        self._session.on(Event.CONNECT)
        self._admin = link
        with self._failing:
            self._adopt(spec)

    def _adopt(self, spec: EnvSpec) -> None:
        if spec.env_type not in self._types:
            raise HandshakeError(
                f"{type(self).__name__} cannot serve this engine", fault="caller", field="ENV_TYPE",
                expected=" or ".join(t.value for t in self._types), got=spec.env_type.value,
                cure="use ue_rl.connect(), which chooses by the handshake",
            )  # fmt: skip
        if spec.image is not None:
            raise UnsupportedByEngine(
                "this engine's observations have images, which text does not carry", fault="caller", field="IMAGE",
                expected="shared memory", got=spec.image.text(),
                cure="run the trainer on the engine's machine, let the engine offer shared memory, and connect with "
                "transport='auto' or 'shm'",
            )  # fmt: skip
        self._spec = spec
        self._codec = Codec(spec, compiled=self._compiled)
        self.buffers = StepBuffers(spec.num_envs, spec.obs_size)
        self._session.on(Event.CONFIG)

    @property
    def commands(self) -> NoReturn:
        """Commands go over shared memory only.

        Raises:
            UnsupportedByEngine: always.
        """
        raise no_commands("text over TCP")

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        facts = {"address": f"{self.host}:{self.port}", "transport": "tcp"}
        if self._spec is not None:
            facts["protocol"] = f"version {self._spec.version}" if self._spec.version else "deployed plugin (version 0)"
            facts["kernels"] = self._codec.kernels
        if self._wiring is not None:
            facts["wiring"] = self._wiring.name
        return facts

    # -- requests and answers

    def send_actions(self, actions: NDArray[np.float32]) -> None:
        """See Transport.send_actions."""
        check_actions(self.spec, actions)
        self._session.on(Event.ASK)
        with self._failing:
            self._refuse_strays(thorough=False)
            self._expect(None)
            self._wires.send_actions(actions, time.monotonic() + self.timeout)

    def reset(
        self,
        env_ids: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """See Transport.reset."""
        check_reset(self.spec, env_ids, seeds)
        check_offered(self.spec, "SEED", seeds)
        check_offered(self.spec, "OPTIONS", options)
        self._session.on(Event.ASK)
        with self._failing:
            self._refuse_strays(thorough=True)
            self._expect(env_ids)
            self._wires.send_resets(env_ids, seeds, options, time.monotonic() + self.timeout)

    def receive(self) -> StepBuffers:
        """See Transport.receive."""
        with self._failing:
            if self._session.state is not State.ASKED:
                self._session.on(Event.ANSWERED)  # says why not
            self._collect()
            self._session.on(Event.ANSWERED)
        return self.buffers

    def _collect(self) -> None:
        due, self._due = self._due, 0
        try:
            self._wires.receive(due, time.monotonic() + self.timeout)
        except EngineTimeout as error:
            raise self._late(error) from error

    # -- helpers

    @property
    def _wires(self) -> Wiring:
        if self._wiring is None:
            self._session.on(Event.ASK)  # says why not
            raise AssertionError("an open session has a wiring")
        return self._wiring

    def _refuse_strays(self, thorough: bool) -> None:
        """A line that nobody asked for would be taken for the next answer. `thorough` looks into the sockets too."""
        if not self._wires.may_have_strays(thorough):
            return
        for env, link in enumerate(self._wires.links):
            if link.has_stray_data():
                raise UnexpectedMessage(
                    "the engine sent a line that nobody asked for", fault="engine",
                    env_id=env if isinstance(self._wires, PerEnvWiring) else None, expected="one answer per request",
                    got=bytes(link.lines.data[link.lines.head : link.lines.head + len(link.lines)]) or None,
                    cure="the game must answer each ACT exactly once",
                )  # fmt: skip

    def _expect(self, env_ids: Sequence[int] | None) -> None:
        """Notes who will answer."""
        buffers = self.buffers
        if buffers.infos:
            buffers.infos.clear()
        if env_ids is None:
            buffers.pending[:] = 1
            self._due = len(buffers.pending)
        else:
            buffers.pending[:] = 0
            buffers.pending[np.asarray(env_ids, np.intp)] = 1
            self._due = int(buffers.pending.sum())

    def _late(self, error: EngineTimeout) -> EngineTimeout:
        waiting = self._wires.unanswered()
        total = len(self.buffers.pending)
        shared = isinstance(self._wires, SharedWiring)
        return EngineTimeout(
            f"the engine answered {total - len(waiting)} of {total} envs within {self.timeout:g} s", fault="engine",
            env_id=waiting[0] if len(waiting) == 1 else None, expected=f"answers of envs {waiting}", got=error.got,
            cure="is the game paused, does an action still run, or does it want "
            + ("per-env sockets (channel='per_env')" if shared else "the shared channel (channel='shared')")
            + "? Raise timeout= for slow actions",
        )  # fmt: skip

    @abc.abstractmethod
    def _wire_up(self) -> None:
        """Chooses the wiring and opens the links, after the handshake."""

    def _choose(self, count: int) -> None:
        """The caller's channel wins, else the handshake's, else env sockets with a fall-back to the shared channel."""
        offered, wanted = self.spec.channel, self.channel
        if wanted == "auto" and offered is not None:
            wanted = "per_env" if offered is Channel.PER_ENV else "shared"
        if wanted == "shared" or not self._open_env_links(count, fall_back=wanted == "auto"):
            self._share()

    def _share(self) -> None:
        assert self._admin is not None
        self._admin.lines.max_line = self._codec.max_line
        self._wiring = SharedWiring(self._admin, self._codec, self.buffers)

    def _open_env_links(self, count: int, fall_back: bool) -> bool:
        """Opens the env sockets in order; False where the listener refuses the first and `fall_back`."""
        links: list[Link] = []
        deadline = time.monotonic() + self.connect_timeout
        try:
            for env in range(count):
                links.append(Link(dial(self.host, self.port, deadline), self._codec.max_line))
                if env % 4 == 3:
                    # Engines let about 8 connections wait to be accepted; one too many is tried again a second later.
                    time.sleep(1e-4)
        except UeRlError as error:
            for link in links:
                link.close()
            if fall_back and not links and isinstance(error, EngineUnreachable):
                return False
            raise type(error)(
                f"the engine took the first connection, but only {len(links)} of {count} env sockets",
                fault="engine", got=error.got,
                cure="if it serves one socket for all envs, connect with channel='shared'",
            ) from error  # fmt: skip
        self._wiring = PerEnvWiring(links, self._codec, self.buffers)
        return True

    def _drop(self) -> None:
        links = [] if self._wiring is None else self._wiring.links
        for link in {*links, *([self._admin] if self._admin else [])}:
            link.close()
        self._due = 0


class MultiTcpConnection(TcpConnection):
    """N envs behind one engine (ENV_TYPE=MULTI), on the shared channel or on per-env sockets."""

    _types = (EnvType.MULTI,)

    def _wire_up(self) -> None:
        self._choose(self.spec.num_envs)


class SingleTcpConnection(TcpConnection):
    """One env (ENV_TYPE=SINGLE or RLBASE)."""

    _types = (EnvType.SINGLE, EnvType.RLBASE)

    def _wire_up(self) -> None:
        if self.spec.env_type is EnvType.SINGLE:
            self._choose(1)
            return
        self._share()
        self._expect(None)
        self._collect()  # RLBASE: the engine speaks first, one state before anything was asked

    def finish(self) -> None:
        """Tells an RLBASE engine that training is over (it resets and closes), then closes."""
        if self._wiring is not None and self.spec.env_type is EnvType.RLBASE:
            with contextlib.suppress(UeRlError):
                self._wiring.links[0].send(b"TRAINING_COMPLETE\n", time.monotonic() + self.timeout)
        self.close()


def shake_hands(host: str, port: int, timeout: float, wait: float = 0.0) -> tuple[Link, EnvSpec]:
    """The first connection and what the engine said on it.

    Args:
        timeout: seconds for connecting and, again, for the CONFIG line. wait: see `TcpConnection`.

    Raises:
        EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError.
    """
    link = Link(dial(host, port, time.monotonic() + timeout, wait=wait), MAX_HANDSHAKE)
    try:
        start, end = link.next_span(time.monotonic() + timeout)
        return link, decode_handshake(link.lines.data[start:end])
    except EngineTimeout as error:
        link.close()
        raise HandshakeError(
            "the engine accepted the connection but sent no handshake", fault="engine",
            expected=f"CONFIG:.. within {timeout:g} s", got=error.got,
            cure="is another trainer connected, did one connect before (then press Play again), "
            "or is this not the game's port?",
        ) from error  # fmt: skip
    except BaseException:
        link.close()
        raise


def open_tcp(host: str, port: int, **options: Any) -> MultiTcpConnection | SingleTcpConnection:
    """A connected transport, of the kind that the engine's handshake asks for.

    Args:
        options: see TcpConnection.

    Raises:
        ConfigurationError, and what Transport.connect raises.
    """
    probe = MultiTcpConnection(host, port, **options)  # checks the options before anything is dialled
    return go_on(*shake_hands(host, port, probe.connect_timeout, probe.wait), host, port, **options)


def go_on(link: Link, spec: EnvSpec, host: str, port: int, **options: Any) -> MultiTcpConnection | SingleTcpConnection:
    """As `open_tcp`, from where `shake_hands` ended."""
    kind = MultiTcpConnection if spec.env_type is EnvType.MULTI else SingleTcpConnection
    connection = kind(host, port, **options)
    connection.take_over(link, spec)
    connection.connect()
    return connection
