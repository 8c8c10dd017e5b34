"""Transport: what an env needs of a connection, whatever carries it. BaseTransport: the life of every connection.

Life of a transport: made -> `connect()` (connects, handshakes, returns the spec) -> any number of
{`send_actions` or `reset`, then `receive`} -> `close()`. At most one request is under way per env.
Whatever escapes while a connection waits or sends (Ctrl-C too) makes it dead: every later call raises
ConnectionUnusable with the reason. A caller's mistake that is found before anything was sent costs nothing.
"""

from __future__ import annotations

import abc
import functools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import Resets, StepBuffers
from ue_rl.errors import (
    ActionError,
    ConfigurationError,
    ConnectionUnusable,
    EngineDisconnected,
    UeRlError,
    UnsupportedByEngine,
    shorten,
)
from ue_rl.forks import notify_of_forks
from ue_rl.json_text import json_text
from ue_rl.session import Event, Session, State
from ue_rl.spec import EnvSpec
from ue_rl.wire.calls import check_call, understood
from ue_rl.wire.handshake import unknown_words
from ue_rl.wire.refusals import nonfinite_action
from ue_rl.wire.settings import check_settings

_log = logging.getLogger("ue_rl.connections")

Seeds = Sequence[int | None] | None
Options = Sequence[Mapping[str, Any] | None] | None
# The parameters that an env is reset with, drawn for it; None: the game's own.
Draw = Callable[[int], "Mapping[str, float] | None"]

_SEEDS = range(2**63)
# Enum members are slow to look up, and these are needed in every step.
_ASK, _ANSWERED, _ASKED = Event.ASK, Event.ANSWERED, State.ASKED
_Self = TypeVar("_Self", bound="BaseTransport")
_Init = TypeVar("_Init", bound=Callable[..., None])


@runtime_checkable
class Transport(Protocol):
    """Moves actions to the engine and states back."""

    @property
    def spec(self) -> EnvSpec:
        """What the handshake agreed on; raises ConnectionUnusable before connect()."""
        ...

    def connect(self) -> EnvSpec:
        """Connect and handshake within the deadline; a second call returns the same spec.

        Raises:
            EngineUnreachable, EngineTimeout, EngineDisconnected, HandshakeError.
        """
        ...

    def send_actions(self, actions: NDArray[np.float32], resets: Sequence[int] | None = None) -> None:
        """Ask every env for one step, or, those in `resets`, for a new episode: one request, one round trip.

        Args:
            actions: float32 [num_rows, act_size], finite, C-contiguous. Rows of envs that are reset are ignored, and,
                with agents, rows of agents that are not there (`buffers.present`) or whose episode is over.
            resets: env ids; None or none: every env takes a step.

        Raises:
            ActionError: they are not; ConfigurationError: a wrong env id, or, with agents, an env in which nobody can
                act any more and that is not reset. Nothing was sent and the connection is as it was.
        """
        ...

    def reset(self, env_ids: Sequence[int] | None = None, seeds: Seeds = None, options: Options = None) -> None:
        """Ask for a reset of `env_ids` (None: all). `seeds` and `options` align with `env_ids`.

        Raises:
            ConfigurationError: an env id, a seed or an option is invalid. UnsupportedByEngine: seeds or options were
                given that the engine did not offer to take. In both cases nothing was sent.
        """
        ...

    def receive(self) -> StepBuffers:
        """Wait until every asked env has answered; the transport's own buffers (copy what you keep).

        A transport of several engines survives the loss of one of them: see StepBuffers.lost.

        Raises:
            EngineTimeout, EngineDisconnected, ProtocolError.
        """
        ...

    def call(self, line: str) -> str:
        """Send a request beside the steps (ue_rl/wire/calls.py), wait for its answer and return that.

        Raises:
            UnsupportedByEngine: the carrier or the engine has no such requests. CommandFailed: the engine refused, with
                its reason; the connection is as it was.
        """
        ...

    def close(self) -> None:
        """Let go of everything; idempotent, never raises."""
        ...

    def describe(self) -> dict[str, str]:
        """Facts for people: address, wiring, kernels, protocol version."""
        ...


