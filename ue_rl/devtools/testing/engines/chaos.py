"""A small engine as a process of its own, which fails as its command line says:

    python -m ue_rl.devtools.testing.engines.chaos --port 7801 --num-envs 2 --seed 5 --fault crash --after 500 --lives 1

It hosts a real bridge (both wirings, and shared memory on offer with `--shm`), starts in about a third of a second,
and takes seeds: the same seeds and actions give the same rows, in this life of the engine or the next. An episode
that is given no seed has the one before plus 1. `ChaosEngine`
(ue_rl/devtools/testing/chaos_engine.py) starts it from a test, and `chaos_command` gives the line for `ue-rl train
--engine`.

The task: a number `x` is moved by an action from -1 to 1 and should come to 0. Observation (x, share of the episode,
0.1 x where it began), reward -|x|; an episode is 10 to 20 steps long, as its seed says, and ends as truncated.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.vector import VectorBridge
from ue_rl.protocol.spec import Channel, EnvSpec

if TYPE_CHECKING:
    from ue_rl.bridges.tcp.server import BridgeServer

__all__ = ["FAULTS", "ChaosBridge", "Record", "main"]

FAULTS = {
    "crash": "kills itself with SIGKILL",
    "exit": "ends with --exit-code, after a last line of output",
    "hang": "does nothing from now on, and keeps its sockets",
    "stop": "stops itself with SIGSTOP; SIGCONT lets it go on",
}
_WIRINGS = {"any": Channel.ANY, "shared": Channel.SHARED, "per_env": Channel.PER_ENV}


class Record:
    """What an engine has done, in a file that outlives it; counted in memory, so that a kill -9 loses nothing.

    Args:
        path: the file; made where there is none.
        num_envs: of the engine.

    Attributes:
        lives: uint64 [1], how often the engine was started. pid: uint64 [1], the process of its present life.
        steps: uint64 [num_envs], steps of each env in all lives. resets: uint64 [num_envs], likewise.
    """

    def __init__(self, path: str | Path, num_envs: int) -> None:
        size = 2 + 2 * num_envs
        mode: Any
        if os.path.exists(path):
            mode = "r+"
        else:
            mode = "w+"
        words = np.memmap(path, np.uint64, mode, shape=(size,))
        self.lives, self.pid, self.steps, self.resets = np.split(words, (1, 2, 2 + num_envs))

    @property
    def total(self) -> int:
        """Steps of all envs."""
        return int(self.steps.sum())


class ChaosBridge(VectorBridge):
    """The task, with a blow after so many env-steps.

    Args:
        num_envs: envs. seed: where the first episodes get theirs from, if not from the trainer.
        channel: the wirings that the handshake announces.
        record: keeps count; None: nothing does.
        fault: a key of FAULTS, None: nothing goes wrong. after: env-steps of this life before it strikes.
        exit_code: of the fault "exit". step_seconds: how long a step of all asked envs takes.
    """

    def __init__(
        self,
        num_envs: int = 2,
        *,
        seed: int = 0,
        channel: Channel = Channel.ANY,
        record: Record | None = None,
        fault: str | None = None,
        after: int = 0,
        exit_code: int = 0,
        step_seconds: float = 0.0,
    ) -> None:
        features = frozenset(("SEED", "TRUNC"))
        super().__init__(EnvSpec(3, 1, num_envs=num_envs, features=features, channel=channel))
        self._record = record
        self._fault = fault
        self._exit_code = exit_code
        if fault is not None:
            self._left = after
        else:
            self._left = -1
        self._step_seconds = step_seconds
        self._x = np.zeros(num_envs)
        self._begun = np.zeros(num_envs)
        self._step_of = np.zeros(num_envs)
        self._length = np.ones(num_envs)
        self._next = [seed * 1_000_003 + env * 7919 for env in range(num_envs)]  # the next episode's seed

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        """See VectorBridge."""
        for env, given in zip(env_ids.tolist(), seeds, strict=True):
            if given is None:
                seed = self._next[env]
            else:
                seed = given
            self._next[env] = seed + 1
            mixed = (seed * 2_654_435_761 + 1_013_904_223) % 2**32
            self._begun[env] = mixed / 2**31 - 1
            self._length[env] = 10 + mixed % 11
        self._x[env_ids] = self._begun[env_ids]
        self._step_of[env_ids] = 0
        self._write(env_ids)
        if self._record is not None:
            self._record.resets[env_ids] += np.uint64(1)

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """See VectorBridge."""
        if self._step_seconds:
            time.sleep(self._step_seconds)
        if 0 <= self._left < len(env_ids):
            strike(str(self._fault), self._exit_code)
            self._left = -1  # a stopped process was continued
        elif self._left > 0:
            self._left -= len(env_ids)
        self._x[env_ids] += 0.1 * np.clip(actions[env_ids, 0], -1, 1)
        self._step_of[env_ids] += 1
        self._write(env_ids)
        out = self.outbox
        out.rewards[env_ids] = -np.abs(self._x[env_ids])
        out.dones[env_ids] = 0
        out.truncated[env_ids] = self._step_of[env_ids] >= self._length[env_ids]
        if self._record is not None:
            self._record.steps[env_ids] += np.uint64(1)

    def _write(self, ids: NDArray[np.intp]) -> None:
        obs = self.outbox.obs
        obs[ids, 0], obs[ids, 1] = self._x[ids], self._step_of[ids] / self._length[ids]
        obs[ids, 2] = 0.1 * self._begun[ids]


def strike(fault: str, exit_code: int = 0) -> None:
    """Does what FAULTS says; returns from "stop" only."""
    print(f"fault: {fault}", flush=True)
    if fault == "crash":
        if sys.platform == "win32":
            os.kill(os.getpid(), signal.SIGTERM)  # TerminateProcess
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        print("GameError: the level could not be loaded", file=sys.stderr, flush=True)
        os._exit(exit_code)
    if fault == "stop" and sys.platform != "win32":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    while True:
        time.sleep(3600)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(prog="python -m ue_rl.devtools.testing.engines.chaos", description=__doc__)
    add = made.add_argument
    add("--port", type=int, default=0, help="0 takes a free one")
    add("--num-envs", type=int, default=2)
    add("--seed", type=int, default=0)
    add("--wiring", choices=_WIRINGS, default="any")
    add("--shm", action="store_true", help="offer shared memory")
    add("--listen-after", type=float, default=0.0, metavar="SECONDS", help="listen late")
    add("--step-seconds", type=float, default=0.0, help="how long a step takes")
    add("--fault", choices=FAULTS, help="; ".join(f"{name}: {what}" for name, what in FAULTS.items()))
    add("--after", type=int, default=0, metavar="N", help="env-steps before the fault strikes; 0: before it listens")
    add("--exit-code", type=int, default=0, help="of the fault exit")
    add("--record", metavar="FILE", help="counts lives, steps and resets in FILE; {engine} is best in its name")
    add("--lives", type=int, default=2**62, metavar="K", help="the fault strikes in the first K lives (needs --record)")
    add("--ignore-sigterm", action="store_true")
    add("--children", type=int, default=0, help="processes of its own that only wait")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Runs the engine until SIGTERM or SIGINT, or until its fault; the exit code."""
    a = parser().parse_args(words)
    record = None
    if a.record:
        record = Record(a.record, a.num_envs)
        record.pid[0] = os.getpid()
        record.lives += np.uint64(1)
    fault = None
    if record is None or record.lives[0] <= a.lives:
        fault = a.fault
    # As games do: SIGTERM ends it in good order, or not at all.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if a.ignore_sigterm else signal.default_int_handler)
    waiting = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
    children = [subprocess.Popen(waiting, stdin=subprocess.DEVNULL) for _ in range(a.children)]
    try:
        if fault is not None and a.after == 0:
            strike(fault, a.exit_code)
        _serve(a, fault, record)
    except KeyboardInterrupt:
        pass
    finally:
        for child in children:
            child.kill()
            child.wait()
    return 0


def _serve(a: argparse.Namespace, fault: str | None, record: Record | None) -> None:
    from ue_rl.bridges.runners import over_tcp
    from ue_rl.bridges.shm.upgrade import ShmUpgrader

    early = None
    if a.after:
        early = fault
    bridge = ChaosBridge(
        a.num_envs,
        seed=a.seed,
        channel=_WIRINGS[a.wiring],
        record=record,
        fault=early,
        after=a.after,
        exit_code=a.exit_code,
        step_seconds=a.step_seconds,
    )

    def ready(server: BridgeServer) -> None:
        print(f"listening on {server.url}", flush=True)

    time.sleep(a.listen_after)
    upgrader = None
    if a.shm:
        upgrader = ShmUpgrader()
    options = {"host": "127.0.0.1", "port": a.port, "upgrader": upgrader}
    over_tcp(bridge, options, None, ready)


if __name__ == "__main__":
    sys.exit(main())
