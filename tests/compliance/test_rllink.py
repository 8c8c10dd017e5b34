"""`ue-rl check --rllink`: our own client passes, clients that make a mistake are named."""

from __future__ import annotations

import json
import pickle
import shlex
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
from click.testing import CliRunner

from tests.compliance.test_page import PAGE
from tests.rllink.test_wrong_clients import WRONG
from tests.rllink.wrong_clients import OBS, HandWrittenClient, decoded
from ue_rl.action_spec import ActionSpec
from ue_rl.cli import cli
from ue_rl.compliance.report import Outcome, Report
from ue_rl.compliance.rllink import FAULT_CHECKS, RLlinkOptions, check_rllink
from ue_rl.compliance.rllink_mistakes import RLLINK_MISTAKES, name_of
from ue_rl.errors import UeRlError
from ue_rl.rllink.client import RLlinkClient
from ue_rl.rllink.messages import ServerConfig
from ue_rl.testing import MemoryTransport
from ue_rl.testing.several import Walk

OPTIONS = RLlinkOptions(OBS, ActionSpec.discrete(3), steps=40, wait=2.0, timeout=5.0, late=0.2)


@contextmanager
def in_thread(play: Callable[[int], object], port: int) -> Iterator[None]:
    thread = threading.Thread(target=play, args=(port,), daemon=True)
    thread.start()
    yield
    thread.join(20.0)
    assert not thread.is_alive()


def checked(play: Callable[[int], object], only: Any = (), **options: Any) -> Report:
    return check_rllink(
        RLlinkOptions(**{**vars(OPTIONS), **options}), client=lambda port: in_thread(play, port), only=only
    )


def ours(port: int, dialect: str = "msgpack") -> None:
    transport = MemoryTransport(Walk(3))
    client = RLlinkClient(
        transport, port=port, timeout=0.5, reconnect=0.5, dialect=dialect, said=ServerConfig(60, "tanh")
    )
    with suppress(UeRlError), client:
        client.run(samples=6)


@pytest.mark.parametrize("dialect", ["msgpack", "json"])
def test_our_own_client_passes(dialect: str) -> None:
    report = checked(partial(ours, dialect=dialect), FAULT_CHECKS, obs_size=4, dialect=dialect)
    assert [(f.check, f.text) for f in report.findings if f.outcome in (Outcome.FAIL, Outcome.WARN)] == []
    assert [f.check for f in report.findings] == ["connection", "episodes", *FAULT_CHECKS]
    assert report.count(Outcome.SKIP) == (0 if dialect == "msgpack" else 3)
    assert report.exit_code == 0


def hand_written(port: int, make: Callable[..., HandWrittenClient] = HandWrittenClient, **wrong: Any) -> None:
    with suppress(OSError, ValueError, KeyError):
        make(port, **wrong).play(6)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("a key is missing", "missing-key"), ("no logits", "missing-key"), ("NaN", "bad-array"),
        ("the reset's observation is missing", "bad-array"), ("finalized infos", "finalized-infos"),
        ("a chunk goes on from another observation", "broken-episode"), ("t is the length", "broken-episode"),
        ("the first weights for ever", "wrong-logits"), ("another activation", "wrong-logits"),
        ("log-probabilities of others", "wrong-logp"), ("half a batch", "too-few-steps"),
        ("another weights_seq_no", "wrong-seq"), ("timesteps of the episodes, not the sum", "wrong-count"),
        ("episodes before the config", "asks-too-late"), ("a message of the server's", "unknown-message"),
        ("a binary header", "bad-frame"), ("a header that is too short", "bad-body"),
    ],
)  # fmt: skip
def test_a_mistake_has_its_name(what: str, name: str) -> None:
    report = checked(partial(hand_written, **WRONG[what][0]))
    assert name in report.mistakes, str(report)
    finding = next(f for f in report.findings if f.mistake is not None and f.mistake.name == name)
    assert finding.outcome is Outcome.FAIL
    assert name_of(finding.seen.splitlines()[0]) == name
    assert report.exit_code == 1


