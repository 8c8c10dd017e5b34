"""What `--help` shows: a sentence for each option of each command, within the width of a terminal."""

from __future__ import annotations

import re

import click
import pytest

from tests.support.command_line import ok
from ue_rl.cli import COMMANDS, cli


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_sentence(name: str) -> None:
    found = command(name)
    parts = list(found.commands.values()) if isinstance(found, click.Group) else [found]
    for option in [*cli.params, *(each for part in parts for each in part.params)]:
        if isinstance(option, click.Option):
            said = (option.help or "").partition("  [default:")[0]
            assert said.endswith("."), f"{name} {option.opts}: {said!r} is no sentence"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_its_arguments_are(name: str) -> None:
    found = command(name)
    for argument in found.params:
        if isinstance(argument, click.Argument):
            for word in re.findall("[A-Z]+", argument.metavar or str(argument.name).upper()):
                assert word in (found.help or ""), f"{name}: {word}"


@pytest.mark.parametrize("name", COMMANDS)
def test_it_fits_a_terminal(name: str) -> None:
    shown = ok(f"{name} --help", terminal_width=80)
    assert "Usage" in shown
    wide = [line for line in shown.splitlines() if len(line) > 80]
    assert wide == [], shown
    assert "TEXT" not in shown, "say what kind of text: metavar="
