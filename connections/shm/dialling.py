"""shm://NAME: what such an address means."""

from __future__ import annotations

from typing import Any

from ue_rl.connections.base.address import refuse_given
from ue_rl.connections.shm.connection import SharedMemoryConnection
from ue_rl.protocol.access.client_access import GUARDED
from ue_rl.system.errors import ConfigurationError


def dial(place: str, transport: str, **options: Any) -> SharedMemoryConnection:
    """A connected transport; `place`: the segment's name or file, "" for $LUCKY_SHM_NAME; options as for `connect`.

    Raises:
        ConfigurationError: a transport or a wiring that is not shared memory's. Also what `attach` raises.
    """
    if transport not in ("auto", "shm") or options.pop("channel", "auto") != "auto":
        raise ConfigurationError(
            "this address is shared memory", field="transport", expected="transport='auto' or 'shm'", got=transport
        )
    refuse_given(options, ("compiled", "nul_terminated"), "shm:// carries no text")
    refuse_given(options, GUARDED, "shm:// asks for no token and no TLS: the permissions of its file guard it")
    name = None
    if place:
        name = place
    return SharedMemoryConnection.attach(name, **options)
