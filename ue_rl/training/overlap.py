"""overlap: Stable-Baselines3's algorithms, which act and learn while the engine ticks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import TrainFrequencyUnit
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.overlap_vec_env import OverlapVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system.errors import ConfigurationError

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

# What each wrapper makes of the observations of some envs; None: it leaves them alone.
_SEEN_THROUGH: dict[type[VecEnvWrapper], Callable[[Any, Any], Any] | None] = {
    VecNormalize: VecNormalize.normalize_obs,
    VecTransposeImage: VecTransposeImage.transpose_observations,
    VecMonitor: None,
    VecCheckNan: None,
}


def overlap(algorithm: type[Algorithm]) -> type[Algorithm]:
    """The algorithm, with its rollouts overlapped: `overlap(PPO)("MlpPolicy", env).learn(100_000)`.

    On-policy (PPO, A2C, TRPO, MaskablePPO, RecurrentPPO): the envs take each step in two halves; while the engine ticks
    one half, the policy acts for the other. Each env sees the same policy and the same number of steps as without;
    what is drawn for its actions differs, because the generator serves the halves in turn. With VecNormalize the first
    half is normalised with statistics that do not have this step yet.

    Off-policy (SAC, TD3, DDPG, DQN, TQC, QRDQN): the gradient steps that follow a rollout are taken while the engine
    ticks in the next one, spread over its steps; they lack the transition that is under way.

    Seeds give the same run again. A model is saved and loaded as the algorithm's own.

    Args:
        algorithm: a class of Stable-Baselines3 or sb3-contrib, whose env is an UnrealVecEnv of two envs or more for
            each engine; over any carrier. Within VecNormalize, VecTransposeImage, VecMonitor or VecCheckNan.

    Raises:
        ConfigurationError: neither an on-policy nor an off-policy algorithm. Its rollouts raise one for an env that
            cannot be halved, or with use_sde.
    """
    for kind, mixin in ((OnPolicyAlgorithm, _OnPolicy), (OffPolicyAlgorithm, _OffPolicy)):
        if issubclass(algorithm, mixin):
            return algorithm
        if issubclass(algorithm, kind):
            return cast("type[Algorithm]", type(algorithm.__name__, (mixin, algorithm), {"__doc__": algorithm.__doc__}))
    raise ConfigurationError(
        "this algorithm has no rollouts to overlap",
        field="overlap",
        expected="a subclass of OnPolicyAlgorithm or OffPolicyAlgorithm",
        got=getattr(algorithm, "__name__", algorithm),
    )


def _engine(env: VecEnv) -> tuple[UnrealVecEnv, list[VecEnvWrapper]]:
    """The engine's env, and what stands around it, innermost first."""
    around: list[VecEnvWrapper] = []
    while isinstance(env, VecEnvWrapper):
        around.insert(0, env)
        env = env.venv
    if not isinstance(env, UnrealVecEnv):
        raise ConfigurationError(
            "overlap needs the env of an engine", field="overlap", expected="UnrealVecEnv", got=type(env).__name__
        )
    return env, around


def _begin_anew(model: Any, engine: UnrealVecEnv) -> None:
    """A rollout was broken off: if that was in the middle of a step, the next `learn` resets the envs first."""
    if engine.under_way:
        model._last_obs = None


# -- on-policy


class _OnPolicy(OnPolicyAlgorithm):
    overlaps = True  # so that nothing else takes the place of the rollouts

    def collect_rollouts(
        self, env: VecEnv, callback: Any, rollout_buffer: Any, n_rollout_steps: int, *args: Any, **kwargs: Any
    ) -> bool:
        acting = _HalfActing(self, env, n_rollout_steps)
        around = _Around(callback, acting.stand_in, acting.step_aside)
        try:
            with acting.halving(env) as halved:
                return super().collect_rollouts(
                    halved, cast(Any, around), rollout_buffer, n_rollout_steps, *args, **kwargs
                )
        except BaseException:
            _begin_anew(self, acting.engine)
            raise
        finally:
            acting.step_aside()


