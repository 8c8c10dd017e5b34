"""Kills what an RLlib run over engines consists of, one kind after the other, in a Ray cluster of three nodes here.

    python benchmarks/rllib_faults.py [--rounds 3] [--kinds engine,frozen,runner,actor,node,driver,quota,start,tune]

The learner is on a node without engines; each of the two others has the resource "engine", and so one env runner. After
each kind the run must go on, or end with ue_rl's sentence, and no process, port lock or segment of shared memory may be
left. Prints a table of docs/cluster.md; the exit code is 1 where anything failed. Needs ray[rllib]; about two minutes
a round.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import psutil
import ray
from ray.cluster_utils import Cluster
from ray.rllib.algorithms.ppo import PPOConfig

import ue_rl.plugins.rllib
from ue_rl.devtools.testing import Leftovers, chaos_command
from ue_rl.devtools.testing.leftovers import MARK
from ue_rl.plugins.rllib.engines import open_engines
from ue_rl.system.errors import EngineNotStarted, RestartsSpent, UeRlError

_others = re.compile(r"keeper\.py|sh -c")
BATCH = 200  # env-steps of an iteration; with 2 runners x 2 envs and steps of 5 ms it takes at least 0.25 s


def ppo(num_env_runners: int = 2, env_config: dict[str, Any] | None = None, **engine: Any) -> Any:
    """The config: env runners where the engines are, 2 envs each.

    Args:
        env_config: beside the engine. engine: options of ue_rl.devtools.testing.chaos_command.
    """
    ue_rl.plugins.rllib.register()
    command = chaos_command(shm=True, **{"step_seconds": 0.005, **engine})
    config = PPOConfig().environment("ue_rl", env_config={"engine": command, **(env_config or {})})
    config.env_runners(env_runner_cls=ue_rl.plugins.rllib.UnrealEnvRunner, num_env_runners=num_env_runners)
    config.env_runners(num_envs_per_env_runner=2, custom_resources_per_env_runner={"engine": 1})
    config.fault_tolerance(env_runner_health_probe_timeout_s=2)  # a runner that waits for a node costs as much per step
    return config.training(train_batch_size_per_learner=BATCH, num_epochs=1, minibatch_size=100)


class Nodes:
    """Three nodes on this machine; use as a context manager."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        self.workers = [self.add(), self.add()]
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    @property
    def address(self) -> str:
        """For ray.init of another driver."""
        return str(self.cluster.address)

    def add(self) -> Any:
        """A node that has the game."""
        return self.cluster.add_node(num_cpus=1, resources={"engine": 1}, object_store_memory=80_000_000)

    def kill(self, number: int) -> None:
        """Ends all of a node's own processes with SIGKILL."""
        self.cluster.remove_node(self.workers.pop(number), allow_graceful=False)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()
        self.cluster.shutdown()


def runners(algorithm: Any) -> list[tuple[psutil.Process, str]]:
    """(process, node id) of each env runner that is well."""
    found = algorithm.env_runner_group.foreach_env_runner(
        lambda runner: (os.getpid(), ray.get_runtime_context().get_node_id()), local_env_runner=False
    )
    return [(psutil.Process(pid), node) for pid, node in found]


def engines(runner: psutil.Process) -> list[psutil.Process]:
    """The engines of an env runner, without their keepers."""
    found = [(process, " ".join(process.cmdline())) for process in runner.children(recursive=True)]
    return [process for process, words in found if "engines.chaos" in words and not _others.search(words)]


def port_of(engine: psutil.Process) -> int:
    """What it was told to listen on."""
    words = engine.cmdline()
    return int(words[words.index("--port") + 1])


@contextmanager
def meanwhile(do: Callable[[], object], after: float = 0.1) -> Iterator[None]:
    """`do()` in a thread, in the middle of what the block does."""
    timer = threading.Timer(after, do)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def iteration(algorithm: Any) -> tuple[int, float]:
    """(env-steps sampled in all, seconds) after one `train()`."""
    began = time.monotonic()
    result = algorithm.train()
    return int(result["env_runners"]["num_env_steps_sampled_lifetime"]), time.monotonic() - began


def until_well(algorithm: Any, count: int = 2, within: float = 60.0) -> float:
    """Trains until so many env runners are well again; seconds.

    Raises:
        AssertionError: they are not within that time.
    """
    began = time.monotonic()
    while True:
        healthy = algorithm.train()["fault_tolerance"]["num_healthy_workers"]
        if healthy >= count:
            return time.monotonic() - began
        assert time.monotonic() - began < within, f"{healthy} env runners are well, not {count}"


def gone(processes: list[psutil.Process], within: float = 15.0) -> float:
    """Seconds until all of them have ended.

    Raises:
        AssertionError: some have not.
    """
    began = time.monotonic()
    alive = [p for p in psutil.wait_procs(processes, timeout=within)[1] if p.status() != psutil.STATUS_ZOMBIE]
    assert not alive, f"still there: {alive}"
    return time.monotonic() - began


# Each kind: what it does to a run, checked; (what happened, seconds)


