"""What a resumed run may do otherwise than before: each option is applied and said, or refused by name; never silent.

See docs/saving.md, "Options that may change".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ue_rl.errors import ConfigurationError, HandshakeError, nearest
from ue_rl.spec import EnvSpec
from ue_rl.training.directory import read_handshake
from ue_rl.training.options import DEFAULT_ENV, OFF_POLICY, TrainOptions, resolve, tuned_for
from ue_rl.wire.handshake import decode_handshake, encode_handshake

# Belong to the process that runs: applied, and said where they differ.
_FREE = (
    "timesteps", "engine", "num_engines", "host", "port", "transport", "channel", "timeout", "wait", "start_timeout",
    "max_restarts", "restart_window", "reconnect", "num_envs", "env_kwargs", "max_episode_steps", "device", "threads",
    "save_freq", "save_minutes", "keep", "save_replay_buffer", "export", "eval_episodes", "verbose", "params",
    "time_scale", "curriculum", "others", "num_env_runners", "num_learners", "num_gpus_per_learner", "ray_address",
)  # fmt: skip
_UNSAID = ("log_dir", "run_id", "hyperparameters")  # where the run is; compared one by one
_NEW_RUN = "leave it out, or begin a new run with the weights of this one: --init-from {run}"
_REFUSED = {
    "backend": "leave it out: the run goes on with {before}; with another backend begin a new run",
    "algo": "leave it out: the saved networks are those of {before}; for another algorithm begin a new run",
    "policy": "leave it out: the saved networks have their shape; for another one begin a new run",
    "init_from": "leave it out: the run goes on with its own weights",
}

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
_SPACES = {
    "obs_size": "OBS", "act_size": "ACT", "obs_space": "OBS_SPACE", "action": "ACT_SPACE", "obs_low": "OBS_LOW",
    "obs_high": "OBS_HIGH", "image": "IMAGE", "groups": "AGENTS",
}  # fmt: skip


class Comparison(NamedTuple):
    """What goes on how.

    Attributes:
        options: what the run does from here on; what its config.yaml is to say.
        said: a sentence for each thing that is otherwise than before.
        load: arguments of the algorithm's load(): the hyperparameters that apply to a model that has learnt already.
    """

    options: TrainOptions
    said: list[str]
    load: dict[str, Any]


def compare(saved: Mapping[str, Any], options: TrainOptions, run: Path) -> Comparison:
    """The config that the run in the folder `run` was saved with, and the options that it is resumed with.

    Raises:
        ConfigurationError: names the option that cannot change, with what can be done instead.
    """
    before = resolve({}, None, base=saved)
    said = []
    for name in (field.name for field in fields(TrainOptions)):
        was, now = getattr(before, name), getattr(options, name)
        if name in _UNSAID or _plain(was) == _plain(now):
            continue
        if name == "env":
            if not (before.embedded and options.embedded):  # of another kind: `host` or `engine` says it
                continue
            was, now = was or DEFAULT_ENV, now or DEFAULT_ENV
            if was == now:
                continue
        if name not in _FREE:
            new_run = _NEW_RUN if before.backend == "sb3" else "leave it out, or begin a new run"
            cure = _REFUSED.get(name, new_run).format(before=was, run=run)
            raise _cannot_change(name, was, now, cure)
        said.append(f"{name}: {_shown(was)} before, {_shown(now)} now")
    if before.embedded != options.embedded:  # the defaults of a task that is hosted here are the run's all the same
        options = replace(options, hyperparameters={**tuned_for(before, resolved=False), **options.hyperparameters})
    said += _hyperparameters(before, options, run)
    return Comparison(options, said, loadable(options))


def check_unfinished(options: TrainOptions, learnt: int) -> None:
    """Raises ConfigurationError where there is nothing left to learn after `learnt` env-steps."""
    if learnt >= options.timesteps:
        error = ConfigurationError(
            f"the run has reached its timesteps already: it has learnt {learnt:,}", field="timesteps",
            cure=f"go on with --resume --timesteps {2 * learnt}, or any more than it has, or begin a new run",
        )  # fmt: skip
        error.fault = None  # nobody has done anything wrong
        raise error


def loadable(options: TrainOptions) -> dict[str, Any]:
    """The hyperparameters of `options` that SB3's load() applies to a model that has learnt already."""
    if options.backend != "sb3":
        return {}
    names = ("learning_rate", *APPLIED[options.algo])
    return {name: value for name, value in tuned_for(options).items() if name in names}


