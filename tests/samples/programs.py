"""Engines of the samples as programs that print `PORT n` when they listen, and end in order on SIGTERM.

Also trainers of an engine on a port of this machine, and what each engine must do with raw lines, whatever language it
is written in: `ask_with_numbers` and what follows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ue_rl
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing.raw_client import RawClient


@contextlib.contextmanager
def running(
    binary: Path,
    *words: str,
    log: list[str] | None = None,
    env: Mapping[str, str] | None = None,
    code: int | None = None,
) -> Iterator[int]:
    """The program's port; afterwards it must still have been alive, and no sanitizer may have found anything.

    Args:
        log: gets what it wrote onto stderr. env: more of its environment. code: the exit code that it must end with.
    """
    more = {**os.environ, **(env or {})}
    with subprocess.Popen(
        [str(binary), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=more
    ) as process:
        assert process.stdout is not None
        try:
            word, _, port = process.stdout.readline().partition(" ")
            assert word == "PORT", process.communicate()[1]
            yield int(port)
            assert process.poll() is None, process.communicate()[1]
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
            if log is not None:
                log.append(said)
            assert "Sanitizer" not in said, said
            assert "runtime error" not in said, said
        assert code in (None, process.returncode), said


def said(*words: str | Path, text: str | None = None, env: Mapping[str, str] | None = None) -> list[str]:
    """The lines of a program that ends by itself, and well.

    Args:
        text: its standard input. env: more of its environment.
    """
    done = subprocess.run(
        [*map(str, words)], input=text, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Trainer(RawClient):
    """A bare socket behind the handshake.

    Attributes:
        handshake: its line.
    """

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), timeout=10)
        try:
            self.handshake = self.line()
            assert self.handshake.startswith("CONFIG:"), self.handshake
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Trainer:
        return self


def connect(port: int, **options: Any) -> ue_rl.UnrealVecEnv:
    return ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, wait=10, **options)


def carrier(port: int, transport: str, **options: Any) -> Any:
    """A transport, for what an env does not show."""
    return open_transport(f"tcp://127.0.0.1:{port}", transport, timeout=20, **options)


def ask_with_numbers(client: RawClient, act: str = "1") -> None:
    """FEATURES=SEQ on the shared channel of an engine of three envs or more, without a camera in env 1.

    Args:
        act: an action.
    """
    resets = "||".join(f"ACT=RESET;ENV={env}" for env in range(3))
    steps = "||".join(f"ACT={act};ENV={env}" for env in range(3))
    assert client.ask(f"{resets};SEQ=1").endswith(";SEQ=1")
    assert client.ask("GET;SEQ=2") == f"{client.ask('GET')};SEQ=2"
    answers = [client.ask(f"{steps};SEQ=3")]
    while sum(answer.count("OBS=") for answer in answers) < 3:
        answers.append(client.line())
    assert all(answer.endswith(";SEQ=3") and answer.count("SEQ") == 1 for answer in answers)
    assert client.ask("SET=nothing:1;SEQ=4").startswith("REFUSED=")
    assert client.ask("RENDER;ENV=1;SEQ=5").endswith(";SEQ=5"), "also where it is refused"
    assert client.ask(f" act = {act} ; env = 0 ; seq = 999999999999999999 \r").endswith(";SEQ=999999999999999999")
    assert "SEQ" not in client.ask(f"ACT={act};ENV=0"), "only what came is echoed"
    refused = client.ask("GET;SEQ=5;SEQ=6")
    assert refused.startswith("REFUSED="), "it stands once"
    assert "SEQ%20stands%20once" in refused, refused
    assert refused.endswith(";SEQ=6")
    assert client.ask("GET;SEQ=0").startswith("REFUSED=")
    assert client.ask("ACT=RESET;ENV=0;SEQ=7").endswith(";SEQ=7"), "it is echoed and never judged"
    client.send(f"ACT={act};ENV=0||ACT={act};ENV=2;SEQ=8\nACT={act};ENV=1;SEQ=9\n")
    answers = []
    while sum(answer.count("OBS=") for answer in answers) < 3:
        answers.append(client.line())
    for answer in answers:  # no line has rows of two requests
        envs, _, number = answer.rpartition(";SEQ=")
        assert ("ENV=1" in envs) == (number == "9"), answers
        assert envs.count("ENV=1") == 0 or envs.count("ENV=") == 1
    client.send(f"ACT={act};ENV=1;SEQ=1000000000000000000\n")
    assert "SEQ" in client.line().partition("ERROR=")[2]


def ask_env_sockets_with_numbers(port: int, envs: int, act: str = "1") -> None:
    """The same on env sockets, whose numbers are counted by themselves; calls on the first connection likewise."""
    with contextlib.ExitStack() as stack:
        admin, *sockets = (stack.enter_context(RawClient(("127.0.0.1", port))) for _ in range(envs + 1))
        admin.line()
        for n, client in enumerate(sockets):
            client.send(f"ACT=RESET;SEQ={10 * n + 1}\n")
        for n, client in enumerate(sockets):
            answer = client.line()
            assert f";ENV={n}" in answer
            assert answer.endswith(f";SEQ={10 * n + 1}")
        assert admin.ask("GET;SEQ=1").endswith(";SEQ=1")
        assert sockets[1].ask(f"ACT={act};SEQ=5").endswith(";SEQ=5")
        assert "SEQ" not in sockets[0].ask(f"ACT={act}")


def start_for_long(port: int, envs: int, seconds: float = 0.25) -> None:
    """The plugin's own trainer against an engine whose patience with strangers is shorter than `seconds`.

    Its first connection says nothing at all, its worker processes connect one by one and speak when all of them run.
    """
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(RawClient(("127.0.0.1", port)))
        assert admin.line().startswith("CONFIG:")
        workers = []
        for _ in range(envs):
            workers.append(stack.enter_context(RawClient(("127.0.0.1", port))))
            time.sleep(seconds)
        stack.enter_context(RawClient(("127.0.0.1", port)))  # a port probe: it says nothing
        time.sleep(seconds)
        assert not any(client.has_data() for client in [admin, *workers])
        for client in workers:
            client.send("ACT=RESET\n")
        for env, client in enumerate(workers):
            assert f";ENV={env}" in client.line()


def give_way(port: int, own: int) -> None:
    """A first connection that never speaks, and `own` of its host that may be its env sockets: others are served."""
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(RawClient(("127.0.0.1", port)))
        assert silent.line().startswith("CONFIG:")
        same = [stack.enter_context(RawClient(("127.0.0.1", port))) for _ in range(own)]
        if not own:
            other = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=("127.0.0.2", 0))
            lines = stack.enter_context(stack.enter_context(other).makefile("rb"))
            assert lines.readline().startswith(b"BUSY;")
            assert lines.readline().startswith(b"CONFIG:")
        for client in same:
            assert client.line().startswith("CONFIG:")
        assert silent.line().startswith("ERROR=it%20has%20said%20nothing")


def give_up(port: int, wait: float = 0.25) -> None:
    """As give_way where patience with env sockets is long: a trainer that has waited in vain was none."""
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(RawClient(("127.0.0.1", port)))
        assert silent.line().startswith("CONFIG:")
        with RawClient(("127.0.0.1", port)) as trainer:
            time.sleep(wait)
            assert not trainer.has_data()
        following = stack.enter_context(RawClient(("127.0.0.1", port)))
        assert following.line().startswith("CONFIG:")