def kill_engine(nodes: Nodes, algorithm: Any, frozen: bool = False) -> tuple[str, float]:
    """kill -9 of an engine in mid-iteration; frozen: SIGSTOP, which a deadline of 2 s finds out."""
    before, _ = iteration(algorithm)
    pids = {runner.pid for runner, _ in runners(algorithm)}
    victim = engines(runners(algorithm)[0][0])[0]
    with meanwhile(victim.suspend if frozen else victim.kill):
        after, seconds = iteration(algorithm)
    assert after >= before + BATCH, "steps are missing"
    gone([victim])
    assert {runner.pid for runner, _ in runners(algorithm)} == pids, "an env runner was restarted"
    assert all(len(engines(runner)) == 1 for runner, _ in runners(algorithm))
    return "started again within the same iteration, its episodes end as truncated", seconds


def kill_runner(nodes: Nodes, algorithm: Any) -> tuple[str, float]:
    """kill -9 of an env runner's process in mid-iteration: its engines end with it, and Ray starts another."""
    victim, _ = runners(algorithm)[0]
    (engine,) = engines(victim)
    ended: list[float] = []

    def kill() -> None:
        victim.kill()
        ended.append(gone([engine]))

    with meanwhile(kill):
        began = time.monotonic()
        iteration(algorithm)
    until_well(algorithm)
    seconds = time.monotonic() - began
    assert len({port_of(engine) for runner, _ in runners(algorithm) for engine in engines(runner)}) == 2
    return f"its engine ends ({ended[0]:.1f} s), Ray starts the runner again, the other goes on meanwhile", seconds


_WAYS = ("its last handle", "ray.kill", "__ray_terminate__", "SIGTERM", "SIGKILL")


def end_actors(nodes: Nodes, algorithm: object = None, ways: Sequence[str] = _WAYS) -> tuple[str, float]:
    """An actor of one's own that has engines, ended in each way: Ray kills its children, and then it."""

    @ray.remote(resources={"engine": 0.1}, num_cpus=0)
    class Holder:
        def open(self, command: list[str]) -> int:
            self.engines = open_engines({"engine": command}, 2)
            return os.getpid()

    started_by_a_shell = ["sh", "-c", f"{chaos_command(shm=True)}; exit 0"]  # so the engine is the shell's child
    slowest = 0.0
    for how in ways:
        actor = Holder.remote()
        process = psutil.Process(ray.get(actor.open.remote(started_by_a_shell)))
        victims = [process, *process.children(recursive=True)]
        assert len(engines(process)) == 1
        if how == "its last handle":
            del actor
        elif how == "ray.kill":
            ray.kill(actor)
        elif how == "__ray_terminate__":
            actor.__ray_terminate__.remote()
        else:
            process.send_signal(getattr(signal, how))
        slowest = max(slowest, gone(victims))
    return "the same for an actor of your own: last handle, `ray.kill`, SIGTERM, SIGKILL", slowest


def kill_node(nodes: Nodes, algorithm: Any) -> tuple[str, float]:
    """A node dies in mid-iteration; the run goes on with the other, and takes a new node into use."""
    doomed = nodes.workers[0].node_id
    victims = [runner for runner, node in runners(algorithm) if node == doomed]
    victims += engines(victims[0])
    with meanwhile(lambda: nodes.kill(0)):
        began = time.monotonic()
        before, _ = iteration(algorithm)
    gone(victims)
    after, _ = iteration(algorithm)
    assert after > before, "the other runner does not go on"
    lasted = time.monotonic() - began
    nodes.workers.append(nodes.add())
    seconds = until_well(algorithm)
    return f"the run goes on with the other runner ({lasted:.1f} s), and on a new node when one joins", seconds


_DRIVER = """
import sys
sys.path.insert(0, {here!r})
import rllib_faults, ray
ray.init(address={address!r}, log_to_driver=False, logging_level="ERROR")
algorithm = rllib_faults.ppo().build_algo()
print("pids", *(p.pid for r, _ in rllib_faults.runners(algorithm) for p in (r, *rllib_faults.engines(r))), flush=True)
while True:
    algorithm.train()
"""


def kill_driver(nodes: Nodes, algorithm: object = None) -> tuple[str, float]:
    """kill -9 of the process with the learner: Ray ends its env runners, and these their engines."""
    code = _DRIVER.format(here=os.path.dirname(os.path.abspath(__file__)), address=nodes.address)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        words: list[str] = []
        while words[:1] != ["pids"]:
            line = driver.stdout.readline()
            assert line, "the driver has ended"
            words = line.split()
        processes = [psutil.Process(int(pid)) for pid in words[1:]]
        assert len(processes) == 4
        time.sleep(0.2)
        driver.send_signal(signal.SIGKILL)
        seconds = gone(processes)
    return "its env runners and their engines end; Ray's nodes stay", seconds


