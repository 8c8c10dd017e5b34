"""Import paths of modules that have moved, and the lazy names of the packages."""

from __future__ import annotations

import importlib
import sys

import pytest

import ue_rl
from ue_rl.moved import MOVED, install


# tests/rllib/test_multi_agent.py has those that need Ray
@pytest.mark.parametrize("old", [old for old, new in MOVED.items() if not new.startswith("ue_rl.rllib.")])
def test_a_former_path_gives_the_module_at_its_new_place(old: str) -> None:
    new = importlib.import_module(MOVED[old])
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=MOVED[old]):
        assert importlib.import_module(old) is new
    assert new.__name__ == MOVED[old]
    assert new.__spec__ is not None
    assert new.__spec__.name == MOVED[old]


def test_a_name_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"ue_rl\.nothing"):
        importlib.import_module("ue_rl.nothing")


def test_the_finder_is_installed_once() -> None:
    before = list(sys.meta_path)
    install()
    assert sys.meta_path == before


@pytest.mark.parametrize(
    "package",
    ["ue_rl", "ue_rl.bridges", "ue_rl.connections.tcp", "ue_rl.inference", "ue_rl.inference.export", "ue_rl.testing"],
)
def test_every_public_name_is_there_and_an_unknown_one_is_not(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert getattr(module, name).__name__ == name
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = module.Nothing


def test_former_names_of_modules_that_became_packages() -> None:
    from ue_rl.bridges.base import PolicyInterface
    from ue_rl.commands import json_object, json_text, method_name, mismatch, write_within
    from ue_rl.connections import opening
    from ue_rl.connections.tcp import MultiTcpConnection, SingleTcpConnection, TcpConnection, open_tcp, shake_hands

    assert issubclass(MultiTcpConnection, TcpConnection)
    assert issubclass(SingleTcpConnection, TcpConnection)
    assert open_tcp is opening.open_tcp
    for function in (json_object, json_text, method_name, mismatch, write_within, shake_hands):
        assert callable(function)
    assert PolicyInterface.__name__ == "PolicyInterface"


def test_the_packages_are_names_of_ue_rl() -> None:
    for name in ("bridges", "connections", "errors", "inference", "testing"):
        assert getattr(ue_rl, name).__name__ == f"ue_rl.{name}"
