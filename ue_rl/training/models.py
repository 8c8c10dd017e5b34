"""Models of a run: the algorithm, made anew, with the weights of another run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import ActionNoise, NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.type_aliases import TrainFrequencyUnit
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ue_rl.system.errors import ConfigurationError, nearest
from ue_rl.system.seeds import env_seed, own_seed
from ue_rl.training import agents
from ue_rl.training.algorithms import ALGORITHMS, OFF_POLICY
from ue_rl.training.comparison import check_order
from ue_rl.training.hyperparameters import known_algorithm, tuned_for
from ue_rl.training.loading import (
    find_start,
    init_arguments,
    load_model,
    load_statistics,
)
from ue_rl.training.numpy_learner.choice import class_to_learn
from ue_rl.training.options import TrainOptions
from ue_rl.training.overlap import overlap

_ACTION_SPACES: dict[str, type[spaces.Space[Any]]] = {
    **dict.fromkeys(("sac", "td3", "ddpg", "tqc"), spaces.Box),
    **dict.fromkeys(("dqn", "qrdqn"), spaces.Discrete),
}  # where an algorithm does not take any


_SMALLEST = 36  # pixels that NatureCNN's three layers need: 8 wide in steps of 4, 4 in steps of 2, 3


def algorithm(options: TrainOptions, env: VecEnv) -> Any:
    """SB3's class for such a run, if it can act in `env`."""
    name = options.algo
    needed = _ACTION_SPACES.get(name)
    space = env.action_space
    if needed is not None and not isinstance(space, needed):
        got = f"the engine's {type(space).__name__}"
        cure = "use ppo or a2c; for a Box also sac or td3; for a Discrete space (ACT_SPACE=DISCRETE(n)) also dqn"
        raise ConfigurationError(f"{name} needs a {needed.__name__} action space", field="algo", got=got, cure=cure)
    if isinstance(space, spaces.Box) and not space.is_bounded():
        raise ConfigurationError(
            "no algorithm of Stable-Baselines3 acts in a Box without bounds",
            fault="engine",
            field="ACT_SPACE",
            expected="a lowest and a highest value for each number, such as BOX(-1:1,2)",
            got=space,
            cure="announce bounds in ACT_SPACE; around a Gymnasium env a wrapper does it: "
            "gymnasium.wrappers.TransformAction(env, function, Box(-1, 1, shape))",
        )
    _check_frequency(options, env.num_envs)
    engine: Any = env.unwrapped
    masked = engine.engine_spec.mask_size > 0
    if name == "maskable_ppo" and not masked:
        raise ConfigurationError(
            "maskable_ppo needs action masks",
            field="algo",
            expected="FEATURES=MASK in the handshake, and choices in ACT_SPACE",
            got=sorted(engine.engine_spec.features),
            cure="use ppo, or teach the engine to send MASK",
        )
    kind = known_algorithm(name)
    if not options.overlap:
        return class_to_learn(options, kind)
    if name not in OFF_POLICY:
        engine.halves()  # raises where it has none
    return overlap(kind)


def _check_frequency(options: TrainOptions, num_envs: int) -> None:
    """Raises ConfigurationError: it is to learn after whole episodes, which SB3 does with one env alone."""
    frequency = tuned_for(options).get("train_freq")
    if num_envs > 1 and isinstance(frequency, tuple) and frequency[1:] == ("episode",):
        raise ConfigurationError(
            "learning after whole episodes goes with one env alone",
            field="hyperparameters.train_freq",
            expected="a number of steps, such as 1, or one env",
            got=f"{list(frequency)} with {num_envs} envs",
            cure="give --num-envs 1 and --num-engines 1, where engines are started here, or --set train_freq=1",
        )


def normalized(options: TrainOptions, vec_env: VecEnv) -> VecEnv:
    """`vec_env` in a new VecNormalize, where one is wanted.

    Raises:
        ConfigurationError: VecNormalize does not take its arguments.
    """
    given = options.normalize
    if not given:
        return vec_env
    wished = {}
    if given is not True:
        wished = given
    arguments = {"gamma": tuned_for(options).get("gamma", 0.99), **wished}
    try:
        return VecNormalize(vec_env, **arguments)
    except (TypeError, ValueError) as error:
        what = "VecNormalize does not take these arguments"
        raise ConfigurationError(what, field="normalize", got=str(error)) from error


