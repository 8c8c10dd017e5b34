"""Traces: every message of a session in a file, shown, played again, packed (docs/operating.md)."""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__, optional=("RecordingTransport", "Trace", "TraceWriter"))
