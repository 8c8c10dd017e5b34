"""The words and waits of shared memory: the compiled module where there is one, its pure twin otherwise.

`load(compiled=None)` gives the module, as ue_rl.wire.kernels.load does; UE_RL_PURE=1 turns the compiled one off.
Both have:

    load_u32, load_u64, store_u32, store_u64, increment_u64, compare_exchange_u32     one aligned word of a buffer
    first_nonfinite, copy_finite, check_step                                    arrays that must hold finite numbers
    Bell    publishes this side's counter and waits for the other's: looks for a while without the GIL, then sleeps
            on the socket or a futex until the other side rings, or naps where the other side rings no bell

A sleeper says in its flag word that it sleeps and looks once more; a publisher counts up and then looks at the flag,
with a full fence between the two steps on both sides: one of them always sees the other, so no wake-up is lost.
"""

from __future__ import annotations

import os
import socket
import struct
from types import ModuleType

from ue_rl.errors import ConfigurationError
from ue_rl.shm import sync_pure

try:
    from ue_rl.shm import _sync as _compiled_module
except ImportError:
    _compiled: ModuleType | None = None
else:
    _compiled = _compiled_module

# Waking a sleeper costs about as much as a small engine's step, so a wait looks for as long as the other side usually
# takes, and no longer than this many microseconds. With one core, looking would keep the other side from answering.
_CORES = os.cpu_count() or 1
TRAINER_SPIN_US = 300.0 if _CORES > 1 else 0.0  # a step
ENGINE_SPIN_US = 800.0 if _CORES > 1 else 0.0  # a policy's thought
ASKED, NOT_OURS = sync_pure.ASKED, sync_pure.NOT_OURS
SLICE_MS = 100  # a wait is cut into slices, for Ctrl-C and deadlines


def load(compiled: bool | None = None) -> ModuleType:
    """The module to use.

    Raises:
        ConfigurationError: compiled=True, but this installation has no compiled module.
    """
    if compiled is False or (compiled is None and os.environ.get("UE_RL_PURE", "0") not in ("", "0")):
        return sync_pure
    if _compiled is None and compiled:
        raise ConfigurationError(
            "this installation has no compiled shared-memory module", fault="caller",
            cure="reinstall ue_rl where a C compiler is present (`pip install --force-reinstall --no-deps .`)",
        )  # fmt: skip
    return _compiled or sync_pure


def set_slice(sock: socket.socket, slice_ms: int) -> None:
    """Makes every wait on `sock` end after `slice_ms` milliseconds, 1 to 999; a Bell does not do it itself."""
    sock.setblocking(True)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if os.name == "nt":
        sock.settimeout(slice_ms / 1000)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, slice_ms * 1000))


def name_of(module: ModuleType) -> str:
    """ "compiled" or "pure"."""
    return "pure" if module is sync_pure else "compiled"
