"""The judge of tests/plugins/rllib/rllink/judge.py sees what it is there for: each of these messages is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.plugins.rllib.rllink.server import RLlinkServer
from tests.plugins.rllib.rllink.test_client import ACTIONS, client

Change = Callable[[dict[str, Any]], None]


class Altering(RLlinkServer):
    """Changes each message of episodes before it is judged."""

    change: Change

    def _read(self, body: bytes) -> dict[str, Any]:
        message = super()._read(body)
        if "episodes" in message:
            self.change(message)
        return message


def put(key: str, value: Any) -> Change:
    """In the first episode."""

    def change(message: dict[str, Any]) -> None:
        first = message["episodes"][0]
        first[key] = value(first) if callable(value) else value

    return change


def data(key: str, change: Callable[[Any], Any]) -> Change:
    """In an array of the first episode."""

    def changed(message: dict[str, Any]) -> None:
        first = message["episodes"][0]
        holder = first["extra_model_outputs"] if key.startswith("action_") else first
        holder[key]["data"] = change(holder[key]["data"])

    return changed


def seq(message: dict[str, Any]) -> None:
    first = message["episodes"][0]
    numbers = np.full(len(first["rewards"]["data"]), 9)
    first["extra_model_outputs"]["weights_seq_no"] = first["rewards"] | {"data": numbers}


def half(message: dict[str, Any]) -> None:
    message["episodes"] = message["episodes"][:1]
    message["timesteps"] = len(message["episodes"][0]["rewards"]["data"])


WRONG: dict[str, tuple[Change, str]] = {
    "a key is missing": (lambda message: message["episodes"][0].pop("agent_id"), "keys: missing.*agent_id"),
    "an output is missing": (put("extra_model_outputs", {}), "action_dist_inputs"),
    "no id": (put("id_", 7), "id_"),
    "no buffer": (put("rewards", [1.0]), "rewards"),
    "no flag": (put("is_terminated", 1), "is_terminated"),
    "a part that nothing came before": (put("t_started", 3), "t_started"),
    "t is no sum": (put("t", 99), "t: got 99"),
    "infos are finalized": (put("infos", lambda e: e["infos"] | {"finalized": True}), "infos"),
    "infos of other steps": (data("infos", lambda x: x[1:]), "infos"),
    "no observation of the reset": (data("observations", lambda x: x[1:]), "observations: expected shape"),
    "float64": (data("observations", lambda x: x.astype(np.float64)), "observations: expected float32"),
    "NaN": (data("rewards", lambda x: x * np.nan), "rewards"),
    "no choice": (data("actions", lambda x: x + 3), "actions"),
    "logits of others": (data("action_dist_inputs", lambda x: x + 0.001), "action_dist_inputs: expected"),
    "log-probabilities of others": (data("action_logp", lambda x: x - 0.01), "action_logp: expected"),
    "another number of steps": (lambda message: message.update(timesteps=3), "timesteps: got 3"),
    "other weights": (lambda message: message.update(weights_seq_no=4), "weights_seq_no: got 4"),
    "other weights of a step": (seq, "weights_seq_no"),
    "half a batch": (half, "RLlib waits for 50 steps"),
    "no list": (lambda message: message.update(episodes=3), "TypeError"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_seen(what: str) -> None:
    change, said = WRONG[what]
    with Altering(4, ACTIONS["discrete"], steps_per_sample=50) as server, client(server) as player:
        server.change = change
        player.run(samples=1)
    assert len(server.mistakes) == 1
    assert re.search(said, server.mistakes[0]), server.mistakes


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("id_", "another", "t_started"), ("t_started", 0, "t_started: got 0"),
        ("observations", lambda e: e["observations"] | {"data": e["observations"]["data"] + 1}, "of the part before"),
    ],
)  # fmt: skip
def test_a_part_goes_on_where_the_one_before_ended(key: str, value: Any, said: str) -> None:
    def change(message: dict[str, Any]) -> None:
        message["episodes"] = [e for e in message["episodes"] if e["t_started"]] or message["episodes"]
        if message["episodes"][0]["t_started"]:
            put(key, value)(message)

    with Altering(4, ACTIONS["discrete"], steps_per_sample=50) as server, client(server) as player:
        server.change = change
        player.run(samples=2)
    assert any(said in mistake for mistake in server.mistakes), server.mistakes


def test_equations_are_judged() -> None:
    def other(obs: Any, actions: Any) -> Any:
        return obs, np.zeros(len(obs)), np.zeros(len(obs), bool)

    with RLlinkServer(4, ACTIONS["discrete"], equations=other) as server, client(server) as player:
        player.run(samples=1)
    assert "observations: expected" in server.mistakes[0]
