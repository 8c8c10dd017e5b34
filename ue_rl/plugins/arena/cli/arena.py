"""`ue-rl arena`: agents that reason, over HTTP or in a scene; their evals, replays and logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from ue_rl.cli.common import (
    PortNumber,
    access_of,
    access_options,
    allow_host_option,
    cannot_listen,
    command_line,
    console,
    duration_option,
    flags,
    lasting_console,
    table_of,
    vecnormalize_option,
)
from ue_rl.system.errors import printable

_config = flags(
    click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="A YAML file: docs/arena.md."),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Put over the file: backend.model=x."),
)
_seed = click.option(
    "--seed", type=click.IntRange(0), help="Of the first episode; the next ones count on.  [default: 0]"
)


@click.group(short_help="Let agents that reason play: over HTTP, or in a scene.")
def arena() -> None:
    """Agents that see a game and call its tools by name (docs/arena.md)."""


@arena.command(short_help="Answer a game over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=PortNumber(0), default=5000, show_default=True, help="Port; 0 takes a free one.")
@click.option("--agent", "agents", multiple=True, metavar="ID=BEHAVIOR", help="Who plays an agent; once for each.")
@duration_option("--deadline", default=None, help="How long a decision may take.  [default: 10s]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the log of decisions.")
@vecnormalize_option()
@access_options
@allow_host_option
@_config
def serve(
    host: str,
    port: int,
    agents: tuple[str, ...],
    deadline: float | None,
    out: Path | None,
    vecnormalize: Path | Literal[False] | None,
    config: Path | None,
    overrides: tuple[str, ...],
    allow_hosts: tuple[str, ...],
    **guarded: Any,
) -> None:
    """Answer games that post what their agents see, until Ctrl-C.

    BEHAVIOR is rules, random, llm, a model's .onnx or .zip, or module:Class. Others get the rule of thumb.
    """
    from ue_rl.plugins.arena import AgentArena, RunLog
    from ue_rl.plugins.arena.config import behaviors_of, load_config, scene_of

    access = access_of(guarded)
    with command_line():
        settings = load_config(config, overrides)
        names = [each.partition("=")[2] for each in agents]
        settings |= _statistics(vecnormalize, [name or settings.get("behavior", "") for name in names])
        scene = scene_of(settings)
        if deadline is None:
            seconds = settings.get("deadline")
            if not seconds:
                seconds = 10.0
            deadline = float(seconds)
        made = AgentArena(
            deadline=deadline, host=host, port=port, log=RunLog(out), access=access, allow_hosts=allow_hosts
        )
        for each in agents:
            agent_id, _, name = each.partition("=")
            folder = None
            if out is not None:
                folder = out / agent_id
            shown = None
            if name:
                shown = name
            given = behaviors_of(settings, scene, folder, shown)
            made.register(agent_id, next(iter(given.values())))
    try:
        made.run(lambda url: click.echo(f"agents {', '.join(made.behaviors) or 'by rule of thumb'} on {url}"))
    except OSError as error:
        raise cannot_listen(f"http://{host}:{port}", error, "choose another --port") from error
    finally:
        made.close()


@arena.command(short_help="Play episodes of a scene, with a log of each decision.")
@click.argument("scene", required=False)
@click.option("--behavior", help="rules, random, llm, MODEL.onnx, MODEL.zip or module:Class.  [default: rules]")
@click.option("--episodes", type=click.IntRange(1), help="How many.  [default: 1]")
@_seed
@duration_option("--deadline", default=None, help="How long a decision may take.  [default: no limit]")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for log, replay and memories.")
@click.option("--gif", type=click.Path(path_type=Path), help="Film the episodes. Needs Pillow.")
@vecnormalize_option()
@_config
def run(
    scene: str | None,
    behavior: str | None,
    episodes: int | None,
    seed: int | None,
    deadline: float | None,
    out: Path | None,
    gif: Path | None,
    vecnormalize: Path | Literal[False] | None,
    config: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Play SCENE: foraging, crafting, capture, or module:Class."""
    from ue_rl.plugins.arena import AgentArena, RunLog
    from ue_rl.plugins.arena.config import behaviors_of, load_config, scene_of

    with command_line():
        settings = _in_scene(load_config(config, overrides), scene)
        given = {"behavior": behavior, "episodes": episodes, "seed": seed, "deadline": deadline}
        settings |= {name: value for name, value in given.items() if value is not None}
        settings |= _statistics(vecnormalize, [settings.get("behavior", "")])
        world = scene_of(settings)()
        behaviors = behaviors_of(settings, type(world), out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        played = AgentArena.play(
            world,
            behaviors,
            episodes=int(settings.get("episodes", 1)),
            seed=settings.get("seed", 0),
            deadline=settings.get("deadline"),
            log=RunLog(out),
            replay=None if out is None else out / "replay.trace",
            on_tick=_film(stack, gif),
        )
    _table(
        [
            {
                "episode": n,
                "seed": each.seed,
                "ticks": each.ticks,
                "success": each.success,
                "return": each.score,
                "metrics": _words(each.metrics),
                "failed decisions": _words(each.codes),
            }
            for n, each in enumerate(played)
        ]
    )
    if out is not None:
        (out / "episodes.json").write_text(json.dumps([asdict(each) for each in played], indent=1), "utf-8")
        click.echo(f"log, replay and memories: {out}")


@arena.command("eval", short_help="Compare behaviours on the same episodes.")
@click.argument("scene", required=False)
@click.option("--behavior", "names", multiple=True, help="As of run; once for each.  [default: rules and random]")
@click.option("--episodes", type=click.IntRange(1), help="Episodes of each seed.  [default: 10]")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="How many seeds.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the table into this JSON file.")
@click.option("--chart", "chart_file", type=click.Path(path_type=Path), help="Draw it. Needs matplotlib.")
@vecnormalize_option()
@_config
def evaluate(
    scene: str | None,
    names: tuple[str, ...],
    episodes: int | None,
    seeds: int,
    json_file: Path | None,
    chart_file: Path | None,
    vecnormalize: Path | Literal[False] | None,
    config: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Each behaviour plays the same episodes of SCENE; returns with 95 % confidence intervals."""
    from ue_rl.plugins.arena.config import behaviors_of, load_config, scene_of
    from ue_rl.plugins.arena.evals import chart
    from ue_rl.plugins.arena.evals import evaluate as compare

    with command_line():
        settings = _in_scene(load_config(config, overrides), scene)
        world = scene_of(settings)
        given = (str(settings["behavior"]),) if "behavior" in settings else ("rules", "random")
        labels = names or given
        settings |= _statistics(vecnormalize, labels)
        for name in labels:  # a mistake is found before anything is played
            behaviors_of(settings, world, named=name)
    makers = {name: lambda name=name: behaviors_of(settings, world, named=name) for name in labels}
    number = settings.get("seed")
    if not number:
        number = 0
    first = int(number)
    count = episodes
    if not count:
        count = int(settings.get("episodes", 10))
    scores = compare(
        world,
        makers,
        episodes=count,
        seeds=range(first, first + seeds),
        deadline=settings.get("deadline"),
    )
    _table(
        [
            {
                "behavior": score.label,
                "return": f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]",
                "success": score.success,
                "metrics": _words(score.metrics),
                "ms": score.seconds * 1000,
                "tokens": score.tokens,
            }
            for score in scores
        ]
    )
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(score) for score in scores], indent=1), "utf-8")
    if chart_file is not None:
        chart(scores, chart_file, world.name)


@arena.command(short_help="Play a replay log again, and check each tick.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--scene", help="Where the log does not say it: module:Class.")
@click.option("--gif", type=click.Path(path_type=Path), help="Film it. Needs Pillow.")
def replay(file: Path, scene: str | None, gif: Path | None) -> None:
    """Play FILE (RUN/replay.trace) again; the world's hash must be the same after every tick."""
    from ue_rl.plugins.arena import replay as again
    from ue_rl.plugins.arena.config import scene_of
    from ue_rl.plugins.arena.replaylog import ReplayLog

    with command_line():
        log = ReplayLog(file)
        wanted = scene
        if not wanted:
            wanted = log.about.get("scene", "")
        world = scene_of({"scene": wanted})()
    with ExitStack() as stack:
        same = again(log, world, _film(stack, gif))
    cut = ""
    if log.end:
        cut = f"; {log.end}"
    click.echo(f"{same} ticks, each as it was; at the end: {_words(world.metrics())}{cut}")


@arena.command(short_help="Show what agents saw, read, remembered and decided.")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--agent", help="Of this agent only.")
@click.option("--tick", type=click.IntRange(0), help="Everything of this tick: prompt, memory, plan, answer.")
@click.option("--html", type=click.Path(path_type=Path), help="Write one page that needs nothing else.")
def inspect(folder: Path, agent: str | None, tick: int | None, html: Path | None) -> None:
    """Show the decisions in RUN, a folder that run or serve wrote with --out."""
    from ue_rl.plugins.arena.cli.arena_view import page, show
    from ue_rl.plugins.arena.log import decisions_in, summaries_in

    rows, ends = (
        [row for row in found(folder) if agent in (None, row["agent_id"])] for found in (decisions_in, summaries_in)
    )
    if html is not None:
        html.write_bytes(page(folder.name, rows, ends).encode("utf-8", "backslashreplace"))
        click.echo(f"{len(rows)} decisions: {html}")
        return
    if tick is not None:
        rows = [row for row in rows if row["tick"] == tick]
    show(console(), rows, ends, whole=tick is not None)


def _statistics(given: Path | Literal[False] | None, behaviors: Sequence[str]) -> dict[str, Any]:
    """What --vecnormalize puts over the settings."""
    if given is None:
        return {}
    if not any(name.endswith(".zip") for name in behaviors):
        raise click.UsageError("--vecnormalize is for a behaviour that is a model.zip: leave it out")
    from ue_rl.inference.statistics import NONE

    if given is False:
        vecnormalize = NONE
    else:
        vecnormalize = str(given)
    return {"vecnormalize": vecnormalize}


def _in_scene(settings: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The settings with another scene; what they change of it (its ticks, its size) they change of this one."""
    if name is None:
        return settings
    scene = settings.get("scene")
    return {**settings, "scene": {**scene, "name": name} if isinstance(scene, dict) else name}


def _film(stack: ExitStack, path: Path | None) -> Any:
    if path is None:
        return None
    from ue_rl.plugins.arena.scenes.bridge import picture
    from ue_rl.training.gif import GifFile

    film = stack.enter_context(GifFile(path))
    return lambda world, _: None if film.full else film.add(picture(world))


def _words(numbers: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())


def _table(rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = table_of(*names, left=names)
    for row in rows:
        values = [row.get(name, "") for name in names]
        table.add_row(*(printable(f"{v:.4g}" if isinstance(v, float) else str(v)) for v in values))
    lasting_console().print(table)
