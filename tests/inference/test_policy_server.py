"""The policy server: many engines, one batched model, newer files, and engines that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import pytest
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO

from tests.inference.test_reload import box_of, described, gun, parts
from ue_rl import errors
from ue_rl.inference import OnnxInference, ReloadingInference, export_onnx
from ue_rl.inference.server.engine import Engine
from ue_rl.inference.server.server import PolicyServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def make(env_id: str, path: Path, algorithm: Any = PPO, policy: str = "MlpPolicy", seed: int = 0) -> Path:
    model = algorithm(policy, gym.make(env_id), n_steps=8, batch_size=8, seed=seed, device="cpu")
    export_onnx(model, path)
    return path


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make("Pendulum-v1", tmp_path_factory.mktemp("models") / "pendulum.onnx")


@asynccontextmanager
async def serving(path: Path, **options: Any) -> AsyncIterator[PolicyServer]:
    with ReloadingInference(path, interval=None) as policy:
        async with PolicyServer(policy, port=0, reload_interval=0.05, **options) as server:
            yield server


async def dial(server: PolicyServer, hello: str = "CONFIG:OBS=3;ACT=1\n") -> Streams:
    streams = await asyncio.open_connection("127.0.0.1", server.port)
    streams[1].write(hello.encode())
    return streams


async def ask(streams: Streams, text: str) -> str:
    streams[1].write(text.encode())
    return (await asyncio.wait_for(streams[0].readline(), 5)).decode()


async def until(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def numbers(answer: str) -> list[float]:
    return [float(text) for text in re.findall(r"ACT=([^;|\n]+)", answer)]


async def test_answers_are_the_models_actions_to_the_bit(pendulum: Path) -> None:
    model = OnnxInference(pendulum)
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    async with serving(pendulum) as server:
        engine = await dial(server)
        for row in rows:
            answer = await ask(engine, f"OBS={','.join(map(repr, row.tolist()))}\r\n\n")
            assert answer == f"ACT={answer[4:-1]}\n"
            assert np.float32(numbers(answer)[0]) == model.run_inference(row[None])[0, 0]
        assert server.requests == 20
        p50, p99 = server.percentiles() or (0, 0)
        assert 0 < p50 <= p99
        engine[1].close()


async def test_many_engines_are_answered_in_few_batches(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engines = [await dial(server, "CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2\n") for _ in range(16)]
        for turn in range(5):
            answers = await asyncio.gather(
                *(ask(e, f"OBS={i},0,{turn};ENV=1||obs = 0,1,0 ; env = 0\n") for i, e in enumerate(engines))
            )
            assert all(re.fullmatch(r"ACT=[^;|]+;ENV=1\|\|ACT=[^;|]+;ENV=0\n", a) for a in answers)
            assert len({a.split("||")[1] for a in answers}) == 1
        assert server.requests == 160
        assert server.batches < 80
        for engine in engines:
            engine[1].close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OBS=1,2\n", "wrong number of numbers"),
        ("OBS=1,2,nan\n", "NaN"),
        ("OBS=1,2,1e39\n", "NaN"),
        ("OBS=1,2,-3.4028236e38\n", "NaN"),
        ("OBS=1,2,x\n", "a number was expected"),
        ("OBS=1,2,1_0\n", "a number was expected"),
        ("OBS=1,2,\n", "a number was expected"),
        ("OBS=\n", "a number was expected"),
        ("ENV=0\n", "required field is missing"),
        ("OBS=1,2,3;ENV=4\n", "does not exist"),
        ("OBS=1,2,3;ENV=-1\n", "non-negative integer"),
        ("OBS=1,2,3;ENV=0;RESET=yes\n", "neither 0 nor 1"),
        ("OBS=1,2,3;OBS=1,2,3\n", "twice"),
        ("OBS=1,2,3||OBS=1,2,3\n", "stands twice"),
        ("OBS=1,2,3;ENV=0||\n", "missing"),
        ("hello\n", "not a field"),
        ("OBS=1,2,3;gr\xfc\xdfe=1\n", "a number was expected"),
        ("x" * 200_000, "longer than"),
    ],
)
async def test_a_bad_line_costs_its_engine_the_connection_and_nobody_else(
    pendulum: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(pendulum) as server:
        good, bad = await dial(server), await dial(server)
        assert await ask(good, "OBS=0,0,0\n")
        with caplog.at_level(logging.ERROR, "ue_rl.inference.server.server"):
            last = await ask(bad, text)
            assert re.fullmatch(r"ERROR=[A-Za-z]+: [ -:<-{}~]*\n", last)
            assert said in last
            assert await asyncio.wait_for(bad[0].read(), 5) == b""
        assert said in caplog.text
        assert "at fault: engine" in caplog.text
        assert (await ask(good, "OBS=0,0,0\n")).startswith("ACT=")
        assert server.dropped == 1
        good[1].close()


@pytest.mark.parametrize("line", ["OBS=1,2,3", "OBS=1,2,3||OBS=1,2,3;ENV=1", "OBS=1,2,3;ENV=1||OBS=1,2,3;RESET=1"])
async def test_a_row_without_its_env_is_not_taken_for_env_0(pendulum: Path, line: str) -> None:
    async with serving(pendulum) as server:
        engine = await dial(server, "CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2\n")
        last = await ask(engine, f"{line}\n")
        assert last.startswith("ERROR=MalformedMessage: a required field is missing (field ENV)")
        assert await asyncio.wait_for(engine[0].read(), 5) == b""
        assert server.requests == 0
        engine[1].close()


async def test_all_spellings_of_the_protocol_are_read(pendulum: Path) -> None:
    """Those of the plugin too: any mix of separators, one behind the last number, none before the next field."""
    async with serving(pendulum) as server:
        engine = await dial(server)
        plain = await ask(engine, "OBS=0.5,-1,0.25;REW=1;DONE=0\n")
        for text in (
            "OBS=0.5;-1;0.25",
            "OBS=0.5,-1,0.25;REW=1;DONE=0",
            "OBS=0.5,-1;0.25;REW=1",
            "OBS=0.5,-1,0.25REW=1",
        ):
            assert await ask(engine, f"{text}\n") == plain
        engine[1].close()


@pytest.mark.parametrize("spare", [1, 0])
async def test_the_longest_line_is_that_of_the_protocol(pendulum: Path, spare: int) -> None:
    """48 bytes a number, and not 64; the numbers of one env are its observation and a reward."""
    longest = 1024 + 48 * 4 + 64
    async with serving(pendulum) as server:
        engine = await dial(server)
        line = "OBS=1,2,3;X=" + "x" * (longest - 12 - spare) + "\n"
        assert len(line) == longest + 1 - spare
        assert (await ask(engine, line)).startswith("ACT=" if spare else "ERROR=LineTooLong")
        engine[1].close()


@pytest.mark.parametrize("space", ["\xa0", " ", ""], ids=["no-break", "ordinary", "none"])
async def test_a_handshake_of_millions_is_refused_before_it_costs_anything(pendulum: Path, space: str) -> None:
    async with serving(pendulum) as server:
        good = await dial(server)
        await until(lambda: server.greeted == 1)
        began = time.perf_counter()
        bad = await dial(server, f"CONFIG:OBS=3;ACT{space}=16777216\n")
        assert (await asyncio.wait_for(bad[0].read(1000), 5)).startswith(b"ERROR=HandshakeError: ")
        assert (await ask(good, "OBS=0,0,0\n")).startswith("ACT=")
        assert time.perf_counter() - began < 0.05
        for streams in (good, bad):
            streams[1].close()


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ("CONFIG:OBS=4;ACT=1\n", "not the model's"),
        ("HELLO\n", "not a handshake"),
        ("CONFIG:OBS=3;ACT=2\n", "not the model's"),
        ("CONFIG:OBS=3;ACT=1;ACT_SPACE=DISCRETE(3)\n", "spaces are not the model's"),
        ("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=5000\n", "more envs than"),
        ("CONFIG: obs = 300000000;ACT=1;OBS_SPACE=BOX(0:1)\n", "not the model's"),  # 24 GB of bounds, if decoded
        ("CONFIG:OBS=3;ACT=300000000;ACT_SPACE=BOX(0:1)\n", "not the model's"),
    ],
)
async def test_other_sizes_and_strangers_are_refused(
    pendulum: Path, hello: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(pendulum) as server:
        with caplog.at_level(logging.ERROR):
            engine = await dial(server, hello)
            last = await asyncio.wait_for(engine[0].read(), 5)
        assert last.startswith(b"ERROR=HandshakeError: ")
        assert said in last.decode()
        assert said in caplog.text
        engine[1].close()


async def test_recurrent_policies_keep_each_env_apart(tmp_path: Path) -> None:
    path = make("Pendulum-v1", tmp_path / "r.onnx", RecurrentPPO, "MlpLstmPolicy")
    model = OnnxInference(path)
    async with serving(path) as server:
        engine = await dial(server, "CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2\n")
        state = [model.initial_state(1), model.initial_state(1)]
        for turn in range(6):
            for env in (0, 1) if turn != 2 else (1,):  # env 0 sits one turn out
                observation = np.array([[0.1 * turn, env, 0.5]], np.float32)
                starts = np.array([[turn in (0, 4) and env == 0]], np.float32)
                expected, state[env] = model.run(observation, state=state[env], episode_start=starts)
                text = ",".join(map(repr, observation[0].tolist()))
                reset = ";RESET=1" if starts[0, 0] else ""
                answer = await ask(engine, f"OBS={text};ENV={env}{reset}\n")
                assert numbers(answer)[0] == pytest.approx(float(expected[0, 0]), abs=1e-6)
        engine[1].close()


async def test_a_newer_recurrent_file_begins_with_states_of_its_own(tmp_path: Path) -> None:
    path = make("Pendulum-v1", tmp_path / "r.onnx", RecurrentPPO, "MlpLstmPolicy")
    other = make("Pendulum-v1", tmp_path / "other.onnx", RecurrentPPO, "MlpLstmPolicy", seed=5)
    model = OnnxInference(other)
    seen = np.array([[0.5, -0.3, 0.8]], np.float32)
    line = "OBS=0.5,-0.3,0.8\n"
    async with serving(path) as server:
        engine = await dial(server)
        for _ in range(5):
            await ask(engine, line)
        os.replace(other, path)
        await until(lambda: server.policy.reloads == 1)
        state, begins = model.initial_state(1), True
        for _ in range(3):
            expected, state = model.run(seen, state=state, episode_start=np.array([begins]))
            assert numbers(await ask(engine, line))[0] == pytest.approx(float(expected[0, 0]), abs=1e-7)
            begins = False
        engine[1].close()


async def test_a_newer_file_takes_over_and_a_broken_one_does_not(tmp_path: Path) -> None:
    path = make("Pendulum-v1", tmp_path / "m.onnx")
    other = make("Pendulum-v1", tmp_path / "other.onnx", seed=5)
    wrong = make("CartPole-v1", tmp_path / "wrong.onnx")
    line = "OBS=0.3,-0.2,0.9\n"
    async with serving(path) as server:
        engine = await dial(server)
        before = await ask(engine, line)
        for bad in (b"", other.read_bytes()[:500], wrong.read_bytes(), None):
            path.unlink()
            if bad is not None:
                path.write_bytes(bad)
            server.policy.poll()
            assert await ask(engine, line) == before
        shutil.copy(other, tmp_path / "half")
        os.replace(tmp_path / "half", path)
        deadline = time.monotonic() + 10
        while (after := await ask(engine, line)) == before:  # the server looks by itself, once a second
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        expected = OnnxInference(other).run_inference(np.array([[0.3, -0.2, 0.9]], np.float32))
        assert np.float32(numbers(after)[0]) == expected[0, 0]
        engine[1].close()


async def test_spaces_of_choices_are_compared(tmp_path: Path) -> None:
    path = make("CartPole-v1", tmp_path / "c.onnx")
    hello = "CONFIG:OBS=4;ACT=1;ACT_SPACE=DISCRETE({})\n"
    async with serving(path) as server:
        engine = await dial(server, hello.format(2))
        assert await ask(engine, "OBS=0,0,0,0\n") in ("ACT=0\n", "ACT=1\n")
        other = await dial(server, hello.format(3))
        assert "expected DISCRETE(2)" in await ask(other, "OBS=0,0,0,0\n")
        for streams in (engine, other):
            streams[1].close()


async def test_other_fields_orders_and_spaces_are_read(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engine = await dial(server)
        plain = await ask(engine, "OBS=0.5,-1,0.25\n")
        for text in (
            "obs = 0.5 , -1.0,\t+.25;\n",
            "OBS=5e-1,-1,0.25;REW=-0.5;DONE=0\n",
            "RESET=1;ENV=0;OBS=0.5,-1,0.25\r\n",
        ):
            assert await ask(engine, text) == plain
        engine[1].close()


async def test_what_is_sent_ahead_is_answered_in_order_and_line_by_line(tmp_path: Path) -> None:
    """Also by a recurrent policy, whose next answer needs the last state."""
    path = make("Pendulum-v1", tmp_path / "r.onnx", RecurrentPPO, "MlpLstmPolicy")
    model = OnnxInference(path)
    rows = np.random.default_rng(1).uniform(-1, 1, (500, 3)).astype(np.float32)
    expected = [model.run_inference(row[None])[0, 0] for row in rows]
    async with serving(path) as server:
        engine = await dial(server)
        engine[1].write("".join(f"OBS={','.join(map(repr, row.tolist()))}\n" for row in rows).encode())
        got = [numbers((await asyncio.wait_for(engine[0].readline(), 5)).decode())[0] for _ in rows]
        np.testing.assert_allclose(got, expected, atol=1e-6)
        assert server.batches == 500
        engine[1].close()


async def test_an_observation_waits_for_others_only_as_long_as_it_may(pendulum: Path) -> None:
    async with serving(pendulum, max_wait=30.0) as server:
        first, second = await dial(server), await dial(server)
        early = asyncio.create_task(ask(first, "OBS=0,0,0\n"))
        while server.greeted < 2 or not server._waiting:
            await asyncio.sleep(0)
        assert not early.done()
        assert (await ask(second, "OBS=0,0,1\n")).startswith("ACT=")  # all have asked: nobody waits on
        assert (await early).startswith("ACT=")
        assert server.batches == 1
        for streams in (first, second):
            streams[1].close()
    async with serving(pendulum, max_wait=0.002) as server:
        first, second = await dial(server), await dial(server)
        assert (await ask(first, "OBS=0,0,0\n")).startswith("ACT=")  # the second never asks
        for streams in (first, second):
            streams[1].close()


async def test_a_batch_is_split_between_lines_and_never_within_one(pendulum: Path) -> None:
    async with serving(pendulum, max_batch=4, max_wait=30.0) as server:
        engines = [await dial(server, "CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3\n") for _ in range(4)]
        while server.greeted < 4:
            await asyncio.sleep(0)
        line = "||".join(f"OBS=0,0,{env};ENV={env}" for env in range(3)) + "\n"
        answers = await asyncio.gather(*(ask(engine, line) for engine in engines))
        assert len(set(answers)) == 1
        assert answers[0].count("ACT=") == 3
        assert server.num_envs == 12
        assert server.batches >= 4
        for engine in engines:
            engine[1].close()


async def test_strangers_who_say_nothing_and_engines_who_do_not_read_are_dropped(pendulum: Path) -> None:
    async with serving(pendulum, hello_timeout=0.05, write_timeout=0.05) as server:
        silent = await asyncio.open_connection("127.0.0.1", server.port)
        assert b"no hello came" in await asyncio.wait_for(silent[0].read(), 5)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little is enough to fill the way
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", server.port))
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(sock, b"CONFIG:OBS=3;ACT=1\n")
            while not server.greeted:
                await asyncio.sleep(0)
            (engine,) = server.engines
            assert engine._transport is not None
            engine._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            while True:  # asks for ever, reads nothing: what waits stays bounded and the deadline comes
                await asyncio.wait_for(loop.sock_sendall(sock, b"OBS=0,0,0\n" * 1000), 30)
        assert not server.engines
        assert server.dropped == 2
        silent[1].close()
        await until(lambda: not server.connections)  # although the one that does not read never closes
        sock.close()


async def test_too_many_engines_are_refused_by_name(pendulum: Path) -> None:
    async with serving(pendulum, max_engines=1) as server:
        first = await dial(server)
        assert (await ask(first, "OBS=0,0,0\n")).startswith("ACT=")
        second = await dial(server)
        assert b"too many engines" in await asyncio.wait_for(second[0].read(), 5)
        first[1].close()
        await first[1].wait_closed()
        while server.engines:
            await asyncio.sleep(0)
        third = await dial(server)
        assert (await ask(third, "OBS=0,0,0\n")).startswith("ACT=")
        for streams in (second, third):
            streams[1].close()


async def test_an_answer_that_cannot_be_found_costs_one_engine_only(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Sqrt", ["obs"], ["actions"])
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 1]) for name in ("obs", "actions")]
    graph = onnx.helper.make_graph([node], "root", ports[:1], ports[1:])
    opset = onnx.helper.make_opsetid("", 17)
    path = tmp_path / "root.onnx"
    path.write_bytes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString())
    async with serving(path, max_wait=30.0) as server:
        engines = [await dial(server, "CONFIG:OBS=1;ACT=1\n") for _ in range(3)]
        while server.greeted < 3:
            await asyncio.sleep(0)
        answers = await asyncio.gather(*(ask(e, f"OBS={x}\n") for e, x in zip(engines, (4, -1, 9), strict=True)))
        assert answers[0] == "ACT=2\n"
        assert answers[1].startswith("ERROR=ModelOutputError: the model gave NaN")
        assert answers[2] == "ACT=3\n"
        for engine in engines:
            engine[1].close()


def test_limits_that_cannot_be_are_refused(pendulum: Path) -> None:
    with ReloadingInference(pendulum, interval=None) as policy:
        for name in ("max_batch", "max_engines", "hello_timeout", "write_timeout", "reload_interval"):
            with pytest.raises(errors.ConfigurationError, match=name):
                PolicyServer(policy, **{name: 0})
        with pytest.raises(errors.ConfigurationError, match="max_wait"):
            PolicyServer(policy, max_wait=float("nan"))


async def test_the_example_of_the_document(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "policy-server.md").read_text()
    spoken = re.findall(r"^(engine|server): (.+)$", page, re.MULTILINE)
    assert [who for who, _ in spoken] == ["engine", "engine", "server", "engine", "server"]
    async with serving(make("CartPole-v1", tmp_path / "c.onnx")) as server:
        engine = await dial(server, "")
        for who, line in spoken:
            if who == "engine":
                engine[1].write(f"{line}\n".encode())
            else:
                answer = (await asyncio.wait_for(engine[0].readline(), 5)).decode()
                assert re.sub("ACT=[01]", "ACT=?", answer) == re.sub("ACT=[01]", "ACT=?", line) + "\n"
        engine[1].close()


async def test_lines_may_come_in_pieces(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engine, whole = await dial(server, ""), await dial(server)
        for byte in b"CONFIG:OBS=3;ACT=1\r\nOBS=0.5,-1,0.25;RESET=1":
            engine[1].write(bytes([byte]))
            await engine[1].drain()
            await asyncio.sleep(0)
        assert server.requests == 0
        assert await ask(engine, "\n") == await ask(whole, "OBS=0.5,-1,0.25\n")
        for streams in (engine, whole):
            streams[1].close()


async def test_ten_thousand_envs_in_one_line(pendulum: Path) -> None:
    count = 10_000
    async with serving(pendulum, max_batch=count) as server:
        engine = await asyncio.open_connection("127.0.0.1", server.port, limit=2**24)
        engine[1].write(f"CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT={count}\n".encode())
        rows = [f"OBS={env % 7},0,1;ENV={env}" for env in reversed(range(count))]
        engine[1].write(("||".join(rows) + "\n").encode())
        answers = (await asyncio.wait_for(engine[0].readline(), 30)).decode().rstrip().split("||")
        assert [answer.partition(";")[2] for answer in answers] == [f"ENV={env}" for env in reversed(range(count))]
        assert len({answer.partition(";")[0] for answer in answers}) == 7
        assert server.batches == 1
        engine[1].close()


async def test_the_last_line_arrives_although_the_engine_goes_on_talking(pendulum: Path) -> None:
    """A socket closed over unread bytes is reset, and what was said before may be lost."""
    async with serving(pendulum) as server:
        for _ in range(5):
            engine = await dial(server)
            engine[1].write(b"OBS=what\n" + b"OBS=0,0,0\n" * 200_000)
            assert (await asyncio.wait_for(engine[0].read(), 10)).startswith(b"ERROR=MalformedMessage: ")
            engine[1].close()
        await until(lambda: not server.connections)


async def test_an_engine_that_ends_its_side_is_answered_first(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engine = await dial(server)
        engine[1].write(b"OBS=0,0,0\n" * 3000 + b"OBS=0,0")
        engine[1].write_eof()
        lines = (await asyncio.wait_for(engine[0].read(), 10)).splitlines()
        assert len(lines) == 3000
        assert len(set(lines)) == 1
        engine[1].close()
        idle = await dial(server)
        idle[1].write_eof()
        assert await asyncio.wait_for(idle[0].read(), 10) == b""
        idle[1].close()
        await until(lambda: not server.connections)


class FakeTransport(asyncio.Transport):
    """A connection without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False

    def is_closing(self) -> bool:
        return self.ended

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True


