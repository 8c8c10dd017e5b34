"""What several commands use: console and tables, flags, wrong command lines, and the errors of those that listen."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, cast

import click

from ue_rl.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


class WrongCommandLine(ConfigurationError):
    """A ConfigurationError whose cause is the command line itself: exit code 2."""


_MOST_SECONDS = 1e8  # three years: beyond that some system's clock runs over


@contextmanager
def command_line() -> Iterator[None]:
    """Around the reading of flags: a ConfigurationError becomes a WrongCommandLine."""
    try:
        yield
    except ConfigurationError as error:
        facts = {name: getattr(error, name) for name in ("fault", "env_id", "field", "expected", "got", "cure")}
        raise WrongCommandLine(error.message, **facts) from error


class GroupedOption(click.Option):
    """An option that stands under a heading of its command's help."""

    def __init__(self, *args: Any, group: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows its options under headings, in the order of `groups`; --help under the last one."""

    def __init__(self, *args: Any, groups: Sequence[str], **more: Any) -> None:
        super().__init__(*args, **more)
        self.groups = groups

    def grouped(self, context: click.Context) -> dict[str, list[click.Parameter]]:
        """The options by heading."""
        found: dict[str, list[click.Parameter]] = {title: [] for title in self.groups}
        for each in self.get_params(context):
            found[getattr(each, "group", self.groups[-1])].append(each)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See click.Command."""
        for title, options in self.grouped(ctx).items():
            with formatter.section(title):
                formatter.write_dl([record for each in options if (record := each.get_help_record(ctx))])


nul_terminated_option = click.option(
    "--nul-terminated/--no-nul-terminated",
    default=None,
    help="Send a NUL byte after each line.  [default: only to the Unreal plugin's SINGLE and RLBASE]",
)


def flags(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several flags of a command, in this order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def connection_flags(timeout: float, what: str) -> Callable[[Any], Any]:
    """The flags of a command that connects to a running engine; `timeout` seconds are the default for `what`."""
    return flags(
        click.option(
            "--host",
            default="127.0.0.1",
            show_default=True,
            help="Address of the engine: NAME, NAME:PORT, or shm://NAME.",
        ),
        click.option(
            "--port", type=click.IntRange(1, 65535), default=7777, show_default=True, help="Port of the engine."
        ),
        click.option(
            "--transport",
            type=click.Choice(["auto", "tcp", "shm"]),
            default="auto",
            show_default=True,
            help="auto takes shared memory where both share a machine.",
        ),
        click.option(
            "--channel",
            type=click.Choice(["auto", "shared", "per_env"]),
            default="auto",
            show_default=True,
            help="One socket for all envs, or one for each.",
        ),
        click.option("--timeout", type=float, callback=seconds, default=timeout, show_default=True, help=what),
        nul_terminated_option,
    )


def seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """The callback of a deadline's option: a positive number, and not more than a system's clocks can wait."""
    if not 0 < value <= _MOST_SECONDS:
        raise click.BadParameter(f"{value} is not a positive number of seconds.", context, parameter)
    return value


def seconds_or_none(context: click.Context, parameter: click.Parameter, value: float) -> float:
    """As `seconds`; 0 is not to wait at all."""
    if not 0 <= value <= _MOST_SECONDS:
        raise click.BadParameter(f"{value} is neither 0 nor a positive number of seconds.", context, parameter)
    return value


def engine_url(host: str, port: int | None) -> str:
    """The URL of --host and --port, as ue_rl.connect takes it.

    Raises:
        WrongCommandLine: no such address can be.
    """
    from ue_rl.connecting import address_of, carrier_of

    with command_line():
        url = address_of(host, port)
        carrier_of(url)
    return url


def console() -> Console:
    """Prints text as it is: an engine's may hold what rich would read as markup or emoji."""
    from rich.console import Console

    return Console(markup=False, emoji=False)


def lasting_console() -> Console:
    """As `console`, for a command that goes on when its terminal is closed, or nobody reads its output any more."""
    from rich.console import Console

    return Console(file=cast("IO[str]", _Lasting(sys.stdout)), markup=False, emoji=False)


class _Lasting:
    """A file; what cannot be written into it is left out."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """See io.TextIOBase."""
        with suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        """See io.IOBase."""
        with suppress(OSError):
            self._file.flush()


def two_columns(title: str | None = None) -> Table:
    """An empty table of names and values."""
    from rich.table import Table

    table = Table(show_header=False, title=title, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def engine_line(num_envs: int, facts: Mapping[str, str]) -> str:
    """How many envs in how many engines, and how they are reached; their addresses are in the log."""
    count = int(facts.get("engines", "1"))
    shown = {key: value for key, value in facts.items() if key != "engines" and (key != "address" or count == 1)}
    engines = f" in {count} engines" if count > 1 else ""
    return f"{num_envs} envs{engines}: {', '.join(f'{key} {value}' for key, value in shown.items())}"


def json_object(text: str, field: str) -> dict[str, Any]:
    """The value of the flag `field`.

    Raises:
        WrongCommandLine: not a JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise WrongCommandLine("not a JSON object", field=field, got=text)
    return value


def show_log(*names: str) -> None:
    """Shows the INFO records of these loggers: who connects and disconnects."""
    for name in names:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setLevel(min(handler.level, logging.INFO))


def cannot_listen(host: str, port: int, error: OSError, cure: str) -> ConfigurationError:
    """The error for an address that cannot be listened on."""
    return ConfigurationError(f"cannot listen on {host}:{port}", field="port", got=str(error), cure=cure)
