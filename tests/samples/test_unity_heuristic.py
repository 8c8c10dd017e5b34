"""samples/unity in heuristic mode: games that act themselves, what they show, and what they tell a trainer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from tests.samples import heuristic
from tests.samples.programs import Trainer
from tests.samples.unity_engine import MARKS, MONO, asked, played, started

pytestmark = MARKS


def test_a_heuristic_is_shown_what_a_trainer_gets(engine_exe: Path) -> None:
    words = ["--num-envs", "2", "--seed", "3", "--max-steps", "15"]
    shown = played(engine_exe, "--heuristic", "6", *words)
    with started([engine_exe, "--port", "0", *words]) as port:
        heuristic.compare(shown, port)


def test_a_heuristic_plays_agents_and_masks(probe: Path) -> None:
    lines = played(probe, "play", "agents", "14", "1")
    assert lines[:4] == [
        "env 0, agent 0: obs[0]=0 obs[1]=0 | reward 0, return 0, step 0",
        "env 0, agent 2: obs[0]=20 obs[1]=20 obs[2]=20 | reward 0, return 0, step 0",
        "env 0, agent 0: obs[0]=1 obs[1]=1 | reward 1, return 1, step 1",
        "env 0, agent 2: obs[0]=21 obs[1]=21 obs[2]=21 | reward 1, return 1, step 1",
    ]
    ends = [line for line in lines if line.endswith(("done", "truncated"))]
    assert [line[:15] + line.partition("return")[2] for line in ends[:3]] == [
        "env 0, agent 2: 3, step 3, done",
        "env 0, agent 0: 6, step 6, truncated",
        "env 0, agent 1: 4, step 4, truncated",
    ]
    assert played(probe, "play", "sink", "3", "1")[1].startswith("env 0: step=1 gravity[m/s^2]=9.8 sum of actions=2 ")


def test_an_action_that_is_none_is_the_heuristic_s_fault(probe: Path) -> None:
    lines = played(probe, "play", "plain", "3", "1")
    assert lines[-1].startswith("the heuristic's action: ")
    assert len(lines) == 3


def test_the_behaviour_shows_the_first_env_on_the_screen(probe: Path) -> None:
    lines = played(probe, "play", "behaviour", "9", "2", "-heuristic=1")
    assert lines[0].endswith("step 0")
    assert [line.split(", ")[2] for line in lines[1:9]] == [f"step {step}" for step in range(1, 9)]


@pytest.mark.exhaustive
def test_what_the_demo_s_script_does_is_recorded_and_cloned(engine_exe: Path, probe: Path, tmp_path: Path) -> None:
    words = ["--port", "0", "--num-envs", "2", "--seed", "3"]
    with started([engine_exe, *words, "--demo"]) as port:
        found = heuristic.record(port, tmp_path / "shared", "shared")
        heuristic.record(port, tmp_path / "per-env", "per_env")
    with started([engine_exe, *words]) as port:
        heuristic.clone_and_play(port, found, tmp_path / "none")
    with started([probe, "serve", "behaviour", "0", "2", "-port=0", "-demo=1"]) as port:
        heuristic.record(port, tmp_path / "behaviour")


def test_a_game_that_acts_itself_says_so_beside_what_it_says_anyway(probe: Path) -> None:
    with started([probe, "serve", "sink-demo", "0", "2"], PROBE_CULTURE="comma") as port:
        with Trainer(port) as trainer:
            trainer.ask("ACT=RESET;ENV=1;SEED=1000")  # four ticks for each action; the heuristic is asked once
            told = quote('{"demo_action":[1,1]}')
            assert trainer.ask("ACT=0,0;ENV=1").endswith(f";ENV=1;MASK=11011;INFO={told}")
            trainer.ask("ACT=RESET;ENV=0;OPTIONS=%7B%22a%22%3A%22short%22%7D")
            _, _, info = trainer.ask("ACT=0,0;ENV=0").partition("INFO=")
            assert json.loads(unquote(info)) == {"demo_action": [1, 1], "is_success": True, "where": "Zürich"}
            for _ in range(3):
                trainer.ask("ACT=0,0;ENV=0")
            assert trainer.ask("ACT=0,0;ENV=0").startswith("ERROR=the%20game%20cannot%20go%20on%3A%20the%20heuristic")
    with started([probe, "serve", "agents-demo", "0", "1"]) as port, Trainer(port) as trainer:
        trainer.ask("ACT=RESET;ENV=0")
        rows = trainer.ask("ACT=0,0;ENV=0;AGENT=0||ACT=0;ENV=0;AGENT=2").split("||")
        told = [json.loads(unquote(row.partition("INFO=")[2])) for row in rows]
        assert told == [{"demo_action": [1, 1]}, {"demo_action": [1]}], rows


def test_a_game_that_acts_itself_needs_a_heuristic_and_info(probe: Path) -> None:
    config = "CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;FEATURES=DEMO"
    assert asked(probe, [("handshake", config, "")])[0].startswith("reject ArgumentException DEMO needs INFO")
    words = [str(MONO), str(probe), "serve", "idle-demo", "0", "1"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "DEMO needs Heuristic" in done.stderr
