"""The engine's side of the protocol: bridges (no I/O) and the servers that host them.

They see the core (ue_rl/*.py) and nothing of the other rooms. Start with MultiEnvBridge, or VectorBridge where the
simulation works on arrays; MultiAgentBridge or VectorAgentsBridge where an env holds agents. GymnasiumBridge hosts any
Gymnasium env, PettingZooBridge any PettingZoo env, MujocoBridge is an engine itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge as BaseBridge
    from ue_rl.bridges.base import Mode as Mode
    from ue_rl.bridges.gymnasium import GymnasiumBridge as GymnasiumBridge
    from ue_rl.bridges.mujoco import MujocoBridge as MujocoBridge
    from ue_rl.bridges.mujoco_tasks import MujocoTask as MujocoTask
    from ue_rl.bridges.multi_agent import MultiAgentBridge as MultiAgentBridge
    from ue_rl.bridges.multi_env import MultiEnvBridge as MultiEnvBridge
    from ue_rl.bridges.multi_env import SingleEnvBridge as SingleEnvBridge
    from ue_rl.bridges.pettingzoo import PettingZooBridge as PettingZooBridge
    from ue_rl.bridges.runners import run_in_process as run_in_process
    from ue_rl.bridges.runners import run_in_thread as run_in_thread
    from ue_rl.bridges.runners import run_shm_in_process as run_shm_in_process
    from ue_rl.bridges.runners import run_shm_in_thread as run_shm_in_thread
    from ue_rl.bridges.runners import serve as serve
    from ue_rl.bridges.runners import serve_shm as serve_shm
    from ue_rl.bridges.shm.host import ShmHost as ShmHost
    from ue_rl.bridges.shm.upgrade import ShmUpgrader as ShmUpgrader
    from ue_rl.bridges.tcp.server import BridgeServer as BridgeServer
    from ue_rl.bridges.vector import VectorAgentsBridge as VectorAgentsBridge
    from ue_rl.bridges.vector import VectorBridge as VectorBridge

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "base": "BaseBridge Mode",
        "gymnasium": "GymnasiumBridge",
        "mujoco": "MujocoBridge",
        "mujoco_tasks": "MujocoTask",
        "multi_agent": "MultiAgentBridge",
        "multi_env": "MultiEnvBridge SingleEnvBridge",
        "pettingzoo": "PettingZooBridge",
        "runners": "run_in_process run_in_thread run_shm_in_process run_shm_in_thread serve serve_shm",
        "shm.host": "ShmHost",
        "shm.upgrade": "ShmUpgrader",
        "tcp.server": "BridgeServer",
        "vector": "VectorAgentsBridge VectorBridge",
    },
    optional=("MujocoBridge",),
)
