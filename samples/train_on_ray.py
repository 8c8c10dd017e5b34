"""PPO on the engines of a Ray cluster: env runners where the resource "engine" is, the learner where this runs.

    python samples/train_on_ray.py --engine '/opt/game/Game.sh --port {port} --envs {num_envs}' --num-env-runners 16

samples/cluster.yaml and samples/kuberay.yaml start it on a cluster; docs/cluster.md explains them. `--folder` gets a
checkpoint every few iterations, and a run that finds some there goes on from the newest one. Needs `ue_rl[rllib]`.
"""

import argparse
from pathlib import Path

import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig

from ue_rl.plugins.rllib import UnrealEnvRunner, register

add = (parser := argparse.ArgumentParser(description="PPO on the engines of a Ray cluster")).add_argument
add("--engine", required=True, help="a command or preset, see docs/engines.md; its path is that of the nodes")
add("--address", default="auto", help="of the cluster; auto: the one that this machine is in")
add("--num-env-runners", type=int, default=2, help="over all nodes; each takes one of the resource 'engine'")
add("--num-envs", type=int, default=16, help="of each env runner")
add("--num-gpus-per-learner", type=float, default=0, help="1 where the learner has a GPU")
add("--batch-size", type=int, default=4000, help="env-steps of an iteration")
add("--iterations", type=int, default=1000, help="in all, those before a resume included")
add("--save-every", type=int, default=10, help="iterations between two checkpoints")
add("--folder", type=Path, default=Path.home() / "ue_rl_run", help="for checkpoints")
add("--output-dir", help="folder for what the engines print, on their own nodes")


def build(o):
    """The algorithm, new or from the newest checkpoint."""
    register()  # before a checkpoint is loaded, too
    if saved := sorted(o.folder.glob("iteration-*")):
        return Algorithm.from_checkpoint(saved[-1])
    # A game that renders also says num_gpus_per_env_runner=0.1: ten of them share a GPU then.
    config = PPOConfig().environment("ue_rl", env_config={"engine": o.engine, "output_dir": o.output_dir})
    config.env_runners(env_runner_cls=UnrealEnvRunner, custom_resources_per_env_runner={"engine": 1})
    config.env_runners(num_env_runners=o.num_env_runners, num_envs_per_env_runner=o.num_envs)
    config.learners(num_gpus_per_learner=o.num_gpus_per_learner)
    config.training(train_batch_size_per_learner=o.batch_size, minibatch_size=o.batch_size // 8)
    # A lost node's env runners wait for another one. RLlib asks them before each iteration, for so many seconds.
    return config.fault_tolerance(env_runner_health_probe_timeout_s=2).build_algo()


if __name__ == "__main__":
    ray.init(address=(options := parser.parse_args()).address)
    algorithm = build(options)
    where = lambda runner: (runner.worker_index, ray.get_runtime_context().get_node_id())  # noqa: E731
    for index, node in algorithm.env_runner_group.foreach_env_runner(where, local_env_runner=False):
        print(f"env runner {index} is on node {node}", flush=True)
    while (done := algorithm.training_iteration) < options.iterations:
        result = algorithm.train()
        runners = result["env_runners"]
        steps, mean = runners["num_env_steps_sampled_lifetime"], runners.get("episode_return_mean", float("nan"))
        healthy = result["fault_tolerance"]["num_healthy_workers"]
        print(f"iteration {done + 1}: {steps:.0f} env-steps, return {mean:.1f}, {healthy} env runners", flush=True)
        if (done + 1) % options.save_every == 0:
            algorithm.save_to_path(options.folder.absolute() / f"iteration-{done + 1:06d}")
    algorithm.stop()  # the engines end in order
