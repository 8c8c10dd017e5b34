"""Stairs to climb: three actions, of which one may be illegal, a parameter, and an info.

python samples/fifty_lines/stairs.py [PORT]
"""

import sys

import numpy as np

from ue_rl.bridges import MultiEnvBridge, serve
from ue_rl.protocol.spec import ActionSpec, EnvSpec
from ue_rl.protocol.text import read_space


class Stairs(MultiEnvBridge):
    """Climb to the top. Actions: down, stay, up. The parameter "top" is how many steps there are."""

    def __init__(self, num_envs: int = 4) -> None:
        space = read_space("DICT(step:BOX(0:20),top:BOX(0:20))")
        features = frozenset({"INFO"})  # no SEED: nothing is random here
        super().__init__(
            EnvSpec(2, 1, num_envs=num_envs, action=ActionSpec.discrete(3), obs_space=space, features=features)
        )
        self.step, self.top = np.zeros(num_envs), np.full(num_envs, 5.0)

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """Name: value at the start, lowest, highest."""
        return {"top": (5, 1, 20)}

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """Of one env, or of all with -1."""
        self.top[slice(None) if env_id < 0 else env_id] = round(value)

    def get_parameter(self, name: str, env_id: int) -> float:
        """The value of one env."""
        return self.top[env_id]

    def handle_reset_for_env(self, env_id: int) -> None:
        """A new episode begins, at the lowest step."""
        self.step[env_id] = 0

    def create_action_mask_for_env(self, env_id: int) -> list[bool]:
        """Which choices are legal now: from the lowest step none leads down."""
        return [self.step[env_id] > 0, True, True]

    def handle_response_actions_for_env(self, env_id: int, actions: np.ndarray) -> None:
        """One step down, none, or one up."""
        self.step[env_id] = max(0, self.step[env_id] + int(actions[0]) - 1)
        self.write_info(env_id, {"left": self.top[env_id] - self.step[env_id]})

    def create_state_string_for_env(self, env_id: int) -> list[float]:
        """What the policy sees."""
        return [self.step[env_id], self.top[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
        """(reward, terminated)."""
        return -0.1, self.step[env_id] >= self.top[env_id]


if __name__ == "__main__":
    serve(Stairs(), port=int(sys.argv[1]) if len(sys.argv) > 1 else 7777)
