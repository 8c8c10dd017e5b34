"""The hyperparameters of a run: what is known to be good for a task, in the words of each backend, under the user's.

No Ray; torch only for classes that are named.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.system.trust.schedules import LinearSchedule
from ue_rl.training.algorithms import ALGORITHMS, CLASS_NAMES
from ue_rl.training.classes import policy_arguments
from ue_rl.training.options import DEFAULT_ENV, TrainOptions

# Hyperparameters that are known to solve a task; what the user gives wins.
# "lin_x" falls linearly from x to 0 over the run.
TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "CartPole-v1"): {
        "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
        "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
    },
}  # fmt: skip

_ON_POLICY = ("n_steps", "gamma", "gae_lambda", "ent_coef", "vf_coef", "max_grad_norm", "normalize_advantage")
_PPO = (*_ON_POLICY, "batch_size", "n_epochs", "clip_range", "clip_range_vf", "target_kl")
_TRUST = (
    "n_steps", "batch_size", "gamma", "gae_lambda", "cg_max_steps", "cg_damping", "line_search_shrinking_factor",
    "line_search_max_iter", "n_critic_updates", "target_kl", "normalize_advantage", "sub_sampling_factor",
)  # fmt: skip
_REPLAY = ("learning_starts", "batch_size", "tau", "gamma", "train_freq", "gradient_steps")
_EXPLORING = (
    *_REPLAY, "target_update_interval", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps",
    "max_grad_norm",
)  # fmt: skip
# What SB3 reads from the model while it learns, or makes anew in _setup_model(), which load() calls with it.
APPLIED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ppo", "maskable_ppo", "recurrentppo"), _PPO),
    "a2c": _ON_POLICY,
    "trpo": _TRUST,
    "sac": (*_REPLAY, "target_update_interval", "target_entropy"),
    "tqc": (*_REPLAY, "target_update_interval", "target_entropy", "top_quantiles_to_drop_per_net"),
    "td3": (*_REPLAY, "policy_delay", "target_policy_noise", "target_noise_clip"),
    "ddpg": _REPLAY,
    **dict.fromkeys(("dqn", "qrdqn"), _EXPLORING),
}
# RLlib builds an algorithm anew and gives it what was saved; these say what it is that was saved.
_RLLIB_MADE = ("model_config", "twin_q", "num_atoms", "noisy", "dueling", "replay_buffer_config")

# Hyperparameters that have another name in RLlib, or none.
_RENAMED = {
    "n_steps": "RLlib cuts batches: --set train_batch_size_per_learner=2048",
    "n_epochs": "RLlib calls it num_epochs",
    "gae_lambda": "RLlib calls it lambda_",
    "clip_range": "RLlib calls it clip_param",
    "ent_coef": "RLlib calls it entropy_coeff",
    "vf_coef": "RLlib calls it vf_loss_coeff",
    "max_grad_norm": "RLlib calls it grad_clip",
    "buffer_size": "RLlib says it in replay_buffer_config={capacity: 100000}",
    "learning_starts": "RLlib calls it num_steps_sampled_before_learning_starts",
}
_NETWORK = "say what the networks are with --set 'model_config={fcnet_hiddens: [64, 64]}'"
# Arguments of RLlib's old API stack: training() still takes them, and nothing of the new one reads them.
_OLD = {
    "train_batch_size": "say train_batch_size_per_learner",
    **dict.fromkeys(("model", "vf_share_layers", "hiddens", "policy_model_config", "q_model_config"), _NETWORK),
    **dict.fromkeys(
        (
            "optimizer", "optimization_config", "adam_epsilon", "opt_type", "decay", "momentum", "use_critic", "_lr_vf",
            "before_learn_on_batch", "categorical_distribution_temperature", "_use_beta_distribution",
            "_deterministic_loss", "minibatch_buffer_size", "num_multi_gpu_tower_stacks", "replay_buffer_num_slots",
            "learner_queue_timeout",
        ),
        "leave it out",
    ),
}  # fmt: skip

# What a run of RLlib has unless it says otherwise; one of SB3 has SB3's defaults. RLlib's own PPO clips the value loss
# at 10, which returns of hundreds never get over, and adds a KL penalty to the clipped objective.
_RLLIB_DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {
        "lr": 3e-4, "num_epochs": 10, "train_batch_size_per_learner": 2048, "minibatch_size": 128, "gamma": 0.99,
        "lambda_": 0.95, "clip_param": 0.2, "vf_clip_param": 1e9, "vf_loss_coeff": 0.5, "use_kl_loss": False,
        "grad_clip": 0.5,
    },
}  # fmt: skip
_RLLIB_TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "CartPole-v1"): {
        "lr": "lin_0.001",
        "train_batch_size_per_learner": 1024,
        "model_config": {"fcnet_hiddens": [64, 64], "vf_share_layers": False},
    },
}


def known_algorithm(name: str) -> Any:
    """SB3's class of that name; imports torch.

    Raises:
        ConfigurationError: there is none, or sb3-contrib is missing.
    """
    if name not in ALGORITHMS:
        names = ", ".join(ALGORITHMS)
        cure = nearest(name, ALGORITHMS)
        raise ConfigurationError("no such algorithm", field="algo", expected=names, got=name, cure=cure)
    try:
        module = importlib.import_module(ALGORITHMS[name])
    except ImportError as error:
        raise ConfigurationError(f"{name} needs sb3-contrib", field="algo", cure="pip install sb3-contrib") from error
    return getattr(module, CLASS_NAMES.get(name, name.upper()))


def tuned_for(options: TrainOptions, resolved: bool = True) -> dict[str, Any]:
    """The hyperparameters to use: known good ones for the task, under what the user gave. What is given out is the
    caller's: SB3 writes into it (A2C puts its optimizer into policy_kwargs).

    Args:
        resolved: schedules as functions and classes of policy_kwargs as such, as SB3 takes them; False: as they are
            written ("lin_0.001", "nn.Tanh").
    """
    if options.backend == "rllib":
        hosted = ""
        if options.embedded:
            hosted = options.env or DEFAULT_ENV
        arguments = _rllib_arguments(options.algo, hosted, deepcopy(options.hyperparameters))
        for value in arguments.values():
            schedule(value)
        return arguments
    base = {}
    if options.embedded:
        base = TUNED.get((options.algo, options.env or DEFAULT_ENV), {})
    given = deepcopy({**base, **options.hyperparameters})
    if "batch_size" in base and "batch_size" not in options.hyperparameters and isinstance(given["n_steps"], int):
        given["batch_size"] = fitting(base["batch_size"], given["n_steps"] * options.num_envs * options.num_engines)
    if not resolved:
        return given
    if isinstance(given.get("train_freq"), list):  # [4, "episode"] in YAML
        given["train_freq"] = tuple(given["train_freq"])
    if "policy_kwargs" in given:
        given["policy_kwargs"] = policy_arguments(given["policy_kwargs"], "hyperparameters.policy_kwargs")
    return {key: schedule(value) for key, value in given.items()}


def applied(options: TrainOptions) -> tuple[str, ...]:
    """The names of the hyperparameters that a model which has learnt already can be given."""
    if options.backend == "rllib":
        return tuple(name for name in tuned_for(options) if name not in _RLLIB_MADE)
    return ("learning_rate", *APPLIED[options.algo])


def loadable(options: TrainOptions) -> dict[str, Any]:
    """The hyperparameters of `options` that SB3's load() applies to a model that has learnt already."""
    if options.backend != "sb3":
        return {}
    names = applied(options)
    return {name: value for name, value in tuned_for(options).items() if name in names}