def new_model(options: TrainOptions, vec_env: VecEnv, tell: Callable[[str], object]) -> BaseAlgorithm:
    """A model for `vec_env` as `options` say, or with the weights and statistics of `init_from`."""
    o = options
    start = None
    if o.init_from:
        start = find_start(o)
    if start is None or start.normalize is None:
        env = normalized(o, vec_env)
    else:
        env = load_statistics(start.normalize, vec_env)
        env.gamma = tuned_for(o).get("gamma", env.gamma)
    kind = algorithm(o, env)
    arguments = {**agents.buffers(o, env), **(tuned_for(o) if start is None else init_arguments(o))}
    if o.her is not None:
        arguments |= _hindsight(o.her, env.observation_space)
    if isinstance(arguments.get("action_noise"), str):
        arguments["action_noise"] = _noise(arguments["action_noise"], env.action_space)
    if start is not None:
        arguments = {**_own_buffers(kind), **arguments}
        if o.env_wrapper is None:  # a wrapper may put them in another order
            check_order(start.model, vec_env.unwrapped.engine_spec)  # type: ignore[attr-defined]
        for text in start.said:
            tell(text)
        model = load_model(kind, start.model, env, o, device=device(o, env), **arguments)
        model.num_timesteps = 0
        return _with_own_streams(model, o.seed)
    policy = _policy(o, env)
    if o.policy == "auto" and is_image_space(env.observation_space) and "Cnn" not in policy:
        tell(
            f"pictures of {_size_of(env.observation_space)} are too small for a CnnPolicy, which takes "
            f"{_SMALLEST} x {_SMALLEST} and more: the policy is an {policy}"
        )
    try:
        made = kind(policy, env, seed=o.seed, device=device(o, env), verbose=o.verbose, **arguments)
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        what = f"{o.algo} does not take these arguments"
        cure = f"see the parameters of {kind.__name__} in the documentation of {ALGORITHMS[o.algo]}"
        raise ConfigurationError(what, field="hyperparameters", got=str(error), cure=cure) from error
    return _with_own_streams(made, o.seed)


def _own_buffers(kind: Any) -> dict[str, Any]:
    """SB3's usual buffers, as arguments of load(): those that the weights come from had kinds of their own."""
    usual: dict[str, Any] = {
        "replay_buffer_class": None,
        "replay_buffer_kwargs": {},
        "rollout_buffer_class": None,
        "rollout_buffer_kwargs": {},
    }
    taken = inspect.signature(kind.__init__).parameters
    return {name: value for name, value in usual.items() if name in taken}


def _with_own_streams(model: BaseAlgorithm, seed: int | None) -> BaseAlgorithm:
    """`model`, whose envs play no episodes of a run with the next seed, and whose random actions are its own.

    SB3 gives env i the number seed + i, and the action space (for the actions before learning_starts) the one that env
    0 gets too; NumPy's generators of one seed draw the same numbers.
    """
    if seed is None:
        return model
    model.action_space.seed(own_seed(seed, "actions"))
    if model.env is not None:
        model.env.seed(env_seed(seed))
    return model


def without_effect(options: TrainOptions, model: BaseAlgorithm) -> list[str]:
    """A sentence for each hyperparameter that was given and that the algorithm, as the others are, does not heed."""
    given = tuned_for(options, resolved=False)
    said = []
    for name in ("sde_sample_freq", "use_sde_at_warmup"):
        if name in given and not model.use_sde:
            said.append(f"{name} has no effect without use_sde=true")
    if given.get("target_entropy", "auto") != "auto" and not str(given.get("ent_coef", "auto")).startswith("auto"):
        said.append(f"target_entropy has no effect where ent_coef is {given['ent_coef']}: it steers ent_coef=auto")
    if options.algo in ("sac", "tqc") and "target_update_interval" in given:
        said += _within_an_update(options, model)
    return said


def longer_than_asked(options: TrainOptions, model: BaseAlgorithm) -> list[str]:
    """A sentence where the run takes more env-steps than it was given: SB3 ends on-policy learning with a rollout."""
    if not isinstance(model, OnPolicyAlgorithm):
        return []
    rollout = model.n_steps * model.n_envs
    if options.timesteps >= rollout:
        return []
    return [
        f"this run takes {rollout:,} env-steps, not {options.timesteps:,}: {options.algo} learns after "
        f"n_steps={model.n_steps} steps of each of {model.n_envs} envs. Lower n_steps, or raise timesteps"
    ]


