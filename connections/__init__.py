"""The trainer's side: how actions reach the engine and states come back.

It sees the protocol and nothing of bridges/ and inference/; the envs see it as ue_rl.protocol.transport.Transport.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
