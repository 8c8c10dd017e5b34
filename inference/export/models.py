"""Models and statistics from their files: model.zip and the pickle of VecNormalize.

Both hold pickled objects, as Stable-Baselines3 writes them: ue_rl/system/trust/files.py loads those of strangers as
data.

Whoever acts with a saved model, or exports it, loads it here: its policy alone. What its training needs is neither made
(a replay buffer of a million rows, a rollout buffer, optimizers' states) nor asked for (the env of hindsight replay, a
function that was a schedule).
"""

from __future__ import annotations

import inspect
import logging
import zipfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

from ue_rl.inference.export.observations import ObservationLeaf
from ue_rl.inference.export.policies import ALGORITHMS
from ue_rl.inference.statistics import EVIDENCE, NONE, statistics_of, why_needed
from ue_rl.system.errors import ExportError, UntrustedFile
from ue_rl.system.files import require_file
from ue_rl.system.trust.files import SavedModel, load_pickle

logger = logging.getLogger(__name__)

_CONTRIB = frozenset({"TRPO", "MaskablePPO", "RecurrentPPO", "TQC", "QRDQN"})
# What a model needs to act, and to say of itself. Nothing of how it learns.
_ACTING = (
    "policy_class", "policy_kwargs", "action_space", "use_sde", "sde_sample_freq", "exploration_rate", "num_timesteps",
    *EVIDENCE,
)  # fmt: skip
# Networks of which older files have one copy; each is the policy's one extractor, under another name.
_ALIASES = ("pi_features_extractor.", "vf_features_extractor.")


def load_sb3_model(path: Path, algorithm: str | None = None) -> Any:
    """The policy in a zip file, as a model that acts: on the CPU, without an env, buffers and optimizers' states.

    Args:
        path: the file.
        algorithm: its algorithm, such as "PPO" or "ppo"; None: found out from what the file holds.

    Raises:
        ExportError: no such file, not a model, or not of a supported algorithm.
        UntrustedFile: its policy is code of somebody's own, and nobody has said that the file is trusted.
    """
    path = as_saved(path)
    if not path.exists():
        raise ExportError(f"there is no file {path}", cure="check the path")
    try:
        saved = SavedModel(path)
    except UntrustedFile:
        raise
    except (OSError, zipfile.BadZipFile, KeyError, ValueError) as error:
        what = f"{path} is not a saved model of Stable-Baselines3"
        cure = "check the path"
        if path.suffix.lower() == ".onnx":
            what = f"{path} is an ONNX file already"
            cure = "play this file as it is (ue-rl play), or give the model.zip that it was made from"
        raise ExportError(what, got=f"{type(error).__name__}: {error}", cure=cure) from error
    _refuse_jax(path, saved.data)
    guess = _guess(saved.data)
    name = {known.lower(): known for known in ALGORITHMS}.get((algorithm or guess or "").lower())
    if name is None and algorithm is not None:
        cure = "leave it out: what the file holds is found out"
        raise ExportError("no such algorithm", field="algo", expected=", ".join(ALGORITHMS), got=algorithm, cure=cure)
    if name is None:
        what = f"the algorithm of {path} is not supported or cannot be told from it"
        cure = "name the algorithm"
        raise ExportError(what, expected=", ".join(ALGORITHMS), cure=cure)
    try:
        if name in _CONTRIB:
            package = "sb3_contrib"
        else:
            package = "stable_baselines3"
        library = import_module(package)
    except ImportError as error:
        raise ExportError(f"{name} needs sb3-contrib", cure="install it with: pip install sb3-contrib") from error
    try:
        return _acting(getattr(library, name), saved.attributes(_ACTING), saved.weights())
    except UntrustedFile:
        raise
    except Exception as error:  # unpickling can raise anything
        cure = "use the library versions that it was saved with, and make its custom classes importable"
        if guess not in (None, name):
            cure = f"leave the algorithm out: the file looks like one of {guess}"
        raise ExportError(
            f"{path} could not be loaded as {name}", got=f"{type(error).__name__}: {error}", cure=cure
        ) from error


def _refuse_jax(path: Path, data: Mapping[str, Any]) -> None:
    """Raises ExportError for a model of SBX, whose zips look like those of Stable-Baselines3."""
    held = data.get("policy_class")
    module = ""
    if isinstance(held, Mapping):
        module = str(held.get("__module__", ""))
    if f"{module}.".startswith("sbx."):
        raise ExportError(
            f"{path} is a model of SBX: its policy is one of JAX, and is neither played nor exported here",
            fault="caller",
            expected="a model of Stable-Baselines3 or sb3-contrib, whose policies are torch's",
            got=module,
            cure="train with the algorithm of the same name of Stable-Baselines3",
        )


