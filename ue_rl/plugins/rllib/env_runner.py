"""UnrealEnvRunner: RLlib's env runner with a loop that handles all envs of a step at once.

RLlib's own loop makes Python objects for each env and step, through two pipelines of connectors; that is its limit, at
about 20 000 env-steps a second. Here a step is one call of the module and one of the engine, and episodes are cut out
of arrays: the same episodes to the bit, and the same metrics. What that loop cannot do (custom connectors, callbacks of
episodes or modules with a state) goes through RLlib's own, over the same engines, and the log says why.

Source: ray.rllib.env.single_agent_env_runner (Ray 2.52 to 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import inspect
import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers.vector import DictInfoToList
from numpy.typing import NDArray
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import (
    CONNECTOR_PIPELINE_TIMER,
    ENV_STEP_TIMER,
    ENV_TO_MODULE_CONNECTOR,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN,
    ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT,
    MODULE_TO_ENV_CONNECTOR,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    RLMODULE_INFERENCE_TIMER,
)
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from ue_rl.plugins.rllib.acting import EpisodeMaker, ModuleActor, Outputs
from ue_rl.plugins.rllib.engines import SEEDS, open_engines
from ue_rl.plugins.rllib.failures import NamedFailures
from ue_rl.plugins.rllib.news import Connected, RecordedEnv, Sender
from ue_rl.plugins.rllib.rllink.episodes import EpisodeCutter
from ue_rl.system.errors import ConfigurationError, InferenceError, UeRlError

_log = logging.getLogger("ue_rl.plugins.rllib")
_OF_TIMERS = inspect.signature(MetricsLogger.log_time).parameters["reduce"].default  # "ema"; Ray 2.52 calls it "mean"
_PIPELINES = ("env_to_module", "module_to_env")
_EPISODE_CALLBACKS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


class _Env(DictInfoToList):
    """RLlib's own loop wants a list of infos; the batched one makes it where there are infos."""

    def step_arrays(self, actions: NDArray[Any]) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], list[Any]]:
        """As `step`; no list of infos where there are none."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        listed_infos = []
        if infos:
            listed_infos = self._convert_info_to_list(infos)
        return obs, rewards, terminated, truncated, listed_infos


def cure_of(error: Exception, seen: Any) -> str:
    """What to do about an error of a policy or an env; `seen`: the space of one env's observations, or None."""
    is_whole = isinstance(seen, spaces.Box) and np.dtype(seen.dtype).kind != "f"
    is_of_types = isinstance(error, RuntimeError) and "type" in str(
        error
    )  # torch's, of tensors that do not go together
    if is_whole and is_of_types:
        return (
            f"RLlib's own networks take floats, and these observations are {seen.dtype}: send floats; around a "
            "Gymnasium env --env-wrapper MODULE:FUNCTION does it, with a function that returns "
            "gymnasium.wrappers.DtypeObservation(env, numpy.float32); or train with --backend sb3"
        )
    return "look for losses that are not numbers in progress.csv, and in Ray's logs in /tmp/ray"


