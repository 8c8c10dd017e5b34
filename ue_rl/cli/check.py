"""`ue-rl check`: does an engine's side follow the protocol? Each finding as it comes, the verdict in the last line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource
from rich.text import Text

from ue_rl.cli import completion
from ue_rl.cli.common import (
    command_line,
    console,
    duration_option,
    engine_argument,
    engine_url,
    nul_terminated_option,
    timeout_option,
)
from ue_rl.devtools.check import CheckReport, Finding, Options, Verdict
from ue_rl.system.errors import printable

_DYING = 0.5  # seconds that an engine whose session has ended may take to end itself
_COLOURS = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.SKIP: "dim"}
_MARGIN = 6  # of the text behind an outcome's word
_LABEL = 10  # of "seen", "protocol", "cure"


@click.command(short_help="Say what an engine's side does wrong.")
@engine_argument
@click.option(
    "--engine", metavar="COMMAND", shell_complete=completion.engine,
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
@click.option("--token-file", type=click.Path(), help="The file of the token that the engine asks for.")
@timeout_option(2.0, "How long to wait for each answer.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object and nothing else.")
def check(
    url: str | None,
    port: int | None,
    engine: str | None,
    num_envs: int,
    start_timeout: float,
    seed: int,
    strict: bool,
    base: bool,
    nul_terminated: bool | None,
    token_file: str | None,
    timeout: float,
    as_json: bool,
) -> int:
    """Say what an engine's side of the protocol does wrong, how that was seen, and what to do.

    The exit code is 0 where nothing FAILs, else 1. The engine is
    connected to many times; the deployed Unreal plugin serves one connection per Play.
    """
    if strict and base:
        raise click.UsageError("--strict is for engines of version 1, --base for the deployed plugin: give one of them")
    if engine is not None and (url, port) != (None, None):
        raise click.UsageError("--engine starts an engine, URL is one that runs already: give one of them")
    if engine is None:
        context = click.get_current_context()
        for name in ("num_envs", "start_timeout"):
            if context.get_parameter_source(name) == ParameterSource.COMMANDLINE:
                flag = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"{flag} is for --engine: it says how an engine is started")
    if as_json:
        view = None
    else:
        view = View()
    options = Options(
        timeout=timeout, seed=seed, base=base, strict=strict, nul_terminated=nul_terminated, token_file=token_file
    )
    if engine is None:
        return _run(engine_url(url, port), options, view, None)
    from ue_rl.connections.base.address import split_place
    from ue_rl.connections.dialling import address_of
    from ue_rl.connections.engines.lifecycle import Life
    from ue_rl.connections.launching.engine import LaunchedEngine
    from ue_rl.connections.launching.starting import launched
    from ue_rl.devtools.check.bench import NewEngine

    def another() -> LaunchedEngine:
        (made,) = launched(engine, num_envs=num_envs, seed=seed, start_timeout=start_timeout)
        return made

    @contextmanager
    def anew() -> Iterator[NewEngine]:
        with closing(another()) as one:
            yield NewEngine(*split_place(address_of(one.begin(Life(0))).place), one.has_ended)

    with command_line():
        made = another()
    if made.has_own_port:
        options = replace(options, anew=anew)
    with closing(made) as started:
        if view is not None:
            view.says(f"starting {started.name}")
        address = started.begin(Life(0))
        return _run(address, replace(options, wait=start_timeout, has_ended=started.has_ended), view, started)


def _run(address: str, options: Options, view: View | None, engine: Any) -> int:
    """Checks, shows, and says with what to exit."""
    from ue_rl.devtools import check as compliance

    so_far = CheckReport(address)

    def note(finding: Any) -> None:
        so_far.findings.append(finding)
        if view is not None:
            view.finding(finding)

    stopped = False
    report = so_far
    if view is not None:
        view.says(f"checking {address}")
    try:
        with command_line():
            report = compliance.check(address, options, progress=note)
    except KeyboardInterrupt:
        stopped = True
        raise
    finally:
        if stopped or report is not so_far:
            words = ""
            if engine is not None:
                patience = 0.0
                if report.exit_code:
                    patience = _DYING
                words = engine.last_words(patience)
            if view is not None:
                view.ends(report, words, stopped)
            else:
                last_words = {}
                if words:
                    last_words = {"engine": words}
                interrupted = {}
                if stopped:
                    interrupted = {"stopped": True}
                said = report.as_dict() | last_words | interrupted
                click.echo(json.dumps(said))
    return int(report.count(Verdict.FAIL) > 0)


class View:
    """On a terminal lines are cut at its width; elsewhere they are as long as they are, for grep."""

    def __init__(self) -> None:
        self.screen = console()
        if not self.screen.is_terminal:
            self.width = None
        else:
            self.width = self.screen.width
        self.carrier = ""
        self.skipped: list[Finding] = []  # in a row, for one reason

    def says(self, text: str) -> None:
        """A line about the run itself."""
        self._block("", "", text, "dim")

    def finding(self, finding: Finding) -> None:
        """One more."""
        if self.skipped and (finding.outcome is not Verdict.SKIP or _reason(finding) != _reason(self.skipped[0])):
            self._show_skipped()
        if finding.carrier and finding.carrier != self.carrier:
            self.carrier = finding.carrier
            self.screen.print(Text(f"\nover {finding.carrier}", "bold"))
        if finding.outcome is Verdict.SKIP:
            self.skipped.append(finding)
            return
        if finding.env_id is None or "env " in finding.text:
            env = ""
        else:
            env = f" (env {finding.env_id})"
        text = f"{finding.check}: {finding.text}{env}"
        self._outcome(finding.outcome, text)
        if finding.mistake is None:
            return
        label = "seen"
        for line in finding.seen.splitlines():
            self._detail(label, line)
            label = ""
        self._detail("protocol", section(finding.mistake.section))
        self._detail("cure", finding.mistake.cure)
        self._detail("name", finding.mistake.name)

    def ends(self, report: CheckReport, words: str, stopped: bool) -> None:
        """The verdict, and above it what became of the engine, if it has gone."""
        self._show_skipped()
        self.screen.print()
        if words:
            for line in words.splitlines():
                self.screen.print(Text(printable(line, lines=True), "yellow"), soft_wrap=True)
        if stopped:
            verdict = "STOPPED"
        elif report.exit_code:
            verdict = "FAIL"
        else:
            verdict = "PASS"
        if report.exit_code:
            colour = "bold red"
        elif stopped:
            colour = "yellow"
        else:
            colour = "bold green"
        self._block(f"{verdict}  ", colour, f"{report.summary}", "")

    def _show_skipped(self) -> None:
        """Many checks may need what has failed: they are one line."""
        if self.skipped:
            more = ""
            if len(self.skipped) > 1:
                more = f" and {len(self.skipped) - 1} more"
            self._outcome(Verdict.SKIP, f"{self.skipped[0].check}{more}: {self.skipped[0].text}", "dim")
            self.skipped.clear()

    def _outcome(self, outcome: Verdict, text: str, style: str = "") -> None:
        self._block(outcome.value.ljust(_MARGIN), _COLOURS[outcome], text, style)

    def _detail(self, label: str, text: str) -> None:
        self._block(" " * _MARGIN + label.ljust(_LABEL), "dim", text, "")

    def _block(self, head: str, head_style: str, text: str, style: str) -> None:
        """A text behind a head; the lines below begin where the text began."""
        text = printable(text, lines=True).replace("\n", " ")
        if self.width is None:
            lines = [text]
        else:
            lines = list(_cut(text, max(self.width - len(head) - 1, 20)))
        shown = Text(head, head_style, end="")
        look = style
        if not look:
            look = "default"
        shown.append(f"\n{' ' * len(head)}".join(lines), look)
        shown.end = "\n"
        self.screen.print(shown, soft_wrap=True)


def _reason(finding: Finding) -> tuple[str, str]:
    return finding.carrier, finding.text


def _cut(text: str, room: int) -> Iterator[str]:
    """Lines of at most so many characters, cut behind blanks, and in a message behind its separators."""
    line = ""
    for piece in re.findall(r"[^\s;,|]*[;,|]*\s*", text):
        if line and len(line) + len(piece.rstrip()) > room:
            yield line.rstrip()
            line = ""
        line += piece
        while len(line.rstrip()) > room:
            yield line[:room]
            line = line[room:]
    yield line.rstrip()


def section(text: str) -> str:
    """Where to read about a mistake."""
    if text.startswith("docs/"):
        return text
    return f"docs/protocol.md, section {text}"
