"""Every engine of ours passes `ue-rl check`; the deployed plugin's stand-in does but for its known limits.

Those in C++, for Unreal and for Godot, and those of pages and of samples/fifty_lines: beside their other tests.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

import pytest

from samples.agents.cover import CoverBridge
from samples.agents.sumo import SumoBridge
from samples.curriculum.climb import Climb
from samples.reach import ReachBridge
from tests.devtools.check.reports import BEHAVIOUR, check, of_engine
from tests.samples import unity_engine as unity
from ue_rl.bridges import BaseBridge, GymnasiumBridge, ShmUpgrader, run_in_thread
from ue_rl.devtools.check import CheckReport, Options
from ue_rl.devtools.check.memory_peer import MEMORY
from ue_rl.devtools.check.text_peer import PER_ENV, SHARED
from ue_rl.devtools.testing import ChaosEngine, PluginStandIn

BRIDGES: dict[str, Callable[[], BaseBridge]] = {
    "Pendulum": lambda: GymnasiumBridge("Pendulum-v1", 2),
    "FrozenLake": lambda: GymnasiumBridge("FrozenLake-v1", 3),
    "reach": lambda: ReachBridge(4),
    "sumo": lambda: SumoBridge(3),
    "cover": lambda: CoverBridge(3),
}


def carriers(report: CheckReport) -> set[str]:
    return {finding.carrier for finding in report.findings} - {""}


def of_a_bridge(name: str) -> CheckReport:
    with run_in_thread(BRIDGES[name]()) as engine:
        return check(engine.url)


@pytest.mark.ahead(job=of_a_bridge)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "sumo" else pytest.mark.exhaustive) for name in BRIDGES]
)
def test_a_bridge(name: str, result: CheckReport) -> None:
    assert result.mistakes == [], result
    assert carriers(result) == ({SHARED} if BRIDGES[name]().spec.groups else {SHARED, PER_ENV})


def of_shared_memory() -> CheckReport:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 4), upgrader=ShmUpgrader()) as engine:
        return check(engine.url)


@pytest.mark.ahead(job=of_shared_memory)
def test_a_bridge_over_shared_memory_too(result: CheckReport) -> None:
    assert result.mistakes == [], result
    assert carriers(result) == {SHARED, PER_ENV, *([MEMORY] if sys.platform == "linux" else [])}


@pytest.mark.exhaustive
def test_nothing_is_wrong_over_any_carrier_of_an_engine_of_its_own() -> None:
    with ChaosEngine(num_envs=3, shm=True) as engine:
        report = check(engine.url, Options(timeout=3.0, seed=2), only=BEHAVIOUR)
    assert report.mistakes == [], report
    assert len({finding.carrier for finding in report.findings if finding.check == "a seed twice"}) == 3


@pytest.mark.exhaustive
def test_the_seed_of_one_wall_leaves_the_others_alone() -> None:
    with run_in_thread(Climb(4)) as engine:
        report = check(engine.url, only=("a seed twice", "a seed for one env", "what partial batches do"))
    assert report.mistakes == [], report


def of_csharp() -> CheckReport:
    exe = unity.compiled("engine.exe", *unity.CONSOLE)
    with unity.started([exe, "--port", "0", "--num-envs", "4"], LC_ALL="de_DE.UTF-8") as port:
        return check(f"tcp://127.0.0.1:{port}")


@pytest.mark.skipif(shutil.which("mono") is None or shutil.which("mcs") is None, reason="mono is not installed")
@pytest.mark.ahead(job=of_csharp)
def test_csharp(result: CheckReport) -> None:
    assert result.mistakes == [], result
    assert {SHARED, PER_ENV} <= carriers(result)


# In this process, one after the other: whether a message arrives in pieces is a matter of time, and the plugin does not
# read those, which is another limit.
@pytest.mark.parametrize(
    ("decimals", "env_type"),
    [
        (2, "RLBASE"),
        pytest.param(2, "MULTI", marks=pytest.mark.exhaustive),
        pytest.param(6, "MULTI", marks=pytest.mark.exhaustive),
        pytest.param(6, "SINGLE", marks=pytest.mark.exhaustive),
    ],
)
def test_the_deployed_plugin_has_its_known_limits(env_type: str, decimals: int) -> None:
    with PluginStandIn(env_type=env_type, decimals=decimals, stale_reads=True) as game:
        report = check(game.url, Options(base=True))
    assert report.exit_code == 0, report
    assert set(report.mistakes) == {"serves-once", *(["two-decimals"] if decimals == 2 else [])}


def test_the_plugins_comma_helper_is_a_known_limit() -> None:
    with PluginStandIn(obs_format="comma") as game:
        report = check(game.url, Options(base=True), only=("steps of all envs",))
    assert report.exit_code == 0, report
    assert "missing-separator" in report.mistakes
    assert {"docs/unreal.md" in found.mistake.cure for found in report.findings if found.mistake is not None} == {True}


def test_without_base_the_plugin_fails() -> None:
    with PluginStandIn() as game:
        report = check(game.url, Options(timeout=1.0), only=("next trainer",))
    assert report.exit_code == 1
    assert "serves-once" in report.mistakes


@pytest.mark.parametrize("env_type", ["SINGLE", pytest.param("RLBASE", marks=pytest.mark.exhaustive)])
def test_without_nul_bytes_the_plugin_takes_old_text_for_new(env_type: str) -> None:
    with PluginStandIn(env_type=env_type, decimals=6, stale_reads=True) as game:
        report = check(game.url, Options(base=True, timeout=1.5, nul_terminated=False))
    assert report.exit_code == 1, report


def test_a_slow_tick_of_rlbase_is_no_mistake() -> None:
    with PluginStandIn(env_type="RLBASE", tick_rate=20) as game:
        report = check(game.url, Options(base=True, patience=0.5), only=("speed",))
    assert report.mistakes == [], report
    assert "ticks_per_s" not in report.speed[SHARED]  # a step takes two or three


@pytest.mark.exhaustive
def test_a_mistake_is_told_once_for_all_carriers() -> None:
    report = of_engine("seed-ignored:clock", channel="ANY")
    assert [found.mistake.name for found in report.findings if found.mistake is not None] == ["seed-ignored"]
    assert f"seed-ignored, as over {SHARED}" in {found.text for found in report.findings}
    assert report.exit_code == 1
