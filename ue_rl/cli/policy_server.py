"""`ue-rl policy-server`: serves an ONNX policy to engines that cannot run it themselves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import cannot_listen, duration_option, show_log

_SOME = click.IntRange(1)


@click.command("policy-server", short_help="Serve a policy to engines.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", metavar="HOST", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7778,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option("--max-engines", type=_SOME, default=1024, show_default=True, help="How many engines may be connected.")
@click.option(
    "--max-batch",
    type=_SOME,
    default=4096,
    show_default=True,
    help="Most observations in a call of the model, and envs of an engine.",
)
@duration_option(
    "--max-wait", default=0.0, zero=True, help="How long an observation may wait for those of other engines."
)
@duration_option("--hello-timeout", default=10.0, help="How long an engine has to say hello.")
@duration_option("--write-timeout", default=10.0, help="How long an engine may leave its answers unread.")
@duration_option("--reload-interval", default=1.0, help="How often MODEL.onnx is looked at.")
@duration_option("--every", default=5.0, help="How often a line of figures comes; a terminal shows a table.")
def policy_server(model: Path, host: str, port: int, every: float, **limits: Any) -> None:
    """Serve MODEL.onnx: engines connect, send OBS lines and get ACT lines (docs/policy-server.md).

    A newer file is picked up while it runs. Ctrl-C and SIGTERM stop it with exit code 0.
    """
    from rich.console import Console

    from ue_rl.cli.policy_view import LIVE_EVERY, lines, live
    from ue_rl.inference.runtime.reload import ReloadingInference
    from ue_rl.inference.server.server import PolicyServer

    console = Console()
    terminal = sys.stdout.isatty() and console.is_terminal and not console.is_dumb_terminal
    if not terminal:  # the table shows it otherwise
        show_log("ue_rl.inference.server.server", "ue_rl.inference.runtime.reload")

    async def run() -> None:
        stop = asyncio.Event()
        with ReloadingInference(model, interval=None, warm_up=(1, 16)) as policy:
            server = PolicyServer(policy, host, port, **limits)
            try:
                await server.start()
            except OSError as error:
                raise cannot_listen(f"{host}:{port}", error, "choose another --port") from error
            where = f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
            title = f"{model}: {policy.obs_size} -> {policy.act_size} numbers, on {where}  (Ctrl-C stops)"
            view = live(server, title, console) if terminal else lines(server, title)
            pause = LIVE_EVERY if terminal else every
            try:
                with _signals(stop), view as renew:
                    try:
                        while not stop.is_set():
                            renew()
                            with contextlib.suppress(asyncio.TimeoutError):
                                await asyncio.wait_for(stop.wait(), pause)
                    finally:
                        renew()
            finally:
                await server.close()

    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run())
    click.echo("stopped")


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set `stop`, between two batches; a second one ends the process as if this were not here."""
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {}

    def ask_to_stop() -> None:
        restore()
        stop.set()

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if handler in (None, signal.SIG_IGN):
            continue  # started in the background by a shell that keeps Ctrl-C away from it
        with contextlib.suppress(ValueError):  # not the main thread: signals are somebody else's
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(ask_to_stop))
            before[number] = handler
    try:
        yield
    finally:
        restore()
