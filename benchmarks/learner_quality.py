"""Does the learner in NumPy learn as well as torch's? Five tasks, ten seeds, each by both; prints a markdown table.

    OMP_NUM_THREADS=1 python benchmarks/learner_quality.py [--only TASK,..] [--seeds 10] [--jobs 2] --json FILE

Runs that FILE holds already are kept, so that it can be stopped and gone on with. Of each run:

area        the mean return of the episodes that ended in a rollout, averaged over all rollouts, above what random
            actions earn: the area under the learning curve
last        the mean return of 50 episodes of fixed seeds, played by the learnt policy without exploration

scipy must be installed. The interval is that of the ratio of the areas' means, NumPy's to torch's: 95 % of 20 000
bootstrap samples of the seeds. The p values are of a two-sided Mann-Whitney test of the last returns, corrected by Holm
for the tasks.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gymnasium as gym
import numpy as np
import torch
from bench_tcp import table
from sb3_contrib import MaskablePPO
from scipy.stats import mannwhitneyu
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize
from tables import measured_here

import ue_rl
from samples.reach import ReachBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv

LEARNERS = ("torch", "numpy")
EPISODES = 50  # of the last evaluation
EVALUATION_SEED = 100_000  # of its first env: none of the runs has it
RANDOM_STEPS = 20_000  # of a random policy, all envs together
TIMESTEPS: int | None = None  # of each run; None: as many as its task has


def linear(start: float) -> Callable[[float], float]:
    """A schedule that falls to zero over the run."""
    return lambda left: left * start


def gymnasium_envs(name: str, num_envs: int, seed: int) -> VecEnv:
    """Envs of Gymnasium in this process."""
    return make_vec_env(name, num_envs, seed=seed)


class MaskedTaxi(gym.Wrapper[Any, Any, Any, Any]):
    """Taxi, which says in its infos what can be done, as MaskablePPO asks for it."""

    def __init__(self) -> None:
        super().__init__(gym.make("Taxi-v4"))
        self._mask = np.ones(6, bool)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """See gym.Env."""
        seen, info = self.env.reset(**options)
        self._mask = info["action_mask"].astype(bool)
        return seen, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See gym.Env."""
        seen, reward, terminated, truncated, info = self.env.step(int(action))
        self._mask = info["action_mask"].astype(bool)
        return seen, reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """bool [6]."""
        return self._mask


def taxis(num_envs: int, seed: int) -> VecEnv:
    """Taxis in this process."""
    return make_vec_env(MaskedTaxi, num_envs, seed=seed)


def reach(num_envs: int, seed: int) -> VecEnv:
    """The sample of that name behind its bridge, in this process."""
    env = VecMonitor(UnrealVecEnv(MemoryTransport(ReachBridge(num_envs))))
    env.seed(seed)
    return env


class Task(NamedTuple):
    """What is learnt, and how."""

    make: Callable[[int, int], VecEnv]  # takes num_envs and seed
    num_envs: int
    timesteps: int
    options: dict[str, Any]
    normalize: bool = False
    masked: bool = False


TASKS = {
    "CartPole": Task(
        functools.partial(gymnasium_envs, "CartPole-v1"), 8, 100_000,
        dict(n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, learning_rate=linear(0.001),
             clip_range=linear(0.2)),
    ),
    "Pendulum": Task(
        functools.partial(gymnasium_envs, "Pendulum-v1"), 4, 120_000,
        dict(n_steps=512, batch_size=64, gae_lambda=0.95, gamma=0.9, n_epochs=10, learning_rate=1e-3),
    ),
    "Acrobot": Task(
        functools.partial(gymnasium_envs, "Acrobot-v1"), 16, 120_000,
        dict(n_steps=128, batch_size=256, gae_lambda=0.94, gamma=0.99, n_epochs=4, learning_rate=1e-3),
        normalize=True,
    ),
    "reach": Task(
        reach, 16, 60_000, dict(n_steps=64, batch_size=256, n_epochs=6, gamma=0.98, learning_rate=0.002),
    ),
    "Taxi, masked": Task(
        taxis, 16, 100_000,
        dict(n_steps=128, batch_size=256, n_epochs=6, gamma=0.98, gae_lambda=0.95, learning_rate=2e-3),
        masked=True,
    ),
}  # fmt: skip


class Curve(BaseCallback):
    """Keeps the mean return of the episodes that ended in each rollout; one without keeps the last mean."""

    def __init__(self) -> None:
        super().__init__()
        self.means: list[float] = []
        self._ended: list[float] = []

    def _on_step(self) -> bool:
        self._ended.extend(info["episode"]["r"] for info in self.locals["infos"] if "episode" in info)
        return True

    def _on_rollout_end(self) -> None:
        if self._ended:
            self.means.append(float(np.mean(self._ended)))
        elif self.means:
            self.means.append(self.means[-1])
        self._ended = []


def algorithm(task: Task, learner: str) -> Any:
    """PPO or MaskablePPO, by the learner."""
    kind: Any = PPO
    if task.masked:
        kind = MaskablePPO
    if learner == "numpy":
        kind = ue_rl.numpy_learner(kind)
    return kind


def returns(env: VecEnv, act: Callable[[Any], Any], enough: Callable[[int, int], bool]) -> list[float]:
    """Of the episodes that end until `enough`, which is given steps and episodes, says so."""
    seen: Any = env.reset()
    found: list[float] = []
    steps = 0
    while not enough(steps, len(found)):
        seen, _, _, infos = env.step(act(seen))
        steps += env.num_envs
        found.extend(info["episode"]["r"] for info in infos if "episode" in info)
    return found


