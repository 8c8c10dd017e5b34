"""The client's transports: how actions reach the engine and states come back.

They see the core (ue_rl/*.py) and nothing of the other rooms; UnrealVecEnv sees them only as
ue_rl.protocol.transport.Transport.
"""

from __future__ import annotations

from ue_rl.connections.opening import open_engine
from ue_rl.connections.shm.connection import SharedMemoryConnection
from ue_rl.connections.tcp.kinds import MultiTcpConnection, SingleTcpConnection

__all__ = ["MultiTcpConnection", "SharedMemoryConnection", "SingleTcpConnection", "open_engine"]
