"""The bridge of samples/godot in a game that shows what reaches it (godot_probe.gd): everything but physics."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pytest

from tests.harness.fuzzing.corpus import corpus
from tests.samples.godot_engine import PROBE, PROJECT, Engine, check_of_godot, needs_godot, read_line, running
from tests.support.doubles import some_doubles
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools import check as compliance
from ue_rl.devtools.check import Verdict
from ue_rl.devtools.check.garbage import mutate
from ue_rl.protocol.spec import Parameter

pytestmark = needs_godot

VECTORS = PROJECT.parents[1] / "docs" / "protocol-vectors.json"
ACT = "ACT=0.5,-1,1,0,-1"
MODES = ["lock-step", "free-running"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """In lock-step, as fast as it can."""
    with running(tmp_path_factory.mktemp("probe"), "-s", str(PROBE)) as started:
        yield started


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """In real time, whether or not a trainer asks."""
    with running(tmp_path_factory.mktemp("free"), "-s", str(PROBE), "--lock-step=0", fixed_fps=False) as started:
        yield started


@pytest.fixture
def game(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue({"lock-step": "engine", "free-running": "free"}[request.param])
    return found


def observation(reply: str) -> list[float]:
    return [float(x) for x in reply.split(";", maxsplit=1)[0].removeprefix("OBS=").split(",")]


def ticks(engine: Engine, sock: socket.socket) -> float:
    return observation(engine.ask(sock, f"{ACT};ENV=0"))[0]


def test_a_zero_keeps_its_sign(engine: Engine) -> None:
    """As an action, which comes back in INFO, and as an observation, here the parameter gravity."""
    with engine.dial() as sock:
        engine.ask(sock, "ACT=RESET;ENV=0;SET=gravity:-0.0")
        seen = engine.ask(sock, "ACT=-0.0,-0,0,0,-1;ENV=0")
        engine.ask(sock, "ACT=RESET;ENV=0;SET=gravity:9.8")
    assert np.signbit(observation(seen)[2])
    action = json.loads(unquote(seen.split("INFO=")[1].split(";")[0]))["action"]
    assert np.signbit(action[:3]).tolist() == [True, True, False]


def is_served(engine: Engine) -> None:
    """The next trainer gets a handshake and answers."""
    assert engine.process.poll() is None
    with engine.dial() as sock:
        assert engine.ask(sock, "ACT=RESET;ENV=0").startswith("OBS=0,0,")


def test_the_handshake_says_what_the_node_was_told(engine: Engine) -> None:
    transport = open_transport(f"tcp://127.0.0.1:{engine.port}", wait=10)
    spec = transport.connect()
    transport.close()
    assert (spec.obs_size, spec.act_size, spec.num_envs, spec.mask_size) == (4, 5, 2, 7)
    assert spec.features == {"SEED", "TRUNC", "OPTIONS", "INFO", "MASK", "ERROR", "SEQ", "TIME_SCALE", "PAUSE"}
    assert list(spec.obs_names or []) == ["ticks", "sum", "gravity[m/s^2]", "the seed"]
    assert [parameter.name for parameter in spec.parameters] == ["gravity", "p" * 400, "push", "wide"]
    assert spec.parameters[2:] == (Parameter("push", 0.05, 0.0, 0.1), Parameter("wide", 0.0))


@pytest.mark.parametrize("game", MODES, indirect=True)
@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_vec_env_runs_episodes(game: Engine, channel: str) -> None:
    with game.dial() as sock:
        assert game.ask(sock, "TIME_SCALE=20") == "OK"
    env = game.connect(channel)
    env.seed(7)
    obs = env.reset()
    assert obs[:, 3].tolist() == [7, 8]
    ended = 0
    hybrid = np.tile(np.float32([0.5, -1, 1, 0, 1, 0, 1, 0, 0]), (2, 1))  # one number for each choice
    for _ in range(25):
        _obs, rewards, dones, infos = env.step(hybrid)
        assert (rewards == 0.5).all()
        ended += int(dones.sum())
        assert all(info.get("TimeLimit.truncated") for info, done in zip(infos, dones, strict=True) if done)
    env.close()
    # 60 ticks of 3 an action; a free-running game has ticks between two actions, too.
    assert ended == 2 if game.log.parent.name.startswith("probe") else ended >= 2


def test_seed_options_info_mask_and_ticks(engine: Engine) -> None:
    options = quote('{"text": "a;b|c=d ä", "n": [1, 2.5]}', safe="")
    with engine.dial() as sock:
        reply = engine.ask(sock, f"ACT=RESET;ENV=1;SEED=5;OPTIONS={options}")
        assert reply == "OBS=0,0.1,9.8,5;REW=0;DONE=0;ENV=1;MASK=1011110"
        reply = engine.ask(sock, f"{ACT};ENV=1")
        assert reply.startswith("OBS=3,-0.4,9.8,5;REW=0.5;DONE=0;ENV=1;MASK=1011110;INFO=")
        info = unquote(reply.rpartition("INFO=")[2])
        assert '"text":"a;b|c=d ä"' in info
        assert '"action":[0.5,-1,1,0,-1]' in info  # choices are ints
        engine.ask(sock, "ACT=RESET;ENV=0")
        both = engine.ask(sock, f"{ACT};ENV=0||ACT=RESET;ENV=1;OPTIONS=%7B%22cut%22%3A1%7D")
        assert both.startswith("OBS=0,0.1")
        assert read_line(sock).startswith("OBS=3,-0.5")
        assert ";DONE=1;ENV=1;TRUNC=1;" in engine.ask(sock, f"{ACT};ENV=1")
        engine.ask(sock, "ACT=RESET;ENV=1;OPTIONS=%7B%7D")


def test_parameters(engine: Engine) -> None:
    with engine.dial() as sock:
        assert engine.ask(sock, "GET") == f"VALUES=gravity:9.8,{'p' * 400}:0,push:0.05,wide:0"
        assert engine.ask(sock, "SET=gravity:1.25;ENV=1") == "VALUES=gravity:1.25"
        assert engine.ask(sock, " get = gravity ; env = 1 ") == "VALUES=gravity:1.25"
        assert engine.ask(sock, "GET=gravity;ENV=0") == "VALUES=gravity:9.8"
        for wrong in ("SET=gravity:21", "SET=gravity:nan", "SET=height:1", "GET=height", "GET;ENV=2", "SET", "SET="):
            assert engine.ask(sock, wrong).startswith("REFUSED="), wrong
        assert observation(engine.ask(sock, "ACT=RESET;ENV=0;SET=gravity:3"))[2] == 3
        assert engine.ask(sock, "SET=gravity:9.8") == "VALUES=gravity:9.8"
        assert engine.ask(sock, "RENDER").startswith("REFUSED=")
        assert "gravity is from 0 to 20" in unquote(engine.ask(sock, "ACT=RESET;ENV=0;SET=gravity:20.5"))


def test_a_parameter_takes_its_own_bounds(engine: Engine) -> None:
    with engine.dial() as sock:
        for bound in ("0.1", "0", "1e-1", "0.10000000000000000"):
            assert engine.ask(sock, f"SET=push:{bound}") == f"VALUES=push:{float(bound):g}"
        for beyond in ("0.10000000000000002", "-5e-324"):
            assert "push is from 0 to 0.1" in unquote(engine.ask(sock, f"SET=push:{beyond}"))
        assert engine.ask(sock, "TIME_SCALE=0.01") == "OK"
        assert engine.ask(sock, "TIME_SCALE=20") == "OK"


def test_parameters_and_infos_are_doubles_to_the_bit(engine: Engine) -> None:
    """What is sent arrives, is answered, and stands in an info, all with the same 64 bits."""
    with engine.dial() as sock:
        engine.ask(sock, f"ACT=RESET;ENV=0;OPTIONS={quote(json.dumps({'numbers': 1}), safe='')}")
        for sent in some_doubles():
            _, _, answered = engine.ask(sock, f"SET=wide:{sent!r};ENV=0").partition("VALUES=wide:")
            _, _, info = engine.ask(sock, f"{ACT};ENV=0").partition("INFO=")
            found = json.loads(unquote(info))["values"]["wide"]
            assert [float(answered).hex(), float(found).hex()] == [sent.hex(), sent.hex()]
        engine.ask(sock, "ACT=RESET;ENV=0;SET=wide:0;OPTIONS=%7B%7D")


def test_options_are_doubles_to_the_bit(engine: Engine) -> None:
    sent = some_doubles()
    given = quote(json.dumps({"exact": sent, "text": '1.5, "-7e3" [', "one": [{"deep": -0.0}, True, None]}), safe="")
    with engine.dial() as sock:
        engine.ask(sock, f"ACT=RESET;ENV=0;OPTIONS={given}")
        _, _, info = engine.ask(sock, f"{ACT};ENV=0").partition("INFO=")
        found = json.loads(unquote(info))["options"]
        assert [float(x).hex() for x in found["exact"]] == [x.hex() for x in sent]
        assert (found["text"], str(found["one"])) == ('1.5, "-7e3" [', "[{'deep': -0.0}, True, None]")
        engine.ask(sock, "ACT=RESET;ENV=0;OPTIONS=%7B%7D")
    for wrong in ('"x":1.5.5', '"x":--1', '"x":1e', '"x":1e999999999', '"x":nan', "5 :1", '"x":"\\ufdd01"', '"x":1"y"'):
        with engine.dial() as sock:
            refused = engine.ask(sock, f"ACT=RESET;ENV=0;OPTIONS=%7B{quote(wrong, safe='')}%7D")
            assert "OPTIONS are no JSON object" in unquote(refused), wrong


def test_infos_leave_out_what_json_has_not_and_keep_the_rest(engine: Engine) -> None:
    transport = open_transport(f"tcp://127.0.0.1:{engine.port}", wait=10)
    transport.connect()
    transport.reset(options=[{"numbers": 1}, {}])
    transport.receive()
    transport.send_actions(np.float32([[0.1, -1, 1, 0, -1]] * 2))
    info = transport.receive().infos[0]
    transport.reset(options=[{}, {}])
    transport.receive()
    transport.close()
    assert info["action"] == [float(np.float32(0.1)), -1, 1, 0, -1]
    assert np.float32(info["place"]).tolist() == np.float32([0.1, -4e-7]).tolist()
    assert info["path"] == [0.1]
    assert info["text"] == 'a\tb"\\'
    assert not {"beyond", "nothing"} & set(info)
    for key in ("beyond", "nothing"):
        assert engine.log.read_text().count(f'the info "{key}" is left out: it holds NaN or infinity') == 1


def test_calls_come_before_the_wiring_is_chosen(engine: Engine) -> None:
    with engine.dial() as first, contextlib.ExitStack() as stack:
        assert engine.ask(first, "GET=gravity") == "VALUES=gravity:9.8"
        socks = [stack.enter_context(socket.create_connection(("127.0.0.1", engine.port), 10)) for _ in range(2)]
        for env, sock in enumerate(socks):
            assert engine.ask(sock, f"ACT=RESET;ENV={env}").endswith(f"ENV={env};MASK=101111{1 - env}")
        first.sendall(b"who are you?\n")  # ignored: the env sockets are there
        assert engine.ask(first, "PAUSE=1") == "OK"
        assert engine.ask(socks[1], f"{ACT}").startswith("OBS=3,")


@pytest.mark.exhaustive
def test_a_trainer_whose_workers_start_slowly_is_served(engine: Engine) -> None:
    """Each worker process of the plugin's trainer opens its env socket once it has imported what it needs."""
    with engine.dial(), contextlib.ExitStack() as stack:
        socks = []
        for pause in (0, 5.5):  # seconds: longer than a socket that is already there takes to follow
            time.sleep(pause)
            socks.append(stack.enter_context(socket.create_connection(("127.0.0.1", engine.port), 10)))
        for env, sock in enumerate(socks):
            assert engine.ask(sock, f"ACT=RESET;ENV={env}").startswith("OBS=")


