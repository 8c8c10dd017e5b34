"""What a model learns with in NumPy: all that belongs to its policy as it is now."""

from __future__ import annotations

from typing import Any

from ue_rl.training.numpy_learner.distributions import distribution_of
from ue_rl.training.numpy_learner.eligibility import is_masked
from ue_rl.training.numpy_learner.networks import ActorCritic, parameter_order
from ue_rl.training.numpy_learner.observations import features_of
from ue_rl.training.numpy_learner.optimizers import FlatOptimizer, optimizer_of
from ue_rl.training.numpy_learner.parameters import FlatParameters


class Binding:
    """The arrays of a policy; made anew when the policy, its parameters or its optimizer have others.

    Args:
        policy: one that `why_not_policy` has nothing against.

    Attributes:
        flat: its parameters. networks, distribution: over them. features: of its observations.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.flat = FlatParameters(parameter_order(policy))
        self.dtype = self.flat.values.dtype
        self.networks = ActorCritic(policy, self.flat)
        distribution = distribution_of(policy, self.flat, is_masked(policy))
        features = features_of(policy.observation_space, self.dtype, policy.normalize_images)
        assert distribution is not None
        assert features is not None
        self.distribution = distribution
        self.features = features
        self._torch_optimizer = policy.optimizer
        self._optimizer: FlatOptimizer | None = None

    def holds(self, policy: Any) -> bool:
        """Is it still that of this policy?"""
        return policy is self.policy and policy.optimizer is self._torch_optimizer and self.flat.hold()

    def optimizer(self) -> FlatOptimizer:
        """Of the policy's optimizer as it is now. A model that was loaded has another state."""
        if self._optimizer is None or not self._optimizer.holds():
            self._optimizer = optimizer_of(self._torch_optimizer, self.flat)
        return self._optimizer

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a model binds its own policy: of its binding there is no copy."""
        return _nothing, ()


def _nothing() -> None:
    return None
