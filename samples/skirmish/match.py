"""How many games a player wins: rules of a level, or a trained policy.

python -m samples.skirmish.match strong --opponent middle
python -m samples.skirmish.match RUN/model.onnx --games 200
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.bridge import Skirmish
from samples.skirmish.opponents import decide
from samples.skirmish.rules import LEVELS, RESULTS, THINK
from ue_rl.inference import OnnxInference

Player = Callable[[Skirmish], NDArray[np.float32]]  # from a game to actions, float32 [num_envs, 4]
POLICY_TICKS = 25  # of a step: as the gallery's policy is trained


def by_rules(level: str) -> Player:
    """The rules of an opponent, on the player's side."""

    def act(game: Skirmish) -> NDArray[np.float32]:
        actions = np.zeros((game.num_envs, 4), np.float32)
        rows, commands = decide(game.world, 0, np.full(game.num_envs, LEVELS.index(level)))
        actions[rows] = commands
        return actions

    return act


def by_policy(path: str) -> Player:
    """An exported policy, with the masks that it was trained with."""
    policy = OnnxInference(path)
    return lambda game: policy.run_inference_for(range(game.num_envs), game.outbox.obs, action_masks=game.outbox.masks)


def play(player: Player, opponent: str, games: int, ticks: int, seed: int = 0) -> Counter[str]:
    """How many games ended how: "win", "lose" and "draw" of the player; and "ticks" of all. Game k has seed + k."""
    game = Skirmish(games, ticks, opponent)
    envs = np.arange(games)
    game.reset_envs(envs, list(range(seed, seed + games)), [None] * games)
    while not game.outbox.dones.all():
        game.step_envs(player(game), envs)
    return Counter(RESULTS[result] for result in game.world.result.tolist()) + Counter(ticks=game.world.tick.sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("player", help=f"{', '.join(LEVELS)}, or a policy: model.onnx")
    parser.add_argument("--opponent", choices=LEVELS, default="middle")
    parser.add_argument("--games", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20_000)
    given = parser.parse_args()
    ruled = given.player in LEVELS
    who = by_rules(given.player) if ruled else by_policy(given.player)
    began = time.process_time()
    found = play(who, given.opponent, given.games, THINK if ruled else POLICY_TICKS, given.seed)
    speed = found["ticks"] / (time.process_time() - began)
    print(f"{given.player} against {given.opponent}: {found['win']} won, {found['lose']} lost, {found['draw']} drawn")
    print(f"{found['ticks'] / given.games:.0f} ticks a game; {speed:,.0f} ticks of a session a second of CPU time")
