"""LaunchedEngine: an engine that we start, watch, and start again."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ue_rl.connections.base.address import DEFAULT_PORT
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.lifecycle import Life, LifeState
from ue_rl.connections.launching import ports
from ue_rl.connections.launching.keeper import GRACE
from ue_rl.connections.launching.process import EngineProcess, Output, exit_words
from ue_rl.connections.launching.template import Template
from ue_rl.protocol.memory.segment import reclaim_stale
from ue_rl.system.errors import (
    ConfigurationError,
    EngineDisconnected,
    EngineNotStarted,
    EngineTimeout,
    EngineUnreachable,
    UeRlError,
)

_log = logging.getLogger("ue_rl.connections.launching")

_LOOPBACK = ("127.0.0.1", "[::1]")  # where an engine may listen
_PAUSES = (0.01, 0.1)  # seconds between two dials: at first, at last
_LAST_WORDS = 2.0  # seconds; more would delay each loss of an engine that goes on without its connection
_NAME = 100  # characters of a command in messages
_TRIES = 3  # ports that turn out to be taken by somebody else


class LaunchedEngine:
    """An EngineSource that runs a command (ue_rl.connections.engines.source has the contract).

    Args:
        command: a Template, or what makes one. Without {port} the engine must listen on 7777.
        num_envs: for {num_envs}; an engine that announces another number is refused. None: whatever it has.
        seed: for {seed}, see `seed_of`. engine: its number, from 0, for {engine} and messages.
        output: the file that its output is appended to; None: one that is not kept.
        open: makes a connected transport from "tcp://127.0.0.1:PORT"; raises EngineUnreachable, at once, while nobody
            listens there. start_timeout: seconds from the start until it listens.
        find_port: chooses what {port} becomes. usual_port: on which an engine listens whose command has no {port}.
        grace: seconds that it has to end when it is asked to. last_words: the same when it has closed its connection.

    Attributes:
        name: its command as it was started last, cut short. dial: `open`, as given.
        has_own_port: its command takes a port, so that others can run beside it.

    Raises:
        ConfigurationError: a wrong command, or one with a placeholder that has no value.
    """

    def __init__(
        self,
        command: Template | str | Sequence[str],
        num_envs: int | None,
        seed: int | None,
        engine: int,
        output: Path | None,
        open: Callable[[str], BaseTransport],
        start_timeout: float = 120.0,
        *,
        find_port: Callable[[], ports.ReservedPort] = ports.find,
        usual_port: int = DEFAULT_PORT,
        grace: float = GRACE,
        last_words: float = _LAST_WORDS,
    ) -> None:
        if isinstance(command, Template):
            self._template = command
        else:
            self._template = Template(command)
        self._num_envs = num_envs
        self._seed = seed
        self._engine = engine
        for name, value in (("num_envs", num_envs), ("seed", seed)):
            if value is None and self._template.uses(name):
                raise ConfigurationError(
                    f"the command has {{{name}}}, and no {name} was given", field=name, got=self._template.words
                )
        self._output_path = output
        self.dial = open
        self._start_timeout = start_timeout
        self._find_port = find_port
        self._usual_port = usual_port
        self._grace = grace
        self._last_words = last_words
        self._output: Output | None = None
        self._process: EngineProcess | None = None
        self._port: ports.ReservedPort | None = None
        self._stranger = ""  # who has had the port since before it was started
        self._starts = 0
        self._ports_taken = 0  # one after the other
        self._lives = 0
        self._deadline = 0.0
        self._owner = os.getpid()
        self.name = _short(self._template.words)
        self.has_own_port = self._template.uses("port")

    # -- EngineSource

    def start(self, life: Life) -> None:
        """Starts the process and does not wait for it: several engines load at the same time. `open` goes on from here.

        Raises:
            EngineNotStarted: the command cannot be run, or there is no port.
        """
        if self._process is not None:
            return
        self._starts += 1
        which = ""
        if self._starts != 1:
            which = f"start {self._starts}"
        life.to(LifeState.LAUNCHING, which)
        try:
            if self.has_own_port:
                self._port = self._find_port()
            else:
                self._port = ports.take(self._usual_port)
            if self._seed is None:
                seed = None
            else:
                seed = seed_of(self._seed, self._engine, self._lives)
            command = self._template.fill(
                port=self._port.number, num_envs=self._num_envs, seed=seed, engine=self._engine
            )
            self.name = _short(command)
            if not self._output:
                self._output = Output(self._output_path)
            self._output.begin(f"engine {self._engine}, start {self._starts}: {shlex.join(command)}")
            # Asked before it is started: a moment later it may be binding the port itself.
            self._stranger = ports.holder(self._port.number)
            self._process = EngineProcess(command, self._output.file, self._port)
        except BaseException as error:
            self._clean_up(0.0)
            life.to(LifeState.CONNECTION_LOST, str(error))
            raise
        self._deadline = time.monotonic() + self._start_timeout
        life.to(LifeState.LOADING, f"{self.name} (process {self._process.pid})")

    def open(self, life: Life) -> BaseTransport:
        """See EngineSource.open.

        Raises:
            EngineNotStarted: it cannot be started, has ended, or did not listen in time. ConfigurationError: it has
                another number of envs. Also what the given `open` raises.
        """
        while True:
            self.begin(life)
            try:
                with self._failing(life):
                    url, transport = self._dial()
                    return self._accepted(transport, url, life)
            except _PortTaken as taken:
                self._try_another_port(life, str(taken))

    def begin(self, life: Life) -> str:
        """`start` on a port that nobody else has; for whoever dials it himself. `close` ends it.

        Returns:
            "tcp://127.0.0.1:PORT", where it will listen.

        Raises:
            EngineNotStarted: as `open`.
        """
        while True:
            self.start(life)
            if not self._stranger:
                assert self._port is not None
                return f"tcp://{_LOOPBACK[0]}:{self._port.number}"
            self._try_another_port(life, self._stranger)

    @property
    def pid(self) -> int | None:
        """Of its process; None: none was started."""
        if self._process is None:
            return None
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether its process has; one that was not started has, too."""
        return self._process is None or self._process.ended.is_set()

    def last_words(self, within: float = 0.0) -> str:
        """What became of its process and what it printed last; "" where it has not ended within so many seconds."""
        process = self._process
        output = self._output
        if process is None or output is None or not process.ended.wait(within):
            return ""
        return f"the engine {exit_words(process.exit_code)}; {output.last_lines()}"

    def lost(self, error: UeRlError) -> UeRlError:
        """See EngineSource.lost."""
        process = self._process
        output = self._output
        if process is None or output is None or os.getpid() != self._owner:
            return error
        if isinstance(error, EngineDisconnected):
            process.ended.wait(self._last_words)
        ran = not process.ended.is_set()
        process.end(0.0)
        if ran:
            became = "was still running and was killed"
        else:
            became = exit_words(process.exit_code)
        error.message = f"{self._who()}: {error.message}; its process {became}"
        said = output.last_lines()
        slow = isinstance(error, EngineTimeout) and error.cure  # what else is known of it stands in the output
        if slow:
            error.cure = f"{error.cure}. {said[0].upper()}{said[1:]}"
        else:
            error.cure = said
        self._clean_up(0.0)
        return error

    def ask_to_close(self) -> None:
        """Begins what `close` does, and does not wait: several engines end at the same time."""
        if self._process is not None and os.getpid() == self._owner:
            self._process.ask_to_end(self._grace)

    def close(self) -> None:
        """See EngineSource.close."""
        if os.getpid() != self._owner:
            return
        self._clean_up(self._grace)
        if self._output is not None:
            self._output.close()
            self._output = None

    # -- parts of it

    def _who(self) -> str:
        return f"engine {self._engine} ({self.name})"

    @contextmanager
    def _failing(self, life: Life) -> Iterator[None]:
        """Around a part of a start: nothing of one that fails is left."""
        try:
            yield
        except UeRlError as error:
            if life.state in _STARTED:
                late = isinstance(error, EngineTimeout) or time.monotonic() > self._deadline
                self._clean_up(0.0)
                if late:
                    state = LifeState.TIMEOUT
                else:
                    state = LifeState.CONNECTION_LOST
                life.to(state, error.message)
            raise
        except BaseException:
            self._clean_up(0.0)
            raise

    def _try_another_port(self, life: Life, taken: str) -> None:
        """Ends this start. Raises EngineNotStarted: it was the last that could help."""
        self._clean_up(0.0)
        life.to(LifeState.CONNECTION_LOST, taken)
        self._ports_taken += 1
        if self._ports_taken == _TRIES or not self._template.uses("port"):
            self._ports_taken = 0
            raise EngineNotStarted(f"{self._who()} could not have its port: {taken}", fault="caller", field="port")
        life.to(LifeState.CLEANUP)

    def _dial(self) -> tuple[str, BaseTransport]:
        """Dials until it answers; with its address. The connection that it accepts is the session: nobody is probed.

        Between two dials its process is waited for, so that its end is seen at once. What listens may be a forwarder,
        which closes each connection while the game loads: it is dialled again.
        """
        process = self._process
        port = self._port
        assert process is not None
        assert port is not None
        told = False
        pause = _PAUSES[0]
        while True:
            for host in _LOOPBACK:
                url = f"tcp://{host}:{port.number}"
                try:
                    transport = self.dial(url)
                except EngineUnreachable:  # by one that listens, too: it has reset the connection at once
                    continue
                except EngineDisconnected as error:
                    if process.ended.wait(self._last_words):
                        raise self._ended("while it was being connected") from error
                    if not error.unheard or time.monotonic() > self._deadline:
                        raise self.lost(error) from None
                    if not told:
                        told = True
                        _log.warning(
                            "%s closes each connection before a word is said: it is still waited for", self._who()
                        )
                except ConfigurationError:
                    raise
                except UeRlError as error:
                    raise self.lost(error) from None
                else:
                    return url, transport
            if process.ended.wait(pause):
                process.end(0.0)
                if stranger := ports.holder(port.number):
                    raise _PortTaken(stranger)
                raise self._ended("before it listened")
            if time.monotonic() > self._deadline:
                raise EngineNotStarted(
                    f"{self._who()} did not listen on port {port.number} within {self._start_timeout:g} s",
                    fault="engine",
                    cure=self._advice("does the command tell it the port, and is that time enough?"),
                )
            pause = min(pause * 1.2, _PAUSES[1])

    def _accepted(self, transport: BaseTransport, url: str, life: Life) -> BaseTransport:
        """The transport, where its engine is the one that was asked for."""
        self._lives += 1
        self._ports_taken = 0
        try:
            life.to(LifeState.CONNECTING, url)
            announced = transport.connect().num_envs
            if self._num_envs is not None and announced != self._num_envs:
                cure: str | None = f"put {{num_envs}} into the command, or ask for {announced}"
                if self._template.uses("num_envs"):
                    cure = None
                raise ConfigurationError(
                    f"{self._who()} has another number of envs than was asked for",
                    field="num_envs",
                    expected=self._num_envs,
                    got=announced,
                    cure=cure,
                )
            life.to(LifeState.STREAMING, url)
        except BaseException:
            transport.close()
            raise
        return transport

    def _ended(self, when: str) -> EngineNotStarted:
        assert self._process is not None
        first = ""
        if self._process.exit_code == 0:  # as of a script that ends in "&", or of a launcher
            first = "does it go on in the background? The command must stay in the foreground."
        return EngineNotStarted(
            f"{self._who()} {exit_words(self._process.exit_code)}, {when}", fault="engine", cure=self._advice(first)
        )

    def _advice(self, first: str) -> str:
        assert self._output is not None
        said = self._output.last_lines()
        if first:
            return f"{first} {said[0].upper()}{said[1:]}"
        return said

    def _clean_up(self, grace: float) -> None:
        """No process, lock or segment of this start is left."""
        if self._process is not None:
            self._process.end(grace)
            self._process = None
            reclaim_stale()
        if self._port is not None:
            self._port.release()
            self._port = None


def seed_of(seed: int, engine: int, life: int) -> int:
    """For {seed}: the run's own for the first life of engine 0, and numbers of 31 bits, far apart, for all others.

    So engines of several envs, which count on from their seed, share no episodes, and one that is started again does
    not play those that it has played.

    Args:
        seed: of the run. engine: its number, from 0. life: how often it has been started before.
    """
    if engine == life == 0:
        return seed
    drawn = np.random.SeedSequence(seed % 2**64, spawn_key=(engine, life)).generate_state(1, np.uint32)
    return int(drawn[0] >> 1)


def _short(words: list[str]) -> str:
    line = " ".join(shlex.join(words).split())
    if len(line) <= _NAME:
        return line
    return line[:_NAME] + "..."


_STARTED = frozenset((LifeState.LAUNCHING, LifeState.LOADING, LifeState.CONNECTING))


class _PortTaken(Exception):
    """Somebody else has the port: another one may do."""
