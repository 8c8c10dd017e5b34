"""The library's calls where there is no POSIX."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import ue_rl
from tests.support.games import Steps
from tests.windows.posixless.conftest import until
from ue_rl.bridges import GymnasiumBridge, run_in_process, run_in_thread
from ue_rl.connections import open_transport
from ue_rl.connections.launching import ports
from ue_rl.connections.launching.process import EngineProcess, Output
from ue_rl.connections.launching.template import Template
from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.protocol.spec import Channel
from ue_rl.system import compiled, durable, processes
from ue_rl.system.errors import AccessRefused, ConfigurationError, EngineNotStarted

PYTHON = [sys.executable, "-S", "-E", "-c"]


class Walk(Steps):
    """An episode has five steps."""

    def __init__(self, num_envs: int = 2, channel: Channel = Channel.ANY) -> None:
        super().__init__(ue_rl.EnvSpec(obs_size=1, act_size=1, num_envs=num_envs, channel=channel))

    def earn(self, env: int) -> tuple[float, bool]:
        return 1.0, self.steps[env] >= 5


@pytest.fixture(scope="module")
def walk() -> Iterator[Any]:
    with run_in_thread(Walk()) as engine:
        yield engine


def test_each_module_is_imported() -> None:
    missing = []
    for each in pkgutil.walk_packages(ue_rl.__path__, "ue_rl."):
        if not each.name.endswith(("__main__", "._kernels", "._sync")):
            try:
                importlib.import_module(each.name)
            except ImportError as error:
                missing.append(f"{each.name}: {error}")
    assert [each for each in missing if ".plugins.rllib." not in each] == []  # Ray is not installed everywhere


def test_the_library_sees_a_windows() -> None:
    assert processes.sys.platform == "win32", "run pytest with --assert=plain: its own loader came first"  # type: ignore
    assert not hasattr(processes.os, "fork")  # type: ignore[attr-defined]
    assert hasattr(os, "fork")
    assert compiled.name_of(compiled.load("kernels")) == "pure"


def test_a_vec_env_over_text_by_itself(walk: Any) -> None:
    env = ue_rl.connect(walk.url)
    facts = env.transport.describe()
    assert (facts["transport"], facts["kernels"]) == ("tcp", "pure")
    np.testing.assert_array_equal(env.reset(), [[0], [0]])
    for step in range(1, 5):
        observations, rewards, dones, _ = env.step(np.zeros((2, 1), np.float32))
        np.testing.assert_array_equal(observations, [[step], [step]])
        assert rewards.tolist() == [1.0, 1.0]
        assert not dones.any()
    assert env.step(np.zeros((2, 1), np.float32))[2].all()
    env.close()


def step_once(transport: Any) -> None:
    transport.reset()
    transport.receive()
    transport.send_actions(np.zeros((2, 1), np.float32))
    np.testing.assert_array_equal(transport.receive().obs, [[1], [1]])


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_both_wirings_wait_without_a_time_out_of_the_socket(walk: Any, channel: str) -> None:
    """That option counts as 500 ms at least there, and loses bytes: the stand-in refuses it."""
    with open_transport(walk.url, channel=channel) as transport:
        step_once(transport)


def test_an_answer_that_is_late_ends_at_its_deadline() -> None:
    class Slow(Walk):
        def handle_response_actions_for_env(self, env_id: int, actions: np.ndarray) -> None:
            time.sleep(3.0)

    with run_in_thread(Slow()) as engine, open_transport(engine.url, timeout=0.5) as transport:
        transport.reset()
        transport.receive()
        transport.send_actions(np.zeros((2, 1), np.float32))
        with pytest.raises(ue_rl.EngineTimeout, match=r"within 0\.5 s"):
            transport.receive()


def test_an_engine_in_a_process_of_its_own() -> None:
    with run_in_process(Walk) as engine, open_transport(engine.url) as transport:
        step_once(transport)


def test_an_engine_with_a_token_serves_who_has_it(tmp_path: Path) -> None:
    secret = tmp_path / "a token.txt"
    secret.write_text("0123456789abcdef" * 4, "ascii")
    with run_in_thread(Walk(), access=ServerAccess(token_file=secret)) as engine:
        with open_transport(engine.url, token_file=secret) as transport:
            step_once(transport)
        with pytest.raises(AccessRefused):
            open_transport(engine.url)


def test_shared_memory_says_in_one_line_why_it_is_not_there() -> None:
    with pytest.raises(ConfigurationError) as refused:
        ue_rl.connect("shm://walk")
    assert str(refused.value).count("\n") <= 1
    assert "shared memory needs ue_rl's compiled module" in str(refused.value)
    assert "C compiler" in str(refused.value)


def test_an_engine_of_gymnasium_trains_by_stable_baselines(tmp_path: Path) -> None:
    from stable_baselines3 import PPO

    from ue_rl.inference import OnnxInference, export_onnx

    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        env = ue_rl.connect(engine.url)
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1).learn(64)
        export_onnx(model, tmp_path / "an agent.onnx")
        observations = env.reset()
        env.close()
    expected = model.predict(observations, deterministic=True)[0]
    actions = OnnxInference(tmp_path / "an agent.onnx").run_inference(observations)
    assert actions.ravel().tolist() == expected.tolist()


def test_a_port_is_kept_by_one() -> None:
    first = ports.find()
    code = f"from ue_rl.connections.launching import ports; ports.take({first.number})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"port {first.number} belongs to an engine that another run has started" in other.stderr
    first.release()
    assert not first.lock.exists()
    again = ports.take(first.number)
    again.release()


def test_a_command_with_blanks_is_split_as_windows_splits_it() -> None:
    words = Template(r'"C:\My Games\Game.exe" -ExecCmds="t.MaxFPS 0" -UERLPort={port}').fill(port=7801)
    assert words == [r"C:\My Games\Game.exe", "-ExecCmds=t.MaxFPS 0", "-UERLPort=7801"]


def descendants(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


LEAVES_A_CHILD = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-E", "-c", "import time; time.sleep(600)"], start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(600)
"""


