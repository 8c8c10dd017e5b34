"""What a user is told to install: an extra that has the missing package."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from ue_rl.system.lazy import EXTRAS, install

ROOT = Path(__file__).parents[2]
# Packages by another name than that of their distribution, and those that a distribution brings.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "anyio": "mcp",
    "google": "grpcio-health-checking",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "h5py": "minari",
    "yaml": "pyyaml",
}


def brought(extra: str) -> set[str]:
    """The distributions that an extra of setup.cfg brings, with those of the extras that it names."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    found = set()
    for line in parser["options.extras_require"][extra].split():
        name = re.split(r"[<>=;\[]", line)[0]
        if name == "ue_rl":
            for inner in line.partition("[")[2].rstrip("];").split(","):
                found |= brought(inner)
        else:
            found.add(name)
    return found


@pytest.mark.parametrize("package", EXTRAS)
def test_an_extra_that_is_named_has_the_package(package: str) -> None:
    distribution = DISTRIBUTIONS.get(package, package.replace("grpc_", "grpcio_").replace("_", "-"))
    for extra in EXTRAS[package]:
        assert distribution in brought(extra), extra


@pytest.mark.parametrize(
    ("package", "what", "command"),
    [
        ("gymnasium", "ue_rl.connect", "pip install 'ue_rl[train]'"),
        ("gymnasium", "sessions", "pip install 'ue_rl[sessions]'"),
        ("gymnasium", "ue_rl.plugins.rllib.UnrealEnvRunner", "pip install 'ue_rl[rllib]'"),
        ("pydantic", "ue_rl.plugins.arena.replay", "pip install 'ue_rl[arena]'"),
        ("anyio", "ue_rl.plugins.sessions.mcp", "pip install 'ue_rl[sessions]'"),
        ("google", "", "pip install 'ue_rl[sessions]'"),
        ("torch", "arena", "pip install 'ue_rl[train]'"),
        ("torch", "demos", "pip install 'ue_rl[demos]'"),
        ("onnx", "ue_rl.plugins.rllib.export_rl_module", "pip install 'ue_rl[train]'"),
        ("matplotlib", "a chart", "pip install matplotlib"),
    ],
)
def test_what_lacks_the_package_is_not_named(package: str, what: str, command: str) -> None:
    """A plug-in's own extra where it has the package; else the one that has it, which is more than is installed."""
    assert install(ModuleNotFoundError(f"No module named {package!r}", name=package), what) == command


def test_the_extra_agents_has_what_the_games_of_pettingzoo_import() -> None:
    """They import pygame even where nothing is drawn; Gymnasium and PettingZoo take the same one."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = parser["options.extras_require"]["agents"].split()
    assert any(line.startswith("gymnasium[classic-control]") for line in lines)
