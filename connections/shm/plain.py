"""PlainSteps: the semantics of a VecEnv over a producer of the plain layout, which steps ALL envs in every frame.

Resetting some envs takes a frame in which the others step too. Nothing of that frame is lost: the others repeat their
last action, their rewards are added to the next step's, and an episode that ends in it is reported, with its own last
observation, by the next step. So a step now and then lasts two frames; with one env, or where all are reset, everything
is exact.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.memory.memory import StepMemory

_log = logging.getLogger("ue_rl.connections")


class PlainSteps:
    """Carries over what frames without a step of the trainer's have brought.

    Args:
        memory: the segment. buffers: what the transport gives out; arrays of their own, the image too.
    """

    def __init__(self, memory: StepMemory, buffers: StepBuffers) -> None:
        self._memory = memory
        self._buffers = buffers
        n = len(buffers.dones)
        self._resetting: NDArray[np.bool_] | None = None  # None: a step
        self._rewards = np.zeros(n, np.float32)
        self._over = np.zeros(n, np.bool_)
        image = None
        if memory.header.image_shape[1:]:
            image = memory.header.image_shape[1:]
        self._last = StepBuffers(n, buffers.obs.shape[1], image)
        if image is None:
            buffers.image = None
        else:
            buffers.image = np.zeros((n, *image), np.uint8)
        self._told = False

    def ask_step(self) -> None:
        """A step of all envs; those that are over already are reset meanwhile."""
        self._resetting = None
        self._memory.resets[:] = self._over

    def ask_resets(self, ids: NDArray[np.intp]) -> None:
        """A new episode in `ids`."""
        flags = np.zeros(len(self._over), np.bool_)
        flags[ids] = True
        self._resetting = flags
        if not flags.all() and not self._told:
            self._told = True
            _log.warning(
                "this engine steps all envs in every frame: where some are reset, the others repeat their last action"
            )
        self._rewards[flags] = 0
        self._over[flags] = False
        self._memory.resets[:] = flags | self._over

    def answered(self, out: StepBuffers) -> None:
        """A frame has come: writes what the trainer is to see into `out`."""
        memory = self._memory
        flags = self._resetting
        if flags is None:
            _copy_seen(memory, out, slice(None))
            out.rewards[:] = memory.rewards
            # a producer may mean Gymnasium's flags: over is what is terminated or truncated
            np.bitwise_or(memory.dones, memory.truncated, out=out.dones)
            out.truncated[:] = memory.truncated
            np.add(out.rewards, self._rewards, out=out.rewards, where=~self._over)
            self._put_last(out)
            self._rewards[:] = 0
            self._over[:] = False
            return
        others = ~flags & ~self._over
        self._rewards[others] += memory.rewards[others]
        ended = others & ((memory.dones | memory.truncated) != 0)
        if ended.any():
            _copy_seen(memory, self._last, ended)
            self._last.truncated[ended] = memory.truncated[ended]
            self._over |= ended
        _copy_seen(memory, out, flags)
        out.rewards[:] = 0
        out.dones[:] = 0
        out.truncated[:] = 0

    def _put_last(self, out: StepBuffers) -> None:
        over = self._over
        if over.any():
            _copy_seen(self._last, out, over)
            out.truncated[over] = self._last.truncated[over]
            out.rewards[over] = self._rewards[over]
            out.dones[over] = 1


def _copy_seen(source: StepMemory | StepBuffers, out: StepBuffers, rows: Any) -> None:
    out.obs[rows] = source.obs[rows]
    if out.image is not None and source.image is not None:
        out.image[rows] = source.image[rows]
