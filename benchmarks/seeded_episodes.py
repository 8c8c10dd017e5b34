"""Does a seed fix an episode? Envs of this field, compared to the bit: the table of benchmarks/README.md.

    pip install -c constraints.txt 'gymnasium[box2d,mujoco]' ale-py minigrid gymnasium-robotics vizdoom highway-env
    pip install -c constraints.txt 'shimmy[dm-control]' flappy-bird-gymnasium pettingzoo pymunk mpe2
    python benchmarks/seeded_episodes.py --json benchmarks/seeded_episodes.json
    python benchmarks/seeded_episodes.py --only CartPole-v1 --only ALE/Pong-v5     # these rows, without a file
    python benchmarks/seeded_episodes.py --only CartPole-v1 --json benchmarks/seeded_episodes.json --add   # put there
    OLDER/bin/python benchmarks/seeded_episodes.py --digests-alone --json benchmarks/seeded_episodes_older.json
    OLDER/bin/python benchmarks/seeded_episodes.py --add --json benchmarks/seeded_episodes_older.json --only ..
    python benchmarks/seeded_episodes.py --table   # of the two files, without measuring

Each env plays episodes of some seeds under random actions that the seed fixes, and again in a new env, in an env that
played other seeds between, in another process, with other envs stepped beside it, and as a deep or pickled copy of an
env in the midst of an episode. A cell says how many of the episodes have the same observations and rewards. What is not
installed has no row. Digests of the episodes stand in the JSON, so that another machine, or other versions of the
packages, can be compared: OLDER is a venv with the versions that its file names, and the rows of its second command are
those that start with these alone. Without --add, --only leaves a JSON that is there alone.
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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from tables import refuse_a_part

SEEDS = 5
STEPS = 200
CELLS = ("new env", "used env", "another process", "others beside", "deep copy", "pickled copy")
VERSIONS = "older packages"  # the column of what two JSONs of other versions have in common
FILE = Path(__file__).with_name("seeded_episodes.json")
OLDER = Path(__file__).with_name("seeded_episodes_older.json")
# The distributions whose versions are written.
PACKAGES = (
    *("gymnasium", "numpy", "mujoco", "Box2D", "box2d-py", "ale-py", "minigrid", "shimmy", "dm-control"),
    *("gymnasium-robotics", "pygame", "pygame-ce", "pettingzoo", "pymunk", "mpe2", "vizdoom", "highway-env"),
    "flappy-bird-gymnasium",
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
DOOM = ("VizdoomBasic-v1", "VizdoomDefendLine-v1", "VizdoomMyWayHome-v1")
ROADS = ("highway-fast-v0", "merge-v1", "parking-v0")
BIRDS = ("FlappyBird-v0",)
# Modules with a parallel_env().
PETTINGZOO = (
    *("pettingzoo.butterfly.cooperative_pong_v6", "pettingzoo.butterfly.knights_archers_zombies_v11"),
    *("pettingzoo.butterfly.pistonball_v6", "pettingzoo.sisl.multiwalker_v9", "pettingzoo.sisl.pursuit_v5"),
    *("pettingzoo.classic.rps_v2", "mpe2.simple_spread_v3", "mpe2.simple_tag_v3"),
)
NAMES = (*CLASSIC, *TOYS, *BOX2D, *MUJOCO, *ATARI, *GRIDS, *CONTROL, *ROBOTICS, *DOOM, *ROADS, *BIRDS, *PETTINGZOO)
# What registers envs as it is imported.
MODULES = {
    "ale_py": ATARI,
    "minigrid": GRIDS,
    "shimmy": CONTROL,
    "gymnasium_robotics": ROBOTICS,
    "vizdoom.gymnasium_wrapper": DOOM,
    "highway_env": ROADS,
    "flappy_bird_gymnasium": BIRDS,
}


class Agents:
    """A PettingZoo parallel env with the methods of a Gymnasium one; its actions are a Dict of the agents'."""

    def __init__(self, module: str) -> None:
        self.env = importlib.import_module(module).parallel_env()
        spaces = {agent: self.env.action_space(agent) for agent in self.env.possible_agents}
        self.action_space = gymnasium.spaces.Dict(spaces)

    def reset(self, *, seed: int) -> Any:
        """(observations, infos) of the agents."""
        return self.env.reset(seed=seed)

    def step(self, actions: Any) -> tuple[Any, Any, bool, bool, Any]:
        """Acts with the agents that are there; the rewards are an array, in the order of their names."""
        there = {agent: actions[agent] for agent in self.env.agents}
        observations, rewards, _, truncated, infos = self.env.step(there)
        over = not self.env.agents
        return (
            observations,
            [rewards[agent] for agent in sorted(rewards)],
            over,
            any(truncated.values()) and over,
            infos,
        )

    def close(self) -> None:
        """See gymnasium.Env.close."""
        self.env.close()


