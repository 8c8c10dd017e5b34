"""Whatever is true ends an episode: games say so with flags of their own, such as a bit that is 4."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ue_rl
from tests.support.games import Steps, Sum, bridge
from ue_rl.bridges import GymnasiumBridge, VectorAgentsBridge, run_in_thread, run_shm_in_thread
from ue_rl.protocol.spec import AgentGroup, EnvSpec

N = 2


class Says(Steps):
    """Each step ends its episode by `over`, cut off by `cut_off`."""

    over: Any = 0
    cut_off: Any = 0

    def earn(self, env: int) -> Any:
        return 0.0, self.over, self.cut_off


class SaysInArrays(Sum):
    """The same, in arrays."""

    over: Any = 0
    cut_off: Any = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        super().step_envs(actions, env_ids)
        self.outbox.dones[env_ids] = self.over
        self.outbox.truncated[env_ids] = self.cut_off


class SaysAsGymnasium(gym.Env[Any, Any]):
    """The same, as Gymnasium's envs say it."""

    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, over: Any, cut: Any) -> None:
        self.over = over
        self.cut_off = cut

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, self.over, self.cut_off, {}


def made(kind: str, over: Any, cut: Any) -> Any:
    if kind == "gymnasium":
        return GymnasiumBridge(lambda: SaysAsGymnasium(over, cut), N)
    game = bridge(N, kind={"callbacks": Says, "arrays": SaysInArrays}[kind], features=frozenset({"TRUNC"}))
    game.over = over
    game.cut_off = cut
    return game


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
@pytest.mark.parametrize(("over", "cut"), [(4, 0), (0, 2), (np.int64(6), 0)])
@pytest.mark.parametrize("kind", ["callbacks", "arrays", "gymnasium"])
def test_any_flag_that_is_true_ends_the_episode(kind: str, over: Any, cut: Any, host: Any) -> None:
    with host(made(kind, over, cut)) as engine:
        env = ue_rl.connect(engine.url, timeout=20)  # which asks for the next episodes ahead, over text
        env.reset()
        for _ in range(3):
            _, _, dones, infos = env.step(np.zeros((N, *env.action_space.shape), env.action_space.dtype))
            assert dones.tolist() == [True] * N
            assert [info["TimeLimit.truncated"] for info in infos] == [not over] * N
        env.close()


@pytest.mark.parametrize("over", [-1, 256, 0.5])
def test_what_no_byte_holds_is_true_as_well(over: Any) -> None:
    with run_in_thread(made("callbacks", over, 0)) as engine:
        env = ue_rl.connect(engine.url, timeout=20)
        env.reset()
        assert env.step(np.zeros((N, 1), np.float32))[2].tolist() == [True] * N
        env.close()


class Crew(VectorAgentsBridge):
    """Two agents, of which the second one ends with the flag 2 in each step."""

    def __init__(self) -> None:
        super().__init__([AgentGroup("sailor", 2, EnvSpec(1, 1))], 1)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.states.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.states.dones[env_ids, 1] = 2


def test_an_agent_that_ends_by_a_flag_of_the_games_own_has_ended() -> None:
    with run_in_thread(Crew()) as engine, ue_rl.connections.open_transport(engine.url, timeout=20) as transport:
        env = ue_rl.UnrealParallelEnv(transport)
        env.reset(seed=0)
        actions = {agent: np.zeros(1, np.float32) for agent in env.agents}
        _, _, terminations, _, _ = env.step(actions)
        assert terminations == {"sailor_0": False, "sailor_1": True}
        assert env.agents == ["sailor_0"]
