"""The two kinds of engine over TCP, of several envs and of one, and how the one that a handshake asks for is opened."""

from __future__ import annotations

import contextlib
from typing import Any

from ue_rl.connections.tcp.connection import TcpConnection
from ue_rl.connections.tcp.link import Link
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text.limits import nul_terminated
from ue_rl.system.errors import UeRlError


class MultiTcpConnection(TcpConnection):
    """N envs behind one engine (ENV_TYPE=MULTI), on the shared channel or on per-env sockets."""

    _types = (EnvType.MULTI,)


class SingleTcpConnection(TcpConnection):
    """One env (ENV_TYPE=SINGLE or RLBASE)."""

    _types = (EnvType.SINGLE, EnvType.RLBASE)

    def _open(self) -> EnvSpec:
        spec = super()._open()
        if spec.env_type is EnvType.RLBASE:
            self._rows_due = self.expect_answers(None, steps=False)
            self._collect()  # RLBASE: the engine speaks first, one state before anything was asked
        return spec

    def finish(self) -> None:
        """Tells an RLBASE engine that training is over (it resets and closes), then closes."""
        if self._wiring is not None and self._spec is not None and self._spec.env_type is EnvType.RLBASE:
            with contextlib.suppress(UeRlError):
                line = b"TRAINING_COMPLETE\n"
                if self._nuls:
                    line = nul_terminated(line)
                self._wiring.links[0].send(line, self._now() + self.timeout)
        self.close()


def go_on(link: Link, spec: EnvSpec, host: str, port: int, **options: Any) -> MultiTcpConnection | SingleTcpConnection:
    """A connected transport, of the kind that the handshake asks for, from where `shake_hands` ended."""
    kind = MultiTcpConnection if spec.env_type is EnvType.MULTI else SingleTcpConnection
    connection = kind(host, port, **options)
    connection._greeted = link, spec
    connection.connect()
    return connection
