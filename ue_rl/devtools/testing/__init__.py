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

`ue_rl.devtools.testing.plugin` offers them as pytest fixtures. Names are imported when they are first used,
so that pytest starts quickly.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
