"""BaseBridge: a game that can be hosted, with the life cycle of the deployed plugin, in snake case.

    initialize_environments -> connect -> start_training -> update_rl per tick -> disconnect
                            -> set_inference_interface -> start_inference -> update_rl per tick -> disconnect

A game implements the callbacks of a subclass (SingleEnvBridge, MultiEnvBridge or VectorBridge); what it may
offer beside them stands in bridges/hosting.py. What is asked and answered is `lockstep`'s (bridges/lockstep.py).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.calls import known_parameters
from ue_rl.bridges.game import Game, Mode
from ue_rl.bridges.host import Host
from ue_rl.bridges.hosting import ComputesRewards, ListsParameters, Pauses, PolicyInterface, Renders, ScalesTime
from ue_rl.bridges.lockstep import LockStep
from ue_rl.bridges.policy import Policy
from ue_rl.bridges.runners import ThreadHandle, run_in_thread
from ue_rl.bridges.tcp.server import BridgeServer
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spec import Channel, EnvSpec, EnvType
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.system.errors import ConfigurationError

__all__ = ["BaseBridge", "Mode", "PolicyInterface"]

_log = logging.getLogger("ue_rl.bridges")
TICKED_WITHIN = 2.0  # seconds
_ABILITIES: dict[str, type] = {
    "TIME_SCALE": ScalesTime,
    "PAUSE": Pauses,
    "RENDER": Renders,
    "GOAL_REWARD": ComputesRewards,
}


class BaseBridge(Game):
    """The engine's side: a game, and the session that it serves.

    Args:
        spec: sizes, spaces and abilities; may be given later by `connect` or `configure`.

    Attributes:
        inbox, outbox, answered: the session's, see LockStep.
        lockstep: the session. lock: held during ticks and switches.
        host: what serves this bridge at present, None for nothing.
        ticked_within: seconds after which inference mode that stands still is reported; may be changed.

    Raises:
        ConfigurationError: used before it has a spec.
    """

    inbox: ActionBatch
    outbox: StepBuffers
    answered: NDArray[np.uint8]
    _env_type = EnvType.MULTI  # where `connect` has to make the spec

    ticked_within = TICKED_WITHIN

    def __init__(self, spec: EnvSpec | None = None) -> None:
        self.lockstep = LockStep(self)
        self.lock = self.lockstep.lock
        self.host: Host | None = None
        self._spec: EnvSpec | None = None
        self._running_host: ThreadHandle[BridgeServer] | None = None
        self._planned_envs = 1
        self._announced = False
        if spec is not None:
            self.configure(spec)

    # -- sizes

    @property
    def spec(self) -> EnvSpec:
        """What the handshake will say."""
        if self._spec is None:
            raise ConfigurationError(
                "this bridge has no sizes yet", cure="give a spec, or call connect(host, port, act, obs)"
            )
        return self._spec

    @property
    def num_envs(self) -> int:
        """Envs behind this bridge."""
        return self.spec.num_envs

    def configure(self, spec: EnvSpec) -> None:
        """Takes `spec` and allocates the arrays of all envs; a trainer that is connected loses its session.

        Where the spec does not say which wirings are served, it will say both: a host serves either. With agents it is
        the shared channel. What the game offers is added to the features (`offered`).
        """
        if spec.version and spec.env_type is not EnvType.RLBASE:
            channel = spec.channel or (Channel.SHARED if spec.groups else Channel.ANY)
            features = spec.features | self.offered()
            if spec.groups or spec.image is not None or "REALTIME" in features:
                features -= {"AUTORESET"}
            spec = replace(spec, channel=channel, features=features)
        with self.lock:
            self._spec = spec
            self._announced = False
            session = self.lockstep
            session.configure(spec)
            self.inbox = session.inbox
            self.outbox = session.outbox
            self.answered = session.answered

    def offered(self) -> frozenset[str]:
        """FEATURES that follow from what the game defines beside its callbacks (bridges/hosting.py).

        A bridge that has a method, but not always the ability, overrides this and leaves the feature out.
        """
        return frozenset(
            {
                "ERROR",
                "SEQ",
                "AUTORESET",
                *(feature for feature, ability in _ABILITIES.items() if isinstance(self, ability)),
            }
        )

    def announce(self) -> EnvSpec:
        """The spec, with the parameters of the game as they are when this is first called: by a host, at its start.

        Raises:
            ConfigurationError: a parameter is outside its own range.
        """
        spec = self.spec
        if not self._announced:
            speaks = spec.version and spec.env_type is not EnvType.RLBASE
            if speaks and not spec.parameters and isinstance(self, ListsParameters):
                spec = self._spec = replace(spec, parameters=tuple(known_parameters(self).values()))
            self._announced = True
        return spec

    def build_handshake(self) -> str:
        """The CONFIG line, without its newline."""
        return encode_handshake(self.announce()).decode().rstrip("\n")

    # -- the plugin's life cycle

    def initialize_environments(self, num_envs: int, inference: bool = False) -> None:
        """Sets the number of envs, before or after `connect`; in inference mode the plugin has one, we have any number.

        Raises:
            ConfigurationError: this bridge cannot have that many.
        """
        self._planned_envs = num_envs
        if self._spec is not None and num_envs != self._spec.num_envs:
            self.configure(replace(self._spec, num_envs=num_envs))
        if inference and self.lockstep.policy is not None:
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
        running = self._running_host
        self._running_host = None
        if running is not None:
            running.close()
        with self.lock:
            if self._spec is not None:
                self.lockstep.switch(Mode.IDLE)

    @property
    def mode(self) -> Mode:
        """IDLE, TRAINING or INFERENCE."""
        return self.lockstep.mode

    def start_training(self) -> None:
        """Ticks answer the trainer's requests from now on. Has no effect in training mode; safe at any time."""
        self.lockstep.start_training()

    def set_inference_interface(self, interface: PolicyInterface) -> None:
        """The policy for `start_inference`; takes the place of an earlier one between two ticks.

        Raises:
            ModelMismatch, ConfigurationError: it does not fit the game, see Policy. The earlier one stays.
        """
        policy = Policy(interface, self.spec)
        with self.lock:
            self.lockstep.policy = policy

    def demonstrate(self, act: Callable[[NDArray[np.float32]], Any] | None) -> None:
        """Has the game act itself while a trainer asks, to be recorded (FEATURES=DEMO); before it is hosted.

        Args:
            act: a person's keys or a script: observations float32 [n, obs_size] -> actions float32 [n, act_size]; what
                the trainer asks for is left aside. None: the trainer acts again.

        Raises:
            ConfigurationError: the envs hold agents.
        """
        spec = self.spec
        if spec.groups:
            raise ConfigurationError("a game with agents cannot be recorded", field="AGENTS", got=spec.agent_names)
        rest = spec.features - {"DEMO"}
        if act is None:
            features = rest
        else:
            features = rest | {"DEMO", "INFO"}
        self.configure(replace(spec, features=features))
        self.lockstep.demo = act

    def start_inference(self, seeds: Sequence[int | None] | None = None) -> None:
        """Ticks ask the policy from now on, without trainer or socket; every env starts a new episode.

        A trainer that is connected loses its session, and none is served until `start_training`. The ticks come from
        the game, which calls `update_rl`, or from a host with a `tick_rate`.

        Args:
            seeds: of the first episodes, one per env, as VecEnv.seed() gives them.

        Raises:
            ConfigurationError: no policy was set, or the number of seeds is wrong.
        """
        self.lockstep.start_inference(seeds)
        if self.host is not None and self.host.tick_rate is None:
            watch = threading.Timer(
                self.ticked_within, self._require_ticks, [self.lockstep.switches, self.lockstep.ticks]
            )
            watch.daemon = True
            watch.start()

    def _require_ticks(self, switches: int, ticks: int) -> None:
        if self.host is not None and (self.lockstep.switches, self.lockstep.ticks) == (switches, ticks):
            _log.warning(
                "the bridge is in inference mode and nothing has ticked it for %g s, so the policy is not asked: "
                "host it with a tick_rate, or call update_rl(delta) in the game's loop",
                self.ticked_within,
            )

    def update_rl(self, delta: float) -> None:
        """One tick of the engine.

        In inference mode `outbox.rewards`, `.dones` and `.truncated` then hold what ended in this tick, else 0.

        Args:
            delta: seconds since the last one.

        Raises:
            MalformedMessage: an action is outside the discrete action space, or a parameter beside a reset does not
                exist or is out of range; nothing was applied.
        """
        self.lockstep.update_rl(delta)

    # -- beside the answers

    def write_info(self, env_id: int, info: Mapping[str, Any]) -> None:
        """Sends `info` (JSON-able) with this env's next answer; needs FEATURES=INFO in the spec.

        Args:
            env_id: with agents, the row: env * agents of an env + agent.

        Raises:
            ConfigurationError: there is no such env.
        """
        if "INFO" in self.spec.features:
            if not 0 <= env_id < len(self.answered):
                raise ConfigurationError(
                    "an info of an env that does not exist",
                    fault="engine",
                    field="env_id",
                    expected=f"0 to {len(self.answered) - 1}",
                    got=env_id,
                )
            self.outbox.infos[env_id] = dict(info)

    def register_commands(self, dispatcher: Any) -> None:
        """Sets command handlers of the game's own; called once, with the host's ue_rl.protocol.commands Dispatcher."""

    def trainer_closes(self, reason: str) -> None:
        """Why the trainer closes; empty: it gave no reason."""

    def send_event(self, method: int, payload: Any = None) -> bool:
        """Sends the trainer a typed message beside the steps (docs/commands.md); from any thread, also in a tick.

        Args:
            method, payload: as ShmHost.send takes them.

        Returns:
            False: no trainer is here, or it is connected over TCP, which carries no such messages.

        Raises:
            ConfigurationError, RingFull: see ShmHost.send.
        """
        sender = self.lockstep.sender
        return sender is not None and sender(method, payload)
