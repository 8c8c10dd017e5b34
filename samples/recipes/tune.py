"""Ray Tune looks for a learning rate: trials side by side, each with engines of its own.

python samples/recipes/tune.py [TRIALS] [ITERATIONS] [RUNNERS]
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: trials on few cores would wait for each other

import ray
from ray import tune
from ray.rllib.algorithms.ppo import PPOConfig

import ue_rl.plugins.rllib

AT_ONCE = 2
RETURN = "env_runners/episode_return_mean"


def main(trials: int = 4, iterations: int = 15, runners: int = 1) -> None:
    """Searches; prints the best."""
    # Ray counts CPUs, it does not measure them: one for each trial's learner, and one for each env runner
    ray.init(num_cpus=AT_ONCE * (1 + runners), include_dashboard=False, log_to_driver=False)
    ue_rl.plugins.rllib.register()
    config = (
        PPOConfig()
        .environment("ue_rl", env_config={"env": "CartPole-v1"})  # or "engine": "./Game.sh --port {port} ..."
        .env_runners(
            env_runner_cls=ue_rl.plugins.rllib.UnrealEnvRunner, num_env_runners=runners, num_envs_per_env_runner=8
        )
        .training(lr=tune.loguniform(1e-4, 1e-2), train_batch_size_per_learner=1024, minibatch_size=128, num_epochs=6)
    )
    each = max(1, runners)
    print(f"{AT_ONCE} trials at once x {each} env runners with an engine: {AT_ONCE * each} engines", flush=True)
    results = tune.Tuner(
        "PPO",
        param_space=config,
        tune_config=tune.TuneConfig(metric=RETURN, mode="max", num_samples=trials, max_concurrent_trials=AT_ONCE),
        run_config=tune.RunConfig(
            stop={"training_iteration": iterations}, storage_path=str(Path("runs").absolute()), name="tune", verbose=0
        ),
    ).fit()
    if results.errors:
        raise SystemExit(f"{len(results.errors)} of {len(results)} trials failed: {results.errors[0]}")
    frame, best = results.get_dataframe(), results.get_best_result()
    print(
        f"{len(results)} trials, mean return from {frame[RETURN].min():.1f} to {frame[RETURN].max():.1f}: "
        f"lr={best.config['lr']:.2g}"
    )
    ray.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
