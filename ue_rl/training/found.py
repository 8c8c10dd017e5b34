"""What a path stands for: a model.zip, a run, one of its checkpoints, or what RLlib wrote by itself.

A run stands for its newest checkpoint that is whole; without one, for the model in its folder.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.trust.origin import MANIFEST
from ue_rl.training.config import read_config
from ue_rl.training.directory import HANDSHAKE, read_handshake
from ue_rl.training.saving.checkpoints import CheckpointStore

_GROUP = "learner_group"  # a folder of Algorithm.save_to_path


class Found(NamedTuple):
    """A saved policy.

    Attributes:
        path: the model.zip, which need not be there, or the folder that Algorithm.save_to_path wrote.
        onnx: the file to make of it: in a run's folder, or beside what was saved, whose files are those of a manifest.
        manifest: the checkpoint's, which need not be there.
    """

    path: Path
    onnx: Path
    manifest: Path

    @property
    def is_rllib(self) -> bool:
        """Is it RLlib's?"""
        return (self.path / _GROUP).is_dir()


def find(path: Path) -> Found:
    """What `path` stands for."""
    if not path.is_dir():
        at = path.parent
        if (at / MANIFEST).exists():
            onnx = _beside(at)
        else:
            onnx = path.with_suffix(".onnx")
        return Found(path, onnx, at / MANIFEST)
    newest = CheckpointStore(path / "checkpoints").last
    if newest is None:
        at = path
    else:
        at = newest.path
    rllib = next((folder for folder in (at, at / "algorithm") if (folder / _GROUP).is_dir()), None)
    in_folder = newest is not None or not (rllib or (path / MANIFEST).exists())
    model = rllib
    if not model:
        model = at / "model.zip"
    return Found(model, path / "model.onnx" if in_folder else _beside(path), at / MANIFEST)


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.onnx")


def is_of_rllib(folder: Path) -> bool:
    """Is it a folder with something of RLlib's, whole or not: a run, a checkpoint, or Algorithm.save_to_path's own?"""
    places = [folder, folder / "algorithm", *(path / "algorithm" for path in (folder / "checkpoints").glob("*_steps"))]
    return any((place / _GROUP).is_dir() for place in places)


def _near(model: Path) -> list[Path]:
    """The folder of the run that a model may belong to: it lies there, or in a checkpoint."""
    return list(model.absolute().parents)[:3]


def handshake_near(model: Path) -> EnvSpec | None:
    """The handshake of the run that a model belongs to; None for one that stands alone."""
    return next(filter(None, (read_handshake(folder / HANDSHAKE) for folder in _near(model))), None)


def config_near(model: Path) -> dict[str, Any]:
    """The config.yaml of the run that a model belongs to; {} for one that stands alone."""
    with suppress(ConfigurationError):
        for path in (folder / "config.yaml" for folder in _near(model)):
            if path.is_file():
                return read_config(path)
    return {}


def normalized_in_its_run(model: Path) -> bool:
    """Does the run that a model belongs to say that it was learnt on normalised observations?"""
    normalize = config_near(model).get("normalize")
    rewards_alone = isinstance(normalize, dict) and normalize.get("norm_obs") is False
    return bool(normalize) and not rewards_alone
