"""How sampling scales with env runners, and what limits it beyond one machine; prints markdown tables. Needs Ray.

    python benchmarks/bench_rllib_scaling.py [--runners 1 2 3 4 8] [--envs 16] [--steps 200] [--rounds 5]

Engines take 5 ms for a step of all their envs and sleep meanwhile, as a game with cores of its own would. Env runners
are Ray actors on a local cluster with logical CPUs; a round is what PPO does for a sample: every runner plays `steps`
steps of its envs, the episodes come to the driver through the object store. Then what else takes time in an iteration
is measured (an update of PPO, the bytes of a sample, pickling them, sending the weights), and how many
runners each could serve is computed from it.
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from bench_tcp import table
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME, NUM_MODULE_STEPS_TRAINED_LIFETIME
from rllib_engines import STEP, importable

import ue_rl.plugins.rllib
from ue_rl.plugins.rllib import UnrealEnvRunner

GIGABIT = 1e9 / 8  # bytes a second


def algorithm(runners: int, num_envs: int, steps: int) -> Any:
    """PPO, with RLlib's defaults but for its batch: the samples of all runners."""
    config: Any = PPOConfig().environment("ue_rl", env_config={"bridge": "rllib_engines:Slow"})
    config.env_runners(
        env_runner_cls=UnrealEnvRunner,
        num_env_runners=runners,
        num_envs_per_env_runner=num_envs,
        rollout_fragment_length=steps,
    )
    config.training(train_batch_size_per_learner=runners * num_envs * steps)
    return config.build_algo()


def sampled(group: Any, runners: int, steps: int) -> tuple[list[Any], float]:
    """(episodes, env-steps a second) of so many runners."""
    began = time.perf_counter()
    found = group.foreach_env_runner(
        lambda runner: (runner.sample(num_timesteps=steps), runner.get_metrics()),
        remote_worker_ids=list(range(1, runners + 1)),
        local_env_runner=False,
    )
    took = time.perf_counter() - began
    episodes = [episode for given, _ in found for episode in given]
    return episodes, sum(map(len, episodes)) / took


def seconds(call: Callable[[], object], rounds: int = 5) -> float:
    """The median time of a call."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def main() -> None:
    """See the module's docstring."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--runners", type=int, nargs="+", default=[1, 2, 3, 4, 8])
    parser.add_argument("--envs", type=int, default=16, help="of each runner")
    parser.add_argument("--steps", type=int, default=200, help="of each env in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    importable()
    most, wanted = max(options.runners), options.envs * options.steps
    ray.init(
        num_cpus=most + 2,
        include_dashboard=False,
        object_store_memory=200_000_000,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    ue_rl.plugins.rllib.register()
    algo = algorithm(most, options.envs, options.steps)
    try:
        group = algo.env_runner_group
        speeds: dict[int, list[float]] = {n: [] for n in options.runners}
        for _ in range(options.rounds + 1):
            for n in options.runners:
                speeds[n].append(sampled(group, n, wanted)[1])
        medians = {n: statistics.median(found[1:]) for n, found in speeds.items()}
        one = medians[options.runners[0]] / options.runners[0]
        rows: list[tuple[object, ...]] = [
            (n, f"{speed:,.0f}", f"{speed / n:,.0f}", f"**{speed / n / one:.2f}**") for n, speed in medians.items()
        ]
        perfect = f"{options.envs / STEP:,.0f}"
        title = f"env runners x {options.envs} envs; an engine alone could take {perfect} env-steps a second"
        table(title, "runners|env-steps/s|of each|of linear", rows)
        limits(algo, group, one, wanted)
    finally:
        algo.stop()
        ray.shutdown()


def limits(algo: Any, group: Any, one: float, wanted: int) -> None:
    """What serves how many runners.

    Args:
        one: env-steps a second of a runner. wanted: env-steps of a runner in an iteration.
    """
    episodes, _ = sampled(group, 1, wanted)
    steps = sum(map(len, episodes))
    packed = pickle.dumps(episodes, 5)
    each = len(packed) / steps
    to_bytes, from_bytes = seconds(lambda: pickle.dumps(episodes, 5)), seconds(lambda: pickle.loads(packed))
    learner = algo.learner_group
    settings = {"minibatch_size": algo.config.minibatch_size, "num_epochs": algo.config.num_epochs}
    settings["timesteps"] = {NUM_ENV_STEPS_SAMPLED_LIFETIME: steps, NUM_MODULE_STEPS_TRAINED_LIFETIME: steps}
    update = seconds(lambda: learner.update(episodes=pickle.loads(packed), **settings), rounds=3)
    weights = pickle.dumps(learner.get_state(components="learner/rl_module"), 5)
    runners = group.num_remote_env_runners()
    send = {"from_worker_or_learner_group": learner, "inference_only": True, "timeout_seconds": 30.0}
    sync = seconds(lambda: group.sync_weights(**send))
    rows: list[tuple[object, ...]] = []
    for what, figure, rate in (
        ("one learner on one core", f"{update / steps * 1e6:,.0f} us a sample", steps / update),
        ("the driver reads episodes", f"{from_bytes / steps * 1e6:.2f} us a sample", steps / from_bytes),
        ("a runner writes them", f"{to_bytes / steps * 1e6:.2f} us a sample", None),
        ("network, 1 Gbit/s", f"{each:.0f} bytes a sample", GIGABIT / each),
        ("network, 10 Gbit/s", f"{each:.0f} bytes a sample", 10 * GIGABIT / each),
    ):
        if rate is None:
            rows.append((what, figure, "each its own", "-"))
        else:
            rows.append((what, figure, f"{rate:,.0f}", f"{rate / one:,.0f}"))
    shown = f"{len(weights) / 1024:,.0f} KB, {sync * 1e3:.0f} ms to {runners} runners"
    rows.append(("weights, once an iteration", shown, "-", "-"))
    config = f"{settings['num_epochs']} epochs, minibatches of {settings['minibatch_size']}"
    table(f"what limits it (PPO, 256-256, {config})", "what|measured|env-steps/s|enough for so many runners", rows)


if __name__ == "__main__":
    main()
