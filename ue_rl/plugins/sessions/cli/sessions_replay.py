"""`ue-rl sessions replay`: plays what `ue-rl sessions --record` has written."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import PortNumber, cannot_listen, json_object, show_log


@click.command(short_help="Play a session that was recorded.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--gif", type=click.Path(path_type=Path), help="Film it, where the game draws. Needs Pillow.")
@click.option("--tcp", type=PortNumber(0), metavar="PORT", help="Serve it as an engine of one env.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, with --tcp.")
@click.option(
    "--kwargs", default="{}", metavar="JSON", help="Arguments for the game's class beside those that were recorded."
)
def replay(file: Path, gif: Path | None, tcp: int | None, host: str, kwargs: str) -> None:
    """Play FILE, which `ue-rl sessions --record` has written, and compare each observation with what was recorded.

    A file that was cut off or damaged is played to its last whole message.
    """
    arguments: dict[str, Any] = json_object(kwargs, "kwargs")
    from ue_rl.plugins.sessions.realtime.player import ReplayBridge, ReplayPlayer
    from ue_rl.plugins.sessions.realtime.replay import Replay

    recorded = Replay.load(file)
    if gif is not None and ":" not in recorded.header["game"]:  # a Gymnasium id
        arguments.setdefault("render_mode", "rgb_array")
    with ReplayPlayer(recorded, arguments) as player, ExitStack() as stack:
        if tcp is not None:
            from ue_rl.bridges import serve

            show_log("ue_rl.bridges.tcp.server")
            try:
                serve(ReplayBridge(player), host, tcp, ready=lambda at: click.echo(f"{file}: {at.url}  (Ctrl-C stops)"))
            except OSError as error:
                raise cannot_listen(f"{host}:{tcp}", error, "choose another --tcp") from error
            return
        film: Any = None
        if gif is not None:
            from ue_rl.training.gif import GifFile

            film = stack.enter_context(GifFile(gif))
        ticks = 0
        total = 0.0
        for seen in player.play():
            ticks += seen.tick > 0
            total += seen.reward
            if film is not None and not film.full and (picture := player.session.render().result()) is not None:
                film.add(picture)
        cut = ""
        if recorded.end:
            cut = f"; {recorded.end}"
        game = recorded.header["game"]
        click.echo(f"{game}: {recorded.episodes} episodes, {ticks} ticks, return {total:g}, equal to the bit{cut}")