def spend_quota(nodes: Nodes, algorithm: object = None) -> tuple[str, float]:
    """An engine that dies again and again: train() raises RestartsSpent with its last lines."""
    run = ppo(env_config={"restarts": 3}, fault="exit", after=80).build_algo()
    try:
        began = time.monotonic()
        error = _raised(RestartsSpent, lambda: [run.train() for _ in range(50)])
        seconds = time.monotonic() - began
        assert "env runner" in str(error)
        assert "lost 4 times within 60 s" in str(error)
        assert "GameError: the level could not be loaded" in str(error)
    finally:
        run.stop()
    return "`train()` raises RestartsSpent: runner, node, command, exit code, quota, last lines", seconds


def fail_to_start(nodes: Nodes, algorithm: object = None) -> tuple[str, float]:
    """An engine that ends before it listens: build_algo() raises EngineNotStarted with its last lines."""
    config = ppo()
    config.env_config["engine"] = [sys.executable, "-c", "print('no licence'); raise SystemExit(3)", "{port}"]
    began = time.monotonic()
    error = _raised(EngineNotStarted, config.build_algo)
    assert "no licence" in str(error), error
    seconds = time.monotonic() - began
    return "`build_algo()` raises EngineNotStarted: runner, node, command, exit code, last lines", seconds


def two_trials(nodes: Nodes, algorithm: object = None) -> tuple[str, float]:
    """Two trials of Tune at once, one runner each: engines of their own, on ports of their own."""
    from ray import tune

    config = ppo(num_env_runners=1)
    config.env_runners(num_cpus_per_env_runner=0.5).resources(num_cpus_for_main_process=0.5)
    config.lr = tune.grid_search([1e-3, 1e-4])
    seen: dict[int, int] = {}  # the engines' processes and ports
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            for process in psutil.process_iter():
                try:
                    ours = process.environ().get(MARK) == os.environ[MARK]
                    if ours and "keeper" not in str(process.cmdline()) and "engines.chaos" in str(process.cmdline()):
                        seen[process.pid] = port_of(process)
                except (psutil.Error, ValueError):
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            saved = {"storage_path": folder, "checkpoint_config": tune.CheckpointConfig(checkpoint_at_end=False)}
            how = tune.RunConfig(stop={"training_iteration": 3}, verbose=0, **saved)
            both = tune.TuneConfig(max_concurrent_trials=2)
            results = tune.Tuner(config.algo_class, param_space=config, tune_config=both, run_config=how).fit()
    finally:
        over.set()
        thread.join()
    assert not results.errors, results.errors
    assert len(set(seen.values())) == len(seen) >= 2, seen
    return f"both end well, {len(seen)} engines on as many ports", time.monotonic() - began


def _raised(kind: type[UeRlError], do: Callable[[], object]) -> UeRlError:
    try:
        do()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def check_memory(leftovers: Leftovers, within: float = 10.0) -> None:
    """While a run goes on: no segment and no port lock of what has ended may be left.

    Raises:
        AssertionError: some are.
    """
    deadline = time.monotonic() + within
    while found := [line for line in leftovers.found() if line.startswith(("segment", "port lock"))]:
        live = {f"ue_rl_{process.pid}_" for process in leftovers.processes()}
        found = [line for line in found if not any(name in line for name in live)]
        if not found:
            return
        assert time.monotonic() < deadline, f"left behind: {found}"
        time.sleep(0.1)


KINDS: dict[str, Callable[[Nodes, Any], tuple[str, float]]] = {
    "engine": kill_engine,
    "frozen": partial(kill_engine, frozen=True),
    "runner": kill_runner,
    "node": kill_node,
    "actor": end_actors,
    "driver": kill_driver,
    "quota": spend_quota,
    "start": fail_to_start,
    "tune": two_trials,
}
_WITH_A_RUN = ("engine", "frozen", "runner", "node")


def main() -> int:
    """See the module's docstring."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--kinds", default=",".join(KINDS))
    said = options.parse_args()
    kinds, failed = said.kinds.split(","), 0
    seen: dict[str, tuple[str, list[float]]] = {}
    with Leftovers(within=20.0) as leftovers, Nodes() as nodes:
        for _ in range(said.rounds):
            algorithm = None
            for kind in sorted(kinds, key=lambda kind: kind in _WITH_A_RUN):
                if kind in _WITH_A_RUN and algorithm is None:
                    algorithm = ppo(env_config={"timeout": 2.0}).build_algo()
                    iteration(algorithm)
                try:
                    text, seconds = KINDS[kind](nodes, algorithm)
                    check_memory(leftovers)
                except (AssertionError, RuntimeError, UeRlError, ray.exceptions.RayError) as error:
                    failed += 1
                    print(f"{kind}: FAILED: {type(error).__name__}: {error}", flush=True)
                else:
                    print(f"{kind}: {seconds:.1f} s: {text}", flush=True)
                    seen.setdefault(kind, (text, []))[1].append(seconds)
            if algorithm is not None:
                algorithm.stop()
    for kind, (text, times) in seen.items():
        print(f"| {kind} | {text} | {min(times):.1f} to {max(times):.1f} s |")
    print("nothing is left; " + (f"{failed} failed" if failed else "all went as documented"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
