"""A harness for whoever tests an engine or a trainer against the protocol of docs/protocol.md.

    TinyTask, make_tiny_env   a deterministic task, and the same task in process as the reference
    PluginStandIn             the deployed Unreal plugin's behaviour on the wire, quirk by quirk
    FaultyEngine              an engine that follows the protocol and then fails as its Script says
    MemoryTransport           a Transport over a bridge in the same process, without a socket
    FaultyNetwork             a TCP proxy between a trainer and an engine, which delays, cuts, holds and garbles
    ChaosEngine               an engine as a process of its own, which crashes, ends, hangs or starts late as it is told
    Leftovers                 is a process, a port, a segment or a temporary file left behind?
    RawClient                 a bare line socket with deadlines
    load_golden               the golden vectors of docs/protocol-vectors.json

`ue_rl.testing.plugin` offers them as pytest fixtures. Names are imported when they are first used,
so that pytest starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.testing.chaos_engine import ChaosEngine as ChaosEngine
    from ue_rl.testing.chaos_engine import chaos_command as chaos_command
    from ue_rl.testing.engines.chaos import Record as Record
    from ue_rl.testing.engines.faulty import Fault as Fault
    from ue_rl.testing.engines.faulty import FaultKind as FaultKind
    from ue_rl.testing.engines.faulty import FaultyEngine as FaultyEngine
    from ue_rl.testing.engines.faulty import Script as Script
    from ue_rl.testing.engines.plugin_stand_in import ObsFormat as ObsFormat
    from ue_rl.testing.engines.plugin_stand_in import PluginStandIn as PluginStandIn
    from ue_rl.testing.golden import GoldenVector as GoldenVector
    from ue_rl.testing.golden import find_protocol as find_protocol
    from ue_rl.testing.golden import load_golden as load_golden
    from ue_rl.testing.leftovers import Leftovers as Leftovers
    from ue_rl.testing.memory import MemoryTransport as MemoryTransport
    from ue_rl.testing.network import FaultyNetwork as FaultyNetwork
    from ue_rl.testing.raw_client import RawClient as RawClient
    from ue_rl.testing.task import TinyTask as TinyTask
    from ue_rl.testing.task import make_tiny_env as make_tiny_env

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "chaos_engine": "ChaosEngine chaos_command",
        "engines.chaos": "Record",
        "engines.faulty": "Fault FaultKind FaultyEngine Script",
        "engines.plugin_stand_in": "ObsFormat PluginStandIn",
        "golden": "GoldenVector find_protocol load_golden",
        "leftovers": "Leftovers",
        "memory": "MemoryTransport",
        "network": "FaultyNetwork",
        "raw_client": "RawClient",
        "task": "TinyTask make_tiny_env",
    },
)
