"""Facts that pages state and users rely on: each stands where it is looked for, and agrees with the code."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ue_rl.connections.dialling import carriers
from ue_rl.system.errors import UeRlError

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = [ROOT / name for name in ("ue_rl", "connections", "bridges", "inference")]


def page(name: str) -> str:
    """The text of a page, in one line."""
    return " ".join((ROOT / name).read_text("utf-8").split())


def test_every_option_of_an_address_stands_in_the_table_of_addresses() -> None:
    table = page("docs/cli.md")
    options = {option for carrier in carriers().values() for option in carrier.scheme.keys}
    sessions = {"num_envs", "ticks"}  # of sessions alone: docs/grpc.md has them
    missing = [option for option in options - sessions if f"`{option.replace('_', '-')}`" not in table]
    assert missing == []


def test_every_culprit_that_an_error_names_is_explained() -> None:
    found = set()
    for folder in LIBRARY:
        for file in folder.rglob("*.py"):
            text = file.read_text("utf-8")
            if "fault=" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.keyword) and node.arg == "fault" and isinstance(node.value, ast.Constant):
                    found.add(node.value.value)
    known = {"engine", "trainer", "caller", "policy", "model", "server", "network"}
    assert known <= found
    explained = set(re.findall(r'"(\w+)"', str(UeRlError.__doc__)))
    assert known <= explained


def test_the_first_command_is_seen_whole() -> None:
    """On the site a longer line is cut off at the right, and what trains stands at its end."""
    text = (ROOT / "README.md").read_text("utf-8")
    block = re.search(r"<!-- train -->\n```bash\n(.*?)```", text, re.S)
    assert block is not None
    assert max(map(len, block[1].splitlines())) <= 80
    assert block[1].splitlines()[-1].endswith("ue-rl train")


def test_where_the_package_is_is_said_in_one_way() -> None:
    for name in ("README.md", "docs/quickstart.md"):
        assert "not on PyPI" in page(name)
        assert "From a package index" not in page(name)


def test_what_a_table_of_code_uses_is_imported_there() -> None:
    assert "`from ue_rl.protocol.text import read_space`" in page("docs/fifty-lines.md")


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("docs/unreal.md", "all listeners of the plugin bind to every address, whatever you give to `Connect`"),
        ("docs/training.md", "tosses one coin for all rows"),
        ("docs/training.md", "VecNormalize clips it, at `clip_obs` deviations"),
        ("docs/godot.md", "until then all generators of Godot 3 draw the same numbers"),
        ("docs/godot.md", "`match options.level:` takes no branch `3:`"),
    ],
)
def test_what_users_were_hurt_by_is_said(name: str, fact: str) -> None:
    assert fact in page(name)


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="the extra docs is not installed; stage docs of .ci/run has it")
def test_the_extra_docs_has_what_the_site_imports() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    extras = parser["options.extras_require"]
    wanted = {"numpy"}
    waiting = [Requirement(line) for line in extras["docs"].split("\n") if line]
    seen = set()
    while waiting:
        requirement = waiting.pop()
        key = (requirement.name.lower(), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        if requirement.name == "ue_rl":
            for extra in requirement.extras:
                waiting += [Requirement(line) for line in extras[extra].split("\n") if line]
            continue
        wanted.add(requirement.name.lower().replace("_", "-"))
        more = [Requirement(line) for line in requires(requirement.name) or []]
        for each in more:
            if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in requirement.extras or {""}):
                waiting.append(each)
    script = (
        "import sys; sys.path.insert(0, 'docs'); before = set(sys.modules)\n"
        "from pathlib import Path; import catalogue\n"
        "for page in Path('docs').rglob('*.md'): catalogue.filled(page.read_text('utf-8'))\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    owners = packages_distributions()
    lacking = {
        module
        for module in shown.stdout.split()
        if module != "ue_rl" and module in owners and not {o.lower().replace("_", "-") for o in owners[module]} & wanted
    }
    assert lacking == set()
