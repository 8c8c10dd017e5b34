"""Optuna looks for PPO's hyperparameters: python optuna_search.py [ENGINE] [TRIALS] [TIMESTEPS].

ENGINE: a command, './Game.sh --port {port} --envs {num_envs}', which each trial starts; or the URL of a running one.
After a kill the same words go on; in a second terminal they work on other trials of the same search.
"""

import sys
import warnings
from contextlib import closing
from pathlib import Path

import optuna
import torch
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl

CART_POLE = f"'{sys.executable}' -m ue_rl serve --env CartPole-v1 --num-envs {{num_envs}} --port {{port}}"
NUM_ENVS = 8  # of each engine, {num_envs} in the command
TRIED_FIRST = {"learning_rate": 3e-4, "1 - gamma": 0.01, "n_steps": 256, "batch_size": 64, "n_epochs": 10}
COUNTED = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
SILENCE = 20  # seconds; a trial that was silent for so long was killed, and is begun again


class Pruning(BaseCallback):
    """Compares the running return with that of other trials, at every 20th of a run; ends a trial that falls behind."""

    def __init__(self, trial: optuna.Trial, timesteps: int) -> None:
        super().__init__()
        self.trial = trial
        every = max(1, timesteps // 20)
        self.rungs = list(range(every, timesteps, every))

    def _on_step(self) -> bool:
        if self.rungs and self.num_timesteps >= self.rungs[0]:
            rung = self.rungs.pop(0)
            returns = [episode["r"] for episode in self.model.ep_info_buffer]
            if returns:
                self.trial.report(sum(returns) / len(returns), rung)
            if self.trial.should_prune():
                raise optuna.TrialPruned
        return True


def objective(trial: optuna.Trial, engine: str, timesteps: int) -> float:
    """The mean return of a policy that has learnt with what the trial draws."""
    drawn = {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        "gamma": 1 - trial.suggest_float("1 - gamma", 1e-4, 0.1, log=True),
        "n_steps": trial.suggest_categorical("n_steps", [32, 64, 128, 256, 512]),
        "batch_size": trial.suggest_categorical("batch_size", [64, 128, 256, 512]),
        "n_epochs": trial.suggest_categorical("n_epochs", [3, 5, 10, 20]),
    }
    trial.set_user_attr("hyperparameters", drawn)
    env = ue_rl.connect(engine) if "://" in engine else ue_rl.launch(engine, num_envs=NUM_ENVS, seed=0)
    with closing(env):  # ends the engine of a trial's own; one that runs takes the next trial
        model = PPO("MlpPolicy", env, seed=0, device="cpu", **drawn)
        try:
            model.learn(timesteps, Pruning(trial, timesteps))
            return float(evaluate_policy(model, env, n_eval_episodes=20)[0])
        except ValueError as error:  # from a network whose numbers have become NaN
            raise optuna.TrialPruned(str(error)) from error


def main(engine: str = CART_POLE, trials: int = 20, timesteps: int = 20_000) -> None:
    """Searches until so many trials have ended, and writes the best of them into best.yaml."""
    torch.set_num_threads(1)  # small nets are faster so
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of the heartbeat
    storage = optuna.storages.RDBStorage(
        "sqlite:///search.db",
        heartbeat_interval=SILENCE // 4,
        grace_period=SILENCE,
        heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3),
    )
    study = optuna.create_study(
        storage=storage,
        study_name=f"PPO, {timesteps} steps of {engine}",
        load_if_exists=True,
        direction="maximize",
        sampler=optuna.samplers.TPESampler(constant_liar=True),  # without a seed, which would draw the same again
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=timesteps // 4),
    )
    study.enqueue_trial(TRIED_FIRST, skip_if_exists=True)
    enough = optuna.study.MaxTrialsCallback(trials, states=COUNTED)
    if len(study.get_trials(states=COUNTED)) < trials:
        study.optimize(lambda trial: objective(trial, engine, timesteps), callbacks=[enough])
    best = {"algo": "ppo", "hyperparameters": study.best_trial.user_attrs["hyperparameters"]}
    Path("best.yaml").write_text(yaml.safe_dump(best), "utf-8")
    values = [trial.value for trial in study.trials if trial.state is optuna.trial.TrialState.COMPLETE]
    print(f"{len(study.trials)} trials, mean return from {min(values):.1f} to {max(values):.1f}: {study.best_params}")
    print("train with the best: ue-rl train --config best.yaml --engine COMMAND (or a URL)")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
