"""Does a seed fix an episode over the wire, and is a killed training resumed exactly? benchmarks/README.md's table.

    python benchmarks/seeded_engines.py --json benchmarks/seeded_engines.json
    python benchmarks/seeded_engines.py --only reach/C++ --only CartPole-v1     # these rows, without a file
    python benchmarks/seeded_engines.py --only reach/C++ --json benchmarks/seeded_engines.json --add   # put there
    python benchmarks/seeded_engines.py --table   # of that file, without measuring

Samples of this repository in each language, and Gymnasium's and other envs that our bridges host. Four envs of an
engine play an episode each, of seeds and random actions of their own, and again: in another process of the engine; in
the used one, behind three episodes of other seeds; in a later session with it; in another env of another process; and
the first of them as the only env of one. A cell says how many of the episodes have the same observations and rewards,
to the bit.

Then PPO trains in the engine, and again with SIGKILL for the trainer and the engine in the midst of it; the run that
was resumed ends with the same weights or others, and says that it is not exact or nothing. What is not installed has no
row: the engines need g++, mono, Node and Godot 3, and the first three packages of seeded_episodes.py, pettingzoo and
flappy-bird-gymnasium. Without --add, --only leaves a JSON that is there alone.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import logging
import multiprocessing
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from seeded_episodes import measured, table_of, versions
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from tables import refuse_a_part

import ue_rl
from ue_rl.connections.engines.lifecycle import Life
from ue_rl.connections.launching.starting import launched
from ue_rl.devtools.check.bench import SHARED, Bench, Options
from ue_rl.devtools.check.replay import ProbeEpisode, replay

ROOT = Path(__file__).resolve().parents[1]
ENVS = 4
STEPS = 200
SEEDS = (1000, 1031, 1062, 1093)
BETWEEN = (2000, 3000, 4000)
WIRE = ("new engine", "used engine", "later session", "another env", "alone")
RESUMED = "kill and resume"
CELLS = (*WIRE, RESUMED)
FILE = Path(__file__).with_suffix(".json")
# Of the training: env-steps, those at which it is killed, and between two checkpoints.
TRAINING = 4096
KILLED = 1500
SAVED = 200
UE_RL = f"{sys.executable} -m ue_rl"


@dataclass(frozen=True)
class Row:
    """An engine.

    Args:
        command: with {port}, and {num_envs} where the number is not always four.
        build: what is run first, with OUT for the program, which is {out} in the command. needs: programs.
        trained: whether PPO is trained in it; agents and masks want other algorithms.
    """

    command: str
    build: str = ""
    needs: tuple[str, ...] = ()
    trained: bool = True


GODOT = f"godot3-server --path {ROOT}/samples/godot --fixed-fps 60 --port={{port}} --envs={{num_envs}} --task="
UNITY = f"{ROOT}/samples/unity"
CSHARP = f"mcs -optimize+ -out:OUT {UNITY}/UeRlBridge.cs"
CPP = f"g++ -std=c++17 -O2 -pthread -I {ROOT}/samples/cpp -o OUT"
PORTS = "--port {port} --num-envs {num_envs}"


def gymnasium_row(name: str, more: str = "") -> Row:
    """An env of Gymnasium behind our bridge."""
    return Row(f"{UE_RL} serve --env {name} {PORTS} {more}")


ROWS = {
    "carts/Python": Row(
        f"{sys.executable} -c 'from samples.fifty_lines.carts import Carts; from ue_rl.bridges import serve; "
        "serve(Carts({num_envs}), port={port})'",
    ),
    "carts/C++": Row("{out} {port}", f"{CPP} {ROOT}/samples/fifty_lines/carts.cpp -lrt", ("g++",)),
    "carts/C#": Row(
        "mono {out} {port}",
        f"{CSHARP} {ROOT}/samples/fifty_lines/Carts.cs",
        ("mono", "mcs"),
    ),
    "carts/Godot": Row(
        f"godot3-server --path {ROOT}/samples/godot -s {ROOT}/samples/fifty_lines/carts.gd "
        "--fixed-fps 60 --port={port}",
        needs=("godot3-server",),
    ),
    "carts/Node": Row(f"node {ROOT}/samples/web/carts/node.js {{port}} {{num_envs}}", needs=("node",)),
    "lander/Node": Row(f"node {ROOT}/samples/web/lander/node.js {{port}} {{num_envs}}", needs=("node",)),
    "reach/Python": Row(f"{sys.executable} {ROOT}/samples/reach.py {PORTS}"),
    "reach/C++": Row(f"{{out}} {PORTS}", f"{CPP} {ROOT}/samples/cpp/reach.cpp -lrt", ("g++",)),
    "reach/C#": Row(
        f"mono {{out}} {PORTS}",
        f"{CSHARP} {UNITY}/UeRlSharedMemory.cs {UNITY}/UeRlHeuristic.cs "
        f"{UNITY}/console/Program.cs {UNITY}/console/ReachGame.cs",
        ("mono", "mcs"),
    ),
    "cart_pole/Godot": Row(f"{GODOT}cart_pole", needs=("godot3-server",)),
    "rolling_ball/Godot": Row(f"{GODOT}rolling_ball", needs=("godot3-server",)),
    "catcher/Godot": Row(f"{GODOT}catcher", needs=("godot3-server",)),
    "sumo/Python": Row(f"{sys.executable} {ROOT}/samples/agents/sumo.py {PORTS}", trained=False),
    "skirmish/Python": Row(f"{UE_RL} serve --bridge samples.skirmish.bridge:Skirmish {PORTS}", trained=False),
    "MujocoBridge/HalfCheetah": Row(f"{UE_RL} serve --mujoco HalfCheetah {PORTS}"),
    "CartPole-v1": gymnasium_row("CartPole-v1"),
    "LunarLander-v3": gymnasium_row("LunarLander-v3"),
    "BipedalWalker-v3": gymnasium_row("BipedalWalker-v3"),
    "HalfCheetah-v5": gymnasium_row("HalfCheetah-v5"),
    "Walker2d-v5": gymnasium_row("Walker2d-v5"),
    "ALE/Breakout-v5": gymnasium_row("ale_py:ALE/Breakout-v5", """--kwargs '{"obs_type": "ram"}'"""),
    "MiniGrid-Dynamic-Obstacles-8x8-v0": gymnasium_row(
        "minigrid:MiniGrid-Dynamic-Obstacles-8x8-v0", "--env-wrapper minigrid.wrappers:ImgObsWrapper"
    ),
    "FlappyBird-v0": gymnasium_row("flappy_bird_gymnasium:FlappyBird-v0"),
    "multiwalker_v9": Row(f"{UE_RL} serve --pettingzoo pettingzoo.sisl.multiwalker_v9 {PORTS}", trained=False),
}


@contextmanager
def running(row: Row, program: Path, num_envs: int) -> Iterator[str]:
    """The address of a new process of the engine."""
    command = row.command.replace("{out}", str(program))
    given = None
    if "{num_envs}" in command:
        given = num_envs
    (engine,) = launched(command, num_envs=given, start_timeout=120.0)
    with closing(engine):
        yield engine.begin(Life(0))


@contextmanager
def benched(address: str) -> Iterator[Bench]:
    """Sessions with an engine."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    bench = Bench((host, int(port)), Options(timeout=60.0, wait=60.0), SHARED)
    try:
        yield bench
    finally:
        bench.drop()