def _within_an_update(options: TrainOptions, model: Any) -> list[str]:
    """SB3 counts target_update_interval of SAC and TQC from 0 in each call of train()."""
    interval = model.target_update_interval
    steps = model.gradient_steps
    frequency = model.train_freq
    is_steps = frequency.unit == TrainFrequencyUnit.STEP
    if steps < 0:  # as many as env-steps were collected
        if not is_steps:
            return []
        steps = frequency.frequency * model.n_envs
    if options.overlap and is_steps:
        steps = -(-steps // frequency.frequency)  # a share is taken in each step of the rollout
    if interval <= 1 or interval <= steps:
        return []
    return [
        f"target_update_interval={interval} has no effect: Stable-Baselines3 counts it anew in each update, which has "
        f"{steps} gradient steps here, and each update begins with a target update. Raise gradient_steps and "
        "train_freq to it or beyond, or lower tau instead"
    ]


def device(options: TrainOptions, env: VecEnv) -> str:
    """Where torch computes.

    "auto" means a GPU where there is one; but the CPU for an on-policy algorithm with an MlpPolicy, as SB3 recommends.
    """
    if options.device == "auto" and options.algo not in OFF_POLICY and _policy(options, env) == "MlpPolicy":
        return "cpu"
    return options.device


def _noise(text: str, space: spaces.Space[Any]) -> ActionNoise:
    """SB3's noise of "normal 0.1" or "ornstein-uhlenbeck 0.1"."""
    name, _, size = text.partition(" ")
    kinds: dict[str, Any] = {"normal": NormalActionNoise, "ornstein-uhlenbeck": OrnsteinUhlenbeckActionNoise}
    try:
        zeros = np.zeros(_shape_of(space))
        return kinds[name](zeros, zeros + float(size))  # type: ignore[no-any-return]
    except (KeyError, ValueError):
        raise ConfigurationError(
            "no such noise",
            field="hyperparameters.action_noise",
            expected=" or ".join(f"{k} 0.1" for k in kinds),
            got=text,
            cure=nearest(name, kinds),
        ) from None


def _policy(options: TrainOptions, env: VecEnv) -> str:
    space = env.observation_space
    kwargs = options.hyperparameters.get("policy_kwargs")
    own_layers = "features_extractor_class" in str(kwargs)  # which may take pictures of any size
    if options.policy != "auto":
        if options.policy.startswith("Cnn") and is_image_space(space) and not own_layers and _is_small(space):
            raise _too_small("", space)
        return options.policy
    algo = options.algo
    kind = "Mlp"
    if isinstance(space, spaces.Dict):
        kind = "MultiInput"
        for name, part in space.spaces.items():
            if is_image_space(part) and not own_layers and _is_small(part):
                raise _too_small(name, part)
            if isinstance(part, (spaces.Dict, spaces.Tuple)):
                what = "Stable-Baselines3 has no policies for a Dict or Tuple inside a Dict"
                cure = "announce its parts beside the others in one DICT"
                raise ConfigurationError(what, field=f"OBS_SPACE, {name}", got=part, cure=cure)
    elif isinstance(space, spaces.Tuple):
        what = "Stable-Baselines3 has no policies for Tuple observations"
        cure = "announce a DICT in OBS_SPACE, or train from Python behind a wrapper that flattens it"
        raise ConfigurationError(what, field="OBS_SPACE", got=space, cure=cure)
    elif is_image_space(space) and (own_layers or not _is_small(space)):
        kind = "Cnn"
    if algo == "recurrentppo":
        return f"{kind}LstmPolicy"
    return f"{kind}Policy"


def _shape_of(space: spaces.Space[Any]) -> tuple[int, ...]:
    """() of a space without one."""
    if space.shape is None:
        return ()
    return tuple(space.shape)


def _size_of(space: spaces.Space[Any]) -> str:
    """Height x width of a picture's space."""
    shape = _shape_of(space)
    height, width = shape[1:] if is_image_space_channels_first(space) else shape[:2]  # type: ignore[arg-type]
    return f"{height} x {width}"


def _is_small(space: spaces.Space[Any]) -> bool:
    return min(map(int, _size_of(space).split(" x "))) < _SMALLEST


def _too_small(part: str, space: spaces.Space[Any]) -> ConfigurationError:
    cure = "send greater pictures"
    if part:
        cure += ", or announce this one as a BOX of numbers that are not 0 to 255, such as shares of 1"
    else:
        cure += ", or leave --policy out: an MlpPolicy takes these"
    field = "OBS_SPACE"
    if part:
        field = f"OBS_SPACE, {part}"
    return ConfigurationError(
        "pictures are too small for Stable-Baselines3's convolutions",
        field=field,
        expected=f"{_SMALLEST} x {_SMALLEST} or more",
        got=_size_of(space),
        cure=cure,
    )


def _hindsight(her: dict[str, Any], space: spaces.Space[Any]) -> dict[str, Any]:
    """SB3's replay buffer for goals, as arguments of an algorithm."""
    from stable_baselines3 import HerReplayBuffer

    goal = ("observation", "achieved_goal", "desired_goal")
    if not isinstance(space, spaces.Dict) or not set(goal) <= set(space.spaces):
        raise ConfigurationError(
            "HER needs goals in the observation", field="her", expected=f"a DICT with {', '.join(goal)}", got=space
        )
    return {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": dict(her)}


def evaluated(options: TrainOptions, model: Any, env: VecEnv, episodes: int) -> tuple[list[float], list[int]]:
    """(returns, lengths) of so many episodes without exploration; a policy with action masks is given them."""
    evaluate: Any = evaluate_policy
    if options.algo == "maskable_ppo":
        from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate
    how = {"deterministic": True, "return_episode_rewards": True, "warn": False}
    return evaluate(model, env, n_eval_episodes=episodes, **how)  # type: ignore[no-any-return]
