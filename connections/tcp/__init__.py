"""The client's transports over TCP: lines of text on one shared socket or on one socket per env."""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
