"""Where a search looks for the hyperparameters of each algorithm: one table.

The ranges are those within which published settings of SB3's algorithms lie, for control tasks from CartPole to MuJoCo:
wide where tasks differ (learning rate, rollout, discount), narrow where they do not. The names are SB3's; a dot goes
into `policy_kwargs`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import optuna

from ue_rl.training.algorithms import OFF_POLICY
from ue_rl.training.hyperparameters import fitting
from ue_rl.training.options import TrainOptions


class Choice(NamedTuple):
    """One of these. most: those above this share of the run's env-steps are left out (rollouts count all envs)."""

    values: tuple[Any, ...]
    most: float = 0.0

    def suggest(self, trial: optuna.Trial, name: str, o: TrainOptions) -> Any:
        """The value for a trial."""
        envs = o.num_envs * o.num_engines if name == "n_steps" else 1
        fit = [value for value in self.values if not self.most or value * envs <= self.most * o.timesteps]
        return trial.suggest_categorical(name, fit or self.values[:1])


class Real(NamedTuple):
    """A number between two, evenly or (`log`) by its order of magnitude."""

    low: float
    high: float
    log: bool = False

    def suggest(self, trial: optuna.Trial, name: str, o: TrainOptions) -> float:
        """The value for a trial."""
        return float(f"{trial.suggest_float(name, self.low, self.high, log=self.log):.4g}")


class BelowOne(NamedTuple):
    """1 - x, x between two by its order of magnitude: 0.9, 0.99 and 0.999 are equally far apart."""

    low: float
    high: float

    def suggest(self, trial: optuna.Trial, name: str, o: TrainOptions) -> float:
        """The value for a trial."""
        return round(1.0 - trial.suggest_float(f"1 - {name}", self.low, self.high, log=True), 6)


class Layers(NamedTuple):
    """Sizes of hidden layers, as --net-arch has them."""

    values: tuple[str, ...]

    def suggest(self, trial: optuna.Trial, name: str, o: TrainOptions) -> list[int]:
        """The value for a trial."""
        return [int(size) for size in trial.suggest_categorical(name, self.values).split(",")]


Space = dict[str, "Choice | Real | BelowOne | Layers"]

_SMALL = Layers(("64", "64,64", "128,128", "256,256"))
_LARGE = Layers(("64,64", "256,256", "400,300", "512,512"))
_COMMON: Space = {"learning_rate": Real(1e-5, 1e-2, log=True), "gamma": BelowOne(1e-4, 0.1)}
_ROLLOUT: Space = {
    **_COMMON,
    "n_steps": Choice((8, 16, 32, 64, 128, 256, 512, 1024, 2048), most=0.1),
    "gae_lambda": BelowOne(1e-3, 0.2),
    "policy_kwargs.net_arch": _SMALL,
}
_GRADIENT: Space = {
    "ent_coef": Real(1e-8, 0.1, log=True),
    "vf_coef": Real(0.2, 1.0),
    "max_grad_norm": Real(0.3, 5.0, log=True),
}
_PPO: Space = {
    **_ROLLOUT,
    **_GRADIENT,
    "batch_size": Choice((32, 64, 128, 256, 512, 1024)),
    "n_epochs": Choice((3, 5, 10, 20)),
    "clip_range": Choice((0.1, 0.2, 0.3, 0.4)),
}
_REPLAY: Space = {
    **_COMMON,
    "batch_size": Choice((32, 64, 128, 256, 512)),
    "buffer_size": Choice((10_000, 100_000, 1_000_000)),
    "learning_starts": Choice((100, 1_000, 10_000), most=0.2),
    "train_freq": Choice((1, 4, 8, 16, 64)),
}
_ACTOR: Space = {**_REPLAY, "tau": Real(1e-3, 0.1, log=True), "policy_kwargs.net_arch": _LARGE}
_VALUES: Space = {
    **_REPLAY,
    "target_update_interval": Choice((1, 100, 1_000, 10_000), most=0.2),
    "exploration_fraction": Real(0.01, 0.5),
    "exploration_final_eps": Real(0.01, 0.2),
    "policy_kwargs.net_arch": _SMALL,
}
SPACES: dict[str, Space] = {
    "ppo": _PPO,
    "maskable_ppo": _PPO,
    "recurrentppo": {**_PPO, "policy_kwargs.lstm_hidden_size": Choice((32, 64, 128, 256))},
    "a2c": {
        **_ROLLOUT,
        **_GRADIENT,
        "n_steps": Choice((5, 8, 16, 32, 64, 128), most=0.1),
        "use_rms_prop": Choice((True, False)),
        "normalize_advantage": Choice((True, False)),
    },
    "trpo": {
        **_ROLLOUT,
        "batch_size": Choice((32, 64, 128, 256, 512)),
        "n_critic_updates": Choice((5, 10, 20, 30)),
        "cg_max_steps": Choice((5, 10, 15, 25)),
        "target_kl": Real(1e-3, 0.1, log=True),
    },
    "sac": _ACTOR,
    "td3": {**_ACTOR, "policy_delay": Choice((1, 2, 4))},
    "ddpg": _ACTOR,
    "tqc": {
        **_ACTOR,
        "top_quantiles_to_drop_per_net": Choice((0, 1, 2, 3, 5)),
        "policy_kwargs.n_quantiles": Choice((10, 25, 50)),
    },
    "dqn": _VALUES,
    "qrdqn": {**_VALUES, "policy_kwargs.n_quantiles": Choice((10, 25, 50, 100, 200))},
}


def suggest(trial: optuna.Trial, options: TrainOptions) -> dict[str, Any]:
    """The hyperparameters of a trial: those of `options`, which are not searched, and drawn ones.

    Args:
        options: of the search. Where engines are started, the batch of PPO and its kind divides the rollout.
    """
    o = options
    found = {**o.hyperparameters, "policy_kwargs": dict(o.hyperparameters.get("policy_kwargs") or {})}
    for name, space in SPACES[o.algo].items():
        section, _, key = name.rpartition(".")
        part = found[section] if section else found
        if key not in part:
            part[key] = space.suggest(trial, name, o)
    if o.algo in OFF_POLICY and isinstance(found.get("train_freq"), int):
        found.setdefault("gradient_steps", found["train_freq"])  # as many as steps of the envs, whatever their rhythm
    elif "batch_size" in SPACES[o.algo] and "batch_size" not in o.hyperparameters and not o.urls:
        found["batch_size"] = fitting(found["batch_size"], found["n_steps"] * o.num_envs * o.num_engines)
    return {name: value for name, value in found.items() if value != {}}
