"""What goes on where flatbuffers is not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.protocol.commands.game import Game, M, unhosted
from ue_rl.protocol.commands.envelope import Method, encode
from ue_rl.system import errors

WITHOUT_FLATBUFFERS = """
import sys, logging
sys.modules["flatbuffers"] = None
logging.basicConfig(level="WARNING")
import numpy as np
from ue_rl.connections.dialling import open_transport
from ue_rl.system import errors
from ue_rl.bridges import ShmUpgrader, VectorBridge, run_in_thread
from ue_rl.protocol.spec import EnvSpec

class Game(VectorBridge):
    sends = False

    def reset_envs(self, env_ids, seeds, options):
        for env, option in zip(env_ids.tolist(), options):
            self.write_info(env, {"given": option})

    def step_envs(self, actions, env_ids):
        for env in env_ids.tolist():
            self.write_info(env, {"env": np.int64(env)})
            self.outbox.dones[env] = 1
        if self.sends:
            print(self.send_event(1000))

game = Game(EnvSpec(1, 1, num_envs=2, features=frozenset({"OPTIONS", "INFO"})))
with run_in_thread(game, upgrader=ShmUpgrader()) as server:
    trainer = open_transport(server.url, timeout=10)
    print(trainer.describe()["transport"])
    trainer.reset(None, options=[{"low": np.float32(-0.5)}] * 2)
    print(trainer.receive().infos)
    trainer.send_actions(np.zeros((2, 1), np.float32))
    print([info["env"] for info in trainer.receive().infos.values()])
    try:
        trainer.commands.ping()
    except errors.ConfigurationError as error:
        print(error.cure)
    trainer.send_actions(np.zeros((2, 1), np.float32))
    trainer.receive()
    trainer.close()
    print("events", file=sys.stderr)
    game.sends = True
    for transport in ("auto", "tcp"):
        trainer = open_transport(server.url, transport, timeout=10)
        print(trainer.describe()["transport"])
        trainer.reset()
        trainer.receive()
        for _ in range(2):
            trainer.send_actions(np.zeros((2, 1), np.float32))
            trainer.receive()
        trainer.close()
"""


def test_infos_and_options_need_no_flatbuffers_and_a_game_that_sends_events_goes_on() -> None:
    out = subprocess.run(
        [sys.executable, "-c", WITHOUT_FLATBUFFERS], capture_output=True, text=True, timeout=120, check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == [
        "shared memory",
        "{0: {'given': {'low': -0.5}}, 1: {'given': {'low': -0.5}}}",
        "[0, 1]",
        "pip install flatbuffers",
        *("shared memory", "False", "False"), *("tcp", "False", "False"),
    ]  # fmt: skip
    begun, warning = out.stderr.splitlines()  # nothing was said of infos and options
    assert begun == "events"
    assert "need the package flatbuffers" in warning


def test_events_that_cannot_be_read_without_flatbuffers_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with unhosted(Game()) as (host, connection):
        connection.commands.ping()
        for _ in range(3):
            assert host.send(Method.CLOSE, M.CloseT())

        def missing() -> Any:
            raise errors.ConfigurationError("commands over shared memory need the package flatbuffers")

        ping = encode(Method.PING, M.PingT(stamp=1), 5)
        monkeypatch.setattr("ue_rl.protocol.commands.envelope.messages", missing)
        connection.send_actions(np.zeros((3, 1), np.float32))
        assert host.tick(0)
        assert connection.receive().rewards.tolist() == [1, 1, 1]
        assert connection.commands.dropped == 3
        assert len([line for line in caplog.messages if "flatbuffers" in line]) == 1
        connection.commands.send_entry(ping)
        assert host.tick(0) is False
        assert "cannot be read or answered" in caplog.text
        connection.send_actions(np.zeros((3, 1), np.float32))
        assert host.tick(0)
        connection.receive()
