"""UnrealVecEnv: any Transport as a Stable-Baselines3 VecEnv.

What an SB3 user expects holds: automatic resets with `terminal_observation`, `TimeLimit.truncated`,
`reset_infos`, `seed()`, `set_options()`, episode statistics in `info["episode"]`. All finished envs are reset in one
round trip. Every array given out is a copy, unless the caller wants none: SB3 keeps the last observation, and the
transport writes into its own buffers again at the next step. No I/O of its own: that is the transport's.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.attributes import Attributes, check_limit
from ue_rl.envs.controls import GoalReward, goal_reward, refuse_agents, render_mode_of
from ue_rl.envs.episodes import Reset, begin_episodes, start_episodes
from ue_rl.envs.halves import Halves
from ue_rl.envs.infos import is_number, put_arrays
from ue_rl.envs.journal import Journal
from ue_rl.envs.masks import Masks
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.resumable import Resumable
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.envs.stepper import connected
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport, owns_transport
from ue_rl.system.compiled import load

_RESERVED = frozenset(("episode", "terminal_observation", "TimeLimit.truncated", "engine_lost"))


class UnrealVecEnv(Resumable, Halves, Attributes):
    """N envs of a game engine as one VecEnv.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.
        max_episode_steps: cut every episode after this many steps, as Gymnasium's TimeLimit does; None: the
            engine alone decides.
        monitor: put {"r": return, "l": length, "t": seconds} into `info["episode"]` at every episode's end.
        copy: False gives out the transport's own observations, which the next step overwrites: for loops that are done
            with an observation before they step. Stable-Baselines3 is not: it would train on rollouts shifted by one.
        compute_reward: (achieved goals, desired goals, infos) -> rewards [n], for HerReplayBuffer; None: the engine is
            asked, where it has FEATURES=GOAL_REWARD.
        render_mode: "rgb_array": `render` and `get_images` give the engine's pictures (FEATURES=RENDER). None: that,
            where the engine sends pictures.

    Attributes:
        observation_space: as the handshake says, see ue_rl.envs.spaces; choices count from 0.
        action_space: likewise; a Dict or Tuple of actions is a HybridBox.
        transport: the transport.
        journal: what an exact resume needs, see `keep_journal`; None as a rule.
        on_failure: called with what is about to escape from a step or a reset; None as a rule.
        meanwhile: called once a step, when the engine was asked for it; None as a rule. It must not use the env.
        acting: see ue_rl.envs.halves; None as a rule.

    With FEATURES=MASK `infos[i]["action_mask"]`, int8 [mask_size], says what is legal in the observation that stands
    beside it, and `env_method("action_masks")` says it to sb3-contrib's MaskablePPO.

    Raises:
        ConfigurationError: max_episode_steps is not positive, an unknown render_mode, or envs with agents.
        UnsupportedByEngine: render_mode, but the engine sends no pictures. Also what transport.connect() raises.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - VecEnv's own attribute, set anew per instance

    @owns_transport
    def __init__(
        self,
        transport: Transport,
        *,
        max_episode_steps: int | None = None,
        monitor: bool = True,
        copy: bool = True,
        compute_reward: GoalReward | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.max_episode_steps = check_limit(max_episode_steps)
        self.transport = transport
        self.engine_spec: EnvSpec = connected(transport)
        self.spec = None
        self.render_mode = render_mode_of(self.engine_spec, render_mode)
        self._compute_reward = goal_reward(transport, compute_reward, zero_based=True)
        refuse_agents(self.engine_spec, "use ue_rl.UnrealParallelEnv, or GroupVecEnv for the agents of one group")
        n = self.engine_spec.num_envs
        self._writer = ActionWriter(self.engine_spec, zero_based=True)
        self._observations = Observations(self.engine_spec, copy, zero_based=True)
        self._masks = Masks.of(self.engine_spec)
        self._monitor = monitor
        self._begun = time.time()
        kernels = load("kernels")
        self._own_dicts, self._take_step = kernels.own_dicts, kernels.take_step
        # Stable-Baselines3 wants a dict of its own for each env in every step, with this key, as DummyVecEnv gives it:
        # VecNormalize, VecTransposeImage, callbacks and people's wrappers write into it; HerReplayBuffer and the
        # journal keep it. So one is given out again only where nobody has kept or changed it. Those of the next step
        # and of the one after it: by then a loop has dropped what it was given two steps before.
        self._next_infos: tuple[list[dict[str, Any]], list[dict[str, Any]]] = [{}] * n, [{}] * n
        self._returns = np.zeros(n, np.float64)
        self._steps = 0
        self._started = np.zeros(n, np.int64)  # the step at which each env's episode began
        self._told: set[str] = set()
        # Not where episodes are cut off here: the engine would begin those that end in one step in two goes.
        self._asks_ahead = max_episode_steps is None and getattr(transport, "asks_ahead", False)
        self._just_begun: list[int] = []  # envs whose next reset has not been asked ahead
        self.journal: Journal | None = None
        self._reset_by: Reset | None = None
        self.on_failure: Callable[[BaseException], object] | None = None
        self.meanwhile: Callable[[], None] | None = None
        super().__init__(
            n, observation_space(self.engine_spec, zero_based=True), action_space(self.engine_spec, zero_based=True)
        )
        self.metadata["render_fps"] = self.engine_spec.render_fps

    # -- the step

    def reset(self) -> Observation:
        """Starts a new episode in every env; float32 [num_envs, obs_size], or as `observation_space` says.

        Seeds given by `seed()` and options given by `set_options()` go with it and are used up. A step that was sent
        and not waited for, because of a Ctrl-C, is dropped.
        """
        self._first_asked = self.under_way = False
        if self.journal is not None and self.journal.first is not None:
            return self._first_recorded(*self.journal.first)
        seeds, options = self._used("SEED", self._seeds), self._used("OPTIONS", self._options)
        buffers = start_episodes(self.transport, None, seeds, options, self._reset_by)
        self._returns[:] = 0
        self._started[:] = self._steps
        self.reset_infos = [dict(buffers.infos.get(env, {})) for env in range(self.num_envs)]
        for info in self.reset_infos:
            put_arrays(info)
        self._reset_seeds()
        self._reset_options()
        if self._masks is not None:
            self._masks.take(buffers)
            self._show_masks(self.reset_infos)
        if self._asks_ahead:
            self._just_begun = list(range(self.num_envs))
        obs = self._observations.read(buffers)
        if self.journal is not None:
            self.journal.began(obs, None if self._masks is None else self._masks.current)
        return obs

    def step_async(self, actions: Any) -> None:
        """Sends one action per env; see ue_rl.envs.actions.ActionWriter for shapes and errors."""
        rows = self._writer(actions)
        if self._masks is not None:
            self._masks.check(rows)
        if self._first_asked:
            self._require_first(rows)
        journal = self.journal
        try:
            recorded = journal is not None and journal.ask(rows)
            self.under_way = True
            if self._first_asked:
                self._rows = rows  # of the second half: asked when the first has answered
            elif journal is None:
                if self._just_begun:
                    self._ask_ahead()
                self.transport.send_actions(rows)
            elif not recorded:
                if self._just_begun:
                    self._ask_ahead()
                self.transport.send_actions(rows, sorted(journal.lost) if journal.lost else None)
        except BaseException as error:
            if self.on_failure is not None:
                self.on_failure(error)
            raise

    def step_wait(self) -> VecEnvStepReturn:
        """Waits for all envs and resets the finished ones.

        Returns:
            observations, as `reset` gives them (of the new episode where one ended), rewards float32
            [num_envs], dones bool [num_envs], infos. What the engine sends under a key that SB3 reads (`episode`,
            `terminal_observation`, `TimeLimit.truncated`; `is_success` where it is no number) is in info["engine"].
        """
        try:
            if self.meanwhile is not None:
                self.meanwhile()
            if self.acting is not None:
                result = self._step_acting(self.acting)
            else:
                result = self._step() if self.journal is None else self._step_of(self.journal, self._step)
            self.under_way = False
            return result
        except BaseException as error:
            if self.on_failure is not None:
                self.on_failure(error)
            raise

    def _step(self, of: NDArray[np.bool_] | None = None, begins: bool = True) -> VecEnvStepReturn:
        """Takes in the answers to a step of all envs, or to one of the envs `of`; resets those that have finished.

        Args:
            of: bool [num_envs]; what is given out of the others is 0, False and an info of their own. None: all.
            begins: it is the first of the requests that make one step of all envs.
        """
        buffers = self.transport.receive()
        plain = self._observations.plain and not buffers.may_give
        limit = -1 if self.max_episode_steps is None else self.max_episode_steps
        if of is not None and buffers.lost:
            of[list(buffers.lost)] = True
        obs, rewards, dones, returns, ended = self._take_step(
            buffers.obs if plain else None, buffers.rewards, buffers.dones,
            self._returns, self._started, of, self._steps + begins, limit,
        )  # fmt: skip
        if not plain:
            obs = self._observations.read(buffers)
        kept, later = self._next_infos
        infos: list[dict[str, Any]] = self._own_dicts(kept, "TimeLimit.truncated", False)
        self._next_infos = later, kept
        if buffers.infos:
            for env, sent in buffers.infos.items():
                info = infos[env]
                info.update(sent)
                odd = "is_success" in sent and not is_number(sent["is_success"])  # SB3 takes the mean of it
                if (odd or not _RESERVED.isdisjoint(sent)) and env not in buffers.lost:
                    own = [key for key in sent if key in _RESERVED or (odd and key == "is_success")]
                    info["engine"] = {key: info.pop(key) for key in own}
                    info["TimeLimit.truncated"] = False
                for value in sent.values():  # here, as a call for each env would cost more than this look
                    if value.__class__ is list or value.__class__ is dict:
                        put_arrays(info)
                        break
        if self._masks is not None:
            self._masks.take(buffers)
        if self.journal is not None and self.journal.lost:
            self._end_lost(self.journal, obs, rewards, dones, infos)
            if of is not None:
                rewards[~of], dones[~of] = 0, False
            returns, ended = self._returns + rewards, np.flatnonzero(dones).tolist()
        self._steps += begins
        if self._monitor:
            self._returns = returns
        if ended:
            self._finish(ended, buffers, obs, dones, infos)
        if self._masks is not None:
            self._show_masks(infos)
        return obs, rewards, dones, infos

    def _finish(
        self,
        finished: list[int],
        buffers: StepBuffers,
        obs: Observation,
        dones: NDArray[np.bool_],
        infos: list[dict[str, Any]],
    ) -> None:
        """Notes what ended, then resets those envs in one round trip; writes their first observations into `obs`."""
        self._started = self._started.copy()  # as it was, if a reset fails
        for env in finished:
            info = infos[env]
            info["terminal_observation"] = self._observations.row(obs, env)
            ended_by_engine = bool(buffers.dones[env])
            info["TimeLimit.truncated"] = bool(buffers.truncated[env]) if ended_by_engine else True
            if self._monitor and "engine_lost" not in info:  # what was cut off has no return
                info["episode"] = {
                    "r": round(float(self._returns[env]), 6),
                    "l": int(self._steps - self._started[env]),
                    "t": round(time.time() - self._begun, 6),
                }
        for new, begun, cut in begin_episodes(self.transport, finished, also_cut=True, reset=self._reset_by):
            for env in cut:
                infos[env].update(self._cut_off(env, new, obs))
            self._begin(list(begun), new, obs)
            if cut:
                dones[cut] = True

    def _cut_off(self, env: int, buffers: StepBuffers, obs: Observation) -> dict[str, Any]:
        """The infos of an episode that ends with this step, because its engine was lost while others were reset."""
        return {
            **buffers.infos[env], "terminal_observation": self._observations.row(obs, env), "TimeLimit.truncated": True
        }  # fmt: skip

    def _begin(self, envs: list[int], buffers: StepBuffers, obs: Observation) -> None:
        """Takes over the first observations of new episodes."""
        self._observations.put(obs, buffers, envs)
        if self._asks_ahead:
            self._just_begun += envs
        if self._masks is not None:
            self._masks.put(buffers, envs)
        for env in envs:  # as a rule few: an index array costs more, and much more with cold caches
            self._returns[env], self._started[env] = 0, self._steps
            self.reset_infos[env] = dict(buffers.infos.get(env, {}))
            put_arrays(self.reset_infos[env])
            if self._masks is not None:
                self.reset_infos[env]["action_mask"] = self._masks.current[env]

    def _show_masks(self, infos: list[dict[str, Any]]) -> None:
        assert self._masks is not None
        for info, mask in zip(infos, self._masks.current, strict=True):
            info["action_mask"] = mask

    def _used(self, feature: str, values: Sequence[Any]) -> Sequence[Any] | None:
        """The seeds or options to send; None where there are none or the engine takes none (said once)."""
        given = any(v is not None and v != {} for v in values)
        if not given:
            return None
        if feature in self.engine_spec.features:
            return [None if v == {} else v for v in values]
        what = "seeds: episodes will not be reproducible" if feature == "SEED" else "reset options: they are left out"
        if feature not in self._told:
            self._told.add(feature)
            warnings.warn(f"the engine takes no {what} (no FEATURES={feature} in its handshake)", stacklevel=3)
        return None

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self.transport.close()
