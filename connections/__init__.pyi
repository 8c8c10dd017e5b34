# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.connections.dialling import open_transport as open_transport
from ue_rl.connections.opening import open_engine as open_engine
from ue_rl.connections.shm.connection import SharedMemoryConnection as SharedMemoryConnection
from ue_rl.connections.tcp.kinds import MultiTcpConnection as MultiTcpConnection
from ue_rl.connections.tcp.kinds import SingleTcpConnection as SingleTcpConnection
