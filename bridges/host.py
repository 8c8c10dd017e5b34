"""Host: what every host of a bridge does: one trainer's session after the other, and the ticks of its bridge."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ue_rl.system.errors import ConfigurationError, ProtocolError, UeRlError

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge


class _Switched(Exception):
    """The game left training mode, or was given other sizes: what was asked before is void."""


class Host(abc.ABC):
    """Serves one bridge over some carrier: BridgeServer, ShmHost.

    Args:
        log: where its sessions are told of. guest: a server hosts the bridge already.

    Attributes:
        bridge: hosted. sessions: trainers so far.
        tick_rate: ticks a second, which it gives a bridge in inference mode too. None: it ticks for requests alone.

    Raises:
        ConfigurationError: the rate is not positive, or the bridge is hosted already.
    """

    def __init__(self, bridge: BaseBridge, tick_rate: float | None, log: logging.Logger, guest: bool = False) -> None:
        if tick_rate is not None and not tick_rate > 0:
            raise ConfigurationError("a tick rate must be positive", field="tick_rate", got=tick_rate)
        self.bridge = bridge
        self.tick_rate = tick_rate
        self._log = log
        self._guest = guest
        self._require_free()
        self._lockstep = bridge.lockstep
        self._switches = bridge.lockstep.switches
        self._last_tick = time.perf_counter()
        self.sessions = 0

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """What a trainer connects to."""

    def _require_free(self) -> None:
        if not self._guest and self.bridge.host is not None:
            raise ConfigurationError("this bridge is hosted already", cure="close its server first")

    def _begin_training(self) -> None:
        """A trainer's session begins."""
        self.bridge.start_training()
        self._switches = self._lockstep.switches
        self.sessions += 1

    @abc.abstractmethod
    def _end_session(self, why: str, level: int, error: Exception | None = None, told: str | None = None) -> None:
        """Ends it and lets the next trainer in.

        Args:
            why, level: for the log. error: a bug of the game, with its traceback. told: for the trainer; None: `why`.
        """

    def _note_end(self, why: str, level: int, error: Exception | None) -> None:
        self._log.log(level, "session %d ended: %s", self.sessions, why, exc_info=error)

    def _forget_requests(self) -> None:
        """What is asked is void, unless a switch has forgotten it already."""
        with self.bridge.lock:
            if self._lockstep.switches == self._switches:
                self._lockstep.forget_requests()

    def _require_training(self) -> None:
        """Raises where the game was switched since the session began: then nobody waits for what was asked before."""
        if self._lockstep.switches != self._switches:
            raise _Switched

    def _turn(self, tick: Callable[[float], Any], answer: Callable[[], None], delta: float | None = None) -> bool:
        """A tick and, unless it gave False (nothing is to be sent yet), the answer; both under the bridge's lock.

        Args:
            delta: seconds since the last tick; None: as the clock says.

        Returns:
            whether `answer` was called.
        """
        session = self._lockstep
        before = self._switches
        if delta is None:
            now = time.perf_counter()
            delta = now - self._last_tick
            self._last_tick = now
        with session.lock:  # `_require_training` is written out here: a step over shared memory takes 10 us
            if session.switches != before:  # the game ticks the bridge itself from now on
                raise _Switched
            done = tick(delta) is not False
            if session.switches != before:
                raise _Switched
            if done:
                answer()
        return done

    def _infer(self) -> None:
        """A tick in inference mode."""
        now = time.perf_counter()
        delta = now - self._last_tick
        self._last_tick = now
        try:
            self.bridge.update_rl(delta)
        except Exception as error:  # noqa: BLE001 - logged: no session is there that it could end
            self._log.error("inference: %s", _who_failed(error), exc_info=not isinstance(error, UeRlError))

    def _fail(self, error: Exception) -> None:
        """Ends the session because of what came out of a turn, and nothing else."""
        if isinstance(error, _Switched):
            self._end_session("the game left training mode, or was given other sizes", logging.WARNING)
        else:
            if isinstance(error, UeRlError):
                bug = None
            else:
                bug = error
            self._end_session(_who_failed(error), logging.ERROR, bug, _who_failed(error, plain=True))


def _who_failed(error: Exception, plain: bool = False) -> str:
    """Why a session ends: the trainer, or the game that the bridge belongs to.

    Args:
        plain: for the trainer, else for the log: without the cure, which is for the engine's author.
    """
    if not isinstance(error, UeRlError):
        return f"the game's code failed: {error!r}"
    trainers = isinstance(error, ProtocolError) and error.fault == "trainer"
    if plain:
        said = error.plain()
    else:
        said = str(error)
    return f"{'the trainer broke the protocol' if trainers else 'the game cannot go on'}: {said}"