def as_saved(path: str | PathLike[str]) -> Path:
    """The file that SB3 wrote when it was told this path: it leaves the suffix out, too."""
    path = Path(path)
    zipped = path.with_name(f"{path.name}.zip")
    if not path.exists() and zipped.exists():
        return zipped
    return path


def _acting(kind: Any, attributes: dict[str, Any], weights: Mapping[str, th.Tensor]) -> Any:
    """A model of the class `kind` with these attributes and a policy of these weights, on the CPU; no trainer.

    torch's random numbers are left as they are: a run that is exported in between goes on as if it had not been.
    """
    policy_kwargs = attributes.get("policy_kwargs") or {}
    kwargs = dict(policy_kwargs)
    kwargs.pop("device", None)  # older files
    layers = kwargs.get("net_arch")
    if isinstance(layers, list) and layers and isinstance(layers[0], dict):
        kwargs["net_arch"] = layers[0]  # [{"pi": .., "vf": ..}] of SB3 before 1.8
    model = kind(attributes["policy_class"], None, device="cpu", _init_setup_model=False)
    model.__dict__.update(attributes, policy_kwargs=kwargs)
    if issubclass(kind, OnPolicyAlgorithm) and "use_sde" in inspect.signature(kind.__init__).parameters:
        kwargs = {**kwargs, "use_sde": model.use_sde}  # off-policy algorithms have it among policy_kwargs
    with th.random.fork_rng(devices=[]):
        policy = model.policy_class(
            model.observation_space,
            model.action_space,
            lambda _: 0.0,  # the learning rate of an optimizer that takes no step
            **kwargs,
        ).to("cpu")
        missing, unknown = policy.load_state_dict(weights, strict=False)
        aliases = _ALIASES if getattr(policy, "share_features_extractor", False) else ()
        if unknown or not all(name.startswith(aliases) for name in missing):
            policy.load_state_dict(weights, strict=True)  # says what is wrong
        policy.set_training_mode(False)
        if getattr(model, "use_sde", False):
            policy.reset_noise()
    model.policy = policy
    if hasattr(model, "_create_aliases"):
        model._create_aliases()
    return model


def _guess(data: dict[str, Any]) -> str | None:
    """The algorithm whose attributes these are; PPO, A2C and TRPO share a policy class, which so tells too little."""
    module = str(data.get("policy_class", {}).get("__module__", ""))
    if "n_quantiles" in data.get("policy_kwargs", {}) or "qrdqn" in module:
        return "QRDQN"
    if "top_quantiles_to_drop_per_net" in data:
        return "TQC"
    if "exploration_fraction" in data:
        return "DQN"
    if "target_policy_noise" in data:
        if data.get("policy_kwargs", {}).get("n_critics") == 1:
            return "DDPG"
        return "TD3"
    if "target_entropy" in data:
        # CrossQ has a delay
        if "policy_delay" in data:
            return None
        return "SAC"
    if "cg_max_steps" in data:
        return "TRPO"
    if "clip_range" in data:
        if "recurrent" in module or "_last_lstm_states" in data:
            return "RecurrentPPO"
        if "maskable" in module:
            return "MaskablePPO"
        return "PPO"
    if "gae_lambda" in data and "normalize_advantage" in data:
        return "A2C"
    return None


def on_cpu(model: Any) -> Any:
    """The model itself if it is on the CPU, else a model there that acts as it does, and cannot learn.

    A GPU may compute convolutions in TF32, a thousand times coarser than float32: a comparison is useless.
    """
    if model.policy.device.type == "cpu":
        return model
    policy = getattr(model.policy, "_orig_mod", model.policy)  # of one that torch has compiled
    weights = {name: tensor.detach().cpu() for name, tensor in policy.state_dict().items()}
    attributes = {name: getattr(model, name) for name in _ACTING if hasattr(model, name)}
    return _acting(type(model), attributes, weights)


def load_vec_normalize(source: VecNormalize | str | PathLike[str] | None) -> VecNormalize | None:
    """The statistics themselves, or from the file that VecNormalize.save wrote.

    Raises:
        ExportError: the file is missing or holds something else.
    """
    if source is None or isinstance(source, VecNormalize):
        return source
    try:
        require_file(source)
        found = load_pickle(Path(source))
    except UntrustedFile:
        raise
    except Exception as error:  # unpickling can raise anything
        what = f"{source} cannot be read as VecNormalize statistics"
        cure = "pass the file that VecNormalize.save wrote"
        raise ExportError(what, got=f"{type(error).__name__}: {error}", cure=cure) from error
    if not isinstance(found, VecNormalize):
        raise ExportError(f"{source} holds no VecNormalize", got=type(found).__name__)
    return found