class UnrealEnvRunner(NamedFailures, SingleAgentEnvRunner):  # type: ignore[misc, unused-ignore]
    """See RLlib's SingleAgentEnvRunner; `config.env_config` is what `open_engines` takes."""

    env: Any
    _reason: str | None = None
    _cutter: EpisodeCutter | None = None

    @property
    def batched(self) -> bool:
        """The fast loop is used; else `why_not` says what it cannot do."""
        return not self.why_not

    @property
    def why_not(self) -> str:
        """Why the batched loop is not used; "" where it is."""
        if self._reason is None:
            self._reason = self._find_reason()
            if self._reason:
                _log.info("RLlib's own loop is used: %s", self._reason)
        return self._reason

    def make_env(self) -> None:
        """Starts or dials the engines of this runner; those of an earlier call are closed first.

        Raises:
            ConfigurationError: the config asks for a recording. Also what `open_engines` raises.
        """
        if self.env is not None:
            self.env.close()
        index = self.worker_index
        if not index:
            index = 0
        config = self.config
        if config.output:
            raise ConfigurationError(
                "UnrealEnvRunner does not record episodes",
                field="output",
                got=config.output,
                cure="leave env_runner_cls out and say gym_env_vectorize_mode='vector_entry_point': RLlib's own runner "
                "records, over the same engines",
            )
        said = dict(config.env_config)
        self._sender = sender = Sender(said.pop("report_to", None), index)
        engines = open_engines(said, config.num_envs_per_env_runner, index, sender.changed)
        env = RecordedEnv(engines, lambda: sender.played(env.record, engines))
        self.env = _Env(env)
        self.num_envs = env.num_envs
        spec = replace(engines.spec, shm=None)
        sender.tell(Connected(spec, self.num_envs, dict(engines.describe())), wait=True)
        self._needs_initial_reset = True
        self._number = index
        self._cutter = None
        context = EnvContext(
            config.env_config, worker_index=index, num_workers=self.num_workers, remote=config.remote_worker_envs
        )
        make_callback(
            "on_environment_created",
            self._callbacks,
            config.callbacks_on_environment_created,
            kwargs={
                "env_runner": self,
                "metrics_logger": self.metrics,
                "env": self.env.unwrapped,
                "env_context": context,
            },
        )

    def make_module(self) -> None:
        """See SingleAgentEnvRunner."""
        super().make_module()
        self._reason = None
        self._cutter = None
        if self.module is not None and self.env is not None:
            self._acting = ModuleActor(self.module, self.env.single_action_space, self.config, self._device)

    def _find_reason(self) -> str:
        """See `why_not`."""
        if self.env is None or self.module is None:
            return "there is no env or no module"
        config = self.config
        for name in ("_env_to_module_connector", "_module_to_env_connector"):
            if getattr(config, name, None) is not None:
                return "the config has connectors of its own"
        if not all(getattr(config, f"add_default_connectors_to_{name}_pipeline", True) for name in _PIPELINES):
            return "the config turns RLlib's default connectors off"
        if not getattr(config, "episodes_to_numpy", True):
            return "the config wants episodes of lists, not of arrays"
        if getattr(config, "episode_lookback_horizon", 1) > 1:
            return "the config wants steps of before in each part of an episode: episode_lookback_horizon"
        for name in _EPISODE_CALLBACKS:
            if getattr(config, f"callbacks_{name}", None) or any(
                getattr(type(callback), name) is not getattr(RLlibCallback, name) for callback in self._callbacks
            ):
                return f"the config has callbacks of its own: {name}"
        if self.module.is_stateful():
            return "the module has a state"
        if not isinstance(self.env.single_observation_space, spaces.Box):
            return "observations are no arrays"
        if not isinstance(self.env.single_action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)):
            return "actions are no arrays"
        return ""

    def sample(self, **given: Any) -> list[Any]:
        """See SingleAgentEnvRunner. In a run of `ue-rl train` whatever fails ends the run (see NamedFailures)."""
        try:
            episodes: list[Any] = super().sample(**given)
        except UeRlError:
            raise
        except Exception as error:
            if not self._sender.heard:
                raise
            what = f"the policy or the env failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            seen = None
            if self.env is not None:
                seen = self.env.single_observation_space
            raise InferenceError(what, cure=cure_of(error, seen)) from error
        return episodes

    def tell_played(self) -> None:
        """Whoever trains knows of all that was played until now."""
        if self.env is not None:
            env = self.env.unwrapped
            self._sender.played(env.record, env.transport, now=True)

    def evaluate(self, episodes: int, seed: int | None = None) -> list[float]:
        """The returns of so many episodes without exploration, shared out among the envs; training begins new ones.

        It acts as the file of export_rl_module does.
        """
        env = self.env.unwrapped
        env.record.paused = True
        try:
            if not self.batched:
                return [episode.get_return() for episode in self.sample(num_episodes=episodes, explore=False)]
            left = np.array([(episodes + number) // self.num_envs for number in range(self.num_envs)])
            sums, over = np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_)
            returns: list[float] = []
            obs, _ = env.reset(seed=seed)
            self._acting.begin()
            while left.any():
                _, for_env, _ = self._acting(obs, False, 0, squash=True)
                obs, rewards, terminated, truncated, _ = env.step(for_env)
                sums[over] = 0
                sums += rewards
                over = terminated | truncated
                counted = over & (left > 0)
                returns += sums[counted].tolist()
                left -= counted
            return returns
        finally:
            env.record.paused = False
            self._cutter = None
            self._needs_initial_reset = True

    def _sample(self, **given: Any) -> list[Any]:
        """See SingleAgentEnvRunner.sample."""
        episodes: list[Any]
        if self.batched:
            episodes = self._sample_batched(**given)
        else:
            episodes = super()._sample(**given)
        return episodes

    def _sample_batched(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        if force_reset or num_episodes is not None or self._needs_initial_reset or self._cutter is None:
            self._begin()
        self._needs_initial_reset = num_episodes is not None
        assert self._cutter is not None
        cutter = self._cutter
        ended = 0
        calls = 0
        self._acting.begin()
        self._env_seconds = 0.0
        self._times = [time.perf_counter()]
        while cutter.steps < num_timesteps if num_timesteps is not None else ended < (num_episodes or 0):
            ended += self._step(cutter, explore, random_actions)
            calls += 1
        steps = cutter.steps
        lengths = cutter.lengths
        episodes = self._cut_episodes(cutter)
        done = [episode for episode in episodes if episode.is_done][:num_episodes]
        self._done_episodes_for_metrics.extend(done)
        if num_episodes is not None:
            episodes = done
        for episode in episodes:
            if not episode.is_done:
                self._ongoing_episodes_for_metrics[episode.id_].append(episode)
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        self._increase_sampled_metrics(steps, len(done))
        if calls:
            self._log_times(calls, sum(lengths), random_actions)
        return episodes

    def _begin(self) -> None:
        """New episodes of all envs; those before are forgotten."""
        self._ongoing_episodes_for_metrics.clear()
        if self._seed is None or not self._needs_initial_reset:
            seed = None
        else:
            seed = self._seed + SEEDS * self._number
        obs, infos = self._try_env_reset(seed=seed, options=None)
        self._needs_initial_reset = False
        space = self.env.single_action_space
        self._make = EpisodeMaker(self.env.single_observation_space, space)
        self._nothing = np.zeros((self.num_envs, 0), np.float32)
        self._cutter = EpisodeCutter(self.num_envs)
        self._cutter.begin(obs)
        self._obs, self._over = obs, np.zeros(self.num_envs, np.bool_)
        if any(infos):
            self._infos = {-1: infos}
        else:
            self._infos = {}

    def _step(self, cutter: EpisodeCutter, explore: bool, random_actions: bool) -> int:
        """One step of all envs; how many episodes ended."""
        if random_actions:
            for_env = self.env.action_space.sample()
            actions = for_env - self._acting.starts
            outputs: Outputs = {}
        else:
            actions, for_env, outputs = self._acting(self._obs, explore, self._so_far(cutter.steps))
        began = time.perf_counter()
        obs, rewards, terminated, truncated, infos = self.env.step_arrays(for_env)
        now = time.perf_counter()
        self._env_seconds += now - began
        over = self._over
        acted = None
        if over.any():  # NEXT_STEP: these took no step, and their observation begins an episode
            cutter.begin(obs, over)
            acted = ~over
        nothing = self._nothing
        cutter.add(actions, nothing, nothing, rewards, obs, terminated, truncated, acted, outputs)
        if infos:
            self._infos[len(self._times) - 1] = infos
        self._times.append(now)
        self._obs = obs
        self._over = terminated | truncated
        return int(np.count_nonzero(self._over))

    def _so_far(self, steps: int) -> int:
        """Env-steps of all env runners, of which RLlib's schedules of exploration are functions."""
        runners = self.config.num_env_runners
        if not runners:
            runners = 1
        if hasattr(self, NUM_ENV_STEPS_SAMPLED_LIFETIME):
            return int((self.num_env_steps_sampled_lifetime // runners + steps) * runners)
        # older than Ray 2.60: this runner's own, among its metrics
        return int((self.metrics.peek(NUM_ENV_STEPS_SAMPLED_LIFETIME, default=0) + steps) * runners)

    def _cut_episodes(self, cutter: EpisodeCutter) -> list[Any]:
        """What the cutter has; the next sample begins where this one ends."""
        seq = self._weights_seq_no
        infos = self._infos
        times = self._times
        episodes = [self._make(chunk, seq, infos, times) for chunk in cutter.take()]
        last = infos.get(len(times) - 2)
        if last is None:
            self._infos = {}
        else:
            self._infos = {-1: last}
        return episodes

    def _log_times(self, calls: int, length: int, random_actions: bool) -> None:
        """RLlib's own timers, once a sample instead of once a step; of its connectors only what is done here, too."""
        log = self.metrics.log_value
        seconds = self._acting.seconds
        self._log_env_steps(metric=self._metrics_num_try_env_step, num_steps=calls)
        log(ENV_STEP_TIMER, self._env_seconds / calls, reduce=_OF_TIMERS)
        for key in (ENV_TO_MODULE_SUM_EPISODES_LENGTH_IN, ENV_TO_MODULE_SUM_EPISODES_LENGTH_OUT):
            log(key, length)
        if not random_actions:
            log(RLMODULE_INFERENCE_TIMER, seconds["forward"] / calls, reduce=_OF_TIMERS)
            for key, name in ((ENV_TO_MODULE_CONNECTOR, "to_module"), (MODULE_TO_ENV_CONNECTOR, "to_env")):
                log((key, CONNECTOR_PIPELINE_TIMER), seconds[name] / calls, reduce=_OF_TIMERS)
