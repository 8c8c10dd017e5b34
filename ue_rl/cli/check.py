"""`ue-rl check`: does an engine's side follow the protocol? Each finding as it comes, the verdict in the last line."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import click

from ue_rl.cli import complete
from ue_rl.cli.common import (
    command_line,
    duration_option,
    engine_argument,
    engine_url,
    nul_terminated_option,
    timeout_option,
)
from ue_rl.compliance import Options, Outcome, Report

if TYPE_CHECKING:
    from ue_rl.cli.check_view import View

_DYING = 0.5  # seconds that an engine whose session has ended may take to end itself


@click.command(short_help="Say what an engine's side does wrong.")
@engine_argument
@click.option(
    "--engine", metavar="COMMAND", shell_complete=complete.engine,
    help="Start the engine by this and end it afterwards: './Game.sh --port {port}', "
    "or godot:PATH. Leave URL out then.",
)  # fmt: skip
@click.option(
    "--num-envs", type=click.IntRange(1), default=4, show_default=True, help="What {num_envs} in COMMAND becomes."
)
@duration_option("--start-timeout", default=120.0, help="How long an engine may take to start.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of actions and episodes.")
@click.option("--strict", is_flag=True, help="What version 1 only tolerates fails, too.")
@click.option("--base", is_flag=True, help="Known limits of the deployed Unreal plugin are warnings.")
@nul_terminated_option
@timeout_option(2.0, "How long to wait for each answer.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object and nothing else.")
def check(
    url: str | None, port: int | None, engine: str | None, num_envs: int, start_timeout: float, seed: int, strict: bool,
    base: bool, nul_terminated: bool | None, timeout: float, as_json: bool,
) -> int:  # fmt: skip
    """Say what an engine's side of the protocol does wrong, how that was seen, and what to do.

    The exit code is 0 where nothing FAILs, else 1. The engine is
    connected to many times; the deployed Unreal plugin serves one connection per Play.
    """
    if strict and base:
        raise click.UsageError("--strict is for engines of version 1, --base for the deployed plugin: give one of them")
    if engine is not None and (url, port) != (None, None):
        raise click.UsageError("--engine starts an engine, URL is one that runs already: give one of them")
    view = None
    if not as_json:
        from ue_rl.cli.check_view import View

        view = View()
    options = Options(timeout=timeout, seed=seed, base=base, strict=strict, nul_terminated=nul_terminated)
    if engine is None:
        address = engine_url(url, port)
        return _run(address, options, view, None)
    with closing(_launched(engine, num_envs, seed, start_timeout)) as started:
        if view is not None:
            view.says(f"starting {started.name}")
        from ue_rl.engines.lifecycle import Life

        return _run(started.listen(Life(0)), options, view, started)


def _launched(command: str, num_envs: int, seed: int, start_timeout: float) -> Any:
    from ue_rl.connecting import launched

    with command_line():
        (engine,) = launched(command, num_envs=num_envs, seed=seed, start_timeout=start_timeout)
    return engine


def _run(address: str, options: Options, view: View | None, engine: Any) -> int:
    """Checks, shows, and says with what to exit."""
    from ue_rl import compliance

    so_far = Report(address)

    def note(finding: Any) -> None:
        so_far.findings.append(finding)
        if view is not None:
            view.finding(finding)

    stopped = False
    report = so_far
    try:
        with view.waiting(address) if view is not None else nullcontext(), command_line():
            report = compliance.check(address, options, progress=note)
    except KeyboardInterrupt:
        stopped = True
        raise
    finally:
        if stopped or report is not so_far:
            words = "" if engine is None else engine.last_words(_DYING if report.exit_code else 0.0)
            if view is not None:
                view.ends(report, words, stopped)
            else:
                said = report.as_dict() | ({"engine": words} if words else {}) | ({"stopped": True} if stopped else {})
                click.echo(json.dumps(said))
    return int(report.count(Outcome.FAIL) > 0)
