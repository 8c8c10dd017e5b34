"""A harness for whoever tests an engine or a trainer against the protocol of docs/protocol.md.

    TinyTask, make_tiny_env   a deterministic task, and the same task in process as the reference
    PluginStandIn             the deployed Unreal plugin's behaviour on the wire, quirk by quirk
    FaultyEngine              an engine that follows the protocol and then fails as its Script says
    MemoryTransport           a Transport over a bridge in the same process, without a socket
    RawClient                 a bare line socket with deadlines
    load_golden               the golden vectors of docs/protocol.md

`ue_rl.testing.plugin` offers them as pytest fixtures. Nothing is imported before it is used: a pytest
start pays for none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ue_rl.testing.faulty_engine import Fault, FaultKind, FaultyEngine, Script
    from ue_rl.testing.golden import GoldenVector, find_protocol, load_golden
    from ue_rl.testing.memory import MemoryTransport
    from ue_rl.testing.plugin_stand_in import ObsFormat, PluginStandIn
    from ue_rl.testing.raw_client import RawClient
    from ue_rl.testing.shm_faulty_engine import ShmFaultyEngine
    from ue_rl.testing.task import TinyTask, make_tiny_env

_HOME = {
    "Fault": "faulty_engine",
    "FaultKind": "faulty_engine",
    "FaultyEngine": "faulty_engine",
    "GoldenVector": "golden",
    "MemoryTransport": "memory",
    "ObsFormat": "plugin_stand_in",
    "PluginStandIn": "plugin_stand_in",
    "RawClient": "raw_client",
    "Script": "faulty_engine",
    "ShmFaultyEngine": "shm_faulty_engine",
    "TinyTask": "task",
    "find_protocol": "golden",
    "load_golden": "golden",
    "make_tiny_env": "task",
}

__all__ = [
    "Fault",
    "FaultKind",
    "FaultyEngine",
    "GoldenVector",
    "MemoryTransport",
    "ObsFormat",
    "PluginStandIn",
    "RawClient",
    "Script",
    "ShmFaultyEngine",
    "TinyTask",
    "find_protocol",
    "load_golden",
    "make_tiny_env",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
