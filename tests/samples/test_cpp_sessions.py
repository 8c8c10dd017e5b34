"""samples/cpp: engines of the C++ header with this library's trainer, over each carrier."""

from __future__ import annotations

import functools
import os
import re
import secrets
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.samples import programs
from tests.samples.cpp_engine import MARKS, lab, made, needs_shm, reach, running
from tests.samples.programs import connect
from tests.samples.reach import Reach, rollout
from tests.support.doubles import some_doubles
from tests.support.same import assert_same
from tests.support.steps import advance, begin
from tests.support.vanishing import can_vanish, vanish
from ue_rl.bridges import run_in_thread
from ue_rl.devtools import check as compliance
from ue_rl.devtools.check import CheckReport
from ue_rl.devtools.check.memory_peer import MEMORY
from ue_rl.devtools.check.text_peer import PER_ENV, SHARED
from ue_rl.devtools.testing.raw_client import RawClient
from ue_rl.system.errors import CommandFailed, EngineDisconnected

pytestmark = MARKS

# -- the demo is the same task as in Python, to the bit


SET_POWER = "SET=power:2.5;ENV=1"


@functools.cache
def reference() -> list[Any]:
    with run_in_thread(Reach(5, 8), port=0, upgrader=None) as handle:
        return rollout(ue_rl.connect(handle.url, channel="shared"), SET_POWER)


CARRIERS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "shared": ([], {"channel": "shared"}),
    "per-env": ([], {"channel": "per_env"}),
    "upgrade": (["--shm"], {"transport": "shm"}),
    "by-name": (["--shm-name"], {}),
    "shared, callbacks of single envs": (["--per-env"], {"channel": "shared"}),
    "upgrade, callbacks of single envs": (["--shm", "--per-env"], {"transport": "shm"}),
}


@needs_shm
@pytest.mark.parametrize("carrier", CARRIERS)
def test_rollouts_are_equal_to_the_bit(built: dict[str, Path], carrier: str) -> None:
    arguments, options = CARRIERS[carrier]
    name = f"cpp_{os.getpid()}_{secrets.token_hex(3)}"
    arguments = [*arguments, name] if carrier == "by-name" else arguments
    with reach(built, "--num-envs", "5", "--obs-size", "8", *arguments) as port:
        url = f"shm://{name}" if carrier == "by-name" else f"tcp://127.0.0.1:{port}"
        got, again = (rollout(ue_rl.connect(url, timeout=20, wait=20, **options), SET_POWER) for _ in range(2))
    assert_same(got, reference())
    assert_same(again[0], got[0])  # the next trainer's: the power stays, which changes no first observation
    assert not Path(f"/dev/shm/{name}").exists()


