"""What docs/cli_reference.py gives docs/cli.md on the site; the help of `ue-rl train` is in groups."""

from __future__ import annotations

import runpy
from pathlib import Path

import click

from ue_rl.cli import COMMANDS, cli
from ue_rl.cli.common import GroupedCommand
from ue_rl.training.options import ROWS
from ue_rl.training.rows import EVERYDAY, GROUPS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_has_every_option_of_every_command() -> None:
    context = click.Context(cli)
    assert "<!-- every command -->" in (DOCS / "cli.md").read_text("utf-8")
    text = runpy.run_path(str(DOCS / "cli_reference.py"))["commands"]()
    parts = {part.split()[0]: part for part in text.split("\n## ")[1:]}
    for name in COMMANDS:
        command, part = cli.get_command(context, name), parts[name]
        assert command is not None
        shown = [each for each in command.params if not getattr(each, "hidden", False)]
        named = {word for each in shown for word in (*each.opts, *each.secondary_opts) if word[:2] == "--"}
        assert [word for word in sorted(named) if word not in part] == []


def test_the_help_of_train_begins_with_eight_options() -> None:
    context = click.Context(cli)
    train = cli.get_command(context, "train")
    assert isinstance(train, GroupedCommand)
    groups = train.grouped(click.Context(train))
    assert list(groups) == list(GROUPS)
    assert len(groups[EVERYDAY]) == 8
    assert all(groups.values())
    assert sum(map(len, groups.values())) == len(train.params) - 1  # --help; not the argument URL, and --written-here
    shown = train.get_help(click.Context(train, info_name="ue-rl train"))
    at = [shown.index(f"\n{title}:\n") for title in GROUPS]
    assert at == sorted(at)


def test_an_option_with_a_flag_has_a_group() -> None:
    assert [name for name, row in ROWS.items() if bool(row.help) and row.group not in GROUPS] == []
