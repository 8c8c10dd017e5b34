"""`ue-rl train`: its flags and its log. The run itself is ue_rl.training, what is shown of it train_report.py."""

from __future__ import annotations

import ue_rl.system.blas  # noqa: F401  # isort: skip  # before anything that loads NumPy

import json
import logging
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import click

from ue_rl.cli import completion
from ue_rl.cli.common import (
    GroupedCommand,
    GroupedOption,
    command_line,
    engine_url,
    flags,
    lasting_console,
    port_option,
    trust_option,
)
from ue_rl.cli.train_report import lines, live_view, seeds_summary, summary
from ue_rl.connections.engines.lifecycle import Change
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.config import parse_setting, read_config, require_origin, resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import DEFAULTS, ROWS, TrainOptions
from ue_rl.training.report import TrainingReport
from ue_rl.training.rows import CONNECTION, EVERYDAY, FOLDER, GROUPS, LEARNING, SHOWN
from ue_rl.training.run import train as run_training
from ue_rl.training.seeds import FILE as SEEDS
from ue_rl.training.seeds import group_of, train_seeds

Flag = Callable[[Any], Any]
# How a shell completes the value of an option whose row names this.
COMPLETIONS: dict[str, completion.Complete] = {
    "engine": completion.engine,
    "run": completion.run_id,
    "run or file": completion.run_or_file,
}
_PAGE_PORT = 7780  # of --page, where --port names none
_RELOAD = 60.0  # seconds for a page of --page to come back, where --reconnect says none: people reload pages
_TOLD = frozenset(f"ue_rl.training.{name}" for name in ("learner", "watching", "writing"))  # by a TrainingReport


def _option(*names: str, group: str, **more: Any) -> Flag:
    return click.option(*names, cls=GroupedOption, group=group, **more)


# Flags that are no options of a run, or a part of one, by the option that they stand behind.
_MORE: dict[str, list[Flag]] = {
    "hyperparameters": [
        _option("--net-arch", group=LEARNING, metavar="SIZES", help="Sizes of the hidden layers, such as 64,64."),
        _option(
            "--learning-rate", group=LEARNING, metavar="RATE", help="A number, or lin_0.001 for one that falls to 0."
        ),
        _option("--n-steps", group=LEARNING, type=int, help="Steps of each env in a rollout (PPO, A2C)."),
        _option("--batch-size", group=LEARNING, type=int, help="Samples per update."),
        _option(
            "--set",
            "settings",
            group=LEARNING,
            multiple=True,
            metavar="KEY=VALUE",
            help="Any further argument of the algorithm.",
        ),
    ],
    "init_from": [trust_option(cls=GroupedOption, group=LEARNING)],
    "log_dir": [
        _option(
            "--config",
            group=FOLDER,
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="A YAML file with options: ours, or the Unreal plugin's own.",
        ),
    ],
    "url": [
        port_option(cls=GroupedOption, group=EVERYDAY),
        _option(
            "--page",
            group=CONNECTION,
            metavar="PATH",
            type=click.Path(exists=True, path_type=Path),
            help="Serve a web page, or a folder with an index.html, open it in the browser, and train in it.",
        ),
        _option(
            "--headless", group=CONNECTION, is_flag=True, help="Let the page of --page run in a headless Chromium."
        ),
    ],
    "run_id": [
        _option(
            "--resume",
            group=EVERYDAY,
            is_flag=True,
            help="Go on with the run --run-id, or with the newest one of this task.",
        ),
        _option("--force", group=FOLDER, is_flag=True, help="Replace the run of this name."),
    ],
}


def flags_of_the_table(without: Collection[str] = ()) -> Iterator[Flag]:
    """One for each option of a run, in the order of the table, and those that stand behind it."""
    for name, row in ROWS.items():
        if name in without:
            continue
        if row.help:
            yield _flag(name)
        yield from _MORE.get(name, [])


