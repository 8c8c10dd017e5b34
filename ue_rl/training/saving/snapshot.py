"""Snapshot: what of an algorithm, its wrappers and the random generators changes while a rollout is collected.

Weights do not: a snapshot that was taken at a rollout's start, together with the weights now, is the run as it was
then. Taking one is cheap, because most of it is references to what Stable-Baselines3 replaces and never writes into.
"""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecFrameStack, VecMonitor, VecNormalize

from ue_rl.envs.vec_env import UnrealVecEnv

# Attributes of algorithms that are replaced, never written into, while a rollout is collected.
_PLAIN = (
    "num_timesteps", "_episode_num", "_n_updates", "_n_calls", "exploration_rate", "_current_progress_remaining",
)  # fmt: skip
_SEEN = ("_last_obs", "_last_original_obs", "_last_episode_starts")  # of the envs
_DEQUES = ("ep_info_buffer", "ep_success_buffer")
_LOGGED = (
    "name_to_value",
    "name_to_count",
    "name_to_excluded",
)  # of SB3's logger: of the row that is to be written next
_TARGETS = ("q_net_target", "quantile_net_target")  # which DQN and its kind update in mid-rollout
_NOISE = ("exploration_mat", "exploration_matrices")

_NUMBERS = (int, float, np.integer, np.floating)

_NO_STARTS = np.zeros(0, np.int64)

State = dict[str, Any]
_WORDS = 624
_BYTES = 4 * (_WORDS + 1)  # mt19937_state of numpy/random/src/mt19937: uint32 key[624], int pos
_nothing_left = b""  # a state with which no normal number was left


def take(model: BaseAlgorithm) -> State:
    """A snapshot of the present state. Nothing in it may be written into."""
    state: State = {"random": _random(model)}
    own = vars(model)
    state["plain"] = {name: own[name] for name in _PLAIN if name in own}
    state["seen"] = {name: own[name] for name in _SEEN if name in own}
    state["deques"] = {name: tuple(own[name]) for name in _DEQUES if own.get(name) is not None}
    lstm = own.get("_last_lstm_states")
    if lstm is not None:
        state["lstm"] = _tensors(lstm)
    if model.action_noise is not None:
        state["noise"] = [vars(noise).copy() for noise in _noises(model.action_noise)]
    if model.use_sde:
        dist: Any = _sde(model)
        state["sde"] = {name: getattr(dist, name) for name in _NOISE if hasattr(dist, name)}
    targets = _targets(model)
    if targets is not None:
        state["targets"] = [value.detach().clone() for value in targets]
    buffer = own.get("replay_buffer")
    if buffer is not None:
        started = getattr(buffer, "_current_ep_start", _NO_STARTS)  # HER's
        state["buffer"] = (buffer.pos, buffer.full, started.copy(), buffer.buffer_size)
    state["wrappers"] = [_wrapper(wrapper) for wrapper in _wrappers(model.env)]
    engine = _engine(model.env)
    if engine is not None:
        state["episodes"] = engine.episode_state()
    logger = own.get("_logger")
    if logger is not None:
        state["logged"] = [dict(getattr(logger, name)) for name in _LOGGED]
    return state


def put(model: BaseAlgorithm, state: State, envs: bool = True) -> None:
    """Brings the model back to a snapshot, its own or one that was read from a file.

    Args:
        envs: false: the envs have begun new episodes, or are others: what belongs to them stays as it is.
    """
    own = vars(model)
    own.update(state["plain"])
    for name, values in state["deques"].items():
        if own.get(name) is not None:
            own[name] = deque(values, maxlen=own[name].maxlen)
    if envs:
        own.update(state["seen"])
        if "lstm" in state and own.get("_last_lstm_states") is not None:
            own["_last_lstm_states"] = _like(own["_last_lstm_states"], iter(state["lstm"]))
        if "noise" in state and model.action_noise is not None:
            for noise, attributes in zip(_noises(model.action_noise), state["noise"], strict=False):
                vars(noise).update(attributes)
        if "sde" in state and model.use_sde:
            vars(_sde(model)).update({name: _tensor(model, value) for name, value in state["sde"].items()})
    targets = _targets(model)
    if targets is not None and "targets" in state:
        with torch.no_grad():
            for target, value in zip(targets, state["targets"], strict=True):
                target.copy_(_tensor(model, value))
    buffer = own.get("replay_buffer")
    if buffer is not None and "buffer" in state:
        pos, full, started, _ = state["buffer"]
        buffer.pos = int(pos)
        buffer.full = bool(full)
        if len(started) and hasattr(buffer, "_current_ep_start"):
            buffer._current_ep_start = started.copy()
    for wrapper, values in zip(_wrappers(model.env), state["wrappers"], strict=False):
        _put_wrapper(wrapper, values, envs)
    engine = _engine(model.env)
    if envs and engine is not None and "episodes" in state:
        engine.restore_episodes(state["episodes"])
    logger = own.get("_logger")
    if logger is not None and "logged" in state:
        for name, logged in zip(_LOGGED, state["logged"], strict=True):
            getattr(logger, name).clear()
            getattr(logger, name).update(logged)
    _put_random(model, state["random"])


