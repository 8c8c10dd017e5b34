"""Every engine of ours passes `ue-rl check`; the deployed plugin's stand-in does but for its known limits."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from samples.agents.cover import CoverBridge
from samples.agents.sumo import SumoBridge
from samples.curriculum.climb import Climb
from samples.reach import ReachBridge
from tests.samples import godot_engine
from tests.samples import test_cpp as cpp
from tests.samples import test_unity as unity
from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_thread
from ue_rl.bridges.core import BridgeCore
from ue_rl.compliance import Options, Report, check
from ue_rl.compliance.memory_peer import MEMORY
from ue_rl.compliance.text_peer import PER_ENV, SHARED
from ue_rl.testing import PluginStandIn

BRIDGES: dict[str, Callable[[], BridgeCore]] = {
    "CartPole": lambda: GymnasiumBridge("CartPole-v1", 4),
    "Pendulum": lambda: GymnasiumBridge("Pendulum-v1", 2),
    "FrozenLake": lambda: GymnasiumBridge("FrozenLake-v1", 3),
    "reach": lambda: ReachBridge(4),
    "sumo": lambda: SumoBridge(3),
    "cover": lambda: CoverBridge(3),
}


def carriers(report: Report) -> set[str]:
    return {finding.carrier for finding in report.findings} - {""}


def right(port: int, *expected: str) -> None:
    report = check(f"tcp://127.0.0.1:{port}")
    assert report.mistakes == [], report
    assert carriers(report) == set(expected)


@pytest.mark.parametrize("name", BRIDGES)
def test_a_bridge(name: str) -> None:
    bridge = BRIDGES[name]()
    with run_in_thread(bridge) as engine:
        right(engine.port, SHARED, *([] if bridge.spec.groups else [PER_ENV]))


@pytest.mark.skipif(sys.platform != "linux", reason="shared memory")
def test_a_bridge_over_shared_memory_too() -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 4), upgrader=ShmUpgrader()) as engine:
        right(engine.port, SHARED, PER_ENV, MEMORY)


def test_the_seed_of_one_wall_leaves_the_others_alone() -> None:
    with run_in_thread(Climb(4)) as engine:
        report = check(engine.url, only=("a seed twice", "a seed for one env", "what partial batches do"))
    assert report.mistakes == [], report


def test_mujoco(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mujoco.batch", reason="MujocoBridge needs mujoco 4.0")
    from ue_rl.bridges import MujocoBridge

    monkeypatch.chdir(tmp_path)  # MuJoCo writes its warnings into a file of the current folder
    with run_in_thread(MujocoBridge("HalfCheetah", num_envs=2)) as engine:
        right(engine.port, SHARED, PER_ENV)


@pytest.mark.skipif(shutil.which("g++") is None or sys.platform == "win32", reason="g++ is not installed")
def test_cpp() -> None:
    binary = cpp.cached("g++", cpp.SAMPLE / "reach.cpp", "-O2")
    with cpp.running(binary, "--port", "0") as port:
        report = check(f"tcp://127.0.0.1:{port}")
    assert report.mistakes == [], report
    assert {SHARED, PER_ENV} <= carriers(report)


@pytest.mark.skipif(shutil.which("mono") is None or shutil.which("mcs") is None, reason="mono is not installed")
def test_csharp(tmp_path: Path) -> None:
    sources = [*unity.BRIDGE, *sorted((unity.SAMPLE / "console").glob("*.cs"))]
    engine = unity.compiled(tmp_path / "engine.exe", *sources)
    with unity.started([engine, "--port", "0", "--num-envs", "4"], LC_ALL="de_DE.UTF-8") as port:
        report = check(f"tcp://127.0.0.1:{port}")
    assert report.mistakes == [], report
    assert {SHARED, PER_ENV} <= carriers(report)


@pytest.mark.skipif(godot_engine.GODOT is None, reason="godot3-server is not installed")
@pytest.mark.parametrize(
    "words", [[], ["--task=rolling_ball"], ["--task=catcher"]], ids=["cart_pole", "ball", "catcher"]
)
def test_godot(tmp_path: Path, words: list[str]) -> None:
    with godot_engine.running(tmp_path, *words, num_envs=3) as engine:
        engine.dial().close()  # it listens
        report = check(f"tcp://127.0.0.1:{engine.port}", Options(timeout=5))
    assert report.mistakes == [], report
    assert {SHARED, PER_ENV} <= carriers(report)


@pytest.mark.parametrize("env_type", ["MULTI", "SINGLE", "RLBASE"])
@pytest.mark.parametrize("decimals", [2, 6])
def test_the_deployed_plugin_has_its_known_limits(env_type: str, decimals: int) -> None:
    with PluginStandIn(env_type=env_type, decimals=decimals) as game:
        report = check(game.url, Options(base=True))
    assert report.exit_code == 0, report
    assert set(report.mistakes) == {"serves-once", *(["two-decimals"] if decimals == 2 else [])}


def test_the_plugins_comma_helper_is_a_known_limit() -> None:
    with PluginStandIn(obs_format="comma") as game:
        report = check(game.url, Options(base=True))
    assert report.exit_code == 0, report
    assert "missing-separator" in report.mistakes


def test_without_base_the_plugin_fails() -> None:
    with PluginStandIn() as game:
        report = check(game.url, Options(timeout=0.5))
    assert report.exit_code == 1
    assert "serves-once" in report.mistakes
