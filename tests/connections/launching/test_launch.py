"""ue_rl.launch: engines of ours, and Godot where it is installed, as one VecEnv that outlives them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

import ue_rl
from tests.connections.launching.conftest import keepers, processes_with
from tests.support.waiting import eventually
from ue_rl.connections.engines.lifecycle import Change, LifeState
from ue_rl.connections.launching.engine import seed_of
from ue_rl.system.errors import ConfigurationError, EngineNotStarted, RestartsSpent, TransportError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")

# argv: token, port, num_envs
ENGINE = """
import sys
from ue_rl.bridges import ShmUpgrader, serve
from ue_rl.cli.do_nothing import DoNothingBridge
serve(DoNothingBridge(int(sys.argv[3])), port=int(sys.argv[2]), upgrader=ShmUpgrader(),
      ready=lambda host: print("ready", sys.argv[1:], flush=True))
"""
PROJECT = Path(__file__).resolve().parents[3] / "samples" / "godot"


def command(token: str, *more: str) -> list[str]:
    return [sys.executable, "-c", ENGINE, token, "{port}", "{num_envs}", *more]


def engines(token: str) -> list[psutil.Process]:
    watching = {keeper.pid for keeper in keepers(token)}
    return sorted((p for p in processes_with(token) if p.pid not in watching), key=lambda p: p.create_time())


@pytest.fixture
def launch(token: str) -> Callable[..., ue_rl.UnrealVecEnv]:
    def started(*more: str, **options: object) -> ue_rl.UnrealVecEnv:
        env = ue_rl.launch(command(token, *more), **options)  # type: ignore[arg-type]
        made.append(env)
        return env

    made: list[ue_rl.UnrealVecEnv] = []
    yield started
    for env in made:
        env.close()


def actions(env: ue_rl.UnrealVecEnv) -> np.ndarray:
    return np.zeros((env.num_envs, *env.action_space.shape), np.float32)


def test_seeds_of_engines_and_of_their_lives_are_far_apart() -> None:
    for run in (0, 100, 2**63 - 1):
        seeds = [seed_of(run, engine, life) for engine in range(4) for life in range(4)]
        assert seeds == [seed_of(run, engine, life) for engine in range(4) for life in range(4)]
        assert seeds[0] == run
        assert all(0 <= seed < 2**31 for seed in seeds[1:])
        assert min(np.diff(sorted(seeds))) > 1000  # an engine's envs count on from its seed
    assert seed_of(100, 1, 0) != seed_of(101, 1, 0)


@pytest.mark.parametrize("transport", [pytest.param("tcp", marks=pytest.mark.exhaustive), "shm"])
def test_engines_that_die_together_come_back(
    launch: Callable[..., ue_rl.UnrealVecEnv], token: str, tmp_path: Path, transport: str
) -> None:
    changes: list[Change] = []
    options = {"num_engines": 2, "num_envs": 2, "seed": 5, "output_dir": tmp_path, "on_change": changes.append}
    env = launch("{seed}", "{engine}", transport=transport, **options)
    assert env.num_envs == 4
    env.reset()
    segments = {path for path in Path("/dev/shm").glob("ue_rl_*") if path.name.split("_")[2] in map(str, pids(token))}
    assert bool(segments) == (transport == "shm")
    for process in engines(token):
        process.kill()
    lost: set[int] = set()
    for _ in range(3):
        _, rewards, dones, infos = env.step(actions(env))
        for i, info in enumerate(infos):
            if "engine_lost" in info:
                assert "SIGKILL" in info["engine_lost"]
                assert dones[i]
                assert rewards[i] == 0
                assert info["TimeLimit.truncated"]
                assert "episode" not in info
                lost.add(i)
    assert lost == {0, 1, 2, 3}
    assert len(engines(token)) == 2
    assert not any(path.exists() for path in segments)
    text = [(tmp_path / f"engine-{i}.log").read_text() for i in range(2)]
    assert "'2', '5', '0'" in text[0]
    for engine, life in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert f"'2', '{seed_of(5, engine, life)}', '{engine}'" in text[engine]
    assert all("start 2" in one for one in text)
    assert [c.after for c in changes if c.engine == 1 and c.after is LifeState.LAUNCHING] == [LifeState.LAUNCHING] * 2
    env.close()
    assert processes_with(token) == []


def pids(token: str) -> set[int]:
    return {process.pid for process in processes_with(token)}


@pytest.mark.slow
def test_one_that_hangs_is_killed_and_started_again(
    launch: Callable[..., ue_rl.UnrealVecEnv], token: str, slack: float
) -> None:
    env = launch(num_envs=2, timeout=0.5 * slack)
    env.reset()
    first = engines(token)[0]
    first.send_signal(signal.SIGSTOP)
    while first.status() != psutil.STATUS_STOPPED:  # another processor may still run it
        time.sleep(0.001)
    _, _, dones, infos = env.step(actions(env))
    assert dones.all()
    assert "was still running and was killed" in infos[0]["engine_lost"]
    env.step(actions(env))
    assert first.pid not in pids(token)


def test_without_restarts_a_loss_is_final(launch: Callable[..., ue_rl.UnrealVecEnv], token: str) -> None:
    env = launch(num_envs=2, restarts=0)
    env.reset()
    engines(token)[0].kill()
    with pytest.raises(TransportError, match=r"(?s)SIGKILL.*ready"):
        for _ in range(3):
            env.step(actions(env))
    env.close()
    assert processes_with(token) == []


def test_one_that_crashes_in_a_loop_spends_its_quota(token: str) -> None:
    """It serves once, and then never again."""
    flag = Path(f"/tmp/{token}")
    code = f"import os, sys\nif os.path.exists({str(flag)!r}): sys.exit('broken save file')\n" + ENGINE
    env = ue_rl.launch([sys.executable, "-c", code, token, "{port}", "2"], num_envs=2, restarts="2/60s")
    try:
        env.reset()
        flag.touch()
        engines(token)[0].kill()
        with pytest.raises(RestartsSpent):
            for _ in range(10):
                env.step(actions(env))
    finally:
        flag.unlink()
        env.close()
    assert processes_with(token) == []


def test_one_of_several_that_does_not_start_ends_the_others(token: str) -> None:
    code = "import sys\nif sys.argv[4] == '1': sys.exit(9)\n" + ENGINE
    with pytest.raises(EngineNotStarted, match=r"engine 1 .*exit code 9, before it listened"):
        ue_rl.launch([sys.executable, "-c", code, token, "{port}", "2", "{engine}"], num_engines=3, num_envs=2)
    eventually(lambda: not processes_with(token))


def test_what_is_wrong_is_said_before_anything_starts(token: str) -> None:
    with pytest.raises(ConfigurationError, match="no placeholder"):
        ue_rl.launch([*command(token), "{nope}"])
    assert processes_with(token) == []


@pytest.mark.skipif(shutil.which("godot3-server") is None, reason="godot3-server is not installed")
def test_the_godot_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slack: float) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GODOT", "godot3-server")
    env = ue_rl.launch(f"godot:'{PROJECT}'", 2, 3, output_dir=tmp_path)
    try:
        assert env.num_envs == 6
        env.reset()
        mine = [p for p in psutil.Process().children(recursive=True) if p.name().startswith("godot")]
        assert len(mine) == 2
        began = time.monotonic()
        for _ in range(60):  # a second of game time
            env.step(actions(env))
        assert time.monotonic() - began < slack  # no frame cap
        os.kill(mine[1].pid, signal.SIGKILL)
        lost = [env.step(actions(env))[3] for _ in range(3)]
        assert any("engine_lost" in info for infos in lost for info in infos)
        assert "wait for a trainer" in (tmp_path / "engine-1.log").read_text()
    finally:
        env.close()
    assert not any(process.is_running() for process in mine)
