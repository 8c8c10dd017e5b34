"""What is plugged in: the entry points of a group, by name. setup.cfg has ours; other distributions may have their own.

group            name       what it loads
ue_rl.carriers   a scheme   the SchemeHandler of its addresses (connections/dialling.py)
ue_rl.backends   a backend  begin(options, run, load, report, stack), which returns a Learner (ue_rl/training/run.py)
ue_rl.bridges    a kind     hosted(model, task, num_envs, arguments), which returns a bridge (ue_rl/cli/serve.py)
ue_rl.commands   a command  a click.Command of `ue-rl`; its extra in brackets, if it needs one
ue_rl.exporters  a library  export(folder, output, policy=.., spec=.., **options), which returns an ExportReport
ue_rl.games      a kind     write(folder, force): a game to begin with; returns sentences for people
ue_rl.pages      a server   write(onnx, folder, config): a page that plays the file there; returns sentences for people
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group, by name, ours first; nothing is imported."""
    found = sorted(entry_points(group=group), key=lambda entry: not entry.value.startswith("ue_rl."))
    return {entry.name: entry for entry in reversed(found)}  # of two with one name ours


def load_plugin(group: str, name: str) -> Any:
    """What the entry point names.

    Raises:
        ConfigurationError: there is none of this name. MissingPackage: it needs an extra that is not installed.
    """
    entry = plugins(group).get(name)
    if entry is None:
        expected = " or ".join(plugins(group))
        if not expected:
            expected = "the entry points that setup.cfg lists"
        raise ConfigurationError(
            "this installation has no such plug-in",
            field=group,
            expected=expected,
            got=name,
            cure="run `pip install` again: an editable installation keeps the entry points of the day it was made",
        )
    with named_if_missing(f"{group}: {name}"):
        return entry.load()


def extra_to_install(entry: EntryPoint) -> str | None:
    """The first extra in an entry point's brackets of which a package is missing here; None: all is installed."""
    owner = None
    if entry.dist is not None:
        owner = entry.dist.name
    for extra in entry.extras:
        if owner is not None and missing_packages(owner, extra):
            return extra
    return None


def missing_packages(owner: str, extra: str) -> list[str]:
    """The packages that an extra of the distribution `owner` asks for, and that are not installed."""
    return [package for package in dict.fromkeys(_packages(owner, extra)) if not _is_installed(package)]


def _packages(owner: str, extra: str) -> Iterator[str]:
    """The packages that an extra of a distribution asks for, those of extras that it names among them."""
    for requirement in distribution(owner).requires or ():
        said, _, marker = requirement.partition(";")
        if not re.search(rf"""extra == ['"]{re.escape(extra)}['"]""", marker):
            continue
        name, _, more = re.split(r"[<>=!~ (]", said.strip(), maxsplit=1)[0].partition("[")
        if name.lower().replace("-", "_") != owner.lower().replace("-", "_"):
            yield name
            continue
        for inner in more.rstrip("]").split(","):
            yield from _packages(owner, inner.strip())


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
