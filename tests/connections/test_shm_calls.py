"""Requests beside the steps, and parameters of a reset, over shared memory: text in the rings, no FlatBuffers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ue_rl import errors
from ue_rl.bridges import ShmHost, ShmUpgrader, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.calls.asking import EngineCalls
from ue_rl.commands.text_entry import text_entries
from ue_rl.connections import SharedMemoryConnection
from ue_rl.spec import EnvSpec

N = 2


class Game(VectorBridge):
    """A game that offers everything."""

    def __init__(self, spec: EnvSpec | None = None) -> None:
        self.values = {"gravity": 9.75, "wind": 0.0}
        self.of_env: dict[tuple[str, int], float] = {}
        self.said: list[Any] = []
        self.side = 4
        super().__init__(spec or EnvSpec(1, 1, num_envs=N, features=frozenset({"SEED"})))

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.said.append(("reset", list(env_ids)))
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.obs[env_ids] += actions[env_ids]

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {name: (value, -20.0, 20.0) for name, value in self.values.items()}

    def get_parameter(self, name: str, env_id: int) -> float:
        return self.of_env.get((name, env_id), self.values[name])

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        self.said.append(("set", name, value, env_id))
        if env_id < 0:
            self.values[name] = value
        else:
            self.of_env[name, env_id] = value

    def set_time_scale(self, scale: float) -> None:
        self.said.append(("time scale", scale))

    def set_paused(self, paused: bool) -> None:
        self.said.append(("paused", paused))

    def render(self, env_id: int) -> Any:
        return np.arange(self.side * self.side * 3).astype(np.uint8).reshape(self.side, self.side, 3) + np.uint8(env_id)

    def compute_reward(self, achieved: Any, desired: Any) -> Any:
        return -np.abs(achieved - desired).sum(axis=1)


@pytest.mark.parametrize("upgraded", [False, True])
def test_every_call(upgraded: bool) -> None:
    game = Game()
    server: Any = run_in_thread(game, upgrader=ShmUpgrader()) if upgraded else run_shm_in_thread(game)
    address: dict[str, Any] = {"engine": ("127.0.0.1", server.port)} if upgraded else {"name": server.name}
    with server, SharedMemoryConnection(**address, timeout=10) as connection:
        calls = EngineCalls(connection)
        assert calls.get_parameters() == {"gravity": 9.75, "wind": 0.0}
        calls.set_parameters({"gravity": 3.5})
        calls.set_parameters({"wind": 1.5}, 1)
        assert game.said[-2:] == [("set", "gravity", 3.5, -1), ("set", "wind", 1.5, 1)]
        assert calls.get_parameters(["wind"], 1) == {"wind": 1.5}
        calls.set_time_scale(4)
        assert game.said[-1] == ("time scale", 4)
        assert (calls.render(1) == game.render(1)).all()
        goals = np.array([[1, 2], [3, 4]], np.float32), np.array([[1, 2], [3, 6]], np.float32)
        assert calls.compute_reward(*goals).tolist() == [0, -2]
        connection.reset()
        connection.receive()
        assert calls.get_parameters(["gravity"]) == {"gravity": 3.5}
        connection.send_actions(np.ones((N, 1), np.float32))
        with pytest.raises(errors.UnexpectedMessage, match="unanswered"):
            connection.call("GET")
        assert connection.receive().obs.tolist() == [[1], [1]]


def test_a_refusal_costs_nothing() -> None:
    with run_shm_in_thread(Game()) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        for line in ("SET=gravity:99", "GET=lift", "SET=gravity:1;ENV=9", "JUMP", "RENDER;ENV=9", ""):
            with pytest.raises(errors.CommandFailed):
                connection.call(line)
        assert connection.call("GET=wind") == "VALUES=wind:0"


def test_a_picture_larger_than_the_ring_comes_in_pieces() -> None:
    game = Game()
    game.side = 300
    with run_shm_in_thread(game, ring_size=4096) as host, SharedMemoryConnection(host.name, timeout=20) as connection:
        pixels = EngineCalls(connection).render(1)
        assert pixels.shape == (300, 300, 3)
        assert (pixels == game.render(1)).all()
        goals = np.arange(3000, dtype=np.float32).reshape(1000, 3)
        assert EngineCalls(connection).compute_reward(goals, goals + 1).tolist() == [-3] * 1000


def test_an_engine_without_rings_takes_no_calls() -> None:
    with run_shm_in_thread(Game(), ring_size=0) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        with pytest.raises(errors.UnsupportedByEngine, match="no command rings"):
            connection.call("GET")
        connection.draw_parameters = lambda env: {"wind": 1.0}
        for ask in (connection.reset, lambda: connection.send_actions(np.ones((N, 1), np.float32), [0])):
            with pytest.raises(errors.UnsupportedByEngine, match="no command rings"):
                ask()
        connection.draw_parameters = None
        connection.reset()
        assert connection.receive().obs.tolist() == [[0], [0]]


def test_a_call_beside_an_open_request_ends_the_session(caplog: pytest.LogCaptureFixture) -> None:
    with ShmHost(Game()) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        ring = connection.memory.c2s
        assert ring is not None
        connection.reset()
        for entry in text_entries(1, b"GET", 100):
            ring.try_write(entry)
        for _ in range(3):
            host.tick(0.01)
        with pytest.raises(errors.EngineDisconnected):
            connection.receive()
        assert "a call came while a request was open" in caplog.text


def test_an_answer_that_does_not_come() -> None:
    with ShmHost(Game()) as host, SharedMemoryConnection(host.name, timeout=0.3) as connection:
        with pytest.raises(errors.EngineTimeout, match="an answer to GET within"):
            connection.call("GET=wind")
        with pytest.raises(errors.ConnectionUnusable):
            connection.call("GET=wind")


# -- parameters of a reset


def test_parameters_come_before_the_reset_that_they_belong_to() -> None:
    game = Game()
    with run_shm_in_thread(game) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        drawn: list[Any] = [{"wind": 0.5}, None, {"gravity": -1.0, "wind": 2.0}, {}]
        connection.draw_parameters = lambda env: drawn.pop(0)
        connection.reset()
        connection.receive()
        assert game.said == [("set", "wind", 0.5, 0), ("reset", [0, 1])]
        game.said.clear()
        connection.send_actions(np.ones((N, 1), np.float32), [1])
        assert connection.receive().obs.tolist() == [[1], [0]]
        assert game.said == [("set", "gravity", -1.0, 1), ("set", "wind", 2.0, 1), ("reset", [1])]
        connection.reset([0])
        connection.receive()
        assert not drawn
        drawn[:] = [{"wind": 99.0}, {"wind": 1.0}]
        with pytest.raises(errors.ConfigurationError, match="wind"):
            connection.reset([0])
        connection.reset([0])
        connection.receive()


def test_an_engine_without_parameters_is_named() -> None:
    class Plain(VectorBridge):
        reset_envs, step_envs = Game.reset_envs, Game.step_envs  # type: ignore[assignment]
        said: list[Any] = []  # noqa: RUF012

    with run_shm_in_thread(Plain(EnvSpec(1, 1, num_envs=N))) as host:
        with SharedMemoryConnection(host.name, timeout=10) as connection:
            connection.draw_parameters = lambda env: {"wind": 1.0}
            with pytest.raises(errors.UnsupportedByEngine, match="no parameters") as caught:
                connection.reset()
            assert caught.value.field == "SET"
            connection.draw_parameters = lambda env: None
            connection.reset()
            connection.receive()


def test_none_of_it_needs_flatbuffers() -> None:
    code = """
import sys
sys.modules["flatbuffers"] = None
sys.path.insert(0, "tests/connections")
import test_shm_calls as t
t.test_every_call(False)
t.test_parameters_come_before_the_reset_that_they_belong_to()
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip().endswith("fine"), done.stderr[-2000:]
