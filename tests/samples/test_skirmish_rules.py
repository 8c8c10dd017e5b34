"""samples/skirmish: commands and what they do, what a player sees, and how games end."""

from __future__ import annotations

import numpy as np
import pytest

from samples.skirmish import rules
from samples.skirmish.match import by_rules, play
from samples.skirmish.rules import BUILDINGS, MAX_TICKS, THINK, VERBS, Kind
from samples.skirmish.sight import LAYERS, MAP_SIZE
from tests.samples.skirmish_game import army, begun, command, drawn, number, units, wait

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


@pytest.mark.parametrize(
    ("better", "worse"), [("middle", "weak"), pytest.param("strong", "middle", marks=pytest.mark.exhaustive)]
)
def test_opponents_are_of_three_strengths(better: str, worse: str) -> None:
    assert play(by_rules(better), worse, 12, THINK, seed=100)["win"] >= 10
