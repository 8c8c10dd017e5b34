"""What several commands use: console and tables, flags, wrong command lines, and the errors of those that listen."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import click
from click.shell_completion import CompletionItem

from ue_rl.cli import completion
from ue_rl.system.durations import FORM, duration_text, read_duration
from ue_rl.system.errors import ConfigurationError, UntrustedFile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ue_rl.connections.base.address import Address
    from ue_rl.connections.dialling import Hosting
    from ue_rl.protocol.access.server_access import ServerAccess


class WrongCommandLine(ConfigurationError):
    """A ConfigurationError whose cause is the command line itself: exit code 2."""


@contextmanager
def command_line() -> Iterator[None]:
    """Around the reading of flags: a ConfigurationError becomes a WrongCommandLine."""
    try:
        yield
    except UntrustedFile:
        raise
    except ConfigurationError as error:
        raise WrongCommandLine(error.message, **error.facts()) from error


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
            if isinstance(each, click.Option) and not each.hidden:
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


class Duration(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """A flag's duration, such as 30s or 5min, in seconds; `zero`: 0 is one, too."""

    name = "duration"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See click.ParamType."""
        try:
            seconds = read_duration(value)
        except ValueError:
            seconds = -1.0
        if seconds < 0 or not (seconds or self.zero):
            self.fail(f"{value!r} is not {FORM}.", param, ctx)
        return seconds


def duration_option(*names: str, default: float | None, help: str, zero: bool = False) -> Callable[[Any], Any]:
    """An option of seconds, whose default is shown as a person writes it."""
    if default is not None:
        help += f"  [default: {duration_text(default)}]"
    return click.option(*names, type=Duration(zero), default=default, help=help)


def timeout_option(default: float, help: str) -> Callable[[Any], Any]:
    """The option --timeout; an address may say another one."""
    return duration_option("--timeout", default=default, help=help)


trace_options = flags(
    click.option("--trace", metavar="FILE", help="Record every message into this file; ue-rl replay plays it."),
    click.option(
        "--trace-size",
        type=click.IntRange(1),
        default=1000,
        show_default=True,
        help="Megabytes that the trace may take; beyond it the oldest go.",
    ),
)
metrics_option = click.option(
    "--metrics", metavar="PORT", help="Serve metrics for Prometheus on 127.0.0.1:PORT, or on HOST:PORT."
)
URL_HELP = (
    "URL is tcp://HOST:PORT, HOST:PORT or shm://NAME, tcp://127.0.0.1:7777 by default. Options of the connection may "
    "stand behind it: 'tcp://HOST:PORT?channel=per-env&timeout=2min'."
)


class PortNumber(click.IntRange):
    """A port on which something listens; `lowest` 0 where one listens oneself: any free one."""

    name = "port number"

    def __init__(self, lowest: int = 1) -> None:
        super().__init__(lowest, 65535)


def port_option(**more: Any) -> Callable[[Any], Any]:
    """--port, which is short for a URL on this machine."""
    text = "Short for the URL tcp://127.0.0.1:PORT."
    return click.option("--port", type=PortNumber(), metavar="PORT", help=text, **more)


def engine_argument(command: Any) -> Any:
    """The argument URL of an engine, what it may be, and --port; `engine_url` reads both."""
    command.__doc__ = f"{inspect.cleandoc(command.__doc__)}\n\n{URL_HELP}"
    return click.argument("url", required=False, metavar="[URL]", shell_complete=completion.url)(port_option()(command))


_file = click.Path(path_type=Path)
# Of a command that listens; `access_of` reads them.
access_options = flags(
    click.option("--token-file", type=_file, help="Serve who knows this token alone (docs/security.md)."),
    click.option("--tls-cert", type=_file, help="Speak TLS, with this certificate (PEM)."),
    click.option("--tls-key", type=_file, help="Its key.  [default: in the same file]"),
    click.option("--tls-client-ca", type=_file, help="Serve who shows a certificate of these alone."),
)


def _names_of_hosts(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if given:
        from ue_rl.protocol.access.visitors import Visitors

        with command_line():
            Visitors(local=True, names=given)  # says which of them is none
    return given


allow_host_option = click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    callback=_names_of_hosts,
    help="Over HTTP, answer pages and proxies of this name too, not of this machine alone; once for each.",
)


def access_of(options: dict[str, Any]) -> ServerAccess | None:
    """Takes out of `options` what `access_options` has put there; None: nobody is asked."""
    names = ("token_file", "tls_cert", "tls_key", "tls_client_ca")
    files = {name: options.pop(name) for name in names}
    if not any(files.values()):
        return None
    from ue_rl.protocol.access.server_access import ServerAccess

    return ServerAccess(**files)


def trust_option(**more: Any) -> Callable[[Any], Any]:
    """--trust: files of unknown origin may run what they hold, for as long as the command runs."""

    def trust(context: click.Context, _: click.Parameter, given: bool) -> None:
        if given:
            from ue_rl.system.trust.files import trusting

            context.with_resource(trusting())

    text = "Let files that were not made here run what they hold, as programs would (docs/security.md)."
    return click.option("--trust", is_flag=True, expose_value=False, callback=trust, help=text, **more)


class Statistics(click.ParamType):  # type: ignore[type-arg]  # click 8.1 has none
    """The path of a file, or False for the word that says that there is none; a file of that name is ./none."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | bool:
        """See click.ParamType."""
        from ue_rl.inference.statistics import NONE

        if value in (False, NONE):
            return False
        return Path(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """See click.ParamType: files."""
        return [CompletionItem(incomplete, type="file")]


def vecnormalize_option() -> Callable[[Any], Any]:
    """--vecnormalize FILE|none: what a model.zip that acts was normalised with; None where it is not given."""
    text = "The statistics of VecNormalize for a model.zip; none: it has none.  [default: those beside it]"
    return click.option("--vecnormalize", type=Statistics(), metavar="FILE|none", help=text)


def port_url(port: int) -> str:
    """What --port is short for."""
    return f"tcp://127.0.0.1:{port}"


def engine_url(url: str | None, port: int | None = None) -> str:
    """The address of the argument URL or of --port; without both the default, tcp://127.0.0.1:7777.

    Raises:
        WrongCommandLine: no such address can be, or both are given.
    """
    from ue_rl.connections.base.address import DEFAULT_PORT
    from ue_rl.connections.dialling import address_of

    return str(_one(url, port, DEFAULT_PORT, address_of))


def _one(url: str | None, port: int | None, default: int, read: Callable[[str], Address]) -> Address:
    if url is not None and port is not None:
        raise click.UsageError(f"--port {port} is short for {port_url(port)}, and a URL is given, too: leave one out")
    with command_line():
        return read(port_url(default if port is None else port) if url is None else url)


def hosting_at(address: Address, *, shm: bool = False, guarded: bool = False) -> Hosting:
    """How a bridge is hosted at an address that `listening_url` gave.

    Args:
        shm: trainers are to be offered shared memory. guarded: there is a token, or TLS.

    Raises:
        click.UsageError: such an address has not what is asked for.
    """
    from ue_rl.connections.dialling import handler_of

    handler = handler_of(address.scheme)
    assert handler.hosting is not None
    if shm and "upgrader" not in handler.hosting.takes:
        form = handler.scheme.form
        raise click.UsageError(f"--shm offers shared memory beside the text of tcp://; {form} cannot: give one of them")
    if guarded and "access" not in handler.hosting.takes:
        raise click.UsageError(f"a token and TLS are for TCP; {handler.scheme.form} takes neither")
    return handler.hosting


def listening_url(url: str | None, port: int | None) -> Address:
    """As `engine_url`, where one listens: port 0 is any free one, and there are no options.

    Raises:
        WrongCommandLine: no such address can be, or both are given.
    """
    from ue_rl.connections.base.address import DEFAULT_PORT, read_address
    from ue_rl.connections.dialling import carriers_for

    schemes = {
        name: each.scheme._replace(place=each.hosting.place, keys=())
        for name, each in carriers_for(url or "").items()
        if each.hosting is not None
    }
    return _one(url, port, DEFAULT_PORT, partial(read_address, schemes=schemes))


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


def table_of(*columns: str, left: Collection[str] = (), title: str | None = None) -> Table:
    """An empty table; columns that are not in `left` hold numbers."""
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", overflow="fold")
    return table


def number(value: float | None) -> str:
    """A return as tables have it."""
    if value is None:
        return "-"
    return f"{value:.1f}"


def engine_line(num_envs: int, facts: Mapping[str, str]) -> str:
    """How many envs in how many engines, and how they are reached; their addresses are in the log."""
    count = int(facts.get("engines", "1"))
    shown = {key: value for key, value in facts.items() if key != "engines" and (key != "address" or count == 1)}
    engines = ""
    if count > 1:
        engines = f" in {count} engines"
    return f"{num_envs} envs{engines}: {', '.join(f'{key} {value}' for key, value in shown.items())}"


def json_object(text: str, field: str) -> dict[str, Any]:
    """The value of the flag `field`; raises WrongCommandLine: not a JSON object."""
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


def cannot_listen(where: str, error: OSError, cure: str) -> ConfigurationError:
    """The error for HOST:PORT that cannot be listened on; `cure` where it is an address of this machine."""
    if error.errno == errno.EADDRNOTAVAIL:
        cure = "give an address of this machine, such as 127.0.0.1"
    return ConfigurationError(f"cannot listen on {where}", field="port", got=str(error), cure=cure)
