"""ShmSteps: one request out of a segment into the bridge's inbox, and the ticks that answer it. It never waits.

While it is bound, the bridge's arrays are views of the segment: a vectorised bridge writes what the trainer sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import ActionBatch
from ue_rl.protocol.memory.header import ACTION_SEQ
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.system.errors import NonFiniteValue, UnexpectedMessage

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_SEQ = 2**64


class ShmSteps:
    """The lock-step side of a host.

    Args:
        bridge: hosted. memory: of its sizes, with our extension.

    Attributes:
        seen: the action_seq that was taken last.
        first_infos: env -> info of the episodes that were asked ahead and have begun with this answer.
    """

    def __init__(self, bridge: BaseBridge, memory: StepMemory) -> None:
        assert memory.ask is not None
        assert memory.seeds is not None
        assert memory.answered is not None
        assert memory.answered_seq is not None
        self._bridge, self._memory = bridge, memory
        self._ask: NDArray[np.uint8] = memory.ask
        self._seeds: NDArray[np.int64] = memory.seeds
        self._answered: NDArray[np.uint8] = memory.answered
        self._answered_seq = memory.answered_seq
        self._all_step = bytes([ActionBatch.STEP]) * len(memory.ask)
        self._first_nonfinite: Any = memory.words.first_nonfinite
        beside = [name for name in ("image", "masks", "present") if getattr(memory, name) is not None]
        self._arrays = ["obs", "rewards", "dones", "truncated", *beside]
        self._per_env = bridge.spec.agents_per_env
        self.first_infos: dict[int, dict[str, Any]] = {}
        self._first, self._ahead = memory.first, memory.ahead
        self._asked = self._all_step
        self._begun: list[tuple[int, NDArray[np.float32]]] = []  # envs in whose rows an episode's end stands
        self.seen = 0

    def bind(self) -> None:
        """inbox.actions and the outbox's arrays become views of the segment, with what stood in them; idempotent."""
        bridge, memory = self._bridge, self._memory
        with bridge.lock:
            if self._bound:
                return
            inbox, outbox = bridge.inbox, bridge.outbox
            memory.actions[...] = inbox.actions
            inbox.actions = memory.actions
            for name in self._arrays:
                getattr(memory, name)[...] = getattr(outbox, name)
                setattr(outbox, name, getattr(memory, name))

    def unbind(self) -> None:
        """The bridge gets copies of its own; idempotent."""
        with self._bridge.lock:
            if not self._bound:
                return
            inbox, outbox = self._bridge.inbox, self._bridge.outbox
            inbox.actions = inbox.actions.copy()
            for name in self._arrays:
                setattr(outbox, name, getattr(outbox, name).copy())

    @property
    def _bound(self) -> bool:
        """Not any more where the bridge was configured anew, also to the same sizes: that makes new arrays."""
        return self._bridge.inbox.actions is self._memory.actions

    def answer(self, delta: float) -> bool:
        """Takes what is asked and ticks once; True when all of it is answered. The bridge's lock is held.

        Raises:
            UnexpectedMessage, NonFiniteValue: what the trainer did wrong; nothing was applied. The game may raise.
        """
        if self._begun:
            self._go_on()
        self._asked = ask = self._ask.tobytes()  # read once: the trainer could change it meanwhile
        if ask != self._all_step:
            self._take_mixed(ask)
            return self.advance(delta)
        bad = self._first_nonfinite(self._bridge.inbox.actions)
        if bad >= 0:
            raise self._nonfinite(bad)
        done = self._bridge.lockstep.step_all(delta)
        self._answered_seq[0] = self.seen
        if not done:
            self._answered[:] = self._bridge.answered
        elif self._ahead is not None and 1 in self._bridge.outbox.dones.tobytes():
            self._begin_ahead(self._ahead)
        return done

    def _take_mixed(self, ask: bytes) -> None:
        inbox = self._bridge.inbox
        wanted = np.frombuffer(ask, np.uint8)
        resets = ask.count(ActionBatch.RESET)
        alone = resets + ask.count(ActionBatch.NOTHING) == len(ask)
        if alone and self._per_env == 1:  # between two steps, as a rule of few envs
            env = -1
            for _ in range(resets):
                env = ask.index(ActionBatch.RESET, env + 1)
                inbox.seeds[env] = max(int(self._seeds[env]), -1)
            inbox.command[:] = wanted
            return
        if wanted.max() > ActionBatch.RESET:
            row = int(wanted.argmax())
            raise UnexpectedMessage(
                "invalid command byte",
                fault="trainer",
                env_id=row // self._per_env,
                field="ask",
                expected="0, 1 or 2",
                got=int(wanted[row]),
            )
        rows = np.flatnonzero(wanted == ActionBatch.STEP)
        if self._first_nonfinite(inbox.actions) >= 0:  # rows that take no step may hold anything
            finite = np.isfinite(inbox.actions[rows]).all(axis=1)
            if not finite.all():
                raise self._nonfinite(int(rows[int(finite.argmin())]) * inbox.actions.shape[1])
        if len(rows) != np.count_nonzero(wanted):
            self._take_resets(wanted == ActionBatch.RESET)
        inbox.command[:] = wanted

    def _take_resets(self, reset: NDArray[np.bool_]) -> None:
        """An env is reset as a whole, with the seed in its first row."""
        envs = reset.reshape(-1, self._per_env)
        torn = envs.any(axis=1) & ~envs.all(axis=1)
        if torn.any():
            raise UnexpectedMessage(
                "some agents of an env are reset, others are not",
                fault="trainer",
                env_id=int(torn.argmax()),
                field="ask",
                expected="2 for all of them, or for none",
            )
        first = np.flatnonzero(envs[:, 0]) * self._per_env
        self._bridge.inbox.seeds[first] = np.maximum(self._seeds[first], -1)

    def advance(self, delta: float) -> bool:
        """A further tick; True when all that was asked is answered. The bridge's lock is held. The game may raise."""
        bridge = self._bridge
        bridge.update_rl(delta)
        self._answered_seq[0] = self.seen
        if bridge.lockstep.busy:
            self._answered[:] = bridge.answered
            return False
        bridge.answered[:] = 0
        if self._ahead is not None and 1 in bridge.outbox.dones.tobytes():
            self._begin_ahead(self._ahead)
        return True

    def _begin_ahead(self, ahead: NDArray[np.uint8]) -> None:
        """Begins the episodes that were asked ahead; what the step has brought stays where it is."""
        bridge, out, first, asked = self._bridge, self._bridge.outbox, self._first, self._asked
        over, wanted = out.dones.tobytes(), ahead.tobytes()
        envs, env = [], over.find(1)
        while env >= 0:
            if asked[env] == ActionBatch.STEP and wanted[env] == 1:
                envs.append(env)
            env = over.find(1, env + 1)
        if not envs:
            return
        assert first is not None
        given, following = bridge.inbox.ahead, []
        for env in envs:
            seed = int(self._seeds[env])
            following.append((None if seed < 0 else seed, given[env][1] if env in given else None))
        rows = [(out.obs[env].copy(), out.rewards[env], out.truncated[env]) for env in envs]
        infos = dict(out.infos)
        out.infos.clear()
        bridge.lockstep.begin_ahead(envs, following)
        for env, row in zip(envs, rows, strict=True):
            self._begun.append((env, out.obs[env].copy()))
            first[env] = out.obs[env]
            out.obs[env], out.rewards[env], out.truncated[env] = row
            out.dones[env] = 1
        if out.infos:
            self.first_infos.update(out.infos)
            out.infos.clear()
        out.infos.update(infos)

    def was_asked(self, row: int) -> bool:
        """Does the answer to the present request hold this row? With agents an env answers as a whole."""
        first = row - row % self._per_env
        return any(self._asked[first : first + self._per_env])

    def _go_on(self) -> None:
        """The trainer has seen the ends: the rows are those of the new episodes, as the game has left them."""
        out = self._bridge.outbox
        for env, obs in self._begun:
            out.obs[env] = obs
            out.rewards[env] = out.dones[env] = out.truncated[env] = 0
        self._begun.clear()

    def count(self, seq: int) -> None:
        """Notes that `seq` was seen; raises UnexpectedMessage: it is not the next one."""
        if seq != (self.seen + 1) % _SEQ:
            what = "the trainer asked more than once, or counted wrongly"
            raise UnexpectedMessage(what, fault="trainer", field="action_seq", expected=(self.seen + 1) % _SEQ, got=seq)
        self.seen = seq

    def forget(self) -> None:
        """Whatever is asked is void."""
        self.first_infos.clear()
        if self._bound:
            self._go_on()
        self._begun.clear()
        if self._ahead is not None:
            self._ahead[:] = 0
        self.seen = self._memory.load_u64(ACTION_SEQ)

    def _nonfinite(self, index: int) -> NonFiniteValue:
        return NonFiniteValue(
            "the trainer sent an action that is not a finite number",
            fault="trainer",
            env_id=index // (self._bridge.spec.act_size * self._per_env),
            field="ACT",
        )
