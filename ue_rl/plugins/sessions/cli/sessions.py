"""`ue-rl sessions`: many sessions of one game in one process, over every carrier that is asked for."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import (
    PortNumber,
    access_of,
    access_options,
    allow_host_option,
    cannot_listen,
    command_line,
    duration_option,
    flags,
    json_object,
    show_log,
)
from ue_rl.plugins.sessions.cli.session_carriers import CARRIERS


class _Port(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A port, or "stdio"."""

    name = "port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "stdio":
            return value
        return PortNumber(0).convert(value, param, ctx)


class _Sessions(click.Command):
    """`sessions replay FILE` is a command of its own."""

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> click.Context:
        if args[:1] == ["replay"]:
            from ue_rl.plugins.sessions.cli.sessions_replay import replay

            return replay.make_context(f"{info_name} replay", args[1:], *more, **extra)
        return super().make_context(info_name, args, *more, **extra)


_carrier_flags = flags(
    *(
        click.option(
            f"--{name}",
            type=_Port() if carrier.stdio else PortNumber(0),
            help=carrier.help,
            metavar="stdio|PORT" if carrier.stdio else "PORT",
        )
        for name, carrier in CARRIERS.items()
    )
)


@click.command(cls=_Sessions, short_help="Serve many sessions of a game that does not wait.")
@click.argument("game", metavar="GAME")
@_carrier_flags
@click.option("--host", default="127.0.0.1", metavar="HOST", show_default=True, help="Address to listen on.")
@click.option(
    "--max-sessions", type=click.IntRange(1), default=64, show_default=True, help="How many may live at once."
)
@click.option("--workers", type=click.IntRange(1), help="Threads that tick.  [default: one for each core, 8 at most]")
@click.option(
    "--tick-rate", type=click.FloatRange(0), help="Ticks a second; 0: as fast as it can.  [default: when told]"
)
@duration_option(
    "--planning", default=0.0, zero=True, help="How long the world stands still at the beginning of an episode."
)
@click.option("--hold", is_flag=True, help="A tick without an action repeats the last one, instead of doing nothing.")
@click.option("--max-ticks", type=click.IntRange(0), default=0, show_default=True, help="Cut episodes there; 0: never.")
@duration_option("--idle-timeout", default=300.0, help="How long nobody may use a session before it is ended.")
@click.option("--num-envs", type=click.IntRange(1), default=8, show_default=True, help="Envs of --tcp, each a session.")
@click.option("--ticks", type=click.IntRange(1, 5000), default=1, show_default=True, help="Ticks of a step over --tcp.")
@click.option("--record", type=click.Path(path_type=Path, file_okay=False), help="Write each session's replay here.")
@click.option("--kwargs", default="{}", metavar="JSON", help="Arguments for the game's class, as a JSON object.")
@click.option("--send-info", is_flag=True, help="Send the info dicts of a Gymnasium id too.")
@access_options
@allow_host_option
def sessions(
    game: str,
    host: str,
    max_sessions: int,
    workers: int | None,
    tick_rate: float | None,
    planning: float,
    hold: bool,
    max_ticks: int,
    idle_timeout: float,
    num_envs: int,
    ticks: int,
    record: Path | None,
    kwargs: str,
    send_info: bool,
    allow_hosts: tuple[str, ...],
    **ports: Any,
) -> None:
    """Serve sessions of GAME (module:Class, or a Gymnasium id) until Ctrl-C, SIGTERM or SIGHUP.

    The carriers share the sessions. `ue-rl sessions replay FILE` plays what --record has written.
    """
    access = access_of(ports)
    asked = {name: port for name, port in ports.items() if port is not None}
    if not asked:
        raise click.UsageError(f"give one of {', '.join(f'--{name}' for name in CARRIERS)}")
    stdio = [name for name, port in asked.items() if port == "stdio"]
    listening = [CARRIERS[name] for name, port in asked.items() if port != "stdio"]
    if access is not None and not listening:
        raise click.UsageError("a token and TLS are for ports; nobody connects to standard input")
    if allow_hosts and not any("allow_hosts" in carrier.options for carrier in listening):
        raise click.UsageError("--allow-host is for HTTP: give it with the port of --openenv or --mcp")
    arguments = json_object(kwargs, "kwargs")
    from ue_rl.bridges.runners import ends_in_order, signal_of
    from ue_rl.plugins.sessions.realtime import SessionPool
    from ue_rl.plugins.sessions.realtime.source import is_gymnasium_id

    if send_info and not is_gymnasium_id(game):
        raise click.UsageError("--send-info is for Gymnasium ids: a game of your own sends what it writes (write_info)")
    if send_info:
        arguments["send_info"] = True
    show_log("ue_rl.plugins.sessions.realtime", "ue_rl.bridges.tcp.server")
    modules = {name: CARRIERS[name].load() for name in asked}
    options = {"num_envs": num_envs, "ticks": ticks, "access": access, "allow_hosts": allow_hosts}
    with ends_in_order(for_good=True), ExitStack() as stack:
        # Before the game is imported: what it prints then must not reach a client on standard output. They are not
        # closed: a game may print while this process exits.
        streams = [modules[name].StandardStreams() for name in stdio]
        with command_line():
            pool = SessionPool(
                game,
                max_sessions=max_sessions,
                workers=workers,
                tick_rate=tick_rate,
                planning=planning,
                hold=hold,
                max_ticks=max_ticks,
                idle_timeout=idle_timeout,
                record=record,
                kwargs=arguments,
            )
        stack.enter_context(pool)
        if tick_rate is None:
            paced = "when told"
        elif tick_rate:
            paced = f"{tick_rate:g} ticks a second"
        else:
            paced = "without a pause"
        click.echo(f"{pool.name}: {max_sessions} sessions, {pool.workers} workers, ticks {paced}", err=bool(stdio))
        for name, port in asked.items():
            if port == "stdio":
                continue
            try:
                taken = {key: options[key] for key in CARRIERS[name].options}
                server = stack.enter_context(closing(modules[name].serve(pool, host, port, **taken)))
            except OSError as error:
                raise cannot_listen(f"{host}:{port}", error, f"choose another --{name}") from error
            click.echo(f"  {name}: {server.url}", err=bool(stdio))
        click.echo("  (Ctrl-C stops)", err=bool(stdio))
        sys.stdout.flush()
        try:
            with suppress(KeyboardInterrupt):
                if stdio:
                    modules[stdio[0]].serve_stdio(pool, streams[0])
                while not stdio and not threading.Event().wait(3600):
                    pass
        except SystemExit as end:
            if signal := signal_of(end.code):
                click.echo(f"stopped by {signal}", err=bool(stdio))
            raise
        click.echo("stopped", err=bool(stdio))
