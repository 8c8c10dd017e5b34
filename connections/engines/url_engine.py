"""UrlEngine: an engine that somebody else has started: dialled at its address, and again when it was lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.lifecycle import Life, LifeState
from ue_rl.system.attempts import LEAST, next_attempt
from ue_rl.system.errors import ConfigurationError, ProtocolError, RestartsSpent, TransportError, UeRlError

_log = logging.getLogger("ue_rl.connections.engines")

# Seconds for one try to be answered. The deployed plugin's old listener takes a connection and says nothing.
_A_TRY = 10.0
_A_TRY_OF_THE_PLUGIN = 1.5
_PLUGIN = (
    "the deployed Unreal plugin serves one trainer each time the game is played: stop the game and press Play again"
)


class UrlEngine:
    """An EngineSource, see ue_rl.connections.engines.source.

    Args:
        url: for messages. dial: connects; its arguments are seconds to wait for a listener, and seconds for the
            connection and the handshake of that try, None for both: as its owner set them.
        reconnect: seconds to dial again after a loss; 0: never, a loss is final.
        keep: with `reconnect`, a context that is open from before the first connection until `close`.

    Raises:
        ConfigurationError: reconnect is negative or not finite.
    """

    def __init__(
        self,
        url: str,
        dial: Callable[[float | None, float | None], BaseTransport],
        reconnect: float = 0.0,
        keep: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        if not 0 <= reconnect < float("inf"):
            raise ConfigurationError(
                "a time to dial again is not negative, and finite", field="reconnect", expected="seconds", got=reconnect
            )
        self.name = url
        self._dial = dial
        self._reconnect = reconnect
        self._version: int | None = None  # of its protocol, once it was connected
        self._keep = keep
        self._kept = ExitStack()
        self._closed = False

    def open(self, life: Life) -> BaseTransport:
        """See EngineSource.open; of a further life it dials until `reconnect` seconds have passed.

        Raises:
            RestartsSpent: it has not come back by then.
        """
        life.to(LifeState.CONNECTING, self.name)
        try:
            if self._version is None:
                transport = self._dial_first()
            else:
                transport = self._dial_again(self._version == 0)
        except UeRlError as error:
            late = isinstance(error, (TimeoutError, RestartsSpent))
            if late:
                state = LifeState.TIMEOUT
            else:
                state = LifeState.CONNECTION_LOST
            life.to(state, error.plain())
            raise
        try:
            self._version = transport.connect().version
            life.to(LifeState.STREAMING, self.name)
        except BaseException:
            transport.close()
            raise
        return transport

    def _dial_first(self) -> BaseTransport:
        with ExitStack() as kept:
            if self._reconnect:
                kept.enter_context(self._keep())
            transport = self._dial(None, None)
            self._kept = kept.pop_all()
        if self._closed:  # meanwhile, by another thread
            self._kept.close()
        return transport

    def _dial_again(self, plugin: bool) -> BaseTransport:
        deadline = time.monotonic() + self._reconnect
        cure = "start the engine again, or allow more time with reconnect= (--reconnect)"
        if plugin:
            cure = _PLUGIN
        because = ""
        if plugin:
            because = f": {_PLUGIN}"
        _log.warning("%s is dialled for %g s%s", self.name, self._reconnect, because)
        longest = _A_TRY
        if plugin:
            longest = _A_TRY_OF_THE_PLUGIN
        left = max(self._reconnect, LEAST)
        while True:
            try:
                return self._dial(left, min(left, longest))
            except (TransportError, ProtocolError) as error:
                left = next_attempt(deadline)
                if not left:
                    raise RestartsSpent(
                        f"{self.name} did not come back within {self._reconnect:g} s",
                        fault="engine",
                        got=error.message,
                        cure=cure,
                    ) from error

    def lost(self, error: UeRlError) -> UeRlError:
        """See EngineSource.lost; there is no process of ours."""
        return error

    def close(self) -> None:
        """See EngineSource.close; the engine goes on."""
        self._closed = True
        self._kept.close()
