"""The rest of the harness: golden vectors, the task, the in-memory transport, the pytest plugin."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ue_rl.devtools.testing
from ue_rl.bridges.multi_env import MultiEnvBridge
from ue_rl.devtools.testing import (
    FaultyEngine,
    MemoryTransport,
    PluginStandIn,
    RawClient,
    TinyTask,
    find_protocol,
    load_golden,
    make_tiny_env,
)
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors

# -- golden vectors


def test_the_projects_own_vectors_are_whole() -> None:
    vectors = load_golden(find_protocol(__file__))
    assert {vector.kind for vector in vectors} == {"handshake", "request", "reply", "call", "notice"}
    assert len(vectors) > 50
    for vector in vectors:
        if vector.reject is not None:
            assert issubclass(getattr(errors, vector.reject), errors.ProtocolError), vector.name
    lines = find_protocol(__file__).read_text(encoding="utf-8").splitlines()
    assert len(vectors) == len(lines) - 2
    assert all(f'"name": "{v.name}"' in lines[v.line_number - 1] for v in vectors)
    assert [v["name"] for v in json.loads("\n".join(lines))] == [v.name for v in vectors]


@pytest.mark.parametrize(
    ("vector", "complaint"),
    [
        ('{"name": "a", "config": "x"}', "says what its line means"),
        ('{"name": "a", "config": "x", "reject": "WrongCount", "spec": {"obs_size": 1}}', "says what its line means"),
        ('{"name": "a", "config": "x", "rejects": "WrongCount"}', "unknown keys"),
        ('{"config": "x", "reject": "WrongCount"}', "name"),
        ('{"name": "a", "config": "x", "request": "r", "reply": "r", "reject": "WrongCount"}', "not both"),
        ('{"name": "a", "config": "x", "call": "r", "notice": "r", "reject": "WrongCount"}', "not both"),
        ('{"name": "a", "request": "r", "reject": "WrongCount"}', "names its handshake"),
        ('{"name": "a", "config": "x", "call": "GET", "asked": {"name": "GET"}, "answer": "OK"}', "what it means"),
        ('{"name": "a", "config": "x", "reply": "r", "after": "noon", "reject": "WrongCount"}', "step or reset"),
        ('{"name": "a", "config": "x", "request": "r", "asks": [{"env": 0}]}', "an action or is a reset"),
        ('{"name": "a", "config": "x", "reply": "r", "states": [{"env": 0, "obs": [1]}]}', "reward"),
        ('["just a list"]', "not an object"),
        ('{"name": [', "not a golden vector"),
    ],
)
def test_a_vector_that_says_nothing_is_an_error(tmp_path: Path, vector: str, complaint: str) -> None:
    file = tmp_path / "vectors.json"
    file.write_text(f'[\n{{"name": "right", "config": "x", "reject": "WrongCount"}},\n{vector}\n]\n')
    with pytest.raises(ValueError, match=complaint) as caught:
        load_golden(file)
    assert "line 3" in str(caught.value)


def test_two_vectors_of_one_name_are_an_error(tmp_path: Path) -> None:
    vector = '{"name": "a", "config": "x", "reject": "HandshakeError"}'
    (tmp_path / "vectors.json").write_text(f"[\n{vector},\n{vector}\n]\n")
    with pytest.raises(ValueError, match="twice"):
        load_golden(tmp_path / "vectors.json")


@pytest.mark.parametrize("text", ["", "[]\n", "# The protocol\n"])
def test_another_file_is_no_file_of_vectors(tmp_path: Path, text: str) -> None:
    (tmp_path / "protocol.md").write_text(text)
    with pytest.raises(ValueError, match="not a file of golden vectors"):
        load_golden(tmp_path / "protocol.md")


def test_no_protocol_to_be_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no docs/protocol-vectors\.json"):
        find_protocol(tmp_path)


# -- the task


@pytest.mark.parametrize("decimals", [2, 6])
def test_the_task_loses_nothing_in_its_decimal_text(decimals: int) -> None:
    task = TinyTask(3, decimals=decimals, obs_size=3, act_size=2)
    obs = task.reset()
    for step in range(30):
        assert [float(f"{x:.{decimals}f}") for x in obs] == obs
        assert float(f"{task.reward:.2f}") == task.reward
        obs, _, done = task.step([np.float32(0.37) * step, -1.0])
        if done:
            obs = task.reset()


def test_the_task_reads_actions_as_float32() -> None:
    # 0.05 as float32 lies above one half of a hundredth of ten, as a double exactly on it
    from_wire, in_process = TinyTask(), TinyTask()
    from_wire.reset()
    in_process.reset()
    assert from_wire.step([0.05, 0.15]) == in_process.step([float(np.float32(0.05)), float(np.float32(0.15))])


def test_the_gymnasium_env_is_the_task() -> None:
    env = make_tiny_env(1, episode_length=3)()
    task = TinyTask(1, episode_length=3)
    obs, _ = env.reset()
    assert obs.tolist() == np.float32(task.reset()).tolist()
    obs, reward, terminated, truncated, _ = env.step(np.float32([0.5, 0.5]))
    expected, expected_reward, _ = task.step([0.5, 0.5])
    assert (obs.tolist(), reward, terminated, truncated) == (
        np.float32(expected).tolist(),
        expected_reward,
        False,
        False,
    )


# -- the in-memory transport


class TinyBridge:
    """The least that a bridge has to do: TinyTasks, of which env i answers in its (i + 1)th tick."""

    def __init__(self, num_envs: int = 3, features: frozenset[str] = frozenset(), episode_length: int = 2) -> None:
        self.spec = EnvSpec(4, 2, num_envs=num_envs, features=features)
        self.inbox = ActionBatch(num_envs, 2)
        self.outbox = StepBuffers(num_envs, 4)
        self.answered = np.zeros(num_envs, np.uint8)
        self.tasks = [TinyTask(i, episode_length=episode_length) for i in range(num_envs)]
        self.waited = np.zeros(num_envs, int)
        self.seen: dict[int, tuple[int, dict[str, Any] | None]] = {}

    def update_rl(self, delta: float) -> None:
        for i in np.flatnonzero(self.inbox.command):
            self.waited[i] += 1
            if self.waited[i] <= i:
                continue
            task, out = self.tasks[i], self.outbox
            if self.inbox.command[i] == ActionBatch.RESET:
                task.reset()
                self.seen[int(i)] = (int(self.inbox.seeds[i]), self.inbox.options.get(int(i)))
            else:
                task.step(self.inbox.actions[i].tolist())
            out.obs[i], out.rewards[i], out.dones[i] = task.observation, task.reward, task.done
            if task.done and "INFO" in self.spec.features:
                out.infos[int(i)] = {"steps": task.steps}
            self.waited[i] = self.inbox.command[i] = 0
            self.answered[i] = 1


@pytest.mark.parametrize("through_codec", [True, False])
def test_memory_transport_moves_everything(
    ue_rl_memory_transport: Callable[..., MemoryTransport], through_codec: bool
) -> None:
    features = frozenset({"INFO", "OPTIONS", "SEED"})
    bridge = TinyBridge(features=features)
    transport = ue_rl_memory_transport(bridge, through_codec=through_codec)
    assert isinstance(transport, Transport)
    assert transport.spec.num_envs == 3
    assert transport.spec.features == features
    assert transport.connect() is transport.spec
    transport.reset([2, 0], [7, None], [{"gravity": 9.8}, None])
    buffers = transport.receive()
    assert bridge.seen == {0: (-1, None), 2: (7, {"gravity": 9.8})}
    assert transport.ticks == 3  # env 2 answers in its third tick
    assert not buffers.obs[1].any()
    reference = [TinyTask(i, episode_length=2) for i in range(3)]
    reference[0].reset()
    reference[2].reset()
    actions = np.array([[0.1, -0.2], [0.3, 0.4], [-1.0, 1 / 3]], np.float32)
    infos = {}
    for _ in range(4):
        transport.send_actions(actions)
        buffers = transport.receive()
        for i, task in enumerate(reference):
            obs, reward, done = task.step(actions[i].tolist())
            assert buffers.obs[i].tolist() == np.float32(obs).tolist()
            assert (buffers.rewards[i], buffers.dones[i]) == (np.float32(reward), done)
        infos.update(buffers.infos)
    assert infos[0] == {"steps": 4}
    assert bool(transport.lines) is through_codec
    if through_codec:
        assert transport.lines[0][1].startswith(b"CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=3")
        assert transport.lines[1][1].startswith(b"ACT=RESET;ENV=2;SEED=7;OPTIONS=")
    assert transport.describe()["transport"] == "memory"


@pytest.mark.parametrize("through_codec", [True, False])
def test_memory_transport_gives_up_on_a_silent_bridge(through_codec: bool) -> None:
    bridge = TinyBridge()
    with MemoryTransport(bridge, through_codec=through_codec, max_ticks=5) as transport:
        transport.reset()
        transport.receive()
        bridge.waited[1] = -1000
        transport.send_actions(np.zeros((3, 2), np.float32))
        with pytest.raises(errors.EngineTimeout, match=r"within 5 ticks \(env 1\); expected answers of envs \[1\]"):
            transport.receive()
        with pytest.raises(errors.ConnectionUnusable, match="within 5 ticks"):
            transport.reset()


class TinyTasks(MultiEnvBridge):
    """TinyTask behind the plugin's own callbacks; env i's actions run for i + 1 ticks."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(4, 2, num_envs=3))
        self.tasks = [TinyTask(i) for i in range(3)]
        self.left = [0, 0, 0]

    def create_state_string_for_env(self, env_id: int) -> Any:
        return self.tasks[env_id].observation

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
        return self.tasks[env_id].reward, self.tasks[env_id].done

    def handle_reset_for_env(self, env_id: int) -> None:
        self.tasks[env_id].reset()

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        self.tasks[env_id].step(actions.tolist())
        self.left[env_id] = env_id + 1

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left[env_id] -= 1
        return self.left[env_id] > 0