def choose_vec_normalize(model: Any, given: Any) -> VecNormalize | None:
    """The statistics that a policy acts with.

    Args:
        model: a model, with or without its env.
        given: VecNormalize or path: that one; None: the model's own, if its env has one; False: none.

    Returns:
        None where observations are not normalised.

    Raises:
        ExportError: a file that holds none, two of them around the model's env, or the model needs some and none are
            given.
    """
    if given is False:
        return None
    own: VecNormalize | None
    if given is None:
        own = model.get_vec_normalize_env()
    else:
        own = load_vec_normalize(given)
    around = sum(isinstance(wrapper, VecNormalize) and wrapper.norm_obs for wrapper in _wrappers(model.get_env()))
    if around > 1:
        raise ExportError(
            "two VecNormalize, one around the other: a file holds the statistics of one",
            field="vec_normalize",
            got=f"{around} that normalise observations",
            cure="train with one; norm_obs=False where the other is for rewards",
        )
    if own is not None:
        if own.norm_obs and given is None:
            logger.info("normalisation: taken from the model's own env")
        if own.norm_obs:
            return own
        return None
    if model.get_env() is None:
        _require_no_statistics(model)
    return None


def vec_normalize_of(path: Path, given: Any) -> Any:
    """What is meant by statistics that are `given` for the model.zip `path`: None stands for the file beside it."""
    if given is None:
        return statistics_of(as_saved(path))
    return given


def _require_no_statistics(model: Any) -> None:
    attributes = {name: getattr(model, name, None) for name in EVIDENCE}
    why = why_needed(attributes, isinstance(model, OnPolicyAlgorithm))
    if why is not None:
        raise ExportError(
            "the statistics of VecNormalize are missing that the policy was trained with: without them it acts on "
            "other observations than it has learnt",
            field="vec_normalize",
            expected="the file that VecNormalize.save wrote",
            got=f"none; {why}",
            cure=f"give them with --vecnormalize FILE, in Python vec_normalize=FILE; where observations were not "
            f"normalised, say --vecnormalize {NONE}, in Python vec_normalize=False",
        )


def _wrappers(env: Any) -> Iterator[VecEnvWrapper]:
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv


def buffered_rows(
    model: Any, leaves: list[ObservationLeaf], vec_normalize: VecNormalize | None, limit: int = 512
) -> list[NDArray[np.float32]] | None:
    """Observations of the env that the model still holds, as the engine sent them; None if it holds none.

    A replay buffer keeps them as they came, a rollout buffer as they were normalised.

    Args:
        model: the model.
        leaves: the parts of its observation.
        vec_normalize: the statistics that the rollouts were normalised with.
        limit: take this many, evenly spaced.

    Returns:
        float32 [n, *leaf.shape] for each leaf.
    """
    replay = getattr(model, "replay_buffer", None)
    rollout = getattr(model, "rollout_buffer", None)
    if replay is not None:
        buffer = replay
    else:
        buffer = rollout
    if buffer is None or not buffer.size():
        return None
    held: dict[str | None, NDArray[Any]] = {}
    for leaf in leaves:
        if leaf.key is None:
            whole = buffer.observations
        else:
            whole = buffer.observations[leaf.key]
        # [steps, envs, ...], of which size() steps are filled; a full rollout may have been flattened by its training.
        if buffer.full:
            filled = whole
        else:
            filled = whole[: buffer.size()]
        shape = leaf.policy_space.shape
        if not shape:
            shape = leaf.shape
        rows = filled.reshape(-1, *shape)
        held[leaf.key] = rows[np.linspace(0, len(rows) - 1, min(limit, len(rows)), dtype=np.intp)]
    if replay is None and vec_normalize is not None:
        raw: Any = vec_normalize.unnormalize_obs(held.get(None, held))  # type: ignore[arg-type]
        if None in held:
            held = {None: raw}
        else:
            held = raw
    return [_as_sent(held[leaf.key], leaf) for leaf in leaves]


def _as_sent(rows: NDArray[Any], leaf: ObservationLeaf) -> NDArray[np.float32]:
    """float32 [n, *leaf.shape] as the engine sends them, of rows as the policy takes them."""
    if leaf.transposed:
        ordered = np.moveaxis(rows, 1, -1)
    else:
        ordered = rows
    sent = np.ascontiguousarray(ordered, np.float32)
    if leaf.noted is not None:
        rows = leaf.noted.form.from_trained(leaf.noted, np)(sent.reshape(len(sent), -1))
        sent = np.ascontiguousarray(rows, np.float32)
    return sent.reshape(-1, *leaf.shape)
