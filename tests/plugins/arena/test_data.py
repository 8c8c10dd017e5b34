"""Evals, data to learn from, configs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra train is not installed: a trainer plays here")

from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.plugins.arena import AgentArena, AgentDecision, LLMAgentBehavior, RandomBehavior, RulesBehavior
from ue_rl.plugins.arena.config import behaviors_of, load_config, scene_of
from ue_rl.plugins.arena.datasets import demonstrations, nearest_choice, preference_pairs, record, to_minari
from ue_rl.plugins.arena.evals import Score, chart, evaluate, interval
from ue_rl.plugins.arena.memory import VectorMemory
from ue_rl.plugins.arena.scenes import Capture, Foraging, SceneBridge
from ue_rl.system.errors import ConfigurationError


def test_behaviours_are_compared_on_the_same_episodes(tmp_path: Path) -> None:
    behaviors = {"rules": lambda: {"forager": RulesBehavior()}, "random": lambda: {"forager": RandomBehavior()}}
    rules, chance = evaluate(Foraging, behaviors, episodes=2, seeds=(0, 1))
    assert (rules.label, rules.episodes) == ("rules", 4)
    assert rules.low <= rules.mean <= rules.high
    assert rules.low > chance.high
    assert set(rules.metrics) == {"resources", "damage", "distance", "time"}
    chart([rules, chance], tmp_path / "chart.png", "foraging")
    assert (tmp_path / "chart.png").stat().st_size > 1000


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    held = sum(low <= 2 <= high for low, high in (interval(rng.normal(2, 1, 30)) for _ in range(300)))
    assert held >= 0.88 * 300  # 95 % less what a bootstrap of 30 and three standard errors of 300 draws take
    assert interval([3.0]) == (3, 3)


def test_failed_decisions_and_tokens_are_counted() -> None:
    from ue_rl.plugins.arena.backends import ScriptedBackend

    mind = LLMAgentBehavior(ScriptedBackend(["nonsense", {"tool": "idle"}]))
    score = Score.of("llm", AgentArena.play(Foraging(), mind))
    assert score.failed == pytest.approx(0.5, abs=0.01)
    assert score.tokens > 50


@pytest.mark.parametrize("scene", [Foraging, Capture])
def test_a_choice_is_its_own_nearest(scene: Any) -> None:
    seen = scene().observe(scene.agents[0])
    for n in range(len(scene.choices)):
        mine = scene.choose(n, seen)
        assert scene.choose(nearest_choice(scene, mine, seen), seen) == mine
    north = AgentDecision("move_to", {"target_position": [seen.position[0] + 1, 0, seen.position[2] + 90], "speed": 1})
    assert scene.choices[nearest_choice(scene, north, seen)] == "north"
    written = {"target_position": [str(part) for part in north.params["target_position"]]}  # as tools take it
    assert scene.choices[nearest_choice(scene, AgentDecision("move_to", written), seen)] == "north"
    assert scene.choices[nearest_choice(scene, AgentDecision("unknown"), seen)] == "idle"


def test_trajectories_are_what_a_trainer_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded choices, stepped in the bridge, give observations of the same shape and start."""
    trajectories = record(Foraging, {"forager": RulesBehavior()}, episodes=2, seed=7)
    seen, choices = demonstrations(trajectories)
    assert seen.shape == (len(choices), len(Foraging.obs_names))
    first = trajectories[0]
    assert len(first.observations) == len(first.actions) + 1 == len(first.rewards) + 1
    env = UnrealVecEnv(MemoryTransport(SceneBridge(Foraging)))
    env.seed(7)
    np.testing.assert_array_equal(env.reset()[0], first.observations[0])

    minari = pytest.importorskip("minari", reason="minari is not installed")
    pytest.importorskip("h5py", reason="h5py, which Minari stores with, is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it misses an author and a description
        to_minari(trajectories, "foraging/rules-v0", Foraging)
    loaded = minari.load_dataset("foraging/rules-v0")
    episode = next(iter(loaded.iterate_episodes()))
    np.testing.assert_array_equal(episode.observations, first.observations)
    np.testing.assert_array_equal(episode.actions, first.actions)
    assert bool(episode.terminations[-1]) == first.terminated
    assert bool(episode.truncations[-1]) != first.terminated


def test_preference_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    rules, chance = {"forager": RulesBehavior()}, {"forager": RandomBehavior()}
    count = preference_pairs(Foraging, rules, chance, path, episodes=1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == count > 20
    assert all(set(row) == {"prompt", "chosen", "rejected"} and row["chosen"] != row["rejected"] for row in rows)
    assert "berry" in rows[0]["prompt"]
    with pytest.raises(ConfigurationError, match="earns no more"):
        preference_pairs(Foraging, {"forager": RandomBehavior()}, {"forager": RulesBehavior()}, path, episodes=1)


def test_a_config_is_a_tree_of_files(tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend" / "fake.yaml").write_text('kind: scripted\nlines: [\'{"tool": "idle"}\']\n')
    main = tmp_path / "run.yaml"
    main.write_text("scene: {name: foraging, max_ticks: 7}\nbehavior: llm\nbackend: fake\nmemory: {kind: vector}\n")
    config = load_config(main, ["memory.capacity=5", "llm.plan_every=2", "seed=3"])
    scene = scene_of(config)
    assert scene.max_ticks == 7
    mind = behaviors_of(config, scene, tmp_path)["forager"]
    assert isinstance(mind, LLMAgentBehavior)
    assert isinstance(mind.memory, VectorMemory)
    assert (mind.memory.capacity, mind.plan_every, config["seed"]) == (5, 2, 3)
    assert AgentArena.play(scene(), mind)[0].ticks == 7
    (tmp_path / "backend" / "other.yaml").write_text("kind: openai\nmodel: m\nbase_url: http://127.0.0.1:9/v1\n")
    changed = load_config(main, ["backend=other", "backend.model=big"])
    assert changed["backend"] == {"kind": "openai", "model": "big", "base_url": "http://127.0.0.1:9/v1"}
    changed = load_config(main, ["backend.kind=llama"])
    assert changed["backend"] == {"kind": "llama", "lines": ['{"tool": "idle"}']}, "the file's, but for one setting"
    assert scene_of(load_config(None, ["scene=crafting", "scene.max_ticks=3"])).name == "crafting"
    assert (tmp_path / "memory-forager.jsonl").exists()


def test_a_config_names_embedder_and_who_sums_up(tmp_path: Path) -> None:
    idle = {"tool": "idle", "params": {}}
    lines = [idle, idle, "it idles", idle]
    backend = f"backend={json.dumps({'kind': 'scripted', 'lines': lines})}"
    memory = "memory={kind: summarising, capacity: 1, batch: 3, summarise: model}"
    config = load_config(None, ["behavior=llm", backend, memory, "scene.name=foraging", "scene.max_ticks=2"])
    mind = behaviors_of(config, scene_of(config))["forager"]
    AgentArena.play(scene_of(config)(), mind)
    assert mind.memory is not None
    assert mind.memory.dump()[0]["text"] == "it idles"
    small = load_config(None, ["behavior=llm", backend, "memory={kind: vector, embedder: {kind: hashing, size: 8}}"])
    memory_of = behaviors_of(small, Foraging)["forager"].memory
    assert isinstance(memory_of, VectorMemory)
    assert memory_of.embedder.size == 8


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        (["episodes=many"], "episodes"), (["seed=-1"], "seed"), (["deadline=soon"], "deadline"), (["llm=3"], "llm"),
        (["scene=5"], "scene.name"), (["scene.max_ticks=abc"], "scene.max_ticks"), (["scene.size=2"], "scene.size"),
        (["seed=[1"], "seed"), (["behavior=llm", "backend.kind=scripted", "backend.lines=[a]", "memory.capacity=0"],
                                "capacity"),
        (["wrong=1"], "wrong"), (["seed"], "set"), (["scene=moon"], "scene"),
        (["scene.name=foraging", "scene.gravity=1"], "scene.gravity"), (["behavior=wizard"], "behavior"),
        (["behavior=nowhere:Class"], "behavior"),
        (["behavior=llm"], "backend.kind"), (["behavior=llm", "backend.kind=scripted", "backend.nope=1"], "backend"),
        (["behavior=llm", "backend.kind=scripted", "backend.lines=[a]", "memory.kind=elephant"], "memory.kind"),
        (["behavior=llm", "backend.kind=scripted", "backend.lines=[a]", "memory.kind=vector", "memory.embedder=x"],
         "memory.embedder.kind"),
    ],
)  # fmt: skip
def test_what_a_config_says_wrong_is_named(overrides: list[str], field: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        config = load_config(None, overrides)
        behaviors_of(config, scene_of(config))
    assert error.value.field == field
