"""SingleEnvBridge: one env, the plugin's callbacks without `_for_env`; speaks SINGLE or RLBASE, as its spec says."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.multi_env import Mask, MultiEnvBridge, State, accepted_keywords
from ue_rl.spec import EnvSpec, EnvType


class SingleEnvBridge(MultiEnvBridge):
    """One env; implement the five callbacks.

    Args:
        spec: env_type SINGLE or RLBASE.
    """

    _env_type = EnvType.SINGLE

    def __init__(self, spec: EnvSpec | None = None) -> None:
        super().__init__(spec)
        self._reset_takes = accepted_keywords(self.handle_reset)

    @abc.abstractmethod
    def create_state_string(self) -> State:
        """The observation: obs_size floats, or a ready state string in any of the plugin's spellings."""

    @abc.abstractmethod
    def calculate_reward(self) -> tuple[float, bool] | tuple[float, bool, bool]:
        """(reward, done) or (reward, done, truncated)."""

    @abc.abstractmethod
    def handle_reset(self) -> None:
        """Starts a new episode. Declare `seed=None` and `options=None` to be given those of the request."""

    @abc.abstractmethod
    def handle_response_actions(self, actions: NDArray[np.float32]) -> None:
        """Applies an action, float32 [act_size]."""

    def is_action_running(self) -> bool:
        """Does the applied action still run?"""
        return False

    def create_action_mask(self) -> Mask | None:
        """Which choices are legal now, see MultiEnvBridge.create_action_mask_for_env; None: all are."""
        return None

    @property
    def _makes_masks(self) -> bool:
        return type(self).create_action_mask is not SingleEnvBridge.create_action_mask

    def create_action_mask_for_env(self, env_id: int) -> Mask | None:
        """The one env's."""
        return self.create_action_mask()

    def create_state_string_for_env(self, env_id: int) -> State:
        """The one env's."""
        return self.create_state_string()

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool] | tuple[float, bool, bool]:
        """The one env's."""
        return self.calculate_reward()

    def handle_reset_for_env(self, env_id: int, **given: Any) -> None:
        """The one env's."""
        self.handle_reset(**given)

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        """The one env's."""
        self.handle_response_actions(actions)

    def is_action_running_for_env(self, env_id: int) -> bool:
        """The one env's."""
        return self.is_action_running()
