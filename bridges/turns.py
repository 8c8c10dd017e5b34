"""Turns: a host's ticks of its bridge, for one trainer's session after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ue_rl.errors import ConfigurationError, ProtocolError, UeRlError

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

LEFT = "the game left training mode, or was given other sizes"  # why a session ends that is void


class Turns:
    """One host's.

    Args:
        bridge: hosted. tick_rate: the host's. guest: a server hosts the bridge already.

    Attributes:
        last: when the last tick was, time.perf_counter() seconds.

    Raises:
        ConfigurationError: the rate is not positive, or the bridge is hosted already.
    """

    def __init__(self, bridge: BaseBridge, tick_rate: float | None, guest: bool = False) -> None:
        if tick_rate is not None and not tick_rate > 0:
            raise ConfigurationError("a tick rate must be positive", fault="caller", field="tick_rate", got=tick_rate)
        self._bridge, self._guest = bridge, guest
        self.require_free()
        self.begin()
        self.last = time.perf_counter()

    def require_free(self) -> None:
        """Raises ConfigurationError where somebody else hosts the bridge."""
        if not self._guest and self._bridge.host is not None:
            raise ConfigurationError("this bridge is hosted already", fault="caller", cure="close its server first")

    def begin(self) -> None:
        """A trainer's session begins."""
        self._switches = self._bridge.lockstep.switches

    @property
    def void(self) -> bool:
        """Was the game switched since? Then nobody waits for what was asked before."""
        return self._bridge.lockstep.switches != self._switches

    def delta(self) -> float:
        """Seconds since the last tick; the next one is now."""
        now = time.perf_counter()
        delta, self.last = now - self.last, now
        return delta

    def turn(self, tick: Callable[[float], Any], delta: float, answer: Callable[[], None]) -> bool | None:
        """A tick and, unless it gave False (nothing is to be sent yet), the answer; both under the bridge's lock.

        Returns:
            whether `answer` was called; None: the session is void, and must be ended.
        """
        session, before = self._bridge.lockstep, self._switches
        with session.lock:  # here `void` is written out: a step over shared memory takes 10 us
            if session.switches != before:  # the game ticks the bridge itself from now on
                return None
            done = tick(delta) is not False
            if session.switches != before:
                return None
            if done:
                answer()
        return done

    def forget(self) -> None:
        """What is asked is void, unless a switch has forgotten it already."""
        with self._bridge.lock:
            if not self.void:
                self._bridge.lockstep.forget_requests()


def who_failed(error: Exception, plain: bool = False) -> str:
    """Why a session ends: the trainer, or the game that the bridge belongs to.

    Args:
        plain: for the trainer, else for the log: without the cure, which is for the engine's author.
    """
    if not isinstance(error, UeRlError):
        return f"the game's code failed: {error!r}"
    trainers = isinstance(error, ProtocolError) and error.fault == "trainer"
    said = error.plain() if plain else str(error)
    return f"{'the trainer broke the protocol' if trainers else 'the game cannot go on'}: {said}"
