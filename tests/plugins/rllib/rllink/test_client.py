"""The client against a server that checks every episode, and against servers that misbehave."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.several import Walk
from tests.plugins.rllib.rllink.server import RLlinkFault, RLlinkServer
from tests.support.listening import free_port
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.plugins.rllib.rllink.client import RLlinkClient
from ue_rl.plugins.rllib.rllink.messages import ServerConfig
from ue_rl.plugins.rllib.rllink.player import CollectedSample
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind
from ue_rl.system.errors import (
    ConfigurationError,
    LearnerDisconnected,
    LearnerTimeout,
    LearnerUnreachable,
    MalformedMessage,
    UnsupportedByEngine,
    UnsupportedNetwork,
)

ACTIONS = {
    "discrete": ActionSpec.discrete(3), "multi_discrete": ActionSpec.multi_discrete((2, 3)),
    "box": ActionSpec.box(2, -2, 2),
}  # fmt: skip


def walk(num_envs: int, action: ActionSpec = ACTIONS["discrete"]) -> MemoryTransport:
    return MemoryTransport(Walk(num_envs, action=action, act_size=action.size))


def client(server: RLlinkServer, num_envs: int = 3, **options: Any) -> RLlinkClient:
    return RLlinkClient(walk(num_envs, server.action), port=server.port, timeout=20.0, seed=1, **options)


@pytest.mark.parametrize(("num_envs", "action"), [(1, "discrete"), (3, "multi_discrete"), (4, "box"), (32, "discrete")])
def test_every_episode_is_right(num_envs: int, action: str) -> None:
    with RLlinkServer(4, ACTIONS[action], steps_per_sample=50) as server, client(server, num_envs) as player:
        seen = []
        player.run(samples=4, on_sample=seen.append)
    assert server.mistakes == []
    assert server.batches == [sample.steps for sample in seen]
    assert all(50 <= steps < 50 + num_envs for steps in server.batches)
    assert [sample.seq for sample in seen] == [0, 1, 2, 3]
    told = [(total, length) for sample in seen for total, length in zip(sample.returns, sample.lengths, strict=True)]
    np.testing.assert_allclose(sorted(told), sorted(server.finished), rtol=1e-5)
    assert len(told) > 3
    assert {length for _, length in told} <= {3, 4, 5, 6}


def test_the_other_dialect_is_found_out() -> None:
    pytest.importorskip("onnx", reason="the files of the other dialect are made by the extra train")
    # RLlib's server does not listen for 5 seconds; this one does
    with RLlinkServer(4, ACTIONS["multi_discrete"], dialect="json") as server, client(server, pause=0.1) as player:
        player.run(samples=3)
    assert len(server.batches) == 3
    assert server.clients == 2
    assert "msgpack" not in "".join(server.mistakes[1:])
    assert len(server.mistakes) == 1  # the PING in msgpack
    with RLlinkServer(4, ACTIONS["box"], dialect="json") as server, client(server, dialect="json") as player:
        player.run(samples=2)
    assert server.mistakes == []


def test_weights_are_those_that_came_last() -> None:
    with RLlinkServer(4, ACTIONS["box"], hidden=(16, 8, 8), activation="relu") as server, client(server) as player:
        player.run(samples=2)
        assert player.policy is not None
        obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
        assert (player.policy.net(obs) == server.network(obs)).all()
    assert server.mistakes == []


def test_what_is_said_wins_over_the_servers_config() -> None:
    config = RLlinkServer(4, ACTIONS["discrete"], steps_per_sample=200, activation="tanh").config()
    with RLlinkServer(4, ACTIONS["discrete"], 20, activation="relu", config_pickle=config) as server:
        with client(server, said=ServerConfig(20, "relu")) as player:
            player.run(samples=1)
    assert server.batches == [21]
    assert server.mistakes == []


def test_only_the_first_message_has_what_is_collected_before_learning() -> None:
    with RLlinkServer(4, ACTIONS["discrete"], steps_per_sample=50) as server:
        with client(server, said=ServerConfig(steps_before_learning=200)) as player:
            player.run(samples=3)
    first, *rest = server.batches
    assert 200 <= first < 203
    assert [50 <= steps < 53 for steps in rest] == [True, True]
    assert server.mistakes == []


# -- servers that misbehave


def test_nobody_listens() -> None:
    port = free_port()
    for wait in (0.0, 0.3):
        with pytest.raises(LearnerUnreachable, match="no RLlink server listens"):
            RLlinkClient(walk(1), port=port, timeout=1.0, wait=wait).connect()


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [
        (RLlinkFault.UNKNOWN_LAYERS, UnsupportedNetwork, "cnn"),
        (RLlinkFault.OBJECTS, MalformedMessage, "only a pickle could make"),
    ],
)
def test_weights_that_cannot_be_played_are_a_named_error(fault: RLlinkFault, error: Any, said: str) -> None:
    with RLlinkServer(4, ACTIONS["discrete"], fault=fault) as server, pytest.raises(error, match=said):
        client(server).run(samples=3)


def test_a_trap_stays_unsprung(tmp_path: Path) -> None:
    file = tmp_path / "sprung"
    for fault in (RLlinkFault.TRAP, RLlinkFault.OBJECTS):
        with RLlinkServer(4, ACTIONS["discrete"], fault=fault, trap=f"touch {file}") as server:
            player = RLlinkClient(walk(2), port=server.port, timeout=20.0, said=ServerConfig(50, "tanh"))
            with pytest.raises(MalformedMessage):
                player.run(samples=1)
    assert not file.exists()


@pytest.mark.parametrize("fault", [RLlinkFault.LATE, RLlinkFault.REPEATED, RLlinkFault.LAYERS])
def test_what_is_no_fault_of_the_servers(fault: RLlinkFault) -> None:
    delay = 0.1 if fault is RLlinkFault.LATE else 0.0
    with RLlinkServer(4, ACTIONS["discrete"], fault=fault, delay=delay) as server, client(server) as player:
        player.run(samples=3)
    assert server.mistakes == []
    assert len(server.batches) == 3


def test_a_server_that_went_away_is_dialled_again() -> None:
    with RLlinkServer(4, ACTIONS["discrete"], fault=RLlinkFault.DISCONNECT) as server:
        player = client(server, reconnect=5.0)
        player.run(samples=3)
        player.close()
    assert server.clients == 2
    assert server.mistakes == []


def test_a_server_that_was_restarted_sees_whole_episodes_only(caplog: pytest.LogCaptureFixture) -> None:
    first, second = (RLlinkServer(4, ACTIONS["discrete"], steps_per_sample=50, seed=seed) for seed in (0, 1))
    seen: list[CollectedSample] = []
    with ExitStack() as servers:
        servers.enter_context(first)
        player = client(first, num_envs=4, reconnect=10.0)

        def restart(sample: CollectedSample) -> None:
            seen.append(sample)
            if len(seen) == 2:
                servers.close()
                second.port = first.port
                servers.enter_context(second)

        player.run(samples=4, on_sample=restart)
        player.close()
    assert first.mistakes == second.mistakes == []
    assert (len(first.batches), len(second.batches)) == (2, 2)
    assert [sample.seq for sample in seen] == [0, 1, 0, 1]
    assert "env-steps are lost; dialling again for 10 s" in caplog.text
    told = [total for sample in seen[2:] for total in sample.returns]
    np.testing.assert_allclose(sorted(told), sorted(total for total, _ in second.finished), rtol=1e-5)
    ids = [{chunk.id_ for sample in half for chunk in sample.chunks} for half in (seen[:2], seen[2:])]
    assert not ids[0] & ids[1]


class HangsUp(RLlinkServer):
    """Ends the connection whenever episodes come."""

    def _answer(self, client: socket.socket, message: dict[str, Any]) -> bool:
        return message.get("type") != "EPISODES_AND_GET_STATE" and super()._answer(client, message)


def test_one_that_never_answers_is_not_dialled_for_ever() -> None:
    with HangsUp(4, ACTIONS["discrete"], steps_per_sample=10) as server, client(server, reconnect=5.0) as player:
        with pytest.raises(LearnerDisconnected, match="instead of answering EPISODES_AND_GET_STATE"):
            player.run(samples=2)
    assert server.clients == 6


@pytest.mark.slow
def test_one_that_comes_back_and_is_silent_is_waited_for_as_long_as_was_said(slack: float) -> None:
    with RLlinkServer(4, ACTIONS["discrete"], fault=RLlinkFault.DISCONNECT) as server:
        player = RLlinkClient(walk(3, server.action), port=server.port, timeout=60.0, seed=1, reconnect=0.4 * slack)

        def silent(_: CollectedSample) -> None:
            raise AssertionError

        def state(_: socket.socket) -> bool:
            """Closes the connection once, and says nothing from then on."""
            server.states += 1
            return server.states > 2

        began = time.monotonic()
        player.connect()
        server._send_state = state  # type: ignore[method-assign]
        with pytest.raises(LearnerTimeout, match="GET_STATE"):
            player.run(samples=2, on_sample=silent)
        assert time.monotonic() - began < 50  # not the 60 seconds of `timeout`
        player.close()


class Refused(RLlinkClient):
    """Whoever it was connected to is not there any more.

    Attributes:
        waits: the seconds that each attempt had.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.waits: list[float] = []

    def _meet(self, wait: float, timeout: float) -> None:
        self.waits.append(wait)
        if len(self.waits) > 1:
            raise LearnerUnreachable("nobody listens", fault="server")
        super()._meet(wait, timeout)


