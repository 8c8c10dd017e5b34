"""`ue-rl train`: its flags. The run itself is ue_rl.training, what is shown of it train_report.py and train_live.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ue_rl.cli.common import command_line, engine_url, flags, json_object, lasting_console
from ue_rl.cli.logs import use_json, use_text
from ue_rl.cli.train_report import lines, summary
from ue_rl.errors import ConfigurationError
from ue_rl.training.config import parse_param, parse_setting, resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import DEFAULTS, ROWS
from ue_rl.training.report import Report
from ue_rl.training.run import train as run_training

Flag = Callable[[Any], Any]

# Flags that are no options of a run, or a part of one, by the option that they stand behind.
_MORE: dict[str, list[Flag]] = {
    "": [
        click.option("--config", type=click.Path(path_type=Path), help="A YAML file: ours, or the Unreal plugin's own.")
    ],
    "hyperparameters": [
        click.option("--net-arch", help="Hidden layers, such as 64,64."),
        click.option("--learning-rate", help="A number, or lin_0.001 for one that falls to 0."),
        click.option("--n-steps", type=int, help="Steps per env and rollout (on-policy)."),
        click.option("--batch-size", type=int),
        click.option(
            "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any further argument of the algorithm."
        ),
    ],
    "run_id": [
        click.option("--resume", is_flag=True, help="Continue a run: --run-id, or the newest of the task."),
        click.option("--force", is_flag=True, help="Overwrite a run."),
    ],
}


def _flags_of_the_table() -> Iterator[Flag]:
    """One for each option of a run, in the order of the table, and those that stand behind it."""
    yield from _MORE[""]
    for name, row in ROWS.items():
        if row.help:
            yield _flag(name)
        yield from _MORE.get(name, [])


def _flag(name: str) -> Flag:
    row, default = ROWS[name], DEFAULTS[name]
    word = f"--{(row.flag or name).replace('_', '-')}"
    shown = row.help
    if default is not None and default != {} and "[default: " not in shown:
        text = {True: "yes", False: "no"}[default] if isinstance(default, bool) else default
        shown += f"  [default: {text:g}]" if isinstance(text, float) else f"  [default: {text}]"
    if row.kind.flag is bool:
        return click.option(f"{word}/--no-{word[2:]}", name, default=None, help=shown)
    kind = click.Choice(row.kind.flag) if isinstance(row.kind.flag, tuple) else row.kind.flag
    return click.option(word, name, type=kind, help=shown, metavar=row.metavar, multiple=row.multiple)


@click.command(short_help="Train a policy.")
@flags(*_flags_of_the_table())
@click.option("--ui", is_flag=True, help="A live view of engines, returns and log, on a terminal.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: one object a line on stderr, also for each change of an engine's life.",
)
def train(
    config: Path | None, resume: bool, force: bool, settings: tuple[str, ...], ui: bool, log_format: str, **given: Any
) -> None:
    """Train a policy, in running engines, in engines that are started by a command, or in embedded ones.

    Without arguments: PPO on CartPole-v1, hosted by an embedded engine and reached over shared memory.
    """
    with command_line():
        if resume and force:
            cure = "continue the run, or overwrite it"
            raise ConfigurationError("--resume and --force exclude each other", cure=cure)
        hosts = given["host"]
        given["host"] = (hosts[0] if len(hosts) == 1 else list(hosts)) if hosts else None
        given["hyperparameters"] = _hyperparameters(given, settings)
        given["params"] = dict(parse_param(text) for text in given["params"])
        if given["env_kwargs"] is not None:
            given["env_kwargs"] = json_object(given["env_kwargs"], "env_kwargs")
        options, run = resolve(given, config, resumed=resume), None
        for host in options.hosts:
            engine_url(host, options.port)
    if resume:
        run = RunDirectory.existing(Path(options.log_dir), options.run_id, options.run_name)
        options = resolve(given, config, base=run.read_config())
    use_json() if log_format == "json" else use_text()
    outcome = run_training(options, resume=run, force=force, report=_report(ui))
    summary(outcome)
    reason = outcome.stopped_by
    if reason is not None:
        code = getattr(reason, "exit_code", 130 if isinstance(reason, KeyboardInterrupt) else 1)
        click.get_current_context().exit(code)


def _report(ui: bool) -> Report:
    """Shows a run on this terminal: with `ui` the live view, where stdout is a terminal."""
    if ui and lasting_console().is_terminal:
        from ue_rl.cli.train_live import live_view

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
