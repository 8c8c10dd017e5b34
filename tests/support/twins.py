"""Both kernels of text over the same line: what each returns, and every array that it was given, afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import Codec
from ue_rl.system.errors import EngineDisconnected, ProtocolError


class Recorded:
    """A Codec whose decoders write down what the kernel gave: a count, or the whole failure, place and all."""

    def __init__(self, spec: EnvSpec, compiled: bool) -> None:
        self.codec = Codec(spec, compiled=compiled)
        self.found: list[Any] = []
        for name in ("_decode_states", "_decode_requests"):
            setattr(self.codec, name, self._writing_down(getattr(self.codec, name)))

    def _writing_down(self, kernel: Any) -> Any:
        def call(*args: Any) -> Any:
            given = kernel(*args)
            self.found += [given, *(arg.tobytes() for arg in args if isinstance(arg, np.ndarray))]
            return given

        return call

    def read(self, line: bytes, pending: list[int], only: int | None = None, number: int = 0) -> list[Any]:
        """The line as states and as requests: results, errors and every array."""
        spec = self.codec.spec
        self.found = found = []
        buffers, batch = StepBuffers.of(spec), ActionBatch.of(spec)
        buffers.pending[:] = np.resize(pending, spec.num_rows)
        buffers.obs[:] = buffers.masks[:] = 7
        for decode, target in ((self.codec.decode_states, buffers), (self.codec.decode_requests, batch)):
            try:
                found.append(decode(line, target, only, number=number))  # type: ignore[operator]
            except (ProtocolError, EngineDisconnected) as error:
                found.append((type(error), error.env_id, error.field, error.message, error.expected, str(error.got)))
        for owner in (buffers, batch):
            for name in owner.__slots__:
                value = getattr(owner, name)
                found.append(value.tobytes() if isinstance(value, np.ndarray) else value)
        return found

    def observe(self, line: bytes, masked: bool) -> list[Any]:
        """The line as observations alone, as a policy server reads them."""
        spec = self.codec.spec
        self.found = found = []
        obs, resets = np.full((spec.num_envs, spec.obs_size), 7, np.float32), np.zeros(spec.num_envs, np.uint8)
        masks = np.full((spec.num_envs, spec.mask_size), 7, np.uint8) if masked else None
        try:
            found.append(self.codec.decode_observations(line, obs, resets, masks=masks).tolist())
        except ProtocolError as error:
            found.append((type(error), error.env_id, error.field, error.message, error.expected, str(error.got)))
        return found


def of_both_kernels(spec: EnvSpec, line: bytes, pending: list[int], only: int | None = None) -> list[list[Any]]:
    """What each of the twins makes of a line; the first element is what the kernel made of it as states."""
    return [Recorded(spec, compiled).read(line, pending, only) for compiled in (True, False)]