@needs_shm
def test_the_segment_of_an_engine_that_was_killed_is_taken_over(built: dict[str, Path]) -> None:
    name = f"cpp_{os.getpid()}_{secrets.token_hex(3)}"
    command = [str(built["reach"]), "--shm-name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        assert second.returncode == 1
        assert "cannot be made" in second.stderr  # the first one lives
        killed.kill()
    with reach(built, "--shm-name", name):
        env = ue_rl.connect(f"shm://{name}", timeout=10)
        assert env.reset().shape == (8, 6)
        env.close()
    assert not Path(f"/dev/shm/{name}").exists()


# -- masks, agents, parameters, calls, infos


TRANSPORTS: list[dict[str, Any]] = [{"channel": "shared"}, {"channel": "per_env"}, {"transport": "shm"}]


@needs_shm
@pytest.mark.parametrize("options", TRANSPORTS, ids=["shared", "per-env", "shm"])
def test_masks_options_infos_parameters_and_calls(built: dict[str, Path], options: dict[str, Any]) -> None:
    with lab(built, "plain") as port:
        env = connect(port, **options)
        call = env.transport.call
        assert call("GET") == "VALUES=step%20size:1,wind:-0.5"
        for sent in some_doubles():
            answer = call(f"SET=wind:{sent!r};ENV=0")
            assert float(answer.removeprefix("VALUES=wind:")).hex() == sent.hex()
        call("SET=wind:-0.5;ENV=0")
        env.set_options([{"a": [1, "ü|;"]}, None, None])
        env.seed(100)
        obs = env.reset()
        assert obs.tolist() == [[100, 0], [101, 0], [102, 0]]
        assert env.reset_infos[0]["options"] == {"a": [1, "ü|;"]}
        assert env.reset_infos[0]["ü|;"] == "ü"
        assert np.array(env.env_method("action_masks")).tolist() == [[True] * 3] * 3
        obs, rewards, _, _ = env.step(np.array([2, 1, 0]))
        assert obs.tolist() == [[102, 1], [102, 1], [102, 1]]
        assert rewards.tolist() == [102, 102, 102]
        assert np.array(env.env_method("action_masks")).tolist() == [[True, False, True]] * 3
        assert call("SET=step%20size:10;ENV=2") == "VALUES=step%20size:10"
        assert call("GET=step%20size;ENV=2") == "VALUES=step%20size:10"
        assert call("GET=step%20size") == "VALUES=step%20size:1"
        for wrong in ("SET=step%20size:11", "SET=wind:2,sun:1", "GET=sun", "RENDER;ENV=1"):
            with pytest.raises(CommandFailed):
                call(wrong)
        assert call("GET=wind") == "VALUES=wind:-0.5"  # not even the first half was set
        assert env.step(np.array([2, 2, 2]))[0].tolist() == [[104, 2], [104, 2], [122, 2]]
        assert call("PAUSE=1") == "OK"
        picture = call("RENDER")
        assert picture.startswith("PICTURE=300,400,3;DATA=BwcH")
        assert len(picture) > 480_000  # over shared memory in many pieces
        assert call("TIME_SCALE=0.5") == "OK"
        assert call("GOALS=1,9/0.75,9||3,9/1,9") == "REW=0.25,2"
        assert env.step(np.array([0, 0, 0]))[1].tolist() == [52, 52, 61]
        _, _, dones, infos = env.step(np.array([0, 0, 0]))
        assert dones.all()
        assert all(info["TimeLimit.truncated"] for info in infos)
        env.close()


@needs_shm
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_parameters_beside_resets(built: dict[str, Path], transport: str) -> None:
    with lab(built, "plain") as port:
        carrier = programs.carrier(port, transport)
        try:
            wanted = {1: {"step size": 4.0}, 2: {"wind": 1e-07}}
            carrier.draw_parameters = wanted.get
            begin(carrier, seeds=[0, 0, 0])
            assert carrier.call("GET;ENV=1") == "VALUES=step%20size:4,wind:-0.5"
            assert carrier.call("GET;ENV=2") == "VALUES=step%20size:1,wind:1e-07"
        finally:
            carrier.close()


@needs_shm
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_agents_come_and_go(built: dict[str, Path], transport: str) -> None:
    with lab(built, "agents") as port:
        carrier = programs.carrier(port, transport)
        assert carrier.spec.agent_names == ("hunter_0", "hunter_1", "prey")
        assert begin(carrier).present.tolist() == [1] * 6
        history = []
        actions = np.tile(np.array([[1, 2], [3, 4], [2, 0]], np.float32), (2, 1))
        for _ in range(6):
            seen = advance(carrier, actions)
            history.append((seen.present[3:].tolist(), seen.dones[3:].tolist(), seen.masks[5].tolist()))
        rewards, obs = seen.rewards.tolist(), seen.obs[5].tolist()
        carrier.close()
    here, mask = [1, 1, 1], [0, 1, 1]
    assert history[0] == (here, [0, 0, 0], mask)
    assert history[1][:2] == (here, [0, 0, 1])
    assert history[2][0] == [1, 1, 0]
    assert history[3] == (here, [0, 0, 0], mask)
    assert history[5] == (here, [1, 1, 1], history[5][2])
    assert rewards == [1, 3, 2, 1, 3, 2]
    assert obs == pytest.approx([5, 6, 0.1])


@pytest.mark.parametrize(
    ("kind", "options"), [("single", {}), ("rlbase", {}), ("tree", {}), ("tree", {"transport": "shm"})]
)
def test_other_kinds_of_env(built: dict[str, Path], kind: str, options: dict[str, Any]) -> None:
    with lab(built, kind) as port:
        env = connect(port, **options)
        env.reset()
        action = env.action_space.sample()
        actions = [action] if kind == "tree" else np.array([action])
        dones = [bool(env.step(actions)[2][0]) for _ in range(6)]
        assert dones == [False, False, True] * 2
        env.close()


@needs_shm
def test_images(built: dict[str, Path]) -> None:
    with lab(built, "image") as port:
        env = connect(port, transport="shm")
        env.reset()
        obs = env.step(np.zeros((2, 1), np.float32))[0]
        assert obs["image"].shape == (2, 4, 5, 3)
        assert obs["image"][1, 3, 4, 2] == obs["image"][1, 0, 0, 0] > 0
        env.close()


# -- the checker


def checked(engine: str) -> CheckReport:
    words = ["--port", "0", "--shm", "--num-envs", "3"] if engine == "reach" else [engine]
    with running(made("reach" if engine == "reach" else "lab-asan"), *words) as port:
        return compliance.check(f"tcp://127.0.0.1:{port}", compliance.Options(timeout=20.0))


@pytest.mark.slow
@needs_shm
@pytest.mark.ahead(job=checked)
@pytest.mark.parametrize(
    "engine", ["reach", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("single", "agents", "tree"))]
)
def test_the_checker_finds_nothing(engine: str, result: CheckReport) -> None:
    assert result.mistakes == [], result
    if engine == "reach":
        assert {finding.carrier for finding in result.findings} >= {SHARED, PER_ENV, MEMORY}


