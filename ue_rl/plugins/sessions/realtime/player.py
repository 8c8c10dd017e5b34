"""ReplayPlayer: plays a replay again and compares what is seen; ReplayBridge: the same as an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.game import EnvIds
from ue_rl.bridges.vector import VectorBridge
from ue_rl.plugins.sessions.realtime.lifecycle import LifeCycle, SessionEvent
from ue_rl.plugins.sessions.realtime.observation import SessionObservation
from ue_rl.plugins.sessions.realtime.pool import SessionPool
from ue_rl.plugins.sessions.realtime.replay import Replay, ReplayTurn, checksum
from ue_rl.system.closing import Closing
from ue_rl.system.errors import ReplayInvalid, SessionError, UeRlError


class ReplayPlayer(Closing):
    """A replay in a session of its own, as fast as it can.

    Args:
        replay: to be played. kwargs: for the game, beside those of the replay.

    Attributes:
        life: LOADING_REPLAY, REPLAYING, REPLAY_ENDED. session: that plays.

    Raises:
        ReplayInvalid: the game is another one now. ConfigurationError: it cannot be loaded.
    """

    def __init__(self, replay: Replay, kwargs: Mapping[str, Any] | None = None) -> None:
        header = replay.header
        self.life = LifeCycle()
        self.life.on(SessionEvent.LOAD_REPLAY)
        self.replay = replay
        own_kwargs = kwargs or {}
        self._pool = SessionPool(
            header["game"],
            max_sessions=1,
            workers=1,
            hold=header["hold"],
            max_ticks=header["max_ticks"],
            kwargs={**header["kwargs"], **own_kwargs},
        )
        if self._pool.handshake != header["handshake"]:
            self._pool.close()
            raise ReplayInvalid(
                "the game is not the one that was recorded",
                field="handshake",
                expected=header["handshake"],
                got=self._pool.handshake,
            )
        self.spec = self._pool.spec
        self.session = self._pool.create()

    def play(self) -> Iterator[SessionObservation]:
        """What is seen after each reset and tick.

        Raises:
            ReplayInvalid: it is not what was recorded, to the bit, or the game does not take what the file says.
        """
        if not self.life.may(SessionEvent.LOADED):
            self.life.on(SessionEvent.LOAD_REPLAY)
            self.life.on(SessionEvent.LOADED)
        for turn in self.replay:
            if turn.begins:
                seen = self._advanced(turn, 0, reset=True, seed=turn.seed, options=turn.options)
            else:
                seen = self._advanced(turn, min(turn.ticks, 1), turn.actions)
            for _ in range(turn.ticks - 1):
                yield seen
                seen = self._advanced(turn, 1)
            if turn.begins or turn.ticks:
                yield self._compared(seen, turn)
        self.life.on(SessionEvent.OVER)

    def _advanced(self, turn: ReplayTurn, *args: Any, **asked: Any) -> SessionObservation:
        try:
            return self.session.advance(*args, **asked)
        except SessionError:  # the game has failed
            raise
        except UeRlError as error:  # an action, a tool, a seed or options that this game does not take
            raise ReplayInvalid(
                f"the game does not take what was recorded in episode {turn.episode + 1}: {error.message}",
                **error.facts(fault=None, cure="was the game changed, or the file written by somebody else?"),
            ) from error

    def _compared(self, seen: SessionObservation, turn: ReplayTurn) -> SessionObservation:
        if turn.sum is not None and turn.sum != checksum(seen):
            raise ReplayInvalid(
                "the game does not play as it was recorded",
                field="observation",
                got=f"another observation at tick {seen.tick} of episode {turn.episode + 1}",
                cure="was the game changed, or does it draw numbers that the seed does not decide?",
            )
        return seen

    def close(self) -> None:
        """Ends the session; idempotent."""
        self.life.may(SessionEvent.DESTROY)
        self._pool.close()
        self.life.may(SessionEvent.CLEANED)


class ReplayBridge(VectorBridge):
    """An engine of one env that answers what was recorded, whatever it is told to do; then it begins again."""

    def __init__(self, player: ReplayPlayer) -> None:
        super().__init__(replace(player.spec, num_envs=1))
        self._player = player
        self._seen: Iterator[SessionObservation] = iter(())

    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """See VectorBridge: the next episode."""
        seen = self._next()
        while seen.tick:
            seen = self._next()
        self._write(seen)

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorBridge: the next tick. An episode that was left before its end is truncated there."""
        seen = self._next()
        if seen.tick:
            self._write(seen)
            return
        self._seen = chain([seen], self._seen)
        self.outbox.truncated[0] = 1

    def _next(self) -> SessionObservation:
        for seen in self._seen:
            return seen
        self._seen = self._player.play()
        return next(self._seen)

    def _write(self, seen: SessionObservation) -> None:
        out = self.outbox
        out.obs[0], out.rewards[0], out.truncated[0], out.dones[0] = (
            seen.observation,
            seen.reward,
            seen.truncated,
            seen.done,
        )
        if seen.mask is not None:
            out.masks[0] = seen.mask