def test_no_attempt_is_begun_that_has_no_time_left() -> None:
    """It would fail for that, and the error would hide why all before it failed."""
    with RLlinkServer(4, ACTIONS["discrete"], fault=RLlinkFault.DISCONNECT) as server:
        player = Refused(walk(3, server.action), port=server.port, timeout=20.0, seed=1, reconnect=0.5)
        player.connect()
        with pytest.raises(LearnerUnreachable, match="nobody listens"):
            player.run(samples=2)
        assert len(player.waits) > 1
        assert min(player.waits[1:]) >= 0.2
        player.close()


def test_engines_with_other_observations_are_refused_by_name() -> None:
    tree = Branch((("a", Leaf(LeafKind.MULTI_DISCRETE, (4,), counts=(4,) * 4)),), True)
    with RLlinkServer(4, ACTIONS["discrete"]) as server, pytest.raises(UnsupportedByEngine, match="plain rows"):
        transport = MemoryTransport(Walk(1, obs_space=tree))
        RLlinkClient(transport, port=server.port).connect()
    assert server.clients == 0


def test_a_policy_for_other_spaces_is_refused_by_name() -> None:
    with RLlinkServer(5, ACTIONS["discrete"]) as server, pytest.raises(UnsupportedNetwork, match="does not fit"):
        client(server).connect()
    with RLlinkServer(4, ACTIONS["box"]) as server, pytest.raises(UnsupportedNetwork, match="ACT_SPACE"):
        RLlinkClient(walk(2), port=server.port, timeout=20.0).connect()


def test_a_dialect_that_is_none() -> None:
    with pytest.raises(ConfigurationError, match="no such dialect"):
        RLlinkClient(walk(1), dialect="xml").connect()


def test_more_steps_than_a_message_holds_are_refused_before_they_are_played() -> None:
    with RLlinkServer(4, ACTIONS["discrete"], steps_per_sample=2**31 - 1) as server:
        with pytest.raises(ConfigurationError, match="more env-steps at a time than a message holds"):
            client(server).connect()
        assert "GET_STATE" not in server.heard
