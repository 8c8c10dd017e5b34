"""Models that are loaded to be learnt with: where --init-from points, and every way in which a file can be wrong.

A model.zip and a .pkl may be code: ue_rl/system/trust/files.py runs it only where it is known who made them.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ue_rl.inference.statistics import EVIDENCE, NONE, places_of_statistics, statistics_of, why_needed
from ue_rl.system.errors import ConfigurationError, UeRlError, nearest
from ue_rl.system.trust import files as trust
from ue_rl.training.algorithms import OFF_POLICY
from ue_rl.training.found import config_near, find, normalized_in_its_run
from ue_rl.training.hyperparameters import applied, loadable, tuned_for
from ue_rl.training.options import TrainOptions
from ue_rl.training.saving.resuming import with_statistics

# Beside what a model applies in mid-run: what load() makes anew, where there is no run to go on with.
_MADE_ANEW = ("buffer_size", "optimize_memory_usage", "stats_window_size")


class Start(NamedTuple):
    """What a new run begins with.

    Attributes:
        model: the model.zip. normalize: its VecNormalize statistics; None where it has none.
        said: what is worth knowing of it.
    """

    model: Path
    normalize: Path | None
    said: list[str]


def find_start(options: TrainOptions) -> Start:
    """What --init-from names: a model.zip, a checkpoint's folder, or a run's (its newest checkpoint).

    Raises:
        ConfigurationError: there is none, it is no model of SB3, or its statistics are missing.
        UntrustedFile: it attacks.
    """
    source = options.init_from or ""
    path = Path(source)
    model = find(path).path
    check_model(model, "init_from")
    statistics = _statistics(options, model)
    config = config_near(model)
    said = []
    if model != path:
        said = [f"init_from: {model}"]
    if config.get("algo", options.algo) != options.algo:
        what = f"{model} was learnt with another algorithm"
        cure = f"train with --algo {config['algo']}, or without --init-from"
        raise ConfigurationError(what, field="algo", expected=config["algo"], got=options.algo, cure=cure)
    if statistics is None and options.vecnormalize is None:
        in_its_run = normalized_in_its_run(model)
        if not in_its_run:
            why = _why_needed(model, options.algo)
        else:
            why = "its config.yaml has normalize"
        if why is not None:
            raise ConfigurationError(
                f"{model} was learnt on normalized observations, and their statistics are missing",
                field="init_from",
                expected=places_of_statistics(model),
                got=f"none; {why}",
                cure="put the file beside the model, or name it: --vecnormalize FILE; where observations were not "
                f"normalized, --vecnormalize {NONE}",
            )
    if statistics is None and options.normalize:
        said.append(f"no statistics beside {model}: normalization begins anew, with what the model has never seen")
    return Start(model, statistics, said)


def _statistics(options: TrainOptions, model: Path) -> Path | None:
    """The file with the statistics of --init-from's model; None where it has none."""
    given = options.vecnormalize
    if given is None:
        return statistics_of(model)
    if given == NONE:
        return None
    if not Path(given).is_file():
        what = f"there is no file {given}"
        cure = f"check the path; where there are no statistics, say {NONE}"
        raise ConfigurationError(what, field="vecnormalize", cure=cure)
    return Path(given)


def _why_needed(model: Path, algo: str) -> str | None:
    """What in a model.zip shows that it cannot act without statistics."""
    try:
        attributes = trust.SavedModel(model).attributes(EVIDENCE)
    except UeRlError:
        raise
    except Exception:  # noqa: BLE001 - what unpickling raises is anything; loading it says so
        return None
    return why_needed(attributes, algo not in OFF_POLICY)


def check_model(path: Path, field: str | None = None) -> int:
    """The env-steps that the model.zip `path` had learnt. Nothing in it is run.

    Raises:
        ConfigurationError: it is not there, or not a model that SB3 has saved.
    """
    if not path.exists():
        expected = "a model.zip, a checkpoint or a run"
        raise ConfigurationError(f"there is no model {path}", field=field, expected=expected, cure="check the path")
    try:
        if not path.is_file():
            raise ValueError("it is not a file")  # a pipe would be read for ever
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
            if broken is not None:
                raise ValueError(f"{broken} in it is damaged")
            return int(json.loads(archive.read("data"))["num_timesteps"])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile, NotImplementedError) as error:
        what = f"{path} is not a model that Stable-Baselines3 has saved"
        cure = "begin with another model, or with another checkpoint"
        raise ConfigurationError(what, field=field, got=f"{type(error).__name__}: {error}", cure=cure) from error


