"""Which library learns, `backend`, and which options it has: those of the other one are refused by name. No Ray."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from ue_rl.errors import ConfigurationError, nearest

BACKENDS = ("sb3", "rllib")
RLLIB_RUN = "ue_rl.rllib.run:begin"  # by name: what needs Ray builds on this package, not the other way round
RLLIB_ALGORITHMS = ("ppo", "appo", "impala", "sac", "dqn")

_LEAVE = "leave it out, or train with --backend sb3"
# Options of Stable-Baselines3 alone, with what to do instead in RLlib.
_SB3: dict[str, str] = {
    "policy": "leave it out; --net-arch and --set model_config={..} say what the networks are",
    "normalize": _LEAVE,
    "device": "leave it out: --num-gpus-per-learner puts the learner on a GPU, env runners compute on CPUs",
    "max_episode_steps": "let the engine cut its episodes (TRUNC), or train with --backend sb3",
    "init_from": _LEAVE,
    "verbose": "leave it out: run.log and the tables in the run's folder have everything",
    "channel": "leave it out: the wiring is found out",
    "nul_terminated": _LEAVE,
    **dict.fromkeys(("curriculum", "her", "group", "others", "self_play"), _LEAVE),
}
_BATCH = {"ppo": "minibatch_size"}  # what batch_size is: of one gradient step
_RLLIB = ("num_env_runners", "ray_address", "num_learners", "num_gpus_per_learner")
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

# What a run has unless it says otherwise. RLlib's own PPO clips the value loss at 10, which returns of hundreds never
# get over, and adds a KL penalty to the clipped objective.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "ppo": {
        "lr": 3e-4, "num_epochs": 10, "train_batch_size_per_learner": 2048, "minibatch_size": 128, "gamma": 0.99,
        "lambda_": 0.95, "clip_param": 0.2, "vf_clip_param": 1e9, "vf_loss_coeff": 0.5, "use_kl_loss": False,
        "grad_clip": 0.5,
    },
}  # fmt: skip
_TUNED: dict[tuple[str, str], dict[str, Any]] = {
    ("ppo", "CartPole-v1"): {
        "lr": "lin_0.001", "train_batch_size_per_learner": 1024,
        "model_config": {"fcnet_hiddens": [64, 64], "vf_share_layers": False},
    },
}  # fmt: skip


def rllib_arguments(algo: str, env: str, given: dict[str, Any]) -> dict[str, Any]:
    """Hyperparameters in RLlib's words: arguments of `AlgorithmConfig.training()`, and `model_config`.

    Args:
        env: the Gymnasium id that the run hosts; "" for another engine.
        given: what the user says: RLlib's words, or those of both backends: `learning_rate`, `batch_size`,
            `policy_kwargs` with `net_arch`.

    Raises:
        ConfigurationError: the same thing in both words, or policy_kwargs of Stable-Baselines3.
    """
    given = dict(given)
    kwargs = given.pop("policy_kwargs", None)
    if kwargs is not None:
        if not isinstance(kwargs, Mapping) or list(kwargs) != ["net_arch"]:
            raise ConfigurationError(
                "RLlib's networks have other arguments", field="hyperparameters.policy_kwargs", expected="net_arch",
                got=kwargs, cure="say them with --set 'model_config={fcnet_activation: relu}'",
            )  # fmt: skip
        model = given.get("model_config") or {}
        given["model_config"] = {**model, "fcnet_hiddens": kwargs["net_arch"]}
    for name, theirs in (("learning_rate", "lr"), ("batch_size", _BATCH.get(algo, "train_batch_size_per_learner"))):
        if name in given:
            if theirs in given:
                raise ConfigurationError(
                    f"the same as {theirs}, which is given, too", field=f"hyperparameters.{name}", cure="leave one out"
                )
            given[theirs] = given.pop(name)
    base = {**_DEFAULTS.get(algo, {}), **_TUNED.get((algo, env), {})}
    if "model_config" in base and isinstance(given.get("model_config"), Mapping):
        given["model_config"] = {**base["model_config"], **given["model_config"]}
    return {**deepcopy(base), **given}


def check_backend(options: Any, sb3: Iterable[str]) -> None:
    """Checks the backend of TrainOptions, and that it has the algorithm and the options.

    Args:
        sb3: the algorithms of the backend sb3.

    Raises:
        ConfigurationError: names what it does not have, and what to do instead.
    """
    o = options
    if o.backend not in BACKENDS:
        raise ConfigurationError(
            "no such backend", field="backend", expected=" or ".join(BACKENDS), got=o.backend,
            cure=nearest(str(o.backend), BACKENDS),
        )  # fmt: skip
    known = list(sb3) if o.backend == "sb3" else list(RLLIB_ALGORITHMS)
    if o.algo not in known:
        other = list(RLLIB_ALGORITHMS) if o.backend == "sb3" else list(sb3)
        cure = nearest(o.algo, known)
        if o.algo in other:
            cure = f"train with --backend {'rllib' if o.backend == 'sb3' else 'sb3'}"
        raise ConfigurationError(
            "no such algorithm" if o.backend == "sb3" else "RLlib is not offered with this algorithm", field="algo",
            expected=", ".join(known), got=o.algo, cure=cure,
        )  # fmt: skip
    defaults = {field.name: field.default for field in fields(o)}
    if o.backend == "sb3":
        for name in _RLLIB:
            if getattr(o, name) is not None:
                raise ConfigurationError(
                    "an option of RLlib", field=name, got=getattr(o, name),
                    cure="train with --backend rllib, or leave it out",
                )  # fmt: skip
        return
    for name, cure in _SB3.items():
        if getattr(o, name) not in (defaults[name], {}):
            raise ConfigurationError(
                "the backend rllib does not have this option", field=name, got=getattr(o, name), cure=cure
            )
    for name in o.hyperparameters:
        if name in _RENAMED:
            raise ConfigurationError("not an argument of RLlib", field=f"hyperparameters.{name}", cure=_RENAMED[name])
        if name in _OLD:
            raise ConfigurationError(
                "only RLlib's old API stack reads it", field=f"hyperparameters.{name}", cure=_OLD[name]
            )


def check_installed() -> None:
    """Raises ConfigurationError where Ray is not installed."""
    if find_spec("ray") is None:
        raise ConfigurationError(
            "the backend rllib needs Ray, which is not installed", field="backend",
            cure="pip install 'ue_rl[train,rllib]' -c constraints.txt",
        )  # fmt: skip
