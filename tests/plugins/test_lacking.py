"""A command of a plug-in names the extra that it lacks."""

from __future__ import annotations

import pytest

from samples.reach import ReachBridge
from tests.support.command_line import NOT_IN_ENGINE, without
from ue_rl.bridges import run_in_thread
from ue_rl.system.plugins import plugins

LACKING = {
    "serve --mujoco HalfCheetah": "mujoco",
    "rllink --url URL --port 1": "engine",
    "rllink --env CartPole-v1": "train",
    "arena run foraging": "arena",
    "arena replay x.trace": "arena",
    "arena run foraging --behavior x.zip": "train",
    "sessions CartPole-v1 --tcp 0": "sessions",
    "sessions samples.skirmish.bridge:Skirmish --tcp 0": "sessions",
}


@pytest.mark.parametrize("command", LACKING)
def test_a_command_names_the_extra_that_it_lacks(command: str) -> None:
    """`engine` is what a broken installation of it is told."""
    hidden = [*NOT_IN_ENGINE, "mujoco", "pydantic", "ray"]
    if "x.zip" in command:  # all of arena's own is there
        hidden.remove("pydantic")
        hidden.remove("yaml")
    if "--url" in command:
        hidden.append("msgpack")
    with run_in_thread(ReachBridge(1)) as server:
        done = without(hidden, command.replace("URL", server.url).split())
    assert done.returncode == 1, done.stderr
    assert f"pip install 'ue_rl[{LACKING[command]}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_command_is_tried_without_what_it_needs() -> None:
    tried = {command.split()[0] for command in LACKING} - {"serve"}
    assert tried == set(plugins("ue_rl.commands"))


def test_any_address_is_read_without_the_packages_of_plug_ins() -> None:
    """What is expected instead of a wrong one names the schemes of all plug-ins."""
    done = without(("grpc", "pydantic", "starlette", "websockets"), ["check", "udp://127.0.0.1:7777"])
    assert done.returncode == 2, done.stderr
    assert "not an address of an engine" in done.stderr
    assert "grpc://HOST:PORT" in done.stderr