# -- trainers that misbehave, and games that do


@pytest.mark.parametrize("options", TRANSPORTS, ids=["shared", "per-env", "shm"])
def test_an_exception_of_the_game_ends_the_session_with_its_sentence(
    built: dict[str, Path], options: dict[str, Any]
) -> None:
    with lab(built, "thrower") as port:
        env = connect(port, **options)
        env.reset()
        with pytest.raises(EngineDisconnected, match=re.escape("no ammunition; sorry | ü")):
            env.step(np.zeros((2, 1), np.float32))
        env.close()
        env = connect(port, **options)
        env.reset()
        env.step(np.zeros((2, 1), np.float32))
        env.close()


def test_the_plugin_s_trainer_may_start_for_long(built: dict[str, Path]) -> None:
    with lab(built, "plain", "0", "0.1", "30") as port:
        programs.start_for_long(port, 3)


@pytest.mark.parametrize(("starting", "sockets"), [("30", 0), ("0.2", 1)])
def test_a_silent_stranger_gives_way(built: dict[str, Path], starting: str, sockets: int) -> None:
    with lab(built, "plain", "0", "0.1", starting) as port:
        programs.give_way(port, sockets)
    with lab(built, "plain", "0", "0.1", "30") as port:
        programs.give_up(port)


def test_wrong_specs_and_taken_ports_are_named(built: dict[str, Path]) -> None:
    with reach(built) as port:
        taken = subprocess.run([built["reach"], "--port", str(port)], capture_output=True, text=True, check=False)
    assert taken.returncode == 1
    assert f"port {port}" in taken.stderr
    wrong = subprocess.run([built["reach"], "--num-envs", "70000"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "ENV_COUNT is 1 to 65536" in wrong.stderr
    assert subprocess.run([built["reach"], "--envs"], capture_output=True, check=False).returncode == 2


@can_vanish
@pytest.mark.exhaustive
def test_a_trainer_whose_machine_vanishes_gives_way(built: dict[str, Path]) -> None:
    """Within 20 s, if the next one waits."""
    with reach(built, "--num-envs", "1") as port, RawClient(("127.0.0.1", port)) as lost:
        assert lost.line().startswith("CONFIG")
        assert lost.ask("ACT=RESET;ENV=0").startswith("OBS")
        vanish(lost.sock)
        with socket.create_connection(("127.0.0.1", port), timeout=40) as waiting:
            said = waiting.makefile("r")
            assert said.readline().startswith("BUSY")
            assert said.readline().startswith("CONFIG")


@needs_shm  # Linux: the limit of another process is set
def test_an_engine_without_a_free_descriptor_waits_for_one() -> None:
    """It serves who is there, does not look at the listener again and again, and takes the others later."""
    psutil = pytest.importorskip("psutil")
    binary = made("reach")
    with running(binary, "--port", "0") as port:
        (engine,) = [process for process in psutil.Process().children(recursive=True) if process.name() == binary.name]
        with closing(ue_rl.connect(f"tcp://127.0.0.1:{port}", channel="shared")) as env:
            env.reset()
            used, limits = engine.num_fds(), engine.rlimit(psutil.RLIMIT_NOFILE)
            engine.rlimit(psutil.RLIMIT_NOFILE, (used, limits[1]))
            with socket.create_connection(("127.0.0.1", port)):
                time.sleep(0.2)
                before = sum(engine.cpu_times()[:2])
                began = time.monotonic()
                time.sleep(1.0)
                busy = (sum(engine.cpu_times()[:2]) - before) / (time.monotonic() - began)
                env.step(np.zeros((env.num_envs, 2), np.float32))
        assert busy < 0.03  # of a core; a busy machine makes it less
        engine.rlimit(psutil.RLIMIT_NOFILE, limits)
        with closing(ue_rl.connect(f"tcp://127.0.0.1:{port}", channel="shared", wait=20.0)) as env:
            env.reset()
