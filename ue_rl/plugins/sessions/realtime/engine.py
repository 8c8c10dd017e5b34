"""SessionsBridge: sessions as the envs of an engine, for trainers over text and shared memory; and its server.

Without a tick rate it is a lock-step engine, whose step is `ticks` ticks. With one it says FEATURES=REALTIME: a step
leaves an action for the next tick and takes the newest observation that nobody has seen.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.game import EnvIds
from ue_rl.bridges.runners import ThreadHandle, over_tcp
from ue_rl.bridges.shm.upgrade import ShmUpgrader
from ue_rl.bridges.tcp.server import BridgeServer
from ue_rl.bridges.vector import VectorBridge
from ue_rl.plugins.sessions.realtime.lifecycle import Phase
from ue_rl.plugins.sessions.realtime.observation import ObservationColumns, SessionObservation
from ue_rl.plugins.sessions.realtime.pool import SessionPool
from ue_rl.plugins.sessions.realtime.session import Session
from ue_rl.system.compiled import load
from ue_rl.system.errors import ConfigurationError, GameFailed

if TYPE_CHECKING:
    from ue_rl.protocol.access.server_access import ServerAccess

_log = logging.getLogger("ue_rl.plugins.sessions.realtime")
_NEWS_WITHIN = 30.0  # seconds that a step in real time waits for a tick


class SessionsBridge(VectorBridge):
    """Envs that are sessions of `pool`.

    Args:
        pool: with room for them. num_envs: how many. ticks: of a step; of no meaning in real time.

    Raises:
        ConfigurationError: the pool has no room for so many.
    """

    def __init__(self, pool: SessionPool, num_envs: int, ticks: int = 1) -> None:
        if num_envs > pool.max_sessions:
            raise ConfigurationError(
                "there are fewer sessions than envs",
                field="num_envs",
                expected=f"at most {pool.max_sessions}",
                got=num_envs,
                cure="serve more: --max-sessions",
            )
        self.pool = pool
        self._ticks = pool.checks.ticks(max(ticks, 1))
        self._sessions: list[Session | None] = [None] * num_envs
        self.real_time = pool.tick_rate is not None
        if self.real_time:
            features = {"REALTIME", "INFO"}
        else:
            features = set()
        super().__init__(replace(pool.spec, num_envs=num_envs, features=pool.spec.features | features))
        self.observation_names = pool.example.observation_names
        self.action_names = pool.example.action_names

    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """See VectorBridge. An env whose session has ended gets another one."""
        for env in env_ids.tolist():
            session = self._sessions[env]
            if session is None or not session.life.live:
                self._sessions[env] = session = self.pool.create()
                session.kept = True
        asked = self._of(env_ids)
        self._write(env_ids, self.pool.advance_all(asked, 0, resets=range(len(asked)), seeds=seeds, options=options))

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorBridge. An env whose episode is over stays as it is until it is reset."""
        over = [session.phase is Phase.GAME_OVER and not session.mailbox.unread for session in self._of(env_ids)]
        if any(over):
            self.outbox.rewards[env_ids[over]] = 0
            env_ids = env_ids[~np.array(over)]
        sessions = self._of(env_ids)
        if self.real_time:
            for session, action in zip(sessions, actions[env_ids], strict=True):
                session.act(action)
            self._write(env_ids, [self._newest(session) for session in sessions])
        elif sessions:
            self._write(env_ids, self.pool.advance_all(sessions, self._ticks, actions[env_ids]))

    def _of(self, env_ids: EnvIds) -> list[Session]:
        found = [self._sessions[env] for env in env_ids.tolist()]
        return [session for session in found if session is not None]

    def _newest(self, session: Session) -> SessionObservation:
        seen = session.observe(_NEWS_WITHIN)
        if seen is None:
            raise GameFailed(f"no tick came within {_NEWS_WITHIN:g} s", field="session_id", got=session.id)
        return seen

    def _write(self, env_ids: EnvIds, observations: Sequence[SessionObservation]) -> None:
        if not observations:
            return
        out = self.outbox
        every = ObservationColumns.of(observations)
        seen = every.columns
        out.obs[env_ids], out.rewards[env_ids], out.truncated[env_ids] = seen.observation, seen.reward, seen.truncated
        out.dones[env_ids] = np.logical_or(seen.terminated, seen.truncated)
        if out.masks.shape[1]:
            out.masks[env_ids] = seen.mask
        for number, env in enumerate(env_ids.tolist()):
            if self.real_time:
                self.write_info(env, {**seen.info[number], **every[number].timing})
            elif seen.info[number]:
                self.write_info(env, seen.info[number])

    def close(self) -> None:
        """Ends its sessions."""
        for session in filter(None, self._sessions):
            session.destroy()


class EngineServer(ThreadHandle[BridgeServer]):
    """Serves a SessionsBridge; its sessions end with it."""

    def close(self) -> None:
        """Stops serving, and ends the sessions; idempotent."""
        super().close()
        if isinstance(self.bridge, SessionsBridge):
            self.bridge.close()


def serve(
    pool: SessionPool, host: str, port: int, *, num_envs: int = 1, ticks: int = 1, access: ServerAccess | None = None
) -> EngineServer:
    """Serves sessions as an engine, in a thread of its own; shared memory is offered where it can be.

    Args:
        num_envs, ticks: see SessionsBridge. access: asks for a token, and speaks TLS; None: neither.

    Raises:
        ConfigurationError: see SessionsBridge. OSError: the address cannot be listened on.
    """
    try:
        load("sync")
        upgrader = ShmUpgrader()
    except ConfigurationError as error:
        upgrader = None
        _log.info("text only: %s", error)
    options = {"host": host, "port": port, "upgrader": upgrader, "access": access}
    return EngineServer(over_tcp, SessionsBridge(pool, num_envs, ticks), options)