def masks(env: VecEnv) -> np.ndarray:
    """bool [num_envs, choices]."""
    return np.stack(env.env_method("action_masks"))


def random_return(name: str) -> float:
    """The mean return of random actions; legal ones where there are masks."""
    task = TASKS[name]
    env = task.make(task.num_envs, EVALUATION_SEED)
    rng = np.random.default_rng(0)
    env.action_space.seed(1)

    def act(seen: Any) -> Any:
        if task.masked:
            return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks(env)])
        return np.array([env.action_space.sample() for _ in range(env.num_envs)])

    found = returns(env, act, lambda steps, episodes: steps >= RANDOM_STEPS)
    env.close()
    return float(np.mean(found))


def one_run(name: str, learner: str, seed: int) -> dict[str, Any]:
    """Learns, and plays."""
    task = TASKS[name]
    torch.set_num_threads(1)
    env = task.make(task.num_envs, 1000 * seed)
    if task.normalize:
        env = VecNormalize(env)
    model = algorithm(task, learner)("MlpPolicy", env, seed=seed, device="cpu", **task.options)
    curve = Curve()
    model.learn(TIMESTEPS or task.timesteps, callback=curve)
    if getattr(model, "torch_learns", None):
        raise RuntimeError(f"torch learnt {name}: {model.torch_learns}")
    fresh = task.make(EPISODES, EVALUATION_SEED)
    if task.normalize:
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = env.obs_rms

    def act(seen: Any) -> Any:
        options = {}
        if task.masked:
            options["action_masks"] = masks(fresh)
        return model.predict(seen, deterministic=True, **options)[0]

    ended = np.zeros(EPISODES, bool)
    firsts = np.zeros(EPISODES)
    seen: Any = fresh.reset()
    while not ended.all():  # the first episode of each env: else short ones would count more often
        seen, _, _, infos = fresh.step(act(seen))
        for row, info in enumerate(infos):
            if "episode" in info and not ended[row]:
                ended[row] = True
                firsts[row] = info["episode"]["r"]
    env.close()
    fresh.close()
    return {"task": name, "learner": learner, "seed": seed, "curve": curve.means, "last": float(firsts.mean())}


def interval(numpys: np.ndarray, torches: np.ndarray) -> tuple[float, float]:
    """95 % of the bootstrap samples of the ratio of the means."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(numpys), size=(20_000, len(numpys)))
    others = rng.integers(len(torches), size=(20_000, len(torches)))
    low, high = np.quantile(numpys[drawn].mean(axis=1) / torches[others].mean(axis=1), (0.025, 0.975))
    return float(low), float(high)


def holm(values: list[float]) -> list[float]:
    """p values, corrected."""
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(np.argsort(values)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = highest
    return corrected


def judged(held: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each task of which both learners have all their runs."""
    rows = []
    for name in held["random"]:
        runs = {who: [run for run in held["runs"] if (run["task"], run["learner"]) == (name, who)] for who in LEARNERS}
        if not all(len(found) >= 2 for found in runs.values()):
            continue
        areas = {who: np.array([np.mean(run["curve"]) for run in found]) for who, found in runs.items()}
        areas = {who: found - held["random"][name] for who, found in areas.items()}
        last = {who: np.array([run["last"] for run in found]) for who, found in runs.items()}
        low, high = interval(areas["numpy"], areas["torch"])
        row = {"task": name, "ratio": float(areas["numpy"].mean() / areas["torch"].mean()), "low": low, "high": high}
        row["p"] = float(mannwhitneyu(last["numpy"], last["torch"]).pvalue)
        rows.append(row | {f"last of {who}": np.sort(found).tolist() for who, found in last.items()})
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p by Holm"] = p
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """The table, and the last returns of all runs."""
    lines = [
        (row["task"], f"{row['ratio']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", f"{row['p by Holm']:.3f}")
        for row in rows
    ]
    table("Areas under the curve, NumPy's to torch's", "task|ratio|95 %|p of the last returns, by Holm", lines)
    each = [
        (row["task"], who, ", ".join(f"{value:.4g}" for value in row[f"last of {who}"]))
        for row in rows
        for who in LEARNERS
    ]
    table("Last returns, sorted", "task|learner|mean of 50 episodes, of each seed", each)


def main() -> None:
    """Runs what the file does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=";".join(TASKS), help="tasks, with semicolons between them")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--json", type=Path, required=True, help="holds all runs")
    given = parser.parse_args()
    held: dict[str, Any] = {"random": {}, "runs": []}
    if given.json.is_file():
        held = json.loads(given.json.read_text("utf-8"))
    held.update(measured_here("numpy", "torch", "stable-baselines3", "gymnasium"))
    known = {(run["task"], run["learner"], run["seed"]) for run in held["runs"]}
    wanted = [(name, who, seed) for name in given.only.split(";") for seed in range(given.seeds) for who in LEARNERS]
    for name in given.only.split(";"):
        held["random"][name] = random_return(name)
    with ProcessPoolExecutor(given.jobs) as pool:
        begun = [pool.submit(one_run, *run) for run in wanted if run not in known]
        for number, ended in enumerate(as_completed(begun), 1):
            run = ended.result()
            held["runs"].append(run)
            held["runs"].sort(key=lambda run: (run["task"], run["seed"], run["learner"]))
            given.json.write_text(json.dumps(held, indent=1) + "\n", "utf-8")
            print(
                f"{number} of {len(begun)}: {run['task']}, {run['learner']}, {run['seed']}: {run['last']:.1f}",
                flush=True,
            )
    held["judged"] = judged(held)
    given.json.write_text(json.dumps(held, indent=1) + "\n", "utf-8")
    show(held["judged"])


if __name__ == "__main__":
    main()
