"""EpisodeMaker: chunks of arrays as RLlib's SingleAgentEpisodes. Source: Ray 2.52 to 2.60."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from ue_rl.rllink.messages import Chunk

Infos = Mapping[int, Sequence[dict[str, Any]]]


class EpisodeMaker:
    """Makes copies of one empty episode: RLlib's constructors walk through the spaces of each buffer.

    Args:
        observation_space, action_space: of one env.
    """

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self._empty = SingleAgentEpisode(observation_space=observation_space, action_space=action_space)
        for buffer in (self._empty.observations, self._empty.actions, self._empty.rewards):
            buffer.finalized = True
        self._output = InfiniteLookbackBuffer()
        self._output.finalized = True

    def __call__(self, chunk: Chunk, weights_seq: int, infos: Infos, times: Sequence[float]) -> SingleAgentEpisode:
        """The episode, or a part of it, with arrays ("numpy'ized").

        Args:
            weights_seq: the number of the weights that it was played with.
            infos: step of the sample -> infos of all envs after it, -1 for before the first one; without those of steps
                that had none. times: of each step's end on time.perf_counter, with the sample's begin in front.
        """
        episode, steps = copy(self._empty), len(chunk.rewards)
        end = chunk.first + steps
        episode.id_, episode.t_started, episode.t = chunk.id_, chunk.t_started, chunk.t_started + steps
        episode.observations = _with(episode.observations, chunk.obs)
        episode.actions = _with(episode.actions, chunk.actions)
        episode.rewards = _with(episode.rewards, chunk.rewards)
        episode.infos = _with(
            episode.infos,
            [dict(infos[step][chunk.env]) if step in infos else {} for step in range(chunk.first - 1, end)],
        )
        outputs: dict[str, Any] = {}
        for (*above, name), values in chunk.extra.items():
            place = outputs
            for key in above:
                place = place.setdefault(key, {})
            place[name] = values
        outputs[WEIGHTS_SEQ_NO] = np.full(steps, weights_seq)
        episode.extra_model_outputs = {name: _with(self._output, values) for name, values in outputs.items()}
        episode.is_terminated, episode.is_truncated = chunk.terminated, chunk.truncated
        episode._custom_data = {}
        episode._start_time, episode._last_step_time = times[chunk.first], times[end]
        return episode


def _with(buffer: InfiniteLookbackBuffer, data: Any) -> InfiniteLookbackBuffer:
    made = copy(buffer)
    made.data = data
    return made
