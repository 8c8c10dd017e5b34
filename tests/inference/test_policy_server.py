"""The policy server: many engines, one batched model, and newer files."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.inference.serving import ask, exported, numbers, serving, until
from tests.support.onnx_files import box_of, described, gun, of_one_node, parts
from ue_rl.inference import OnnxInference, ReloadingInference
from ue_rl.inference.server.server import PolicyServer
from ue_rl.system import errors


async def test_answers_are_the_models_actions_to_the_bit(pendulum: Path) -> None:
    model = OnnxInference(pendulum)
    rows = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    async with serving(pendulum) as server:
        engine = await server.dial()
        for row in rows:
            answer = await ask(engine, f"OBS={','.join(map(repr, row.tolist()))}\r\n\n")
            assert answer == f"ACT={answer[4:-1]}\n"
            assert np.float32(numbers(answer)[0]) == model.run_inference(row[None])[0, 0]
        assert server.requests == 20
        p50, p99 = server.percentiles() or (0, 0)
        assert 0 < p50 <= p99


async def test_many_engines_are_answered_in_few_batches(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engines = [await server.dial("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2\n") for _ in range(16)]
        for turn in range(5):
            answers = await asyncio.gather(
                *(ask(e, f"OBS={i},0,{turn};ENV=1||obs = 0,1,0 ; env = 0\n") for i, e in enumerate(engines))
            )
            assert all(re.fullmatch(r"ACT=[^;|]+;ENV=1\|\|ACT=[^;|]+;ENV=0\n", a) for a in answers)
            assert len({a.split("||")[1] for a in answers}) == 1
        assert server.requests == 160
        assert server.batches < 80


async def test_all_spellings_of_the_protocol_are_read(pendulum: Path) -> None:
    """Those of the plugin too: any mix of separators, one behind the last number, none before the next field."""
    async with serving(pendulum) as server:
        engine = await server.dial()
        plain = await ask(engine, "OBS=0.5,-1,0.25;REW=1;DONE=0\n")
        for text in (
            "OBS=0.5;-1;0.25",
            "OBS=0.5,-1;0.25;REW=1",
            "OBS=0.5,-1,0.25REW=1",
            "obs = 0.5 , -1.0,\t+.25;",
            "RESET=1;ENV=0;OBS=5e-1,-1,0.25\r",
        ):
            assert await ask(engine, f"{text}\n") == plain


async def test_lines_may_come_in_pieces(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engine, whole = await server.dial(""), await server.dial()
        for byte in b"CONFIG:OBS=3;ACT=1\r\nOBS=0.5,-1,0.25;RESET=1":
            engine[1].write(bytes([byte]))
            await engine[1].drain()
            await asyncio.sleep(0)
        assert server.requests == 0
        assert await ask(engine, "\n") == await ask(whole, "OBS=0.5,-1,0.25\n")


async def test_ten_thousand_envs_in_one_line(pendulum: Path) -> None:
    count = 10_000
    async with serving(pendulum, max_batch=count) as server:
        engine = await server.dial(f"CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT={count}\n", limit=2**24)
        rows = [f"OBS={env % 7},0,1;ENV={env}" for env in reversed(range(count))]
        engine[1].write(("||".join(rows) + "\n").encode())
        answers = (await asyncio.wait_for(engine[0].readline(), 30)).decode().rstrip().split("||")
        assert [answer.partition(";")[2] for answer in answers] == [f"ENV={env}" for env in reversed(range(count))]
        assert len({answer.partition(";")[0] for answer in answers}) == 7
        assert server.batches == 1


async def test_the_example_of_the_document(cart_pole: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "policy-server.md").read_text()
    spoken = re.findall(r"^(engine|server): (.+)$", page, re.MULTILINE)
    assert [who for who, _ in spoken] == ["engine", "engine", "server", "engine", "server"]
    async with serving(cart_pole) as server:
        engine = await server.dial("")
        for who, line in spoken:
            if who == "engine":
                engine[1].write(f"{line}\n".encode())
            else:
                answer = (await asyncio.wait_for(engine[0].readline(), 20)).decode()
                assert re.sub("ACT=[01]", "ACT=?", answer) == re.sub("ACT=[01]", "ACT=?", line) + "\n"


async def test_what_is_sent_ahead_is_answered_in_order_and_line_by_line(recurrent: Path) -> None:
    """Also by a recurrent policy, whose next answer needs the last state."""
    model = OnnxInference(recurrent)
    rows = np.random.default_rng(1).uniform(-1, 1, (200, 3)).astype(np.float32)
    expected = [model.run_inference(row[None])[0, 0] for row in rows]
    async with serving(recurrent) as server:
        engine = await server.dial()
        engine[1].write("".join(f"OBS={','.join(map(repr, row.tolist()))}\n" for row in rows).encode())
        got = [numbers((await asyncio.wait_for(engine[0].readline(), 20)).decode())[0] for _ in rows]
        np.testing.assert_allclose(got, expected, atol=1e-6)
        assert server.batches == 200


async def test_an_observation_waits_for_others_only_as_long_as_it_may(pendulum: Path) -> None:
    async with serving(pendulum, max_wait=30.0) as server:
        first, second = await server.dial(), await server.dial()
        early = asyncio.create_task(ask(first, "OBS=0,0,0\n"))
        await until(lambda: server.greeted == 2 and bool(server._waiting))
        assert not early.done()
        assert (await ask(second, "OBS=0,0,1\n")).startswith("ACT=")  # all have asked: nobody waits on
        assert (await early).startswith("ACT=")
        assert server.batches == 1
    async with serving(pendulum, max_wait=0.002) as server:
        first, second = await server.dial(), await server.dial()
        assert (await ask(first, "OBS=0,0,0\n")).startswith("ACT=")  # the second never asks


async def test_a_batch_is_split_between_lines_and_never_within_one(pendulum: Path) -> None:
    async with serving(pendulum, max_batch=4, max_wait=30.0) as server:
        engines = [await server.dial("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3\n") for _ in range(4)]
        await until(lambda: server.greeted == 4)
        line = "||".join(f"OBS=0,0,{env};ENV={env}" for env in range(3)) + "\n"
        answers = await asyncio.gather(*(ask(engine, line) for engine in engines))
        assert len(set(answers)) == 1
        assert answers[0].count("ACT=") == 3
        assert server.num_envs == 12
        assert server.batches >= 4


async def test_recurrent_policies_keep_each_env_apart(recurrent: Path) -> None:
    model = OnnxInference(recurrent)
    async with serving(recurrent) as server:
        engine = await server.dial("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2\n")
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


async def test_a_newer_recurrent_file_begins_with_states_of_its_own(recurrent: Path, tmp_path: Path) -> None:
    path = shutil.copy(recurrent, tmp_path / "r.onnx")
    other = exported("Pendulum-v1", tmp_path / "other.onnx", "RecurrentPPO", "MlpLstmPolicy", seed=5)
    model = OnnxInference(other)
    seen = np.array([[0.5, -0.3, 0.8]], np.float32)
    line = "OBS=0.5,-0.3,0.8\n"
    async with serving(path) as server:
        engine = await server.dial()
        for _ in range(5):
            await ask(engine, line)
        os.replace(other, path)
        await until(lambda: server.policy.reloads == 1)
        state, begins = model.initial_state(1), True
        for _ in range(3):
            expected, state = model.run(seen, state=state, episode_start=np.array([begins]))
            assert numbers(await ask(engine, line))[0] == pytest.approx(float(expected[0, 0]), abs=1e-7)
            begins = False


async def test_states_do_not_keep_whole_batches(recurrent: Path) -> None:
    async with serving(recurrent) as server:
        engine = await server.dial("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=9\n")
        await ask(engine, "||".join(f"OBS=0,0,0;ENV={env}" for env in range(9)) + "\n")
        states = server.policy.current._agents
        assert len(states) == 9
        for state in states.values():
            assert all(array.base is None for array in state.values())
        engine[1].close()
        await until(lambda: not states)  # nor those of an engine that has gone


async def test_a_newer_file_takes_over_and_a_broken_one_does_not(
    pendulum: Path, cart_pole: Path, tmp_path: Path
) -> None:
    path = shutil.copy(pendulum, tmp_path / "m.onnx")
    other = exported("Pendulum-v1", tmp_path / "other.onnx", seed=5)
    line = "OBS=0.3,-0.2,0.9\n"
    async with serving(path) as server:
        engine = await server.dial()
        before = await ask(engine, line)
        for bad in (b"", other.read_bytes()[:500], cart_pole.read_bytes(), None):
            path.unlink()
            if bad is not None:
                path.write_bytes(bad)
            server.policy.poll()
            assert await ask(engine, line) == before
        shutil.copy(other, tmp_path / "half")
        os.replace(tmp_path / "half", path)
        deadline = time.monotonic() + 30
        while (after := await ask(engine, line)) == before:  # the server looks by itself, once a second
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        expected = OnnxInference(other).run_inference(np.array([[0.3, -0.2, 0.9]], np.float32))
        assert np.float32(numbers(after)[0]) == expected[0, 0]


async def test_a_surprise_while_looking_for_a_newer_file_is_not_the_last_look(
    pendulum: Path, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    class Blind(ReloadingInference):
        def poll(self) -> bool:
            nonlocal looks
            looks += 1
            raise MemoryError

    async with serving(pendulum, Blind) as server:
        await until(lambda: looks >= 2)
        assert "checking for a newer model failed" in caplog.text
        engine = await server.dial()
        assert (await ask(engine, "OBS=0,0,0\n")).startswith("ACT=")


async def test_an_answer_that_cannot_be_found_costs_one_engine_only(tmp_path: Path) -> None:
    path = tmp_path / "root.onnx"
    path.write_bytes(of_one_node("Sqrt", "b", 1))
    async with serving(path, max_wait=30.0) as server:
        engines = [await server.dial("CONFIG:OBS=1;ACT=1\n") for _ in range(3)]
        await until(lambda: server.greeted == 3)
        answers = await asyncio.gather(*(ask(e, f"OBS={x}\n") for e, x in zip(engines, (4, -1, 9), strict=True)))
        assert answers[0] == "ACT=2\n"
        assert answers[1].startswith("ERROR=ModelOutputError: the model gave NaN")
        assert answers[2] == "ACT=3\n"


async def test_an_observed_choice_that_does_not_exist_is_refused_with_its_env(tmp_path: Path) -> None:
    (tmp_path / "c.onnx").write_bytes(described(1, observed=parts(gear=gun(3), at=box_of(2))))
    async with serving(tmp_path / "c.onnx") as server:
        engine = await server.dial("CONFIG:OBS=3;ACT=3;ENV_TYPE=MULTI;ENV_COUNT=4\n")
        assert (await ask(engine, "OBS=2,0.5,0.5;ENV=3\n")).startswith("ACT=2")
        refusal = await ask(engine, "OBS=1,0,0;ENV=1||OBS=3,0,0;ENV=2\n")
        assert "the observation is not of the model's space (env 2, field obs)" in refusal


async def test_a_surprise_in_the_model_leaves_nobody_waiting(pendulum: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Moody(OnnxInference):
        def run_inference(self, observations: Any, **more: Any) -> Any:
            if len(observations) > 1 or observations[0, 0] == 7:
                raise RuntimeError("out of memory, say")
            return super().run_inference(observations, **more)

    class Holder(ReloadingInference):
        current = Moody(pendulum)  # type: ignore[assignment]

    async with serving(pendulum, Holder, max_wait=30.0) as server:
        engines = [await server.dial() for _ in range(3)]
        await until(lambda: server.greeted == 3)
        answers = await asyncio.gather(*(ask(e, f"OBS={x},0,0\n") for e, x in zip(engines, (1, 7, 2), strict=True)))
        assert [answer[:4] for answer in answers] == ["ACT=", "ERRO", "ACT="]
        assert "the model failed" in answers[1]
        assert "RuntimeError" in caplog.text
        assert server.requests == 2


def test_limits_that_cannot_be_are_refused(pendulum: Path) -> None:
    with ReloadingInference(pendulum, interval=None) as policy:
        for name in ("max_batch", "max_engines", "hello_timeout", "write_timeout", "reload_interval"):
            with pytest.raises(errors.ConfigurationError, match=name):
                PolicyServer(policy, **{name: 0})
        with pytest.raises(errors.ConfigurationError, match="max_wait"):
            PolicyServer(policy, max_wait=float("nan"))
