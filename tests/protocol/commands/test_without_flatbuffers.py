"""What goes on where flatbuffers is not installed."""

from __future__ import annotations

import subprocess
import sys

from tests.protocol.commands.game import M
from ue_rl.protocol.commands.envelope import Method, encode

WITHOUT_FLATBUFFERS = """
import sys, logging
sys.modules["flatbuffers"] = None
logging.basicConfig(level="WARNING")
import numpy as np
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.dialling import open_transport
from ue_rl.system import errors
from ue_rl.bridges import ShmHost, ShmUpgrader, VectorBridge, run_in_thread
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

print("entries", file=sys.stderr)
event, ping = map(bytes.fromhex, sys.argv[1:])
with ShmHost(game) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
    game.sends = False

    def step():
        connection.send_actions(np.zeros((2, 1), np.float32))
        assert host.tick(0)
        return list(connection.receive().infos)

    step()
    for _ in range(3):
        assert host.memory.s2c.try_write(event)
    print(step(), connection.commands.dropped)
    connection.commands.send_entry(ping)
    print(host.tick(0), step())
"""


def test_infos_and_options_need_no_flatbuffers_a_game_that_sends_events_goes_on_and_entries_are_dropped() -> None:
    entries = [encode(Method.CLOSE, M.CloseT()).hex(), encode(Method.PING, M.PingT(stamp=1), 5).hex()]
    given = [sys.executable, "-c", WITHOUT_FLATBUFFERS, *entries]
    out = subprocess.run(given, capture_output=True, text=True, timeout=120, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == [
        "shared memory",
        "{0: {'given': {'low': -0.5}}, 1: {'given': {'low': -0.5}}}",
        "[0, 1]",
        "pip install flatbuffers",
        *("shared memory", "False", "False"), *("tcp", "False", "False"),
        "[0, 1] 3",
        "False [0, 1]",
    ]  # fmt: skip
    begun, unsent, entries_begun, dropped, unanswered = out.stderr.splitlines()  # nothing of infos and options
    assert (begun, entries_begun) == ("events", "entries")
    assert "need the package flatbuffers" in unsent
    assert "is dropped: commands over shared memory need the package flatbuffers" in dropped
    assert "cannot be read or answered" in unanswered
