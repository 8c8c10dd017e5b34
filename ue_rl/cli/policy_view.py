"""What `ue-rl policy-server` shows while it runs: a table on a terminal, one line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ue_rl.cli.common import two_columns

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ue_rl.inference.server.server import PolicyServer

LIVE_EVERY = 0.5  # seconds between two updates of the table


def figures(server: PolicyServer) -> str:
    """All figures in one line."""
    text = f"{_engines(server)}, {server.requests:,} actions in {server.batches:,} batches, latency {_latency(server)}"
    reloads = server.policy.reloads
    return f"{text}, {reloads} newer model{'s' if reloads > 1 else ''}" if reloads else text


def table(server: PolicyServer, rate: float) -> Table:
    """The same as a table; `rate` actions per second."""
    from rich.text import Text

    shown = two_columns()
    shown.add_row("engines", _engines(server))
    shown.add_row("actions", f"{server.requests:,} ({rate:,.0f} per second)")
    rows = server.requests / server.batches if server.batches else 0.0
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
    return "-" if seen is None else f"p50 {seen[0] * 1e6:,.0f} us, p99 {seen[1] * 1e6:,.0f} us"