def _flag(name: str) -> Flag:
    row = ROWS[name]
    default = DEFAULTS[name]
    word = f"--{(row.flag or name).replace('_', '-')}"
    shown = row.help
    if default is not None and default != {} and "[default: " not in shown:
        if isinstance(default, bool):
            text = {True: "yes", False: "no"}[default]
        else:
            text = row.kind.shown(default)
        shown += f"  [default: {text}]"
    if row.kind.flag is bool:
        return _option(f"{word}/--no-{word[2:]}", name, group=row.group, default=None, help=shown)
    if isinstance(row.kind.flag, tuple):
        kind = click.Choice(row.kind.flag)
    else:
        kind = row.kind.flag
    complete = None
    if isinstance(row.complete, str):
        complete = COMPLETIONS[row.complete]
    elif row.complete:
        complete = completion.words(*row.complete)
    return _option(
        word,
        name,
        group=row.group,
        type=kind,
        help=shown,
        metavar=row.kind.metavar,
        multiple=row.multiple,
        shell_complete=complete,
    )


@click.command(cls=GroupedCommand, groups=GROUPS, short_help="Train a policy.")
@click.argument("url", nargs=-1, metavar="[URL]...", shell_complete=completion.url)
@flags(*flags_of_the_table())
@_option("--ui", group=SHOWN, is_flag=True, help="A live view of engines, returns and log.")
@_option(
    "--log-format",
    group=SHOWN,
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json writes the log to stderr, one object a line.",
)
@click.option("--written-here", is_flag=True, hidden=True, help="--config was written by who starts this process.")
def train(
    config: Path | None,
    resume: bool,
    force: bool,
    settings: tuple[str, ...],
    ui: bool,
    log_format: str,
    written_here: bool,
    url: tuple[str, ...],
    port: int | None,
    page: Path | None,
    headless: bool,
    **given: Any,
) -> None:
    """Train a policy in a running engine (URL), in engines that it starts (--engine), or in a Gymnasium env (--env).

    Without options it trains PPO on CartPole-v1. URL is tcp://HOST:PORT, HOST:PORT or shm://NAME; give that of each
    where several engines run. Options of the connection may stand behind it: 'tcp://HOST:PORT?channel=per-env'.
    """
    with command_line():
        if resume and force:
            cure = "continue the run, or overwrite it"
            raise ConfigurationError("--resume and --force exclude each other", cure=cure)
        if page is not None:
            url = (_page_url(page, headless, url, port),)
            port = None
            if given["reconnect"] is None:
                given["reconnect"] = _RELOAD
        elif headless:
            raise click.UsageError("--headless is for the page of --page: add --page PATH, or leave it out")
        read_flags(given, url, port, settings)
        # once: what is judged is what is done
        said = None
        if config is not None:
            said = read_config(config)
        options = resolve(given, said, resumed=resume)
        run = None
        named = {name for name, value in given.items() if value is not None}
    if config is not None and said is not None:
        if not written_here:
            require_origin(config, said, options, named)
        named |= set(said)
    group = None
    if resume:
        group = group_of(options)
    if group is not None:
        before = read_config(group / SEEDS)
        options = resolve(given, said, base=before)
        options.log_dir = str(group.parent)
        options.run_id = group.name
        require_origin(group, before, options, named)
    if log_format == "json":
        use_json()
    else:
        use_text()
    if options.seeds is not None:
        if ui:
            raise click.UsageError("--ui shows one run: leave it out with --seeds; ue-rl runs lists them")
        _train_seeds(options, resume, force)
        return
    if resume:
        run = RunDirectory.existing(Path(options.log_dir), options.run_id, options.run_name)
        before = run.read_config()
        options = resolve(given, said, base=before)
        require_origin(run.path, before, options, named)
    outcome = run_training(options, resume=run, force=force, report=_report(ui))
    summary(outcome)
    if outcome.stopped_by is not None:
        click.get_current_context().exit(_exit_code(outcome.stopped_by))


def _exit_code(reason: BaseException) -> int:
    default = 1
    if isinstance(reason, KeyboardInterrupt):
        default = 130
    return getattr(reason, "exit_code", default)


def _train_seeds(options: TrainOptions, resume: bool, force: bool) -> None:
    screen = lasting_console()
    folder, runs, stopped = train_seeds(
        options, resume=resume, force=force, tell=lambda text: screen.print(text, soft_wrap=True)
    )
    seeds_summary(folder, runs, stopped)
    if stopped is not None or any(run.state != "done" for run in runs):
        click.get_current_context().exit(1 if stopped is None else _exit_code(stopped))


