"""UnrealEnvRunner: RLlib's env runner with a loop that handles all envs of a step at once.

RLlib's own loop makes Python objects for each env and step, through two pipelines of connectors; that is its limit, at
about 12 000 env-steps a second. Here a step is one call of the module and one of the engine, and episodes are cut out
of arrays. What that loop cannot do (custom connectors, callbacks or modules with a state) goes through RLlib's own,
over the same engines, and the log says why.

Source: ray.rllib.env.single_agent_env_runner and single_agent_episode (Ray 2.52 to 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers.vector import DictInfoToList
from numpy.typing import NDArray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.env.utils.infinite_lookback_buffer import InfiniteLookbackBuffer
from ray.rllib.utils.spaces.space_utils import unsquash_action

from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.rllib.engines import open_engines
from ue_rl.rllib.failures import NamedFailures
from ue_rl.rllink.episodes import EpisodeCutter
from ue_rl.rllink.messages import Chunk

_log = logging.getLogger("ue_rl.rllib")


class UnrealEnvRunner(NamedFailures, SingleAgentEnvRunner):  # type: ignore[misc, unused-ignore]
    """See RLlib's SingleAgentEnvRunner; `config.env_config` is what `open_engines` takes.

    Attributes:
        batched: the fast loop is used; else `why_not` says what it cannot do.
    """

    env: Any

    def make_env(self) -> None:
        """Starts or dials the engines of this runner; those of an earlier call are closed first."""
        if self.env is not None:
            self.env.close()
        index = self.worker_index or 0
        engines = open_engines(dict(self.config.env_config), self.config.num_envs_per_env_runner, index)
        self.env = DictInfoToList(UnrealVectorEnv(engines))  # RLlib's own loop wants a list of infos
        self.num_envs = self.env.num_envs
        self._needs_initial_reset = True
        self._cutter: EpisodeCutter | None = None
        for callback in self._callbacks:
            callback.on_environment_created(
                env_runner=self, metrics_logger=self.metrics, env=self.env.unwrapped,
                env_context=self.config.env_config,
            )  # fmt: skip

    def make_module(self) -> None:
        """See SingleAgentEnvRunner."""
        super().make_module()
        self.why_not = self._why_not()
        self.batched = not self.why_not
        if self.why_not:
            _log.info("RLlib's own loop is used: %s", self.why_not)

    def _why_not(self) -> str:
        """Why the batched loop is not used; "" where it is."""
        if self.env is None or self.module is None:
            return "there is no env or no module"
        config = self.config
        for name in ("_env_to_module_connector", "_module_to_env_connector"):
            if getattr(config, name, None) is not None:
                return "the config has connectors of its own"
        if any(type(callback) is not RLlibCallback for callback in self._callbacks) or any(
            getattr(config, f"callbacks_on_episode_{when}", None) for when in ("created", "start", "step", "end")
        ):
            return "the config has callbacks of its own"
        if self.module.is_stateful():
            return "the module has a state"
        if not isinstance(self.env.single_observation_space, spaces.Box):
            return "observations are no arrays"
        if not isinstance(self.env.single_action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)):
            return "actions are no arrays"
        return ""

    def _sample(
        self, *, num_timesteps: int | None = None, num_episodes: int | None = None, explore: bool,
        random_actions: bool = False, force_reset: bool = False,
    ) -> list[Any]:  # fmt: skip
        """See SingleAgentEnvRunner.sample."""
        if not self.batched or random_actions:
            self._cutter = None
            episodes: list[Any] = super()._sample(
                num_timesteps=num_timesteps, num_episodes=num_episodes, explore=explore,
                random_actions=random_actions, force_reset=force_reset,
            )  # fmt: skip
            return episodes
        if force_reset or num_episodes is not None or self._needs_initial_reset or self._cutter is None:
            self._begin()
        assert self._cutter is not None
        cutter, ended = self._cutter, 0
        while cutter.steps < num_timesteps if num_timesteps is not None else ended < (num_episodes or 0):
            ended += self._step(cutter, explore)
        self._needs_initial_reset = num_episodes is not None
        steps = cutter.steps
        chunks = [chunk for chunk in cutter.take() if num_episodes is None or chunk.terminated or chunk.truncated]
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        episodes = [self._episode(chunk) for chunk in chunks]
        done = [episode for episode in episodes if episode.is_done]
        self._done_episodes_for_metrics.extend(done)
        for episode in episodes:
            if not episode.is_done:
                self._ongoing_episodes_for_metrics[episode.id_].append(episode)
        self._increase_sampled_metrics(steps, len(done))
        return episodes

    def _begin(self) -> None:
        seed = self._seed if self._needs_initial_reset else None
        self._obs, _ = self.env.unwrapped.reset(seed=seed)  # without the list of infos
        self._cutter = EpisodeCutter(self.num_envs)
        self._cutter.begin(self._obs)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._ongoing_episodes_for_metrics: dict[str, list[Any]] = defaultdict(list)

    def _step(self, cutter: EpisodeCutter, explore: bool) -> int:
        """One step of all envs; how many episodes ended."""
        actions, logits, logp = self._act(explore)
        over = self._over
        obs, rewards, terminated, truncated, _ = self.env.unwrapped.step(self._for_env(actions))
        acted = None
        if over.any():  # NEXT_STEP: these took no step, and their observation begins an episode
            cutter.begin(obs, over)
            acted = ~over
        cutter.add(actions, logits, logp, rewards.astype(np.float32), obs, terminated, truncated, acted)
        self._obs, self._over = obs, terminated | truncated
        return int(np.count_nonzero(self._over))

    def _act(self, explore: bool) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float32]]:
        """(actions as an episode stores them, distribution inputs, log-probabilities) for self._obs."""
        module = self.module
        batch = {Columns.OBS: torch.from_numpy(self._obs).to(self._device)}
        with torch.no_grad():
            if explore:
                steps = self.num_env_steps_sampled_lifetime + (self._cutter.steps if self._cutter else 0)
                out = module.forward_exploration(batch, t=steps)
                kind = module.get_exploration_action_dist_cls
            else:
                out = module.forward_inference(batch)
                kind = module.get_inference_action_dist_cls
            nothing = np.zeros((self.num_envs, 0), np.float32)
            if Columns.ACTIONS in out:
                return out[Columns.ACTIONS].cpu().numpy(), nothing, nothing
            inputs = out[Columns.ACTION_DIST_INPUTS]
            how = kind().from_logits(inputs)
            if not explore:
                how = how.to_deterministic()
            drawn = how.sample()
            logp = how.logp(drawn).cpu().numpy() if explore else np.zeros(self.num_envs, np.float32)
        return drawn.cpu().numpy(), inputs.cpu().numpy(), logp

    def _for_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """As RLlib's NormalizeAndClipActions has it."""
        space, config = self.env.single_action_space, self.config
        if isinstance(space, spaces.Box):
            if config.normalize_actions:
                return np.asarray(unsquash_action(actions, space))
            if config.clip_actions:
                return np.asarray(np.clip(actions, space.low, space.high))
        return actions

    def _episode(self, chunk: Chunk) -> SingleAgentEpisode:
        """The chunk as RLlib has it, with arrays."""
        steps = len(chunk.rewards)
        episode = SingleAgentEpisode(
            id_=chunk.id_, observation_space=self.env.single_observation_space,
            action_space=self.env.single_action_space, t_started=chunk.t_started, len_lookback_buffer=0,
        )  # fmt: skip
        episode.observations = _buffer(chunk.obs, self.env.single_observation_space)
        episode.actions = _buffer(chunk.actions, self.env.single_action_space)
        episode.rewards = _buffer(chunk.rewards)
        episode.infos = InfiniteLookbackBuffer(data=[{}] * (steps + 1), lookback=0)
        outputs = {"weights_seq_no": np.full(steps, self._weights_seq_no)}
        if chunk.logits.shape[-1]:
            outputs |= {Columns.ACTION_DIST_INPUTS: chunk.logits, Columns.ACTION_LOGP: chunk.logp}
        episode.extra_model_outputs = {key: _buffer(values) for key, values in outputs.items()}
        episode.is_terminated, episode.is_truncated = chunk.terminated, chunk.truncated
        episode.t = chunk.t_started + steps
        return episode


def _buffer(values: NDArray[Any], space: Any = None) -> InfiniteLookbackBuffer:
    buffer = InfiniteLookbackBuffer(data=values, lookback=0, space=space)
    buffer.finalized = True
    return buffer