@pytest.mark.parametrize("through_codec", [True, False])
@pytest.mark.parametrize("make", [TinyTasks, lambda: TinyBridge(episode_length=5)], ids=["MultiEnvBridge", "least"])
def test_a_vec_env_in_memory_equals_dummy_vec_env(make: Callable[[], Any], through_codec: bool) -> None:
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = ue_rl.UnrealVecEnv(MemoryTransport(make(), through_codec=through_codec))
    reference = DummyVecEnv([make_tiny_env(i) for i in range(3)])
    assert env.reset().tolist() == reference.reset().tolist()
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(40):
        actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        obs, rewards, dones, infos = env.step(actions)
        expected_obs, expected_rewards, expected_dones, expected_infos = reference.step(actions)
        np.testing.assert_array_equal(obs, expected_obs)
        np.testing.assert_array_equal(rewards, expected_rewards)
        np.testing.assert_array_equal(dones, expected_dones)
        for i in np.flatnonzero(dones):
            ends += 1
            np.testing.assert_array_equal(infos[i]["terminal_observation"], expected_infos[i]["terminal_observation"])
    assert ends > 10
    env.close()


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_the_bridge_server_fixture_serves_both_wirings(ue_rl_bridge_server: Callable[..., Any], channel: str) -> None:
    server = ue_rl_bridge_server(TinyTasks())
    env = ue_rl.connect(server.url, channel=channel, timeout=20)
    assert env.reset().tolist() == [np.float32(TinyTask(i).reset()).tolist() for i in range(3)]
    env.close()