def read_flags(given: dict[str, Any], url: tuple[str, ...], port: int | None, settings: tuple[str, ...]) -> None:
    """Makes of the flags of the table, and those behind them, values of the options, in `given`."""
    given["url"] = _urls(url, port)
    given["hyperparameters"] = _hyperparameters(given, settings)
    for name, row in ROWS.items():
        if not row.help or row.kind.of_flag is None:
            continue
        if given[name] in (None, ()):  # it was not given
            given[name] = None
        else:
            given[name] = row.kind.of_flag(name, given[name])


def _page_url(page: Path, headless: bool, urls: tuple[str, ...], port: int | None) -> str:
    """What --page is short for; its folder is absolute: the run may be resumed from elsewhere."""
    if urls:
        raise click.UsageError(f"--page is short for a URL, and {urls[0]} is given, too: leave one out")
    if "&" in str(page.resolve()):  # behind an address it would begin another option
        raise click.UsageError(f"--page: the path {page.resolve()} has a &, which no address can have: rename it")
    browser = "open"
    if headless:
        browser = "headless"
    return f"page://127.0.0.1:{port or _PAGE_PORT}?serve={page.resolve()}&browser={browser}"


def _urls(urls: tuple[str, ...], port: int | None) -> str | list[str] | None:
    """The running engines of the command line, in the form of the option `url`."""
    if len(urls) > 1 and port is None:
        return list(urls)
    if urls or port is not None:
        return engine_url(next(iter(urls), None), port)
    return None


def _report(ui: bool) -> TrainingReport:
    """Shows a run on this terminal: with `ui` the live view, where stdout is a terminal."""
    if ui and lasting_console().is_terminal:
        return live_view()
    return lines()


def _hyperparameters(flags: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    hyper = dict(parse_setting(text) for text in settings)
    arch = flags.pop("net_arch")
    if arch is not None:
        kwargs = hyper.get("policy_kwargs") or {}
        if not isinstance(kwargs, dict):
            raise ConfigurationError(
                "not arguments of a policy", field="set policy_kwargs", expected="{..}", got=kwargs
            )
        layers = arch.split(",")
        if not all(layer.strip().isdecimal() and int(layer) > 0 for layer in layers):
            raise ConfigurationError("not a list of layers", field="net_arch", expected="64,64", got=arch)
        hyper["policy_kwargs"] = {**kwargs, "net_arch": [int(layer) for layer in layers]}
    rate = flags.pop("learning_rate")
    if rate is not None:
        hyper["learning_rate"] = parse_setting(f"x={rate}")[1]
    for name in ("n_steps", "batch_size"):
        value = flags.pop(name)
        if value is not None:
            hyper[name] = value
    return hyper


class JsonFormatter(logging.Formatter):
    """One JSON object: time (UTC, ISO 8601), level, logger, message; `exception` where there is one.

    A change of an engine's life has also engine, before, after and reason (connections/engines/lifecycle.py). Each
    minute one record has the numbers of `--metrics`, under their names.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See the class; never more than one line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        change = getattr(record, "change", None)
        if isinstance(change, Change):
            fields |= {
                "engine": change.engine,
                "before": change.before.value,
                "after": change.after.value,
                "reason": change.reason,
            }
        fields |= getattr(record, "metrics", {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=True)


def use_text() -> None:
    """Has the log written to stderr for people: what a run's TrainingReport tells is not said twice."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler and handler.level > logging.DEBUG:  # not with --debug
            handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
            handler.addFilter(_not_told)
            handler.setStream(_Stderr())


class _Stderr:
    """sys.stderr as it is now: while a progress bar stands there, rich puts lines above it."""

    def write(self, text: str) -> int:
        """See io.TextIOBase."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """See io.IOBase."""
        sys.stderr.flush()


def _not_told(record: logging.LogRecord) -> bool:
    return record.name not in _TOLD


def use_json() -> None:
    """Has the log written to stderr as JSON, from INFO on where the project writes it, from WARNING on elsewhere."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
        handler.setLevel(min(handler.level, logging.INFO))
    logging.getLogger("ue_rl").setLevel(min(logging.getLogger("ue_rl").getEffectiveLevel(), logging.INFO))
