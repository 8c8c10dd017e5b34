"""check_rllink(): is a client of RLlink right? It plays with a server that checks it, and with servers that misbehave.

    report = check_rllink(RLlinkOptions(obs_size=4, action=ActionSpec.discrete(2), port=5555))

A client plays with RLlinkServer for a few messages; then it meets each fault of such a server, one at a time, in a
session of its own. What it must do there is what keeps a training going, or ends it with a reason.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from ue_rl.action_spec import ActionSpec
from ue_rl.compliance.report import Finding, Outcome, Report
from ue_rl.compliance.rllink_mistakes import RLLINK_MISTAKES, name_of
from ue_rl.testing.rllink_server import RLlinkFault, RLlinkServer

_LOOK = 0.005  # seconds between looks
_SHOWN = 3  # sentences of one mistake
_EPISODES = ("EPISODES", "EPISODES_AND_GET_STATE")


@dataclass(frozen=True)
class RLlinkOptions:
    """How to check.

    Args:
        obs_size, action: of the engine that the client plays. port: where the server listens, on 127.0.0.1.
        dialect: "msgpack" or "json". steps: env-steps that each message must have at least.
        wait: seconds until a client connects, in each session. timeout: seconds for each of its messages.
        messages: of episodes, in the first session. late: seconds that a late state takes.
    """

    obs_size: int
    action: ActionSpec
    port: int = 0
    dialect: str = "msgpack"
    steps: int = 200
    wait: float = 60.0
    timeout: float = 10.0
    messages: int = 3
    late: float = 0.5


class _Wrong(Exception):
    """A check has found a mistake."""

    def __init__(self, name: str, seen: str = "", outcome: Outcome = Outcome.FAIL) -> None:
        super().__init__(name)
        self.name, self.seen, self.outcome = name, seen, outcome


class _Session:
    """One server, and the client that plays with it."""

    def __init__(self, server: RLlinkServer, options: RLlinkOptions, slowest: float, mark: Path) -> None:
        self.server, self.options, self.mark = server, options, mark
        self.idle = min(options.timeout, 3 * slowest + 0.5)  # in which a client that plays on has sent something

    def until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Waits; was it done in time?"""
        give_up = time.monotonic() + seconds
        while not done():
            if time.monotonic() >= give_up:
                return False
            time.sleep(_LOOK)
        return True

    def gone(self) -> bool:
        """It has hung up, and nobody is there."""
        return self.server.clients > 0 and not self.server.connected

    def messages(self, count: int, otherwise: str) -> None:
        """Waits for so many messages of episodes, which must be right.

        Raises:
            _Wrong: `otherwise` where they do not come.
        """
        batches = self.server.batches
        for n in range(len(batches) + 1, count + 1):
            came = self.until(lambda n=n: len(batches) >= n or self.gone(), self.options.timeout)  # type: ignore[misc]
            if len(batches) < n:
                heard = ", ".join(self.server.heard[-6:]) or "nothing"
                how = "it hung up" if came else f"nothing more came within {self.options.timeout:g} s"
                raise _Wrong(otherwise, "\n".join([f"{how} after {heard}", *self.server.mistakes[:_SHOWN]]))

    def plays_on(self) -> bool:
        """Another message of episodes comes on the same connection, as if nothing was wrong."""
        server, before, clients = self.server, len(self.server.batches), self.server.clients
        self.until(lambda: len(server.batches) > before or self.gone() or server.clients > clients, self.idle)
        return len(server.batches) > before and server.clients == clients


def _right(session: _Session) -> str:
    session.messages(2, "short-reads")
    return "2 messages, as if nothing was wrong"


def _late(session: _Session) -> str:
    server, late = session.server, session.options.late
    session.messages(1, "no-episodes")
    heard = len(server.heard)
    session.until(session.gone, late * 0.8)
    if session.gone() or len(server.heard) > heard:
        said = ", ".join(server.heard[heard:]) or "it hung up"
        raise _Wrong("impatient", f"within {late * 0.8:g} s: {said}")
    session.messages(2, "impatient")
    return f"it waited {late:g} s, and went on"


