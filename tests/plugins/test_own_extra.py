"""A plug-in is imported, all of it, where nothing is installed but its own extra."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.command_line import NOT_IN_ENGINE

# Of what `engine` has not, what the plug-in's extra has.
OWN: dict[str, set[str]] = {
    "arena": {"yaml"},
    "mujoco": {"gymnasium"},
    "rllib": {"PIL", "gymnasium", "torch", "yaml"},
    "sessions": set(),
    "web": set(),
}
# RLlib as a backend of `ue-rl train`, and its ONNX files: docs/rllib.md installs `train` beside it.
WITH_TRAIN = {f"ue_rl.plugins.rllib.{name}" for name in ("cluster", "exporting", "inbox", "learner", "run", "saved")}
NEEDED = {"arena": "openai", "mujoco": "mujoco", "rllib": "ray", "sessions": "grpc", "web": "websockets"}
IMPORT_ALL = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys({lacking}))
plugin = importlib.import_module("ue_rl.plugins.{name}")
for each in pkgutil.walk_packages(plugin.__path__, plugin.__name__ + "."):
    if each.name not in {but}:
        importlib.import_module(each.name)
"""


@pytest.mark.parametrize("name", OWN)
def test_a_plug_in_imports_nothing_of_another_extra(name: str) -> None:
    pytest.importorskip(NEEDED[name], reason=f"{NEEDED[name]} is not installed")
    lacking = sorted({*NOT_IN_ENGINE, "matplotlib", "pettingzoo", "sb3_contrib"} - OWN[name])
    code = IMPORT_ALL.format(lacking=lacking, name=name, but=WITH_TRAIN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
