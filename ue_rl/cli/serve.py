"""`ue-rl serve`: hosts a Gymnasium or PettingZoo env, a MuJoCo model, or a bridge class of yours, as an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import click

from ue_rl.cli import completion
from ue_rl.cli.common import (
    PortNumber,
    WrongCommandLine,
    access_of,
    access_options,
    cannot_listen,
    command_line,
    hosting_at,
    json_object,
    listening_url,
    metrics_option,
    show_log,
    trace_options,
)
from ue_rl.protocol.spec import ActionSpec
from ue_rl.system.errors import ConfigurationError, printable
from ue_rl.system.loading import loaded
from ue_rl.system.plugins import load_plugin

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge
    from ue_rl.connections.base.address import Address


@click.command(short_help="Host an env as an engine.")
@click.argument("url", required=False, metavar="[URL]", shell_complete=completion.url)
@click.option("--env", metavar="ID", help="A Gymnasium id, such as CartPole-v1.")
@click.option("--pettingzoo", metavar="MODULE", help="A PettingZoo env, such as pettingzoo.classic.rps_v2.")
@click.option("--mujoco", metavar="MODEL", help="A MuJoCo model: arm.xml, or a task by name, such as HalfCheetah.")
@click.option("--task", metavar="MODULE:CLASS", help="The MujocoTask for --mujoco.  [default: that of the name]")
@click.option("--bridge", metavar="MODULE:CLASS", help="A bridge class of yours; called with num_envs.")
@click.option("--num-envs", type=click.IntRange(1), default=8, show_default=True, help="How many envs.")
@click.option(
    "--port",
    type=PortNumber(0),
    metavar="PORT",
    help="Short for the URL tcp://127.0.0.1:PORT; 0 takes a free one.",
)
@click.option("--tick-rate", type=float, help="Ticks per second, in real time.  [default: as fast as requests come]")
@click.option("--shm", is_flag=True, help="Offer shared memory to trainers on this machine.")
@click.option("--images", is_flag=True, help="Send the images of --env as images; needs --shm or shm://NAME.")
@click.option("--send-info", is_flag=True, help="Send the info dicts too.")
@click.option(
    "--kwargs", default="{}", metavar="JSON", help="Arguments for the env or the bridge class, as a JSON object."
)
@click.option(
    "--env-wrapper",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A gymnasium.Wrapper around each env of --env; with arguments as JSON: {MODULE:CLASS: {..}}.",
)
@access_options
@trace_options
@metrics_option
def serve(
    env: str | None,
    pettingzoo: str | None,
    mujoco: str | None,
    task: str | None,
    bridge: str | None,
    num_envs: int,
    url: str | None,
    port: int | None,
    tick_rate: float | None,
    shm: bool,
    images: bool,
    send_info: bool,
    kwargs: str,
    env_wrapper: tuple[str, ...],
    trace: str | None,
    trace_size: int,
    metrics: str | None,
    **guarded: Any,
) -> None:
    """Host an env, a MuJoCo model or a bridge class as an engine, until Ctrl-C, SIGTERM or SIGHUP.

    It serves one trainer after the other. URL is where it listens: tcp://HOST:PORT, by default tcp://127.0.0.1:7777;
    or shm://NAME (also the path of a file) for shared memory alone, without TCP.
    """
    address = listening_url(url, port)
    access = access_of(guarded)
    hosting_at(address, shm=shm, guarded=access is not None)
    memory_alone = address.scheme == "shm"
    if images and (env is None or not (shm or memory_alone)):
        raise click.UsageError("--images needs --env, and --shm or shm://NAME: text carries no images")
    if [env, pettingzoo, mujoco, bridge].count(None) != 3:
        raise click.UsageError("give one of --env, --pettingzoo, --mujoco and --bridge")
    if task is not None and mujoco is None:
        raise click.UsageError("--task is for --mujoco")
    if send_info and env is None and pettingzoo is None:
        raise click.UsageError("--send-info is for --env and --pettingzoo: a bridge or a task of yours announces INFO")
    if env_wrapper and env is None:
        raise click.UsageError("--env-wrapper is for --env")
    arguments = json_object(kwargs, "kwargs")
    from ue_rl import bridges
    from ue_rl.cli.inspect_spaces import rows
    from ue_rl.system.compiled import load

    if shm or memory_alone:
        try:
            load("sync")
        except ConfigurationError as error:
            if memory_alone or images:  # nothing that text could carry
                raise
            shm = False
            click.echo(f"no shared memory is offered, trainers are served text only: {error}")

    hosted: Any
    if env is not None:
        made = _wrapped(env, env_wrapper) if env_wrapper else env
        hosted = bridges.GymnasiumBridge(made, num_envs, send_info=send_info, images=images, **arguments)
    elif pettingzoo is not None:
        hosted = bridges.PettingZooBridge(pettingzoo, num_envs, send_info=send_info, **arguments)
    elif mujoco is not None:
        with command_line():
            given = None
            if task is not None:
                given = loaded(task, "task")
        hosted = load_plugin("ue_rl.bridges", "mujoco")(mujoco, given, num_envs, arguments)
    else:
        with command_line():
            make = _maker(str(bridge), {"num_envs": num_envs, **arguments})
        hosted = make(num_envs=num_envs, **arguments)
        if not isinstance(hosted, bridges.BaseBridge):
            raise WrongCommandLine(
                f"{bridge!r} made no bridge", field="bridge", expected="a BaseBridge", got=type(hosted).__name__
            )
    show_log("ue_rl.bridges.tcp.server", "ue_rl.bridges.shm")

    def say(running: Any) -> None:
        offered = ""
        if shm:
            offered = ", shared memory on offer"
        click.echo(
            f"{env or pettingzoo or mujoco or bridge}: {num_envs} envs on {running.url}{offered}  (Ctrl-C stops)"
        )
        click.echo(f"{hosted.build_handshake()}")
        for what, text in rows(hosted.spec):
            click.echo(printable(f"  {what}: " + text.replace("\n", "\n    "), lines=True))
        if mujoco is not None and type(hosted.task).__name__ == "MujocoTask":
            click.echo("  without --task every reward is 0, and no episode ends: docs/mujoco.md, section 1")
        if not memory_alone and hosted.spec.action_spec != ActionSpec.box(hosted.spec.act_size):
            click.echo("  the deployed plugin's own trainer reads no action space and acts within -1 to 1: use ue_rl's")

    with ExitStack() as stack:
        stack.callback(_close, hosted)
        if trace is not None:
            from ue_rl.devtools.recording import record_engine

            stack.callback(record_engine(hosted, trace, trace_size * 1_000_000).close)
        if metrics is not None:
            from ue_rl.devtools.metrics.engine import EngineMetrics
            from ue_rl.devtools.metrics.serving import serve_metrics

            click.echo(f"metrics: {stack.enter_context(serve_metrics(metrics, EngineMetrics(hosted).metrics))}")
        host_at(address, hosted, say, shm, tick_rate, access)


def host_at(
    address: Address,
    hosted: BaseBridge,
    say: Callable[[Any], None],
    shm: bool,
    tick_rate: float | None = None,
    access: Any = None,
) -> None:
    """Hosts a bridge until a signal comes.

    Args:
        address: as `listening_url` gives it. say: called with the host, once it serves. shm: offer shared memory.
        access: who may come in over TCP; None: everybody.

    Raises:
        ConfigurationError: the address cannot be listened on. SystemExit: by SIGTERM or SIGHUP.
    """
    from ue_rl.bridges import ShmUpgrader
    from ue_rl.bridges.runners import ends_in_order, signal_of

    hosting = hosting_at(address, shm=shm, guarded=access is not None)
    upgrader = None
    if shm:
        upgrader = ShmUpgrader()
    more = {"upgrader": upgrader, "access": access}
    arguments = {**hosting.arguments(address.place), **{name: more[name] for name in hosting.takes}}
    with ends_in_order(for_good=True):
        try:
            resolve_name(hosting.function)(hosted, ready=say, tick_rate=tick_rate, **arguments)
        except OSError as error:
            if address.scheme == "shm":
                raise
            cure = "another engine may be running there: choose another port"
            raise cannot_listen(address.place, error, cure) from error
        except SystemExit as end:
            if name := signal_of(end.code):
                click.echo(f"stopped by {name}")
            raise
        click.echo("stopped")


def _close(hosted: Any) -> None:
    from ue_rl.bridges.hosting import Closes

    if isinstance(hosted, Closes):
        hosted.close()


def _maker(name: str, arguments: dict[str, Any]) -> Any:
    """The class or function of this name, which takes these arguments.

    Raises:
        ConfigurationError: it cannot be loaded, or takes others.
    """
    make = loaded(name, "bridge")
    if not callable(make):
        raise ConfigurationError(
            f"{name!r} is no class of a bridge, and no function that makes one",
            field="bridge",
            expected="module:Class",
            got=type(make).__name__,
        )
    try:
        parameters = inspect.signature(make)
    except ValueError:  # some that are written in C do not say what they take
        return make
    try:
        parameters.bind(**arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"{name!r} does not take what it is called with: {error}",
            field="bridge",
            expected="num_envs=, and what --kwargs names",
            got=f"{name.rpartition(':')[2]}{parameters}",
            cure="give the class an __init__(self, num_envs) that hands an EnvSpec to super().__init__()",
        ) from error
    return make


def _wrapped(env: str, wrappers: tuple[str, ...]) -> Callable[..., Any]:
    """What makes the env in its wrappers."""
    from ue_rl.bridges.hosted.gymnasium_envs import make_gymnasium
    from ue_rl.training.hosted_wrappers import wrap_hosted
    from ue_rl.training.kinds import named_of

    with command_line():
        try:
            named = named_of(wrappers)
        except ValueError as error:
            raise ConfigurationError("not a wrapper", field="env_wrapper", got=", ".join(wrappers)) from error
    return lambda **arguments: wrap_hosted(make_gymnasium(env, arguments), named)