class _Around:
    """The callbacks of a rollout.

    Args:
        ready: called whenever the loop goes on to the next action. over: called when it has taken its last one, so that
            a callback that asks the policy is answered by the policy.
    """

    def __init__(self, callback: Any, ready: Callable[[], None], over: Callable[[], None]) -> None:
        self._callback = callback
        self._ready = ready
        self._over = over

    def __getattr__(self, name: str) -> Any:
        return getattr(self._callback, name)

    def on_rollout_start(self) -> None:
        self._callback.on_rollout_start()
        self._ready()

    def on_step(self) -> bool:
        goes_on: bool = self._callback.on_step()
        self._ready()
        return goes_on

    def on_rollout_end(self) -> None:
        self._over()
        self._callback.on_rollout_end()


class _HalfActing:
    """Stands in for the policy's `forward` in the loop of collect_rollouts: see ue_rl.envs.overlap_vec_env.HalfActor.

    Attributes:
        engine: the env that is stepped in halves. env: around it, what does so.
    """

    def __init__(self, model: OnPolicyAlgorithm, env: VecEnv, steps: int) -> None:
        self._model = model
        self._policy = model.policy
        self._left = steps
        self.engine, self._around = _engine(env)
        for wrapper in self._around:
            if type(wrapper) not in _SEEN_THROUGH:
                raise ConfigurationError(
                    "overlap does not know what this wrapper makes of half of the envs",
                    field="overlap",
                    expected=", ".join(kind.__name__ for kind in _SEEN_THROUGH),
                    got=type(wrapper).__name__,
                    cure="leave the wrapper or overlap out",
                )
        if model.use_sde:
            raise ConfigurationError(
                "use_sde draws its noise for all envs at once, so it does not go with overlap", field="use_sde"
            )
        self.env = OverlapVecEnv(self.engine, self)
        self.first = self.env.first
        halves = np.flatnonzero(self.first), np.flatnonzero(~self.first)
        self._first, self._second = (torch.as_tensor(half, device=model.device) for half in halves)
        order = np.argsort(np.concatenate(halves))
        if (np.diff(order) == 1).all():
            self._order = None
        else:
            self._order = torch.as_tensor(order, device=model.device)
        self._forward: Callable[..., Any] = model.policy.forward
        self._masked = False  # the last actions were masked
        self._states: Any = None  # of a recurrent policy, of all envs
        self._early: tuple[Any, Any] | None = None  # what the first half saw, and what the policy gave for it

    @contextmanager
    def halving(self, env: VecEnv) -> Iterator[VecEnv]:
        """While the block runs, `env` steps in halves, beneath all wrappers: they see whole steps."""
        if not self._around:
            yield self.env
            return
        innermost = self._around[0]
        innermost.venv = self.env
        try:
            yield env
        finally:
            innermost.venv = self.engine

    def stand_in(self) -> None:
        """The next call of the policy is the loop's."""
        self._policy.forward = self._act  # type: ignore[method-assign]

    def step_aside(self) -> None:
        """The policy is itself again: it may be saved, exported and called by others."""
        vars(self._policy).pop("forward", None)

    def _act(self, obs: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As the policy's `forward`, for all envs; the first half's actions are sent before the second half's are
        computed."""
        self.step_aside()
        self._masked = kwargs.get("action_masks") is not None
        of_half = functools.partial(self._of_half, obs, args, kwargs)
        if self._early is None:
            first = of_half(self._first)
        else:
            seen, first = self._early
            self._early = None
            if self._around:  # what is stored is what was seen
                _put(self._model._last_obs, self.first, seen)
        self.env.ask_first(self._sent(first[0]))
        second = of_half(self._second)
        joined = tuple(self._join(*parts) for parts in zip(first, second, strict=True))
        if len(joined) > 3:
            self._states = joined[3]
        else:
            self._states = None
        return joined

    def _of_half(self, obs: Any, args: Any, kwargs: Any, half: torch.Tensor) -> tuple[Any, ...]:
        return self._forward(  # type: ignore[no-any-return]
            _part(obs, half),
            *(_part(value, half) for value in args),
            **{name: _part(value, half) for name, value in kwargs.items()},
        )

    def _join(self, first: Any, second: Any, dim: int = 0) -> Any:
        if isinstance(first, tuple):  # the states of a recurrent policy: [layers, envs, size]
            parts = [self._join(*pair, 1) for pair in zip(first, second, strict=True)]
            if hasattr(first, "_fields"):
                return type(first)(*parts)
            return tuple(parts)
        joined = torch.cat((first, second), dim)
        if self._order is None:
            return joined
        return joined.index_select(dim, self._order)

    def _sent(self, actions: torch.Tensor) -> NDArray[Any]:
        """What collect_rollouts makes of actions before it gives them to the env; 0 for the second half."""
        chosen = actions.cpu().numpy()
        space = self._model.action_space
        if isinstance(space, spaces.Box):  # squashed actions come from use_sde alone
            chosen = np.clip(chosen, space.low, space.high)
        everybody = np.zeros((len(self.first), *chosen.shape[1:]), chosen.dtype)
        everybody[self.first] = chosen
        return everybody

    def see_first(self, obs: Any, dones: NDArray[np.bool_]) -> None:
        """See HalfActor: the policy acts for the first half, unless this was the rollout's last step."""
        self._left -= 1
        if not self._left:
            return
        seen = _part(obs, self.first)
        for wrapper in self._around:
            change = _SEEN_THROUGH[type(wrapper)]
            if change is not None:
                seen = change(wrapper, seen)
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if self._states is not None:
            starts = torch.as_tensor(dones[self.first], dtype=torch.float32, device=self._model.device)
            args = _part(self._states, self._first), starts
        if self._masked:
            masks = self.engine.env_method("action_masks", indices=np.flatnonzero(self.first).tolist())
            kwargs["action_masks"] = np.stack(masks)
        with torch.no_grad():
            self._early = seen, self._forward(obs_as_tensor(seen, self._model.device), *args, **kwargs)

    def forget_first(self) -> None:
        """See HalfActor."""
        self._early = None


def _part(value: Any, half: Any, dim: int = 0) -> Any:
    """The envs `half` (an index, or bool [num_envs]) of what a policy takes: arrays and tensors [num_envs, ...], dicts
    of them, a recurrent policy's states, which are tuples of tensors [layers, num_envs, size], or none of these."""
    if isinstance(value, dict):
        return {name: _part(part, half) for name, part in value.items()}
    if isinstance(value, tuple):
        parts = [_part(part, half, 1) for part in value]
        if hasattr(value, "_fields"):
            return type(value)(*parts)
        return tuple(parts)
    if isinstance(value, torch.Tensor):
        return value.index_select(dim, half)
    if isinstance(value, np.ndarray):
        if isinstance(half, torch.Tensor):
            envs = half.cpu().numpy()
        else:
            envs = half
        return value[envs]
    return value


def _put(everybody: Any, half: NDArray[np.bool_], seen: Any) -> None:
    if isinstance(everybody, dict):
        for name, part in everybody.items():
            _put(part, half, seen[name])
    else:
        everybody[half] = seen


# -- off-policy


class _OffPolicy(OffPolicyAlgorithm):
    gradient_steps_owed = 0  # of the rollout before
    _owed_batch_size = 0

    def collect_rollouts(self, env: VecEnv, callback: Any, train_freq: Any, *args: Any, **kwargs: Any) -> Any:
        engine, _ = _engine(env)
        if train_freq.unit == TrainFrequencyUnit.STEP:
            left = train_freq.frequency
        else:
            left = 1

        def learn_meanwhile() -> None:
            nonlocal left
            share = -(-self.gradient_steps_owed // max(left, 1))
            left -= 1
            if share:
                self.gradient_steps_owed -= share
                super(_OffPolicy, self).train(gradient_steps=share, batch_size=self._owed_batch_size)

        try:
            return super().collect_rollouts(
                _MeanwhileVecEnv(env, learn_meanwhile), callback, train_freq, *args, **kwargs
            )
        except BaseException:
            _begin_anew(self, engine)
            raise

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        self.gradient_steps_owed += gradient_steps
        self._owed_batch_size = batch_size
        if self.num_timesteps >= self._total_timesteps:  # no further rollout
            owed = self.gradient_steps_owed
            self.gradient_steps_owed = 0
            super().train(gradient_steps=owed, batch_size=batch_size)


class _MeanwhileVecEnv(VecEnvWrapper):
    """Calls `meanwhile` in each step, when the engine was asked for it; that must not use the env."""

    def __init__(self, env: VecEnv, meanwhile: Callable[[], None]) -> None:
        super().__init__(env)
        self._meanwhile = meanwhile

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        self._meanwhile()
        return self.venv.step_wait()
