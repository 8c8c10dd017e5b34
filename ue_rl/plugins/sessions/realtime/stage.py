"""Stage: a bridge and the numbers of its rows. It resets, ticks, and says what is seen; of requests it knows none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.hosting import AppliesActions, KnowsResults
from ue_rl.plugins.sessions.realtime.interrupts import GAME_OVER, NamesInterrupts
from ue_rl.plugins.sessions.realtime.observation import ObservationColumns
from ue_rl.plugins.sessions.realtime.source import no_op_of
from ue_rl.protocol.buffers import ActionBatch
from ue_rl.system.errors import NonFiniteValue
from ue_rl.system.json_text import json_items, whole_text

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.session import Session

Rows = NDArray[np.intp]
_STEP = ActionBatch.STEP
_RESET = ActionBatch.RESET
_A_TICK = np.array([[1], [1], [-1]])  # of ticks, of those since the last observation, of those that are asked for


class Stage:
    """Driven by one thread at a time.

    Args:
        bridge: put into training mode. hold, max_ticks: see SessionPool.

    Attributes:
        ticks: int64 [rows], of the episode. late: int64 [rows], of the session.
        left: int64 [rows]: ticks that are still asked for. wanted: uint64 [rows]: interrupts that end them early.
        answered: in the last tick the action ended; False: it runs on, and nothing new is seen.
    """

    def __init__(self, bridge: BaseBridge, hold: bool, max_ticks: int) -> None:
        bridge.announce()
        bridge.start_training()
        rows = bridge.num_envs
        self.bridge = bridge
        self._hold = hold
        self._max_ticks = max_ticks
        self._lockstep = bridge.lockstep
        self._together = bridge.together
        self._counts = np.zeros((4, rows), np.int64)
        self.late, self.ticks, self._since, self.left = self._counts
        self._counted = self._counts[1:]  # by each tick
        self.wanted = np.zeros(rows, np.uint64)
        self.answered = True
        self._rewards = np.zeros(rows)
        self._acted: list[int] = []
        self._no_op = no_op_of(bridge)
        self._applies = bridge if isinstance(bridge, AppliesActions) else None
        self._results = bridge if isinstance(bridge, KnowsResults) else None
        named = bridge.interrupts if isinstance(bridge, NamesInterrupts) else None
        self._interrupts = named if named is not None and named.names else None
        bridge.inbox.actions[:] = self._no_op

    def reset(self, rows: Sequence[int], told: Sequence[tuple[int | None, Mapping[str, Any] | None]]) -> None:
        """Begins episodes; seed and options of each stand in `told`.

        Raises:
            what the game raises; MalformedMessage at fault "trainer": it cannot use the options.
        """
        inbox = self.bridge.inbox
        infos = self.bridge.outbox.infos
        for row in rows:
            infos.pop(row, None)  # of an episode whose end nobody saw, perhaps of another session: the game had failed
        for row, (seed, options) in zip(rows, told, strict=True):
            inbox.command[row], inbox.actions[row] = _RESET, self._no_op
            if seed is None:
                inbox.seeds[row] = -1
            else:
                inbox.seeds[row] = seed
            if options is not None:
                inbox.options[row] = dict(options)
        self._lockstep.update_rl(0.0)
        self.bridge.answered[:] = 0
        for numbers in (self.ticks, self._since, self._rewards):
            numbers[rows] = 0

    def acts_still(self, row: int) -> bool:
        """Does the action of an earlier tick still run?"""
        return not self._together and bool(self.bridge.inbox.command[row])

    def act(self, row: int, action: Any, more: bool) -> bool:
        """An action of the next tick; `more`: another one follows. False: this game takes one, and it is not this."""
        numbers = np.asarray(action, np.float32)
        if more:
            if self._applies is not None:
                self._applies.apply_action(row, numbers)
            return self._applies is not None
        self.bridge.inbox.actions[row] = numbers
        self._acted.append(row)
        return True

    def act_all(self, rows: Sequence[int], actions: NDArray[np.float32]) -> None:
        """An action of each for the next tick, float32 [K, act_size]."""
        self.bridge.inbox.actions[rows] = actions
        self._acted += rows

    def tick(self, rows: Rows) -> Any:
        """One tick of `rows`, ascending; bool [rows]: what was asked of them is done, or the episode is over.

        Raises:
            what the game raises.
        """
        bridge = self.bridge
        step = self._lockstep
        out = bridge.outbox
        at = _at(rows)
        if self._interrupts is not None:
            self._interrupts.bits[at] = 0
        if self._together:
            with step.lock:
                step.step_all(0.0, None if len(rows) == len(self.ticks) else rows)
        else:
            bridge.inbox.command[at] = _STEP
            step.update_rl(0.0)
            self.answered = bool(bridge.answered[0])
            bridge.answered[:] = 0
        self._counted[:, at] += _A_TICK
        stops: Any = self.left[at] == 0
        if self.answered:
            self._rewards[at] += out.rewards[at]
            np.logical_or(stops, out.dones[at], stops)
            if self._acted:
                if not self._hold:  # who says nothing before the next tick does nothing in it; else the same again
                    bridge.inbox.actions[self._acted] = self._no_op
                self._acted.clear()
        if self._max_ticks:
            stops |= self.ticks[at] >= self._max_ticks
        if self._interrupts is not None and np.count_nonzero(self._interrupts.bits[at]):
            stops |= (self._interrupts.bits[at] & self.wanted[at]) != 0
        return stops

    def observe(self, rows: Sequence[int], sessions: Sequence[Session | None], moved: bool) -> ObservationColumns:
        """What the sessions in these rows see, and what has come since they were asked last.

        Args:
            moved: after a tick, or when the episode is over; False: nothing has happened.

        Raises:
            NonFiniteValue: a number is not finite; `env_id` says whose.
        """
        out = self.bridge.outbox
        at = _at(rows)
        count = len(rows)
        seen = out.obs[at].copy()
        rewards = self._rewards[at].tolist()
        if not math.isfinite(np.vdot(seen, seen) + sum(rewards)):
            for name, numbers in (("observation", seen), ("reward", self._rewards[at][:, None])):
                for bad in np.flatnonzero(~np.isfinite(numbers).all(axis=1)).tolist():
                    raise NonFiniteValue(
                        f"the game's {name} is not finite",
                        fault="engine",
                        env_id=rows[bad],
                        field=name,
                        got=numbers[bad].tolist(),
                    )
        late, ticks, since, _ = self._counts[:, at].tolist()
        there: list[Any] = [sessions[row] for row in rows]
        infos: list[dict[str, Any]] = [{}] * count
        interrupts = results = [""] * count
        terminated = truncated = [False] * count
        if moved and self.answered:
            dones = out.dones[at] != 0
            cuts = out.truncated[at] != 0
            if self._max_ticks:
                cuts |= ~dones & (self.ticks[at] >= self._max_ticks)
            terminated = (dones & ~cuts).tolist()
            truncated = cuts.tolist()
        if moved and self._interrupts is not None:
            bits = self._interrupts.bits[at].tolist()
            asked = self.wanted[at].tolist()
            first = self._interrupts.first
            interrupts = [first(bit & some or bit) for bit, some in zip(bits, asked, strict=True)]
        if True in terminated or True in truncated:
            over = [ended or cut for ended, cut in zip(terminated, truncated, strict=True)]
            interrupts = [GAME_OVER if end else name for end, name in zip(over, interrupts, strict=True)]
            if self._results is not None:
                results = [
                    whole_text(self._results.result(row)) if end else "" for end, row in zip(over, rows, strict=True)
                ]
        for number, session in enumerate(there):
            if out.infos or session.tool_answers:
                infos[number] = {**json_items(out.infos.pop(rows[number], {}))}
                if session.tool_answers:
                    infos[number]["tools"], session.tool_answers = session.tool_answers, []
        masks: Any
        if out.masks.shape[1]:
            masks = out.masks[at].copy()
        else:
            masks = [None] * count
        self._rewards[at] = self._since[at] = 0
        return ObservationColumns(
            [session.id for session in there],
            ticks,
            seen,
            rewards,
            terminated,
            truncated,
            results,
            infos,
            since,
            [session.mailbox.dropped for session in there],
            [session.queue.dropped for session in there],
            late,
            interrupts,
            masks,
        )

    def tell_again(self, row: int, info: Mapping[str, Any]) -> None:
        """Nobody was given the observation that had this info: the next one of this row has it."""
        self.bridge.outbox.infos[row] = dict(info)

    def forget(self) -> None:
        """What was asked of the game is void: it has failed."""
        self.bridge.inbox.clear()
        self.bridge.answered[:] = 0
        self._acted.clear()


def _at(rows: Rows | Sequence[int]) -> Any:
    """`rows`, ascending, as an index; a slice, with which NumPy is quicker, where they stand side by side."""
    first = int(rows[0])
    last = int(rows[-1])
    if last - first + 1 == len(rows):
        return slice(first, last + 1)
    return rows