def test_the_time_scale_in_lock_step(engine: Engine) -> None:
    """1 is real time: five actions of three ticks take a quarter of a second at 60 ticks a second."""
    with engine.dial() as sock:
        engine.ask(sock, "ACT=RESET;ENV=0")
        assert engine.ask(sock, "TIME_SCALE=1") == "OK"
        began = time.perf_counter()
        for _ in range(5):
            ticks(engine, sock)
        assert time.perf_counter() - began > 0.22  # the first tick need not wait
        for wrong in ("0", "-1", "1e9", "x", ""):
            assert engine.ask(sock, f"TIME_SCALE={wrong}").startswith("REFUSED="), wrong
        assert engine.ask(sock, "TIME_SCALE=1000") == "OK"


def test_free_running_goes_on_without_a_request(free: Engine) -> None:
    with free.dial() as sock:
        assert free.ask(sock, "TIME_SCALE=1") == "OK"
        free.ask(sock, "ACT=RESET;ENV=0")
        for _ in range(10):  # a busy machine may hold it up; at its pace it must be seen once, and never above
            before, began = ticks(free, sock), time.perf_counter()
            time.sleep(0.2)
            passed = ticks(free, sock) - before
            assert passed <= (time.perf_counter() - began) * 60 + 8
            if passed >= 0.2 * 60 - 4:
                break
        assert passed >= 0.2 * 60 - 4
        assert free.ask(sock, "PAUSE=1") == "OK"
        before = ticks(free, sock)
        time.sleep(0.1)
        assert ticks(free, sock) - before == 3  # the action's own
    with free.dial() as sock:  # a session's end ends the pause
        before = ticks(free, sock)
        time.sleep(0.5)
        assert ticks(free, sock) - before > 3