def init_arguments(options: TrainOptions) -> dict[str, Any]:
    """Arguments of load() for a new run with --init-from: its seed, and the hyperparameters that can still change.

    Raises:
        ConfigurationError: a hyperparameter that the loaded networks decide, such as policy_kwargs.
    """
    allowed = (*applied(options), *_MADE_ANEW)
    for name in options.hyperparameters:
        if name not in allowed:
            what = "a model that is loaded decides it"
            cure = "leave it out, or begin without --init-from"
            raise ConfigurationError(what, field=f"hyperparameters.{name}", expected=", ".join(allowed), cure=cure)
    made = {name: value for name, value in tuned_for(options).items() if name in _MADE_ANEW}
    return {**loadable(options), **made, "seed": options.seed}


def load_model(kind: Any, path: Path, env: VecEnv, options: TrainOptions, **arguments: Any) -> BaseAlgorithm:
    """`kind.load(path)` for `env`, whose weights a new run begins with (`--init-from`).

    A resumed run loads its model in ue_rl/training/saving/resuming.py.

    Args:
        kind: SB3's class. arguments: further ones of its load(), such as device.

    Raises:
        ConfigurationError: a file that is no model, or one that does not fit the algorithm or the engine.
    """
    check_model(path)
    check_arguments(kind, arguments)
    try:
        return trust.load_model(kind, path, env=env, **arguments)  # type: ignore[no-any-return]
    except UeRlError:
        raise
    except Exception as error:  # what unpickling raises is anything
        differ = re.fullmatch(r"(Observation|Action) spaces do not match: (.*) != (.*)", str(error), re.S)
        if differ is not None:
            raise ConfigurationError(
                f"{path} is a model of another game: its {differ[1].lower()}s differ",
                field="init_from",
                expected=_short(differ[3]),
                got=_short(differ[2]),
                cure="give a model that has learnt on this engine, or leave --init-from out",
            ) from error
        raise ConfigurationError(
            f"{path} cannot be continued with {options.algo} on this engine",
            got=f"{type(error).__name__}: {error}",
            cure="the algorithm, observations and actions must be those it was trained with, and the versions of its "
            "libraries not too different",
        ) from error


def _short(space: str) -> str:
    """A space as it prints itself, without the bounds of each number."""
    return " ".join(re.sub(r"\[[^\]]*\]", "[..]", space, flags=re.S).split())


def load_statistics(path: Path, env: VecEnv) -> VecNormalize:
    """`env` in the VecNormalize that was saved as `path`.

    Raises:
        ConfigurationError: it is no such file, or one of other observations.
    """
    try:
        if not path.is_file():
            raise FileNotFoundError("there is no such file")
        return with_statistics(path, env)
    except UeRlError:
        raise
    except Exception as error:  # what unpickling raises is anything
        got = f"{type(error).__name__}: {error}"
        cure = "it is broken, or of another game or version: put the right one there, or take another checkpoint"
        raise ConfigurationError(f"{path} cannot be used with this model and engine", got=got, cure=cure) from error


def check_arguments(kind: Any, arguments: Mapping[str, Any]) -> None:
    """An algorithm's arguments by its signature and its own checks: SB3's load() takes any, and fails in mid-learning.

    Raises:
        ConfigurationError: an argument that `kind` does not know, or a value that it does not take.
    """
    parameters = inspect.signature(kind.__init__).parameters
    hints = typing.get_type_hints(kind.__init__, localns={"VecEnv": VecEnv})
    for name, value in arguments.items():
        where = f"hyperparameters.{name}"
        if name not in parameters:
            known = [key for key in parameters if key not in ("self", "policy", "env")]
            what = f"{kind.__name__.lower()} does not take these arguments"
            raise ConfigurationError(what, field=where, expected=", ".join(known), cure=nearest(name, known))
        options = _options(hints.get(name))
        allowed = [option for option in options if option in _WORDS]
        if allowed and not callable(value) and type(value) not in options and not _fits(value, allowed):
            raise ConfigurationError(
                f"{kind.__name__} does not take this value",
                field=where,
                expected=" or ".join(_WORDS[option] for option in allowed),
                got=repr(value),
            )
    policy = next(iter(kind.policy_aliases.values()))
    try:
        kind(policy, None, **{**arguments, "_init_setup_model": False})
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigurationError(
            f"{kind.__name__} does not take these arguments", field="hyperparameters", got=str(error)
        ) from error


_WORDS: dict[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a word"}


def _options(hint: Any) -> list[Any]:
    """The types of a union, or the one that it is."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [option for option in (typing.get_args(hint) if union else [hint]) if isinstance(option, type)]


def _fits(value: Any, allowed: list[Any]) -> bool:
    if isinstance(value, (tuple, dict)):
        return True  # [4, "episode"]: SB3 looks at it itself
    if isinstance(value, int) and not isinstance(value, bool):
        return int in allowed or float in allowed
    return type(value) in allowed
