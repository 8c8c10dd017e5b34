"""The command line `ue-rl`: one file per command, loaded when it is asked for, so that `--help` is quick.

Errors of the project are shown as one sentence and a cure, without a traceback; `--debug` shows it. Exit codes: 0 done,
1 the run failed, 2 the command line is wrong, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from typing import Any

import click

from ue_rl import __version__
from ue_rl.errors import UeRlError

COMMANDS = {
    "train": "Train a policy with Stable-Baselines3, in a running engine or an embedded one.",
    "serve": "Host a Gymnasium or PettingZoo env, or a bridge class, as an engine.",
    "inspect": "Connect to an engine and show its handshake, spaces and speed.",
    "bench": "Measure the bridge on this machine.",
    "export": "Turn a trained model into a verified ONNX file.",
    "play": "Let a trained policy act in an engine and report its returns.",
    "policy-server": "Serve an ONNX policy to engines that cannot run it themselves.",
}


class _LazyGroup(click.Group):
    """Imports a command's module (ue_rl.cli.<name>) only when it runs or its own help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(importlib.import_module(f"ue_rl.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ue-rl")
@click.option("--debug", is_flag=True, help="Show log records and tracebacks.")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Train agents in game engines with Stable-Baselines3, ship them as ONNX."""
    context.obj = {"debug": debug}
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING, format="%(levelname)s %(name)s: %(message)s", force=debug
    )
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.DEBUG if debug else logging.WARNING)
    if debug:
        for noisy in ("matplotlib", "PIL", "asyncio"):
            logging.getLogger(noisy).setLevel(logging.WARNING)


def main(arguments: list[str] | None = None) -> Any:
    """Runs the command line and exits."""
    words = sys.argv[1:] if arguments is None else arguments
    if "--debug" not in words:  # what is wrong, not which line of a library found it
        warnings.formatwarning = lambda message, *where, **line: f"WARNING {message}\n"
    try:
        code = cli.main(words, prog_name="ue-rl", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.secho("stopped", fg="yellow", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (UeRlError, ImportError) as error:
        if "--debug" in words:
            raise
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            text = f"{error}. This command needs more than is installed: pip install 'ue_rl[train]'"
        click.secho(text, fg="red", err=True)
        sys.exit(1)
