"""LockStep: one session of a game as a state machine: what is asked, what is answered, and the tick. No I/O.

A host (bridges/tcp/server.py, bridges/shm/host.py, a test) writes requests into `inbox`, calls `update_rl(delta)` once
per tick, and sends the rows of `outbox` that are marked in `answered`, which it then clears.

Switching between training and inference may come from any thread at any time: it waits for the tick under way, and
whatever was asked before it is void (`switches` tells a host so, and the host tells the trainer by closing).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.action_check import ActionCheck
from ue_rl.bridges.calls import apply_with_resets, blames_options
from ue_rl.bridges.game import EnvIds, Envs, Game, Mode, PerEnv
from ue_rl.bridges.hosting import Pauses, RecordsTicks
from ue_rl.bridges.live_agents import LiveAgents
from ue_rl.bridges.policy import Policy
from ue_rl.protocol.buffers import ActionBatch, Next, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError

_log = logging.getLogger("ue_rl.bridges")
# Attributes of classes are slow to look up, and these are needed in every step.
_NOTHING = ActionBatch.NOTHING
_STEP = ActionBatch.STEP
_RESET = ActionBatch.RESET
_INFERENCE = Mode.INFERENCE


class LockStep:
    """Drives a game, tick by tick, for a trainer or with a policy.

    Args:
        game: whose arrays `configure` makes.

    Attributes:
        inbox: the trainer's requests; written by the host.
        outbox: the states of all envs; written by the game.
        answered: uint8 [num_rows]; 1 = this row of `outbox` is to be sent; cleared by the host.
        check: validates the actions of the trainer and of a model.
        mode: IDLE, TRAINING or INFERENCE.
        ticks: calls of `update_rl` so far.
        paused: the trainer has stopped the game: it stands still between requests, until told so or nobody is there.
        switches: changes of `mode` or of the sizes so far; requests from before a change are void.
        roster: who of the agents can act.
        caller: the thread in which a callback of the game runs right now, None for none.
        policy: of inference mode; None while none was set.
        recorder: is told what is asked and answered in training mode; None as a rule.
        sender: ShmHost.send, or its like; set by a host that can send events, while a trainer is there.
        demo: observations of rows, float32 [n, obs_size] -> the actions, float32 [n, act_size], that are taken in place
            of the trainer's; None as a rule.
        lock: held during ticks and switches; a host in a thread of its own holds it while it uses the arrays.
    """

    inbox: ActionBatch
    outbox: StepBuffers
    answered: NDArray[np.uint8]
    check: ActionCheck
    roster: LiveAgents

    def __init__(self, game: Game) -> None:
        self._game = game
        self._together = game.together
        self._spec: EnvSpec | None = None
        self.mode = Mode.IDLE
        self.ticks = self.switches = 0
        self.paused = False
        self.lock = threading.RLock()  # callbacks may switch too
        self.caller: int | None = None
        self.sender: Callable[[int, Any], bool] | None = None
        self.recorder: RecordsTicks | None = None
        self.policy: Policy | None = None
        self._first_seeds: dict[int, int | None] = {}
        self.demo: Callable[[NDArray[np.float32]], Any] | None = None

    # -- sizes and modes

    def configure(self, spec: EnvSpec) -> None:
        """Allocates the arrays of all envs; a trainer that is connected loses its session."""
        with self.lock:
            self.switches += self._spec is not None
            self._spec = spec
            self.check = ActionCheck(spec)
            self.inbox, self.outbox = ActionBatch.of(spec), StepBuffers.of(spec)
            self.answered = np.zeros(spec.num_rows, np.uint8)
            n, agents = self._shape = spec.num_envs, spec.agents_per_env
            self._agents = bool(spec.groups)
            self._command: NDArray[np.uint8] = self.inbox.command
            self._marks: NDArray[np.uint8] = self.answered
            if self._agents:
                self._command, self._marks = self._command.reshape(n, agents), self._marks.reshape(n, agents)
            self._all: EnvIds = np.arange(n)
            self.roster = LiveAgents(spec, self.outbox, self._all, self._together)
            self._running, self._over = np.zeros((2, n), np.bool_)
            self.forget_requests()

    def start_training(self) -> None:
        """Ticks answer the trainer's requests from now on. Has no effect in training mode; safe at any time."""
        _ = self._game.spec  # raises ConfigurationError while there are no sizes
        with self.lock:
            if self.mode is not Mode.TRAINING:
                self.switch(Mode.TRAINING)

    def start_inference(self, seeds: Sequence[int | None] | None = None) -> None:
        """Ticks ask the policy from now on; every env starts a new episode. See BaseBridge.start_inference.

        Raises:
            ConfigurationError: no policy was set, or the number of seeds is wrong.
        """
        num_envs = self._game.spec.num_envs
        if seeds is not None and len(seeds) != num_envs:
            raise ConfigurationError("there must be one seed per env", field="seeds", expected=num_envs, got=len(seeds))
        if self.policy is None:
            raise ConfigurationError("inference needs a policy", cure="call set_inference_interface() first")
        with self.lock:
            self.switch(Mode.INFERENCE)
            if seeds is not None:
                given = seeds
            else:
                given = ()
            self._first_seeds = {env: None if seed is None else int(seed) for env, seed in enumerate(given)}
            self.policy.forget(None)
            self._over[:] = True

    def switch(self, mode: Mode) -> None:
        """Goes over to `mode`; the lock is held."""
        self.switches += 1
        self.mode = mode
        self.forget_requests()

    def pause(self, paused: bool) -> None:
        """Stops a game that Pauses, or lets it go on. Requests are answered all the same."""
        with self.lock:
            self.paused = paused
            if isinstance(self._game, Pauses):
                self._game.set_paused(paused)

    def forget_requests(self) -> None:
        """The trainer has gone: nothing is asked and nothing is to be sent any more."""
        self.inbox.clear()
        self.check.after_tick(self.inbox)
        self.outbox.infos.clear()
        self.answered[:] = 0
        self._running[:] = False
        if self.recorder is not None:
            self.recorder.session_ends()
        if self.paused:
            try:
                self.pause(False)
            except Exception:  # noqa: BLE001 - logged: the session ends all the same
                _log.exception("the game's set_paused(False) failed")
        self._game.session_ends()

    @property
    def busy(self) -> bool:
        """Is a request still unanswered (an action is running)?"""
        return bool(np.count_nonzero(self.inbox.command))

    # -- ticks

    def update_rl(self, delta: float) -> None:
        """One tick of the engine, see BaseBridge.update_rl."""
        with self.lock:
            self.ticks += 1
            self.caller = threading.get_ident()
            try:
                if self.mode is Mode.TRAINING:
                    if self.paused and not self.busy:
                        return
                    self.check.of_trainer(self.inbox, self.outbox)
                    if self.recorder is not None:
                        self.recorder.asked(self.inbox, self._command)
                    if self.inbox.parameters:
                        apply_with_resets(self._game, self.inbox.parameters, self._shape[1])
                    self.tick_training(delta)
                    if self.recorder is not None:
                        self.recorder.answered(self.outbox, self._command)
                    self.check.after_tick(self.inbox)
                elif self.mode is Mode.INFERENCE:
                    self.tick_inference()
            finally:
                self.caller = None

    def step_all(self, delta: float, envs: Envs | None = None) -> bool:
        """`update_rl` where every env is asked for a step, in training mode, by who holds the lock.

        `inbox.actions` is all that a host has to write.

        Args:
            envs: where the game is `together` and without agents, only these, ascending; None: all.

        Returns:
            True: all have answered and `answered` is clear. False: proceed as after `update_rl`.
        """
        if not self._together or self.demo is not None:
            self.inbox.command[slice(None) if envs is None else envs] = _STEP
            self.update_rl(delta)
            if self.busy:
                return False
            self.answered[:] = 0
            return True
        self.ticks += 1
        self.caller = threading.get_ident()
        try:
            inbox = self.inbox
            check = self.check
            if envs is None:
                asked = self._all
            else:
                asked = envs
            if check.has_choices and (check.masked or not check.all_choices(inbox.actions)):
                # with agents an env has several, and all are asked
                if envs is None:
                    rows = slice(None)
                else:
                    rows = envs
                inbox.command[rows] = _STEP
                check.of_trainer(inbox, self.outbox)
                inbox.command[rows] = _NOTHING
            if self.recorder is not None:
                self.recorder.stepped(inbox, envs)
            if self._agents:
                self._act(asked, inbox.actions)
                self.roster.stepped(asked)
            else:
                self._game.act_in(asked, inbox.actions)
            if self.recorder is not None:
                self.recorder.answered(self.outbox, self._command)
            return True
        finally:
            self.caller = None

    def tick_training(self, delta: float) -> None:
        """Takes the requests of `inbox`, answers what can be answered.

        Where a game is `together`, it takes all steps, then all resets; otherwise one env after the other.
        """
        command = self._command
        together = self._together
        if self._agents:
            asked = command.max(axis=1)
        else:
            asked = command
        kinds = asked.tobytes()  # which is looked through much faster than an array, where caches are cold
        requests: list[tuple[int, Envs]]
        if together and kinds.count(_STEP) == len(kinds):
            requests = [(_STEP, self._all)]
        elif together:
            requests = [(kind, np.flatnonzero(asked == kind)) for kind in (_STEP, _RESET) if kind in kinds]
        else:
            ids = np.flatnonzero(asked)
            requests = list(zip(asked[ids].tolist(), ids.tolist(), strict=True))
        for kind, envs in requests:
            if kind == _RESET:
                self._begin(envs, *self._told(np.atleast_1d(envs)))
            else:
                if together or not self._running[envs]:
                    if self._agents:
                        self.roster.require_all_asked(envs, command)
                    if self.demo is None:
                        actions = self.inbox.actions
                    else:
                        actions = self._decided(envs)
                    self._act(envs, actions)
                if not self._has_ended(envs):
                    continue
                if self.demo is not None:
                    self._tell_taken(envs)
            if envs is self._all:
                rows = slice(None)
            else:
                rows = envs
            command[rows] = _NOTHING
            if self._agents:
                self._marks[rows] = self.roster.states.present[rows]
            else:
                self._marks[rows] = 1

    def begin_ahead(self, envs: Sequence[int], following: Sequence[Next]) -> None:
        """Begins the next episodes of envs whose episode has ended and whose reset was asked ahead; the lock is held.

        Args:
            envs: ascending; not with agents. following: the seed and parameters of each.

        Raises:
            MalformedMessage: a parameter does not exist or is out of range; nothing was begun.
        """
        self.caller = threading.get_ident()
        try:
            given: dict[int, Mapping[str, float]] = {}
            for env, following_one in zip(envs, following, strict=True):
                if following_one != (None, None):  # which holds for all further episodes
                    self.inbox.ahead.pop(env, None)
                if following_one[1]:
                    given[env] = following_one[1]
            if given:
                apply_with_resets(self._game, given, 1)
            nothing: PerEnv = [None] * len(envs)
            if self._together:
                self._begin(np.array(envs), [seed for seed, _ in following], nothing)
            else:
                for env, (seed, _) in zip(envs, following, strict=True):
                    self._begin(env, [seed], [None])
            if self.recorder is not None:
                self.recorder.begun_ahead(envs, following, self.outbox)
        finally:
            self.caller = None

    def tick_inference(self) -> None:
        """State -> policy -> action for every env whose action has ended."""
        out = self.outbox
        agents = self._shape[1]
        together = self._together
        ready = self._all
        if not together:
            for values in (out.rewards, out.dones, out.truncated):
                values[:] = 0
            ready = np.array([env for env in ready.tolist() if not self._running[env] or self._has_ended(env)], np.intp)
        over = ready[self._over[ready]]
        for envs in ([over] if len(over) else []) if together else over.tolist():
            ids = np.atleast_1d(envs)
            self._over[envs] = False
            self._begin(envs, [self._first_seeds.pop(env, None) for env in ids.tolist()], [None] * len(ids))
            assert self.policy is not None
            self.policy.forget((ids[:, None] * agents + np.arange(agents)).ravel().tolist())
        if not len(ready):
            return
        rows = ready
        if self._agents:
            live = np.zeros_like(self.roster.live)
            live[ready] = self.roster.live[ready]
            rows = np.flatnonzero(live)
        if len(rows) == len(self.answered):
            actions = self._decide(out.obs, range(len(rows)))
        else:
            actions = np.zeros_like(self.inbox.actions)
            actions[rows] = self._decide(out.obs[rows], rows.tolist())
        if together:
            groups = [ready]
        else:
            groups = ready.tolist()
        for envs in groups:
            self._act(envs, actions)
        if together:
            self._has_ended(ready)

    # -- what is done with some envs

    def _told(self, envs: EnvIds) -> tuple[PerEnv, PerEnv]:
        """(seeds, options) that came with their resets."""
        inbox = self.inbox
        rows = envs * self._shape[1]
        seeds = [None if seed < 0 else seed for seed in inbox.seeds[rows].tolist()]
        inbox.seeds[rows] = -1
        if inbox.ahead:
            for row in rows.tolist():
                inbox.ahead.pop(row, None)
        return seeds, [inbox.options.pop(row, None) for row in rows.tolist()]

    def _begin(self, envs: Envs, seeds: PerEnv, options: PerEnv) -> None:
        together = self._together
        states = self.roster.states if self._agents else self.outbox
        self._running[envs] = False
        if together or self.mode is Mode.TRAINING:  # in inference mode they say what has ended in this tick
            for values in (states.rewards, states.dones, states.truncated):
                values[envs] = 0
        if self._agents:
            states.present[envs] = 1
        with blames_options(
            next(filter(None, options), None), (int(envs[0]) if together else envs) if len(seeds) == 1 else None
        ):
            self._game.begin_in(envs, seeds, options)
        if not together:
            self._game.read_in(envs, True)
        if self._agents:
            self.roster.begun(envs)

    def _act(self, envs: Envs, actions: NDArray[np.float32]) -> None:
        if self._agents and not (self.roster.everybody and envs is self._all):
            self.roster.require_somebody(envs)
        if not self._together:
            self._running[envs] = True
        self._game.act_in(envs, actions)

    def _has_ended(self, envs: Envs) -> bool:
        """Has the action of `envs` ended? Reads what it brought."""
        if not self._together:
            if self._game.running_in(envs):
                return False
            self._running[envs] = False
            self._game.read_in(envs, False)
        if self._agents:
            self.roster.stepped(envs)
        if self.mode is _INFERENCE:
            if self._agents:
                self._over[envs] = ~self.roster.live[envs].any(axis=-1)
            else:
                self._over[envs] = self.outbox.dones[envs] != 0
        return True

    def _decided(self, envs: Envs) -> NDArray[np.float32]:
        """The inbox's actions, with what the game itself does now in the rows of `envs`."""
        assert self.demo is not None
        rows = np.atleast_1d(envs)
        actions = np.asarray(self.demo(self.outbox.obs[rows].copy()), np.float32).reshape(len(rows), -1)
        self.inbox.actions[rows] = self.check.of_model(actions, rows.tolist())
        return self.inbox.actions

    def _tell_taken(self, envs: Envs) -> None:
        infos = self.outbox.infos
        actions = self.inbox.actions
        for env in np.atleast_1d(envs).tolist():
            infos[env] = {**infos.get(env, {}), "demo_action": actions[env].tolist()}

    def _decide(self, observations: NDArray[np.float32], rows: Sequence[int]) -> NDArray[np.float32]:
        """The policy's actions for `rows`, checked: float32 [n, act_size]."""
        assert self.policy is not None
        return self.check.of_model(self.policy.decide(rows, observations, self.outbox.masks), rows)