def of_env(episode: ProbeEpisode, env: int) -> str:
    """A digest of its observations, rewards and end."""
    there = episode.there[:, env]
    rewards = episode.rewards[1:, env][there[1:]]
    parts = (episode.obs[there, env], rewards, episode.over[there, env])
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def envs_of(like: ProbeEpisode, envs: Sequence[int]) -> ProbeEpisode:
    """The actions of these envs, for as many."""
    steps = like.actions
    agents = steps.shape[1] // like.obs.shape[1]
    by_env = steps.reshape(len(steps), -1, agents, steps.shape[2])
    return replace(like, actions=by_env[:, list(envs)].reshape(len(steps), -1, steps.shape[2]))


def played(row: Row, program: Path, envs: Sequence[int], like: ProbeEpisode) -> list[str]:
    """The digests of these episodes, in this order, in a new engine."""
    with running(row, program, len(envs)) as address, benched(address) as bench:
        episode = replay(bench, [SEEDS[env] for env in envs], STEPS, envs_of(like, envs))
    return [of_env(episode, env) for env in range(len(envs))]


def same(found: Sequence[str], expected: Sequence[str]) -> str:
    """A cell."""
    equal = sum(one == other for one, other in zip(found, expected, strict=True))
    if equal == len(expected):
        return "same"
    return f"{equal} of {len(expected)}"


def over_the_wire(row: Row, program: Path) -> dict[str, str]:
    """The cells of one row but the last, and the handshake."""
    cells = {}
    everybody = list(range(ENVS))
    with running(row, program, ENVS) as address, benched(address) as bench:
        first = replay(bench, SEEDS, STEPS)
        cells["handshake"] = bench.text().handshake.decode().strip()
        expected = [of_env(first, env) for env in everybody]
        for seed in BETWEEN:
            replay(bench, [seed + env for env in everybody], STEPS)
        used = replay(bench, SEEDS, STEPS, first)
        cells["used engine"] = same([of_env(used, env) for env in everybody], expected)
        bench.drop()
        later = replay(bench, SEEDS, STEPS, first)
        cells["later session"] = same([of_env(later, env) for env in everybody], expected)
    cells["new engine"] = same(played(row, program, everybody, first), expected)
    turned = [*everybody[1:], 0]
    cells["another env"] = same(played(row, program, turned, first), [expected[env] for env in turned])
    cells["alone"] = "-"
    if "{num_envs}" in row.command:
        cells["alone"] = same(played(row, program, [0], first), expected[:1])
    return cells


