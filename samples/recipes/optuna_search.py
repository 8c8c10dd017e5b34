"""Optuna looks for a learning rate; every trial trains over the same running engine.

python samples/recipes/optuna_search.py [TRIALS] [TIMESTEPS]
"""

import functools
import sys

import optuna
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_process


def objective(trial: optuna.Trial, url: str, timesteps: int) -> float:
    """The mean return of one trial's policy."""
    env = ue_rl.connect(url)
    rate = trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True)
    epochs = trial.suggest_int("n_epochs", 4, 20)
    model = PPO("MlpPolicy", env, rate, n_steps=64, batch_size=128, n_epochs=epochs, seed=0, device="cpu")
    try:
        model.learn(timesteps)
        return float(evaluate_policy(model, env, n_eval_episodes=10)[0])
    finally:
        env.close()  # the engine then takes the next trial


def main(trials: int = 8, timesteps: int = 10_000) -> None:
    """Searches; prints the best."""
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", 8)) as engine:
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        study.optimize(functools.partial(objective, url=engine.url, timesteps=timesteps), n_trials=trials)
    worst = min(trial.value for trial in study.trials)
    print(f"{len(study.trials)} trials, mean return from {worst:.1f} to {study.best_value:.1f}: {study.best_params}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
