"""Does a seed fix an episode? Envs of this field, compared to the bit: the table of benchmarks/README.md.

    python benchmarks/seeded_episodes.py --json benchmarks/seeded_episodes.json   # --only NAME: one row

Each env plays episodes of some seeds under random actions that the seed fixes, and again in a new env, in an env that
played other seeds between, in another process, with other envs stepped beside it, and as a deep or pickled copy of an
env in the midst of an episode. A cell says how many of the episodes have the same observations and rewards. What is not
installed has no row.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import hashlib
import importlib
import importlib.metadata
import json
import pickle
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SEEDS = 5
STEPS = 200
CELLS = ("new env", "used env", "another process", "others beside", "deep copy", "pickled copy")
# What registers envs as it is imported, and the distributions whose versions are written.
MODULES = ("ale_py", "minigrid", "shimmy", "gymnasium_robotics")
PACKAGES = (
    *("gymnasium", "numpy", "mujoco", "Box2D", "box2d-py", "ale-py", "minigrid", "shimmy", "dm-control"),
    *("gymnasium-robotics", "pygame"),
)
CLASSIC = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
TOYS = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1")
BOX2D = ("LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3")
MUJOCO = (
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedPendulum-v5"),
    *("InvertedDoublePendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
)
ATARI = tuple(f"ALE/{name}-v5" for name in ("Pong", "Breakout", "SpaceInvaders", "MsPacman", "Seaquest", "Qbert"))
GRIDS = tuple(
    f"MiniGrid-{name}-v0"
    for name in (
        *("Empty-8x8", "DoorKey-8x8", "FourRooms", "KeyCorridorS3R3", "LavaCrossingS9N2", "MultiRoom-N4-S5"),
        *("Dynamic-Obstacles-8x8", "Fetch-8x8-N3", "MemoryS11", "Unlock", "ObstructedMaze-1Dlh"),
    )
)
CONTROL = tuple(
    f"dm_control/{name}-v0"
    for name in (
        *("cartpole-swingup", "cheetah-run", "walker-walk", "hopper-hop", "reacher-easy", "finger-spin"),
        *("ball_in_cup-catch", "acrobot-swingup", "pendulum-swingup", "fish-swim"),
    )
)
ROBOTICS = ("FetchReach-v4", "FetchPush-v4", "FetchSlide-v4", "HandReach-v3", "PointMaze_UMaze-v3", "AntMaze_UMaze-v5")
NAMES = (*CLASSIC, *TOYS, *BOX2D, *MUJOCO, *ATARI, *GRIDS, *CONTROL, *ROBOTICS)


def flat(value: Any) -> bytes:
    """The bits of an observation, a Dict's in the order of its keys."""
    if isinstance(value, dict):
        return b"".join(str(key).encode() + flat(value[key]) for key in sorted(value))
    if isinstance(value, tuple):
        return b"".join(flat(part) for part in value)
    if isinstance(value, str):
        return value.encode()
    return np.asarray(value).tobytes()


class Episode:
    """An episode of an env under random actions, and a digest of all that it answered."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self.actions = copy.deepcopy(env.action_space)
        self.actions.seed(seed + 1_000_000)  # a stream of its own: an env and its space seeded alike draw alike
        self.digest = hashlib.sha256(flat(env.reset(seed=seed)[0]))
        self.steps = 0
        self.over = False

    def step(self) -> None:
        """A step, unless the episode is over."""
        if self.over:
            return
        observation, reward, terminated, truncated, _ = self.env.step(self.actions.sample())
        self.digest.update(flat(observation))
        self.digest.update(np.float64(reward).tobytes() + bytes([terminated, truncated]))
        self.steps += 1
        self.over = terminated or truncated or self.steps == STEPS

    def play(self) -> str:
        """The digest at the end."""
        while not self.over:
            self.step()
        return self.digest.hexdigest()


def beside(make: Callable[[], Any], seed: int) -> str:
    """The digest of an episode while two other envs of the process take steps in turn."""
    others = [Episode(make(), 500 + seed), Episode(make(), 600 + seed)]
    episode = Episode(make(), seed)
    while not episode.over:
        episode.step()
        for other in others:
            other.step()
    return episode.play()


def copied(make: Callable[[], Any], seed: int, duplicate: Callable[[Any], Any]) -> str:
    """The digest of an episode that a copy of the env ends, from its tenth step on; the env itself goes on first."""
    episode = Episode(make(), seed)
    for _ in range(10):
        episode.step()
    env = episode.env
    episode.env = duplicate(env)
    if not episode.over:
        env.step(env.action_space.sample())
    return episode.play()


def again(value: Any) -> Any:
    """What is left of it after pickling."""
    return pickle.loads(pickle.dumps(value))


def digests(name: str, seeds: int) -> list[str]:
    """Those of an env's episodes, each in a new env."""
    return [Episode(gymnasium.make(name), seed).play() for seed in range(seeds)]


