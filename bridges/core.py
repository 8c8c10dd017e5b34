"""BridgeCore: the engine's side of one session as a state machine. No I/O; it knows no host.

A host (bridges/tcp/server.py, bridges/shm/host.py, a test) writes requests into `inbox`, calls `update_rl(delta)` once
per tick, and sends the rows of `outbox` that are marked in `answered`, which it then clears. How a game is connected
and disconnected stands in bridges/base.py.

Switching between training and inference may come from any thread at any time: it waits for the tick under way, and
whatever was asked before it is void (`switches` tells a host so, and the host tells the trainer by closing).
"""

from __future__ import annotations

import abc
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.action_check import ActionCheck
from ue_rl.bridges.hosting import (
    ActsPerEnv,
    ChecksSizes,
    ChecksSpaces,
    ComputesRewards,
    ForgetsEpisodes,
    Host,
    ListsParameters,
    Pauses,
    PolicyInterface,
    Renders,
    ScalesTime,
    TakesMasks,
)
from ue_rl.bridges.parameters import apply_with_resets, known_parameters
from ue_rl.buffers import ActionBatch, StepBuffers
from ue_rl.errors import ConfigurationError
from ue_rl.spec import Channel, EnvSpec, EnvType
from ue_rl.wire.handshake import encode_handshake

_log = logging.getLogger("ue_rl.bridges")

_ABILITIES: dict[str, type] = {
    "TIME_SCALE": ScalesTime, "PAUSE": Pauses, "RENDER": Renders, "GOAL_REWARD": ComputesRewards,
}  # fmt: skip
_TICKED_WITHIN = 2.0  # seconds after which a bridge in inference mode that stands still is reported
RunPolicy = Callable[[Sequence[int], NDArray[np.float32]], NDArray[np.float32]]


class Mode(Enum):
    """What a bridge does on a tick."""

    IDLE = auto()
    TRAINING = auto()
    INFERENCE = auto()


