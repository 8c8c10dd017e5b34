"""Telling: a game whose every answer follows from seed, step and action, so that who asked knows what must come back.

Also a program: an engine with such a game, `python -m tests.harness.telling --port PORT --kind arrays`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import MultiEnvBridge, VectorBridge, serve
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import EnvSpec

CHOICES = 3
FEATURES = frozenset({"TRUNC", "SEED", "INFO"})


@dataclass(frozen=True)
class Told:
    """What the game answers for one env.

    Attributes:
        obs: float32 [3]. mask: uint8 [CHOICES]. info: None where it sends none.
        ticks: how long the action runs: where envs differ, one request is answered in several lines.
    """

    obs: NDArray[np.float32]
    reward: float
    done: bool
    truncated: bool
    mask: NDArray[np.uint8]
    info: dict[str, Any] | None
    ticks: int


def told(seed: int, step: int, action: float) -> Told:
    """The answer to this step of the episode with this seed (-1: none was given); step 0 is its beginning.

    Every second step is silent, and so is the beginning of every second episode.
    """
    random = np.random.default_rng((seed + 1, step))
    over = step > 0 and random.random() < 0.15
    cut = over and random.random() < 0.5
    mask = np.ones(CHOICES, np.uint8)
    if not over or cut:
        mask[random.integers(CHOICES)] = 0
    info: dict[str, Any] | None = None
    if (seed + step) % 2:
        info = {"seed": seed, "step": step}
        if over:
            info["is_success"] = not cut
        if random.random() < 0.1:
            info["long"] = "x" * 3000
    reward = 0.0 if step == 0 else float(np.float32(random.normal() + action))
    obs = np.array([seed, step, action], np.float32)
    return Told(obs, reward, over, cut, mask, info, int(random.integers(3)))


def spec(num_envs: int, masks: bool, features: Sequence[str] = ()) -> EnvSpec:
    """Of such a game."""
    asked = FEATURES | set(features) | ({"MASK"} if masks else set())
    return EnvSpec(3, 1, num_envs=num_envs, action=ActionSpec.discrete(CHOICES), features=asked)


class TellingOneByOne(MultiEnvBridge):
    """Actions take some ticks; the info is written as the action begins, or where it ends.

    Args:
        masks: it says which actions are legal.

    Attributes:
        breaks: it fails in its next step.
    """

    def __init__(self, num_envs: int, masks: bool = False, features: Sequence[str] = ()) -> None:
        self._masks, self.breaks = masks, False
        self._now = [told(-1, 0, 0.0)] * num_envs
        self._at = [(-1, 0)] * num_envs
        self._left = [0] * num_envs
        super().__init__(spec(num_envs, masks, features))

    @property
    def _makes_masks(self) -> bool:
        return self._masks

    def _say(self, env_id: int) -> None:
        info = self._now[env_id].info
        if info is not None:
            self.write_info(env_id, info)

    def create_state_string_for_env(self, env_id: int) -> NDArray[np.float32]:
        return self._now[env_id].obs

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool, bool]:
        now = self._now[env_id]
        if not self._says_early(env_id):
            self._say(env_id)
        return now.reward, now.done, now.truncated

    def _says_early(self, env_id: int) -> bool:
        return self._at[env_id][1] > 0 and sum(self._at[env_id]) % 4 == 1

    def handle_reset_for_env(self, env_id: int, seed: int | None = None) -> None:
        self._at[env_id] = (-1 if seed is None else seed, 0)
        self._now[env_id] = told(*self._at[env_id], 0.0)

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        if self.breaks:
            self.breaks = False
            raise RuntimeError("told to break")
        seed, step = self._at[env_id]
        self._at[env_id] = (seed, step + 1)
        self._now[env_id] = told(seed, step + 1, float(actions[0]))
        self._left[env_id] = self._now[env_id].ticks
        if self._says_early(env_id):
            self._say(env_id)

    def is_action_running_for_env(self, env_id: int) -> bool:
        self._left[env_id] -= 1
        return self._left[env_id] >= 0

    def create_action_mask_for_env(self, env_id: int) -> NDArray[np.uint8]:
        return self._now[env_id].mask

    def set_time_scale(self, scale: float) -> None:
        """Takes any."""


class TellingArrays(VectorBridge):
    """All envs at once. See TellingOneByOne."""

    def __init__(self, num_envs: int, masks: bool = False, features: Sequence[str] = ()) -> None:
        self.breaks = False
        self._at = [(-1, 0)] * num_envs
        super().__init__(spec(num_envs, masks, features))

    def _write(self, env: int, action: float) -> None:
        now, out = told(*self._at[env], action), self.outbox
        out.obs[env], out.rewards[env] = now.obs, now.reward
        out.dones[env], out.truncated[env] = now.done, now.truncated
        if out.masks.size:
            out.masks[env] = now.mask
        if now.info is not None:
            self.write_info(env, now.info)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            self._at[env] = (-1 if seed is None else seed, 0)
            self._write(env, 0.0)

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        if self.breaks:
            self.breaks = False
            raise RuntimeError("told to break")
        for env in env_ids.tolist():
            seed, step = self._at[env]
            self._at[env] = (seed, step + 1)
            self._write(env, float(actions[env, 0]))

    def set_time_scale(self, scale: float) -> None:
        """Takes any."""


KINDS: dict[str, type[TellingOneByOne] | type[TellingArrays]] = {"one by one": TellingOneByOne, "arrays": TellingArrays}


def main() -> None:
    """Serves one until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=list(KINDS), required=True)
    parser.add_argument("--envs", type=int, default=2)
    given = parser.parse_args()
    serve(KINDS[given.kind](given.envs), port=given.port)


if __name__ == "__main__":
    main()