async def test_who_comes_in_while_the_server_closes_does_not_stay(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        await server.close()
        late, transport = Engine(server), FakeTransport()
        late.connection_made(transport)
        assert transport.ended
        late.connection_lost(None)
        assert not server.engines
        assert not server.connections


async def test_closing_with_asks_and_unread_answers_at_hand_and_starting_again(pendulum: Path) -> None:
    async with serving(pendulum, max_wait=30.0) as server:
        first, second = await dial(server), await dial(server)
        await until(lambda: server.greeted == 2)
        first[1].write(b"OBS=0,0,0\n")
        await until(lambda: bool(server._waiting))
        await server.close()
        await server.close()
        for streams in (first, second):
            assert await asyncio.wait_for(streams[0].read(), 5) == b""
            streams[1].close()
        assert server.requests == 0
        assert not server.connections
        await server.start()
        third = await dial(server)
        assert (await ask(third, "OBS=0,0,0\n")).startswith("ACT=")
        third[1].close()


async def test_closing_does_not_wait_for_ever_for_who_does_not_read(pendulum: Path) -> None:
    async with serving(pendulum, write_timeout=60.0) as server:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            deaf.sendall(b"CONFIG:OBS=3;ACT=1\n")
            await until(lambda: server.greeted == 1)
            (engine,) = server.engines
            engine.write(b"ACT=0\n" * 2_000_000)
            assert engine.unsent
            await asyncio.wait_for(server.close(), 5)
            await until(lambda: not server.connections)
            deaf.setblocking(False)
            with pytest.raises(ConnectionError):  # what never went out does not wait in the system
                while await asyncio.wait_for(loop.sock_recv(deaf, 2**20), 5):
                    pass


async def test_a_surprise_in_the_model_leaves_nobody_waiting(
    pendulum: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = OnnxInference.run_inference

    def moody(self: OnnxInference, observations: Any) -> Any:
        if len(observations) > 1 or observations[0, 0] == 7:
            raise RuntimeError("out of memory, say")
        return run(self, observations)

    async with serving(pendulum, max_wait=30.0) as server:
        engines = [await dial(server) for _ in range(3)]
        await until(lambda: server.greeted == 3)
        monkeypatch.setattr(OnnxInference, "run_inference", moody)
        answers = await asyncio.gather(*(ask(e, f"OBS={x},0,0\n") for e, x in zip(engines, (1, 7, 2), strict=True)))
        assert [answer[:4] for answer in answers] == ["ACT=", "ERRO", "ACT="]
        assert "the model failed" in answers[1]
        assert "RuntimeError" in caplog.text
        assert server.requests == 2
        for engine in engines:
            engine[1].close()


async def test_a_surprise_while_looking_for_a_newer_file_is_not_the_last_look(
    pendulum: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    def poll(self: ReloadingInference) -> bool:
        nonlocal looks
        looks += 1
        raise MemoryError

    monkeypatch.setattr(ReloadingInference, "poll", poll)
    async with serving(pendulum) as server:
        await until(lambda: looks >= 2)
        assert "checking for a newer model failed" in caplog.text
        engine = await dial(server)
        assert (await ask(engine, "OBS=0,0,0\n")).startswith("ACT=")
        engine[1].close()


async def test_without_descriptors_it_says_so_once_serves_on_and_accepts_later(
    pendulum: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, refused = socket.socket.accept, 0
    full = True

    def refuse(sock: socket.socket) -> Any:
        nonlocal refused
        if not full:
            return accept(sock)
        refused += 1
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.02)
    async with serving(pendulum) as server:
        engine = await dial(server)
        await until(lambda: server.greeted == 1)
        monkeypatch.setattr(socket.socket, "accept", refuse)
        waiting = await dial(server)
        await until(lambda: refused > 20)
        assert numbers(await ask(engine, "OBS=1,0,0\n"))
        assert len(caplog.records) == 1
        assert "Too many open files, with 1 connected" in caplog.text
        assert not caplog.records[0].exc_info
        full = False
        assert numbers(await ask(waiting, "OBS=1,0,0\n"))
        told: list[Any] = []
        server._handler_before = lambda loop, context: told.append(context["message"])
        server.loop.call_exception_handler({"message": "something else"})
        assert told == ["something else"]
        for streams in (engine, waiting):
            streams[1].close()
    assert asyncio.get_running_loop().get_exception_handler() is not None
    asyncio.get_running_loop().set_exception_handler(None)


async def test_an_observed_choice_that_does_not_exist_is_refused_with_its_env(tmp_path: Path) -> None:
    (tmp_path / "c.onnx").write_bytes(described(1, observed=parts(gear=gun(3), at=box_of(2))))
    async with serving(tmp_path / "c.onnx") as server:
        engine = await dial(server, "CONFIG:OBS=3;ACT=3;ENV_TYPE=MULTI;ENV_COUNT=4\n")
        assert (await ask(engine, "OBS=2,0.5,0.5;ENV=3\n")).startswith("ACT=2")
        refusal = await ask(engine, "OBS=1,0,0;ENV=1||OBS=3,0,0;ENV=2\n")
        assert "the observation is not of the model's space (env 2, field obs)" in refusal
        engine[1].close()


async def test_states_do_not_keep_whole_batches(tmp_path: Path) -> None:
    path = make("Pendulum-v1", tmp_path / "r.onnx", RecurrentPPO, "MlpLstmPolicy")
    async with serving(path) as server:
        engine = await dial(server, "CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=9\n")
        await ask(engine, "||".join(f"OBS=0,0,0;ENV={env}" for env in range(9)) + "\n")
        states = server.policy.current._agents
        assert len(states) == 9
        for state in states.values():
            assert all(array.base is None for array in state.values())
        engine[1].close()
        await until(lambda: not states)  # nor those of an engine that has gone


async def test_connections_that_drip_do_not_crowd_out_an_engine_that_says_hello(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        drips = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(60)]
        for _, writer in drips:
            writer.write(b"C")
        served = await dial(server)
        assert numbers(await ask(served, "OBS=1,0,0\n"))
        await until(lambda: len(server.engines) == 61)
        for _, writer in drips:
            writer.write(b"ONFIG:OBS=3;ACT=1\nOBS=1,0,0\n")
        for reader, _ in drips:
            assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"ACT=")
        for _, writer in [*drips, served]:
            writer.close()


async def test_a_turn_of_the_loop_accepts_a_few_engines_only(pendulum: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    turn, original = 0, Engine.connection_made

    def connection_made(engine: Engine, transport: asyncio.BaseTransport) -> None:
        made.append(turn)
        original(engine, transport)

    monkeypatch.setattr(Engine, "connection_made", connection_made)
    async with serving(pendulum) as server:
        crowd = [socket.socket() for _ in range(100)]
        for sock in crowd:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", server.port))
        for turn in range(1, 2000):  # noqa: B007 - read by connection_made
            await asyncio.sleep(0)
            if len(made) == len(crowd):
                break
        for sock in crowd:
            sock.close()
        assert len(made) == len(crowd)
        assert max(map(made.count, set(made))) <= 4