def made(name: str) -> Any:
    """A new env."""
    if name in PETTINGZOO:
        return Agents(name)
    for module, names in MODULES.items():
        if name in names:
            gymnasium.register_envs(importlib.import_module(module))
    return gymnasium.make(name)


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
        self.digest.update(np.asarray(reward, np.float64).tobytes() + bytes([terminated, truncated]))
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
    return [Episode(made(name), seed).play() for seed in range(seeds)]


def another_process(name: str, seeds: int) -> list[str]:
    """The same from a process of its own."""
    words = [sys.executable, "-W", "ignore", __file__, "--digests", name, "--seeds", str(seeds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


def measure(name: str, seeds: int) -> dict[str, Any]:
    """A row: how many of the episodes were the same, or what the env raised; and the digests."""

    def make() -> Any:
        return made(name)

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
    row: dict[str, Any] = {}
    for cell in CELLS:
        try:
            row[cell] = count(ways[cell](seed) == expected[seed] for seed in range(seeds))
        except Exception as error:  # noqa: BLE001 - any: envs refuse to be copied in ways of their own, and that is the cell
            row[cell] = f"refused ({type(error).__name__})"
    row["digests"] = [digest[:16] for digest in expected]
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


def count(same: Iterable[bool]) -> str:
    """A cell."""
    each = list(same)
    if all(each):
        return "same"
    return f"{sum(each)} of {len(each)}"


def table(rows: dict[str, dict[str, Any]], older: dict[str, dict[str, Any]]) -> str:
    """Markdown. `older`: rows of other versions, of which the digests count, and the cells of what is not in `rows`."""
    cells: tuple[str, ...] = CELLS
    if older:
        cells = (*CELLS, VERSIONS)
    shown = {}
    for name, row in rows.items():
        shown[name] = {VERSIONS: "-", **row}
        if name in older:
            pairs = zip(row["digests"], older[name]["digests"], strict=True)
            shown[name][VERSIONS] = count(one == other for one, other in pairs)
    for name, row in older.items():
        if name not in rows and CELLS[0] in row:
            shown[f"{name} (older)"] = {VERSIONS: "-", **row}
    return table_of(shown, cells, "envs")


def table_of(rows: dict[str, dict[str, Any]], cells: Sequence[str], head: str) -> str:
    """Markdown; what behaves alike shares a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, row in rows.items():
        alike.setdefault(tuple(row[cell] for cell in cells), []).append(name)
    lines = [f"| {head} | " + " | ".join(cells) + " |", "|---" * (len(cells) + 1) + "|"]
    lines += [f"| {', '.join(names)} | " + " | ".join(key) + " |" for key, names in alike.items()]
    return "\n".join(lines)


def measured(about: dict[str, Any]) -> str:
    """When, where and with which versions."""
    packages = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return f"{about['date']}, {about['machine']}; {packages}"


def write(file: Path, seeds: int, rows: dict[str, dict[str, Any]], missing: dict[str, str]) -> None:
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
    parser.add_argument("--add", action="store_true", help="keep the rows that the JSON has")
    parser.add_argument("--digests-alone", action="store_true", help="what --table compares, and nothing else")
    parser.add_argument("--table", action="store_true", help="of the files beside this script")
    parser.add_argument("--digests", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.table:
        new = json.loads(FILE.read_text())
        old = json.loads(OLDER.read_text())
        print(f"{measured(new['about'])}\n{VERSIONS}: {measured(old['about'])}\n")
        print(table(new["rows"], old["rows"]))
        return 0
    warnings.simplefilter("ignore")
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    if args.digests:
        print(json.dumps(digests(args.digests, args.seeds)))
        return 0
    rows: dict[str, dict[str, Any]] = {}
    missing = {}
    if not args.add:
        refuse_a_part(args.only, args.json)
    if args.add:
        rows = json.loads(args.json.read_text())["rows"]
        missing = json.loads(args.json.read_text())["missing"]
    for name in args.only or NAMES:
        try:
            made(name).close()
        except Exception as error:  # noqa: BLE001 - any: what is not installed fails in ways of its own
            missing[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:100]}"
            continue
        missing.pop(name, None)
        if args.digests_alone:
            rows[name] = {"digests": [digest[:16] for digest in digests(name, args.seeds)]}
        else:
            rows[name] = measure(name, args.seeds)
        print(name, rows[name], file=sys.stderr, flush=True)
        if args.json:
            write(args.json, args.seeds, rows, missing)
    if not args.digests_alone and not args.add:
        print(table(rows, {}))
    for name, why in missing.items():
        print(f"no row: {name}: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
