"""The engine's side of the protocol: bridges (no I/O) and the servers that host them.

They see the core (ue_rl/*.py) and nothing of the other rooms. Start with MultiEnvBridge, or VectorBridge where the
simulation works on arrays; GymnasiumBridge hosts any Gymnasium env.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge as BaseBridge
    from ue_rl.bridges.base import Mode as Mode
    from ue_rl.bridges.gymnasium import GymnasiumBridge as GymnasiumBridge
    from ue_rl.bridges.multi_env import MultiEnvBridge as MultiEnvBridge
    from ue_rl.bridges.runners import run_in_process as run_in_process
    from ue_rl.bridges.runners import run_in_thread as run_in_thread
    from ue_rl.bridges.server import BridgeServer as BridgeServer
    from ue_rl.bridges.server import serve as serve
    from ue_rl.bridges.shm_host import ShmHost as ShmHost
    from ue_rl.bridges.shm_runners import run_shm_in_process as run_shm_in_process
    from ue_rl.bridges.shm_runners import run_shm_in_thread as run_shm_in_thread
    from ue_rl.bridges.shm_runners import serve_shm as serve_shm
    from ue_rl.bridges.shm_upgrade import ShmUpgrader as ShmUpgrader
    from ue_rl.bridges.single_env import SingleEnvBridge as SingleEnvBridge
    from ue_rl.bridges.vector import VectorBridge as VectorBridge

_HOME = {
    "BaseBridge": "base",
    "BridgeServer": "server",
    "GymnasiumBridge": "gymnasium",
    "Mode": "base",
    "MultiEnvBridge": "multi_env",
    "ShmHost": "shm_host",
    "ShmUpgrader": "shm_upgrade",
    "SingleEnvBridge": "single_env",
    "VectorBridge": "vector",
    "run_in_process": "runners",
    "run_in_thread": "runners",
    "run_shm_in_process": "shm_runners",
    "run_shm_in_thread": "shm_runners",
    "serve": "server",
    "serve_shm": "shm_runners",
}

__all__ = [
    "BaseBridge",
    "BridgeServer",
    "GymnasiumBridge",
    "Mode",
    "MultiEnvBridge",
    "ShmHost",
    "ShmUpgrader",
    "SingleEnvBridge",
    "VectorBridge",
    "run_in_process",
    "run_in_thread",
    "run_shm_in_process",
    "run_shm_in_thread",
    "serve",
    "serve_shm",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"ue_rl.bridges.{_HOME[name]}"), name)
