"""samples/skirmish: that sessions do not touch each other, and the game as players over sessions and tools have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samples.skirmish import rules
from samples.skirmish.bridge import Skirmish
from samples.skirmish.rules import KINDS, THINK, Kind
from tests.samples.skirmish_game import army, begun, command, drawn, wait
from ue_rl.bridges import run_in_thread
from ue_rl.bridges.tools import ToolRegistry
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.sessions.realtime import SessionPool, ToolCall
from ue_rl.plugins.sessions.realtime.player import ReplayPlayer
from ue_rl.plugins.sessions.realtime.replay import Replay
from ue_rl.system.errors import ToolError

ENVS = 20

# -- sessions


def test_a_session_is_the_same_alone_and_among_others() -> None:
    """Bit by bit, with commands in any tick, and with other sessions that begin anew meanwhile."""
    together, alone = begun(ENVS), [begun(1, 7 + env) for env in (0, 17)]
    rng, envs = np.random.default_rng(0), np.arange(ENVS)
    for step in range(160):
        actions = drawn(rng, together.outbox.masks)
        actions[rng.random(ENVS) < 0.8] = 0
        if step in (13, 82):
            together.reset_envs(envs[1:17:3], [None] * 6, [{"opponent": "strong"}] * 6)
        together.step_envs(actions, envs)
        for single, env in zip(alone, (0, 17), strict=True):
            single.step_envs(actions[env : env + 1], envs[:1])
            for name in ("obs", "rewards", "dones", "masks"):
                ours, theirs = getattr(single.outbox, name)[0], getattr(together.outbox, name)[env]
                assert ours.tobytes() == theirs.tobytes(), (step, env, name)


def test_only_the_sessions_that_are_asked_go_on() -> None:
    game = begun(4)
    game.step_envs(np.zeros((4, 4), np.float32), np.array([1, 3]))
    assert game.world.tick.tolist() == [0, 1, 0, 1]


def test_a_seed_is_a_map_and_without_one_there_is_another() -> None:
    game = Skirmish(3)
    game.reset_envs(np.arange(3), [5, 5, None], [None] * 3)
    first = game.world.ore_x.copy()
    game.reset_envs(np.arange(3), [None, 5, None], [None] * 3)
    assert (first[0] == first[1]).all()
    assert (game.world.ore_x[1] == first[1]).all()
    assert not (game.world.ore_x[0] == first[0]).all()
    assert not (game.world.ore_x[2] == first[2]).all()


def test_an_opponent_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="weak, middle, strong, got 'mighty'"):
        Skirmish(1).reset_envs(np.arange(1), [1], [{"opponent": "mighty"}])


def test_over_text_it_is_the_same_game() -> None:
    direct, rng = begun(3, seed=11, ticks=7), np.random.default_rng(1)
    with run_in_thread(Skirmish(3, ticks=7)) as engine:
        transport = open_transport(engine.url)
        transport.reset(seeds=[11, 12, 13])
        seen = transport.receive()
        for _ in range(40):
            assert seen.obs.tobytes() == direct.outbox.obs.tobytes()
            assert seen.masks.tobytes() == direct.outbox.masks.tobytes()
            actions = drawn(rng, direct.outbox.masks)
            direct.step_envs(actions, np.arange(3))
            transport.send_actions(actions)
            seen = transport.receive()
            assert seen.rewards.tobytes() == direct.outbox.rewards.tobytes()
        transport.close()


# -- played by sessions and tools


class Mind:
    """Reads nothing but the answers of tools: tries what it would like best, and hears whether that can be."""

    def __init__(self, call: Callable[[str, dict[str, Any]], bool]) -> None:
        self.call, self.soldiers = call, 0

    def think(self) -> None:
        if any(self.call("train_unit", {"unit": unit}) for unit in ("cannon", "rifle")):
            self.soldiers += 1
            if self.soldiers % 5 == 0:
                self.call("attack_move", {"x": 26, "y": 26})
        elif self.call("build_structure", {"structure": "barracks", "x": 12, "y": 12}) or self.soldiers > 3:
            pass
        else:
            self.call("train_unit", {"unit": "harvester"})


def test_a_mind_that_calls_tools_beats_the_weak_opponent_and_its_replay_is_the_same_game(tmp_path: Path) -> None:
    with SessionPool("samples.skirmish.bridge:Skirmish", max_sessions=2, record=tmp_path) as pool:
        session = pool.create(seed=7, options={"opponent": "weak"}, session_id="game")

        def call(tool: str, arguments: dict[str, Any]) -> bool:
            (answer,) = session.advance(0, [ToolCall(tool, arguments)]).info["tools"]
            return "error" not in answer

        mind = Mind(call)
        while not (seen := session.advance(25)).terminated:
            mind.think()
        assert seen.result == "win"
        assert "win" in session.describe()
    with ReplayPlayer(Replay.load(tmp_path / "game.replay")) as player:
        *_, again = player.play()
    assert (again.tick, again.result) == (seen.tick, "win")
    assert again.observation.tobytes() == seen.observation.tobytes()


def test_an_event_ends_an_advance() -> None:
    with SessionPool(Skirmish, max_sessions=1) as pool:
        session = pool.create(seed=7)
        session.advance(0, [ToolCall("train_unit", {"unit": "harvester"})])
        seen = session.advance(500, interrupts=["production_complete", "under_attack"])
        assert (seen.interrupt, seen.tick) == ("production_complete", rules.TIME[Kind.HARVESTER])
        assert session.advance(2500, interrupts=["under_attack"]).interrupt == "under_attack"


def test_each_command_is_a_tool_and_does_what_its_numbers_do() -> None:
    told, numbers = begun(2), begun(2)
    tools = ToolRegistry.of(told)
    assert set(tools) == {
        "attack_move",
        "guard",
        "patrol",
        "retreat",
        "harvest",
        "build_structure",
        "train_unit",
        "set_rally_point",
        "sell",
    }
    orders: tuple[tuple[str, dict[str, Any], str, str], ...] = (
        ("build_structure", {"structure": "tower", "x": 3, "y": 9}, "build_tower", "fighters"),
        ("train_unit", {"unit": "harvester"}, "train_harvester", "fighters"),
        ("set_rally_point", {"x": 11, "y": 12}, "set_rally_point", "fighters"),
        ("attack_move", {"x": 20, "y": 20, "who": "rifles"}, "attack_move", "rifles"),
        ("guard", {"x": 8, "y": 9, "who": "idle"}, "guard", "idle"),
        ("patrol", {"x": 8, "y": 14}, "patrol", "fighters"),
        ("retreat", {"who": "cannons"}, "retreat", "cannons"),
        ("harvest", {"x": 12, "y": 6}, "harvest", "fighters"),
        ("sell", {"x": 1, "y": 1}, "sell", "fighters"),
    )
    for game in (told, numbers):
        for kind in (Kind.RIFLE, Kind.CANNON):
            army(game, 0, kind, 9.5, 9.5, 2)
        wait(game, THINK)
    for tool, arguments, verb, who in orders:
        tools.call(tool, arguments, env_id=0)
        command(numbers, verb, who, arguments.get("x", 0), arguments.get("y", 0))
        for game in (told, numbers):
            wait(game, 7)
        assert told.outbox.obs.tobytes() == numbers.outbox.obs.tobytes(), tool
        assert told.world.entities.tobytes() == numbers.world.entities.tobytes(), tool


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("attack_move", {"x": 3, "y": 32}, r"not on the map.*expected x and y from 0 to 31.*got \(3, 32\)"),
        ("attack_move", {"x": 3, "y": 3, "who": "cannons"}, r"there are no cannons.*expected fighters, rifles, idle"),
        ("train_unit", {"unit": "rifle"}, "train_rifle is not possible now.*build_barracks.*got 400 credits"),
    ],
)
def test_a_refusal_says_why(tool: str, arguments: dict[str, Any], says: str) -> None:
    game = begun()
    army(game, 0, Kind.RIFLE, 9.5, 9.5)
    with pytest.raises(ToolError, match=says):
        ToolRegistry.of(game).call(tool, arguments, env_id=0)


def test_the_description_names_what_the_player_sees_and_nothing_else() -> None:
    game = begun()
    text = game.describe(0)
    assert "Tick 0 of 3000" in text
    assert "Credits: 400" in text
    assert text.count("harvester") == 1
    assert "2 harvester" in text
    assert text.count("base at") == 1
    army(game, 1, Kind.CANNON, 9.5, 9.5)
    wait(game, THINK)
    assert KINDS[Kind.CANNON] in game.describe(0).partition("enemy")[2]
    assert set(game.map_info(0)) >= {"width", "height", "base", "ore", "costs"}
