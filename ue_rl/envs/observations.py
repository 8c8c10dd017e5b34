"""Observations: the part of a transport's buffers that a user sees: numbers, an image, or both as a dict.

The transport writes into its buffers again at the next step, and SB3 keeps the last observation: copies are given out
unless the caller asked for the buffers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.spec import EnvSpec

# float32 [num_envs, obs_size]; uint8 [num_envs, *image shape]; or {"obs": .., "image": ..} of both
Observation = Any


class Observations:
    """Reads observations out of StepBuffers.

    Args:
        spec: of the session. copy: give out copies; otherwise the transport's own arrays, good until its next request.
    """

    def __init__(self, spec: EnvSpec, copy: bool = True) -> None:
        self._image = spec.image
        self._copy = copy

    def read(self, buffers: StepBuffers) -> Observation:
        """All envs' observations."""
        if self._image is None:
            return buffers.obs.copy() if self._copy else buffers.obs
        pixels = self._pixels(buffers)
        if self._copy:
            pixels = pixels.copy()
        if self._image.only:
            return pixels
        return {"obs": buffers.obs.copy() if self._copy else buffers.obs, "image": pixels}

    def row(self, observation: Observation, env: int) -> Observation:
        """A copy of one env's observation out of what `read` gave."""
        if isinstance(observation, dict):
            return {key: rows[env].copy() for key, rows in observation.items()}
        return observation[env].copy()

    def put(self, observation: Observation, buffers: StepBuffers, envs: Sequence[int]) -> None:
        """Takes these envs' rows over into what `read` gave before."""
        if not self._copy:
            return  # they are the same arrays
        if self._image is None:
            observation[envs] = buffers.obs[envs]
        elif self._image.only:
            observation[envs] = self._pixels(buffers)[envs]
        else:
            observation["obs"][envs] = buffers.obs[envs]
            observation["image"][envs] = self._pixels(buffers)[envs]

    @staticmethod
    def _pixels(buffers: StepBuffers) -> NDArray[np.uint8]:
        assert buffers.image is not None
        return buffers.image
