"""BaseBridge: the life cycle of the deployed plugin, in snake case, on top of BridgeCore.

    initialize_environments -> connect -> start_training -> update_rl per tick -> disconnect
                            -> set_inference_interface -> start_inference -> update_rl per tick -> disconnect

A game implements the callbacks of a subclass (SingleEnvBridge, MultiEnvBridge or VectorBridge); what it may
offer beside them stands in bridges/hosting.py.
"""

from __future__ import annotations

from dataclasses import replace

from ue_rl.bridges.core import BridgeCore, Mode
from ue_rl.bridges.hosting import PolicyInterface
from ue_rl.bridges.runners import ThreadHandle, run_in_thread
from ue_rl.bridges.tcp.server import BridgeServer
from ue_rl.spec import EnvSpec, EnvType

__all__ = ["BaseBridge", "Mode", "PolicyInterface"]


class BaseBridge(BridgeCore):
    """The engine's side of one session.

    Args:
        spec: sizes, spaces and abilities; may be given later by `connect` or `configure`.

    Attributes: see BridgeCore.

    Raises:
        ConfigurationError: used before it has a spec.
    """

    _env_type = EnvType.MULTI  # where `connect` has to make the spec

    def __init__(self, spec: EnvSpec | None = None) -> None:
        self._running_host: ThreadHandle[BridgeServer] | None = None
        self._planned_envs = 1
        super().__init__(spec)

    def initialize_environments(self, num_envs: int, inference: bool = False) -> None:
        """Sets the number of envs, before or after `connect`; in inference mode the plugin has one, we have any number.

        Raises:
            ConfigurationError: this bridge cannot have that many.
        """
        self._planned_envs = num_envs
        if self._spec is not None and num_envs != self._spec.num_envs:
            self.configure(replace(self._spec, num_envs=num_envs))
        if inference and self._run_policy is not None:
            self.start_inference()

    def connect(
        self, host: str, port: int, act_size: int | None = None, obs_size: int | None = None
    ) -> ThreadHandle[BridgeServer]:
        """Listens in a thread of its own, as the plugin's Connect does: the engine listens, the trainer connects.

        Args:
            host, port: where; port 0 takes a free one.
            act_size, obs_size: as in the plugin; None keeps those of the spec.

        Returns:
            the running server, with `.port` and `.url`; also closed by `disconnect()`.

        Raises:
            ConfigurationError: it is hosted already. OSError: the address cannot be listened on.
        """
        if act_size is not None and obs_size is not None:
            old = self._spec
            if old is None:
                self.configure(EnvSpec(obs_size, act_size, self._env_type, num_envs=self._planned_envs))
            elif (old.obs_size, old.act_size) != (obs_size, act_size):
                self.configure(replace(old, obs_size=obs_size, act_size=act_size, action=None, obs_low=(), obs_high=()))
        _ = self.spec  # raises ConfigurationError while there are no sizes
        self._running_host = run_in_thread(self, host=host, port=port)
        return self._running_host

    def listen(self, host: str = "127.0.0.1", port: int = 7777) -> ThreadHandle[BridgeServer]:
        """As `connect`, under the name of what it does, and with the sizes of the spec."""
        return self.connect(host, port)

    def disconnect(self) -> None:
        """Stops listening and goes idle; idempotent."""
        running, self._running_host = self._running_host, None
        if running is not None:
            running.close()
        with self.lock:
            if self._spec is not None:
                self._switch(Mode.IDLE)
