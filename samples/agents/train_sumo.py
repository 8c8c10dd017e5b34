"""The competitive task of samples/agents/sumo.py: PPO against its own past.

python samples/agents/train_sumo.py [--timesteps 120000] [--seed 0] [--folder runs/sumo]
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stable_baselines3 import PPO
from sumo import SumoBridge

from ue_rl.bridges import run_in_process
from ue_rl.connections import open_transport
from ue_rl.envs.agents import GroupVecEnv, SelfPlay, SelfPlayOptions, SidesTransport

OPTIONS = SelfPlayOptions(save_steps=20_000, swap_steps=5_000, team_change=40_000, window=5)


@dataclass
class Result:
    """The share of games that the last policy wins against the pool's first and middle one, and its rating."""

    against_first: float
    against_middle: float
    elo: float


def run(folder: Path, timesteps: int = 120_000, seed: int = 0) -> Result:
    """Trains and plays matches."""
    with run_in_process(functools.partial(SumoBridge, 32)) as engine:
        env = GroupVecEnv(SidesTransport(open_transport(engine.url)))
        env.seed(seed)
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=64,
            batch_size=512,
            n_epochs=8,
            gamma=0.98,
            learning_rate=1e-3,
            ent_coef=0.001,
            seed=seed,
            device="cpu",
        )
        self_play = SelfPlay(env, folder, OPTIONS, seed)
        model.learn(timesteps, callback=self_play)
        pool = self_play.pool
        first, middle = (pool.policy(pool.policies[k], type(model.policy)) for k in (0, len(pool.policies) // 2))
        result = Result(match(env, model, first, seed), match(env, model, middle, seed), pool.elo)
        env.close()
    return result


def match(env: GroupVecEnv, model: Any, opponent: Any, seed: int, games: int = 200) -> float:
    """How many of `games` the model wins."""
    assert isinstance(env.transport, SidesTransport)
    env.transport.play_against("opponent of a match", opponent)
    env.seed(seed + 1000)
    observations, won, played = env.reset(), 0, 0
    while played < games:
        observations, rewards, dones, _ = env.step(model.predict(observations, deterministic=True)[0])
        won, played = won + int((rewards[dones] > 0).sum()), played + int(dones.sum())
    return won / played


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=120_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    place = arguments.folder or Path(tempfile.mkdtemp(prefix="sumo-"))
    found = run(place, arguments.timesteps, arguments.seed)
    print(f"wins {found.against_first:.0%} against the first policy of the pool, {found.against_middle:.0%} against")
    print(f"the middle one; Elo {found.elo:.0f} from {OPTIONS.initial_elo:.0f}; games and pool in {place}")
