"""Each wait for a server that ends badly is one sentence: what was asked, what came, what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from tests.harness.several import Walk
from tests.plugins.rllib.rllink.server import RLlinkFault, RLlinkServer
from tests.plugins.rllib.rllink.test_client import ACTIONS, walk
from tests.support.slack import patient
from tests.support.vanishing import ask_each_second, can_vanish, vanish_at
from tests.support.waiting import when
from ue_rl.bridges.runners import run_in_thread
from ue_rl.cli import cli
from ue_rl.plugins.rllib.rllink.client import RLlinkClient
from ue_rl.plugins.rllib.rllink.frames import FrameReader, frame
from ue_rl.plugins.rllib.rllink.link import RLlinkConnection
from ue_rl.plugins.rllib.rllink.msgpack_dialect import MsgpackDialect, pack
from ue_rl.system.errors import LearnerDisconnected, LearnerTimeout, LearnerUnreachable, MalformedMessage, UeRlError

PONG = frame(pack({"type": "PONG"}))
with RLlinkServer(4, ACTIONS["discrete"], steps_per_sample=30) as _server:
    CONFIG = frame(_server.write(_server.config_message()))
    STATE = frame(_server.write(_server.state_message(dict(_server.weights))))
HUGE = b"99999999\x82"


@contextmanager
def scripted(*replies: bytes | None, silent: threading.Event | None = None) -> Iterator[int]:
    """A server on a port that answers one message after the other with these bytes; b"" hangs up, None is silence.

    Args:
        silent: set once a question has come that stays without an answer.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        client, _ = listener.accept()
        reader = FrameReader()
        with client:
            for reply in replies:
                while reader.next_body() is None:
                    data = client.recv(1 << 20)
                    if not data:
                        return
                    reader.feed(data)
                if reply == b"":
                    return
                if reply is None:
                    if silent is not None:
                        silent.set()
                    break
                client.sendall(reply)
            ended.wait(60)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        thread.join(5)
        listener.close()


@pytest.mark.parametrize(
    ("replies", "error", "said"),
    [
        ([None], LearnerTimeout, r"did not answer PING within 0.3 s; got nothing .*another one connected"),
        ([PONG, None], LearnerTimeout, r"did not answer GET_CONFIG within .*still build"),
        ([PONG, CONFIG, None], LearnerTimeout, r"did not answer GET_STATE within .*still build"),
        ([PONG, CONFIG, STATE, None], LearnerTimeout, r"did not answer EPISODES_AND_GET_STATE .*--steps-per-sample"),
        ([PONG, CONFIG, STATE[:500], None], LearnerTimeout, r"GET_STATE within .*492 of \d+ bytes"),
        ([PONG, HUGE], LearnerTimeout, "GET_CONFIG within .*1 of 99999999 bytes"),
        ([b""], LearnerDisconnected, "instead of answering PING; got a closed socket after nothing.*another dialect"),
        ([PONG, b""], LearnerDisconnected, "instead of answering GET_CONFIG"),
        ([PONG, CONFIG, b""], LearnerDisconnected, "instead of answering GET_STATE"),
        ([PONG, CONFIG, STATE, b""], LearnerDisconnected, "instead of answering EPISODES_AND_GET_STATE"),
        ([CONFIG], MalformedMessage, "did not answer PING with PONG"),
        ([PONG, PONG], MalformedMessage, "answered GET_CONFIG with something else.*Pong"),
        ([PONG, CONFIG, CONFIG], MalformedMessage, "answered GET_STATE with something else.*ServerConfig"),
        ([PONG, CONFIG, STATE, PONG], MalformedMessage, "answered EPISODES_AND_GET_STATE with something else.*Pong"),
        ([b"HTTP/1.1 400 Bad Request"], MalformedMessage, "begins with its length.*HTTP/1.1"),
        ([PONG, b"100000000\x82"], MalformedMessage, "100 MB or more"),
        ([PONG, frame(b"\x82\xa4type")], MalformedMessage, "not msgpack"),
        ([PONG, CONFIG, STATE + STATE, STATE], MalformedMessage, "more than one answer, before EPISODES_AND_GET_STATE"),
        ([PONG, CONFIG, STATE, STATE + STATE], MalformedMessage, "more than one answer, before EPISODES_AND_GET_STATE"),
    ],
)  # fmt: skip
def test_one_sentence(replies: list[bytes | None], error: type[UeRlError], said: str, slack: float) -> None:
    patience = 0.3 if replies == [None] else 0.3 * slack if error is LearnerTimeout else 20.0  # before it come others
    with scripted(*replies) as port:
        player = RLlinkClient(walk(2), port=port, timeout=patience, dialect="msgpack")
        with pytest.raises(error, match=said) as caught:
            player.run(samples=2)
        player.close()
    assert len(str(caught.value)) < 700
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_server_that_does_not_read_is_not_waited_for_for_ever(slack: float) -> None:
    """Its receive buffer fills up while a large message is sent."""
    with scripted(PONG, CONFIG, STATE) as port:
        player = RLlinkClient(walk(2), port=port, timeout=0.5 * slack, dialect="msgpack")
        player.connect()
        assert player._link is not None
        body = b"\x81" * 50_000_000
        with pytest.raises(LearnerTimeout, match="did not answer EPISODES within"):
            player._link._send(body, "EPISODES")
        player.close()


@pytest.mark.slow
def test_the_command_line_says_the_same() -> None:
    seconds = f"{patient(2):.0f}"
    server = RLlinkServer(4, ACTIONS["discrete"], fault=RLlinkFault.SILENT)
    with server, run_in_thread(Walk(2)) as engine:
        words = ["rllink", "--port", str(server.port), "--url", engine.url, "--timeout", seconds, "--reconnect", "1"]
        result = CliRunner().invoke(cli, [*words, "--steps", "1000"])
    assert result.exit_code == 1
    assert isinstance(result.exception, LearnerTimeout)
    assert f"RLlib did not answer GET_STATE within {seconds} s" in str(result.exception)


@pytest.mark.parametrize(
    ("flag", "value"), [("--wait", "-1"), ("--reconnect", "nan"), ("--timeout", "1e300"), ("--wait", "nan")]
)
def test_seconds_that_no_clock_has_are_refused(flag: str, value: str) -> None:
    result = CliRunner().invoke(cli, ["rllink", "--env", "CartPole-v1", "--port", "1", flag, value])
    assert result.exit_code == 2
    assert f"Invalid value for '{flag}'" in result.output


def test_a_host_that_is_no_name_is_a_named_error() -> None:
    with pytest.raises(LearnerUnreachable, match="no RLlink server listens on"):
        RLlinkClient(walk(1), "x" * 300, 5555).connect()


@pytest.mark.slow
@can_vanish
def test_a_server_whose_machine_vanishes_is_not_waited_for() -> None:
    """It may learn for minutes; who is gone is known before."""
    asked = threading.Event()
    with scripted(None, silent=asked) as port:
        link = RLlinkConnection("127.0.0.1", port, 100.0, MsgpackDialect())
        assert ask_each_second(port) == 1
        when(asked.is_set, lambda: vanish_at(port))
        with pytest.raises(LearnerDisconnected, match="its machine does not answer any more"):
            link.ask("GET_STATE")
        link.close()
