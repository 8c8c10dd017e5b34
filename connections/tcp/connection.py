"""TcpConnection: a Transport over TCP (ue_rl/protocol/transport.py says what it must do); kinds.py has its two kinds.

One process, one loop: everything is sent, then everything is received. Two wirings carry a session
(docs/protocol.md, section 4): the shared channel, one socket for the whole batch, and per-env sockets, one for
each env, opened in order because the engine numbers them as it accepts them. After any failure a connection is dead.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.base.batched_step import BatchedStep
from ue_rl.connections.base.carrier import Carrier
from ue_rl.connections.base.checks import check_actions
from ue_rl.connections.tcp.batch import TextBatch
from ue_rl.connections.tcp.greeting import accept_seconds, no_images, open_env_links, shake_hands
from ue_rl.connections.tcp.link import Link, engine_gone, engine_late
from ue_rl.connections.tcp.numbers import AnswerNumbers, ask_anything
from ue_rl.connections.tcp.wirings import PerEnvWiring, SharedWiring, Wiring
from ue_rl.protocol.access.client_access import ClientAccess
from ue_rl.protocol.buffers import Next, Resets, StepBuffers
from ue_rl.protocol.spec import Channel, EnvSpec, EnvType
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.ahead import encode_ahead
from ue_rl.protocol.text.calls import PICTURE_LIMIT
from ue_rl.protocol.text.kernels_writing import end_line
from ue_rl.protocol.text.limits import needs_nuls, require_lines
from ue_rl.system.errors import (
    ConfigurationError,
    EngineDisconnected,
    EngineTimeout,
    HandshakeError,
    UnsupportedByEngine,
)
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_log = logging.getLogger("ue_rl.connections")

CHANNELS = ("auto", "shared", "per_env")
_LAST_WORDS = 0.2  # seconds for the engine's reason, which comes on another socket than the end did


class TcpConnection(BaseTransport):
    """What both kinds share: address, handshake, wiring, requests and answers. Use one of kinds.py.

    Args:
        host, port: where the engine listens.
        channel: "auto": the handshake's CHANNEL decides, and where it is silent per-env sockets are tried, with a
            fall-back to the shared channel where the listener refuses them; or "shared" or "per_env".
        nul_terminated: send a NUL byte behind each line, in the same write, to an engine of version 0 that is SINGLE or
            RLBASE: the deployed plugin reads those into memory that it does not clear (docs/unreal.md). None: where the
            handshake may be the plugin's, which names no CHANNEL. Others, whose readers are right, get none.
        timeout, connect_timeout, wait: see BaseTransport. compiled: see ue_rl.protocol.text.Codec.
        access: TLS and token of this side; None: neither. timing: of all its waits.

    Attributes:
        in_use: a call uses the sockets, and closes them itself where the connection is `dropped` meanwhile; see `used`.

    Raises:
        ConfigurationError: an invalid argument.
    """

    carries = "text over TCP"
    refused = ""  # why the engine's offer of shared memory was not taken
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
        nul_terminated: bool | None = None,
        access: ClientAccess | None = None,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        super().__init__(timeout, connect_timeout, wait)
        self._access = access
        self._timing = timing
        self._now = timing.now
        if channel not in CHANNELS:
            raise ConfigurationError("no such channel", field="channel", expected=" or ".join(CHANNELS), got=channel)
        if not 0 < port < 65_536:
            raise ConfigurationError("no such port", field="port", expected="1 to 65535", got=port)
        self.host = host
        self.port = port
        self.channel = channel
        self._compiled = compiled
        self._nul_terminated = nul_terminated
        self._greeted: tuple[Link, EnvSpec] | None = None
        self._admin: Link | None = None
        self._wiring: Wiring | None = None
        self._numbers: AnswerNumbers | None = None  # where the engine numbers its answers
        self._rows_due = 0
        self.in_use = self.dropped = False
        self._nuls = False
        self._accept_seconds = 0.0  # on top of the deadline of the first answer

    # -- opening

    def _open(self) -> EnvSpec:
        self._admin, spec = self._greeted or self._shake_hands()
        self.handshake = self._admin.greeting
        if spec.env_type not in self._types:
            raise HandshakeError(
                f"{type(self).__name__} cannot serve this engine",
                fault="caller",
                field="ENV_TYPE",
                expected=" or ".join(t.value for t in self._types),
                got=spec.env_type.value,
                cure="use ue_rl.connect(), which chooses by the handshake",
            )
        if spec.image is not None:
            raise no_images(spec, self._admin)
        require_lines(spec)
        self._codec = Codec(spec, compiled=self._compiled)
        self.buffers = StepBuffers.of(spec)
        self._nuls = needs_nuls(spec, self._nul_terminated)
        if self._nul_terminated and not self._nuls:
            _log.info("no NUL bytes are sent: only SINGLE and RLBASE engines of version 0 need them")
        if self._codec.numbered:
            self._numbers = AnswerNumbers(self._codec)
        self._wiring = self._choose(self._admin, spec)
        return spec

    def _shake_hands(self) -> tuple[Link, EnvSpec]:
        return shake_hands(self.host, self.port, self.connect_timeout, self.wait, self._access, self._timing)

    def _choose(self, admin: Link, spec: EnvSpec) -> Wiring:
        """The caller's channel wins, else the handshake's, else env sockets with a fall-back to the shared channel."""
        wanted = self.channel
        if spec.groups:
            if wanted == "per_env":
                raise UnsupportedByEngine(
                    "an engine with agents speaks on one socket for all envs",
                    field="channel",
                    expected="'auto' or 'shared'",
                    got=wanted,
                    cure="leave channel= out",
                )
            wanted = "shared"
        if spec.env_type is EnvType.RLBASE:
            wanted = "shared"
        elif wanted == "auto" and spec.channel is not None:
            wanted = "shared"
            if spec.channel is Channel.PER_ENV:
                wanted = "per_env"
        links = []
        if wanted != "shared":
            links = open_env_links(
                self.host,
                self.port,
                spec,
                self._codec.max_line,
                self.connect_timeout,
                fall_back=wanted == "auto",
                access=self._access,
                timing=self._timing,
            )
        if links:
            if "ERROR" in spec.features:  # of version 1.1: these are env sockets, and no port probes
                for link in links:
                    link.send(b"\n", self._now() + self.connect_timeout)
            self._accept_seconds = accept_seconds(spec)
            return PerEnvWiring(links, self._codec, self.buffers, self._nuls, self._numbers)
        admin.lines.max_line = self._codec.max_line
        if "ERROR" in spec.features:  # of version 1.1: no env sockets will come, and somebody is there
            admin.send(b"\n", self._now() + self.connect_timeout)
        return SharedWiring(admin, self._codec, self.buffers, self._nuls, self._numbers)

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        facts = {"address": f"{self.host}:{self.port}", "transport": "tcp"}
        if self._access is not None and self._access.tls is not None:
            facts["transport"] = "tcp with tls"
        if self._spec is not None and self._wiring is not None:
            if self._spec.version:
                facts["protocol"] = f"version {self._spec.version}"
            else:
                facts["protocol"] = "deployed plugin (version 0)"
            facts |= {"kernels": self._codec.kernels, "wiring": self._wiring.name}
        if self._numbers is not None and self._numbers.dropped:
            facts["late answers"] = f"{self._numbers.dropped} dropped"
        if self.refused:
            facts["shared memory"] = self.refused
        return facts

    @property
    def last_number(self) -> int:
        """See Carrier.last_number."""
        used = []
        if self._admin:
            used = [self._admin.number]
        last = []
        if self._wiring:
            last = [self._wiring.last_number]
        return max([0, *used, *last])

    def replace(self, last_number: int) -> str:
        """See Carrier.replace; without numbers a call or a reset of one env among several must be answered."""
        wiring = self._wiring
        assert wiring is not None
        if self._numbers is not None and self._admin is not None:
            self._numbers.lost_up_to = self._admin.number = last_number
            wiring.count_from(last_number)
            return ""
        spec = self.spec
        unseen = "an answer to the lost connection that comes later than that is taken for one to this"
        if ask_anything(self.call, spec):
            return f"it was asked a call first, and {unseen}"
        if isinstance(wiring, SharedWiring) and spec.num_envs > 1:
            self.reset([0])
            self.receive()
            return f"env 0 was reset alone first, and {unseen}"
        return "nothing can tell whether it still answers the lost connection: such an answer is taken for one to this"

    # -- the end

    def _drop(self) -> None:
        """Ends the connection at once. One that a thread waits on is closed there: its number could be reused."""
        self.dropped = True
        links = self._links()
        for link in links:
            link.shut_down()
        if not self.in_use:
            for link in links:
                link.close()

    def _links(self) -> set[Link]:
        links = []
        if self._wiring is not None:
            links = self._wiring.links
        own = []
        if self._admin:
            own = [self._admin]
        return {*links, *own}

    def _use(self) -> None:
        """Before sockets are used; `used` follows. In this order: `_drop` in another thread may come at any moment."""
        self.in_use = True
        if self.dropped:
            self.used()
            raise engine_gone("the connection was closed")

    def used(self) -> None:
        """The sockets are not used any more."""
        self.in_use = False
        if self.dropped:
            for link in self._links():
                link.close()

    def forked(self) -> None:
        """See BaseTransport.forked; the thread that may wait is the parent's."""
        self.in_use = False
        super().forked()

    @property
    def codec(self) -> Codec:
        """Of its session."""
        return self._codec

    # -- requests and answers

    @classmethod
    def join(cls, transports: Sequence[Carrier], buffers: StepBuffers) -> BatchedStep | None:
        """See Carrier.join. On shared channels with compiled kernels on POSIX, without agents, masks and NULs."""
        mine = [each for each in transports if isinstance(each, TcpConnection)]
        wirings = [each._wiring for each in mine if isinstance(each._wiring, SharedWiring) and not each._nuls]
        plain = all(each.codec.kernels == "compiled" and not each.spec.groups for each in mine)
        plain = plain and not any(link.layered for each in mine for link in each._links())
        if os.name != "posix" or not plain or buffers.masks.size or len(wirings) != len(transports):
            return None
        return TextBatch(mine, wirings, buffers)

    def _finish_asking(self, left: bytes) -> None:
        self._use()
        try:
            self._rows_due = self.expect_answers(None, steps=True)
            if left:
                assert self._wiring is not None
                self._wiring.links[0].send(left, self._now() + self.timeout)
        except EngineDisconnected as error:
            raise self._ended(error) from error
        finally:
            self.used()

    @property
    def asks_ahead(self) -> bool:
        """See Carrier.asks_ahead: on the shared channel, and not with agents."""
        spec = self.spec
        shared = isinstance(self._wiring, SharedWiring)
        return shared and "AUTORESET" in spec.features and spec.version > 0 and not spec.groups

    def _ask_ahead(self, following: Mapping[int, Next]) -> None:
        assert isinstance(self._wiring, SharedWiring)
        self._wiring.before += encode_ahead(self.spec, following)

    def _take_begun(self, env_ids: list[int]) -> None:
        """See Carrier._take_begun: their line stands behind that of the step, and has its number."""
        for env in env_ids:
            self.buffers.pending[env] = 1
        self._hear(len(env_ids), self.timeout)

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        check_actions(self.spec, actions)
        self._send(actions, resets)

    def _ask_resets(self, resets: Resets) -> None:
        self._send(None, resets)

    def _send(self, actions: NDArray[np.float32] | None, resets: Resets | None) -> None:
        self._use()
        try:
            wiring = self._ready_wiring()
            self._rows_due = self.expect_answers(resets, steps=actions is not None)
            wiring.send(actions, resets, self._now() + self.timeout)
        except EngineDisconnected as error:
            raise self._ended(error) from error
        finally:
            self.used()

    def _collect(self) -> None:
        self._hear(self._rows_due, self.timeout + self._accept_seconds)
        self._accept_seconds = 0.0

    def _hear(self, rows: int, patience: float) -> None:
        """Waits so many seconds until this many rows have been answered; an error says what is known of the engine."""
        assert self._wiring is not None
        self._use()
        try:
            self._wiring.receive(rows, self._now() + patience)
        except EngineDisconnected as error:
            raise self._ended(error) from error
        except EngineTimeout as error:
            raise self._late(error) from error
        finally:
            self.used()

    def _late(self, error: EngineTimeout) -> EngineTimeout:
        """What to say of an engine that did not answer in time."""
        assert self._wiring is not None
        # else a line has begun
        if error.expected is None:
            why = self._why_silent()
        else:
            why = f"{error.cure}."
        waiting = self._wiring.unanswered()
        total = len(self.buffers.pending)
        return engine_late(waiting, total, self.timeout + self._accept_seconds, error.got, why)

    def _why_silent(self) -> str:
        """What to look at after a timeout. The deployed plugin has env sockets and no other way, or it is RLBASE."""
        spec = self.spec
        shared = isinstance(self._wiring, SharedWiring)
        why = "is the game paused, or does an action still run?"
        if spec.env_type is not EnvType.RLBASE and (spec.version or shared):
            other = "the shared channel (channel='shared')"
            if shared:
                other = "per-env sockets (channel='per_env')"
            why = f"is the game paused, does an action still run, or does it want {other}?"
        elif self._accept_seconds:  # it has never answered
            why += ' Or is it not the Unreal plugin, and wants one socket for all envs (channel="shared")?'
        if self._nuls:
            why += (
                " If it is not the plugin: does it skip the NUL byte behind a line (nul_terminated=False sends none)?"
            )
        return why

    def _ended(self, error: EngineDisconnected) -> EngineDisconnected:
        """What to say of an engine that has gone: on per-env sockets its reason came on the first connection."""
        if error.field == "ERROR" or self._admin is None or not isinstance(self._wiring, PerEnvWiring):
            return error
        return self._admin.last_words(_LAST_WORDS) or error

    def _call(self, line: bytes) -> bytes:
        spec = self.spec
        link = self._admin
        if not spec.version or spec.env_type is EnvType.RLBASE:
            raise UnsupportedByEngine(
                "this engine takes no requests beside the steps",
                field=line[:40].decode("ascii"),
                expected="VERSION=1 and MULTI or SINGLE",
                got=f"VERSION={spec.version}, {spec.env_type.value}",
            )
        assert link is not None
        self._use()
        try:
            return self._answer_to(line, link)
        finally:
            self.used()

    def _answer_to(self, line: bytes, link: Link) -> bytes:
        """Sends a call on the first connection, and waits for its answer."""
        self._ready_wiring()
        if self._numbers is None:
            link.require_silence()
        else:
            link.number += 1
        lines = link.lines
        deadline = self._now() + self.timeout
        start = 0
        end = -1
        before = lines.max_line
        lines.max_line = max(PICTURE_LIMIT, lines.max_line)
        try:
            link.send(end_line(line, link.number), deadline)
            while end < 0:
                start, end = link.next_span(deadline)
                if self._numbers is not None:
                    end = self._numbers.end_of_call(lines.data, start, end, link.number)
            return bytes(lines.data[start:end])
        except EngineTimeout as error:
            raise EngineTimeout(
                f"the engine did not answer a call within {self.timeout:g} s",
                field=line.partition(b"=")[0].partition(b";")[0].decode("ascii"),
                got=error.got,
                cure=error.cure
                or "an engine answers a call at once, also without a tick: does it read the first connection?",
            ) from error
        finally:
            lines.max_line = before

    def _ready_wiring(self) -> Wiring:
        """The wiring, with nothing left to read: a line that nobody asked for would be taken for the next answer.

        Where answers have numbers the next one read shows it.
        """
        wiring = self._wiring
        assert wiring is not None
        if self._numbers is not None or not wiring.may_have_strays():
            return wiring
        for env, link in enumerate(wiring.links):
            silent = None
            if isinstance(wiring, PerEnvWiring):
                silent = env
            link.require_silence(silent)
        return wiring
