"""BaseTransport: the life of every connection, and the checks of what its caller gives it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.carrier import Carrier
from ue_rl.connections.base.checks import acting, check_actions, check_finite, check_reset, expect, listed, live_agents
from ue_rl.connections.base.pending_resets import PendingResets
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.calls import check_call, understood
from ue_rl.protocol.text.connection_state import ConnectionEvent, ConnectionPhase, ConnectionState
from ue_rl.protocol.text.handshake import unknown_words
from ue_rl.protocol.text.settings import check_parameters
from ue_rl.protocol.transport import Draw, Envs, Options, Params, Seeds
from ue_rl.system.errors import (
    ActionError,
    CommandFailed,
    ConfigurationError,
    ConnectionUnusable,
    UeRlError,
    UnsupportedByEngine,
)
from ue_rl.system.forks import notify_of_forks

_log = logging.getLogger("ue_rl.connections")

# Enum members are slow to look up, and these are needed in every step.
_ASK = ConnectionEvent.ASK
_ANSWERED = ConnectionEvent.ANSWERED
_ASKED = ConnectionPhase.ASKED
_Self = TypeVar("_Self", bound="BaseTransport")


class BaseTransport(Carrier):
    """See the module's docstring; how the engine is reached, Carrier says.

    Args:
        timeout: seconds for a step or reset to be answered.
        connect_timeout: seconds for connecting and, again, for the handshake; None: `timeout`.
        wait: keep trying to connect this many seconds while nobody is there, or another trainer is served.

    Attributes:
        timeout: as given; it may be changed between requests.

    Raises:
        ConfigurationError: a deadline is not positive and finite.
    """

    def __init__(self, timeout: float = 30.0, connect_timeout: float | None = None, wait: float = 0.0) -> None:
        for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise ConfigurationError("a deadline must be positive and finite", field=name, got=seconds)
        self.timeout = timeout
        self.wait = wait
        if connect_timeout is None:
            self.connect_timeout = timeout
        else:
            self.connect_timeout = connect_timeout
        self._session = ConnectionState()
        self._spec: EnvSpec | None = None
        self._agents = 1
        self.draw_parameters: Draw | None = None
        self._ahead = PendingResets()
        notify_of_forks(self)

    # -- what is asked ahead, or of several at once

    def ask_ahead(self, env_ids: Sequence[int], seeds: Seeds = None, parameters: Params = None) -> None:
        """From the next step on the engine begins the next episodes of these envs by itself, when the present ones end.

        `reset` then needs no round trip, where it asks for the same. With a seed or parameters it is said for each
        episode; without, once for all that follow. A reset that is asked of the env voids it. Only where `asks_ahead`.

        Args:
            env_ids, seeds, parameters: as for `reset`, but nothing is drawn here.

        Raises:
            ConfigurationError, UnsupportedByEngine: as `reset`; nothing is asked ahead.
        """
        ahead = self._ahead
        if ahead.begun:
            self._drop_begun()
        following = ahead.new(env_ids, seeds, parameters)
        if following:
            self._ask_ahead(following)
            ahead.asked.update(following)

    def _drop_begun(self) -> None:
        """Nobody has asked for the first observations of episodes that have begun."""
        begun = self._ahead.begun
        self._ahead.begun = {}
        self._take_begun(list(begun))

    def was_asked(self, left: bytes = b"") -> None:
        """`BatchedStep.ask` has asked for a step here, and from now on this connection goes on by itself.

        Args:
            left: what is still to be sent.
        """
        self._session.on(_ASK)
        try:
            self.buffers.infos.clear()
            self._finish_asking(left)
        except BaseException as error:
            self._died(error)
            raise

    # -- life

    @property
    def spec(self) -> EnvSpec:
        """See Transport.spec."""
        if self._spec is None:
            self._session.require(_ASK)
        assert self._spec is not None
        return self._spec

    @property
    def awaited_rows(self) -> int:
        """Rows that were asked and are not answered yet; 0 between two requests."""
        if self._session.state is not ConnectionPhase.ASKED:
            return 0
        return int(np.count_nonzero(self.buffers.pending))

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        if self._spec is None:
            self._session.on(ConnectionEvent.CONNECT)
            try:
                spec = self._open()
                self._session.on(ConnectionEvent.CONFIG)
            except BaseException as error:
                self._died(error)
                raise
            self._spec = spec
            self._agents = spec.agents_per_env
            for advice in unknown_words(spec):
                _log.warning("%s", advice)
            _log.info("connected: %s", ", ".join(f"{key} {value}" for key, value in self.describe().items()))
        return self._spec

    def close(self) -> None:
        """See Transport.close. Arrays that were given out stay readable."""
        self._session.on(ConnectionEvent.CLOSE)
        self._drop()

    def fail(self, reason: object) -> None:
        """See Transport.fail."""
        self._session.on(ConnectionEvent.FAIL, reason)
        self._drop()

    def forked(self) -> None:
        """In a forked child: the session is its parent's. `close()` stays allowed, and ends nothing of the parent."""
        error = ConnectionUnusable(
            "it was opened before this process was forked, and is its parent's",
            fault="caller",
            cure="connect in the process that uses it",
        )
        self._session.on(ConnectionEvent.FAIL, error)

    def __enter__(self: _Self) -> _Self:
        """Connects."""
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    # -- requests and answers

    def send_actions(
        self, actions: NDArray[np.float32], resets: Envs = None, parameters: Params = None, resting: Sequence[int] = ()
    ) -> None:
        """See Transport.send_actions."""
        if (resets is not None and len(resets)) or len(resting):
            self._session.require(_ASK)
            begin: Sequence[int]
            if resets is None:
                begin = []
            else:
                begin = list(resets)
            others: Sequence[int] = [*begin, *resting]
            check_reset(self.spec, others, None, None)
            if len(others) == self.spec.num_envs:
                envs = None
                if len(resting):
                    envs = begin
                self.reset(envs, parameters=parameters)
                return
            self._check_step(actions, others)
            given: Resets | None = replace(self._resets(begin, None, None, parameters), resting=resting)
        else:
            begin = ()
            others = ()
            given = None
        self._session.on(_ASK)
        try:
            if self._ahead.asked or self._ahead.begun:
                self._ask_behind_ahead(begin, others)
            if self.buffers.infos:
                self.buffers.infos.clear()
            self._ask(actions, given)
        except (ActionError, ConfigurationError, UnsupportedByEngine):  # nothing was sent
            self._session.on(ConnectionEvent.WITHDRAW)
            raise
        except BaseException as error:
            self._died(error)
            raise

    def reset(
        self, env_ids: Envs = None, seeds: Seeds = None, options: Options = None, parameters: Params = None
    ) -> None:
        """See Transport.reset."""
        self._session.require(_ASK)
        seeds = listed("SEED", seeds)
        options = listed("OPTIONS", options)
        check_reset(self.spec, env_ids, seeds, options)
        given = self._resets(env_ids, seeds, options, parameters)
        self._session.on(_ASK)
        try:
            self.buffers.infos.clear()
            left: Resets | None = given
            if self._ahead.asked or self._ahead.begun:
                self._ahead.standing = None
                left = self._ahead.less_begun(given, self.buffers, self._take_begun)
            if left is not None:
                self._ask_resets(left)
        except (ConfigurationError, UnsupportedByEngine):  # nothing was sent
            self._ahead.kept = None
            self._session.on(ConnectionEvent.WITHDRAW)
            raise
        except BaseException as error:
            self._died(error)
            raise

    def call(self, line: str) -> str:
        """See Transport.call."""
        check_call(line)
        self._session.on(_ASK)
        try:
            if self._ahead.begun:
                self._drop_begun()
            answer = self._answer(line)
        except (CommandFailed, UnsupportedByEngine, ConfigurationError):  # it is as it was
            self._session.on(ConnectionEvent.WITHDRAW)
            raise
        except BaseException as error:
            self._died(error)
            raise
        self._session.on(_ANSWERED)
        return answer

    def _answer(self, line: str) -> str:
        """The answer to a call, of this engine."""
        return understood(line, self._call(line.encode("ascii")))

    def receive(self) -> StepBuffers:
        """See Transport.receive."""
        if self._session.state is not _ASKED:
            self._session.require(_ANSWERED)
        try:
            if self._ahead.kept is None:
                self._collect()
            else:
                self._ahead.collect(self.buffers, self._collect)
            if self._ahead.asked:
                self._ahead.note_ended(self.buffers)
            self._session.on(_ANSWERED)
        except BaseException as error:
            self._died(error)
            raise
        return self.buffers

    @property
    def commands(self) -> Any:
        """See Transport.commands."""
        raise UnsupportedByEngine(
            "commands need shared memory",
            field="commands",
            got=self.carries,
            cure="connect with transport='auto' or 'shm' to an engine on this machine that offers shared memory",
        )

    # -- helpers

    def _ask_behind_ahead(self, begin: Sequence[int], standing: Sequence[int]) -> None:
        """Before a step, while something is asked ahead: envs in `begin` are reset, those in `standing` do not step."""
        if self._ahead.begun:
            self._drop_begun()
        for env in begin:
            self._ahead.asked.pop(env, None)
        self._ahead.standing = standing

    def _resets(self, env_ids: Sequence[int] | None, seeds: Seeds, options: Options, parameters: Params) -> Resets:
        """Draws parameters where none are given; after all other checks, so that a refused request draws nothing."""
        if env_ids is not None:
            envs = env_ids
        else:
            envs = range(self.spec.num_envs)
        if parameters is None:
            if self.draw_parameters is None:
                return Resets(env_ids, seeds, options)
            parameters = self._drawn(envs, self.draw_parameters)
        for env in envs:
            chosen = parameters.get(env) or {}
            check_parameters(self.spec.parameters, chosen, "SET", int(env))
        return Resets(env_ids, seeds, options, [parameters.get(env) for env in envs])

    def _drawn(self, envs: Sequence[int], draw: Draw) -> Mapping[int, Mapping[str, float] | None]:
        return {env: draw(int(env)) for env in envs}

    def _check_step(self, actions: NDArray[np.float32], begin: Sequence[int]) -> None:
        """What a carrier would refuse of a step in which the envs `begin` are reset."""
        check_actions(self.spec, actions)
        some = self._agents > 1
        if not math.isfinite(np.vdot(actions, actions)):  # a sum of squares that is finite has finite terms
            live = None
            if some:
                live = live_agents(self.buffers)
            check_finite(self.spec, actions, begin, live)
        if some:
            reset = np.zeros(self.spec.num_envs, np.bool_)
            reset[np.asarray(begin, np.intp)] = True
            acting(self.buffers, reset)

    def expect_answers(self, resets: Resets | None, steps: bool) -> int:
        """For carriers: what is awaited from now on; see ue_rl.connections.base.checks.expect."""
        return expect(self.buffers, self._agents, resets, steps)

    def _died(self, error: BaseException) -> None:
        """Makes the connection dead because of what escaped.

        Raises:
            ConnectionUnusable: another thread, or a signal's handler, has closed the connection meanwhile: `error` is
                only what this thread saw of that.
        """
        if not isinstance(error, Exception):
            self.fail(f"interrupted ({type(error).__name__}) while waiting for the engine")
            return
        named = isinstance(error, UeRlError)
        if self._session.state is ConnectionPhase.CLOSED or (
            self._session.state is ConnectionPhase.FAILED and not named
        ):
            self._session.require(_ASK)
        self.fail(error if named else f"{type(error).__name__}: {error}")