def another_process(name: str, seeds: int) -> list[str]:
    """The same from a process of its own."""
    words = [sys.executable, "-W", "ignore", __file__, "--digests", name, "--seeds", str(seeds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str, seeds: int) -> dict[str, str]:
    """A row: how many of the episodes were the same, or what the env raised."""

    def make() -> Any:
        return gymnasium.make(name)

    expected = digests(name, seeds)
    used = make()

    def after_others(seed: int) -> str:
        Episode(used, 100 + seed).play()
        return Episode(used, seed).play()

    elsewhere = another_process(name, seeds)
    ways: dict[str, Callable[[int], str]] = {
        "new env": lambda seed: Episode(make(), seed).play(),
        "used env": after_others,
        "another process": lambda seed: elsewhere[seed],
        "others beside": lambda seed: beside(make, seed),
        "deep copy": lambda seed: copied(make, seed, copy.deepcopy),
        "pickled copy": lambda seed: copied(make, seed, again),
    }
    row = {}
    for cell in CELLS:
        try:
            same = sum(ways[cell](seed) == expected[seed] for seed in range(seeds))
            row[cell] = "same" if same == seeds else f"{same} of {seeds}"
        except Exception as error:  # noqa: BLE001 - any: envs refuse to be copied in ways of their own, and that is the cell
            row[cell] = f"refused ({type(error).__name__})"
    return row


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def table(rows: dict[str, dict[str, str]]) -> str:
    """Markdown; envs that behave alike share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, row in rows.items():
        alike.setdefault(tuple(row[cell] for cell in CELLS), []).append(name)
    lines = ["| envs | " + " | ".join(CELLS) + " |", "|---" * (len(CELLS) + 1) + "|"]
    lines += [f"| {', '.join(names)} | " + " | ".join(cells) + " |" for cells, names in alike.items()]
    return "\n".join(lines)


def write(file: Path, seeds: int, rows: dict[str, dict[str, str]], missing: dict[str, str]) -> None:
    """The JSON of what was measured until now."""
    about = {"date": str(datetime.date.today()), "machine": f"{platform.system()} {platform.machine()}"}
    about |= {"seeds": seeds, "steps": STEPS, "versions": versions()}
    file.write_text(json.dumps({"about": about, "rows": rows, "missing": missing}, indent=1) + "\n")


def main() -> int:
    """Measures, prints the table, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a row's name; may be given again")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--digests", help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    for module in MODULES:
        try:
            gymnasium.register_envs(importlib.import_module(module))
        except ImportError:
            continue
    if args.digests:
        print(json.dumps(digests(args.digests, args.seeds)))
        return 0
    rows = {}
    missing = {}
    for name in args.only or NAMES:
        try:
            gymnasium.make(name).close()
        except Exception as error:  # noqa: BLE001 - any: what is not installed fails in ways of its own
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
            continue
        rows[name] = measure(name, args.seeds)
        print(name, rows[name], file=sys.stderr, flush=True)
        if args.json:
            write(args.json, args.seeds, rows, missing)
    print(table(rows))
    for name, why in missing.items():
        print(f"no row: {name}: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