def schedule(value: Any) -> Any:
    """`"lin_0.001"` as a function of the remaining part of the run; anything else as it is.

    Raises:
        ConfigurationError: no number behind lin_.
    """
    if isinstance(value, str) and value.startswith("lin_"):
        try:
            return LinearSchedule(float(value[4:]))
        except ValueError:
            raise ConfigurationError(
                "not a schedule", field="hyperparameters", expected="lin_0.001, which falls from 0.001 to 0", got=value
            ) from None
    return value


def fitting(batch_size: int, rollout: int) -> int:
    """The greatest batch size up to `batch_size` that cuts a rollout of so many steps into equal parts."""
    return next((size for size in range(min(batch_size, rollout), 0, -1) if rollout % size == 0), batch_size)


def _rllib_arguments(algo: str, env: str, given: dict[str, Any]) -> dict[str, Any]:
    """Hyperparameters in RLlib's words: arguments of `AlgorithmConfig.training()`, and `model_config`.

    Args:
        env: the Gymnasium id that the run hosts; "" for another engine.
        given: what the user says: RLlib's words, or those of both backends: `learning_rate`, `batch_size`,
            `policy_kwargs` with `net_arch`.
    """
    for name in given:
        if name in _RENAMED:
            raise ConfigurationError("not an argument of RLlib", field=f"hyperparameters.{name}", cure=_RENAMED[name])
        if name in _OLD:
            raise ConfigurationError(
                "only RLlib's old API stack reads it", field=f"hyperparameters.{name}", cure=_OLD[name]
            )
    given = dict(given)
    kwargs = given.pop("policy_kwargs", None)
    if kwargs is not None:
        if not isinstance(kwargs, Mapping) or list(kwargs) != ["net_arch"]:
            raise ConfigurationError(
                "RLlib's networks have other arguments",
                field="hyperparameters.policy_kwargs",
                expected="net_arch",
                got=kwargs,
                cure="say them with --set 'model_config={fcnet_activation: relu}'",
            )
        model = given.get("model_config") or {}
        given["model_config"] = {**model, "fcnet_hiddens": kwargs["net_arch"]}
    # of one gradient step
    batch = "train_batch_size_per_learner"
    if algo == "ppo":
        batch = "minibatch_size"
    for name, theirs in (("learning_rate", "lr"), ("batch_size", batch)):
        if name in given:
            if theirs in given:
                raise ConfigurationError(
                    f"the same as {theirs}, which is given, too", field=f"hyperparameters.{name}", cure="leave one out"
                )
            given[theirs] = given.pop(name)
    base = {**_RLLIB_DEFAULTS.get(algo, {}), **_RLLIB_TUNED.get((algo, env), {})}
    if "model_config" in base and isinstance(given.get("model_config"), Mapping):
        given["model_config"] = {**base["model_config"], **given["model_config"]}
    return {**deepcopy(base), **given}