def _repeated(session: _Session) -> str:
    session.messages(3, "seq-taken-for-identity")
    if session.server.mistakes:
        raise _Wrong("seq-taken-for-identity", session.server.mistakes[0])
    return "3 messages, each by the weights that were sent last"


def _layers(session: _Session) -> str:
    session.messages(1, "no-episodes")
    if not session.plays_on():
        return "it was refused, and nothing more was played" if session.gone() else "nothing more was played"
    if session.server.mistakes:
        raise _Wrong("old-layers", session.server.mistakes[0])
    return "the network was rebuilt"


def _unknown_layers(session: _Session) -> str:
    session.messages(1, "no-episodes")
    if session.plays_on():
        raise _Wrong("ignores-layers", "encoder.encoder.net.cnn.0.weight", Outcome.WARN)
    return "it was refused, and nothing more was played" if session.gone() else "nothing more was played"


def _silent(session: _Session) -> str:
    if not session.until(lambda: "GET_STATE" in session.server.heard, session.options.timeout):
        raise _Wrong("asks-too-late", ", ".join(session.server.heard))
    if session.plays_on():
        raise _Wrong("plays-without-weights", ", ".join(session.server.heard))
    return "nothing was played"


def _disconnect(session: _Session) -> str:
    session.messages(1, "no-episodes")
    back = session.until(lambda: session.server.clients > 1, min(session.options.wait, session.options.timeout))
    if not back:
        raise _Wrong("no-reconnect", f"within {session.options.timeout:g} s", Outcome.WARN)
    session.messages(2, "no-reconnect")
    return "it came back, and went on"


def _pickle(session: _Session) -> str:
    session.until(lambda: session.mark.exists() or session.gone(), session.idle)
    if session.mark.exists():
        raise _Wrong("runs-pickles", f"the pickle's command ran: {session.mark.read_text('utf-8').strip()}")
    return "nothing was run"


def _unreadable(session: _Session) -> str:
    session.messages(1, "no-episodes")
    if session.plays_on():
        raise _Wrong("reads-on", ", ".join(session.server.heard[-3:]))
    return "it hung up" if session.gone() else "nothing more was played"


# name, fault, what the client must do, of msgpack alone
_FAULTS: tuple[tuple[str, RLlinkFault, Callable[[_Session], str], bool], ...] = (
    ("answers in pieces", RLlinkFault.PIECES, _right, False),
    ("a state that comes late", RLlinkFault.LATE, _late, False),
    ("a sequence number that comes twice", RLlinkFault.REPEATED, _repeated, False),
    ("other layers", RLlinkFault.LAYERS, _layers, False),
    ("layers that nobody knows", RLlinkFault.UNKNOWN_LAYERS, _unknown_layers, True),
    ("no state", RLlinkFault.SILENT, _silent, False),
    ("a connection that ends", RLlinkFault.DISCONNECT, _disconnect, False),
    ("a config that runs a command", RLlinkFault.TRAP, _pickle, True),
    ("arrays that run a command", RLlinkFault.OBJECTS, _pickle, True),
    ("a header of nine digits", RLlinkFault.NINE_DIGITS, _unreadable, False),
    ("a state of random bytes", RLlinkFault.GARBAGE, _unreadable, False),
)
FAULT_CHECKS = tuple(name for name, *_ in _FAULTS)


def check_rllink(
    options: RLlinkOptions, *, progress: Callable[[Finding], None] | None = None,
    client: Callable[[int], AbstractContextManager[object]] = lambda port: nullcontext(),
    only: Collection[str] = FAULT_CHECKS,
) -> Report:  # fmt: skip
    """Waits for a client on the port, session by session, and says what it does wrong.

    Args:
        progress: called with each finding. client: starts the client for this port, and ends it with the session; the
            default: it comes, and comes again, by itself. only: names of FAULT_CHECKS, behind the first session.

    Raises:
        OSError: nobody can listen on the port.
    """
    run = _Run(options, progress, client)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="ue_rl-") as folder:
        if run.first_session():
            for number, (name, fault, judge, msgpack_only) in enumerate(_FAULTS):
                if name not in only:
                    continue
                if msgpack_only and options.dialect != "msgpack":
                    run.note(name, Outcome.SKIP, "there is no such thing in JSON")
                else:
                    run.fault(name, fault, judge, Path(folder, str(number)))
    run.report.seconds = time.perf_counter() - began
    return run.report


