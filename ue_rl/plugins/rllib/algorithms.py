"""Options of a run to RLlib's AlgorithmConfig. Source: ray.rllib.algorithms (Ray 2.52 to 2.60)."""

# pyright: reportMissingImports=false
from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.models.utils import get_activation_fn

from ue_rl.connections.engines.restarts import read_restarts
from ue_rl.plugins.rllib.engines import HOSTED, NAME, OPTIONS
from ue_rl.plugins.rllib.env_runner import UnrealEnvRunner
from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.system.known import require_known
from ue_rl.system.seeds import env_seed
from ue_rl.system.trust.schedules import LinearSchedule
from ue_rl.training.algorithms import OFF_POLICY, RLLIB_ALGORITHMS
from ue_rl.training.engine import command_of
from ue_rl.training.hosted_wrappers import hosted_wrappers
from ue_rl.training.hyperparameters import schedule, tuned_for
from ue_rl.training.kinds import named_of
from ue_rl.training.options import DEFAULT_ENV, TrainOptions
from ue_rl.training.rows import LEAVE

_CLASSES = {name: f"{name.upper()}Config" for name in RLLIB_ALGORITHMS}
_SCHEDULED = ("lr", "actor_lr", "critic_lr", "alpha_lr", "entropy_coeff", "epsilon")  # may change over a run
_ACTIONS: dict[str, tuple[type[spaces.Space[Any]], ...]] = {
    "dqn": (spaces.Discrete,),
    "sac": (spaces.Box, spaces.Discrete),
}
_WHOLE = ("train_batch_size_per_learner", "minibatch_size", "num_epochs")
_FRACTIONS = ("gamma", "lambda_")
_SAMPLE_TIMEOUT = 3600.0  # seconds; engines have deadlines of their own, and RLlib drops what comes later than this


def num_env_runners(options: TrainOptions) -> int:
    """How many processes play; 0: the one that trains does."""
    if options.num_env_runners is None:
        return 2
    return options.num_env_runners


def check_actions(options: TrainOptions, space: spaces.Space[Any]) -> None:
    """Raises ConfigurationError where the algorithm does not learn with such actions."""
    kinds = _ACTIONS.get(options.algo)
    if kinds is not None and not isinstance(space, kinds):
        raise ConfigurationError(
            f"{options.algo} does not learn with the actions of this engine",
            field="ACT_SPACE",
            expected=" or ".join(kind.__name__ for kind in kinds),
            got=space,
            cure="train with --algo ppo",
        )


def resources(options: TrainOptions) -> tuple[int, float]:
    """(CPUs, GPUs) that a run takes from Ray."""
    learners = options.num_learners
    if not learners:
        learners = 0
    gpus = options.num_gpus_per_learner
    if not gpus:
        gpus = 0.0
    if gpus:
        own = 0
    else:
        own = learners
    return num_env_runners(options) + own, gpus * learners


