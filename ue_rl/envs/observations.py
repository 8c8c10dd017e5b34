"""Observations: the part of a transport's buffers that a user sees: numbers, an image, or both as a dict.

The transport writes into its buffers again at the next step, and SB3 keeps the last observation: copies are given out
unless the caller asked for the buffers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        if self._image is None:  # in every step: without a call and a look at the type
            return buffers.obs.copy() if self._copy else buffers.obs
        shown = self._shown(buffers)
        if not self._copy:
            return shown
        return {key: rows.copy() for key, rows in shown.items()} if isinstance(shown, dict) else shown.copy()

    def row(self, observation: Observation, env: int) -> Observation:
        """A copy of one env's observation out of what `read` gave."""
        if isinstance(observation, dict):
            return {key: rows[env].copy() for key, rows in observation.items()}
        return observation[env].copy()

    def put(self, observation: Observation, buffers: StepBuffers, envs: Sequence[int]) -> None:
        """Takes these envs' rows over into what `read` gave before."""
        if not self._copy:
            return  # they are the same arrays
        shown = self._shown(buffers)
        if isinstance(shown, dict):
            for key, rows in shown.items():
                observation[key][envs] = rows[envs]
        else:
            observation[envs] = shown[envs]

    def _shown(self, buffers: StepBuffers) -> Observation:
        """The transport's own arrays."""
        if self._image is None:
            return buffers.obs
        return buffers.image if self._image.only else {"obs": buffers.obs, "image": buffers.image}