@pytest.mark.parametrize("game", MODES, indirect=True)
def test_a_free_running_game_is_an_engine_in_real_time(game: Engine, request: pytest.FixtureRequest) -> None:
    transport = open_transport(f"tcp://127.0.0.1:{game.port}", wait=10)
    with contextlib.closing(transport):
        in_lock_step = "lock-step" in request.node.name
        assert ("REALTIME" in transport.connect().features) is not in_lock_step


def test_the_time_scale_of_a_free_running_game_leaves_the_tick_as_long_as_it_is(free: Engine) -> None:
    with free.dial() as sock:
        assert free.ask(sock, "TIME_SCALE=8") == "OK"
        free.ask(sock, "ACT=RESET;ENV=0")
        took, reply = [], ""
        for _ in range(8):
            began = time.perf_counter()
            for _ in range(5):
                reply = free.ask(sock, f"{ACT};ENV=0")
            took.append(time.perf_counter() - began)
        assert min(took) < 5 * 3 / 60 / 2  # half of real time, once, on however busy a machine
        assert '"delta":0.0166666' in unquote(reply)
        assert free.ask(sock, "TIME_SCALE=1") == "OK"


@pytest.mark.parametrize("game", MODES, indirect=True)
def test_a_trainer_that_stops_reading_is_dropped_and_the_next_one_served(game: Engine) -> None:
    before = len(game.log.read_text())
    call = b"GET=" + b",".join([b"p" * 400] * 300) + b"\n"  # answered with as much
    with game.dial() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(ConnectionError):
            for _ in range(400):
                sock.sendall(call)
    is_served(game)
    assert "does not read its answers" in game.log.read_text()[before:]