def check_spaces(spec: EnvSpec, handshake: Path) -> tuple[EnvSpec, EnvSpec] | None:
    """The engine that a run is resumed with against the one that it was saved with.

    Args:
        handshake: the run's handshake.txt. Without one nothing is compared here: who learns refuses what does not fit.

    Returns:
        the specs before and now, as the handshake has them; None without a handshake.

    Raises:
        ConfigurationError: other observations or actions, by the part of the handshake that differs; or no file.
    """
    try:
        before = read_handshake(handshake)
    except HandshakeError:
        before = None
    if before is None:
        return None
    now = decode_handshake(encode_handshake(replace(spec, shm=None)))
    for name, key in _SPACES.items():
        was, is_now = getattr(before, name), getattr(now, name)
        if was != is_now:
            raise ConfigurationError(
                "the engine is not the one that the run was trained in: its observations or actions differ",
                fault="caller", field=key, expected=was, got=is_now,
                cure="connect to the game that the run was begun with, or begin a new run",
            )  # fmt: skip
    return before, now


def check_engine(options: TrainOptions, spec: EnvSpec, handshake: Path) -> list[str]:
    """As check_spaces, for SB3; sentences of what differs.

    Raises:
        ConfigurationError: other spaces; or another number of envs where the algorithm has a replay buffer, whose
            columns are the envs.
    """
    specs = check_spaces(spec, handshake)
    if specs is None or specs[0].num_envs == specs[1].num_envs:
        return []
    before, now = specs
    if options.algo in OFF_POLICY:
        raise ConfigurationError(
            "the replay buffer has a column for each env", fault="caller", field="num_envs", expected=before.num_envs,
            got=now.num_envs, cure=f"run {before.num_envs} envs in all, or begin a new run with these weights: "
            f"--init-from {handshake.parent}",
        )  # fmt: skip
    return [f"envs in all: {before.num_envs} before, {now.num_envs} now: a rollout has as many times n_steps env-steps"]


def _hyperparameters(before: TrainOptions, options: TrainOptions, run: Path) -> list[str]:
    was, now = tuned_for(before, resolved=False), tuned_for(options, resolved=False)
    applied = ("learning_rate", *APPLIED.get(options.algo, ()))
    if options.backend == "rllib":
        applied = tuple(name for name in now if name not in _RLLIB_MADE)
    said = []
    for name, value in now.items():
        if name in was and _plain(was[name]) == _plain(value):
            continue
        old = was.get(name, "the default")
        if name not in applied or (name == "gamma" and options.algo in OFF_POLICY and now.get("n_steps", 1) != 1):
            cure = "leave it out, or begin a new run"
            if options.backend == "sb3":
                cure += f"; --init-from {run} gives it these weights where they fit"
            known = None if name in was else nearest(name, applied)
            raise _cannot_change(f"hyperparameters.{name}", old, value, known or cure)
        said.append(f"{name}: {_shown(old)} before, {_shown(value)} now")
    return said


def _cannot_change(name: str, was: Any, now: Any, cure: str) -> ConfigurationError:
    return ConfigurationError(
        "a run that is resumed cannot change it", fault="caller", field=name, expected=_shown(was), got=_shown(now),
        cure=cure,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _shown(value: Any) -> str:
    return "none" if value is None or value == {} else str(value)