def algorithm_config(options: TrainOptions, output: Path, report_to: str) -> Any:
    """The AlgorithmConfig of a run.

    Args:
        output: the folder for what engines on this machine print. report_to: the name of the NewsActor.

    Raises:
        ConfigurationError: an argument that the algorithm does not take.
    """
    o = options
    config: Any = getattr(importlib.import_module(f"ray.rllib.algorithms.{o.algo}"), _CLASSES[o.algo])()
    given = tuned_for(o)
    model = given.pop("model_config", None)
    learning = _arguments(config, given, o)
    config = config.environment(NAME, env_config={**env_config(o, output), "report_to": report_to})
    config = config.env_runners(
        env_runner_cls=UnrealEnvRunner,
        num_env_runners=num_env_runners(o),
        num_envs_per_env_runner=o.num_envs,
        sample_timeout_s=_SAMPLE_TIMEOUT,
    )
    if o.num_gpus_per_learner and not o.num_learners and not torch.cuda.is_available():
        what = "this process learns, and has no GPU"
        cure = "leave it out; --num-learners 1 learns on another node of a cluster"
        raise ConfigurationError(what, field="num_gpus_per_learner", got=o.num_gpus_per_learner, cure=cure)
    num_learners = o.num_learners
    if not num_learners:
        num_learners = 0
    num_gpus_per_learner = o.num_gpus_per_learner
    if not num_gpus_per_learner:
        num_gpus_per_learner = 0
    config = config.learners(num_learners=num_learners, num_gpus_per_learner=num_gpus_per_learner)
    # What an env runner raises ends the run by name; one whose process is killed is started again.
    restarts, _ = read_restarts(o.restarts)
    config = config.fault_tolerance(
        restart_failed_env_runners=restarts > 0,
        max_num_env_runner_restarts=restarts,
        delay_between_env_runner_restarts_s=0,
    )
    seed = o.seed
    if seed is not None:
        seed = env_seed(seed)  # RLlib gives env i of a runner this number + i
    config = config.debugging(seed=seed, log_level="WARN").reporting(min_time_s_per_iteration=0)
    if o.algo in OFF_POLICY:  # RLlib's iterations of DQN are a thousand env-steps: a signal would wait for their end
        config = config.reporting(min_sample_timesteps_per_iteration=200)
    if model is not None:
        config = config.rl_module(model_config=_model(model))
    try:
        config = config.training(**learning)
        config.validate()
    except (TypeError, ValueError, AssertionError, KeyError) as error:
        what = f"RLlib's {o.algo} does not take these arguments"
        cure = f"see {_CLASSES[o.algo]}.training in RLlib's documentation"
        raise ConfigurationError(what, field="hyperparameters", got=" ".join(str(error).split()), cure=cure) from error
    return config


def lost_ends(config: Any) -> str:
    """A sentence where RLlib's replay buffer never gives the learner the ends of episodes; "" otherwise."""
    n_step = getattr(config, "n_step", 1)
    if isinstance(n_step, (list, tuple)):
        most = max(n_step)
    else:
        most = n_step
    if most is None or most <= 1:
        return ""
    return (
        f"n_step={n_step}: of the last {most - 1} states of each episode Ray's prioritised replay buffer draws none, "
        "and its uniform one draws them without their end, so a reward there is learnt late or not at all. Leave "
        "n_step at 1 where rewards come at the end, or train with --backend sb3"
    )


def env_config(options: TrainOptions, output: Path) -> dict[str, Any]:
    """What UnrealEnvRunner opens its engines by.

    Raises:
        ConfigurationError: an env or a command that cannot be, or engines that cannot be shared out among env runners.
    """
    o = options
    _check_wrappers(o)
    said: dict[str, Any] = {name: getattr(o, name) for name in OPTIONS if name not in HOSTED}
    if o.seed is None:
        said["seed"] = random.SystemRandom().randrange(2**31)
    else:
        said["seed"] = env_seed(o.seed)
    said["output_dir"] = str(output.absolute())
    if o.urls:
        return {**said, "url": _urls(o)}
    if o.num_envs % o.num_engines:
        what = "the envs of an env runner cannot be shared out among its engines"
        expected = f"a number that {o.num_envs} envs can be divided by"
        raise ConfigurationError(what, field="num_engines", expected=expected, got=o.num_engines)
    command_of(o)  # there is such an env, or the command can be read
    if o.engine is not None:
        return {**said, "engine": o.engine}
    hosted = o.env or DEFAULT_ENV
    return {**said, "env": hosted, **{name: getattr(o, name) for name in HOSTED}}


def _check_wrappers(options: TrainOptions) -> None:
    """Raises ConfigurationError: one is no wrapper of a hosted Gymnasium env; RLlib has no others."""
    if options.env_wrapper is None:
        return
    hosted = [name for name, _ in hosted_wrappers(options)]
    for name, _ in named_of(options.env_wrapper):
        if name not in hosted:
            what = "it stands around the envs of Stable-Baselines3"
            expected = "a gymnasium.Wrapper"
            raise ConfigurationError(what, field="env_wrapper", expected=expected, got=name, cure=LEAVE)


