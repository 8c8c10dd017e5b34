"""ModuleActor: a step of all envs through an RLModule, as RLlib's default connectors to and from a module have it.

EpisodeMaker makes RLlib's episodes of the steps. Source: ray.rllib.connectors.module_to_env (GetActions,
NormalizeAndClipActions) and ray.rllib.env.single_agent_episode, Ray 2.52 to 2.60.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from ue_rl.plugins.rllib.rllink.messages import Chunk

Outputs = dict[tuple[str, ...], NDArray[Any]]
Infos = Mapping[int, Sequence[dict[str, Any]]]


class ModuleActor:
    """Observations to actions.

    Args:
        module: a TorchRLModule without a state. action_space: of one env. config: RLlib's AlgorithmConfig.
        device: torch's, of the module.

    Attributes:
        seconds: name of RLlib's pieces -> how long they took since `begin`.
        starts: what an engine's choices are more than RLlib's.
    """

    def __init__(self, module: Any, action_space: gym.Space[Any], config: Any, device: Any) -> None:
        self._module = module
        self._space = action_space
        self._device = device
        self._is_box = isinstance(action_space, spaces.Box)
        self.starts: Any = getattr(action_space, "start", 0)  # RLlib counts choices from 0, wherever a space begins
        self._normalize = config.normalize_actions
        self._clip = config.clip_actions
        # RLlib's forward passes go through all parts of a module to turn training off and on again, in each step.
        self._plain = all(
            getattr(type(module), name) is getattr(TorchRLModule, name)
            for name in ("forward_exploration", "forward_inference")
        )
        self.begin()

    def begin(self) -> None:
        """Before a sample."""
        self.seconds = {"to_module": 0.0, "forward": 0.0, "to_env": 0.0}
        if self._plain:
            self._module.eval()

    def __call__(
        self, obs: NDArray[Any], explore: bool, steps: int, *, squash: bool = False
    ) -> tuple[NDArray[Any], NDArray[Any], Outputs]:
        """One call of the module.

        Args:
            obs: [num_envs, ...]. explore: draw actions. steps: env-steps so far, as RLlib counts them.
            squash: without exploration, tanh of the mean of a squashed Gaussian, as an exported file has it; RLlib's
                own leaves the tanh out.

        Returns:
            Actions as an episode stores them, actions for the envs, and what else the module gave, by the
            path of its names, which is longer than one where that is nested.
        """
        module = self._module
        clock = time.perf_counter
        began = clock()
        given = torch.from_numpy(obs).to(self._device)
        if given.dtype is torch.float64:
            observed = given.float()
        else:
            observed = given
        batch = {Columns.OBS: observed}
        made = clock()
        with torch.no_grad():
            if explore:
                if self._plain:
                    forward = module._forward_exploration
                else:
                    forward = module.forward_exploration
                out = dict(forward(batch, t=steps))
            else:
                out = dict((module._forward_inference if self._plain else module.forward_inference)(batch))
            passed = clock()
            if Columns.ACTIONS not in out:
                if explore:
                    kind = module.get_exploration_action_dist_cls
                else:
                    kind = module.get_inference_action_dist_cls
                how = kind().from_logits(out[Columns.ACTION_DIST_INPUTS])
                if not explore:
                    how = how.to_deterministic()
                out[Columns.ACTIONS] = how.sample()
                if squash and issubclass(kind(), TorchSquashedGaussian) and not explore:
                    out[Columns.ACTIONS] = torch.tanh(out[Columns.ACTIONS])
                if Columns.ACTION_LOGP not in out:
                    out[Columns.ACTION_LOGP] = how.logp(out[Columns.ACTIONS])
        arrays = dict(_flat(out))
        actions = arrays.pop((Columns.ACTIONS,))
        for_env = arrays.pop((Columns.ACTIONS_FOR_ENV,), actions + self.starts)
        if self._is_box and (self._normalize or self._clip):
            if self._normalize:
                convert = unsquash_action
            else:
                convert = clip_action
            for_env = np.asarray(convert(actions, self._space))
        seconds = self.seconds
        seconds["to_module"] += made - began
        seconds["forward"] += passed - made
        seconds["to_env"] += clock() - passed
        return actions, for_env, arrays


def _flat(out: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], NDArray[Any]]]:
    for name, value in out.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*above, name))
        else:
            yield (*above, name), _array(value)


def _array(value: Any) -> NDArray[Any]:
    """[num_envs, ...] on the CPU, in 32 bits, as RLlib's convert_to_numpy has it."""
    array: NDArray[Any]
    if isinstance(value, torch.Tensor):
        array = value.detach().cpu().numpy()
    else:
        array = np.asarray(value)
    small = {"f": np.float32, "i": np.int32}.get(array.dtype.kind, array.dtype)
    if array.dtype.itemsize > 4:
        return array.astype(small, copy=False)
    return array


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
        episode = copy(self._empty)
        steps = len(chunk.rewards)
        end = chunk.first + steps
        episode.id_ = chunk.id_
        episode.t_started, episode.t = chunk.t_started, chunk.t_started + steps
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
        episode.is_terminated = chunk.terminated
        episode.is_truncated = chunk.truncated
        episode._custom_data = {}
        episode._start_time = times[chunk.first]
        episode._last_step_time = times[end]
        return episode


def _with(buffer: InfiniteLookbackBuffer, data: Any) -> InfiniteLookbackBuffer:
    made = copy(buffer)
    made.data = data
    return made
