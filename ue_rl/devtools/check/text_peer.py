"""TextPeer: a session in text, on the shared channel or on env sockets, that keeps the bytes of each exchange.

It writes its own requests, in every spelling that a check asks for; answers are read by the trainer's own reader.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.diagnosing import joined_fields, of_number, of_row, of_stray
from ue_rl.devtools.check.peer import AnsweredStates, Peer, Wrong
from ue_rl.devtools.check.spelling import Spelling, action_rows, plain, reset_row
from ue_rl.devtools.check.wire import Ended, Line, Place, Silent, Wire, closes_in_silence, greet
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import Channel, EnvSpec, EnvType
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.limits import needs_nuls
from ue_rl.protocol.text.notices import notice_of
from ue_rl.protocol.text.refusals import NUMBER_FIELD
from ue_rl.system.errors import UeRlError, shorten

SHARED = "text, shared channel"
PER_ENV = "text, env sockets"
_SHOWN = 400
_REQUESTS_SHOWN = 3
_ACCEPT = 0.3  # seconds more for each env socket: the deployed plugin accepts one in 0.1 s, a busy one later

_RAW_INFO = re.compile(rb"INFO[ \t]*=[^;|]*[^-._~%0-9A-Za-z \t;|]", re.IGNORECASE)
_KEY = re.compile(rb"(?:^|[;|])[ \t]*([A-Za-z_]\w*)[ \t]*=")
_KNOWN = frozenset((b"OBS", b"REW", b"DONE", b"ENV", b"AGENT", b"TRUNC", b"MASK", b"INFO"))

_ESCAPES = {code: repr(chr(code))[1:-1] for code in range(32)}


def first_carrier(spec: EnvSpec) -> str:
    """The wiring that an engine is checked over first: as a trainer chooses it."""
    if spec.env_type is EnvType.RLBASE or spec.groups or spec.channel in (Channel.SHARED, Channel.ANY):
        return SHARED
    return PER_ENV


class TextPeer(Peer):
    """See Peer.

    Args:
        address: of the engine.
        timeout: seconds for each answer.
        carrier: SHARED or PER_ENV; "": what `first_carrier` says.
        again: a session with this engine was there before, so that its handshake needs no diagnosis.
        nul_terminated: a NUL byte behind each request; None: where the engine may be the deployed plugin's SINGLE or
            RLBASE, which takes what an earlier read has left for text without it.

    Attributes:
        spell: how a request's text becomes the pieces that are sent, `pause` seconds apart.
        arrivals: the lines of the last answer, with their times.
        handshake: the line as it came, and `greeted`, the seconds until it did.
        joined: a line came in which nothing separates two fields, b"" for none.
        unknown: keys of rows that nobody knows, each with the first line that had it; INFO where it was not encoded.
        nul: what is sent behind each request.
        slowest: seconds of the answer that took longest.

    Raises:
        Wrong, OSError.
    """

    partial = True

    def __init__(
        self,
        address: Place | tuple[str, int],
        timeout: float,
        carrier: str = "",
        again: bool = False,
        nul_terminated: bool | None = None,
    ) -> None:
        self.timeout = timeout
        self.pause = 0.0
        self.spell: Spelling = plain
        self.wires = [Wire(address, timeout)]
        self.joined = b""
        self.slowest = 0.0
        self.unknown: dict[str, bytes] = {}
        self._address = address
        try:
            self.spec, self.handshake, self.greeted = greet(self.wires[0], timeout, not again)
            self.carrier = carrier or first_carrier(self.spec)
            self._rlbase = self.spec.env_type is EnvType.RLBASE
            if needs_nuls(self.spec, nul_terminated):
                self.nul = b"\0"
            else:
                self.nul = b""
            self._codec = Codec(self.spec)
            self._buffers = StepBuffers.of(self.spec)
            self.arrivals: list[Line] = []
            self._repeated = False  # an answer was that of the request before, once more
            self._numbered = "SEQ" in self.spec.features and not self._rlbase
            self._counts: Counter[Wire] = Counter()  # of the requests of each socket
            self._open: dict[int, int] = {}  # env -> the number of its request
            self._sent: list[str] = []
            self._resets: set[int] = set()
            self._accept_seconds = 0.0
            self._per_env = self.carrier == PER_ENV
            if self._per_env:
                self._env_wires = []
                self._open_env_sockets(address)
            else:
                self._env_wires = [*self.wires]
                if "ERROR" in self.spec.features:
                    self.wires[0].send(b"\n")
            if self._rlbase:
                self._collect_first()
        except BaseException:
            self.close()
            raise

    def _open_env_sockets(self, address: Place | tuple[str, int]) -> None:
        for env in range(self.spec.num_envs):
            try:
                self.wires.append(Wire(address, self.timeout))
            except OSError as error:
                raise Wrong("env-socket-refused", f"connecting failed: {error}", env_id=env) from error
        self._env_wires = self.wires[1:]
        if "ERROR" in self.spec.features:
            for wire in self._env_wires:
                wire.send(b"\n")
        self._accept_seconds = _ACCEPT * self.spec.num_envs

    def _collect_first(self) -> None:
        """The state that an engine of RLBASE sends by itself."""
        try:
            self._collect({0})
        except Wrong as wrong:
            if wrong.mistake == "no-answer":
                raise Wrong("no-first-state", f"none came within {self.timeout:g} s", self.handshake) from wrong
            raise

    # -- Peer

    @property
    def seen(self) -> str:
        """See Peer."""
        came = [_shown(line.data) for line in self.arrivals]
        return "\n".join(
            [
                *(f"> {shorten(line, _SHOWN)}" for line in self._sent),
                *(f"< {shorten(line, _SHOWN)}" for line in came[:_REQUESTS_SHOWN]),
            ]
        )

    def _ask(self, actions: NDArray[np.float32] | None, steps: Sequence[int], resets: Resets) -> AnsweredStates:
        """See Peer. The rows stand in the order of `steps`, those of `resets` behind them."""
        rows = {}
        if actions is not None:
            rows = self.step_rows(actions, steps)
        if resets.env_ids is not None:
            ids = resets.env_ids
        else:
            ids = range(self.spec.num_envs)
        return self.exchange(rows | self.reset_rows(ids, resets.seeds, resets.options))

    def stray(self, seconds: float) -> bytes:
        """See Peer."""
        deadline = time.perf_counter() + seconds
        # Then it may have ended because of an empty line, or of sockets for each env: something to be named.
        only_greeted = not self._sent and (self._per_env or "ERROR" in self.spec.features)
        for wire in self.wires:
            try:
                came = wire.quiet(max(deadline - time.perf_counter(), 0.0))
            except Ended as error:
                if only_greeted:
                    raise self._closed_unasked() from None
                text = "the engine closed the connection between two requests"
                raise Wrong("ends-session", text, error.unread) from None
            if came:
                return came
        return b""

    def unexpected(self, early: bytes, when: str) -> Wrong:
        """For what came where nothing may come; `when`, for people."""
        name, text = of_stray(early, [line.data for line in self.arrivals], self._repeated)
        return Wrong(name, f"{when} {text}", "\n".join([*self.seen.splitlines(), f"< {_shown(early)}"]))

    def close(self) -> None:
        """See Peer."""
        for wire in self.wires:
            wire.close()

    # -- exchanges

    def exchange(self, rows: Mapping[int, Sequence[str]], apart: bool = False) -> AnsweredStates:
        """Asks these envs, each with its rows as they stand here, and waits until each of them has answered.

        Args:
            apart: each env in a line of its own, all of them in one write where they share a wire.

        Raises:
            Wrong.
        """
        began = time.perf_counter()
        self._nothing_is_there()
        self.ask(rows, apart)
        self._collect(set(rows))
        took = time.perf_counter() - began
        self.slowest = max(self.slowest, took)
        return AnsweredStates.of(self._buffers, took)

    def ask(self, rows: Mapping[int, Sequence[str]], apart: bool = False) -> None:
        """Sends a request without waiting; see `exchange`."""
        self._buffers.infos.clear()
        self._resets = {env for env, texts in rows.items() if "RESET" in texts[0].upper()}
        if self._per_env:
            lines = [(self._env_wires[env], self._line(self._env_wires[env], {env: rows[env]})) for env in rows]
        elif apart:
            lines = [(self.wires[0], "\n".join(self._line(self.wires[0], {env: rows[env]}) for env in rows))]
        else:
            lines = [(self.wires[0], self._line(self.wires[0], rows))]
        spelt = [(wire, self.spell(line)) for wire, line in lines]
        self._sent = [_shown(b"".join(pieces)) for _, pieces in spelt[:_REQUESTS_SHOWN]]
        for wire, pieces in spelt:
            self._send(wire, pieces, self.pause)

    def _line(self, wire: Wire, rows: Mapping[int, Sequence[str]]) -> str:
        """One request line for these envs, with its number where the engine echoes numbers."""
        line = self._with_number(wire, "||".join(row for texts in rows.values() for row in texts))
        self._open.update(dict.fromkeys(rows, self._counts[wire]))
        return line

    def _with_number(self, wire: Wire, line: str) -> str:
        self._counts[wire] += 1
        if self._numbered:
            return f"{line};SEQ={self._counts[wire]}"
        return line

    def _nothing_is_there(self) -> None:
        """Raises: Wrong, where something has come since the last answer."""
        for wire in self.wires:
            early = wire.drain().strip()
            if early and notice_of(early.split(b"\n")[0].strip()) is None:
                raise self.unexpected(early, "before the next request")

    def _closed_unasked(self) -> Wrong:
        """What an engine minds that closes a connection before the first request: another session says nothing."""
        self.close()
        if self._per_env and closes_in_silence(self._address, self.timeout, self.spec.num_envs):
            return Wrong("env-socket-refused", "an env socket is closed as soon as it has been accepted")
        if "ERROR" in self.spec.features:
            return Wrong("empty-line-refused", "where FEATURES has ERROR one comes behind the handshake", "> \\n")
        return Wrong("ends-session", "the engine closed the connection before the first request")

    def call(self, line: str) -> bytes:
        """The answer to a call, on the first connection; without its line ending; raises Wrong."""
        line = self._with_number(self.wires[0], line)
        self._sent = [line]
        self.arrivals = []
        self._send(self.wires[0], plain(line))
        try:
            self.arrivals.append(self.wires[0].line(self.timeout))
        except Silent as error:
            raise Wrong(
                "bad-call", f"no answer within {self.timeout:g} s", f"{self.seen}\n< {error.unread!r}"
            ) from None
        except Ended as error:
            raise self._gone(error, set()) from None
        answer = self.arrivals[0].data
        if not self._numbered or notice_of(answer) is not None:
            return answer
        end, number = self._codec.find_number(answer, 0, len(answer))
        if NUMBER_FIELD.search(answer, 0, end):
            number = 0  # there is one that does not stand at the end
        if number != self._counts[self.wires[0]]:
            raise of_number(answer, number, {self._counts[self.wires[0]]}, self.seen, call=True)
        return answer[:end]

    @property
    def max_line(self) -> int:
        """Bytes that a line may have, its line feed included."""
        return self._codec.max_line

    def reset_rows(
        self,
        envs: Sequence[int],
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> dict[int, list[str]]:
        """What `reset` asks: env -> its rows."""
        none = [None] * len(envs)
        all_seeds = seeds
        if not all_seeds:
            all_seeds = none
        all_options = options
        if not all_options:
            all_options = none
        given = zip(envs, all_seeds, all_options, strict=True)
        return {env: [reset_row(self.spec, env, seed, told)] for env, seed, told in given}

    def ask_ahead(self, seeds: Sequence[int | None]) -> None:
        """Asks for the next reset of each env ahead of its episode's end (FEATURES=AUTORESET)."""
        rows = [reset_row(self.spec, env, seed).replace("ACT=", "NEXT=", 1) for env, seed in enumerate(seeds)]
        self._send(self.wires[0], plain("||".join(rows)))

    def begun(self, envs: Sequence[int]) -> AnsweredStates:
        """The first states of these envs, which come behind the answer that has ended their episodes; raises Wrong."""
        began = time.perf_counter()
        self._resets = set(envs)
        self._collect(set(envs))
        return AnsweredStates.of(self._buffers, time.perf_counter() - began)

    def step_rows(self, actions: NDArray[np.float32], envs: Sequence[int]) -> dict[int, list[str]]:
        """What `step` asks: env -> its rows."""
        return {env: action_rows(self.spec, self._buffers, env, actions) for env in envs}

    def send_raw(self, data: bytes) -> None:
        """Sends bytes on the first wire that carries requests."""
        self._sent = [data.decode("utf-8", "backslashreplace")]
        self._send(self._env_wires[0], (data,))

    def _send(self, wire: Wire, pieces: Sequence[bytes], pause: float = 0.0) -> None:
        try:
            wire.send(*pieces[:-1], pieces[-1] + self.nul, pause=pause)
        except Ended as error:
            raise self._gone(error, set()) from None

    def _collect(self, asked: set[int]) -> None:
        last = {line.data for line in self.arrivals}
        self.arrivals = []
        waiting = set(asked)
        deadline = time.perf_counter() + self.timeout + self._accept_seconds
        self._accept_seconds = 0.0
        before = self._expect(asked)
        while waiting:
            for wire, env in self._due(waiting):
                left = deadline - time.perf_counter()
                try:
                    line = wire.line(max(left, 0.0), self._codec.max_line)
                except Silent as error:
                    raise self._silent(error.unread, asked, waiting) from None
                except Ended as error:
                    raise self._gone(error, waiting) from None
                again = line.data in last
                self._repeated |= again
                self._read(line, env, asked, waiting, again)
                still = (self._by_env(before) != 0).any(axis=1) & self._by_env(self._buffers.pending).any(axis=1)
                waiting = {e for e in asked if still[e]}

    def _due(self, waiting: set[int]) -> list[tuple[Wire, int | None]]:
        """The wires to read next, with their envs."""
        if self._per_env:
            return [(self._env_wires[env], env) for env in sorted(waiting)]
        return [(self.wires[0], None)]

    def _read(self, line: Line, env: int | None, asked: set[int], waiting: set[int], again: bool) -> None:
        self.arrivals.append(line)
        data = line.data
        number = 0
        before = self._buffers.pending.copy()
        if not self._rlbase and notice_of(data) is None:
            if self._numbered:
                end, number = self._codec.find_number(data, 0, len(data))
                expected = {self._open[each] for each in (asked if env is None else {env})}
                if number not in expected:
                    raise of_number(data, number, expected, self.seen, again=again)
                data = data[:end]
            if not self.joined and joined_fields(data):
                self.joined = data
            for key in _KEY.findall(data):
                if key.upper() not in _KNOWN or (key.upper() == b"INFO" and _RAW_INFO.search(line.data)):
                    self.unknown.setdefault(key.decode().upper(), line.data)
        try:
            self._codec.decode_states(line.data, self._buffers, env, number=number)
        except UeRlError as error:
            wrong = of_row(error, data, self.spec, asked, asked - waiting)
            if wrong.mistake == "ends-session":  # what was asked says more than the engine's sentence
                wrong.seen = self.seen
            raise wrong from error
        answered = (self._by_env(before) != self._by_env(self._buffers.pending)).any(axis=1)
        for each in asked if number else ():
            if answered[each] and number != self._open[each]:
                raise of_number(data, number, {self._open[each]}, self.seen)

    def _expect(self, asked: set[int]) -> NDArray[np.uint8]:
        """Notes whose answers are awaited: of an agent that may be there 2, of one that acts 1; a copy of that."""
        pending = self._buffers.pending
        buffers = self._buffers
        pending[:] = 0
        live = self._by_env((buffers.present != 0) & (buffers.dones == 0))
        for env in asked:
            acts = True
            if self.spec.groups:
                acts = live[env] & (env not in self._resets)
            self._by_env(pending)[env] = np.where(acts, 1, 2)
        return pending.copy()

    def _by_env(self, rows: NDArray[Any]) -> NDArray[Any]:
        """[num_envs, agents_per_env]: a view of the rows."""
        return rows.reshape(self.spec.num_envs, -1)

    def _silent(self, unread: bytes, asked: set[int], waiting: set[int]) -> Wrong:
        late = sorted(waiting)
        seconds = f"within {self.timeout:g} s"
        rest = ""
        if unread:
            rest = f"\n< {shorten(unread, _SHOWN)}"
        shown = self.seen + rest
        if unread:
            name = "no-newline"
            if b"\r" in unread:
                name = "carriage-return-only"
            return Wrong(name, f"a line had not ended {seconds}", shown, late[0])
        if waiting == asked:
            return Wrong("no-answer", f"none of {len(asked)} envs answered {seconds}", shown)
        return Wrong("env-never-answered", f"envs {late} did not answer {seconds}", shown, late[0])

    def _gone(self, error: Ended, waiting: set[int]) -> Wrong:
        reason = notice_of(error.unread.strip()) or next(
            (found for wire in self.wires if (found := notice_of(wire.drain().strip()))), None
        )
        text = "the engine closed the connection"
        if reason is not None and reason[0] == "ERROR":
            text = f"it says why: {reason[1]}"
        return Wrong("ends-session", text, self.seen, min(waiting, default=None))


def _shown(data: bytes) -> str:
    """A message for people: its last line feed left out, other control characters as escapes."""
    return data.removesuffix(b"\n").decode("utf-8", "backslashreplace").translate(_ESCAPES)
