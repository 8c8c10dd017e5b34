"""The engine's side of the protocol: bridges (no I/O) and the servers that host them.

They see the protocol and nothing of connections/ and inference/. Start with MultiEnvBridge, or VectorBridge where the
simulation works on arrays; MultiAgentBridge or VectorAgentsBridge where an env holds agents. GymnasiumBridge hosts any
Gymnasium env, PettingZooBridge any PettingZoo env; MuJoCo models: ue_rl.plugins.mujoco.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
