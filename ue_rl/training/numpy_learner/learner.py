"""numpy_learner: PPO, A2C and MaskablePPO whose rollouts and updates are NumPy."""

from __future__ import annotations

import functools
import warnings
from typing import Any, TypeVar, cast

import numpy as np
from stable_baselines3 import A2C
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.numpy_learner.binding import Binding
from ue_rl.training.numpy_learner.eligibility import base_of, is_masked, why_torch
from ue_rl.training.numpy_learner.rollouts import collect_rollouts
from ue_rl.training.numpy_learner.updates import train_a2c, train_ppo

Algorithm = TypeVar("Algorithm", bound=OnPolicyAlgorithm)


def numpy_learner(algorithm: type[Algorithm]) -> type[Algorithm]:
    """The algorithm, learning in NumPy: `numpy_learner(PPO)("MlpPolicy", env).learn(100_000)`.

    For small networks on the CPU, where most of a run's time goes into torch's calls. The policy is the algorithm's
    own, and its parameters are views of NumPy's arrays: `predict`, saving, loading, the export and the optimizer's
    state are as ever, and torch can go on with the model. The logged names and callbacks' locals are the algorithm's.
    A seed gives the same run again, but another one than torch's, because NumPy's generator draws the actions.
    Beside other busy processes set OPENBLAS_NUM_THREADS=1 before NumPy is imported, as `ue-rl train` does by itself.

    What NumPy does not take is learnt with torch, as the algorithm does it, with one warning that says why: CnnPolicy,
    feature extractors with parameters, policies of your own, use_sde, overlap, a GPU, optimizers other than Adam and
    RMSprop, activation functions other than Tanh, ReLU, LeakyReLU and ELU. `model.torch_learns` has the reason.

    Args:
        algorithm: PPO, A2C, MaskablePPO, or a subclass that leaves `train` and `collect_rollouts` alone.

    Raises:
        ConfigurationError: another algorithm.
    """
    if issubclass(algorithm, NumpyLearning):
        return algorithm
    if not isinstance(algorithm, type) or base_of(algorithm) is None:
        raise ConfigurationError(
            "NumPy does not learn this algorithm",
            field="learner",
            expected="PPO, A2C or MaskablePPO",
            got=getattr(algorithm, "__name__", algorithm),
            cure="use the algorithm as it is: torch learns it",
        )
    return cast("type[Algorithm]", _made(algorithm))


@functools.cache
def _made(algorithm: type[Any]) -> type[Any]:
    return type(algorithm.__name__, (NumpyLearning, algorithm), {"__doc__": algorithm.__doc__})


class NumpyLearning(OnPolicyAlgorithm):
    """Stands before the algorithm in the class that `numpy_learner` makes."""

    _binding: Binding | None = None
    _warned = False
    _left_to_torch = False

    @property
    def torch_learns(self) -> str | None:
        """Why torch learns this model; None: NumPy does."""
        kinds = type(self).__mro__
        return why_torch(self, kinds[kinds.index(NumpyLearning) + 1 :])

    def leave_to_torch(self) -> None:
        """Torch learns from here on, though NumPy could; nothing is said."""
        self._left_to_torch = True

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_binding", "_warned", "_left_to_torch"]

    def _bound(self) -> Binding | None:
        """The policy's arrays; None where torch learns."""
        if self._left_to_torch:
            return None
        if self._binding is not None and self._binding.holds(self.policy):
            return self._binding
        reason = self.torch_learns
        if reason is None:
            self._binding = Binding(self.policy)
            return self._binding
        self._binding = None
        if not self._warned:
            self._warned = True
            warnings.warn(f"{type(self).__name__} is not learnt in NumPy, but with torch: {reason}", stacklevel=2)
        return None

    def collect_rollouts(
        self,
        env: VecEnv,
        callback: Any,
        rollout_buffer: Any,
        n_rollout_steps: int,
        *args: Any,
        **kwargs: Any,
    ) -> bool:
        """See OnPolicyAlgorithm; MaskablePPO gives `use_masking`, too."""
        binding = self._bound()
        if binding is None:
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps, *args, **kwargs)
        masked = False
        if is_masked(self.policy):
            masked = _use_masking(*args, **kwargs)
        return collect_rollouts(self, binding, env, callback, rollout_buffer, n_rollout_steps, masked)

    def train(self) -> None:
        """See OnPolicyAlgorithm."""
        binding = self._bound()
        if binding is None:
            super().train()
            return
        if isinstance(self, A2C):
            update = train_a2c
        else:
            update = train_ppo
        with np.errstate(all="ignore"):  # torch, too, says nothing where numbers overflow
            update(self, binding)


def _use_masking(use_masking: bool = True) -> bool:
    """MaskablePPO's argument of that name, wherever it stands."""
    return use_masking
