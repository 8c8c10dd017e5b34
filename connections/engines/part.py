"""EnginePart: one engine among several: its place in the rows of all, its connection, and its next life."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.lifecycle import Life, LifeState, Listener
from ue_rl.connections.engines.merging import check_alike
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.source import EngineSource
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import (
    ConnectionUnusable,
    HandshakeError,
    ProtocolError,
    RestartsSpent,
    TransportError,
    UeRlError,
    UnsupportedByEngine,
)
from ue_rl.system.room import short_of
from ue_rl.system.timing import SYSTEM_TIMING, Timing

_log = logging.getLogger("ue_rl.connections.engines")

Array = NDArray[Any]
# What an engine may fail with and be started again.
SURVIVABLE = (TransportError, ProtocolError)
_ARRAYS = ("obs", "rewards", "dones", "truncated", "present")


KEPT = 1024  # steps whose latencies are remembered
_RINGS = 1 << 20  # bytes of a segment beside the observations, about


@dataclass(frozen=True)
class EngineFacts:
    """An engine now, for people.

    Attributes:
        name: where it comes from. state: of its life. num_envs: its own, 0 before it was connected. restarts: so far.
    """

    name: str
    state: LifeState
    num_envs: int
    restarts: int


class EnginePart:
    """See the module's docstring.

    Args:
        number: of the engine, from 0. source: where it comes from. restarts: None: its first failure is final.
        listener: told of each change of its life. alone: it is the only one, so messages need not name it.
        timing: of its pauses, and of how long it has played.

    Attributes:
        life: its state. spec: its own; set by the first `open`.
        transport: connected; None while the engine is lost.
        envs: env ids that it has among those of all engines; rows: its rows. Set by `place`.
        news: why it was lost, until the caller has been told; None otherwise. comes_back: what is done about it.
        answered_after: seconds from a step's request to its answer, of the last 1024 steps.
        copies: each array of all engines, its rows of this one, and where they come from.
        asked: env ids of the request under way, as it counts them; None: all. Means something only during a request.
    """

    def __init__(
        self,
        number: int,
        source: EngineSource,
        restarts: Restarts | None,
        listener: Listener | None,
        alone: bool,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self.number = number
        self.source = source
        self._restarts = restarts
        self._alone = alone
        self._timing = timing
        self.life = Life(number, listener)
        self.transport: BaseTransport | None = None
        self.news: str | None = None
        self.comes_back = ""
        self.asked: Sequence[int] | None = None
        self._not_before = 0.0  # seconds of `timing`: the next start
        self._settings: dict[tuple[object, ...], str] = {}
        self.answered_after: deque[float] = deque(maxlen=KEPT)
        self._latest: float | None = None  # the last of these when the present life began
        self._lives = 0
        self._closed = False
        self._last_number = 0  # that a request of any of its connections had (FEATURES=SEQ)
        self._doubted = False
        self._carried = ""  # what the last connection was, see Carrier.carries
        self.envs = range(0)
        self._forget()

    @property
    def name(self) -> str:
        """For messages."""
        return f"engine {self.number} ({self.source.name})"

    @property
    def facts(self) -> EngineFacts:
        """It now."""
        return EngineFacts(self.source.name, self.life.state, len(self.envs), max(0, self._lives - 1))

    def latencies(self) -> NDArray[np.float64]:
        """See EnginesTransport.latencies."""
        return np.array(self.answered_after, np.float64)

    # -- its place

    def place(self, first_env: int, agents: int, buffers: StepBuffers) -> None:
        """Its envs are those from `first_env` on; `buffers` are of all engines, with `agents` rows for each env."""
        self.envs = range(first_env, first_env + self.spec.num_envs)
        self._agents = agents
        self._first_row = first_env * agents
        self.rows = slice(self._first_row, self._first_row + len(self.envs) * agents)
        self._all = buffers
        self.bind()

    def rows_of(self, envs: Sequence[int]) -> list[int]:
        """The rows of these envs, both counted over all engines."""
        per_env = self._agents
        if per_env > 1:
            return [env * per_env + k for env in envs for k in range(per_env)]
        return list(envs)

    def _forget(self) -> None:
        """Lets go of the connection's arrays, which may lie in a segment."""
        self._buffers: StepBuffers | None = None
        self._whole: list[tuple[Array, Array]] = []
        self.copies: list[tuple[Array, Array]] = []

    def bind(self) -> None:
        """Pairs each array of all engines with this one's, which `Carrier.join` may have put elsewhere."""
        mine = self._buffers
        everything = self._all
        assert mine is not None
        arrays = (*_ARRAYS[: None if self.spec.groups else -1], *(("masks",) if everything.masks.size else ()))
        pairs = [(getattr(everything, name), getattr(mine, name)) for name in arrays]
        if everything.image is not None and mine.image is not None:
            pairs.append((everything.image, mine.image))
        self._whole = pairs
        self.copies = [(into[self.rows], source) for into, source in pairs]

    def take(self, only: Sequence[int] | None) -> None:
        """Copies the answers into the arrays of all engines.

        Args:
            only: env ids over all engines; None: all of this engine's.
        """
        if only is None:
            for into, source in self.copies:
                into[...] = source
        else:
            rows = np.asarray(self.rows_of(only), np.intp)
            for into, source in self._whole:
                into[rows] = source[rows - self._first_row]
        assert self._buffers is not None
        infos = self._buffers.infos
        if infos:
            first = self._first_row
            self._all.infos.update({row + first: info for row, info in infos.items()})

    def receive(self, patience: float | None = None) -> StepBuffers:
        """The answer to a request; `patience`: within so many seconds instead of the connection's own deadline."""
        transport = self.transport
        assert transport is not None
        own = transport.timeout
        if patience is None:
            transport.timeout = own
        else:
            transport.timeout = min(own, patience)
        try:
            return transport.receive()
        finally:
            transport.timeout = own

    def tell(self, envs: Sequence[int]) -> None:
        """Says of `envs` that they were lost; their observations stand among those of all engines as they were."""
        everything = self._all
        rows = self.rows_of(envs)
        everything.lost.update(envs)
        everything.rewards[rows] = 0
        everything.dones[rows] = 1
        everything.truncated[rows] = 1
        for row in rows:
            everything.infos[row] = {"engine_lost": self.news}
        self.news = None

    # -- its life

    def start(self) -> None:
        """Lets the source begin with its start, where it can, so that several start at the same time."""
        pause = self._not_before - self._timing.now()
        if pause > 0:
            self._timing.sleep(pause)
        begin = getattr(self.source, "start", None)
        if begin is not None:
            begin(self.life)

    def open(self) -> None:
        """Connects; of another life the spec must be as before.

        Raises:
            TransportError, ProtocolError: see EngineSource.open; it may be tried again after `lost`.
            ConnectionUnusable: it has come back as another game; not to be tried again.
        """
        try:
            transport = self.source.open(self.life)
            spec = transport.connect()
        except SURVIVABLE:
            raise
        except UeRlError as error:
            if not self._lives:
                raise
            if error.field == "IMAGE" and isinstance(error, UnsupportedByEngine):
                what = "the engine has come back without the shared memory that its images need"
                raise ConnectionUnusable(f"{self.name}: {what}", **error.facts(fault="engine")) from error
            raise self._changed(error) from error
        try:
            if self._lives:
                self._check_same(spec)
                self._tell_carrier(transport)
                if not hasattr(self.source, "start"):  # the same process, which may still be busy with old requests
                    self._replace(transport)
            self.spec = spec
            self._buffers = transport.buffers
            for line in self._settings.values():
                transport.call(line)
        except BaseException:
            self._last_number = max(self._last_number, transport.last_number)
            transport.close()
            raise
        self.transport = transport
        self._connected_at = self._timing.now()
        self._carried = transport.carries
        if self._closed:  # meanwhile, by another thread
            transport.close()
        if self.answered_after:
            self._latest = self.answered_after[-1]
        else:
            self._latest = None
        if self._lives:
            self.bind()
        self._lives += 1

    def _tell_carrier(self, transport: BaseTransport) -> None:
        """Says that it has come back over another carrier: the run goes on, faster or slower than before."""
        if transport.carries == self._carried:
            return
        spec = self.spec
        # What the engine said of its offer; else that shared memory has no room for what it would need.
        why = getattr(transport, "refused", "")
        why = why or short_of(4 * spec.num_rows * spec.obs_size + _RINGS)
        reason = "; its log may say why"
        if why:
            reason = f" ({why})"
        _log.warning(
            "%s has come back over %s; before it was %s%s",
            self.name,
            transport.carries,
            self._carried,
            reason,
        )

    def _replace(self, transport: BaseTransport) -> None:
        doubt = transport.replace(self._last_number)
        if doubt and not self._doubted:
            self._doubted = True
            _log.warning("%s does not number its answers (no FEATURES=SEQ): %s", self.name, doubt)

    def _check_same(self, spec: EnvSpec) -> None:
        try:
            check_alike(self.spec, spec, "before", self.name)
            for key, before, now in (
                ("ENV_COUNT", self.spec.num_envs, spec.num_envs),
                ("FEATURES", sorted(self.spec.features), sorted(spec.features)),
            ):
                if before != now:
                    raise HandshakeError(f"{self.name} has come back", field=key, expected=before, got=now)
        except HandshakeError as error:
            raise self._changed(error) from error

    def _changed(self, error: UeRlError) -> ConnectionUnusable:
        facts = error.facts(fault="engine", cure="start the same build of the game again")
        return ConnectionUnusable(f"the engine is not the one that was lost: {error.message}", **facts)

    def lose(self, error: UeRlError) -> None:
        """The engine failed: what is left of it is ended.

        Raises:
            `error`, where nothing is started again. RestartsSpent: it was lost too often.
        """
        if self.life.alive:
            late = isinstance(error, TimeoutError)
            if late:
                state = LifeState.TIMEOUT
            else:
                state = LifeState.CONNECTION_LOST
            self.life.to(state, error.plain())
        played = 0.0
        if self.transport is not None:
            waited = 0.0
            if isinstance(error, TimeoutError):
                waited = self.transport.timeout
            played = max(self._timing.now() - self._connected_at - waited, 0.0)
            self._forget()
            self._last_number = max(self._last_number, self.transport.last_number)
            self.transport.close()
            self.transport = None
        error = self.source.lost(error)
        if self.life.state is not LifeState.CLEANUP:
            self.life.to(LifeState.CLEANUP)
        self._name_it(error)
        try:
            if isinstance(error, RestartsSpent):
                raise error
            if self._restarts is None:
                raise error
            stepped = bool(self.answered_after) and self.answered_after[-1] is not self._latest
            pause = self._restarts.lost(self.number, error, stepped=stepped, played=played)
            self._not_before = self._timing.now() + pause
        except RestartsSpent as spent:
            self.life.to(LifeState.QUOTA_SPENT, spent.plain())
            raise
        self.news = error.plain()
        _forget_frames(error)
        self.comes_back = "dialled again"
        if hasattr(self.source, "start"):  # a process: the cure is where its output lies, and its last lines
            said = [line.strip() for line in (error.cure or "").splitlines()]
            short = " ".join(dict.fromkeys(said[:1] + said[-1:]))
            if short:
                self.comes_back = f"started again; {short}"
            else:
                self.comes_back = "started again"

    @property
    def told(self) -> str:
        """`news`, without a process's command: it is long, and stands in the log already."""
        news = self.news or ""
        if hasattr(self.source, "start"):
            return news.replace(f" ({self.source.name})", "", 1)
        return news

    def _name_it(self, error: UeRlError) -> None:
        """Says which engine it was, and which env among those of all."""
        if self._alone or self.name in error.message:
            return
        error.message = f"{self.name}: {error.message}"
        if error.env_id is not None and self._lives:
            error.env_id += self.envs.start

    def remember(self, key: tuple[object, ...], line: str) -> None:
        """A setting that outlives the engine: it is made again in each further life."""
        self._settings.pop(key, None)
        self._settings[key] = line

    def remembered(self, key: tuple[object, ...]) -> str | None:
        """The setting under this key."""
        return self._settings.get(key)

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        if self.transport is None:
            return {"address": self.source.name}
        return self.transport.describe()

    def ask_to_close(self) -> None:
        """Begins what `close` does, where the source can: several engines end at the same time."""
        ask = getattr(self.source, "ask_to_close", None)
        if ask is not None:
            ask()

    def close(self) -> None:
        """Ends it; idempotent, never raises."""
        self._closed = True
        self._forget()
        if self.transport is not None:
            self.transport.close()
        self.source.close()
        with contextlib.suppress(Exception):  # a listener's
            if self.life.state not in (LifeState.IDLE, LifeState.QUOTA_SPENT):
                if self.life.state is not LifeState.CLEANUP:
                    self.life.to(LifeState.CLEANUP)
                self.life.to(LifeState.IDLE)


def _forget_frames(error: BaseException) -> None:
    """Lets go of what the frames of this error and of its causes hold: connections, and with them mapped segments.

    An error in a frame that is in the error again is freed by the cyclic collector alone, which may be minutes later.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        left += [one.__cause__, one.__context__]
