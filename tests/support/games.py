"""Small games: of arrays, and with a callback for each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ue_rl.bridges import BaseBridge, MultiEnvBridge, VectorBridge
from ue_rl.protocol.spec import Channel, EnvSpec


class Sum(VectorBridge):
    """Adds up the actions, number by number.

    Attributes:
        told: the resets, each as (env_ids, seeds, options).
        in_step: called with the actions of each step, before it is answered.
    """

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec)
        self.told: list[Any] = []
        self.in_step: Callable[[Any], object] = lambda actions: None

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.told.append((list(env_ids), list(seeds), list(options)))
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.in_step(actions)
        size = min(self.spec.obs_size, self.spec.act_size)
        self.outbox.obs[env_ids, :size] += actions[env_ids, :size]


class Steps(MultiEnvBridge):
    """Counts. What it shows and earns, and how long an action runs, may be overridden.

    Attributes:
        steps, acted, seeds: of each env's episode, with the first number of the last action. begun: episodes of each.
    """

    def configure(self, spec: EnvSpec) -> None:
        super().configure(spec)
        n = spec.num_envs
        self.steps, self.begun, self.left = [0] * n, [0] * n, [0] * n
        self.acted, self.seeds = [0.0] * n, [None] * n

    def show(self, env: int) -> Any:
        return [self.steps[env]]

    def earn(self, env: int) -> Any:
        return 0.0, False

    def runs(self, env: int) -> int:
        return 1

    def handle_reset_for_env(self, env_id: int, seed: Any = None) -> None:
        self.steps[env_id], self.acted[env_id], self.seeds[env_id] = 0, 0.0, seed
        self.begun[env_id] += 1

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self.steps[env_id] += 1
        self.acted[env_id] = float(actions[0])
        self.left[env_id] = self.runs(env_id)

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left[env_id] -= 1
        return self.left[env_id] > 0

    def create_state_string_for_env(self, env_id: int) -> Any:
        return self.show(env_id)

    def calculate_reward_for_env(self, env_id: int) -> Any:
        return self.earn(env_id)


def bridge(n: int = 2, channel: Channel | None = Channel.ANY, kind: type[BaseBridge] = Sum, **options: Any) -> Any:
    return kind(EnvSpec(**{"obs_size": 1, "act_size": 1, "num_envs": n, "channel": channel, **options}))