class _Run:
    def __init__(
        self, options: RLlinkOptions, progress: Callable[[Finding], None] | None,
        client: Callable[[int], AbstractContextManager[object]],
    ) -> None:  # fmt: skip
        self.options, self._progress, self._client = options, progress, client
        self.report = Report(f"127.0.0.1:{options.port}")
        self._slowest = 0.0
        self._failed: set[str] = set()

    def note(self, check: str, outcome: Outcome, text: str = "", name: str = "", seen: str = "") -> None:
        """Adds a finding."""
        mistake = RLLINK_MISTAKES[name] if name else None
        text = mistake.title if mistake is not None else text
        finding = Finding(check, f"RLlink, {self.options.dialect}", outcome, text, mistake, seen=seen)
        self.report.findings.append(finding)
        if self._progress is not None:
            self._progress(finding)

    def server(self, fault: RLlinkFault | None = None, mark: Path | None = None) -> RLlinkServer:
        options = self.options
        trap = "exit 1" if mark is None else f"echo ran > '{mark}'"
        return RLlinkServer(
            options.obs_size, options.action, options.steps, dialect=options.dialect, fault=fault, port=options.port,
            delay=options.late if fault is RLlinkFault.LATE else 0.0, trap=trap,
        )  # fmt: skip

    def first_session(self) -> bool:
        """A server without faults; False: there is nobody to check."""
        options, began = self.options, time.monotonic()
        with self.server() as server:
            session = _Session(server, options, 0.0, Path())
            with self._client(server.port):
                if not session.until(lambda: server.clients > 0, options.wait):
                    self.note("connection", Outcome.FAIL, name="no-client", seen=f"within {options.wait:g} s")
                    return False
                self.note("connection", Outcome.PASS, f"a client came after {time.monotonic() - began:.1f} s")
                if not session.until(lambda: bool(server.heard or server.mistakes), options.timeout):
                    self.note("messages", Outcome.FAIL, name="says-nothing", seen=f"within {options.timeout:g} s")
                    return False
                try:
                    for count in range(1, options.messages + 1):
                        before = time.monotonic()
                        session.messages(count, "no-episodes")
                        self._slowest = max(self._slowest, time.monotonic() - before)
                except _Wrong as wrong:
                    if not server.mistakes:
                        self.note("episodes", wrong.outcome, name=wrong.name, seen=wrong.seen)
            self._first_findings(server)
        return bool(server.batches)

    def _first_findings(self, server: RLlinkServer) -> None:
        by_name: dict[str, list[str]] = {}
        for sentence in server.mistakes:
            by_name.setdefault(name_of(sentence), []).append(sentence)
        self._failed = set(by_name)
        for name, sentences in by_name.items():
            self.note("episodes", Outcome.FAIL, name=name, seen="\n".join(sentences[:_SHOWN]))
        if not by_name and server.batches:
            steps, over = sum(server.batches), len(server.finished)
            self.note(
                "episodes", Outcome.PASS,
                f"{len(server.batches)} messages, {steps} env-steps, {over} episodes that ended; the slowest took "
                f"{self._slowest:.2f} s",
            )  # fmt: skip

    def fault(self, name: str, fault: RLlinkFault, judge: Callable[[_Session], str], mark: Path) -> None:
        """One session with a server that misbehaves."""
        options = self.options
        with self.server(fault, mark) as server:
            session = _Session(server, options, self._slowest, mark)
            with self._client(server.port):
                if not session.until(lambda: server.clients > 0, options.wait):
                    self.note(name, Outcome.FAIL, name="no-client", seen=f"no client came within {options.wait:g} s")
                    return
                try:
                    text = judge(session)
                except _Wrong as wrong:
                    self.note(name, wrong.outcome, name=wrong.name, seen=wrong.seen)
                    return
                strange = [each for each in server.mistakes if name_of(each) not in self._failed]
                if strange and fault in (RLlinkFault.PIECES, RLlinkFault.LATE):
                    self.note(name, Outcome.FAIL, name=name_of(strange[0]), seen="\n".join(strange[:_SHOWN]))
                    return
        self.note(name, Outcome.PASS, text)
