"""write_game: a folder with a page to begin a game of one's own with, for `ue-rl init --page`."""

from __future__ import annotations

from importlib.resources import files as files_of
from pathlib import Path

from ue_rl.system.errors import ConfigurationError

# As they are called in the folder, and in page/. ue_rl.js and its types are those of samples/web.
_FILES = {"index.html": "game.html", "game.js": "game.js", "ue_rl.js": "ue_rl.js", "ue_rl.d.ts": "ue_rl.d.ts"}


def write_game(folder: Path, force: bool) -> list[str]:
    """Writes the folder; returns sentences for people.

    Args:
        force: replace files of these names if they are there.

    Raises:
        ConfigurationError: one is there.
    """
    there = [str(folder / name) for name in _FILES if (folder / name).exists()]
    if there and not force:
        raise ConfigurationError(
            "there is such a file", field="page", got=there[0], cure="name another folder, or replace it: --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, packaged in _FILES.items():
        text = files_of("ue_rl.plugins.web").joinpath("page", packaged).read_text("utf-8")
        (folder / name).write_text(text, "utf-8")
    return [*(f"wrote {folder / name}" for name in _FILES), f"then: ue-rl train --page {folder}"]
