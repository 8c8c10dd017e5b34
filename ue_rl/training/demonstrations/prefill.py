"""A replay buffer that demonstrations are in before the first step."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from ue_rl.protocol.spaces.walks import map_leaves
from ue_rl.training.demonstrations.dataset import Demonstrations
from ue_rl.training.demonstrations.trees import joined


def prefill(model: OffPolicyAlgorithm, demonstrations: Demonstrations) -> int:
    """Puts the steps into the model's replay buffer, side by side in the columns of its envs; how many it took.

    Where they are more than the buffer holds, the first ones are left out, as if they had been played.

    Args:
        demonstrations: of the model's spaces (Demonstrations.of).
    """
    buffer: Any = model.replay_buffer
    episodes = demonstrations.episodes
    seen, acted = demonstrations.pairs()
    following = joined([map_leaves(lambda leaf: leaf[1:], one.observations) for one in episodes])
    if hasattr(model.policy, "actor"):
        acted = model.policy.scale_action(acted)
    rewards = np.concatenate([one.rewards for one in episodes]).astype(np.float32)
    ends = np.cumsum([len(one) for one in episodes]) - 1
    over, cut = np.zeros((2, len(rewards)), np.bool_)
    over[ends] = [one.terminated for one in episodes]
    cut[ends] = [not one.terminated for one in episodes]
    envs = model.n_envs
    rows: int = min(len(rewards) // envs, buffer.buffer_size)
    columns = np.arange(envs) * rows + (len(rewards) - rows * envs)  # where the column of each env begins
    for row in range(rows):
        at = columns + row
        truncated = cut[at] | (~over[at] & (row == rows - 1))  # what is played next does not follow upon it
        of = operator.itemgetter(at)
        infos = [{"TimeLimit.truncated": bool(each_cut)} for each_cut in truncated]
        buffer.add(
            map_leaves(of, seen),
            map_leaves(of, following),
            acted[at].reshape(envs, -1),
            rewards[at],
            over[at] | truncated,
            infos,
        )
    return rows * envs