def test_an_empty_line_chooses_the_shared_channel(engine: Engine) -> None:
    """So a second trainer is never taken for an env socket of the first."""
    with engine.dial() as first:
        first.sendall(b"\n")
        assert engine.ask(first, "GET=gravity") == "VALUES=gravity:9.8"
        with socket.create_connection(("127.0.0.1", engine.port), 10) as second:
            assert read_line(second).startswith("BUSY;")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ACT=0,0,2,0,0;ENV=0", "a choice that is not one of 0 to 1"),
        ("ACT=0,0,0.5,0,0;ENV=0", "a choice that is not one of 0 to 1"),
        ("ACT=0,0,0,0,-2;ENV=0", "a choice that is not one of -1 to 1"),
        ("ACT=RESET;ENV=0;OPTIONS=%5B1%5D", "no JSON object"),
        ("ACT=RESET;ENV=0;OPTIONS=x", "no JSON object"),
        ("ACT=RESET;ENV=0;OPTIONS=" + "%7B%22a%22%3A%5B" * 5000, "no JSON object"),
        ("ACT=RESET;ENV=0;OPTIONS=%7B%22a%22%3A1e2147483648%7D", "no JSON object"),
        ("ACT=RESET;ENV=0;SET=height:1", "a parameter that there is not"),
        (f"ACT=RESET;ENV=1;OPTIONS=%7B%22short%22%3A1%7D||{ACT};ENV=0", "rl_observe() must return 4 numbers"),
    ],
)
def test_what_does_not_fit_is_said(engine: Engine, line: str, said: str) -> None:
    with engine.dial() as sock:
        assert said in unquote(engine.ask(sock, line))
        assert read_line(sock) == ""
    with engine.dial() as sock:
        assert engine.ask(sock, "ACT=RESET;ENV=1;OPTIONS=%7B%7D").startswith("OBS=0,")