def train(address: str, folder: Path, dies: bool, answer: Connection) -> None:
    """PPO, saved in `folder`: the process kills itself on its way, or answers with a digest of the weights at the end
    and with what was logged.
    """
    random.seed()  # the parent's generators are no part of the run
    np.random.seed()
    torch.seed()
    torch.set_num_threads(1)
    said: list[str] = []
    log = logging.getLogger("ue_rl")
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    env = ue_rl.connect(address, timeout=60, wait=60)
    autosave = ue_rl.AutoSave(folder, save_freq=SAVED, tell=said.append)
    policy = "MlpPolicy"
    if hasattr(env.observation_space, "spaces"):
        policy = "MultiInputPolicy"
    new = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 1, "device": "cpu"}
    model = autosave.resume(PPO, env) or PPO(policy, env, policy_kwargs={"net_arch": [16]}, **new)
    model.learn(TRAINING, callback=[autosave, Death(dies)])
    digest = hashlib.sha256()
    for _, weights in sorted(model.policy.state_dict().items()):
        digest.update(weights.numpy().tobytes())
    env.close()
    answer.send((digest.hexdigest(), [text for text in said if "exact" in text or "fresh" in text]))


class Death(BaseCallback):
    """As of SIGKILL, in the midst of a rollout."""

    def __init__(self, dies: bool) -> None:
        super().__init__()
        self.dies = dies

    def _on_step(self) -> bool:
        if self.dies and self.num_timesteps >= KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


def trained(row: Row, program: Path, folder: Path, dies: bool = False) -> tuple[str, list[str]]:
    """What `train` answers, of a process of its own with an engine of its own; of one that was killed nothing."""
    forks = multiprocessing.get_context("fork")  # torch takes seconds to import
    answer, other = forks.Pipe(duplex=False)
    with running(row, program, ENVS) as address:
        process = forks.Process(target=train, args=(address, folder, dies, other))
        process.start()
        other.close()
        found: tuple[str, list[str]] = ("", [])
        if not dies:
            found = answer.recv()
        process.join()
    if dies != (process.exitcode == -signal.SIGKILL):
        raise RuntimeError(f"the trainer ended with {process.exitcode}")
    return found


def killed_and_resumed(row: Row, program: Path, folder: Path) -> dict[str, Any]:
    """The last cell, and what was said."""
    whole = trained(row, program, folder / "whole")[0]
    trained(row, program, folder / "parts", dies=True)
    resumed, said = trained(row, program, folder / "parts")
    outcome = "other weights"
    if resumed == whole:
        outcome = "same weights"
    told = ""
    if said:
        told = ", said"
    elif resumed != whole:
        told = ", not said"
    return {RESUMED: outcome + told, "said": said}


def measure(row: Row) -> dict[str, Any]:
    """One row."""
    with tempfile.TemporaryDirectory() as name:
        program = Path(name) / "engine"
        if row.build:
            subprocess.run(row.build.replace("OUT", str(program)).split(), check=True, capture_output=True)
        cells: dict[str, Any] = dict(over_the_wire(row, program))
        cells[RESUMED] = "-"
        if row.trained:
            cells |= killed_and_resumed(row, program, Path(name))
    return cells


def main() -> int:
    """Measures, prints the table, writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=ROWS, help="a row's name; may be given again")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--add", action="store_true", help="keep the rows that the JSON has")
    parser.add_argument("--table", action="store_true", help="of the file beside this script")
    args = parser.parse_args()
    if args.table:
        found = json.loads(FILE.read_text())
        print(f"{measured(found['about'])}\n\n{table_of(found['rows'], CELLS, 'engines')}")
        return 0
    os.environ["PYTHONPATH"] = str(ROOT)  # engines find the samples
    about = {"date": str(datetime.date.today()), "machine": f"{platform.system()} {platform.machine()}"}
    rows: dict[str, dict[str, Any]] = {}
    missing = {}
    if not args.add:
        refuse_a_part(args.only, args.json)
    if args.add:
        rows = json.loads(args.json.read_text())["rows"]
    for name in args.only or ROWS:
        row = ROWS[name]
        lacking = [program for program in row.needs if shutil.which(program) is None]
        if lacking:
            missing[name] = f"not there: {' '.join(lacking)}"
            continue
        try:
            rows[name] = measure(row)
        except Exception as error:  # noqa: BLE001 - any: what is not installed fails in ways of its own
            missing[name] = f"{type(error).__name__}: {str(error)[-600:]}"
            print(name, missing[name], file=sys.stderr, flush=True)
            continue
        print(name, rows[name], file=sys.stderr, flush=True)
        if args.json:
            whole = {"about": {**about, "versions": versions()}, "rows": rows, "missing": missing}
            args.json.write_text(json.dumps(whole, indent=1) + "\n")
    print(table_of(rows, CELLS, "engines"))
    for name, why in missing.items():
        print(f"no row: {name}: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
