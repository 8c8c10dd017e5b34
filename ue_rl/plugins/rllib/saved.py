"""RLlib's checkpoints to ONNX files. A checkpoint is pickles, which run what is in them: only trusted ones are read.

    RUN/                                    of `ue-rl train --backend rllib`: its newest checkpoint
    RUN/checkpoints/0007_350000_steps/
    ANY/                                    what Algorithm.save_to_path wrote: ANY/learner_group/learner/rl_module/...

Source: ray.rllib.utils.checkpoints (Ray 2.52 to 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import pickle
from os import PathLike
from pathlib import Path
from typing import Any

from ray.rllib.core.rl_module.rl_module import RLModule

from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.inference.export.file import ExportReport, check_libraries
from ue_rl.plugins.rllib.exporting import export_rl_module
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ExportError
from ue_rl.system.trust.files import judged
from ue_rl.training.found import Found, find

_ACTIONS = ("normalize_actions", "clip_actions")
_CLASS = "class_and_ctor_args.pkl"


def load_and_export_rl_module(
    folder: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    *,
    policy: str | None = None,
    spec: EnvSpec | None = None,
    **options: Any,
) -> ExportReport:
    """Export a module of a checkpoint, with the `normalize_actions` and `clip_actions` that it was trained with.

    Args:
        folder: a run of `ue-rl train --backend rllib`, one of its checkpoints, or what Algorithm.save_to_path wrote.
        path: the file to write; None: model.onnx in a run, FOLDER.onnx beside a checkpoint.
        policy: which module, where there are several.
        spec: the engine's handshake: its spaces and names; None: the module's own spaces.
        options: as export_rl_module.

    Raises:
        UntrustedFile: it was not made here, and nobody said that it is trusted.
        ExportError: as export_rl_module; there is no such checkpoint, it cannot be read, or it was trained with
            connectors of its own, which a file cannot hold.
    """
    check_libraries()
    found = _found(Path(folder).absolute())
    with judged(found.path, f"the pickles of RLlib in {found.path}") as where:
        kind, config = _config_of(where)
        for name in ("env_to_module_connector", "module_to_env_connector"):
            if config.get(f"_{name}") is not None:
                what = "the policy was trained behind a connector of its own, which a file cannot hold"
                cure = "export the module with ue_rl.plugins.rllib.export_rl_module; the game connects as it did"
                raise ExportError(what, field=name, got=str(folder), cure=cure)
        module = _module_of(where / "learner_group" / "learner" / "rl_module", policy)
    if path is not None:
        target = path
    else:
        target = found.onnx
    if spec is None:
        observed = module.observation_space
        acted = module.action_space
    else:
        observed = observation_space(spec)
        acted = action_space(spec)
    return export_rl_module(
        module,
        target,
        observed,
        acted,
        **{name: config[name] for name in _ACTIONS},
        algorithm=kind,
        num_timesteps=_steps(found.manifest),
        spec=spec,
        **options,
    )


def _found(folder: Path) -> Found:
    found = find(folder)
    if found.is_rllib:
        return found
    if (folder / "checkpoints").is_dir():
        cure = "train on with --resume until one is saved"
        raise ExportError("the run has no checkpoint that can be read", got=str(folder), cure=cure)
    expected = "a folder with learner_group/, as Algorithm.save_to_path writes it (the new API stack)"
    raise ExportError("not a checkpoint of RLlib's", got=str(folder), expected=expected)


def _steps(manifest: Path) -> int:
    try:
        return int(json.loads(manifest.read_text("utf-8"))["env_steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # what RLlib wrote by itself has no manifest


def _config_of(where: Path) -> tuple[str, dict[str, Any]]:
    """(name of the algorithm, its AlgorithmConfig.get_state())."""
    try:
        made = pickle.loads((where / _CLASS).read_bytes())
        (config, *_), _ = made["ctor_args_and_kwargs"]
        return made["class"].__name__, {**config, **{name: bool(config[name]) for name in _ACTIONS}}
    except Exception as error:  # unpickling can raise anything
        raise _unreadable(where / _CLASS, error) from error


def _module_of(folder: Path, policy: str | None) -> Any:
    names = []
    if folder.is_dir():
        names = sorted(path.name for path in folder.iterdir() if (path / _CLASS).is_file())
    if not (policy is None and len(names) == 1):
        name = policy
    else:
        name = names[0]
    if name not in names:
        expected = ", ".join(names)
        if not expected:
            expected = "a checkpoint with one"
        raise ExportError(
            "a file holds one of the checkpoint's policies",
            field="policy",
            expected=expected,
            got=policy,
            cure="name it: --policy NAME",
        )
    try:
        return RLModule.from_checkpoint(folder / str(name))
    except Exception as error:  # unpickling can raise anything
        raise _unreadable(folder / str(name), error) from error


def _unreadable(path: Path, error: Exception) -> ExportError:
    cure = "use the versions of Ray and torch that it was saved with, and make its classes importable"
    return ExportError(f"{path} cannot be read", got=f"{type(error).__name__}: {error}", cure=cure)