def test_a_call_while_a_request_is_open_ends_the_session(free: Engine) -> None:
    with free.dial() as sock:
        sock.sendall(f"{ACT};ENV=0\nGET\n".encode())
        assert "a call while a request is open" in unquote(read_line(sock))


def test_answers_of_calls_have_the_number_of_their_request(engine: Engine) -> None:
    with engine.dial() as sock:
        ask = partial(engine.ask, sock)
        assert ask("GET=gravity;SEQ=2") == ask("GET=gravity") + ";SEQ=2"
        assert ask("SET=nothing:1;SEQ=3").endswith(";SEQ=3")
        assert "SEQ has 1 to 18 digits" in unquote(ask(f"{ACT};ENV=0;SEQ=1000000000000000000"))
    is_served(engine)


def test_bad_lines_never_end_the_game(engine: Engine) -> None:
    """Lines of every kind with mistakes in them: an answer, or the end of that session, and the next one."""
    rng = random.Random(0)
    lines = [f"{ACT};ENV=0||ACT=RESET;ENV=1;SEED=3;OPTIONS=%7B%22a%22%3A1e5%7D;SET=gravity:1", "GET", "SET=gravity:2"]
    kinds = corpus(VECTORS)
    seeds = [line.encode() for line in lines] + [line for kind in ("request", "call") for _, line in kinds[kind]]
    sock = engine.dial()
    for n in range(150):
        bad = mutate(rng, rng.choice(seeds), seeds)
        try:
            sock.sendall(bad + b"\nGET=gravity;ENV=0\n")
            while True:
                reply = read_line(sock)
                if not reply or "VALUES=gravity:" in reply:
                    break
        except ConnectionError:
            reply = ""
        assert engine.process.poll() is None, (n, bad)
        if not reply:
            sock.close()
            sock = engine.dial()
    sock.close()
    is_served(engine)


@pytest.mark.ahead(job=partial(check_of_godot, "-s", str(PROBE)))
def test_the_checker_finds_nothing(result: compliance.CheckReport) -> None:
    """With a tree of spaces, masks, options, infos, parameters and calls."""
    assert [f for f in result.findings if f.outcome in (Verdict.FAIL, Verdict.WARN)] == []
    assert result.exit_code == 0


def test_a_name_may_stand_for_the_address(tmp_path: Path) -> None:
    """As in Python, C++ and C#: localhost is this machine, and who dials 127.0.0.1 finds it."""
    with running(tmp_path, "--host=localhost") as engine, engine.dial() as sock:
        assert engine.ask(sock, "ACT=RESET;ENV=0").startswith("OBS")
