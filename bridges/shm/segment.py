"""The memory that a host serves, laid out for its bridge's spec, and the trainer that holds its one place."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from ue_rl.protocol.memory.header import CLIENT_PID, CLIENT_SINCE, CLIENT_STATE, LEAVING
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.segment import Segment, reclaim_stale
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.system import processes
from ue_rl.system.compiled import load
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.spin import ENGINE_SLICE_MS

_GPU = {"gpu_available": 1, "gpu_obs_mode": 2, "gpu_device_id": 2**32 - 1}
_HANDLE = "gpu_obs_handle"


def make_segment(
    spec: EnvSpec, *, name: str | None, ring_size: int, gpu: dict[str, Any] | None
) -> tuple[Segment, StepMemory]:
    """A fresh segment and its arrays; what dead engines have left is deleted first. The arguments are those of ShmHost.

    Its header has a fresh `token`, which names it in an offer, and a fresh `proof`, for whoever has mapped it.

    Raises:
        ConfigurationError: the name is taken, there is not enough memory, a field of `gpu` is invalid, or
            this installation has no compiled module.
    """
    load("sync")
    reclaim_stale()
    config = encode_handshake(spec)
    image = spec.image
    fields: dict[str, Any] = {
        "server_pid": os.getpid(), "server_start": processes.start_time(),
        "server_namespace": processes.pid_namespace(),
        "proof": secrets.token_bytes(16), "token": secrets.token_bytes(16),
        **_gpu_fields(gpu or {}), **({} if image is None else image.fields()),
    }  # fmt: skip
    image_size = None
    if image is not None:
        image_size = image.size
    header, size = plan(
        spec.num_rows,
        spec.obs_size,
        spec.act_size,
        image=image_size,
        ring_size=ring_size,
        config=config,
        agents=bool(spec.groups),
        ahead="AUTORESET" in spec.features and not (spec.groups or image or spec.mask_size),
        mask_size=spec.mask_size,
        **fields,
    )
    segment = Segment.create(size, name)
    try:
        return segment, StepMemory.create(segment.memory, header, config)
    except BaseException:
        segment.close()
        raise


def _gpu_fields(gpu: dict[str, Any]) -> dict[str, Any]:
    """`gpu`, checked: a value that the header's struct would cut short or refuse is named here."""
    for name, value in gpu.items():
        top = _GPU.get(name)
        if name == _HANDLE:
            fits = isinstance(value, bytes) and len(value) <= 64
            expected = "64 bytes at most"
        elif top is None:
            fits = False
            expected = ", ".join([*_GPU, _HANDLE])
        else:
            fits = isinstance(value, int) and 0 <= value <= top
            expected = f"0 to {top}"
        if not fits:
            raise ConfigurationError("invalid GPU field of the header", field=name, expected=expected, got=value)
    return gpu


class Trainer:
    """Whoever holds the place in `memory`.

    Args:
        started: when a process was started, as `processes.start_time`.
    """

    def __init__(self, memory: StepMemory, started: Callable[[int], int] = processes.start_time) -> None:
        self._memory = memory
        self._started = started
        self._served = 0  # the process whose session it is; 0: nobody's
        self._start: int | None = None
        self._next_look = 0.0

    @property
    def pid(self) -> int:
        """Its process id; 0: nobody is attached."""
        return self._memory.load_u32(CLIENT_PID)

    @property
    def leaving(self) -> bool:
        """Does it go by itself?"""
        return self._memory.load_u32(CLIENT_STATE) == LEAVING

    def begin(self, pid: int) -> None:
        """Its session begins."""
        self._served = pid
        # a trainer with a socket may be in another container, with other process ids
        if processes.alive(pid):
            self._start = self._started(pid)
        else:
            self._start = None

    def has_died(self, pid: int) -> bool:
        """Has this process ended? False where it could not be observed from the start (another container)."""
        if pid != self._served:
            return not processes.alive(pid)
        return self._start is not None and not processes.alive(pid, self._start)

    def reads(self) -> bool:
        """Is it still there? Looked at once per slice."""
        now = time.monotonic()
        if now < self._next_look:
            return True
        self._next_look = now + ENGINE_SLICE_MS / 1000
        pid = self.pid
        return bool(pid) and not self.leaving and not self.has_died(pid)

    def require_reader(self) -> None:
        """Raises ConnectionResetError where nobody is left to read the command ring."""
        if not self.reads():
            raise ConnectionResetError("nobody is left to read the command ring")

    def tell_end(self, why: str) -> None:
        """Tells it why its session ends, unless it goes by itself."""
        pid = self.pid
        if pid and not self.leaving:
            self._memory.tell_end(pid, why)

    def free(self) -> None:
        """The place is free for the next one."""
        self._served = 0
        self._memory.store_u64(CLIENT_SINCE, 0)
        self._memory.store_u32(CLIENT_STATE, 0)
        self._memory.store_u32(CLIENT_PID, 0)