def is_finite(model: BaseAlgorithm) -> bool:
    """Is every weight of the policy a number?"""
    return all(bool(torch.isfinite(value).all()) for value in model.policy.parameters())


def without_model(state: State) -> State:
    """A snapshot without what model.zip holds of it, and with numbers for tensors, whatever device they are on."""
    given: State = {name: state[name] for name in ("plain", "seen", "buffer", "wrappers", "episodes") if name in state}
    for name in ("lstm", "targets"):
        if name in state:
            given[name] = [value.detach().cpu().numpy() for value in state[name]]
    if "sde" in state:
        given["sde"] = {name: value.detach().cpu().numpy() for name, value in state["sde"].items()}
    if "logged" in state:  # without pictures and the like
        numbers = {name: value for name, value in state["logged"][0].items() if isinstance(value, _NUMBERS)}
        given["logged"] = [
            numbers,
            *({name: kept[name] for name in numbers if name in kept} for kept in state["logged"][1:]),
        ]
    *others, cpu, cuda, generators = state["random"]
    given["random"] = (*others, cpu.numpy(), [one.numpy() for one in cuda], generators)
    return given


def with_model(given: State, model: BaseAlgorithm) -> State:
    """The reverse of `without_model`; `model`: as it was just loaded from its zip."""
    *others, cpu, cuda, generators = given["random"]
    loaded = take(model)
    return {
        **{name: loaded[name] for name in ("deques", "noise") if name in loaded},
        **given,
        "random": (*others, torch.from_numpy(cpu), [torch.from_numpy(one) for one in cuda], generators),
    }


def rows_ahead(live: State, state: State) -> int:
    """How many rows the replay buffer has been given since an earlier snapshot of the same rollout."""
    if "buffer" not in live:
        return 0
    rows = live["buffer"][0] - state["buffer"][0]
    laps = live["buffer"][3]
    return int(rows % laps)


# -- random generators


@contextmanager
def kept_random(model: BaseAlgorithm) -> Iterator[None]:
    """What is drawn in this block changes nothing that is drawn after it: Python, NumPy, torch and spaces."""
    state = _random(model)
    try:
        yield
    finally:
        _put_random(model, state)


def _random(model: BaseAlgorithm) -> tuple[Any, ...]:
    cuda = []
    if model.device.type == "cuda":
        cuda = torch.cuda.get_rng_state_all()
    generators = [one.bit_generator.state for one in _generators(model)]
    return random.getstate(), read_state(), torch.get_rng_state(), cuda, generators


def _put_random(model: BaseAlgorithm, state: tuple[Any, ...]) -> None:
    python, numpy_state, cpu, cuda, generators = state
    random.setstate(python)
    write_state(numpy_state)
    torch.set_rng_state(cpu)
    if cuda and model.device.type == "cuda" and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)
    for generator, kept in zip(_generators(model), generators, strict=False):
        generator.bit_generator.state = kept


def _generators(model: BaseAlgorithm) -> list[np.random.Generator]:
    """Those of the spaces; a Dict's and a Tuple's parts have their own, which Stable-Baselines3 does not use."""
    seen = model.observation_space._np_random
    return [model.action_space.np_random, *(() if seen is None else (seen,))]


# -- wrappers of the env


def _wrappers(env: VecEnv | None) -> Iterator[VecEnvWrapper]:
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv


def _engine(env: VecEnv | None) -> UnrealVecEnv | None:
    """What stands in all of them, where that is an engine's env."""
    inner = None
    if env is not None:
        inner = env.unwrapped
    if isinstance(inner, UnrealVecEnv):
        return inner
    return None


