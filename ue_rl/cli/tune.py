"""`ue-rl tune`: its flags, those of `ue-rl train` among them, and what it shows. The search is
ue_rl.training.tuning.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ue_rl.cli import completion
from ue_rl.cli.common import GroupedCommand, GroupedOption, command_line, flags, lasting_console, table_of, trust_option
from ue_rl.cli.train import flags_of_the_table, read_flags, use_text
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.config import read_config, require_origin, resolve
from ue_rl.training.options import ROWS
from ue_rl.training.rows import GROUPS, RAY

SEARCH = "The search"
_TRIALS = 50
# What each trial has of its own, or has not at all.
_NOT = {name for name, row in ROWS.items() if row.group == RAY} | {
    "run_id", "init_from", "seeds", "jobs", "trace", "trace_size", "metrics", "export", "keep", "save_replay_buffer",
    "verbose", "video_freq",
}  # fmt: skip
_TITLES = [title for title in GROUPS if any(r.help and r.group == title and n not in _NOT for n, r in ROWS.items())]


def _option(*names: str, **more: Any) -> Callable[[Any], Any]:
    return click.option(*names, cls=GroupedOption, group=SEARCH, **more)


@click.command(cls=GroupedCommand, groups=(SEARCH, *_TITLES), short_help="Search for hyperparameters.")
@click.argument("url", nargs=-1, metavar="[URL]...", shell_complete=completion.url)
@_option(
    "--n-trials",
    type=click.IntRange(1),
    help=f"How many trials in all, with those of a search that goes on.  [default: {_TRIALS}]",
)
@_option("--jobs", type=click.IntRange(1), help="Trials side by side, each with engines of its own.  [default: 1]")
@_option(
    "--sampler",
    type=click.Choice(["tpe", "random"]),
    help="How hyperparameters are drawn.  [default: tpe]",
)
@_option(
    "--pruner",
    type=click.Choice(["median", "halving", "none"]),
    help="How a trial is ended whose running return falls behind.  [default: median]",
)
@_option("--run-id", metavar="NAME", help="The name of its folder.  [default: such as tune-ppo-CartPole-v1-1]")
@_option("--resume", is_flag=True, help="Go on with the search --run-id, or with the newest one.")
@_option("--force", is_flag=True, help="Delete the search of this name, and begin anew.")
@trust_option(cls=GroupedOption, group=SEARCH)
@flags(*flags_of_the_table(_NOT))
def tune(
    n_trials: int | None,
    jobs: int | None,
    sampler: str | None,
    pruner: str | None,
    resume: bool,
    force: bool,
    config: Path | None,
    settings: tuple[str, ...],
    url: tuple[str, ...],
    port: int | None,
    **given: Any,
) -> None:
    """Search for the hyperparameters with which a run earns most, and write them as a file for train --config.

    Each trial is a run of --timesteps, in engines that it starts, in a Gymnasium env, or in a running engine (URL). The
    first has the options as they are; what --set and its kind say is not
    searched. The return is that of the last 100 episodes, or of --eval-episodes without exploration.
    """
    from ue_rl.training.tuning.search import Search, check, created, existing, resumed

    with command_line():
        if resume and force:
            cure = "go on with the search, or begin it anew"
            raise ConfigurationError("--resume and --force exclude each other", cure=cure)
        read_flags(given, url, port, settings)
        if resume and config is not None:
            raise ConfigurationError("a search that goes on has its options already", field="config")
        said = None if config is None else read_config(config)
        options = resolve(given, said)
        check(options, jobs or 1)
    if config is not None and said is not None:
        require_origin(config, said, options, {name for name, value in given.items() if value is not None})
    with command_line():
        folder = existing(Path(options.log_dir), options.run_id) if resume else created(options, force)
        if resume:
            options = resumed(given, folder)
    options.log_dir, options.run_id = str(folder.parent), folder.name
    use_text()
    screen = lasting_console()

    def tell(text: str) -> None:
        screen.print(text, soft_wrap=True)

    search = Search(options, folder, jobs=jobs, sampler=sampler, pruner=pruner, tell=tell)
    if resume and n_trials is None:
        n_trials = search.study.user_attrs.get("n_trials")
    n_trials = n_trials or _TRIALS
    search.study.set_user_attr("n_trials", n_trials)
    tell(f"search: {folder}, {search.done} of {n_trials} trials done")
    search.run(n_trials)
    _summary(search, screen)
    again = ["ue-rl", "tune", "--resume", "--log-dir", str(folder.parent), "--run-id", folder.name]
    if search.stopped is not None:
        screen.print(f"{search.stopped}; continue with: {shlex.join(again)}", style="bold red", soft_wrap=True)
        click.get_current_context().exit(getattr(search.stopped, "exit_code", 130))


def _summary(search: Any, screen: Any) -> None:
    """The best trials as a table, and where everything is."""
    trials = sorted((t for t in search.study.trials if t.value is not None), key=lambda t: -t.value)
    if not trials:
        screen.print("no trial has a return yet")
        return
    title = f"the best of {search.done} trials"
    table = table_of("trial", "return", "hyperparameters", left=["hyperparameters"], title=title)
    for trial in trials[:5]:
        found = {**trial.user_attrs["hyperparameters"]} if trial.params else {}
        found |= found.pop("policy_kwargs", {})
        shown = (
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in found.items()
        )
        table.add_row(str(trial.number), f"{trial.value:.1f}", ", ".join(shown) or "the options unchanged")
    screen.print(table)
    for name in ("history.png", "importance.png"):
        if (search.folder / name).exists():
            screen.print(f"picture: {search.folder / name}", soft_wrap=True)
    screen.print(f"train with the best: ue-rl train --config {search.folder / 'best.yaml'}", soft_wrap=True)