def _urls(options: TrainOptions) -> Any:
    """Those of the env runners, which share the engines out among them; an engine has one trainer."""
    urls = options.urls
    runners = num_env_runners(options)
    if runners == 0:
        return urls
    if any("{worker_index}" in url for url in urls):
        return urls
    if len(urls) < runners or len(urls) % runners:
        raise ConfigurationError(
            "an engine serves one env runner",
            field="num_env_runners",
            expected="as many engines for each",
            got=f"{len(urls)} engines for {runners} env runners",
            cure="give the URL of each, or name it by its number: tcp://10.0.0.{worker_index}:7777",
        )
    each = len(urls) // runners
    return {worker + 1: urls[worker * each : (worker + 1) * each] for worker in range(runners)}


def _arguments(config: Any, given: Mapping[str, Any], options: TrainOptions) -> dict[str, Any]:
    """`given` as arguments of config.training(); raises ConfigurationError: one that it does not have."""
    known = {
        name
        for kind in type(config).__mro__
        if "training" in vars(kind)
        for name, parameter in inspect.signature(vars(kind)["training"]).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    arguments: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigurationError(
                f"RLlib's {options.algo} has no such argument",
                field=f"hyperparameters.{name}",
                expected=", ".join(sorted(known)),
                cure=nearest(name, [*known, "model_config", "learning_rate"]),
            )
        falling = schedule(value)
        _check_value(name, value, isinstance(falling, LinearSchedule), getattr(config, name, None))
        if isinstance(falling, LinearSchedule):
            arguments[name] = [[0, falling.start], [options.timesteps, 0.0]]
        else:
            arguments[name] = value
    if options.algo == "sac" and "lr" in arguments:  # its three networks have rates of their own
        rate = arguments.pop("lr")
        arguments = {"actor_lr": rate, "critic_lr": rate, "alpha_lr": rate, "lr": None, **arguments}
    return arguments


def _check_value(name: str, value: Any, falling: bool, default: Any) -> None:
    """RLlib itself looks at most values only when it learns."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    listed = isinstance(value, (list, tuple))
    if name in _SCHEDULED:  # also RLlib's own [[0, 0.1], [10000, 0.0]]
        right = falling or listed or value is None or (number and value >= 0)
        expected = "a number from 0, or lin_0.001 for one that falls to 0"
    elif name in _WHOLE:
        right = (isinstance(value, int) and number and value > 0) or (value is None and default is None)
        expected = "a positive integer"
    elif name in _FRACTIONS:
        right = number and 0 <= value <= 1
        expected = "a number from 0 to 1"
    elif isinstance(default, bool):
        right = isinstance(value, bool)
        expected = "true or false"
    else:  # n_step may be a range to draw from
        right = not isinstance(default, (int, float)) or value is None or (name == "n_step" and listed)
        right = right or (number and not falling)
        expected = "a number"
    if not right:
        raise ConfigurationError(
            "not a value of this argument", field=f"hyperparameters.{name}", expected=expected, got=value
        )


def _model(given: Any) -> DefaultModelConfig:
    if not isinstance(given, Mapping):
        raise ConfigurationError("model_config is a mapping", field="hyperparameters.model_config", got=given)
    known = [field.name for field in dataclasses.fields(DefaultModelConfig)]
    require_known(given, known, "RLlib's networks have no such setting", "hyperparameters.model_config")
    for name in given:
        _check_model(name, given[name])
    return DefaultModelConfig(**given)


def _check_model(name: str, value: Any) -> None:
    """Raises ConfigurationError for layers or an activation that RLlib could not make a network of."""
    expected = ""
    if name.endswith("fcnet_hiddens"):
        if isinstance(value, (list, tuple)):
            layers = value
        else:
            layers = [0]
        if not all(isinstance(layer, int) and not isinstance(layer, bool) and layer > 0 for layer in layers):
            expected = "a list of positive integers, such as [64, 64]"
    elif name.endswith("_activation"):
        try:
            get_activation_fn(value, framework="torch")
        except (ValueError, AttributeError):
            expected = "the name of one, such as tanh, relu, silu"
    if expected:
        what = "RLlib cannot make such a network"
        raise ConfigurationError(what, field=f"hyperparameters.model_config.{name}", expected=expected, got=value)
