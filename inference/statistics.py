"""The statistics of VecNormalize that belong to a saved model: where they lie, and how its zip shows that it has some.

What a zip shows: Stable-Baselines3 keeps in it the last observation as the policy saw it, and one as the env gave it.
On-policy algorithms keep the latter only behind a VecNormalize, from the last reset. Off-policy ones always keep it:
behind a VecNormalize of the same step, without one of the step before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NONE = "none"  # what a command's --vecnormalize takes for: there are no statistics
# The attributes of a model that `why_needed` looks at.
EVIDENCE = ("observation_space", "_last_obs", "_last_original_obs")
_OF_CHECKPOINT = re.compile(r"(.+)_(\d+)_steps")  # CheckpointCallback: PREFIX_20000_steps.zip
_OF_ZOO = re.compile(r"(.+)_\d+")  # RL Zoo: the folder ENV_1
_OUTSIDE = 0.01  # of the range between two bounds: farther out is no rounding
_STRAIGHT = 1e-4  # of the spread of a feature: what float32 leaves of a straight line
_FEWEST = 3  # envs: two points are always on a line


def statistics_names(model: Path) -> list[Path]:
    """Where the statistics may lie that belong to a model's zip; the likeliest place first.

    Those of ue_rl (MODEL_vecnormalize.pkl, and vecnormalize.pkl beside the model or in a checkpoint), those of
    Stable-Baselines3's CheckpointCallback (PREFIX_vecnormalize_20000_steps.pkl beside PREFIX_20000_steps.zip), that of
    its documentation, which RL Zoo takes for what it publishes (vec_normalize.pkl beside the model), and those of RL
    Zoo's runs (ENV_1/ENV/vecnormalize.pkl, for each model in the folder ENV_1).
    """
    names = [model.with_name(f"{model.stem}_vecnormalize.pkl")]
    checkpoint = _OF_CHECKPOINT.fullmatch(model.stem)
    if checkpoint is not None:
        names.append(model.with_name(f"{checkpoint[1]}_vecnormalize_{checkpoint[2]}_steps.pkl"))
    names.append(model.with_name("vecnormalize.pkl"))
    names.append(model.with_name("vec_normalize.pkl"))
    names.append(model.with_suffix("") / "vecnormalize.pkl")
    zoo = _OF_ZOO.fullmatch(model.absolute().parent.name)
    if zoo is not None:
        names.append(model.with_name(zoo[1]) / "vecnormalize.pkl")
    return list(dict.fromkeys(names))


def places_of_statistics(model: Path) -> str:
    """The same in words, as seen from the model's folder."""
    return " or ".join(path.relative_to(model.parent).as_posix() for path in statistics_names(model))


def statistics_of(model: Path) -> Path | None:
    """The file of them that is there; None without any."""
    return next((path for path in statistics_names(model) if path.is_file()), None)


def why_needed(attributes: Mapping[str, Any], on_policy: bool) -> str | None:
    """What shows that a policy cannot act without statistics; None where nothing does.

    Args:
        attributes: of a saved model, those of EVIDENCE, as far as it has them.
        on_policy: its algorithm is one of PPO, A2C and their like.
    """
    original = attributes.get("_last_original_obs")
    if original is None:
        return None
    seen = attributes.get("_last_obs")
    pairs = []
    if seen is not None:
        pairs = list(_parts(seen, original, attributes.get("observation_space")))
    if any(policy.dtype != env.dtype for policy, env, _ in pairs):
        return "its last observation has another type of numbers than the env's"
    if any(_is_outside(policy, space) and not _is_outside(env, space) for policy, env, space in pairs):
        return "its last observation lies outside of its observation space, and the env's inside"
    if pairs and all(np.array_equal(policy, env, equal_nan=True) for policy, env, _ in pairs):
        return None  # behind a VecNormalize of rewards alone, or none
    # VecNormalize gives float32: whatever else the policy saw was not normalised.
    if pairs and all(policy.dtype != np.float32 for policy, _, _ in pairs):
        return None
    if on_policy:
        return "it was trained behind a VecNormalize (which may have scaled rewards alone)"
    if pairs and any(_is_scaled(policy, env) for policy, env, _ in pairs):
        return "the last observations of all its envs are those of the envs, moved and scaled"
    return None


def _parts(seen: Any, original: Any, space: Any) -> Iterator[tuple[NDArray[Any], NDArray[Any], Any]]:
    """(as the policy saw it, as the env gave it, its space) of an observation, or of each part of a Dict."""
    if isinstance(seen, Mapping):
        spaces = getattr(space, "spaces", {})
        for key in seen:
            if isinstance(original, Mapping) and key in original:
                yield np.asarray(seen[key]), np.asarray(original[key]), spaces.get(key)
    elif not isinstance(original, Mapping):
        yield np.asarray(seen), np.asarray(original), space


def _is_outside(rows: NDArray[Any], space: Any) -> bool:
    """Is a number of `rows`, [envs, *shape], clearly beyond a finite bound of a Box?"""
    if not hasattr(space, "low") or rows.shape[1:] != space.shape:
        return False
    low = space.low.astype(np.float64)
    high = space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    margin = np.where(bounded, _OUTSIDE * np.where(bounded, high - low, 0), 0)
    return bool(((rows < low - margin) | (rows > high + margin))[:, bounded].any())


def _is_scaled(seen: NDArray[Any], original: NDArray[Any]) -> bool:
    """Is each feature of the one that of the other, moved and scaled, with the same figures in all envs?"""
    if seen.shape != original.shape or len(seen) < _FEWEST:
        return False
    given = original.reshape(len(original), -1).astype(np.float64)
    taken = seen.reshape(len(seen), -1).astype(np.float64)
    given = given - given.mean(axis=0)
    taken = taken - taken.mean(axis=0)
    varied = (given.std(axis=0) > 0) & (taken.std(axis=0) > 0)
    if varied.sum() < 2:
        return False
    given = given[:, varied]
    taken = taken[:, varied]
    slope = (given * taken).sum(axis=0) / (given**2).sum(axis=0)
    rest = np.abs(taken - slope * given).max(axis=0)
    return bool((slope > 0).all() and (rest <= _STRAIGHT * np.abs(taken).max(axis=0)).all() and (slope != 1).any())