# -- the raw client, and a harness that fails aloud


def test_raw_client_waits_no_longer_than_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, RawClient(server.getsockname(), timeout=0.05) as client:
        peer, _ = server.accept()
        with pytest.raises(TimeoutError, match=r"0\.05 s"):
            client.line()
        peer.sendall(b"one\ntwo")
        assert client.line() == "one"
        with pytest.raises(TimeoutError, match="two"):
            client.line()
        peer.sendall(b"rest")
        peer.close()
        with pytest.raises(ConnectionError, match="rest"):
            client.line()


@pytest.mark.parametrize("kind", [PluginStandIn, FaultyEngine])
def test_a_harness_that_breaks_says_so_when_closed(kind: Any) -> None:
    class Broken(kind):  # type: ignore[misc]
        _send_all = None

    engine = Broken(num_envs=1)
    with pytest.raises(TypeError, match="not callable"), engine:
        with RawClient(engine.address) as client:
            assert client.read_to_end() == b""  # its sockets went with it
        with pytest.raises(ConnectionError):
            RawClient(engine.address)


def test_run_until_has_a_deadline() -> None:
    with PluginStandIn(manual=True) as game, pytest.raises(TimeoutError, match="did not hold"):
        game.run_until(lambda: False, timeout=0.01)


def test_a_client_that_does_not_read_holds_the_game_up_and_not_the_close() -> None:
    with PluginStandIn(num_envs=1, obs_size=50_000) as game:
        admin, env = RawClient(game.address), RawClient(game.address)
        env.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        env.send("ACT=RESET\n" * 50)  # megabytes of answers
        assert env.line().endswith(";ENV=0")  # a slow reader gets whole lines
        assert env.line().endswith(";ENV=0")
    admin.close()
    env.close()


# -- the package and the pytest plugin


def test_every_public_name_is_there() -> None:
    for name in ue_rl.devtools.testing.__all__:
        assert getattr(ue_rl.devtools.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ue_rl.devtools.testing.Nothing


def test_the_plugin_is_cheap_to_load() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import ue_rl.devtools.testing.plugin;"
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
        "; print(sorted(name for name in set(sys.modules) - before if name.startswith('ue_rl')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(ue_rl.__file__).parents[1])},
    )
    packages, modules = done.stdout.splitlines()
    for heavy in ("torch", "stable_baselines3", "gymnasium", "numpy", "yaml"):
        assert f"'{heavy}'" not in packages
    light = ["ue_rl", "ue_rl.devtools", "ue_rl.devtools.testing", "ue_rl.devtools.testing.plugin"]
    light += ["ue_rl.system", "ue_rl.system.lazy"]
    assert modules == str(light)


def test_the_fixtures_are_registered(pytestconfig: pytest.Config) -> None:
    plugin = importlib.import_module("ue_rl.devtools.testing.plugin")
    assert pytestconfig.pluginmanager.is_registered(plugin)
