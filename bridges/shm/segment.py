"""make_segment: the memory that a host serves, laid out for its bridge's spec."""

from __future__ import annotations

import os
import secrets
from typing import Any, NamedTuple

from ue_rl import processes
from ue_rl.compiled import load
from ue_rl.errors import ConfigurationError
from ue_rl.shm.memory import StepMemory, plan
from ue_rl.shm.segment import Segment, reclaim_stale
from ue_rl.spec import EnvSpec
from ue_rl.wire.handshake import encode_handshake

_GPU = {"gpu_available": 1, "gpu_obs_mode": 2, "gpu_device_id": 2**32 - 1}
_HANDLE = "gpu_obs_handle"


class Made(NamedTuple):
    """A segment, its arrays, and what tells it apart: `token` in an offer, `proof` for who has mapped it."""

    segment: Segment
    memory: StepMemory
    token: bytes
    proof: bytes


def make_segment(spec: EnvSpec, *, name: str | None, ring_size: int, gpu: dict[str, Any] | None) -> Made:
    """A fresh segment; what dead engines have left is deleted first. The arguments are those of ShmHost.

    Raises:
        ConfigurationError: the name is taken, there is not enough memory, a field of `gpu` is invalid, or
            this installation has no compiled module.
    """
    load("sync")
    reclaim_stale()
    config, image = encode_handshake(spec), spec.image
    token, proof = secrets.token_bytes(16), secrets.token_bytes(16)
    fields: dict[str, Any] = {
        "server_pid": os.getpid(), "server_start": processes.start_time(),
        "server_namespace": processes.pid_namespace(), "proof": proof, "token": token,
        **_gpu_fields(gpu or {}), **({} if image is None else image.fields()),
    }  # fmt: skip
    header, size = plan(
        spec.num_envs, spec.obs_size, spec.act_size, image=None if image is None else image.size,
        ring_size=ring_size, config=config, **fields,
    )  # fmt: skip
    segment = Segment.create(size, name)
    try:
        return Made(segment, StepMemory.create(segment.memory, header, config), token, proof)
    except BaseException:
        segment.close()
        raise


def _gpu_fields(gpu: dict[str, Any]) -> dict[str, Any]:
    """`gpu`, checked: a value that the header's struct would cut short or refuse is named here."""
    for name, value in gpu.items():
        top = _GPU.get(name)
        if name == _HANDLE:
            fits, expected = isinstance(value, bytes) and len(value) <= 64, "64 bytes at most"
        elif top is None:
            fits, expected = False, ", ".join([*_GPU, _HANDLE])
        else:
            fits, expected = isinstance(value, int) and 0 <= value <= top, f"0 to {top}"
        if not fits:
            raise ConfigurationError(
                "invalid GPU field of the header", fault="caller", field=name, expected=expected, got=value
            )
    return gpu
