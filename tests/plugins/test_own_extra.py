"""A plug-in is imported, all of it, where nothing is installed but its own extra."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# A package of each plug-in's extra, without which there is nothing to import.
NEEDED = {"arena": "openai", "mujoco": "mujoco", "rllib": "ray", "sessions": "grpc", "web": "websockets"}
# RLlib as a backend of `ue-rl train`, and its ONNX files: docs/rllib.md installs `train` beside it.
WITH_TRAIN = {f"ue_rl.plugins.rllib.{name}" for name in ("cluster", "exporting", "inbox", "learner", "run", "saved")}
IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({lacking}))
plugin = importlib.import_module("ue_rl.plugins.{name}")
for each in pkgutil.walk_packages(plugin.__path__, plugin.__name__ + "."):
    if each.name not in {but}:
        importlib.import_module(each.name)
"""


def distributions(requirement: str) -> set[str]:
    """What `pip install` of this would install, as far as it is installed here."""
    found: set[str] = set()
    left = [Requirement(requirement)]
    seen: set[str] = set()
    while left:
        wanted = left.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            needs = requires(wanted.name) or []
        except PackageNotFoundError:
            continue
        found.add(canonicalize_name(wanted.name))
        for need in map(Requirement, needs):
            marker = need.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted.extras, "")):
                left.append(need)
    return found


@cache
def modules() -> dict[str, set[str]]:
    """Of each module that is installed the projects that have it: looking through all of them takes a while."""
    return {
        module: {canonicalize_name(owner) for owner in owners}
        for module, owners in packages_distributions().items()
        if module.isidentifier()
    }


def lacking(extra: str) -> list[str]:
    """The modules of what any extra asks for that would not be there with this one alone.

    Not those that others bring along: some carry a copy of one of them in their own folder.
    """
    asked = {canonicalize_name(Requirement(need).name) for need in requires("ue_rl") or []}
    missing = asked - distributions(f"ue_rl[{extra}]")
    return sorted(module for module, owners in modules().items() if owners <= missing)


def test_what_an_extra_lacks_is_known() -> None:
    missing = set(lacking("web"))
    assert "pytest" in missing
    assert not missing & {"websockets", "click", "numpy", "ue_rl"}
    if find_spec("torch"):
        assert "torch" in missing


@pytest.mark.parametrize("name", NEEDED)
def test_a_plug_in_imports_nothing_of_another_extra(name: str) -> None:
    if "UE_RL_EXTRA" not in os.environ:  # .ci/run sets it where this extra must be there
        pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")
    code = IMPORT_ALL.format(lacking=lacking(name), name=name, but=WITH_TRAIN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
