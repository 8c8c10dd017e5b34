"""The client's transports over TCP: lines of text on one shared socket or on one socket per env."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.connections.tcp.connection import MultiTcpConnection as MultiTcpConnection
    from ue_rl.connections.tcp.connection import SingleTcpConnection as SingleTcpConnection
    from ue_rl.connections.tcp.connection import TcpConnection as TcpConnection
    from ue_rl.connections.tcp.connection import open_tcp as open_tcp
    from ue_rl.connections.tcp.greeting import shake_hands as shake_hands

__getattr__, __dir__, __all__ = lazy(
    __name__, {"connection": "MultiTcpConnection SingleTcpConnection TcpConnection open_tcp", "greeting": "shake_hands"}
)
