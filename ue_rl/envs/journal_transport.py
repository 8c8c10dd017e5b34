"""JournalTransport: any Transport, with a journal of what it was asked and has answered, for runs that are resumed."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.journal import MOST_STEPS, Exchange, ExchangeRecord, LastShown, PresentEpisodes, episode_seed
from ue_rl.envs.replay import draws_of, replay
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Draw, Envs, Options, Params, Seeds, Transport
from ue_rl.system.errors import MalformedMessage

_FORMAT = 2

_log = logging.getLogger("ue_rl.envs.journal")


class _PendingRequest(NamedTuple):
    """What is under way; see Exchange."""

    stepping: tuple[int, ...] | None
    begin: tuple[int, ...]
    actions: bytes


_usual = functools.partial(tuple.__new__, _PendingRequest)  # of a tuple; half the time of _PendingRequest(..)
_NOBODY: frozenset[int] = frozenset()
_NOTHING = _PendingRequest((), (), b"")


class _Beginning(NamedTuple):
    """With what an env was asked to begin its next episode."""

    seed: int | None
    options: Mapping[str, Any] | None
    parameters: Mapping[str, float] | None


class JournalTransport(Transport):
    """Passes everything on, and keeps what an exact resume needs; for engines whose envs hold no agents.

    Where the engine takes seeds, every episode gets one, derived from `seed`, the env's id and the number of its
    episode; those that are given win. Parameters are drawn once for each episode, however often its reset is tried.

    After `resume` the next reset of all envs, and the requests that were recorded since the last `mark`, are answered
    as they were before, without the engine. Envs that could not be brought back then end their episode as if their
    engine had been lost; the log says why.

    Args:
        transport: connected; it stays its owner's.
        seed: of the run.
        most_steps: an episode with more is not kept.

    Attributes:
        transport: that carries the messages; what this class does not have is asked of it.
        buffers: those of the last answer.
        seed: may be changed before the first reset.
        episodes: the present ones.
        lost: env id -> why its episode cannot be continued: it ends at its next step.
        from_record: the last step was answered from the record.
    """

    def __init__(self, transport: Transport, seed: int, most_steps: int = MOST_STEPS) -> None:
        self.transport = transport
        self.handshake = transport.handshake
        self.buffers = transport.buffers
        self.seed = seed
        self.lost: dict[int, str] = {}
        self.from_record = False
        self._spec = spec = transport.spec
        self._takes_seeds = "SEED" in spec.features
        self.episodes = PresentEpisodes(spec, most_steps)
        self._drawn: dict[int, Mapping[str, float] | None] = {}  # for episodes that have not begun yet
        self._rested: frozenset[int] = _NOBODY  # who has not taken the last step of `episodes` yet
        # What was asked and not answered yet.
        self._request = _NOTHING
        self._beginning: dict[int, _Beginning] = {}
        self._begins_all = False
        self._ended: tuple[int, ...] = ()  # envs out of `lost` that are reset instead of stepped
        # What was recorded, and the buffers in which it is given out again.
        self._recording = False
        self._record = ExchangeRecord(LastShown.of(transport.buffers))
        self._own = transport.buffers
        self._plays = False  # the answer to what was asked is in the record
        self._resumed = False  # and no step was taken since
        self._told = False

    def __getattr__(self, name: str) -> Any:
        if name == "transport":  # __init__ has failed
            raise AttributeError(name)
        return getattr(self.transport, name)

    # -- requests

    def send_actions(
        self, actions: NDArray[np.float32], resets: Envs = None, parameters: Params = None, resting: Sequence[int] = ()
    ) -> None:
        """See Transport.send_actions."""
        if resets is None and not len(resting) and not self.lost and not self._record.playing:  # the usual step
            self.transport.send_actions(actions, None, parameters)
            self._request = _usual((None, (), actions.tobytes()))
            self._begins_all = self._resumed = self._plays = False
            return
        begin: tuple[int, ...] = ()
        if resets is not None:
            begin = tuple(resets)
        stepping = None
        if begin or len(resting):
            away = {*begin, *resting}
            stepping = tuple(env for env in range(self._spec.num_envs) if env not in away)
        request = _PendingRequest(stepping, begin, actions.tobytes())
        if self._record.playing and self._is_recorded(request):
            self._plays = True
            return
        beginning: dict[int, _Beginning] = {}
        if begin:
            if parameters is None:
                parameters = self._draw(begin)
            beginning = {env: _Beginning(None, None, (parameters or {}).get(env)) for env in begin}
        lost = set(self.lost)
        if stepping is not None:
            lost.intersection_update(stepping)
        ended = tuple(sorted(lost))
        self.transport.send_actions(actions, [*begin, *ended] or None, parameters, resting)
        self._request = request
        self._beginning = beginning
        self._ended = ended
        self._begins_all = self._resumed = self._plays = False

    def reset(
        self, env_ids: Envs = None, seeds: Seeds = None, options: Options = None, parameters: Params = None
    ) -> None:
        """See Transport.reset."""
        if env_ids is None and self._resumed:
            self._begins_all = self._plays = True
            return
        envs = range(self._spec.num_envs) if env_ids is None else env_ids
        request = _PendingRequest((), tuple(envs), b"")
        if env_ids is not None and self._record.playing and self._is_recorded(request):
            self._begins_all = False
            self._plays = True
            return
        if self._takes_seeds:
            given = [None] * len(envs) if seeds is None else seeds
            own = self._next_seeds(envs)
            seeds = [derived if seed is None else seed for derived, seed in zip(own, given, strict=True)]
        if parameters is None:
            parameters = self._draw(envs)
        self.transport.reset(env_ids, seeds, options, parameters)
        self._request = request
        self._beginning = {
            env: _Beginning(
                None if seeds is None else seeds[place],
                None if options is None else options[place],
                None if parameters is None else parameters.get(env),
            )
            for place, env in enumerate(envs)
        }
        self._ended = ()
        self._begins_all = env_ids is None
        self._plays = False

    def ask_ahead(self, env_ids: Sequence[int], seeds: Seeds = None, parameters: Params = None) -> None:
        """See BaseTransport.ask_ahead; nothing of an engine that is not asked now."""
        if not self._record.playing:
            transport: Any = self.transport
            transport.ask_ahead(env_ids, seeds, parameters)

    def next_seeds(self, envs: Sequence[int]) -> list[int] | None:
        """Those of the next episodes of these envs; None: the engine takes none."""
        if self._takes_seeds:
            return self._next_seeds(envs)
        return None

    def _next_seeds(self, envs: Sequence[int]) -> list[int]:
        return [episode_seed(self.seed, env, self.episodes.numbers[env] + 1) for env in envs]

    def _draw(self, envs: Sequence[int]) -> Params:
        draw = self.transport.draw_parameters
        if draw is None:
            return None
        for env in envs:
            if env not in self._drawn:
                self._drawn[env] = draw(env)
        return {env: self._drawn[env] for env in envs}

    # -- answers

    def receive(self) -> StepBuffers:
        """See Transport.receive."""
        if self._plays:
            self._plays = False
            return self._play()
        buffers = self.transport.receive()
        request = self._request
        if self._ended:
            buffers = self._with_ended(buffers)
        self.buffers = buffers
        if request.stepping is None:
            self.episodes.step(request.actions, buffers.rewards.tobytes())
            self._rested = _NOBODY
            self.from_record = False
        elif request.stepping:
            self._note_part(request.stepping, request, buffers)
            self.from_record = False
        if self._begins_all:
            self.episodes.forget()
            self.lost.clear()
        if self._beginning:
            self._note_begun(buffers)
        if self._recording:
            if self._begins_all:
                self._record = ExchangeRecord(LastShown.of(buffers))
            else:
                self._record.exchanges.append(_exchange(request, buffers))
        return buffers

    def _note_part(self, stepping: Sequence[int], request: _PendingRequest, buffers: StepBuffers) -> None:
        """Some envs have taken a step: the others' part of the last one, or the first part of another."""
        rewards = buffers.rewards.tobytes()
        if self._rested.issuperset(stepping):
            self.episodes.complete_step(request.actions, rewards, stepping)
            self._rested = self._rested.difference(stepping)
        else:
            self.episodes.step(request.actions, rewards)
            self._rested = frozenset(range(self._spec.num_envs)).difference(stepping, request.begin)

    def _note_begun(self, buffers: StepBuffers) -> None:
        for env, beginning in self._beginning.items():
            if env not in buffers.lost:  # else it is asked again, with the same seed and the same parameters
                self._drawn.pop(env, None)
                self.lost.pop(env, None)
                self.episodes.begin(env, *beginning)
        self._beginning = {}

    def _with_ended(self, live: StepBuffers) -> StepBuffers:
        """The answers, with the ends of episodes that could not be brought back: with what was seen of them last."""
        own = self._own
        others = np.ones(self._spec.num_envs, np.bool_)
        others[list(self._ended)] = False
        for name in ("obs", "rewards", "dones", "truncated", "masks", "image"):
            if getattr(live, name) is not None:
                getattr(own, name)[others] = getattr(live, name)[others]
        own.rewards[~others] = 0
        own.dones[~others] = 1
        own.truncated[~others] = 1
        own.infos = dict(live.infos)
        own.lost = {*live.lost, *self._ended}
        for env in self._ended:
            own.infos[env] = {"engine_lost": self.lost.pop(env)}
        self._ended = ()
        return own

    # -- the record

    def mark(self) -> None:
        """What is asked and answered from now on is recorded, until the next mark()."""
        if not self._record.playing:
            self._record = ExchangeRecord(LastShown.of(self.buffers))
        else:
            self._record = self._record.rest(LastShown.of(self.buffers))
        self._recording = True

    def unmark(self) -> None:
        """Nothing is recorded any more."""
        if not self._record.playing:
            self._recording = False
            self._record = ExchangeRecord(self._record.marked)

    @property
    def replaying(self) -> bool:
        """The next request is answered from the record."""
        return self._record.playing

    def _play(self) -> StepBuffers:
        if self._begins_all:
            self._record.marked.put(self._own)
        else:
            exchange = self._record.next
            exchange.put(self._own)
            self._record.advance()
            self._resumed = False
            if exchange.stepping != ():  # a reset belongs to the step before
                self.from_record = True
        self.buffers = self._own
        return self._own

    def _is_recorded(self, request: _PendingRequest) -> bool:
        """Is this the request that the record has next? If not, what it has is worth nothing any more."""
        before = self._record.next
        if request == before[:3]:
            self._begins_all = False
            return True
        if request[:2] != before[:2]:
            self._give_up("the run asks for other steps than before: its options have changed")
            return False
        asked, recorded = (
            np.frombuffer(content, np.float32).reshape(self._spec.num_envs, -1)[_rows_of(request.stepping)]
            for content in (request.actions, before.actions)
        )
        if not np.allclose(asked, recorded, rtol=1e-3, atol=1e-5):
            self._give_up("the policy acts differently than before: its weights, libraries or machine have changed")
            return False
        if not self._told and not np.array_equal(asked, recorded):
            self._told = True
            _log.warning("not exact: this machine computes slightly other actions than the one before")
        self._begins_all = False
        return True

    def _give_up(self, why: str) -> None:
        """All episodes end where they are now."""
        self._record.drop_rest()
        self._resumed = False
        self.lost = dict.fromkeys(range(self._spec.num_envs), why)
        self.episodes.known = [False] * self._spec.num_envs
        _log.warning("%s: the run goes on with fresh episodes", why)

    # -- stopping and going on

    def state(self) -> dict[str, Any]:
        """What `resume` needs in another process, as dicts, tuples, lists, bytes, numbers and texts."""
        marked = self._record.marked if self._recording else LastShown.of(self.buffers)
        return {
            "format": _FORMAT,
            "num_envs": self._spec.num_envs,
            "seed": self.seed,
            "episodes": self.episodes.state(),
            "drawn": dict(self._drawn),
            "draws": draws_of(self.transport),
            "lost": dict(self.lost),
            "marked": tuple(marked),
            "exchanges": list(self._record.exchanges),
        }

    def resume(self, state: Mapping[str, Any], read: Callable[[StepBuffers], object]) -> None:
        """Brings the envs to where they were when `state` was taken, as far as the engine can.

        Args:
            read: makes of an answer what a user sees; it raises MalformedMessage where the last one, which may have
                ended the run, cannot be read. That step is then taken anew.

        Raises:
            ValueError: the state is of another version or number of envs. Also what Transport.receive raises.
        """
        if state["format"] != _FORMAT or state["num_envs"] != self._spec.num_envs:
            raise ValueError("the saved journal is of another version or of another number of envs")
        self.seed = int(state["seed"])
        self.episodes.restore(state["episodes"])
        self._drawn = dict(state["drawn"])
        self.lost = dict(state["lost"])
        self._record = ExchangeRecord(LastShown(*state["marked"]), state["exchanges"])
        self._recording = self._resumed = True
        self._own = own = StepBuffers.of(self._spec)
        self._record.marked.put(own)
        over: set[int] = set()  # envs whose episode had ended, and that had not begun another one
        for fields in self._record.exchanges:
            exchange = Exchange(*fields)
            exchange.put(own)
            stepped = range(self._spec.num_envs) if exchange.stepping is None else exchange.stepping
            over.update(env for env in stepped if own.dones[env])
            over.difference_update(exchange.begin)
            over.update(exchange.lost or ())
        try:
            read(own)
        except MalformedMessage:
            self._record.drop_last_step()
            self._lose(dict.fromkeys(range(self._spec.num_envs), "the last answer could not be read"))
        else:
            self._lose(replay(self.transport, self.episodes, own, over))
        self._record.marked.put(own)
        self.buffers = own

    def _lose(self, why: Mapping[int, str]) -> None:
        """These envs could not be brought back to where they were: their episodes end."""
        self.lost.update(why)
        for env in why:
            self.episodes.known[env] = False
        for reason in dict.fromkeys(why.values()):
            envs = sorted(env for env in why if why[env] == reason)
            whose = f"env {', '.join(map(str, envs[:20]))}"
            if len(envs) == self._spec.num_envs:
                whose = "all envs"
            verb = "begin"
            if len(envs) == 1:
                verb = "begins"
            _log.warning("not exact: %s %s a fresh episode: %s", whose, verb, reason)

    # -- the rest of a Transport

    @property
    def spec(self) -> EnvSpec:
        """See Transport.spec."""
        return self._spec

    @property
    def draw_parameters(self) -> Draw | None:
        """See Transport.draw_parameters."""
        return self.transport.draw_parameters

    @draw_parameters.setter
    def draw_parameters(self, draw: Draw | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.transport.draw_parameters = draw

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        return self._spec

    def call(self, line: str) -> str:
        """See Transport.call."""
        return self.transport.call(line)

    @property
    def commands(self) -> Any:
        """See Transport.commands."""
        return self.transport.commands

    def fail(self, reason: object) -> None:
        """See Transport.fail."""
        self.transport.fail(reason)

    def close(self) -> None:
        """See Transport.close."""
        self.transport.close()

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        return self.transport.describe()


def journal_of(env: Any) -> JournalTransport | None:
    """That of an UnrealVecEnv; None where it keeps none, and of any other env."""
    transport = getattr(getattr(env, "stepper", None), "transport", None)
    if isinstance(transport, JournalTransport):
        return transport
    return None


def _rows_of(stepping: tuple[int, ...] | None) -> Any:
    if stepping is None:
        return slice(None)
    return list(stepping)


def _exchange(request: _PendingRequest, buffers: StepBuffers) -> tuple[Any, ...]:
    """What was asked, and its answer: the fields of an Exchange."""
    envs = None
    if request.stepping is not None and not buffers.lost:  # with an engine rows of others may have changed
        envs = [*request.stepping, *request.begin]
    return (
        *request,
        None if envs is None else tuple(envs),
        _content(buffers.obs, envs),
        _content(buffers.rewards, envs),
        _content(buffers.dones, envs),
        _content(buffers.truncated, envs),
        _content(buffers.masks, envs),
        _content(buffers.image, envs),
        {env: info.copy() for env, info in buffers.infos.items()} if buffers.infos else None,
        tuple(sorted(buffers.lost)) if buffers.lost else None,
    )


def _content(array: NDArray[Any] | None, envs: list[int] | None) -> bytes:
    if array is None:
        return b""
    if envs is None:
        return array.tobytes()
    return array[envs].tobytes()
