# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.connections.tcp.connection import TcpConnection as TcpConnection
from ue_rl.connections.tcp.greeting import shake_hands as shake_hands
from ue_rl.connections.tcp.kinds import MultiTcpConnection as MultiTcpConnection
from ue_rl.connections.tcp.kinds import SingleTcpConnection as SingleTcpConnection
from ue_rl.connections.tcp.kinds import go_on as go_on