class BaseTransport(abc.ABC):
    """The life of a connection, and the checks of what its caller gives it.

    A carrier implements `_open`, `_ask`, `_ask_resets`, `_collect`, `_drop` and `describe`, and `_call` where it can.

    Args:
        timeout: seconds for a step or reset to be answered.
        connect_timeout: seconds for connecting and, again, for the handshake; None: `timeout`.
        wait: keep trying to connect this many seconds while nobody is there, or another trainer is served.

    Attributes:
        buffers: the arrays of the last answer; made by `_open`.
        handshake: the CONFIG line as the engine sent it, "" where the carrier has none; set by `_open`.
        carries: what it is, for error messages.
        draw_parameters: asked with an env id before each of its resets, also those within a step: values for the game's
            parameters that go with the reset, None for none. Set by who randomises the game, see ue_rl.randomize. A
            value that the engine cannot take is a ConfigurationError of that request, before anything is sent.

    Raises:
        ConfigurationError: a deadline is not positive and finite.
    """

    buffers: StepBuffers
    carries = "this connection"
    handshake = ""

    def __init__(self, timeout: float = 30.0, connect_timeout: float | None = None, wait: float = 0.0) -> None:
        for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise ConfigurationError(
                    "a deadline must be positive and finite", fault="caller", field=name, got=seconds
                )
        self.timeout, self.wait = timeout, wait
        self.connect_timeout = timeout if connect_timeout is None else connect_timeout
        self._session = Session()
        self._spec: EnvSpec | None = None
        self._agents = 1
        self.draw_parameters: Draw | None = None
        notify_of_forks(self)

    # -- what a carrier implements

    @abc.abstractmethod
    def _open(self) -> EnvSpec:
        """Connects, shakes hands and makes `buffers`."""

    @abc.abstractmethod
    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        """Sends a step of all envs but those that are reset.

        Calls `check_actions` where its encoder does not check them as strictly.

        Args:
            resets: checked, never of all envs; None in the usual case.

        Raises:
            ActionError: only before anything was sent. Anything else makes the connection dead.
        """

    @abc.abstractmethod
    def _ask_resets(self, resets: Resets) -> None:
        """Sends resets; they were checked.

        Raises:
            ConfigurationError, UnsupportedByEngine: only before anything was sent. Anything else makes the connection
                dead.
        """

    @abc.abstractmethod
    def _collect(self) -> None:
        """Waits until every asked env has answered into `buffers`."""

    def _call(self, line: bytes) -> bytes:
        """Sends a request beside the steps, without its line ending, and waits for its answer, which is returned so."""
        raise UnsupportedByEngine(
            f"{self.carries} has no requests beside the steps",
            fault="caller",
            field=line[:40].decode("ascii", "replace"),
        )

    # -- after a loss

    @property
    def last_number(self) -> int:
        """The highest number that a request had (FEATURES=SEQ, docs/protocol.md, section 5); 0: none had one."""
        return 0

    def replace(self, last_number: int) -> str:
        """Before the first request: this connection takes the place of one to the same engine, which was lost.

        An answer to that one may still come, and must not be taken for one to this.

        Args:
            last_number: of the lost connection.

        Returns:
            what cannot be told of such answers, as a sentence; "" where each is known by its number.

        Raises:
            EngineTimeout, EngineDisconnected, ProtocolError: the engine answered what this one has not asked.
        """
        return ""

    @abc.abstractmethod
    def _drop(self) -> None:
        """Lets go of everything; idempotent, never raises. It may be called from another thread than the others."""

    @abc.abstractmethod
    def describe(self) -> dict[str, str]:
        """See Transport.describe."""

    # -- life

    @property
    def spec(self) -> EnvSpec:
        """See Transport.spec."""
        if self._spec is None:
            self._session.require(_ASK)
        assert self._spec is not None
        return self._spec

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        if self._spec is None:
            self._session.on(Event.CONNECT)
            try:
                spec = self._open()
                self._session.on(Event.CONFIG)
            except BaseException as error:
                self._died(error)
                raise
            self._spec, self._agents = spec, spec.agents_per_env
            for advice in unknown_words(spec):
                _log.warning("%s", advice)
            _log.info("connected: %s", ", ".join(f"{key} {value}" for key, value in self.describe().items()))
        return self._spec

    def close(self) -> None:
        """See Transport.close. Arrays that were given out stay readable."""
        self._session.on(Event.CLOSE)
        self._drop()

    def fail(self, reason: object) -> None:
        """Makes the connection dead because of `reason`: the next use says so."""
        self._session.on(Event.FAIL, reason)
        self._drop()

    def forked(self) -> None:
        """In a forked child: the session is its parent's. `close()` stays allowed, and ends nothing of the parent."""
        error = ConnectionUnusable(
            "it was opened before this process was forked, and is its parent's", fault="caller",
            cure="connect in the process that uses it",
        )  # fmt: skip
        self._session.on(Event.FAIL, error)

    def __enter__(self: _Self) -> _Self:
        """Connects."""
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    # -- requests and answers

    def send_actions(self, actions: NDArray[np.float32], resets: Sequence[int] | None = None) -> None:
        """See Transport.send_actions."""
        if resets is not None and len(resets):
            self._session.require(_ASK)
            check_reset(self.spec, resets, None, None)
            if len(resets) == self.spec.num_envs:
                self.reset()
                return
            self._check_step(actions, resets)
            given: Resets | None = self._resets(list(resets), None, None)
        else:
            given = None
        self._session.on(_ASK)
        try:
            if self.buffers.infos:
                self.buffers.infos.clear()
            self._ask(actions, given)
        except (ActionError, ConfigurationError, UnsupportedByEngine):  # nothing was sent
            self._session.on(Event.WITHDRAW)
            raise
        except BaseException as error:
            self._died(error)
            raise

    def reset(self, env_ids: Sequence[int] | None = None, seeds: Seeds = None, options: Options = None) -> None:
        """See Transport.reset."""
        self._session.require(_ASK)
        seeds, options = _listed("SEED", seeds), _listed("OPTIONS", options)
        check_reset(self.spec, env_ids, seeds, options)
        given = self._resets(env_ids, seeds, options)
        self._session.on(_ASK)
        try:
            self.buffers.infos.clear()
            self._ask_resets(given)
        except (ConfigurationError, UnsupportedByEngine):  # nothing was sent
            self._session.on(Event.WITHDRAW)
            raise
        except BaseException as error:
            self._died(error)
            raise

    def call(self, line: str) -> str:
        """See Transport.call."""
        sent = check_call(line)
        self._session.on(_ASK)
        try:
            answer = self._call(sent)
        except (UnsupportedByEngine, ConfigurationError):  # nothing was sent
            self._session.on(Event.WITHDRAW)
            raise
        except BaseException as error:
            self._died(error)
            raise
        self._session.on(_ANSWERED)
        try:
            return understood(line, answer)
        except EngineDisconnected as error:  # an ERROR line
            self._died(error)
            raise

    def receive(self) -> StepBuffers:
        """See Transport.receive."""
        if self._session.state is not _ASKED:
            self._session.require(_ANSWERED)
        try:
            self._collect()
            self._session.on(_ANSWERED)
        except BaseException as error:
            self._died(error)
            raise
        return self.buffers

    @property
    def commands(self) -> Any:
        """Requests beside the steps and events, see docs/commands.md: a ShmCommands.

        Raises:
            UnsupportedByEngine: over everything but shared memory.
        """
        raise UnsupportedByEngine(
            "commands need shared memory", fault="caller", field="commands", got=self.carries,
            cure="connect with transport='auto' or 'shm' to an engine on this machine that offers shared memory",
        )  # fmt: skip

    # -- helpers

    def _resets(self, env_ids: Sequence[int] | None, seeds: Seeds, options: Options) -> Resets:
        """Draws the parameters; after every check of what was given, so that a refused request draws nothing."""
        draw = self.draw_parameters
        if draw is None:
            return Resets(env_ids, seeds, options)
        envs = range(self.spec.num_envs) if env_ids is None else env_ids
        return Resets(env_ids, seeds, options, [self._draw_checked(draw, int(env)) for env in envs])

    def _draw_checked(self, draw: Draw, env_id: int) -> Mapping[str, float] | None:
        drawn = draw(env_id)
        if drawn:
            check_settings(self.spec.parameters, drawn, env_id)
        return drawn

    def _check_step(self, actions: NDArray[np.float32], begin: Sequence[int]) -> None:
        """What a carrier would refuse of a step in which the envs `begin` are reset.

        Raises:
            ActionError, ConfigurationError: see Transport.send_actions.
        """
        check_actions(self.spec, actions)
        some = self._agents > 1
        if not math.isfinite(np.vdot(actions, actions)):  # a sum of squares that is finite has finite terms
            check_finite(self.spec, actions, begin, live_agents(self.buffers) if some else None)
        if some:
            reset = np.zeros(self.spec.num_envs, np.bool_)
            reset[np.asarray(begin, np.intp)] = True
            self._acting(reset)

    def _expect(self, resets: Resets | None, steps: bool) -> int:
        """Notes in `buffers.pending` whose answers are awaited; of how many envs.

        Args:
            steps: all envs but those in `resets` take a step.

        Raises:
            ConfigurationError: an env with agents is to take a step, but none of them can act any more.
        """
        pending, per_env = self.buffers.pending, self._agents
        env_ids = None if resets is None else resets.env_ids
        everybody = steps or env_ids is None
        if per_env > 1:
            return self._expect_agents(pending.reshape(-1, per_env), env_ids, resets is not None, steps)
        if everybody:
            pending[:] = 1
            return len(pending)
        pending[:] = 0
        pending[np.asarray(env_ids, np.intp)] = 1
        return len(pending) if env_ids is None else len(env_ids)

    def _expect_agents(
        self, pending: NDArray[np.uint8], env_ids: Sequence[int] | None, resets: bool, steps: bool
    ) -> int:
        """`_expect` for [num_envs, agents]: an agent that acts must answer, any other one may turn up (2)."""
        present, dones = self.buffers.present.tobytes(), self.buffers.dones.tobytes()
        if steps and not resets and 0 not in present and 1 not in dones:  # the usual case; much faster than by NumPy
            pending[:] = 1
            return len(pending)
        reset = np.zeros(len(pending), np.bool_)
        if resets:
            reset[slice(None) if env_ids is None else np.asarray(env_ids, np.intp)] = True
        asked = reset | steps
        act = self._acting(reset) if steps else None
        pending[:] = np.where(asked[:, None], 2, 0)
        if act is not None:
            pending[act] = 1
        return int(np.count_nonzero(asked))

    def _acting(self, reset: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which agents take a step where the envs `reset` (bool [num_envs]) do not; bool [num_envs, agents].

        Raises:
            ConfigurationError: none of an env that takes a step.
        """
        act: NDArray[np.bool_] = live_agents(self.buffers).reshape(len(reset), -1) & ~reset[:, None]
        stuck = ~act.any(axis=1) & ~reset
        if stuck.any():
            raise ConfigurationError(
                "nobody in this env can act any more: its episode is over", env_id=int(stuck.argmax()),
                cure="reset it: send_actions(actions, resets=[..]) or reset([..])",
            )  # fmt: skip
        return act

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
        if self._session.state is State.CLOSED or (self._session.state is State.FAILED and not named):
            self._session.require(_ASK)
        self.fail(error if named else f"{type(error).__name__}: {error}")


@contextmanager
def closed_if_it_fails(transport: Transport) -> Iterator[None]:
    """Closes a transport that what stands in the block cannot take over; what is none of a transport is left alone."""
    try:
        yield
    except BaseException:
        if hasattr(transport, "close"):
            transport.close()
        raise


def owns_transport(init: _Init) -> _Init:
    """Of an `__init__(self, transport, ..)` that takes the transport over: where it raises, the transport is closed."""

    @functools.wraps(init)
    def closing(self: Any, *args: Any, **kwargs: Any) -> None:
        with closed_if_it_fails(args[0] if args else kwargs["transport"]):
            init(self, *args, **kwargs)

    return cast(_Init, closing)


def live_agents(buffers: StepBuffers) -> NDArray[np.bool_]:
    """Which rows can act, bool [num_rows]: their agent is there, and its episode is not over."""
    live: NDArray[np.bool_] = (buffers.present != 0) & (buffers.dones == 0)
    return live


def _listed(field: str, values: Any) -> list[Any] | None:
    """Seeds or options as a list, whatever sequence they came in (an array, a tuple); None where there are none."""
    if values is None:
        return None
    try:
        if isinstance(values, Mapping):  # a list of it would be its keys
            raise TypeError
        return list(values) or None
    except TypeError:
        raise ConfigurationError(
            f"{field} is not a sequence", fault="caller", field=field, expected="one entry for each env that is reset",
            got=values, cure=f"pass a list, such as [{shorten(values)}]",
        ) from None  # fmt: skip


def check_reset(spec: EnvSpec, env_ids: Sequence[int] | None, seeds: Seeds, options: Options) -> None:
    """Checks the arguments of a reset.

    Raises:
        ConfigurationError: an env does not exist or is named twice, a seed is not one, an option is no JSON, or seeds
            or options do not align with the envs. UnsupportedByEngine: seeds or options that the engine does not offer
            to take.
    """
    count = spec.num_envs
    if env_ids is not None:
        ids = list(env_ids)
        wrong = [env for env in ids if not isinstance(env, (int, np.integer)) or not 0 <= env < spec.num_envs]
        if wrong or not ids or len(set(ids)) != len(ids):
            raise ConfigurationError(
                "these envs cannot be reset", fault="caller", field="env_ids",
                expected=f"env ids from 0 to {spec.num_envs - 1}, each once", got=wrong or ids,
            )  # fmt: skip
        count = len(ids)
    given: tuple[tuple[str, Sequence[object] | None], ...] = (("SEED", seeds), ("OPTIONS", options))
    for feature, values in given:
        if values is None:
            continue
        if len(values) != count:
            raise ConfigurationError(
                f"{feature} needs one value for each env that is reset", fault="caller", field=feature,
                expected=count, got=len(values), cure="use None for an env without a value",
            )  # fmt: skip
        if feature not in spec.features and any(value is not None for value in values):
            raise UnsupportedByEngine(
                f"the engine does not take {feature} on a reset", fault="caller", field=feature,
                expected=f"FEATURES={feature} in the handshake", got=sorted(spec.features),
                cure="leave it out, or teach the engine to read it",
            )  # fmt: skip
    for seed in seeds or ():
        if seed is not None and (not isinstance(seed, (int, np.integer)) or int(seed) not in _SEEDS):
            raise ConfigurationError(
                "invalid seed", fault="caller", field="seed", expected="an integer from 0 to 2**63 - 1", got=seed
            )
    for place, given_options in enumerate(options or ()):
        if given_options is not None:
            json_text(given_options, "OPTIONS", place if env_ids is None else int(env_ids[place]))


def check_actions(spec: EnvSpec, actions: Any) -> None:
    """Raises ActionError where `actions` is not the array that a transport takes; no other dtype is converted."""
    shape = (spec.num_rows, spec.act_size)
    if not isinstance(actions, np.ndarray) or actions.dtype != np.float32 or actions.shape != shape:
        got = f"{actions.dtype} {actions.shape}" if isinstance(actions, np.ndarray) else type(actions).__name__
        raise ActionError(
            "the actions have a wrong dtype or shape", fault="caller", field="ACT", expected=f"float32 {shape}",
            got=got, cure="ue_rl.envs.actions.ActionWriter makes it, as UnrealVecEnv does",
        )  # fmt: skip
    if not actions.flags.c_contiguous:
        raise ActionError(
            "the actions are not contiguous", fault="caller", field="ACT", cure="pass np.ascontiguousarray(actions)"
        )


def check_finite(
    spec: EnvSpec, actions: NDArray[np.float32], begin: Sequence[int] = (), live: NDArray[np.bool_] | None = None
) -> None:
    """Raises ActionError where a row that takes a step holds a number that is not finite.

    Args:
        actions: float32 [num_rows, act_size]. begin: envs that are reset instead. live: bool [num_rows], agents that
            can act; None where envs have none.
    """
    wrong = ~np.isfinite(actions).all(axis=1).reshape(spec.num_envs, -1)
    wrong[np.asarray(begin, np.intp)] = False
    rows = np.flatnonzero(wrong.reshape(-1) if live is None else wrong.reshape(-1) & live)
    if len(rows):
        row = int(rows[0])
        raise nonfinite_action(actions, row, int(np.isfinite(actions[row]).argmin()), spec)
