"""samples/skirmish: the rules of the game, its players, and that sessions do not touch each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from samples.skirmish import rules
from samples.skirmish.bridge import Skirmish
from samples.skirmish.match import by_rules, play
from samples.skirmish.rules import BUILDINGS, KINDS, MAX_TICKS, THINK, VERB, VERBS, Kind
from samples.skirmish.sight import LAYERS, MAP_SIZE, NUMBERS
from ue_rl.bridges import run_in_thread
from ue_rl.bridges.realtime import SessionPool, ToolCall
from ue_rl.bridges.realtime.player import Player
from ue_rl.bridges.realtime.replay import Replay
from ue_rl.connecting import open_transport
from ue_rl.errors import ToolError
from ue_rl.tools import ToolRegistry

ENVS = 64


def begun(num_envs: int = 1, seed: int = 7, **kwargs: Any) -> Skirmish:
    game = Skirmish(num_envs, **kwargs)
    game.reset_envs(np.arange(num_envs), list(range(seed, seed + num_envs)), [None] * num_envs)
    return game


def drawn(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """A legal command for each row of `masks`."""
    starts = np.cumsum([0, len(VERBS), len(rules.WHO), rules.TILES])
    luck = rng.random(masks.shape) * masks
    return np.stack([part.argmax(axis=1) for part in np.split(luck, starts[1:], axis=1)], axis=1).astype(np.float32)


def wait(game: Skirmish, ticks: int) -> float:
    """Lets time pass without commands; the sum of the rewards of the first session."""
    idle, envs, total = np.zeros((game.num_envs, 4), np.float32), np.arange(game.num_envs), 0.0
    for _ in range(ticks):
        game.step_envs(idle, envs)
        total += float(game.outbox.rewards[0])
    return total


def number(game: Skirmish, name: str, env: int = 0) -> float:
    return float(game.outbox.obs[env, MAP_SIZE + NUMBERS.index(name)])


def units(game: Skirmish, kind: int, side: int = 0) -> np.ndarray:
    return np.flatnonzero(game.world.kind[0, side] == kind)


def command(game: Skirmish, verb: str, who: str = "fighters", x: int = 0, y: int = 0) -> None:
    game.apply_action(0, np.array([VERB[verb], rules.WHO.index(who), x, y], np.float32))


def army(game: Skirmish, side: int, kind: int, x: float, y: float, count: int = 1) -> np.ndarray:
    """Fighters of a side that guard a place; their slots."""
    world = game.world
    slots = BUILDINGS + np.flatnonzero(world.kind[0, side, BUILDINGS:] == Kind.NONE)[:count]
    world.kind[0, side, slots], world.hp[0, side, slots] = kind, rules.HEALTH[kind]
    world.order[0, side, slots] = rules.ORDERS["guard"]
    for place, at in ((world.x, x), (world.y, y), (world.gx, x), (world.gy, y)):
        place[0, side, slots] = at
    return slots


# -- sessions


def test_a_session_is_the_same_alone_and_among_others() -> None:
    """Bit by bit, with commands in any tick, and with other sessions that begin anew meanwhile."""
    together, alone = begun(ENVS), [begun(1, 7 + env) for env in (0, 41)]
    rng, envs = np.random.default_rng(0), np.arange(ENVS)
    for step in range(400):
        actions = drawn(rng, together.outbox.masks)
        actions[rng.random(ENVS) < 0.8] = 0
        if step in (13, 202):
            together.reset_envs(envs[1:40:3], [None] * 13, [{"opponent": "strong"}] * 13)
        together.step_envs(actions, envs)
        for single, env in zip(alone, (0, 41), strict=True):
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


# -- commands


def test_what_is_not_legal_changes_nothing() -> None:
    game = begun()
    refused = [verb for verb, legal in zip(VERBS, game.outbox.masks[0], strict=False) if not legal]
    assert refused == [
        "attack_move",
        "guard",
        "patrol",
        "retreat",
        "train_rifle",
        "train_cannon",
        "set_rally_point",
        "sell",
    ]
    before = {name: getattr(game.world, name).tobytes() for name in ("entities", "places", "sides")}
    for verb in refused:
        command(game, verb, x=9, y=9)
    assert before == {name: getattr(game.world, name).tobytes() for name in before}


def test_something_is_always_legal_of_each_number() -> None:
    game, rng = begun(16, ticks=10), np.random.default_rng(3)
    for _ in range(150):
        parts = np.split(game.outbox.masks, np.cumsum([len(VERBS), len(rules.WHO), rules.TILES]), axis=1)
        assert all(part.any(axis=1).all() for part in parts)
        game.step_envs(drawn(rng, game.outbox.masks), np.arange(16))


def test_harvesters_earn_and_ore_is_what_is_earned() -> None:
    game = begun()
    wait(game, 300)
    earned = game.world.credits[0, 0] - rules.START_CREDITS
    carried = game.world.load[0, 0].sum()
    assert earned > 100
    assert earned + carried == 2500 * 4 - game.world.ore[0, :4].sum()


def test_from_barracks_to_soldiers_at_the_rally_point() -> None:
    game = begun()
    command(game, "build_barracks", x=31, y=31)
    (slot,) = units(game, Kind.BARRACKS)
    assert game.world.credits[0, 0] == 100
    assert number(game, "making_building") > 0
    wait(game, int(rules.TIME[Kind.BARRACKS]))
    command(game, "set_rally_point", x=12, y=10)
    command(game, "train_rifle")
    assert game.world.making[0, 0, slot] == Kind.RIFLE
    wait(game, int(rules.TIME[Kind.RIFLE]) + 100)
    (rifle,) = units(game, Kind.RIFLE)
    assert abs(game.world.x[0, 0, rifle] - 12.5) < 0.5
    assert abs(game.world.y[0, 0, rifle] - 10.5) < 0.5
    assert number(game, "own_rifle") == 0.25


def test_buildings_do_not_stand_on_each_other_and_are_sold_for_half() -> None:
    game = begun()
    game.world.credits[0, 0] = 5000
    for _ in range(BUILDINGS):
        command(game, "build_tower", x=9, y=9)
    towers = units(game, Kind.TOWER)
    assert len(towers) == BUILDINGS - 1
    places = {(float(game.world.x[0, 0, slot]), float(game.world.y[0, 0, slot])) for slot in range(BUILDINGS)}
    assert len(places) == BUILDINGS
    had = game.world.credits[0, 0]
    command(game, "sell", x=9, y=9)
    assert game.world.credits[0, 0] == had + 125
    assert len(units(game, Kind.TOWER)) == BUILDINGS - 2
    assert game.world.kind[0, 0, 0] == Kind.BASE


def test_guards_come_back_patrols_go_to_and_fro_and_who_retreats_does_not_shoot() -> None:
    game = begun()
    (guard,) = army(game, 0, Kind.CANNON, 16, 16)
    command(game, "patrol", "cannons", 16, 20)
    reached = []
    for _ in range(16):
        wait(game, 10)
        reached.append(float(game.world.y[0, 0, guard]))
    assert max(reached) > 20
    assert min(reached[reached.index(max(reached)) :]) < 17
    command(game, "guard", "fighters", 16, 16)
    wait(game, 60)
    (enemy,) = army(game, 1, Kind.HARVESTER, 16.5, 19)
    wait(game, THINK)
    assert game.world.hp[0, 1, enemy] < rules.HEALTH[Kind.HARVESTER]
    command(game, "retreat")
    hurt = game.world.hp[0, 1, enemy]
    wait(game, THINK)
    assert game.world.hp[0, 1, enemy] == hurt
    assert game.world.vx[0, 0, guard] < 0


def test_harvest_takes_all_harvesters_to_another_field() -> None:
    game = begun()
    wait(game, 10)
    command(game, "harvest", x=int(game.world.ore_x[0, 2]), y=int(game.world.ore_y[0, 2]))
    wait(game, 150)
    assert game.world.ore[0, 2] < rules.ORE


# -- what is seen


def test_fog_hides_enemies_until_somebody_is_near() -> None:
    game, other = begun(), begun()
    army(other, 1, Kind.RIFLE, 20.5, 12.5, 3)
    for each in (game, other):
        army(each, 0, Kind.RIFLE, 8.5, 12.5)
        wait(each, THINK)
    assert game.outbox.obs.tobytes() == other.outbox.obs.tobytes()
    army(other, 0, Kind.RIFLE, 16.5, 12.5)
    wait(other, THINK)
    seen = other.outbox.obs[0, :MAP_SIZE].reshape(len(LAYERS), 8, 8)
    assert seen[LAYERS.index("enemy_fighters"), 3, 5] > 0
    assert number(other, "seen_rifle") == 0.75


def test_buildings_of_the_enemy_are_remembered() -> None:
    game = begun()
    x, y = (int(place[0, 1, 0]) for place in (game.world.x, game.world.y))
    (scout,) = army(game, 0, Kind.RIFLE, x - 3, y - 3)
    wait(game, THINK)
    game.world.kind[0, 0, scout] = Kind.NONE
    wait(game, THINK)
    seen = game.outbox.obs[0, :MAP_SIZE].reshape(len(LAYERS), 8, 8)
    assert seen[LAYERS.index("enemy_buildings"), y // 4, x // 4] == 1
    assert seen[LAYERS.index("fog"), y // 4, x // 4] == 0.5
    named = dict(zip(game.observation_names, game.outbox.obs[0].tolist(), strict=True))
    assert named[f"enemy_buildings/{y // 4}/{x // 4}"] == 1
    assert named["own_harvester"] == 0.5


def test_the_picture_shows_both_bases() -> None:
    game = begun()
    picture = game.render(0)
    assert picture.shape == (320, 320, 3)
    x, y = (int(place[0, 0, 0] * 10) for place in (game.world.x, game.world.y))
    assert picture[319 - y - 8, x].tolist() == [31, 119, 180]


# -- how games end


@pytest.mark.parametrize(("dead", "result"), [((1,), "win"), ((0,), "lose"), ((0, 1), "draw")])
def test_whose_base_is_destroyed_has_lost(dead: tuple[int, ...], result: str) -> None:
    game = begun()
    for side in dead:
        game.world.hp[0, side, 0] = 1
        army(game, 1 - side, Kind.CANNON, float(game.world.x[0, side, 0]), float(game.world.y[0, side, 0]))
    reward = wait(game, THINK)
    assert game.result(0) == result
    assert game.outbox.dones[0]
    assert game.outbox.infos[0] == {"result": result, "is_success": result == "win"}
    if result != "draw":
        assert (reward > 1) if result == "win" else (reward < -1)


def test_in_the_end_it_is_a_draw() -> None:
    game = begun()
    game.world.tick[:] = MAX_TICKS - 1
    wait(game, 1)
    assert game.result(0) == "draw"
    wait(game, 3)
    assert game.world.tick[0] == MAX_TICKS


@pytest.mark.parametrize(("better", "worse"), [("strong", "middle"), ("middle", "weak")])
def test_opponents_are_of_three_strengths(better: str, worse: str) -> None:
    assert play(by_rules(better), worse, 12, THINK, seed=100)["win"] >= 10


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
    with Player(Replay.load(tmp_path / "game.replay")) as player:
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
