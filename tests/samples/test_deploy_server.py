"""samples/deploy: clients of the policy server in C++ and C#, against Python."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.samples.deploy_demos import (
    OBS,
    floats,
    not_on_windows,
    observations,
    programs,
    run,
    same_bits,
    skip_without_tools,
    text,
)
from ue_rl.inference import OnnxInference, ReloadingInference
from ue_rl.inference.server.server import PolicyServer

pytestmark = not_on_windows


@pytest.fixture(params=["C++", "C#"])
def client_demo(request: pytest.FixtureRequest) -> list[str]:
    skip_without_tools(request.param)
    return programs()[request.param, "client"]


@contextmanager
def serving(path: Path) -> Iterator[PolicyServer]:
    """A policy server in a thread of its own."""
    made: list[PolicyServer] = []
    ready = threading.Event()

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        with ReloadingInference(path, interval=None) as policy:
            async with PolicyServer(policy, port=0) as server:
                made.append(server)
                ready.set()
                await stop.wait()

    stop: asyncio.Event
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield made[0]
    finally:
        made[0].loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(("kind", "num_envs"), [("box", 1), ("box", 3), ("discrete", 2), ("multi discrete", 3)])
def test_answers_are_those_of_python_to_the_bit(
    client_demo: list[str], models: dict[tuple[str, bool], Path], kind: str, num_envs: int
) -> None:
    policy = OnnxInference(models[kind, True])
    assert policy.act_size is not None
    steps = [observations(num_envs, seed=step) for step in range(10)]
    with serving(models[kind, True]) as server:
        words = ["127.0.0.1", server.port, OBS, policy.act_size, num_envs]
        done = run([*client_demo, *map(str, words)], "".join(text(rows.reshape(1, -1)) for rows in steps))
    assert (server.batches, server.requests) == (10, 10 * num_envs)  # all envs of a line are one call of the model
    answers = floats(done.stdout).reshape(10, num_envs, policy.act_size)
    assert all(same_bits(rows, policy.run_inference(asked)) for rows, asked in zip(answers, steps, strict=True))


def test_a_recurrent_model_begins_anew_where_it_is_told(client_demo: list[str], recurrent: Path) -> None:
    policy = OnnxInference(recurrent)
    steps = [observations(2, seed=step) for step in range(9)]
    begins = {0: [0, 1], 4: [1], 6: [0], 7: [0, 1]}
    said, actions = "", []
    for step, rows in enumerate(steps):
        said += "".join(f"reset={env} " for env in begins.get(step, [])) + text(rows.reshape(1, -1))
        policy.reset(begins.get(step, []))
        actions.append(policy.run_inference(rows))
    with serving(recurrent) as server:
        done = run([*client_demo, "127.0.0.1", str(server.port), str(OBS), "2", "2"], said)
    assert same_bits(floats(done.stdout).reshape(9, 2, 2), np.array(actions))
    policy.reset()
    assert not same_bits(policy.run_inference(steps[5]), actions[5])  # the state does matter


def test_many_envs_in_one_line(client_demo: list[str], models: dict[tuple[str, bool], Path]) -> None:
    """The answer is longer than what is read at once."""
    policy = OnnxInference(models["box", False])
    rows = observations(3000)
    with serving(models["box", False]) as server:
        done = run([*client_demo, "127.0.0.1", str(server.port), str(OBS), "2", "3000"], text(rows.reshape(1, -1)))
    assert same_bits(floats(done.stdout).reshape(3000, 2), policy.run_inference(rows))


def test_what_the_server_refuses_is_shown(client_demo: list[str], models: dict[tuple[str, bool], Path]) -> None:
    with serving(models["box", False]) as server:
        command = [*client_demo, "127.0.0.1", str(server.port)]
        said = run([*command, "4", "2"], "1 2 3 4\n", 1).stderr
        assert f"the policy server 127.0.0.1:{server.port} refuses: HandshakeError" in said
        assert "expected OBS=5 ACT=2" in said
        said = run([*command, str(OBS), "2"], "1 2 3 4 5\n1 2 NaN 4 5\n1 2 3 4 5\n", 1)
        assert len(said.stdout.splitlines()) == 1
        assert "refuses: " in said.stderr


def test_a_server_that_ends_is_a_sentence(client_demo: list[str], models: dict[tuple[str, bool], Path]) -> None:
    with serving(models["box", False]) as server:
        port = server.port
        command = [*client_demo, "127.0.0.1", str(port), str(OBS), "2"]
        process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("1 2 3 4 5\n")
        process.stdin.flush()
        assert len(process.stdout.readline().split()) == 2
    said = process.communicate("1 2 3 4 5\n", timeout=20)[1]
    assert f"the policy server 127.0.0.1:{port} closed the connection" in said
    assert process.returncode == 1
    said = run(command, "1 2 3 4 5\n", 1).stderr
    assert f"the policy server 127.0.0.1:{port} does not listen: is ue-rl policy-server running there?" in said


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([b"ACT=1,2;ENV=0"], "has not answered in time"),
        ([b"ACT=1,2;EN", b"V=0||ACT=3,4;ENV=1\n"], ""),
        ([b"ACT=1,2;ENV=0||ACT=3,4;ENV=0\n"], "answers what are no actions: ACT=1,2;ENV=0||ACT=3,4;ENV=0"),
        ([b"ACT=1,2;ENV=0\n"], "answers what are no actions"),
        ([b"ACT=1,2;ENV=0||ACT=3;ENV=1\n"], "answers what are no actions"),
        ([b"ACT=1,2;ENV=0||ACT=3,x;ENV=1\n"], "answers what are no actions"),
        ([b"ACT=1,2;ENV=0||ACT=3,4,5;ENV=1\n"], "answers what are no actions"),
        *[
            ([b"ACT=1,2;ENV=0||ACT=3,%s;ENV=1\n" % x], "answers what are no actions")
            for x in (b"nan", b"NaN", b"Infinity")
        ],
        ([b"HTTP/1.1 400 Bad Request\r\n"], "answers what are no actions: HTTP/1.1 400 Bad Request"),
    ],
)
def test_a_server_that_is_silent_or_speaks_nonsense(client_demo: list[str], answers: list[bytes], said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        soon = 2000 if "mono" in client_demo else 100  # mono's first task may take long to be run
        timeout = soon if "in time" in said else 20_000
        command = [*client_demo, "127.0.0.1", str(listener.getsockname()[1]), "3", "2", "2", str(timeout)]
        done = pool.submit(run, command, "1 2 3 4 5 6\n", 1 if said else 0)
        listener.settimeout(20)
        peer = listener.accept()[0]
        with peer, peer.makefile("rb") as lines:
            assert lines.readline() == b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2\n"
            assert lines.readline() == b"OBS=1,2,3;ENV=0||OBS=4,5,6;ENV=1\n"
            for answer in answers:
                peer.sendall(answer)
            told = done.result(20)
    assert said in told.stderr
    assert told.stdout == ("" if said else "1 2 3 4\n")