class Mistaken(HandWrittenClient):
    """Makes the mistakes that show where the server misbehaves."""

    def __init__(self, how: str, port: int, **options: Any) -> None:
        super().__init__(port, **options)
        self.how, self._seen = how, set[int]()
        self._weights: dict[str, Any] = {}

    def _answer(self, asked: str | None) -> None:
        if self.how == "impatient":
            self._socket.settimeout(0.1)
        try:
            body = self._read(int(self._read(8)))
            message = msgpack.unpackb(body, raw=False, object_hook=decoded, strict_map_key=False)
        except (ValueError, TimeoutError, TypeError):
            if self.how not in ("reads-on", "plays-without-weights"):
                raise
            self._socket.settimeout(0.05)
            with suppress(TimeoutError):
                while self._socket.recv(1 << 16):
                    pass
            self._socket.settimeout(1.0)
            self._weights = self._weights or self._made_up()
            return
        if self.how == "runs-pickles" and "config" in message:
            with suppress(ImportError):  # Ray, of the server that means well
                pickle.loads(message["config"])
        if message["type"] == "SET_STATE":
            self._take(message["state"])

    def _take(self, state: dict[str, Any]) -> None:
        weights = {name: value for name, value in state["rl_module"].items() if "mlp" in name}
        seq = state["weights_seq_no"]
        if self.how == "old-layers" and len(weights) != len(self._weights or weights):
            return
        if self.how == "seq-taken-for-identity" and seq in self._seen:
            return
        self._seen.add(seq)
        self._weights = weights

    def _made_up(self) -> dict[str, Any]:
        layers = {"encoder.encoder.net.mlp.0": (8, OBS), "pi.net.mlp.0": (3, 8)}
        made = {f"{name}.weight": self._rng.normal(size=shape) for name, shape in layers.items()}
        return made | {f"{name}.bias": self._rng.normal(size=shape[0]) for name, shape in layers.items()}

    def _read(self, size: int) -> bytes:
        if self.how in ("plays-without-weights", "reads-on"):
            self._socket.settimeout(0.1)
        return self._socket.recv(size) if self.how == "short-reads" else super()._read(size)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("short-reads", "answers in pieces"), ("impatient", "a state that comes late"),
        ("seq-taken-for-identity", "a sequence number that comes twice"), ("old-layers", "other layers"),
        ("ignores-layers", "layers that nobody knows"), ("plays-without-weights", "no state"),
        ("no-reconnect", "a connection that ends"), ("runs-pickles", "a config that runs a command"),
        ("reads-on", "a header of nine digits"), ("reads-on", "a state of random bytes"),
    ],
)  # fmt: skip
def test_a_mistake_with_a_server_that_misbehaves_has_its_name(name: str, check: str, tmp_path: Path) -> None:
    report = checked(partial(hand_written, make=partial(Mistaken, name)), [check])
    assert report.mistakes == [name], str(report)
    assert report.findings[-1].check == check


def test_nobody_comes() -> None:
    report = checked(lambda port: None, FAULT_CHECKS, wait=0.1)
    assert report.mistakes == ["no-client"]
    assert len(report.findings) == 1


def test_a_client_that_says_nothing() -> None:
    def silent(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=0.5) as client, suppress(TimeoutError):
            client.recv(1)

    assert checked(silent, timeout=0.2).mistakes == ["says-nothing"]


def test_every_name_is_on_the_page_and_in_a_test() -> None:
    text = (PAGE.parent / "rllink.md").read_text("utf-8")
    assert [name for name in RLLINK_MISTAKES if f"`{name}`" not in text] == []


# -- the command


WAIT = ["--start-timeout", "1.5"]


def command(*words: str) -> Any:
    return CliRunner().invoke(cli, ["check", *words], standalone_mode=False)


def test_the_command_with_a_client_that_comes_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    over = threading.Event()

    def play_on(port: int) -> None:
        while not over.wait(0.01):
            hand_written(port, steps=200)

    with in_thread(play_on, port):
        spaces = ["--obs-size", "3", "--act-space", "DISCRETE(3)"]
        result = command("--rllink", str(port), *spaces, "--timeout", "5", "--json")
        over.set()
    report = json.loads(result.output)
    assert result.return_value == report["exit_code"] == 0, result.output
    assert report["summary"] == "13 PASS, 0 WARN, 0 FAIL, 0 SKIP"


def test_the_command_starts_and_ends_a_client(tmp_path: Path) -> None:
    told = tmp_path / "told"
    play = f"import os, sys, time; open({str(told)!r}, 'w').write(f'{{os.getpid()}} {{sys.argv[1]}}'); time.sleep(60)"
    result = command("--rllink", "0", "--client", shlex.join([sys.executable, "-c", play, "{port}"]), *WAIT)
    assert "no-client" in result.output
    pid, port = map(int, told.read_text("utf-8").split())
    assert not psutil.pid_exists(pid)
    assert port > 0


def test_the_command_without_a_client() -> None:
    result = command("--rllink", "0", "--start-timeout", "0.1")
    assert result.return_value == 1
    assert "FAIL  connection: no client connects" in result.output
    assert "      protocol  docs/rllink.md, Clients of your own\n" in result.output
    assert result.output.rstrip().endswith("FAIL  0 PASS, 0 WARN, 1 FAIL, 0 SKIP: no-client")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--client", "x"], "of --rllink PORT"), (["--rllink", "1", "127.0.0.1:7"], "give one of them"),
        (["--rllink", "1", "--engine", "x"], "give one of them"),
        (["--rllink", "5", "--act-space", "CHOICE(2)"], "no space of actions"),
    ],
)  # fmt: skip
def test_a_wrong_command_line(words: list[str], said: str) -> None:
    result = command(*words)
    assert said in str(result.exception)
    assert getattr(result.exception, "exit_code", 2) == 2
