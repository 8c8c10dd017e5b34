"""A policy with action masks from training to every place where its file acts: an illegal action ends the episode."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.support.command_line import ok
from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_thread
from ue_rl.cli.play import InferencePolicy, load_policy
from ue_rl.envs.connect import connect
from ue_rl.inference import InferenceComponent, OnnxInference, ReloadingInference
from ue_rl.inference.server.server import PolicyServer

CHOICES = 5


class Doors(gym.Env[Any, Any]):
    """Each step some doors are open, which only the mask tells: a closed one ends the episode, of the open ones the
    one with the highest number on it earns most."""

    observation_space = gym.spaces.Box(0, 1, (CHOICES,), np.float32)
    action_space = gym.spaces.Discrete(CHOICES)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = self.illegal = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        legal = bool(self.open[int(action)])
        reward = float(self.numbers[int(action)]) if legal else -1.0
        self.steps += 1
        return self._look(), reward, not legal, self.steps >= 10, {"is_success": legal}

    def action_masks(self) -> Any:
        return self.open

    def _look(self) -> Any:
        self.numbers = self.np_random.random(CHOICES).astype(np.float32)
        self.open = self.np_random.random(CHOICES) < 0.4
        self.open[self.np_random.integers(CHOICES)] = True
        return self.numbers


def bridge(num_envs: int = 4) -> GymnasiumBridge:
    return GymnasiumBridge(Doors, num_envs, send_info=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("masks")
    with run_in_thread(bridge(), upgrader=ShmUpgrader()) as server:
        words = "train --algo maskable_ppo --timesteps 512 --n-steps 64 --batch-size 64 --set n_epochs=2 --seed 0"
        words += " --run-id r --no-export"
        output = ok(f"{words} --eval-episodes 4 --device cpu --port {server.port} --log-dir", folder)
    assert "evaluation" in output
    ok("export", folder / "r")
    return folder / "r" / "model.onnx"


@pytest.mark.parametrize("suffix", [".onnx", ".zip"])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_play_gives_the_policy_the_masks(model: Path, suffix: str, transport: str) -> None:
    with run_in_thread(bridge(2), upgrader=ShmUpgrader()) as server:
        env = connect(server.url, transport=transport)
        player = InferencePolicy(load_policy(model.with_suffix(suffix)), env)
        obs = env.reset()
        for _ in range(40):
            actions, _ = player.predict(obs)
            obs, _, _, infos = env.step(actions)
            assert all(info["is_success"] for info in infos)
        env.close()


def test_a_bridge_in_inference_mode_gives_the_policy_the_masks(model: Path) -> None:
    for policy in (
        OnnxInference(model),
        ReloadingInference(model, interval=None),
        load_policy(model.with_suffix(".zip")),
    ):
        engine = bridge(3)
        engine.set_inference_interface(policy)
        engine.start_inference(seeds=[1, 2, 3])
        rewards = []
        for _ in range(30):
            engine.update_rl(1 / 60)
            rewards.append(engine.outbox.rewards.copy())
        assert np.min(rewards) >= 0
        assert np.mean(rewards) > 0.3


def test_a_component_gives_the_policy_the_mask(model: Path) -> None:
    mask = np.zeros(CHOICES)

    class Agent(InferenceComponent):
        def create_state(self) -> Any:
            return np.ones(CHOICES)

        def create_mask(self) -> Any:
            return mask

    agent = Agent(OnnxInference(model))
    agent.start_inference()
    for choice in range(CHOICES):
        mask[:] = np.arange(CHOICES) == choice
        action = agent.tick()
        assert action is not None
        assert action.tolist() == [choice]


def test_the_policy_server_gives_the_policy_the_masks(model: Path) -> None:
    async def spoken(hello: str, *asks: str) -> list[str]:
        with ReloadingInference(model, interval=None) as policy:
            async with PolicyServer(policy, port=0) as server:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(f"{hello}\n".encode())
                answers = []
                for ask in asks:
                    writer.write(f"{ask}\n".encode())
                    answers.append((await asyncio.wait_for(reader.readline(), 10)).decode().strip())
                writer.close()
                return answers

    hello = f"CONFIG:OBS={CHOICES};ACT=1;ACT_SPACE=DISCRETE({CHOICES})"
    masked = f"{hello};VERSION=1;FEATURES=MASK"
    rows = [f"OBS=0.1,0.9,0.2,0.3,0.4;MASK={''.join(str(int(i == k)) for i in range(CHOICES))}" for k in range(CHOICES)]
    assert asyncio.run(spoken(masked, *rows)) == [f"ACT={k}" for k in range(CHOICES)]
    free = asyncio.run(spoken(masked, "OBS=0.1,0.9,0.2,0.3,0.4"))
    assert free == ["ACT=1"], "a row without MASK: every choice is legal"
    without = asyncio.run(spoken(hello, *rows))
    assert without[0].startswith("ERROR=HandshakeError: the model must be told which choices are legal")
    several = f"{masked};ENV_TYPE=MULTI;ENV_COUNT=3"
    line = "||".join(f"{rows[k]};ENV={env}" for env, k in ((2, 4), (0, 1)))
    (answer,) = asyncio.run(spoken(several, line))
    assert sorted(answer.split("||")) == ["ACT=1;ENV=0", "ACT=4;ENV=2"]
    refusal = asyncio.run(spoken(masked, "OBS=0,0,0,0,0;MASK=00000"))
    assert refusal[0].startswith("ERROR="), refusal


def test_inspect_takes_legal_actions(recwarn: pytest.WarningsRecorder) -> None:
    with run_in_thread(bridge()) as server:
        ok("inspect --steps 50 --port", server.port)
    assert not [warning for warning in recwarn if "masks" in str(warning.message)]
