"""The command line `ue-rl`: one file per command, loaded when it is asked for, so that `--help` is quick.

Errors are shown as one sentence and a cure, without a traceback; `--debug` shows it. That of an error that nobody
expected is kept in a file. Exit codes: 0 done, 1 the run failed, 2 the command line is wrong; stopped by Ctrl-C 130, by
SIGTERM 143, by SIGHUP 129.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import logging
import os
import platform
import sys
import tempfile
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ue_rl import __version__
from ue_rl.system.errors import UeRlError, nearest, printable
from ue_rl.system.lazy import install
from ue_rl.system.plugins import extra_to_install, load_plugin, plugins

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "train": "Train a policy in engines that run, or that it starts.",
    "runs": "List and compare runs.",
    "serve": "Host an env, a MuJoCo model or a bridge class as an engine.",
    "check": "Say what an engine does wrong, and what to do.",
    "inspect": "Show an engine's handshake, spaces and speed.",
    "init": "Write a config and a script to train in an engine.",
    "bench": "Measure the bridge on this machine.",
    "export": "Turn a trained model into a verified ONNX file.",
    "play": "Let a policy play, and report its returns.",
    "demos": "Record demonstrations from a game, and show them.",
    "doctor": "Say what is installed, and whether an engine can be reached.",
    "replay": "Answer, or ask, as a trace was recorded.",
    "trace": "Show what a trace holds.",
    "policy-server": "Serve an ONNX policy to engines that cannot run it themselves.",
}


_PLUGGED = "ue_rl.commands"  # the group of entry points that plug-ins' commands are


class _Stop(BaseException):
    """Carries a KeyboardInterrupt past click."""

    def __init__(self, reason: KeyboardInterrupt) -> None:
        super().__init__(reason)
        self.reason = reason


class _LazyGroup(click.Group):
    """Imports a command's module (ue_rl.cli.<name>) only when it runs or its own help is shown.

    Those of plug-ins are entry points of the group ue_rl.commands; to list them imports them, too.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *plugins(_PLUGGED)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return load_plugin(_PLUGGED, cmd_name) if cmd_name in plugins(_PLUGGED) else None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"ue_rl.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click.Group; a misspelt name is answered with the right one."""
        cure = None
        if args[0] not in COMMANDS:
            names = self.list_commands(ctx)
            cure = None
            if args[0] not in names:
                cure = nearest(args[0], names)
        if cure is not None:
            ctx.fail(f"No such command {args[0]!r}: {cure}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """A stop keeps its exit code, which click would make 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise _Stop(stopped) from stopped

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands without importing them."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS.get(name)) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
        with formatter.section("Commands of plug-ins"):
            formatter.write_dl([(name, _of_plugin(name)) for name in plugins(_PLUGGED)])


def _of_plugin(name: str) -> str:
    """What a plug-in's command is for, and what installs it where its extra is missing."""
    command = load_plugin(_PLUGGED, name)
    extra = extra_to_install(plugins(_PLUGGED)[name])
    missing = ""
    if extra is not None:
        missing = f" Needs more: pip install 'ue_rl[{extra}]'"
    return f"{command.get_short_help_str(limit=120)}{missing}"


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ue-rl")
@click.option("--debug", is_flag=True, help="Show log records and tracebacks.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Train agents in game engines with Stable-Baselines3, ship them as ONNX."""
    context.obj = {"debug": debug}
    if debug:
        level = logging.DEBUG
    else:
        level = logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", force=debug)
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.DEBUG if debug else logging.WARNING)
    if debug:
        for noisy in ("matplotlib", "PIL", "asyncio"):
            logging.getLogger(noisy).setLevel(logging.WARNING)


def main(arguments: list[str] | None = None, group: click.Group = cli) -> Any:
    """Runs the command line and exits; `group`: other commands in place of these."""
    if arguments is None:
        words = sys.argv[1:]
    else:
        words = arguments
    debug = "--debug" in words
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end what is done
            stream.reconfigure(errors="backslashreplace")
    if not debug:  # what is wrong, not which line of a library found it
        warnings.formatwarning = lambda message, *where, **line: f"WARNING {message}\n"
    try:
        code = group.main(words, prog_name="ue-rl", standalone_mode=False)
        if code:  # it has said why
            _leave(code)
        sys.stdout.flush()  # here, where an error can still be told
        sys.exit(0)
    except _Stop as stop:
        reason = str(stop.reason)
        if not reason:
            reason = "stopped"
        _tell(reason, "yellow")
        _leave(getattr(stop.reason, "exit_code", 130))  # of SIGTERM and SIGHUP another one
    except (click.exceptions.Abort, KeyboardInterrupt):
        _tell("stopped", "yellow")
        _leave(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:  # whoever read the output has what it wanted: `ue-rl inspect | head -1`
        _leave(1)
    except Exception as error:
        if debug:
            raise
        _tell(_sentence(error, words), "red")
        _leave(2 if type(error).__name__ == "WrongCommandLine" else 1)


def _open_what_is_closed() -> None:
    """Whoever started it may have closed its output (`ue-rl train >&-`, a daemon): then nobody reads it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # The lowest descriptor that is free, which is the closed one: no socket of ours may take its place.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def _sentence(error: Exception, words: list[str]) -> str:
    """What to tell a user of an error that ended a command."""
    if isinstance(error, UeRlError):
        name = "ConfigurationError"
        if type(error).__name__ != "WrongCommandLine":
            name = type(error).__name__
        return f"{name}: {error}"
    if isinstance(error, ImportError):
        command = next((word for word in words if not word.startswith("-")), "")
        return f"{error}. This command needs more than is installed: {install(error, command)}"
    what = printable(f"{type(error).__name__}: {error}".partition("\n")[0])
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"{what}. Make room where this command writes, or have it write elsewhere"
    return f"{what}. Nobody expected this here; {_keep(error, words)}"


def _keep(error: Exception, words: list[str]) -> str:
    """Writes the traceback into a file; says where it is."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    facts = f"ue-rl {__version__}, Python {platform.python_version()}, {platform.platform()}\nue-rl {' '.join(words)}\n"
    try:  # a folder that everybody writes into: nobody is to guess the name, or to read what is in it
        descriptor, path = tempfile.mkstemp(".txt", time.strftime("ue-rl-crash-%Y%m%d-%H%M%S-"))
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{facts}\n{text}")
    except OSError:
        return "`ue-rl --debug` in front of the same words shows the traceback"
    return f"the traceback is in {path}"


def _tell(text: str, colour: str) -> None:
    """Onto stderr, unless nobody reads that either."""
    with contextlib.suppress(OSError):
        click.secho(text, fg=colour, err=True)


def _leave(code: int) -> NoReturn:
    """Exits without a word about output that could not be written."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