def _wrapper(wrapper: VecEnvWrapper) -> State:
    if isinstance(wrapper, VecNormalize):
        rms = getattr(wrapper, "obs_rms", None)
        if isinstance(rms, dict):
            by_name = rms
        elif rms is None:
            by_name = {}
        else:
            by_name = {"": rms}
        return {
            "obs": {name: (one.mean, one.var, one.count) for name, one in by_name.items()},
            "ret": (wrapper.ret_rms.mean, wrapper.ret_rms.var, wrapper.ret_rms.count),
            "returns": wrapper.returns.copy(),
            "old": [vars(wrapper).get("old_obs"), wrapper.old_reward],
        }
    if isinstance(wrapper, VecMonitor):
        return {
            "monitor": [wrapper.episode_returns.copy(), wrapper.episode_lengths.copy()],
            "count": wrapper.episode_count,
        }
    if isinstance(wrapper, VecFrameStack):
        return {"stacked": [part.stacked_obs for part in _stacks(wrapper.stacked_obs)]}
    return {}


def _put_wrapper(wrapper: VecEnvWrapper, state: State, envs: bool) -> None:
    if isinstance(wrapper, VecNormalize) and "ret" in state:
        rms: Any = getattr(wrapper, "obs_rms", None)
        if isinstance(rms, dict):
            by_name = rms
        elif rms is None:
            by_name = {}
        else:
            by_name = {"": rms}
        for name, one in by_name.items():
            if name in state["obs"]:
                one.mean, one.var, one.count = state["obs"][name]
        wrapper.ret_rms.mean, wrapper.ret_rms.var, wrapper.ret_rms.count = state["ret"]
        if envs:
            wrapper.returns = state["returns"].copy()
            wrapper.old_obs, wrapper.old_reward = state["old"]
    elif isinstance(wrapper, VecMonitor) and envs and "monitor" in state:
        returns, lengths = state["monitor"]
        wrapper.episode_returns, wrapper.episode_lengths = returns.copy(), lengths.copy()
        wrapper.episode_count = int(state["count"])
    elif isinstance(wrapper, VecFrameStack) and envs and "stacked" in state:
        for part, values in zip(_stacks(wrapper.stacked_obs), state["stacked"], strict=True):
            part.stacked_obs = values


def _stacks(stacked: Any) -> list[Any]:
    if hasattr(stacked, "sub_stacked_observations"):
        return list(stacked.sub_stacked_observations.values())
    return [stacked]


# -- parts of algorithms


def _noises(noise: Any) -> list[Any]:
    return [noise, *getattr(noise, "noises", ())]


def _sde(model: BaseAlgorithm) -> Any:
    policy: Any = model.policy
    if hasattr(policy, "actor"):
        actor = policy.actor
    else:
        actor = policy
    return actor.action_dist


def _targets(model: BaseAlgorithm) -> list[torch.Tensor] | None:
    """The target network's values where a step in mid-rollout moves them; with tau 1 it only copies the weights."""
    own: Any = model
    if not hasattr(own, "_n_calls") or getattr(own, "tau", 1.0) == 1.0:
        return None
    network = next((getattr(own, name) for name in _TARGETS if hasattr(own, name)), None)
    if network is None:
        return None
    return list(network.state_dict().values())


def _tensors(tree: Any) -> list[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [tensor for part in tree for tensor in _tensors(part)]


def _like(tree: Any, tensors: Iterator[Any]) -> Any:
    """`tree`, tuples of tensors, with other tensors in it."""
    if isinstance(tree, torch.Tensor):
        value = next(tensors)
        if isinstance(value, np.ndarray):
            tensor = torch.from_numpy(value)
        else:
            tensor = value
        return tensor.to(tree.device)
    parts = [_like(part, tensors) for part in tree]
    if hasattr(tree, "_fields"):
        return type(tree)(*parts)
    return tuple(parts)


def _tensor(model: BaseAlgorithm, value: Any) -> torch.Tensor:
    tensor: torch.Tensor
    if isinstance(value, np.ndarray):
        tensor = torch.from_numpy(value)
    else:
        tensor = value
    return tensor.to(model.device)


def read_state() -> tuple[Any, ...]:
    """As np.random.get_state(), for `write_state`; its key is an array of its own."""
    global _nothing_left  # noqa: PLW0603 - the generator is one, too
    generator: Any = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if not isinstance(generator, np.random.MT19937):  # somebody has set another one
        return tuple(np.random.get_state())
    memory = ctypes.string_at(generator.ctypes.state_address, _BYTES)
    words = np.frombuffer(memory, np.uint32)
    left = 0
    number = 0.0
    if memory != _nothing_left:
        asked: Any = np.random.get_state()
        left, number = asked[3:]
        if left:
            _nothing_left = b""
        else:
            _nothing_left = memory
    return "MT19937", words[:_WORDS], int(words[_WORDS]), left, number


def write_state(state: tuple[Any, ...]) -> None:
    """As np.random.set_state()."""
    global _nothing_left  # noqa: PLW0603
    np.random.set_state(state)
    _nothing_left = b""
