"""Films of a running engine while a policy learns in it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.gif import GifFile
from ue_rl.training.watching import from_record
from ue_rl.training.writing import WriteGuard

LENGTH = 200  # pictures of a film
_log = logging.getLogger(__name__)


class Films(BaseCallback):
    """FOLDER/step-0000020000.gif begins at that env-step: the next pictures of env 0, whatever episode it is in.

    What a film raises is for who calls: see ue_rl.training.callbacks.LookingOn.

    Args:
        folder: made with the first film. freq: env-steps between the beginnings of two films.
        warn: shows a sentence, such as that the disk is full. length: pictures of a film.
    """

    def __init__(self, folder: Path, freq: int, warn: Callable[[str], object], length: int = LENGTH) -> None:
        super().__init__()
        self._folder = folder
        self._freq = freq
        self._length = length
        self._guard = WriteGuard(folder, warn)
        self._film: GifFile | None = None
        self._path = folder
        self._left = 0  # pictures
        self._shape: Any = None
        self._films = 0  # that were due

    def _on_training_start(self) -> None:
        self._films = self.model.num_timesteps // self._freq

    def _on_step(self) -> bool:
        engine: Any = self.training_env.unwrapped
        if from_record(engine):
            return True
        if self.num_timesteps // self._freq > self._films:
            self._write()
            self._films = self.num_timesteps // self._freq
            self._left = self._length
            self._path = self._folder / f"step-{self.num_timesteps:010d}.gif"
        if self._left:
            self._left -= 1
            try:
                picture = engine.env_method("render", indices=[0])[0]
            except Exception:
                self._left = 0  # nor is the engine asked for the rest of this film
                raise
            if picture is not None and (self._film is None or picture.shape == self._shape):  # a window may be resized
                if not self._film:
                    self._film = GifFile(self._path)
                self._shape = picture.shape
                self._film.add(picture)
            if not self._left:
                self._write()
        return True

    def _on_training_end(self) -> None:
        self._write()

    def _write(self) -> None:
        film = self._film
        self._film = None
        if film is None:
            return
        with self._guard:
            self._folder.mkdir(exist_ok=True)
            with film:
                pass  # is written when it ends
            _log.info("filmed: %s", self._path)


def check_films(spec: EnvSpec, field: str) -> None:
    """Raises ConfigurationError, which names `field`: this engine sends no pictures, or Pillow is missing."""
    if "RENDER" not in spec.features:
        cure = "leave it out, or teach the engine to answer RENDER (docs/protocol.md, section 8)"
        expected = "FEATURES=RENDER in the handshake"
        raise ConfigurationError("this engine sends no pictures", field=field, expected=expected, cure=cure)
    GifFile(Path("x.gif"))  # raises without Pillow
