"""The scenes: the same seed is the same episode, rules beat random, and a policy plays what behaviours play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra train is not installed: a trainer plays here")

from tests.support.traces import overflow
from ue_rl.bridges import run_in_thread, run_shm_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.agents.vec_env import GroupVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.plugins.arena import AgentArena, PolicyBehavior, RandomBehavior, SimpleAgentBehavior, replay
from ue_rl.plugins.arena.replaylog import SIDE, ReplayLog
from ue_rl.plugins.arena.scenes import SCENES, Capture, Crafting, Foraging, Scene, SceneBridge, TeamBridge
from ue_rl.plugins.arena.scenes.crafting import needed
from ue_rl.plugins.arena.scenes.rules import RULES
from ue_rl.protocol.traces.file import MessageKind
from ue_rl.protocol.traces.writing import TraceWriter
from ue_rl.system.errors import ConfigurationError, ReplayInvalid


def played(scene: type[Scene], make: Any, episodes: int = 6, **options: Any) -> list[Any]:
    return AgentArena.play(scene(), {agent: make() for agent in scene.agents}, episodes=episodes, **options)


def short(scene: type[Scene]) -> type[Scene]:
    """The same one, whose episodes end after 40 ticks."""
    return type("Short", (scene,), {"max_ticks": 40})


# The capture, with its three agents a side, takes longest.
NAMES = [pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "capture")) for name in SCENES]


@pytest.mark.parametrize("name", NAMES)
def test_rules_beat_random(name: str) -> None:
    rules = [episode.score for episode in played(SCENES[name], RULES[name])]
    chance = [episode.score for episode in played(SCENES[name], RandomBehavior)]
    better = [r - c for r, c in zip(rules, chance, strict=True)]
    assert np.mean(better) > 3 * np.std(better) / np.sqrt(len(better))  # three standard errors


def test_the_metrics_of_each_scene() -> None:
    assert set(played(Foraging, RULES["foraging"], 1)[0].metrics) == {"resources", "damage", "distance", "time"}
    (made,) = played(Crafting, RULES["crafting"], 1)
    assert made.success
    assert made.metrics["items"] == 5
    assert (made.metrics["efficiency"], made.metrics["waste"]) == (1, 0)
    (team,) = played(Capture, RULES["capture"], 1)
    assert set(team.metrics) == {"objectives", "coordination", "share", "win"}


def test_what_is_needed_for_a_pickaxe() -> None:
    assert needed({}) == {"wood": 2, "stone": 3, "plank": 2, "stick": 2, "stone_pickaxe": 1}
    left = {"wood": 0, "stone": 0, "plank": 0, "stick": 1, "stone_pickaxe": 1}
    assert needed({"stick": 1, "plank": 1, "stone": 3}) == left


def test_tier_one_collects_something() -> None:
    class Forager(SimpleAgentBehavior):
        """The fifteen lines of the page."""

        def decide(self, context: Any) -> str:
            berry = context.nearest_resource
            return "collect" if berry is not None and berry.distance < 1.5 else "move_to"

    assert AgentArena.play(Foraging(), Forager())[0].metrics["resources"] >= 3


@pytest.mark.parametrize("name", NAMES)
def test_the_log_is_the_same_bit_by_bit_and_replays(name: str, tmp_path: Path) -> None:
    scene = short(SCENES[name])
    logs = []
    for n, order in enumerate((scene.agents, scene.agents, scene.agents[::-1])):
        AgentArena.play(scene(), {a: RandomBehavior(3) for a in order}, episodes=2, replay=tmp_path / f"{n}.log")
        logs.append(json.dumps([(m.kind, m.facts) for m in ReplayLog(tmp_path / f"{n}.log")]))
    assert logs[0] == logs[1] == logs[2]
    log = ReplayLog(tmp_path / "0.log")
    assert log.about == {"seed": 0, "tick_rate": 10.0, "scene": name}
    ticks = sum(message.kind is MessageKind.TICKS for message in log)
    assert log.end == ""
    assert replay(tmp_path / "0.log", scene()) == ticks


def test_a_world_that_differs_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    AgentArena.play(Foraging(), RULES["foraging"](), replay=path)

    class Slippery(Foraging):
        def advance(self) -> None:
            super().advance()
            self.bodies["forager"].x += self.tick == 5

    with pytest.raises(ReplayInvalid, match="differs at tick 5"):
        replay(path, Slippery())
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ReplayInvalid, match="not a trace"):
        replay(path, Foraging())
    path.write_bytes(msgpack.packb({"metadata": {"seed": 0, "tick_rate": 10.0, "version": "0.1.0"}, "events": []}))
    with pytest.raises(ReplayInvalid, match=r"of an earlier form.*the ue_rl that has recorded it"):
        replay(path, Foraging())
    TraceWriter(path, None, "session").close()
    with pytest.raises(ReplayInvalid, match="recorded elsewhere"):
        replay(path, Foraging())
    overflow(path, SIDE)
    with pytest.raises(ReplayInvalid, match="beginning of this log was dropped"):
        replay(path, Foraging())
    path.with_name("log.1").unlink()
    writer = TraceWriter(path, None, SIDE)
    writer.add(MessageKind.EPISODE, {"seed": "0", "hash": ""})
    writer.close()
    with pytest.raises(ReplayInvalid, match="no arena writes"):
        replay(path, Foraging())


def test_a_log_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    seen = []

    def on_tick(game: Any, _: Any) -> None:
        seen.append(len(list(ReplayLog(tmp_path / "log"))) if game.tick in (1, 9) else 0)

    AgentArena.play(Foraging(), RULES["foraging"](), replay=tmp_path / "log", on_tick=on_tick)
    assert (seen[0], seen[8]) == (3, 19)  # a reset, and a decision and a hash for each tick


def rollout(env: Any, choices: np.ndarray) -> list[np.ndarray]:
    env.seed(5)
    rows = [env.reset()]
    for choice in choices:
        obs, rewards, dones, _ = env.step(choice)
        rows += [obs, rewards, dones]
    env.close()
    return rows


@pytest.mark.parametrize(
    ("scene", "hosted", "env_of", "agents"),
    [(Foraging, SceneBridge, UnrealVecEnv, 1), (Crafting, SceneBridge, UnrealVecEnv, 1),
     (Capture, TeamBridge, GroupVecEnv, 3)],
)  # fmt: skip
def test_a_policys_steps_are_bit_equal_over_every_carrier(
    scene: type[Scene], hosted: Any, env_of: Any, agents: int
) -> None:
    scene = short(scene)
    choices = np.random.default_rng(0).integers(0, len(scene.choices), (60, 2 * agents))
    first = rollout(env_of(MemoryTransport(hosted(scene, 2))), choices)
    assert any(dones.all() for dones in first[3::3]), "episodes end, and others begin"
    for run in (run_in_thread, run_shm_in_thread):
        with run(hosted(scene, 2)) as engine:
            for mine, wanted in zip(rollout(env_of(open_transport(engine.url)), choices), first, strict=True):
                np.testing.assert_array_equal(mine, wanted)


class _Fixed:
    """A policy that goes to the nearest berry and takes it."""

    def run_inference(self, observations: Any) -> Any:
        near = observations[0, Foraging.obs_names.index("berry0.distance")] * Foraging.sight <= 1.5
        return np.array([[Foraging.choices.index("collect" if near else "nearest berry")]], np.float32)


def test_a_policy_plays_as_a_behaviour_what_it_plays_in_the_bridge() -> None:
    (episode,) = AgentArena.play(Foraging(), PolicyBehavior(_Fixed(), Foraging), seed=5)
    env = UnrealVecEnv(MemoryTransport(SceneBridge(Foraging)))
    env.seed(5)
    obs, total, done = env.reset(), 0.0, False
    while not done:
        obs, (reward,), (done,), (info,) = env.step(_Fixed().run_inference(obs)[0].astype(int))
        total += float(reward)
    assert total == pytest.approx(episode.score, abs=1e-4)  # rewards are float32 there
    assert info["resources"] == episode.metrics["resources"]


def test_a_team_as_an_engine() -> None:
    bridge = TeamBridge(Capture, 2)
    env = GroupVecEnv(MemoryTransport(bridge))
    env.seed(0)
    assert env.reset().shape == (6, len(Capture.obs_names))
    for _ in range(200):
        _, rewards, dones, _ = env.step(np.tile([8, 9, 10], 2))
    assert dones.all()
    assert (rewards > 0).all()
    assert bridge.render(0).shape == (160, 160, 3)
    with pytest.raises(ConfigurationError, match="TeamBridge"):
        SceneBridge(Capture)


def test_who_is_not_in_the_game_cannot_play() -> None:
    with pytest.raises(ConfigurationError, match="no such agent"):
        AgentArena.play(Foraging(), {"someone": RandomBehavior()})


def test_a_damaged_log_is_told(tmp_path: Path) -> None:
    """Spoilt bytes and cut ends, at random: it plays to its last whole tick and says so, or an error says why not."""

    class Short(Foraging):
        max_ticks = 6

    path, rng, world = tmp_path / "log", np.random.default_rng(0), Short()
    AgentArena.play(Short(), RULES["foraging"](), replay=path)
    whole = path.read_bytes()
    refused = 0
    ticks = set()
    for n in range(600):
        spoilt = bytearray(whole[: rng.integers(len(whole))] if n % 3 == 0 else whole)
        for at in rng.integers(len(spoilt), size=rng.integers(1, 5)) if spoilt else ():
            spoilt[at] = rng.integers(256)
        path.write_bytes(spoilt)
        try:
            log = ReplayLog(path)
            ticks.add(replay(log, world))
            assert log.end or spoilt == whole
        except ReplayInvalid:
            refused += 1
    assert refused > 100
    assert ticks == set(range(7))
