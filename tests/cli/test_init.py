"""`ue-rl init`: what it writes is a config that is understood and a script that runs, whatever the spaces are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from samples.reach import ReachBridge
from tests.support.command_line import ok, refused
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.testing import FaultyEngine, Script
from ue_rl.training.config import resolve

V1 = "ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1"


@pytest.mark.parametrize(
    ("handshake", "algo", "script"),
    [
        (f"OBS=4;ACT=2;{V1}", "ppo", 'PPO("MlpPolicy"'),
        (f"OBS=4;ACT=1;{V1};ACT_SPACE=DISCRETE(3);FEATURES=MASK", "maskable_ppo", 'MaskablePPO("MlpPolicy"'),
        (f"OBS=3;ACT=1;{V1};OBS_SPACE=DICT(a:BOX(-1:1)[2],b:DISCRETE(4))", "ppo", 'PPO("MultiInputPolicy"'),
        (f"OBS=2;ACT=1;{V1};AGENTS=fish:2", "ppo", 'PPO("MlpPolicy"'),
        (f"OBS=2;ACT=1;{V1};FEATURES=SEED,TRUNC;PARAMS=gravity:9.8:0:20", "ppo", "env"),
    ],
)
def test_the_config_is_understood(handshake: str, algo: str, script: str, tmp_path: Path) -> None:
    with FaultyEngine(Script(handshake=f"CONFIG:{handshake}")) as engine:
        ok(f"init 127.0.0.1:{engine.port} --output", tmp_path)
    written = (tmp_path / "train.yaml").read_text("utf-8")
    options = resolve({}, tmp_path / "train.yaml")
    assert (options.algo, options.urls) == (algo, [f"tcp://127.0.0.1:{engine.port}"])
    assert ("#   gravity: 9.8  # 0 to 20" in written) == ("PARAMS" in handshake)
    assert ("# max_episode_steps: 1000" in written) == ("TRUNC" not in handshake)
    assert script in (tmp_path / "train.py").read_text("utf-8")
    compile((tmp_path / "train.py").read_text("utf-8"), "train.py", "exec")


def test_the_script_trains_and_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with run_in_thread(ReachBridge(2)) as server:
        assert "then: ue-rl train --config train.yaml" in ok("init", server.url)
        script = (tmp_path / "train.py").read_text("utf-8")
        assert script.count('", env') == 1
        exec(script.replace("200_000", "64").replace('", env', '", env, n_steps=32'), {})
    assert (tmp_path / "agent.onnx").exists()


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    with run_in_thread(ReachBridge(2)) as server:
        assert re.search(r"there is such a file.*--force", str(refused(f"init {server.url} --output", tmp_path)))
        assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
        ok(f"init {server.url} --force --output", tmp_path)
    assert "ue_rl.connect" in (tmp_path / "train.py").read_text()


def test_several_groups_need_several_policies(tmp_path: Path) -> None:
    handshake = "CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;AGENTS=fish:1,shark:1"
    with FaultyEngine(Script(handshake=handshake)) as engine:
        assert "fish, shark" in str(refused(f"init 127.0.0.1:{engine.port} --output", tmp_path))
    assert list(tmp_path.iterdir()) == []
