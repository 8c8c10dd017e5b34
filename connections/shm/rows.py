"""What an answer in shared memory has beside numbers and flags: action masks, and the agents that are there.

Both are copied out of the segment, masks as flags that are 0 or 1. Without agents a row is an env; with them it is one
agent of an env (EnvSpec.groups), and what the engine says about an agent that was not asked is dropped here.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.refusals import agent_text
from ue_rl.system.errors import MalformedMessage

Taken = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # what Bell copies an answer into
_ACTED = bytes([0, 1, *[0] * 254])  # of `pending`: 1 where an agent acted


class MaskReader:
    """Takes the masks of an answer.

    Args:
        memory: a segment with masks. spec: of its session.
        asked: uint8 [num_rows]; not 0: this row was asked, so its mask is checked.
    """

    def __init__(self, memory: StepMemory, spec: EnvSpec, asked: NDArray[np.uint8]) -> None:
        self._masks, self._copy_masks, self._spec, self._asked = memory.masks, memory.words.copy_masks, spec, asked
        specs = [group.spec for group in spec.groups for _ in range(group.count)] or [spec]
        self._counts = [one.action_spec.counts for one in specs]
        ends: NDArray[np.int32] = np.zeros((len(specs), max(map(len, self._counts))), np.int32)
        for row, counts in zip(ends, self._counts, strict=True):
            row[: len(counts)] = np.cumsum(counts)
            row[len(counts) :] = sum(counts)
        self._ends = ends

    def take(self, out: StepBuffers) -> None:
        """Into `out.masks`; `out.dones` and `out.present` are this answer's.

        Raises:
            MalformedMessage: a number of a row that acts next is left without a choice.
        """
        bad = self._copy_masks(out.masks, self._masks, self._ends, self._asked, out.dones, out.present)
        if bad >= 0:
            row, number = divmod(bad, self._ends.shape[1])
            count = self._counts[row % self._spec.agents_per_env][number]
            raise MalformedMessage(
                f"an action mask leaves a number without a choice{agent_text(self._spec, row)}",
                fault="engine",
                env_id=row // self._spec.agents_per_env,
                field="MASK",
                got=f"none of the {count} of number {number}",
                expected="a choice at least for each number, unless DONE=1",
            )


class AgentReader:
    """Takes rewards, flags and who is there out of an answer of an engine with agents.

    Args:
        present: uint8 [num_rows], of the segment: who is there. given: rewards, dones and truncated of the answer, as
            they were copied out of the segment and checked. spec: of its session.
        out: where they go; `out.pending` says who was asked (1) and who may have come (2).

    Attributes:
        all_act: can every agent of every env act now?
    """

    def __init__(
        self, present: NDArray[np.uint8], given: Sequence[NDArray[Any]], spec: EnvSpec, out: StepBuffers
    ) -> None:
        self._spec, self._out, self._present = spec, out, present
        self._everybody, self._nobody = b"\1" * spec.num_rows, bytes(spec.num_rows)
        own: list[NDArray[Any]] = [out.rewards, out.dones, out.truncated]
        self._own = list(zip(own, given, strict=True))
        out.present[:] = 0  # nobody, until an env is reset
        self.all_act = False

    def take(self) -> None:
        """A checked answer is there.

        Raises:
            MalformedMessage: an agent that was asked is not there, or nobody is after a reset.
        """
        out = self._out
        pending, present = out.pending.tobytes(), self._present.tobytes()
        if present == pending.translate(_ACTED) and b"\0" not in pending:  # who acted is there, and nobody else
            if present == self._everybody:
                for own, given in self._own:
                    own[:] = given
            else:
                who = np.frombuffer(present, np.bool_)
                for own, given in self._own:
                    np.copyto(own, given, where=who)
                out.present[:] = who
            self.all_act = present == self._everybody and out.dones.tobytes() == self._nobody
            return
        there, asked, acted = np.frombuffer(present, np.uint8) != 0, out.pending != 0, out.pending == 1
        missing = acted & ~there
        if missing.any():
            row = int(missing.argmax())
            raise MalformedMessage(
                f"an agent that acted is missing from its env's answer{agent_text(self._spec, row)}",
                fault="engine",
                env_id=row // self._spec.agents_per_env,
                field="AGENT",
                expected="present=1",
                got="present=0",
                cure="DONE=1 ends an agent's part in the episode: it is there once more, with its last state",
            )
        empty = asked & ~there
        if empty.any():
            envs = empty.reshape(self._spec.num_envs, -1).all(axis=1)
            if envs.any():
                raise MalformedMessage(
                    "no agent is there at the start of an episode",
                    fault="engine",
                    env_id=int(envs.argmax()),
                    field="AGENT",
                    expected="one agent or more",
                    got="none",
                )
        np.copyto(out.present, there, where=asked)
        came = asked & there
        for own, given in self._own:  # of an agent that has just come they mean nothing
            np.multiply(given, acted, out=own, where=came)
        self.all_act = out.present.tobytes() == self._everybody and out.dones.tobytes() == self._nobody


def readers(
    memory: StepMemory, spec: EnvSpec, buffers: StepBuffers
) -> tuple[Taken, AgentReader | None, MaskReader | None]:
    """Where the numbers and flags of an answer are copied to, and who reads the rest; None where there is no such rest.

    Args:
        buffers: what the connection gives out. With agents only observations go there at once: what is said of agents
            that were not asked is dropped.
    """
    masks = memory.masks
    if memory.present is None:
        reader = None if masks is None or memory.ask is None else MaskReader(memory, spec, memory.ask)
        return (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated), None, reader
    given = np.zeros_like(buffers.rewards), np.zeros_like(buffers.dones), np.zeros_like(buffers.truncated)
    reader = None if masks is None else MaskReader(memory, spec, buffers.pending)
    return (buffers.obs, *given), AgentReader(memory.present, given, spec, buffers), reader


def take_first(memory: StepMemory, env_ids: Sequence[int], asked: Container[int], out: StepBuffers) -> int:
    """Copies the first observations of episodes that were asked ahead into `out`.

    Args:
        asked: the envs whose next episode is asked ahead already; the mark of the others is taken away.

    Returns:
        the place in `out.obs` of the first number that is not finite; -1: all are.
    """
    assert memory.first is not None
    assert memory.ahead is not None
    for env in env_ids:
        if env not in asked:
            memory.ahead[env] = 0
        bad: int = memory.words.copy_finite(out.obs[env], memory.first[env])
        if bad >= 0:
            return bad + env * len(out.obs[env])
    return -1
