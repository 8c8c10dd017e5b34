"""`ue-rl replay`: a trace as an engine that answers, or as a trainer that asks, as it was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ue_rl.cli import completion
from ue_rl.cli.common import PortNumber, engine_url, listening_url, port_url, show_log, timeout_option
from ue_rl.cli.serve import host_at

if TYPE_CHECKING:
    from ue_rl.system.errors import ReplayInvalid


@click.command(short_help="Answer, or ask, as a trace was recorded.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.argument("url", required=False, metavar="[URL]", shell_complete=completion.url)
@click.option(
    "--port", type=PortNumber(0), metavar="PORT", help="Short for --listen tcp://127.0.0.1:PORT; 0: a free one."
)
@click.option("--listen", metavar="URL", help="Where the engine listens.  [default: tcp://127.0.0.1:7777]")
@click.option("--shm", is_flag=True, help="Offer shared memory to trainers on this machine.")
@timeout_option(30.0, "How long a step of the engine at URL may take.")
def replay(file: Path, url: str | None, port: int | None, listen: str | None, shm: bool, timeout: float) -> int:
    """Play FILE, which --trace has written, as an engine; or, with the URL of an engine, as a trainer.

    Whatever the other side does otherwise than it was recorded is named: env, step, field, expected, got. The exit code
    is 1 then. As an engine it serves one trainer after the other, until Ctrl-C.
    """
    if url is not None and (port is not None or listen is not None or shm):
        what = "URL is an engine that is asked; --port, --listen and --shm are for answering: give one of them"
        raise click.UsageError(what)
    if port is not None and listen is not None:
        raise click.UsageError(f"--port {port} is short for --listen {port_url(port)}: leave one out")
    from ue_rl.devtools.recording import ReplayedGame, Trace, replay_trainer

    trace = Trace(file)
    if url is not None:
        from ue_rl.connections.dialling import open_transport

        transport: Any = open_transport(engine_url(url), timeout=timeout)
        try:
            played = replay_trainer(trace, transport)
        finally:
            transport.close()
        cut = ""
        if trace.end:
            cut = f"; {trace.end}"
        click.echo(f"{played.env_steps:,} env-steps and {played.resets:,} resets, equal to the bit{cut}")
        return 0
    address = listening_url(listen, port)
    found: list[ReplayInvalid] = []  # the host's log says what each is
    game = ReplayedGame(trace, found.append)
    show_log("ue_rl.bridges.tcp.server", "ue_rl.bridges.shm")
    host_at(address, game, lambda host: click.echo(f"{file}: {game.num_envs} envs on {host.url}  (Ctrl-C stops)"), shm)
    return int(bool(found))
