"""`ue-rl` itself, `serve`, `inspect` and `bench`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

import ue_rl
from samples.reach import ReachBridge
from tests.cli.conftest import rest_of
from ue_rl import errors
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.bridges.hosting import Closes
from ue_rl.cli import COMMANDS, cli
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.cli.inspect import notes
from ue_rl.testing import FaultyEngine, PluginStandIn, Script
from ue_rl.wire.handshake import decode_handshake

NAME = f"ue_rl_{os.getpid()}_signals"
CART_POLE = ["--env", "CartPole-v1", "--num-envs", "2"]


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = "import sys; from ue_rl.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print([m for m in ('torch', 'numpy', 'rich', 'stable_baselines3') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip().endswith("[]")
    assert all(name in out for name in COMMANDS)


def test_the_name_of_an_engine_is_read_without_torch() -> None:
    """`inspect` would take the seconds in which it is loaded for those that the engine needs to connect."""
    code = "import sys; from ue_rl.cli.common import engine_url; engine_url('localhost'); "
    code += "assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_library_alone_says_what_the_command_line_needs() -> None:
    code = "import runpy, sys; sys.modules['click'] = None; runpy.run_module('ue_rl', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("The command line needs more than the library: pip install 'ue_rl[engine]'")


_NOT_IN_ENGINE = ("filelock", "flatbuffers", "gymnasium", "onnxruntime", "PIL", "stable_baselines3", "torch", "yaml")


@pytest.mark.parametrize("command", ["check", "inspect", "doctor", "report"])
def test_an_engines_author_needs_the_extra_engine_alone(command: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("trace: null\n")
    with run_in_thread(ReachBridge(3)) as server:
        words = {
            "check": [f"127.0.0.1:{server.port}"], "inspect": ["--port", str(server.port), "--steps", "60"],
            "doctor": ["--port", str(server.port), "--log-dir", str(tmp_path)],
            "report": [str(tmp_path), "-o", str(tmp_path / "report.zip")],
        }  # fmt: skip
        code = f"import sys; sys.modules.update(dict.fromkeys({_NOT_IN_ENGINE})); from ue_rl.cli import main; "
        code += f"main({[command, *words[command]]})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = {"check": "0 FAIL", "inspect": "env-steps/s", "doctor": "0 FAIL", "report": "doctor.json"}
    assert said[command] in done.stdout


def test_serve_hosts_a_bridge_with_the_extra_engine_alone() -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({_NOT_IN_ENGINE})); from ue_rl.cli import main; "
    code += "main(['serve', '--bridge', 'samples.reach:ReachBridge', '--port', '0'])"
    with subprocess.Popen([sys.executable, "-uc", code], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        first = serving.stdout.readline()
        serving.terminate()
    assert "8 envs on tcp://127.0.0.1:" in first


_LACKING = {
    "train": "train",
    "train --help": "train",
    "serve --env CartPole-v1": "train",
    "serve --pettingzoo pettingzoo.classic.rps_v2": "agents",
    "serve --mujoco HalfCheetah": "mujoco",
    "bench": "train",
    "export x.zip": "train",
    "play x.onnx": "train",
    "policy-server MODEL": "inference",
    "rllink --url URL --port 1": "rllink",
    "rllink --env CartPole-v1": "train",
    "arena run foraging": "arena",
    "demos show x": "demos",
    "tune": "tune",
    "runs": "train",
    "top x": "train",
    "replay x.trace": "recording",
    "trace show x.trace": "recording",
    "sessions samples.skirmish.bridge:Skirmish --tcp 0": "realtime",
}


@pytest.mark.parametrize("command", _LACKING)
def test_a_command_names_the_extra_that_it_lacks(command: str, tiny_model: Path) -> None:
    """All others work with the extra engine alone, which the tests above show, or need no engine."""
    hidden = (
        *_NOT_IN_ENGINE,
        "minari",
        "mujoco",
        "optuna",
        "pettingzoo",
        "onnx",
        "pydantic",
        "ray",
        "zstandard",
        *(["msgpack"] if "--url" in command else []),
    )
    with run_in_thread(ReachBridge(1)) as server:
        places = {"MODEL": str(tiny_model), "URL": server.url}
        words = [places.get(word, word) for word in command.split()]
        code = f"import sys; sys.modules.update(dict.fromkeys({hidden})); from ue_rl.cli import main; main({words})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert f"pip install 'ue_rl[{_LACKING[command]}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_command_is_tried_without_what_it_needs() -> None:
    tried = {command.split()[0] for command in _LACKING} | {"check", "inspect", "doctor", "report"}
    assert tried | {"init", "completion"} == set(COMMANDS)


def test_init_needs_the_extra_engine_alone(tmp_path: Path) -> None:
    with run_in_thread(ReachBridge(3)) as server:
        code = f"import sys; sys.modules.update(dict.fromkeys({_NOT_IN_ENGINE})); from ue_rl.cli import main; "
        code += f"main({['init', server.url, '--output', str(tmp_path)]})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert server.url in (tmp_path / "train.yaml").read_text("utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage" in result.output


def test_wrong_words_are_usage_errors() -> None:
    for words in (["dance"], ["serve"], ["serve", "--env", "a", "--bridge", "b:c"], ["inspect", "--port", "x"]):
        out = subprocess.run([sys.executable, "-m", "ue_rl", *words], capture_output=True, text=True, check=False)
        assert out.returncode == 2, (words, out.stderr)
        assert "Traceback" not in out.stderr


def test_version() -> None:
    assert ue_rl.__version__ in CliRunner().invoke(cli, ["--version"]).output


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal would")
@pytest.mark.parametrize(
    "served", [[*CART_POLE, "--port", "0"], ["--bridge", "mine:Mine", "--num-envs", "3", "--port", "0"]], indirect=True
)
def test_serve_hosts_says_who_connects_and_stops_with_ctrl_c(served: tuple[subprocess.Popen[str], str]) -> None:
    process, url = served
    for channel in ("shared", "per_env"):
        env = ue_rl.connect(url, channel=channel, timeout=10)
        env.reset()
        env.close()
    process.send_signal(signal.SIGINT)
    output = rest_of(process)
    assert process.returncode == 0
    assert output.count("a trainer connected from 127.0.0.1") == 2
    told = "the deployed plugin's own trainer reads no action space" in output
    assert isinstance(process.args, list)
    assert told == ("CartPole-v1" in process.args)  # whose actions are choices; the other's are within -1 to 1
    assert "stopped" in output
    assert "Traceback" not in output


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal would")
def test_serve_stops_with_a_ctrl_c_that_comes_as_it_starts() -> None:
    for _ in range(3):  # it lands where it likes
        with subprocess.Popen(
            [sys.executable, "-m", "ue_rl", "serve", *CART_POLE, "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as process:  # fmt: skip
            try:
                assert process.stdout is not None
                assert "2 envs on tcp://" in process.stdout.readline()
                process.send_signal(signal.SIGINT)
                output = rest_of(process)
            finally:
                process.kill()
        assert process.returncode == 0, output
        assert output.endswith("stopped\n")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm")
@pytest.mark.parametrize("served", [[*CART_POLE, "--shm", "--port", "0"], [*CART_POLE, f"shm://{NAME}"]], indirect=True)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_serve_ends_in_order_on_other_signals(
    served: tuple[subprocess.Popen[str], str], number: signal.Signals, code: int
) -> None:
    """A container that is stopped, a terminal that is closed: with a trainer attached, in mid-episode."""
    process, url = served
    env = ue_rl.connect(url, transport="auto")
    env.reset()
    name = env.transport.describe()["address"].removeprefix("shm://")
    assert (Path("/dev/shm") / name).exists()
    for _ in range(2):  # both may come, and more than once
        process.send_signal(number)
    output = rest_of(process)
    assert process.returncode == code
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
        (["--bridge", "no_such_module:X"], "cannot be loaded"),
        (["--bridge", "json"], "cannot be loaded"),
        (["--env", "CartPole-v1", "--kwargs", "[]"], "not a JSON object"),
        (["--env", "CartPole-v1", "--kwargs", '{"nope": 3}'], "unexpected keyword argument 'nope'"),
        (["--pettingzoo", "pettingzoo.no_such_env"], "cannot be loaded"),
        (["--env", "CartPole-v1", "--port", "0", "--tick-rate", "0"], "tick rate must be positive"),
    ],
)
def test_serve_refuses_by_name(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(cli, ["serve", *arguments])
    assert isinstance(result.exception, errors.UeRlError)
    assert text in str(result.exception)


def test_serve_closes_a_bridge_that_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(DoNothingBridge):
        def close(self) -> None:
            closed.append(self.num_envs)

    closed: list[int] = []
    assert issubclass(GymnasiumBridge, Closes)
    assert not issubclass(DoNothingBridge, Closes)
    monkeypatch.setattr("ue_rl.bridges.serve", lambda *_, **__: None)
    for made in (DoNothingBridge, Closing):
        monkeypatch.setattr("ue_rl.cli.do_nothing.DoNothingBridge", made)
        words = ["serve", "--bridge", "ue_rl.cli.do_nothing:DoNothingBridge", "--num-envs", "3"]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.exception
    assert closed == [3]


def test_serve_hosts_a_pettingzoo_env_and_says_what_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pettingzoo.classic.rps_v2")
    server = SimpleNamespace(url="tcp://127.0.0.1:1")
    monkeypatch.setattr("ue_rl.bridges.serve", lambda bridge, host, port, ready, **options: ready(server))
    result = CliRunner().invoke(cli, ["serve", "--pettingzoo", "pettingzoo.classic.rps_v2", "--num-envs", "3"])
    assert result.exit_code == 0, result.exception
    assert "pettingzoo.classic.rps_v2: 3 envs on tcp://127.0.0.1:1" in result.output
    assert "AGENTS=player:2" in result.output
    assert "agents: player: 2 in each env (player_0, player_1)" in result.output
    assert "observation space of player: DISCRETE 0 to 3" in result.output
    assert "stopped" in result.output


def test_serve_says_that_a_port_is_taken() -> None:
    with PluginStandIn() as game:
        result = CliRunner().invoke(cli, ["serve", "--env", "CartPole-v1", "--port", str(game.port)])
    assert isinstance(result.exception, errors.ConfigurationError)
    assert "cannot listen" in str(result.exception)


@pytest.mark.parametrize("served", [[*CART_POLE, "--port", "0"]], indirect=True)
def test_inspect(served: tuple[subprocess.Popen[str], str]) -> None:
    port = served[1].rpartition(":")[2]
    output = CliRunner().invoke(cli, ["inspect", "--port", port, "--steps", "60"]).output
    for text in ("ACT_SPACE=DISCRETE(2)", "Discrete(2)", "shared channel", "p50", "p99", "env-steps/s", "SEED"):
        assert text in output.replace("\n", ""), output


def test_inspect_on_the_plugin_says_what_to_know() -> None:
    with PluginStandIn(num_envs=2, tick_rate=60) as game:
        result = CliRunner().invoke(cli, ["inspect", "--port", str(game.port), "--steps", "10"])
    output = " ".join(result.output.split())
    assert "deployed plugin" in output
    assert "the game's tick, not the bridge" in output
    assert "2 env sockets" in output


def test_inspect_prints_an_engines_text_as_it_is() -> None:
    text = "CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;FEATURES=[/X]"
    with FaultyEngine(Script(handshake=text)) as engine:
        result = CliRunner().invoke(cli, ["inspect", "--port", str(engine.port), "--steps", "2"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.output.count("[/X]") == 3  # in the handshake, among the features, and as one that is unknown


def test_notes() -> None:
    plain = decode_handshake(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1")
    assert notes(plain, 1e-4) == []
    wide = decode_handshake(b"CONFIG:OBS=1;ACT=100;ENV_TYPE=SINGLE")
    assert any("1024" in note for note in notes(wide, None))


def test_bench_prints_its_tables() -> None:
    result = CliRunner().invoke(cli, ["bench", "--num-envs", "2", "--repeats", "1"])
    assert result.exit_code == 0, (result.output, result.exception)
    for text in ("codec", "ns a number", "shared channel", "per-env sockets", "SubprocVecEnv"):
        assert text in result.output