class BridgeCore(abc.ABC):
    """The engine's side of one session.

    Args:
        spec: sizes, spaces and abilities; may be given later by `configure`.

    Attributes:
        inbox: the trainer's requests; written by the host.
        outbox: the states of all envs; written by the bridge.
        answered: uint8 [num_envs]; 1 = this row of `outbox` is to be sent; cleared by the host.
        check: validates the actions of the trainer and of a model.
        mode: IDLE, TRAINING or INFERENCE.
        ticks: calls of `update_rl` so far.
        paused: the trainer has stopped the game: it stands still between requests, until told so or nobody is there.
        switches: changes of `mode` or of the sizes so far; requests from before a change are void.
        host: what serves this bridge at present, None for nothing.
        caller: the thread in which a callback of the game runs right now, None for none.
        sender: ShmHost.send, or its like; set by a host that can send events, while a trainer is there.
        observation_names, action_names: what each number means, for a trainer that asks; () where nobody says.
        lock: held during ticks and switches; a host in a thread of its own holds it while it uses the arrays.

    Raises:
        ConfigurationError: used before it has a spec.
    """

    inbox: ActionBatch
    outbox: StepBuffers
    answered: NDArray[np.uint8]
    check: ActionCheck
    observation_names: Sequence[str] = ()
    action_names: Sequence[str] = ()

    def __init__(self, spec: EnvSpec | None = None) -> None:
        self._spec: EnvSpec | None = None
        self.mode = Mode.IDLE
        self.ticks = 0
        self.paused = False
        self.switches = 0
        self.lock = threading.RLock()  # callbacks may switch too
        self.host: Host | None = None
        self.caller: int | None = None
        self.sender: Callable[[int, Any], bool] | None = None
        self._run_policy: RunPolicy | None = None
        self._forgetful: ForgetsEpisodes | None = None
        self._first_seeds: dict[int, int | None] = {}
        self._announced = False
        if spec is not None:
            self.configure(spec)

    # -- sizes and modes

    @property
    def spec(self) -> EnvSpec:
        """What the handshake will say."""
        if self._spec is None:
            raise ConfigurationError(
                "this bridge has no sizes yet",
                fault="caller",
                cure="give a spec, or call connect(host, port, act, obs)",
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
            spec = replace(spec, channel=channel, features=spec.features | self.offered())
        with self.lock:
            self.switches += self._spec is not None
            self._spec, self._announced = spec, False
            self.check = ActionCheck(spec)
            self.inbox = ActionBatch.of(spec)
            self.outbox = StepBuffers.of(spec)
            self.answered = np.zeros(spec.num_rows, np.uint8)
            self.forget_requests()

    def offered(self) -> frozenset[str]:
        """FEATURES that follow from what the game defines beside its callbacks (bridges/hosting.py).

        A bridge that has a method, but not always the ability, overrides this and leaves the feature out.
        """
        return frozenset(
            {"ERROR", "SEQ", *(feature for feature, ability in _ABILITIES.items() if isinstance(self, ability))}
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

    def start_training(self) -> None:
        """Ticks answer the trainer's requests from now on. Has no effect in training mode; safe at any time."""
        _ = self.spec  # raises ConfigurationError while there are no sizes
        with self.lock:
            if self.mode is not Mode.TRAINING:
                self._switch(Mode.TRAINING)

    def set_inference_interface(self, interface: PolicyInterface) -> None:
        """The policy for `start_inference`; takes the place of an earlier one between two ticks.

        Raises:
            ModelMismatch: the policy has other sizes or spaces than this bridge. The earlier one stays.
            ConfigurationError: this bridge has images, which no policy is given here.
        """
        if self.spec.image is not None:
            raise ConfigurationError(
                "inference mode gives a policy numbers, not images", fault="caller", field="IMAGE",
                got=self.spec.image.text(), cure="run the exported model in the engine, on outbox.image",
            )  # fmt: skip
        if isinstance(interface, ChecksSpaces):
            interface.require_spaces(self.spec)
        elif isinstance(interface, ChecksSizes):
            interface.require(self.spec.obs_size, self.spec.act_size)
        with self.lock:
            self._forgetful = interface if isinstance(interface, ForgetsEpisodes) else None
            if self.spec.mask_size and isinstance(interface, TakesMasks):
                self._run_policy = lambda env_ids, observations: self._run_masked(interface, env_ids, observations)
            elif isinstance(interface, ActsPerEnv):
                self._run_policy = interface.run_inference_for
            else:
                self._run_policy = lambda env_ids, observations: interface.run_inference(observations)

    def start_inference(self, seeds: Sequence[int | None] | None = None) -> None:
        """Ticks ask the policy from now on, without trainer or socket; every env starts a new episode.

        A trainer that is connected loses its session, and none is served until `start_training`. The ticks come from
        the game, which calls `update_rl`, or from a host with a `tick_rate`.

        Args:
            seeds: of the first episodes, one per env, as VecEnv.seed() gives them.

        Raises:
            ConfigurationError: no policy was set, or the number of seeds is wrong.
        """
        if seeds is not None and len(seeds) != self.num_envs:
            raise ConfigurationError(
                "there must be one seed per env", fault="caller", field="seeds", expected=self.num_envs, got=len(seeds)
            )
        if self._run_policy is None:
            raise ConfigurationError(
                "inference needs a policy", fault="caller", cure="call set_inference_interface() first"
            )
        with self.lock:
            self._switch(Mode.INFERENCE)
            given = () if seeds is None else seeds
            self._first_seeds = {env: None if seed is None else int(seed) for env, seed in enumerate(given)}
            self.new_episodes(None)
            self.begin_episodes()
            if self.host is not None and self.host.tick_rate is None:
                watch = threading.Timer(_TICKED_WITHIN, self._require_ticks, [self.switches, self.ticks])
                watch.daemon = True
                watch.start()

    def _require_ticks(self, switches: int, ticks: int) -> None:
        if self.host is not None and (self.switches, self.ticks) == (switches, ticks):
            _log.warning(
                "the bridge is in inference mode and nothing has ticked it for %g s, so the policy is not asked: "
                "host it with a tick_rate, or call update_rl(delta) in the game's loop", _TICKED_WITHIN,
            )  # fmt: skip

    def update_rl(self, delta: float) -> None:
        """One tick of the engine.

        In inference mode `outbox.rewards`, `.dones` and `.truncated` then hold what ended in this tick, else 0.

        Args:
            delta: seconds since the last one.

        Raises:
            MalformedMessage: an action is outside the discrete action space, or a parameter beside a reset does not
                exist or is out of range; nothing was applied.
        """
        with self.lock:
            self.ticks += 1
            self.caller = threading.get_ident()
            try:
                if self.mode is Mode.TRAINING:
                    if self.paused and not self.busy:
                        return
                    self.check.of_trainer(self.inbox, self.outbox)
                    if self.inbox.parameters:
                        self._set_parameters()
                    self.tick_training(delta)
                    self.check.after_tick(self.inbox)
                elif self.mode is Mode.INFERENCE:
                    self.tick_inference(delta)
            finally:
                self.caller = None

    def step_all(self, delta: float) -> bool:
        """`update_rl` where every env is asked for a step: `inbox.actions` is all that a host has to write.

        Returns:
            True: all have answered and `answered` is clear. False: proceed as after `update_rl`.
        """
        with self.lock:
            if self.mode is not Mode.TRAINING:
                self.update_rl(delta)
                return not self.busy
            self.ticks += 1
            self.caller = threading.get_ident()
            try:
                return self.tick_step_all(delta)
            finally:
                self.caller = None

    def tick_step_all(self, delta: float) -> bool:
        """See `step_all`; a subclass that has nothing to look up per env may do it in less."""
        self.inbox.command[:] = ActionBatch.STEP
        self.check.of_trainer(self.inbox, self.outbox)
        self.tick_training(delta)
        if self.busy:
            self.check.after_tick(self.inbox)
            return False
        self.answered[:] = 0
        return True

    def pause(self, paused: bool) -> None:
        """Stops a game that Pauses, or lets it go on. Requests are answered all the same."""
        with self.lock:
            self.paused = paused
            if isinstance(self, Pauses):
                self.set_paused(paused)

    def _set_parameters(self) -> None:
        """Those that came with resets, before the game hears of the resets."""
        per_env = self.spec.agents_per_env
        given = {row // per_env: values for row, values in self.inbox.parameters.items()}
        self.inbox.parameters.clear()
        apply_with_resets(self, given)

    def _switch(self, mode: Mode) -> None:
        self.switches += 1
        self.mode = mode
        self.forget_requests()

    # -- for hosts

    def forget_requests(self) -> None:
        """The trainer has gone: nothing is asked and nothing is to be sent any more."""
        self.inbox.clear()
        self.check.after_tick(self.inbox)
        self.outbox.infos.clear()
        self.answered[:] = 0
        if self.paused:
            try:
                self.pause(False)
            except Exception:  # noqa: BLE001 - logged: the session ends all the same
                _log.exception("the game's set_paused(False) failed")

    @property
    def busy(self) -> bool:
        """Is a request still unanswered (an action is running)?"""
        return bool(np.count_nonzero(self.inbox.command))

    # -- for subclasses

    @abc.abstractmethod
    def tick_training(self, delta: float) -> None:
        """Takes the requests of `inbox`, answers what can be answered."""

    @abc.abstractmethod
    def tick_inference(self, delta: float) -> None:
        """State -> policy -> action for every env whose action has ended."""

    @abc.abstractmethod
    def begin_episodes(self) -> None:
        """Starts a new episode in every env, for inference."""

    def first_seed(self, env_id: int) -> int | None:
        """The seed of this env's first episode in inference mode, once; None afterwards."""
        return self._first_seeds.pop(env_id, None)

    def new_episodes(self, env_ids: list[int] | None) -> None:
        """Tells the policy that an episode begins in `env_ids` (None: in all); a recurrent one forgets its state."""
        if self._forgetful is not None:
            self._forgetful.reset(env_ids)

    def decide(self, observations: NDArray[np.float32], env_ids: Sequence[int]) -> NDArray[np.float32]:
        """The policy's actions for `env_ids`, checked: float32 [n, act_size].

        Args:
            observations: float32 [n, obs_size], row i of env `env_ids[i]`.

        Raises:
            ModelMismatch: a wrong shape. ModelOutputError: NaN, infinity, or outside a discrete space. Nothing was
                applied.
        """
        assert self._run_policy is not None
        return self.check.of_model(self._run_policy(env_ids, observations), env_ids)

    def _run_masked(
        self, interface: TakesMasks, env_ids: Sequence[int], observations: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        masks = self.outbox.masks[np.asarray(env_ids, np.intp)] if interface.takes_masks else None
        return interface.run_inference_for(env_ids, observations, action_masks=masks)

    def write_info(self, env_id: int, info: Mapping[str, Any]) -> None:
        """Sends `info` (JSON-able) with this env's next answer; needs FEATURES=INFO in the spec."""
        if "INFO" in self.spec.features:
            self.outbox.infos[env_id] = dict(info)

    def send_event(self, method: int, payload: Any = None) -> bool:
        """Sends the trainer a typed message beside the steps (docs/commands.md); from any thread, also in a tick.

        Args:
            method, payload: as ShmHost.send takes them.

        Returns:
            False: no trainer is here, or it is connected over TCP, which carries no such messages.

        Raises:
            ConfigurationError, RingFull: see ShmHost.send.
        """
        sender = self.sender
        return sender is not None and sender(method, payload)
