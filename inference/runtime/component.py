"""InferenceComponent: one agent that acts by a policy, ticked by any Python loop.

The counterpart of the Unreal plugin's `UInferenceModelActorComponents`: state -> model -> action -> wait until the
action has ended -> next. Subclass it and answer three questions (create_state, handle_actions, is_action_running), or
call tick(observation) and take the action from it. Several components may share one InferenceInterface as long as its
policy is not recurrent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.interface import InferenceInterface
from ue_rl.system.errors import ConfigurationError, ModelLoadError

Vector = NDArray[np.float32]


class InferenceComponent:
    """An agent. Not thread-safe: one loop ticks it.

    Args:
        interface: the policy; None to call set_inference_interface later.
    """

    def __init__(self, interface: InferenceInterface | None = None) -> None:
        self._interface: InferenceInterface | None = None
        self._running = False
        self._waiting = False
        if interface is not None:
            self.set_inference_interface(interface)

    # -- what a game answers ---------------------------------------------------------------------------------------

    def create_state(self) -> Any:
        """The observation now: numbers, [obs_size]."""
        raise ConfigurationError(
            "the component has no observation", cure="override create_state, or call tick(observation)"
        )

    def create_mask(self) -> Any:
        """Flags of the legal choices, [choices]. Asked after create_state, if the policy heeds it.

        None: all are, which a policy that needs masks does not take for an answer.
        """
        return None

    def handle_actions(self, action: Vector) -> None:
        """Begin the action, float32 [act_size]."""

    def is_action_running(self) -> bool:
        """Whether the action that was begun still goes on; no new one is asked for until it has ended."""
        return False

    # -- what the loop calls ---------------------------------------------------------------------------------------

    def set_inference_interface(self, interface: InferenceInterface) -> None:
        """Act by this policy from the next tick on; allowed while running.

        Raises:
            ModelLoadError: no model is loaded in it; the policy before stays.
        """
        if not interface.is_model_loaded():
            raise ModelLoadError("the interface has no model", cure="call its load_model first")
        self._interface = interface
        interface.reset()

    @property
    def is_running(self) -> bool:
        """Whether ticks act."""
        return self._running

    def start_inference(self) -> None:
        """From now on ticks act; a new episode begins.

        Raises:
            ModelLoadError: no policy was set.
        """
        if self._interface is None:
            raise ModelLoadError("no policy was set", cure="call set_inference_interface first")
        self._interface.reset()
        self._waiting = False
        self._running = True

    def stop_inference(self) -> None:
        """From now on ticks do nothing. Idempotent."""
        self._running = self._waiting = False

    def reset(self) -> None:
        """A new episode begins: the action under way is forgotten, and a recurrent policy's state."""
        self._waiting = False
        if self._interface is not None:
            self._interface.reset()

    def tick(self, observation: NDArray[Any] | Sequence[float] | Mapping[str, Any] | None = None) -> Vector | None:
        """One frame.

        The tick in which the action is seen to have ended begins the next one (the plugin lets one frame go by).

        Args:
            observation: [obs_size], or a mapping of keys for a Dict observation; None: create_state is asked.

        Returns:
            The action that was begun, float32 [act_size]; None if stopped or if the last one still goes on.

        Raises:
            ModelMismatch, ModelOutputError, ConfigurationError: as OnnxInference.run_inference; the component goes on.
        """
        if not self._running or self._interface is None:
            return None
        if self._waiting and self.is_action_running():
            return None
        self._waiting = False  # stays so if what follows raises: the next tick then tries again
        if observation is None:
            state = self.create_state()
        else:
            state = observation
        batch: Any
        if isinstance(state, Mapping):
            batch = {key: np.asarray(value, np.float32)[None] for key, value in state.items()}
        else:
            batch = np.asarray(state, np.float32)[None]
        mask = None
        if self._interface.takes_masks:
            mask = self.create_mask()
        action: Vector
        if mask is None and self._interface.needs_masks:
            raise ConfigurationError(
                "the policy must be told which choices are legal, and the component has no mask",
                field="action_masks",
                cure="override create_mask, or export the model with optional_masks=True",
            )
        if mask is None:
            action = self._interface.run_inference(batch)[0]
        else:
            action = self._interface.run_inference_for([0], batch, action_masks=np.asarray(mask, np.float32)[None])[0]
        self._waiting = True
        self.handle_actions(action)
        return action
