"""Engines that are killed all the time: is a run lost, a step invented or skipped, does anything grow, at what cost?

    python benchmarks/soak.py --minutes 60 [--engines 4 --envs 16 --every 20] [--transport tcp]

Launched engines are stepped at full speed. Every `--every` seconds one of them, in turn, is killed with -9; after three
of these a part of the same length is left in peace, so that both speeds come out of one run. `--minutes` counts the
time in which engines are killed.

In every step the trainer computes each env's next state itself and compares: an action that was lost, doubled, or went
to another env would show. At the end the engines' own counts (kept in files that outlive them) are compared, too:
between the trainer's count and that count plus one for each lost step, since nobody can know whether an engine had
taken the step under way when it was killed. Prints a table (last figures: benchmarks/README.md); the exit code is 1
where anything that must hold does not.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import psutil
from numpy.typing import NDArray

import ue_rl
from ue_rl.devtools.testing import Record, chaos_command

TOLERANCE = 1e-4  # of positions, which are carried on in float32 from each episode's first observation
PEACE_AFTER = 3


@dataclass
class Result:
    """What was seen.

    Attributes:
        parts: of disturbed (True) and undisturbed parts: (env-steps, seconds). memory: RSS in bytes after each part.
        kills: engines killed. lost: env-steps of lost engines. longest: seconds of the longest step.
    """

    parts: dict[bool, list[tuple[int, float]]] = field(default_factory=lambda: {True: [], False: []})
    memory: list[int] = field(default_factory=list)
    kills: int = 0
    lost: int = 0
    longest: float = 0.0

    def rate(self, disturbed: bool) -> float:
        """env-steps per second."""
        steps, seconds = np.sum(self.parts[disturbed], axis=0)
        return float(steps / seconds)


class Follower:
    """Steps the envs with changing actions and checks every answer.

    Attributes:
        taken: int64 [num_envs], steps that were answered. lost: int64 [num_envs], steps of a lost engine.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        n = env.num_envs
        self.taken, self.lost = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self._x = env.reset()[:, 0].astype(np.float64)
        moves = np.random.default_rng(0).uniform(-1, 1, (997, n, 1))
        self._moves = moves.astype(np.float32)
        self._number = 0

    def step(self) -> None:
        """One vec-step.

        Raises:
            AssertionError: an answer that is not this step's.
        """
        self._number += 1
        actions = self._moves[self._number % 997]
        obs, rewards, dones, infos = self.env.step(actions)
        self._x += 0.1 * actions[:, 0]
        wrong = np.abs(obs[:, 0] - self._x) > TOLERANCE
        ended = np.flatnonzero(dones)
        if len(ended):
            self._end(ended, obs, rewards, infos, wrong)
        assert not wrong.any(), f"step {self._number}, env {np.flatnonzero(wrong)}: {obs[wrong, 0]} {self._x[wrong]}"
        self.taken += 1

    def _end(self, ended: NDArray[np.intp], obs: Any, rewards: Any, infos: Any, wrong: NDArray[np.bool_]) -> None:
        for env in ended.tolist():
            last = infos[env]["terminal_observation"][0]
            if "engine_lost" in infos[env]:
                before = self._x[env] - 0.1 * self._moves[self._number % 997][env, 0]
                # A step that was answered before the engine died in its reset is good; else it was not taken.
                if abs(last - self._x[env]) > TOLERANCE or rewards[env] == 0:
                    assert abs(last - before) <= TOLERANCE, f"env {env} ended in {last}, and was in {before}"
                    assert rewards[env] == 0
                    self.taken[env] -= 1
                    self.lost[env] += 1
                assert "episode" not in infos[env]
            else:
                assert abs(last - self._x[env]) <= TOLERANCE, f"env {env}: {last} {self._x[env]}"
            self._x[env], wrong[env] = obs[env, 0], False


