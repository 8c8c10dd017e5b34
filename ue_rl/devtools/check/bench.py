"""Bench: what a check works with: the session with the engine, actions for it, and where its findings go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.history import History
from ue_rl.devtools.check.memory_peer import MEMORY, MemoryPeer
from ue_rl.devtools.check.mistakes import MISTAKES
from ue_rl.devtools.check.peer import SILENT, AnsweredStates, Peer, Skip, Wrong
from ue_rl.devtools.check.report import Finding, Verdict
from ue_rl.devtools.check.sampling import Sampler
from ue_rl.devtools.check.text_peer import PER_ENV, SHARED, TextPeer
from ue_rl.devtools.check.wire import ClosedAtOnce, Place
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import printable

_SHOWN = 600
_HASTY = 0.5  # seconds for an answer, once the engine has fallen silent
_BETWEEN = 0.2  # seconds between two tries at the first session
_LISTENS_AGAIN = 1.0  # seconds in which an engine may listen anew after a session
# What the deployed plugin cannot do; with Options.base a WARN. docs/unreal.md, section 3.
LIMITS_OF_BASE = frozenset(
    ("missing-separator", "no-spaces", "serves-once", "short-reads", "two-decimals", "not-version-1")
)


class NewEngine(NamedTuple):
    """Where another process of the engine will listen; has_ended: as in Options."""

    host: str
    port: int
    has_ended: Callable[[], bool]


@dataclass(frozen=True)
class Options:
    """How to check.

    Args:
        timeout: seconds for each answer. patience: seconds that a check may take which waits for something rare, such
            as the end of an episode.
        seed: of the actions, and of the first episode.
        base: the engine is the deployed plugin, or speaks as it does: its known limits are WARN, and nothing is sent
            that it does not know.
        strict: the engine claims version 1 of the protocol: what is only tolerated is FAIL.
        nul_terminated: see TextPeer. token_file: of the token that the engine asks for.
        wait: seconds in which an engine may begin to listen, or close connections before it says a word, as a published
            port does whose game does not listen yet (docker -p, ssh -L).
        has_ended: says whether the engine's process has: then it is no longer waited for. None: nobody knows.
        anew: starts another process of the same engine, and ends it. None: nobody can.
    """

    timeout: float = 2.0
    patience: float = 3.0
    seed: int = 0
    base: bool = False
    strict: bool = False
    nul_terminated: bool | None = None
    token_file: str | PathLike[str] | None = None
    wait: float = 0.0
    has_ended: Callable[[], bool] | None = None
    anew: Callable[[], AbstractContextManager[NewEngine]] | None = None


class Bench:
    """One carrier's sessions.

    Args:
        carrier: SHARED, PER_ENV or MEMORY. peer: a session that is open. dial: makes a new transport; for MEMORY.
        again: the engine has served a session before.

    Attributes:
        check: the name of the check that runs, for its findings.
        findings: of all checks so far.
        states: of the last exchange here; None where there was none in this session.
        speed: name -> number, for the report.
        memo: what one check leaves for another. shared: the same, for all carriers of one run.
        failed: the names of the mistakes that were a FAIL so far, over any carrier.
        fell_silent: an answer did not come once; from the next session on none is waited for so long again.
        losses: sessions that were lost for no reason that has a name.
    """

    def __init__(
        self,
        address: Place | tuple[str, int],
        options: Options,
        carrier: str,
        *,
        peer: TextPeer | None = None,
        dial: Callable[[], Transport] | None = None,
        again: bool = False,
        shared: dict[str, Any] | None = None,
    ) -> None:
        self.address = address
        self.options = options
        self.carrier = carrier
        self._dial = dial
        self.check = ""
        self.findings: list[Finding] = []
        self.speed: dict[str, float] = {}
        self.memo: dict[str, Any] = {}
        self._peer: Peer | None = peer
        self._again = again or peer is not None
        self.states: AnsweredStates | None = None
        self.fell_silent = False
        self.losses = 0
        self._slowest = 0.0
        self.shared: dict[str, Any]
        if shared is None:
            self.shared = {}
        else:
            self.shared = shared
        self.failed: set[str] = self.shared.setdefault("failed", set())
        self._tape: History | None = None
        self._just_reset: set[int] = set()  # envs whose last answer was to a reset
        self._paces: deque[float] = deque(maxlen=21)

    # -- the session

    def peer(self) -> Peer:
        """The session; a new one where there is none.

        Raises:
            Wrong: the engine does not serve one; "serves-once" where it has served one before.
        """
        if self._peer is None:
            try:
                if self._dial is None:
                    self._peer = self._in_text()
                else:
                    self._peer = MemoryPeer(self._dial)
            except Wrong as wrong:
                gone = self._again and wrong.mistake in ("no-handshake", "shm-refused")
                if gone:
                    name = "serves-once"
                else:
                    name = wrong.mistake
                raise Wrong(name, wrong.text, wrong.seen, wrong.env_id) from wrong
            self._again = True
        return self._peer

    def _in_text(self) -> TextPeer:
        options = self.options
        until = time.perf_counter() + (_LISTENS_AGAIN if self._again else options.wait)
        while True:
            try:
                peer = TextPeer(self.address, options.timeout, self.carrier, self._again, options.nul_terminated)
                break
            except OSError as error:
                if time.perf_counter() > until or self._has_ended():
                    name = "not-listening"
                    if self._again:
                        name = "serves-once"
                    raise Wrong(name, f"connecting failed: {error}") from error
            except ClosedAtOnce:
                # An engine that serves env sockets may have taken this connection for one of the trainer before, whose
                # end it had not seen yet. The next trainer comes a moment later, too.
                if time.perf_counter() >= until:
                    raise
            if self._again:
                pause = 0.02
            else:
                pause = _BETWEEN
            time.sleep(pause)
        if self.fell_silent:
            peer.timeout = min(peer.timeout, _HASTY + 3 * self._slowest)
        return peer

    def _has_ended(self) -> bool:
        return self.options.has_ended is not None and self.options.has_ended()

    def text(self) -> TextPeer:
        """The session, where it is in text.

        Raises:
            Skip: it is not. Wrong: as `peer`.
        """
        peer = self.peer()
        if not isinstance(peer, TextPeer):
            raise Skip("it is about text")
        return peer

    def note_unknown(self) -> dict[str, bytes]:
        """Keys of rows that nobody knows, of all sessions so far, each with a line."""
        known: dict[str, bytes] = self.memo.setdefault("unknown keys of rows", {})
        for key, line in getattr(self._peer, "unknown", {}).items():
            known.setdefault(key, line)
        return known

    def drop(self) -> None:
        """Ends the session; the next `peer()` begins another one."""
        if self._peer is not None:
            self._slowest = max(self._slowest, getattr(self._peer, "slowest", 0.0))
            self.note_unknown()
            self._peer.close()
        self._peer = self.states = None
        self._just_reset.clear()
        if self._tape is not None:
            self._tape.cut()

    def anew(self) -> AnsweredStates:
        """New episodes of all envs, of which nothing is known; for a check that does not know what was asked before."""
        self.tape.cut()
        return self.reset()

    def forget(self) -> None:
        """The envs are somewhere, by requests that were not made here: the next step begins new episodes."""
        self.states = None
        if self._tape is not None:
            self._tape.cut()

    @property
    def tape(self) -> History:
        """Of all exchanges by `reset`, `begin`, `step` and `play`."""
        if self._tape is None:
            self._tape = History(self.peer().spec)
        return self._tape

    @cached_property
    def sampler(self) -> Sampler:
        """For the engine's actions."""
        return Sampler(self.peer().spec, self.options.seed)

    # -- what most checks do

    def reset(self, seeded: bool = False) -> AnsweredStates:
        """New episodes of all envs, with seeds of their own where the engine takes seeds and `seeded`."""
        spec = self.peer().spec
        seeds = None
        if seeded and "SEED" in spec.features:
            seeds = [self.options.seed + 1000 + env for env in range(spec.num_envs)]
        return self.begin(seeds=seeds)

    def begin(
        self,
        envs: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> AnsweredStates:
        """Peer.reset, noted."""
        peer = self.peer()
        self.states = peer.reset(envs, seeds, options)
        ids = range(peer.spec.num_envs) if envs is None else envs
        self._just_reset.update(ids)
        self._forget_flags()
        self.tape.add(self.states, self.over(), (), ids, seeded=seeds is not None)
        return self.states

    def play(
        self, actions: NDArray[np.float32], envs: Sequence[int] | None = None, resets: Sequence[int] = ()
    ) -> AnsweredStates:
        """Peer.step, noted; `envs`, None: all but `resets`."""
        peer = self.peer()
        began = time.perf_counter()
        ids = [env for env in range(peer.spec.num_envs) if env not in set(resets)] if envs is None else envs
        self.states = peer.step(actions, ids, resets)
        self._just_reset.difference_update(ids)
        self._just_reset.update(resets)
        self._forget_flags()
        self.tape.add(self.states, self.over(), ids, resets, actions)
        self._paces.append(time.perf_counter() - began)
        return self.states

    @property
    def pace(self) -> float:
        """Seconds that an exchange takes at present, with what is done here about it."""
        if self._paces:
            return sorted(self._paces)[len(self._paces) // 2]
        return 0.1

    def step(self, actions: NDArray[np.float32] | None = None) -> AnsweredStates:
        """A step of all envs, random by default; those whose episode is over get a new one."""
        if self.states is None:
            return self.reset()
        over = self.over()
        apart = bool(self.failed & {"mixed-batch", "partial-batch", "row-order"})
        if len(over) == self.peer().spec.num_envs or (over and apart):
            return self.begin()
        if actions is None:
            chosen = self.sampler.random(self.states)
        else:
            chosen = actions
        return self.play(chosen, resets=over)

    def over(self) -> list[int]:
        """The envs that can only be reset now: their episode, or that of every agent that is there, is over."""
        states = self.states
        spec = self.peer().spec
        if states is None:
            return []
        stuck = ((states.dones != 0) | (states.present == 0)).reshape(spec.num_envs, -1).all(axis=1)
        return [env for env, over in enumerate(stuck.tolist()) if over]

    def _forget_flags(self) -> None:
        """REW and DONE in the answer to a reset mean nothing."""
        assert self.states is not None
        per_env = self.peer().spec.agents_per_env
        rows = (np.array(sorted(self._just_reset), np.intp)[:, None] * per_env + np.arange(per_env)).ravel()
        self.states.rewards[rows] = 0
        self.states.dones[rows] = self.states.truncated[rows] = 0

    def while_there_is_time(self, seconds: float, most: int) -> Iterator[int]:
        """Counts, at most up to `most`, as long as that takes no longer than so many seconds."""
        deadline = time.perf_counter() + seconds
        for n in range(most):
            if time.perf_counter() > deadline:
                return
            yield n

    def needs_right(self, *mistakes: str) -> None:
        """Where one of these was a FAIL, the check that asks cannot say anything.

        Raises:
            Skip.
        """
        wrong = [name for name in mistakes if name in self.failed]
        if wrong:
            raise Skip(f"it needs what failed above: {', '.join(wrong)}")

    @contextmanager
    def provoking(self, mistake: str, by: str = "") -> Iterator[None]:
        """What is wrong within is this mistake, because a check asked for it; not so where it has come before.

        Args:
            by: what was asked, for people.

        Raises:
            Wrong.
        """
        try:
            yield
        except Wrong as wrong:
            if wrong.mistake in self.failed and wrong.mistake not in (*SILENT, "ends-session"):
                raise
            if by:
                text = f"{by}: {wrong.text}"
            else:
                text = wrong.text or wrong.mistake
            raise Wrong(mistake, text, wrong.seen, wrong.env_id) from wrong

    # -- findings

    def passes(self, text: str) -> None:
        """The check has found nothing wrong."""
        self._add(Verdict.PASS, text)

    def skips(self, text: str) -> None:
        """The check says nothing."""
        self._add(Verdict.SKIP, text)

    def warn(self, mistake: str, text: str = "", seen: str = "", env_id: int | None = None) -> str:
        """A mistake with which training goes on; "", so that a check can end with it."""
        return self._add(Verdict.WARN, text, mistake, seen, env_id)

    def tolerate(self, mistake: str, text: str = "", seen: str = "") -> str:
        """A WARN; a FAIL where the engine claims version 1 of the protocol (Options.strict)."""
        if self.options.strict:
            report = self.fail
        else:
            report = self.warn
        return report(mistake, text, seen)

    def fail(self, mistake: str, text: str = "", seen: str = "", env_id: int | None = None) -> str:
        """A mistake after which the session goes on; raise Wrong where it does not. As `warn` "".

        Of the deployed plugin (Options.base) a known limit is a WARN.
        """
        if self._is_of_base(mistake):
            outcome = Verdict.WARN
        else:
            outcome = Verdict.FAIL
        return self._add(outcome, text, mistake, seen, env_id)

    def _is_of_base(self, mistake: str) -> bool:
        return self.options.base and mistake in LIMITS_OF_BASE

    def _add(
        self, outcome: Verdict, text: str, mistake: str | None = None, seen: str = "", env_id: int | None = None
    ) -> str:
        known = None
        if mistake is not None:
            known = MISTAKES[mistake]
        if known is not None:
            if self._is_of_base(known.name):
                known = replace(known, cure="Nothing: a limit of the deployed plugin (docs/unreal.md, section 3).")
            if text:
                text = f"{known.title}: {text}"
            else:
                text = known.title
            if outcome is Verdict.FAIL:
                self.failed.add(known.name)
        text = printable(text, lines=True)
        seen = printable(seen, lines=True)
        if len(seen) > _SHOWN:
            seen = f"{seen[:_SHOWN]}..."
        self.findings.append(Finding(self.check, self.carrier, outcome, text, known, env_id, seen))
        return ""


__all__ = ["MEMORY", "PER_ENV", "SHARED", "Bench", "NewEngine", "Options"]
