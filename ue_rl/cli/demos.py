"""`ue-rl demos`: demonstrations are recorded from a game that acts itself, and shown."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import WrongCommandLine, console, engine_argument, engine_url, timeout_option, two_columns
from ue_rl.system.errors import printable


@click.group(short_help="Record and show demonstrations.")
def demos() -> None:
    """Demonstrations: what a person, a script or a policy has played, as Minari datasets (docs/demonstrations.md)."""


@demos.command(short_help="Show a dataset.")
@click.argument("folder", metavar="FOLDER|ID")
@click.option("--gif", type=click.Path(path_type=Path), help="Film the first episodes, where pictures were recorded.")
def show(folder: str, gif: Path | None) -> None:
    """Show the episodes, returns and spaces of a Minari dataset: a FOLDER, or the ID of one that Minari has here.

    Nothing in it is run. A recording that was cut off is made a dataset of its whole episodes first.
    """
    import numpy as np

    from ue_rl.training.demonstrations.dataset import read

    found = read(folder)
    returns = np.array([episode.returned for episode in found.episodes])
    lengths = np.array([len(episode) for episode in found.episodes])
    table = two_columns(str(found.path))
    ended = sum(episode.terminated for episode in found.episodes)
    for name, value in (
        ("episodes", f"{len(returns)}: {ended} ended by themselves, {len(returns) - ended} were cut"),
        ("steps", f"{found.steps:,}; {lengths.min()} to {lengths.max()} an episode, {lengths.mean():.1f} on average"),
        ("returns", f"min {returns.min():.2f}, mean {returns.mean():.2f}, max {returns.max():.2f}"),
        ("observations", str(found.observation_space)),
        ("actions", str(found.action_space)),
        *((name, str(found.about[name])) for name in ("dataset_id", "algorithm_name", "author") if name in found.about),
    ):
        table.add_row(name, printable(value, lines=True))
    console().print(table)
    if gif is not None:
        _film(found, gif)


def _film(found: Any, path: Path) -> None:
    import numpy as np

    from ue_rl.protocol.spaces.walks import zip_leaves
    from ue_rl.training.gif import GifFile

    parts = list(zip_leaves(found.observation_space, found.episodes[0].observations))
    seen = [at for at, (space, _) in enumerate(parts) if len(space.shape or ()) == 3 and space.dtype == np.uint8]
    if not seen:
        raise WrongCommandLine("no pictures were recorded", field="gif", got=str(found.observation_space))
    with GifFile(path) as film:
        for episode in found.episodes:
            for picture in list(zip_leaves(found.observation_space, episode.observations))[seen[0]][1]:
                if picture.shape[-1] in (1, 3, 4):
                    rows = picture
                else:
                    rows = np.moveaxis(picture, 0, -1)
                if rows.shape[-1] == 1:
                    pictures = np.repeat(rows, 3, -1)
                else:
                    pictures = np.ascontiguousarray(rows[..., :3])
                film.add(pictures)


@demos.command(short_help="Record a game that acts itself.")
@click.argument("folder", type=click.Path(path_type=Path))
@engine_argument
@timeout_option(600.0, "How long a step may take: a person thinks.")
@click.option("--episodes", type=click.IntRange(1), default=10, show_default=True, help="How many episodes.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the first episodes, if the engine takes seeds.")
@click.option("--author", help="Who plays; it is written into the dataset.")
def record(
    folder: Path, episodes: int, seed: int | None, author: str | None, url: str | None, port: int | None, **given: Any
) -> None:
    """Record what a person or a script does in a game with FEATURES=DEMO into FOLDER, a new Minari dataset.

    Ctrl-C ends it; whole episodes are kept, also after kill -9.
    """
    import ue_rl
    from ue_rl.training.demonstrations.recording import record_played

    about = {}
    if author:
        about = {"author": {author}}
    with closing(ue_rl.connect(engine_url(url, port), **given)) as env:
        if seed is not None:
            env.seed(seed)
        count = record_played(env, folder, episodes, tell=console().print, **about)
    console().print(f"{count} episodes are in {folder}: see ue-rl demos show {folder}")