def soak(a: argparse.Namespace, follower: Follower, records: list[Record]) -> Result:
    """Parts in turn: PEACE_AFTER with a kill at a random moment of each, one without."""
    result, me = Result(), psutil.Process()
    chance = random.Random(0)
    rounds = max(1, round(a.minutes * 60 / a.every / PEACE_AFTER))
    for number in range(rounds * (PEACE_AFTER + 1)):
        disturbed = number % (PEACE_AFTER + 1) != PEACE_AFTER
        begun, steps = time.perf_counter(), 0
        if disturbed:  # from another thread: in the middle of a step, too
            pid = int(records[result.kills % a.engines].pid[0])
            threading.Timer(a.every * chance.uniform(0.2, 0.7), os.kill, (pid, signal.SIGKILL)).start()
            result.kills += 1
        now = begun
        while now < begun + a.every:
            follower.step()
            steps += follower.env.num_envs
            before, now = now, time.perf_counter()
            result.longest = max(result.longest, now - before)
        result.parts[disturbed].append((steps, now - begun))
        result.memory.append(me.memory_info().rss)
        if a.verbose:
            print(
                f"{number:4d} {'kill ' if disturbed else 'peace'} {steps / (now - begun):10,.0f} env-steps/s",
                flush=True,
            )
    result.lost = int(follower.lost.sum())
    return result


def main() -> None:
    """Runs it and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--envs", type=int, default=16, help="of each engine")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two kills")
    parser.add_argument("--transport", choices=["tcp", "shm"], default="shm")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    logging.getLogger("ue_rl").setLevel(logging.ERROR)  # each loss is a warning
    with tempfile.TemporaryDirectory() as folder:
        command = chaos_command(record=f"{folder}/record-{{engine}}", shm=a.transport == "shm")
        env = ue_rl.launch(
            command,
            a.engines,
            a.envs,
            seed=0,
            output_dir=folder,
            transport=a.transport,
            monitor=False,
            copy=False,
            restarts="10/60s",
        )
        try:
            records = [Record(f"{folder}/record-{number}", a.envs) for number in range(a.engines)]
            follower = Follower(env)
            for _ in range(20_000):
                follower.step()
            seen = soak(a, follower, records)
            files = psutil.Process().num_fds()
        finally:
            env.close()
        counted = np.concatenate([record.steps for record in records]).astype(np.int64)
        lives = [int(record.lives[0]) for record in records]
        children = psutil.Process().children(recursive=True)
    sys.exit(report(a, seen, follower, counted, lives, files, len(children)))


def report(
    a: argparse.Namespace, seen: Result, follower: Follower, counted: Any, lives: list[int], files: int, children: int
) -> int:
    """Prints the table; 0 where all holds, else 1."""
    killed, peace = seen.rate(True), seen.rate(False)
    grown = max(seen.memory) / seen.memory[0] - 1
    exact = bool(((follower.taken <= counted) & (counted <= follower.taken + follower.lost)).all())
    seconds = sum(part[1] for parts in seen.parts.values() for part in parts)
    holds = {
        f"no run lost: {seen.kills} engines killed, {sum(lives) - len(lives)} started again": seen.kills
        == sum(lives) - len(lives),
        f"steps exact: {follower.taken.sum():,} answered and right, {counted.sum():,} counted by the engines, "
        f"{seen.lost:,} under way when an engine was killed": exact,
        f"memory: {seen.memory[0] / 2**20:.1f} MiB after the first part, {max(seen.memory) / 2**20:.1f} MiB at most "
        f"({grown:+.1%})": grown <= 0.05,
        f"speed: {killed:,.0f} env-steps/s, {peace:,.0f} undisturbed ({killed / peace:.1%}); the longest step took "
        f"{seen.longest:.2f} s": killed >= 0.9 * peace,
        f"processes left: {children}; files open at the end: {files}": children == 0,
    }
    print(
        f"{a.engines} launched engines x {a.envs} envs over {'text' if a.transport == 'tcp' else 'shared memory'}, "
        f"{seconds / 60:.0f} minutes, one killed every {a.every:g} s, {os.cpu_count()} cores\n"
    )
    print("| what was seen | holds |\n|---|---|")
    for text, good in holds.items():
        print(f"| {text} | {'yes' if good else '**no**'} |")
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    main()
