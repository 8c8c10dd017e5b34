"""`ue-rl policy-server`: serves an ONNX policy to engines that cannot run it themselves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ue_rl.cli.common import (
    PortNumber,
    WrongCommandLine,
    access_of,
    access_options,
    cannot_listen,
    duration_option,
    metrics_option,
    show_log,
    two_columns,
)
from ue_rl.devtools.metrics.names import POLICY, Metrics

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ue_rl.inference.server.server import PolicyServer

_SOME = click.IntRange(1)
LIVE_EVERY = 0.5  # seconds between two updates of the table


@click.command("policy-server", short_help="Serve a policy to engines.")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", metavar="HOST", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=PortNumber(0),
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
@access_options
@metrics_option
def policy_server(model: Path, host: str, port: int, every: float, metrics: str | None, **limits: Any) -> None:
    """Serve MODEL.onnx: engines connect, send OBS lines and get ACT lines (docs/policy-server.md).

    A newer file is picked up while it runs. Ctrl-C and SIGTERM stop it with exit code 0.
    """
    from rich.console import Console

    from ue_rl.inference.runtime.reload import ReloadingInference
    from ue_rl.inference.server.server import PolicyServer

    if model.is_dir() or (model.suffix == ".zip" and model.is_file()):
        what = "a model of Stable-Baselines3's"
        if model.is_dir():
            what = "a run"
        inside = model / "model.onnx"
        if inside.is_file():
            cure = f"name the file in it: {inside}"
        else:
            cure = f"write one: ue-rl export {model}"
        raise WrongCommandLine(f"{what} is not served", field="model", expected="MODEL.onnx", got=str(model), cure=cure)
    limits["access"] = access_of(limits)
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
            if ":" in host:
                where = f"[{host}]:{server.port}"
            else:
                where = f"{host}:{server.port}"
            title = f"{model}: {policy.obs_size} -> {policy.act_size} numbers, on {where}  (Ctrl-C stops)"
            if terminal:
                view = live(server, title, console)
                pause = LIVE_EVERY
            else:
                view = lines(server, title)
                pause = every
            try:
                with ExitStack() as stack, _signals(stop), view as renew:
                    if metrics is not None:
                        from ue_rl.devtools.metrics.serving import serve_metrics

                        click.echo(f"metrics: {stack.enter_context(serve_metrics(metrics, metrics_of(server)))}")
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


def metrics_of(server: PolicyServer) -> Metrics:
    """What `serve_metrics` serves."""

    def refresh(metrics: Metrics) -> None:
        median, slowest = server.percentiles() or (math.nan, math.nan)
        metrics.total("ue_rl_env_steps_total", server.requests)
        metrics.gauge("ue_rl_queue", server.waiting_rows)
        metrics.gauge("ue_rl_engines", len(server.engines))
        metrics.gauge("ue_rl_latency_seconds", median, "0.5")
        metrics.gauge("ue_rl_latency_seconds", slowest, "0.99")

    return Metrics(POLICY, refresh)


def figures(server: PolicyServer) -> str:
    """All figures in one line."""
    text = f"{_engines(server)}, {server.requests:,} actions in {server.batches:,} batches, latency {_latency(server)}"
    reloads = server.policy.reloads
    if reloads:
        return f"{text}, {reloads} newer model{'s' if reloads > 1 else ''}"
    return text


def table(server: PolicyServer, rate: float) -> Table:
    """The same as a table; `rate` actions per second."""
    from rich.text import Text

    shown = two_columns()
    shown.add_row("engines", _engines(server))
    shown.add_row("actions", f"{server.requests:,} ({rate:,.0f} per second)")
    rows = 0.0
    if server.batches:
        rows = server.requests / server.batches
    shown.add_row("batches", f"{server.batches:,} ({rows:.1f} actions each)")
    shown.add_row("latency", _latency(server))
    loaded = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(server.policy.loaded_at))
    shown.add_row("model", Text(str(server.policy.path), overflow="fold"))
    shown.add_row("loaded", f"{loaded}, replaced {server.policy.reloads} times")
    return shown


@contextmanager
def live(server: PolicyServer, title: str, console: Console) -> Iterator[Callable[[], None]]:
    """A table that stays in place: what it gives renews it. Log records appear above it."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    both = sys.stderr.isatty()  # otherwise they go where they went
    with Live(console=console, auto_refresh=False, redirect_stderr=both, redirect_stdout=False) as area:
        moved = [
            (handler, handler.setStream(sys.stderr))
            for handler in logging.getLogger().handlers
            # a file that is opened with its first record has no stream yet
            if both and isinstance(handler, logging.StreamHandler) and handler.stream and handler.stream.isatty()
        ]
        last = (time.perf_counter(), server.requests)
        rate = 0.0

        def renew() -> None:
            nonlocal last, rate
            now = time.perf_counter()
            if now - last[0] >= LIVE_EVERY / 2:  # not the one at the end, which comes at any moment
                rate = (server.requests - last[1]) / (now - last[0])
                last = (now, server.requests)
            area.update(Group(Text(title), table(server, rate)), refresh=True)

        try:
            yield renew
        finally:
            for handler, stream in moved:
                if stream is not None:
                    handler.setStream(stream)


@contextmanager
def lines(server: PolicyServer, title: str) -> Iterator[Callable[[], None]]:
    """One line of figures each time that something has changed."""
    click.echo(title)
    last = ""

    def renew() -> None:
        nonlocal last
        text = figures(server)
        if text != last:
            last = text
            click.echo(text)

    yield renew


def _engines(server: PolicyServer) -> str:
    return f"{len(server.engines)} engines with {server.num_envs:,} envs, {server.dropped} dropped"


def _latency(server: PolicyServer) -> str:
    seen = server.percentiles()
    if seen is None:
        return "-"
    return f"p50 {seen[0] * 1e6:,.0f} us, p99 {seen[1] * 1e6:,.0f} us"
