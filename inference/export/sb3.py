"""Sb3Inference: a Stable-Baselines3 model behind the InferenceInterface (needs torch).

For everything that plays a policy and should take a model.zip as well as an .onnx file. It answers with
predict(deterministic=True), normalised if statistics are given: it is what an exported file is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.interface import ModelPath, Observations, State, StatefulInference, missing_masks
from ue_rl.inference.metadata import space_size, space_to_json, tree_from_json
from ue_rl.protocol.spaces.tree import Space, choices
from ue_rl.system.errors import ExportError, ModelLoadError, ModelMismatch
from ue_rl.system.lazy import named_if_missing

_STATE_NAMES = ("state_h", "state_c")


class Sb3Inference(StatefulInference):
    """A model of Stable-Baselines3 or sb3-contrib.

    Args:
        model: the model, or the path of its zip file; None to call load_model later. One that Stable-Baselines3 alone
            trained on choices that do not begin with 0 is refused: it counts them from 0, whatever its space says.
        vec_normalize: a VecNormalize, or the path of a saved one; None: the one around the model's own env, or the file
            beside its zip, if there is one; False: none, though the model shows that it needs some.
        deterministic: as in predict().
        algorithm: the algorithm of a zip file, such as "PPO"; None: found out from the file.
        optional_masks: a policy of MaskablePPO may be asked without masks, as predict() may: then every choice is
            legal. False: that is refused, as it is by an exported file.
    """

    def __init__(
        self,
        model: Any = None,
        vec_normalize: Any = None,
        *,
        deterministic: bool = True,
        algorithm: str | None = None,
        optional_masks: bool = False,
    ) -> None:
        super().__init__()
        self._given = vec_normalize
        self._stats: Any = None
        self._deterministic = deterministic
        self._algorithm = algorithm
        self._optional_masks = optional_masks
        self._model: Any = None
        self._keys: dict[str, str] = {}
        if isinstance(model, (str, Path)):
            self.load_model(model)
        elif model is not None:
            self._use(model, vec_normalize)

    def load_model(self, path: ModelPath) -> None:
        """Load a model.zip; raises ModelLoadError, or ModelMismatch where its choices are not the engine's.

        Without torch or Stable-Baselines3 it raises MissingPackage.
        """
        with named_if_missing("Sb3Inference"):
            from ue_rl.inference.export.models import load_sb3_model, vec_normalize_of

        try:
            model = load_sb3_model(Path(path), self._algorithm)
        except ExportError as error:
            raise ModelLoadError(error.message, **error.facts()) from error
        self._use(model, vec_normalize_of(Path(path), self._given))
        self.reset()

    def _use(self, model: Any, vec_normalize: Any) -> None:
        from ue_rl.inference.export.models import choose_vec_normalize
        from ue_rl.inference.export.observations import check_starts, keys_of

        try:
            statistics = choose_vec_normalize(model, vec_normalize)
        except ExportError as error:
            raise ModelLoadError(error.message, **error.facts()) from error
        try:
            check_starts(model.action_space, "action")
            check_starts(model.observation_space, "observation")
        except ExportError as error:
            raise ModelMismatch(error.message, **error.facts()) from error
        self._keys = keys_of(model.observation_space)
        self._stats = statistics
        self._model = model

    def is_model_loaded(self) -> bool:
        """Whether a model is in use."""
        return self._model is not None

    @property
    def obs_size(self) -> int | None:
        """Numbers per observation, over all keys."""
        return space_size(space_to_json(self._model.observation_space)) if self._model else None

    @property
    def act_size(self) -> int | None:
        """Numbers per action."""
        return space_size(space_to_json(self._model.action_space)) if self._model else None

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """See InferenceInterface.spaces; predict() itself refuses other observations."""
        return None, tree_from_json(space_to_json(self._model.action_space)) if self._model else None

    @property
    def takes_masks(self) -> bool:
        """Whether the policy heeds action masks: MaskablePPO's does."""
        return any(cls.__name__ == "MaskablePPO" for cls in type(self._model).__mro__)

    @property
    def needs_masks(self) -> bool:
        """Whether a call without action masks is refused."""
        return self.takes_masks and not self._optional_masks

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy carries a state from step to step: RecurrentPPO's does."""
        return hasattr(getattr(self._model, "policy", None), "lstm_actor")

    def run_inference(
        self, observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """Actions for a batch of observations in the shape of the model's space; see InferenceInterface.

        Raises:
            ModelMismatch: other observations than the model's, or no masks for a policy that needs them.
        """
        if self.takes_masks:  # no recurrent policy does
            return self._step(observations, None, np.ones(_rows(observations), np.bool_), action_masks)[0]
        return self._step_rows(observations, _rows(observations))

    def _step(
        self, observations: Any, state: State | None, starts: NDArray[np.bool_], masks: NDArray[Any] | None = None
    ) -> tuple[NDArray[np.float32], State]:
        if self._model is None:
            raise ModelLoadError("no model is loaded", cure="call load_model first")
        if masks is None and self.needs_masks:
            raise missing_masks("action_masks", (_rows(observations), _mask_size(self._model.action_space)))
        obs: Any = observations
        if isinstance(observations, Mapping):  # by the engine's names, or by those that UnrealVecEnv gives them
            obs = {self._keys.get(name, name): part for name, part in observations.items()}
        states = () if state is None else [state[name] for name in _STATE_NAMES]
        try:
            actions, after = predict(self._model, self._stats, obs, states, starts, masks, self._deterministic)
        except (ValueError, RuntimeError) as error:
            raise ModelMismatch("the model cannot take these observations", got=str(error)) from error
        return np.asarray(actions, np.float32), dict(zip(_STATE_NAMES, after, strict=False))


def predict(
    model: Any,
    stats: Any,
    obs: Any,
    states: Sequence[NDArray[Any]],
    starts: NDArray[Any],
    masks: NDArray[Any] | None = None,
    deterministic: bool = True,
) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """What predict() makes of an engine's observations: the actions as an engine gets them, and the new states.

    Args:
        stats: a VecNormalize or None. states: (h, c) of a recurrent policy, else none; the rows come first.
        starts: [N], where an episode begins. masks: None where the policy takes none.
    """
    from ue_rl.inference.export.observations import starts_of

    if stats is not None:
        obs = stats.normalize_obs(obs)
    more = {}
    if masks is not None:
        more = {"action_masks": np.asarray(masks, np.bool_)}
    given = tuple(array.swapaxes(0, 1) for array in states) or None  # sb3-contrib has the rows on the second axis
    actions, after = model.predict(
        obs, state=given, episode_start=np.asarray(starts, np.bool_), deterministic=deterministic, **more
    )
    actions = np.asarray(actions).reshape(len(starts), -1)
    space = model.action_space
    if hasattr(space, "decode"):  # a HybridBox
        actions = space.decode(actions)
    if first := starts_of(space):
        actions = actions + np.array(first)
    return actions, [array.swapaxes(0, 1) for array in after or ()]


def _mask_size(space: Any) -> int:
    """How many flags a row of action masks has for this action space of Gymnasium's: one for each choice."""
    counts = choices(tree_from_json(space_to_json(space)))
    return int(counts.sum())


def _rows(observations: Observations) -> int:
    if isinstance(observations, Mapping):
        first = next(iter(observations.values()))
    else:
        first = observations
    return len(first)