def child_of(output: Output) -> int:
    until(lambda: "child " in output.last_lines())
    return int(output.last_lines().split("child ")[1].split()[0])


def begin(code: str, output: Output) -> EngineProcess:
    return EngineProcess([*PYTHON, code], output.file, None)


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    made = Output(tmp_path / "engine.log")
    yield made
    made.close()


def has_ended(pid: int) -> bool:
    """A zombie is one that nobody has waited for yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_an_engine_ends_with_all_that_it_has_started(output: Output) -> None:
    engine = begin(LEAVES_A_CHILD, output)
    child = child_of(output)
    engine.end()
    until(lambda: has_ended(child))
    until(lambda: has_ended(engine.pid))
    until(lambda: engine.exit_code is not None)  # a thread reads it


def test_the_exit_code_of_an_engine_is_told(output: Output) -> None:
    engine = begin("import sys; sys.exit(7)", output)
    assert engine.ended.wait(60)
    assert engine.exit_code == 7
    engine.end()


def test_what_an_engine_leaves_behind_is_ended(output: Output) -> None:
    engine = begin(LEAVES_A_CHILD, output)
    child = child_of(output)
    psutil.Process(engine.pid).kill()
    assert engine.ended.wait(60)
    until(lambda: has_ended(child))
    engine.end()


def test_a_keeper_that_is_killed_takes_the_engine_along(output: Output) -> None:
    """By the Job object, and by nothing else: psutil and marks play no part there."""
    engine = begin(LEAVES_A_CHILD, output)
    child = child_of(output)
    psutil.Process(engine.keeper).kill()
    assert engine.ended.wait(60)
    until(lambda: has_ended(child) and has_ended(engine.pid))
    engine.end()


def test_a_command_that_cannot_run_says_so(output: Output) -> None:
    with pytest.raises(EngineNotStarted, match="cannot be run"):
        EngineProcess(["no such program"], output.file, None)


def test_who_is_alive_is_asked_of_the_kernel() -> None:
    assert processes.alive(os.getpid())
    assert not processes.alive(2**22 + 5)


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    durable.write_whole(tmp_path / "a file", lambda half: half.write_text("whole", "utf-8"))
    assert [each.name for each in tmp_path.iterdir()] == ["a file"]


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    from ue_rl.training.saving.lock import RunLock

    with RunLock(tmp_path) as lock, pytest.raises(ConfigurationError, match="is being written by pid"):
        RunLock(tmp_path).__enter__()
    with RunLock(tmp_path):
        assert not lock.held


def test_ctrl_c_ends_after_the_step_that_is_under_way() -> None:
    from ue_rl.training.saving.stopping import RunStopped, Stopping

    said: list[str] = []
    with Stopping(tell=said.append) as stopping, pytest.raises(RunStopped) as stopped:
        with stopping.interruptible(grace=60.0):
            signal.raise_signal(signal.SIGINT)
            stopping.check()
    assert stopped.value.exit_code == 130
    assert "stopping after this step" in said[0]


def test_agents_in_pettingzoos_api() -> None:
    from ue_rl.bridges import PettingZooBridge

    zoo = pytest.importorskip("pettingzoo.classic.rps_v2", reason="PettingZoo's classic games are not installed")
    with run_in_thread(PettingZooBridge(zoo.parallel_env)) as engine:
        env = ue_rl.UnrealParallelEnv(open_transport(engine.url))
        observations, _ = env.reset()
        assert set(observations) == set(env.agents)
        env.close()


def test_a_server_of_policies_answers(tmp_path: Path) -> None:
    import asyncio

    from ue_rl.inference.server.server import PolicyServer

    async def serves() -> int:
        async with PolicyServer(onnx(tmp_path), port=0) as server:
            return server.port

    assert asyncio.run(serves()) > 0


def onnx(folder: Path) -> Path:
    from stable_baselines3 import PPO

    from ue_rl.inference import export_onnx

    path = folder / "agent.onnx"
    export_onnx(PPO("MlpPolicy", "CartPole-v1", n_steps=16), path)
    return path


def test_more_sockets_than_select_takes_are_refused_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    many = Walk(600)
    with run_in_thread(many) as engine, open_transport(engine.url) as transport:
        assert transport.describe()["wiring"] == "shared channel"
    assert "a socket of its own to 480 envs, and it has 600: connect with channel=auto or shared" in caplog.text
    only = Walk(600, Channel.PER_ENV)
    with pytest.raises(ConfigurationError, match="expected CHANNEL=SHARED; got PER_ENV and 600 envs"):
        run_in_thread(only)
