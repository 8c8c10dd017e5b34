"""`ue-rl` itself, what each command needs, `serve` and `bench`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import ue_rl
from samples.reach import ReachBridge
from tests.harness.warm_cli import WarmCli, WarmProcess
from tests.support.command_line import NOT_IN_ENGINE, ok, refused
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.bridges.hosting import Closes
from ue_rl.cli import COMMANDS
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.devtools.testing import FaultyEngine, PluginStandIn, Script
from ue_rl.system import errors

NAME = f"ue_rl_{os.getpid()}_signals"
CART_POLE = ["--env", "CartPole-v1", "--num-envs", "2"]


def lacking(
    light_cli: WarmCli, packages: Sequence[str], words: list[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """`ue-rl WORDS` as a process in which these are not installed."""
    code = f"import sys; sys.modules.update(dict.fromkeys({packages})); from ue_rl.cli import main; main({words})"
    return light_cli.run_script(code, folder=folder)


def test_help_is_quick_and_loads_nothing_heavy(light_cli: WarmCli, tmp_path: Path) -> None:
    code = "import sys; from ue_rl.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('torch', 'numpy', 'rich', 'stable_baselines3') if m in sys.modules])"
    out = light_cli.run_script(code, folder=tmp_path).stdout
    assert out.strip().endswith("[]")
    assert all(name in out for name in COMMANDS)


def test_the_name_of_an_engine_is_read_without_torch(light_cli: WarmCli, tmp_path: Path) -> None:
    """`inspect` would take the seconds in which it is loaded for those that the engine needs to connect."""
    code = "import sys; from ue_rl.cli.common import engine_url; engine_url('localhost'); "
    code += "assert 'torch' not in sys.modules"
    done = light_cli.run_script(code, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_library_alone_says_what_the_command_line_needs() -> None:
    code = "import runpy, sys; sys.modules['click'] = None; runpy.run_module('ue_rl', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("The command line needs more than the library: pip install 'ue_rl[engine]'")


@pytest.mark.parametrize("command", [pytest.param("check", marks=pytest.mark.exhaustive), "inspect", "init", "doctor"])
def test_an_engines_author_needs_the_extra_engine_alone(command: str, light_cli: WarmCli, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trace: null\n")
    with run_in_thread(ReachBridge(3)) as server:
        words = {
            "check": [f"127.0.0.1:{server.port}"], "inspect": ["--port", str(server.port), "--steps", "60"],
            "doctor": ["--port", str(server.port)],
            "init": [server.url, "--output", str(tmp_path)],
        }  # fmt: skip
        done = lacking(light_cli, NOT_IN_ENGINE, [command, *words[command]], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {"inspect": "env-steps/s", "init": "wrote"}
    assert said.get(command, "0 FAIL") in done.stdout


def test_a_check_needs_the_extra_engine_alone(light_cli: WarmCli, tmp_path: Path) -> None:
    """All checks are imported before the first of them runs; an engine that passes them takes seconds more."""
    with FaultyEngine(Script(handshake="CONFIG:OBS=2")) as engine:
        done = lacking(light_cli, NOT_IN_ENGINE, ["check", f"127.0.0.1:{engine.port}"], tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith(": bad-handshake")


def test_serve_hosts_a_bridge_with_the_extra_engine_alone(light_cli: WarmCli, tmp_path: Path) -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({NOT_IN_ENGINE})); from ue_rl.cli import main; "
    code += "main(['serve', '--bridge', 'samples.reach:ReachBridge', '--port', '0'])"
    serving = light_cli.start([], output=tmp_path / "served.txt", script=code)
    serving.wait_for("8 envs on tcp://127.0.0.1:")
    serving.signal(signal.SIGTERM)
    serving.wait()


_LACKING = {
    "train": "train",
    "train --help": "train",
    "serve --env CartPole-v1": "train",
    "serve --pettingzoo pettingzoo.classic.rps_v2": "agents",
    "bench": "train",
    "export x.zip": "train",
    "play x.onnx": "train",
    "policy-server MODEL": "inference",
    "demos show x": "demos",
    "runs": "train",
    "replay x.trace": "engine",
    "trace show x.trace": "engine",
}


@pytest.mark.parametrize("command", _LACKING)
def test_a_command_names_the_extra_that_it_lacks(
    command: str, tiny_model: Path, light_cli: WarmCli, tmp_path: Path
) -> None:
    """All others work with the extra engine alone, which the tests above show, or need no engine; `engine` is what a
    broken installation of it is told.
    """
    hidden = (*NOT_IN_ENGINE, "minari", "pettingzoo", "onnx", "zstandard")
    done = lacking(light_cli, hidden, command.replace("MODEL", str(tiny_model)).split(), tmp_path)
    assert done.returncode == 1, done.stderr
    assert f"pip install 'ue_rl[{_LACKING[command]}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_command_is_tried_without_what_it_needs() -> None:
    tried = {command.split()[0] for command in _LACKING} | {"check", "inspect", "init", "doctor"}
    assert tried == set(COMMANDS)


def test_version() -> None:
    assert ue_rl.__version__ in ok("--version")


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal would")
@pytest.mark.parametrize(
    "served", [[*CART_POLE, "--port", "0"], ["--bridge", "mine:Mine", "--num-envs", "3", "--port", "0"]], indirect=True
)
def test_serve_hosts_says_who_connects_and_stops_with_ctrl_c(served: tuple[WarmProcess, str]) -> None:
    process, url = served
    for channel in ("shared", "per_env"):
        env = ue_rl.connect(url, channel=channel, timeout=10)
        env.reset()
        env.close()
    process.signal(signal.SIGINT)
    assert process.wait() == 0, process.text
    output = process.text
    assert output.count("a trainer connected from 127.0.0.1") == 2
    told = "the deployed plugin's own trainer reads no action space" in output
    assert told == ("CartPole-v1" in output)  # whose actions are choices; the other's are within -1 to 1
    assert ("closed 3" in output) == ("CartPole-v1" not in output)  # a bridge that can be closed
    assert "stopped" in output
    assert "Traceback" not in output


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal would")
def test_serve_stops_with_a_ctrl_c_that_comes_as_it_starts(warm_cli: WarmCli, tmp_path: Path) -> None:
    for number in range(3):  # it lands where it likes
        process = warm_cli.start(["serve", *CART_POLE, "--port", "0"], output=tmp_path / f"{number}.txt")
        process.wait_for("2 envs on tcp://")
        process.signal(signal.SIGINT)
        assert process.wait() == 0, process.text
        assert process.text.endswith("stopped\n")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
@pytest.mark.parametrize("served", [[*CART_POLE, "--shm", "--port", "0"], [*CART_POLE, f"shm://{NAME}"]], indirect=True)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_serve_ends_in_order_on_other_signals(
    served: tuple[WarmProcess, str], number: signal.Signals, code: int
) -> None:
    """A container that is stopped, a terminal that is closed: with a trainer attached, in mid-episode."""
    process, url = served
    env = ue_rl.connect(url, transport="auto")
    env.reset()
    name = env.transport.describe()["address"].removeprefix("shm://")
    assert (Path("/dev/shm") / name).exists()
    for _ in range(2):  # both may come, and more than once
        process.signal(number)
    assert process.wait() == code, process.text
    output = process.text
    assert output.endswith(f"stopped by {number.name}\n")
    assert "Traceback" not in output
    assert not (Path("/dev/shm") / name).exists()
    with pytest.raises(errors.EngineDisconnected):
        env.step(np.zeros(2, int))
    env.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--env", "NoSuchEnv-v1"], "Gymnasium cannot make"),
        (["--bridge", "json"], "cannot be loaded"),
        (["--bridge", "ue_rl.bridges:MultiEnvBridge"], "does not take what it is called with"),
        (["--bridge", "ue_rl.cli.do_nothing:DoNothingBridge", "--kwargs", '{"nope": 3}'], "'nope'"),
        (["--bridge", "ue_rl:__version__"], "no class of a bridge"),
        (["--bridge", "builtins:dict"], "made no bridge"),
        (["--env", "CartPole-v1", "--kwargs", '{"nope": 3}'], "unexpected keyword argument 'nope'"),
        (["--pettingzoo", "pettingzoo.no_such_env"], "cannot be loaded"),
        (["--env", "CartPole-v1", "--port", "0", "--tick-rate", "0"], "tick rate must be positive"),
    ],
)
def test_serve_refuses_by_name(arguments: list[str], text: str) -> None:
    assert text in str(refused("serve", *arguments))


def test_which_bridges_serve_closes() -> None:
    assert issubclass(GymnasiumBridge, Closes)
    assert not issubclass(DoNothingBridge, Closes)


def test_serve_hosts_a_pettingzoo_env_and_says_what_is_served(warm_cli: WarmCli, tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic.rps_v2")
    words = ["serve", "--pettingzoo", "pettingzoo.classic.rps_v2", "--num-envs", "3", "--port", "0"]
    process = warm_cli.start(words, output=tmp_path / "served.txt")
    process.wait_for("observation space of player")
    process.signal(signal.SIGINT)
    assert process.wait() == 0, process.text
    output = process.text
    assert "pettingzoo.classic.rps_v2: 3 envs on tcp://127.0.0.1:" in output
    assert "AGENTS=player:2" in output
    assert "agents: player: 2 in each env (player_0, player_1)" in output
    assert "observation space of player: DISCRETE 0 to 3" in output
    assert "stopped" in output


def test_serve_says_that_a_port_is_taken() -> None:
    with PluginStandIn() as game:
        assert "cannot listen" in str(refused("serve --env CartPole-v1 --port", game.port))


@pytest.mark.parametrize("subproc", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_bench_prints_its_tables(subproc: bool) -> None:
    output = ok("bench --num-envs 2 --repeats 1", "--subproc" if subproc else "--no-subproc")
    rows = ("codec", "ns a number", "shared memory", "shared channel", "per-env sockets")
    for text in (*rows, *(["SubprocVecEnv  "] if subproc else [])):
        assert text in output
