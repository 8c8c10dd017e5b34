"""`ue-rl top`: what `ue-rl train --ui` shows, of a run in another process."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ue_rl.cli.common import lasting_console
from ue_rl.cli.runs import log_dir_option, run_argument
from ue_rl.system.errors import printable

_EVERY = 0.5  # seconds between two looks at the files


@click.command(short_help="Watch a run from another terminal.")
@run_argument()
@log_dir_option
@click.option("--once", is_flag=True, help="Show it once, as without a terminal.")
def top(run: str, log_dir: Path, once: bool) -> None:
    """Watch RUN while it learns: its engines, returns, speed and log. Ctrl-C leaves; the run goes on.

    It reads the files of the run, and writes nothing. It ends when the run does.
    """
    from ue_rl.cli.train_report import live_view
    from ue_rl.training.directory import read_handshake
    from ue_rl.training.runs.following import Following
    from ue_rl.training.runs.listing import options_of, run_named, state_of
    from ue_rl.training.saving.lock import RunLock

    found = run_named(run, log_dir)
    options, writer = options_of(found), RunLock(found.path).writer()
    following = Following(found, options)
    started = (writer or {}).get("started")
    view = live_view(following.curve(), time.time() - float(started) if started else 0.0)
    view.engines(following)

    def look() -> None:
        spec = read_handshake(found.handshake)
        if spec is not None:  # else its engine is not there yet
            view.connected(spec.num_envs, {"task": options.task, "algorithm": options.algo})
        following.follow(view)

    look()
    screen = lasting_console()
    if once or not screen.is_terminal:
        screen.print(printable(f"{found.path}: {state_of(found)}"), soft_wrap=True)
        screen.print(view.draw())
        return
    view.started(found)
    try:
        while state_of(found).startswith("running"):
            look()
            time.sleep(_EVERY)
        look()
    except KeyboardInterrupt:
        return
    finally:
        view.closed()
    screen.print(f"the run is over: {state_of(found)}", soft_wrap=True)
