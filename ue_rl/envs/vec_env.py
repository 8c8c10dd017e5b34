"""UnrealVecEnv: any Transport as a Stable-Baselines3 VecEnv.

What an SB3 user expects holds: automatic resets with `terminal_observation`, `TimeLimit.truncated`,
`reset_infos`, `seed()`, `set_options()`, episode statistics in `info["episode"]`. All finished envs are reset in one
round trip. Every array given out is the caller's, unless the caller wants no copies: SB3 keeps the last observation,
and the transport writes into its own buffers again at the next step. It is a copy, or an array that the transport has
given away (`StepBuffers.may_give`). No I/O of its own: that is the transport's.
"""

from __future__ import annotations

import functools
import operator
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn, tile_images

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.controls import (
    EngineControls,
    GoalReward,
    check_render_mode,
    goal_reward,
    refuse_agents,
    render_mode_of,
)
from ue_rl.envs.infos import is_number, put_arrays
from ue_rl.envs.journal_transport import JournalTransport
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.envs.stepper import Stepper
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.transport import Transport, owns_transport
from ue_rl.system.compiled import load
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine

# What Stable-Baselines3 reads in an info, so that an engine's own must not stand there.
_RESERVED = frozenset(("episode", "terminal_observation", "TimeLimit.truncated", "engine_lost"))
_KNOWN = (
    "render_mode", "spec", "metadata", "observation_space", "action_space", "engine_spec", "max_episode_steps",
)  # fmt: skip
_METHODS = ("action_masks", "compute_reward", "render", "get_params", "set_params", "list_params")


class UnrealVecEnv(EngineControls, VecEnv):
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
        stepper: who takes it through steps and episodes.
        under_way: a step was asked for, and its result was not given out: only `reset` can follow if it is broken off.

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
        self.max_episode_steps = _check_limit(max_episode_steps)
        self.transport = transport
        self.stepper = Stepper(transport, ahead=max_episode_steps is None)
        self.engine_spec = spec = self.stepper.spec
        self.spec = None
        self.render_mode = render_mode_of(spec, render_mode)
        self._compute_reward = goal_reward(transport, compute_reward, zero_based=True)
        refuse_agents(spec, "use ue_rl.UnrealParallelEnv, or GroupVecEnv for the agents of one group")
        n = spec.num_envs
        self._writer = ActionWriter(spec, zero_based=True)
        self._observations = Observations(spec, copy, zero_based=True)
        self._monitor = monitor
        self._begun = time.time()
        kernels = load("kernels")
        self._own_dicts = kernels.own_dicts
        self._take_step = kernels.take_step
        # Stable-Baselines3 wants a dict of its own for each env in every step, with this key, as DummyVecEnv gives it:
        # VecNormalize, VecTransposeImage, callbacks and people's wrappers write into it; HerReplayBuffer keeps it. So
        # one is given out again only where nobody has kept or changed it. Those of the next step and of the one after
        # it: by then a loop has dropped what it was given two steps before.
        self._next_infos: list[dict[str, Any]] = [{}] * n
        self._later_infos: list[dict[str, Any]] = [{}] * n
        self._returns = np.zeros(n, np.float64)
        self._started = np.zeros(n, np.int64)  # the step at which each env's episode began
        self.under_way = False
        self._told: set[str] = set()
        super().__init__(n, observation_space(spec, zero_based=True), action_space(spec, zero_based=True))
        self.metadata["render_fps"] = spec.render_fps

    # -- the step

    def reset(self) -> Observation:
        """Starts a new episode in every env; float32 [num_envs, obs_size], or as `observation_space` says.

        Seeds given by `seed()` and options given by `set_options()` go with it and are used up. A step that was sent
        and not waited for, because of a Ctrl-C, is dropped.
        """
        self.under_way = False
        seeds = self._used("SEED", self._seeds)
        options = self._used("OPTIONS", self._options)
        buffers = self.stepper.start(None, seeds, options)
        self._returns[:] = 0
        self._started[:] = self.stepper.steps
        self.reset_infos = [self._begun_with(env, buffers) for env in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return self._observations.read(buffers)

    def step_async(self, actions: Any) -> None:
        """Sends one action per env; see ue_rl.envs.actions.ActionWriter for shapes and errors."""
        rows = self._writer(actions)
        self.under_way = True  # before: a Ctrl-C may come while it is sent
        self.stepper.ask(rows)

    def step_wait(self) -> VecEnvStepReturn:
        """Waits for all envs and resets the finished ones.

        Returns:
            observations, as `reset` gives them (of the new episode where one ended), rewards float32
            [num_envs], dones bool [num_envs], infos. What the engine sends under a key that SB3 reads (`episode`,
            `terminal_observation`, `TimeLimit.truncated`; `is_success` where it is no number) is in info["engine"].
        """
        result = self.take_answers()
        self.under_way = False
        return result

    def take_answers(self, of: NDArray[np.bool_] | None = None) -> VecEnvStepReturn:
        """Takes in the answers to what was asked last, and resets those envs that have finished.

        Args:
            of: bool [num_envs], who was asked; what is given out of the others is 0, False and an info of their own.
                Of an engine that was lost meanwhile all envs are put into it. None: all envs.
        """
        buffers = self.stepper.receive()
        if of is not None and buffers.lost:
            of[list(buffers.lost)] = True
        # A plain observation is copied together with the rest; any other is put together by `read`.
        plain = self._observations.plain and not buffers.may_give
        limit = -1 if self.max_episode_steps is None else self.max_episode_steps
        obs, rewards, dones, returns, finished = self._take_step(
            buffers.obs if plain else None, buffers.rewards, buffers.dones,
            self._returns, self._started, of, self.stepper.steps, limit,
        )  # fmt: skip
        if not plain:
            obs = self._observations.read(buffers)
        infos = self._infos(buffers)
        if self._monitor:
            self._returns = returns
        if finished:  # in this order: a reset overwrites the buffers, the returns, and the rows of `obs`
            self._note_ends(finished, buffers, obs, infos)
            self._begin_again(finished, obs, dones, infos)
        if self.stepper.masks is not None:
            for info, mask in zip(infos, self.stepper.masks.current, strict=True):
                info["action_mask"] = mask
        return obs, rewards, dones, infos

    def _infos(self, buffers: StepBuffers) -> list[dict[str, Any]]:
        """A dict for each env, with what its engine has sent beside the observation."""
        # The list's dicts that somebody has kept or changed are replaced, in the list itself; it is given out as it is.
        infos: list[dict[str, Any]] = self._own_dicts(self._next_infos, "TimeLimit.truncated", False)
        given = self._next_infos
        self._next_infos = self._later_infos
        self._later_infos = given
        if not buffers.infos:
            return infos
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
        return infos

    def _note_ends(
        self, finished: list[int], buffers: StepBuffers, obs: Observation, infos: list[dict[str, Any]]
    ) -> None:
        """Says of these envs, in `infos`, with what their episode ended."""
        for env in finished:
            info = infos[env]
            info["terminal_observation"] = self._observations.row(obs, env)
            if buffers.dones[env]:
                info["TimeLimit.truncated"] = bool(buffers.truncated[env])
            else:  # at the limit `max_episode_steps`
                info["TimeLimit.truncated"] = True
            if self._monitor and "engine_lost" not in info:  # an episode that was lost with its engine has no return
                info["episode"] = {
                    "r": round(float(self._returns[env]), 6),
                    "l": int(self.stepper.steps - self._started[env]),
                    "t": round(time.time() - self._begun, 6),
                }

    def _begin_again(
        self, finished: list[int], obs: Observation, dones: NDArray[np.bool_], infos: list[dict[str, Any]]
    ) -> None:
        """Resets these envs, as a rule in one round trip, and writes their first observations into `obs`."""
        for buffers, begun, cut in self.stepper.begin_again(finished, also_cut=True):
            for env in cut:  # lost with their engine while others were reset: they end with this step, too
                infos[env].update(buffers.infos[env])
                infos[env]["terminal_observation"] = self._observations.row(obs, env)
                infos[env]["TimeLimit.truncated"] = True
                dones[env] = True
            self._observations.put(obs, buffers, begun)
            for env in begun:  # as a rule few: an index array costs more, and much more with cold caches
                self._returns[env] = 0
                self._started[env] = self.stepper.steps
                self.reset_infos[env] = self._begun_with(env, buffers)

    def _begun_with(self, env: int, buffers: StepBuffers) -> dict[str, Any]:
        """The info of an episode's first observation."""
        info = dict(buffers.infos.get(env, {}))
        put_arrays(info)
        if self.stepper.masks is not None:
            info["action_mask"] = self.stepper.masks.current[env]
        return info

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

    # -- a step in parts, see ue_rl.envs.overlap_vec_env

    def halves(self) -> NDArray[np.bool_]:
        """Which envs step first where a step is taken in two halves, bool [num_envs]: of each engine the first half.

        Raises:
            ConfigurationError: an engine has one env, which cannot be halved.
        """
        first = np.zeros(self.num_envs, np.bool_)
        for envs in getattr(self.transport, "engine_envs", None) or [range(self.num_envs)]:
            if len(envs) < 2:
                raise ConfigurationError(
                    "an engine of one env has no two halves to overlap",
                    field="overlap",
                    expected="two envs or more in each engine",
                    got=len(envs),
                    cure="give the engine more envs, or leave overlap out",
                )
            first[envs.start : envs.start + (len(envs) + 1) // 2] = True
        return first

    def wire_rows(self, actions: Any) -> NDArray[np.float32]:
        """What goes over the wire for these actions, float32 [num_envs, act_size]; raises as `step_async`."""
        return self._writer(actions)

    def ask_some(self, rows: NDArray[np.float32], stepping: NDArray[np.bool_]) -> None:
        """Asks the envs in `stepping`, bool [num_envs], for a step; `take_answers(stepping)` follows.

        A step is over when each env has taken its part. Until then only `reset` can break it off.

        Args:
            rows: see `wire_rows`; those of the other envs may be any valid ones.
        """
        self.stepper.ask_some(rows, stepping)  # first: what it refuses was not sent, and leaves no step under way
        self.under_way = True

    # -- runs that are stopped and go on, see ue_rl.envs.journal_transport

    def keep_journal(self, seed: int) -> JournalTransport | None:
        """From the next reset on steps over a JournalTransport, which has what an exact resume needs.

        Args:
            seed: where the engine takes seeds, every episode gets one, derived from this, the env's id and the number
                of its episode; those given by `seed()` win.

        Returns:
            that transport, the one from before where there is one already; None: this env keeps no journal.
        """
        if not isinstance(self.stepper.transport, JournalTransport):
            self.stepper.transport = JournalTransport(self.transport, seed)
        return self.stepper.transport

    def read(self, buffers: StepBuffers) -> Observation:
        """The observations in these buffers, as `step_wait` gives them.

        Raises:
            MalformedMessage: a number is not what the observation space says.
        """
        return self._observations.read(buffers)

    def episode_state(self) -> dict[str, Any]:
        """Returns, float64 [num_envs], and lengths, int64 [num_envs], of the episodes so far; copies."""
        return {"returns": self._returns.copy(), "lengths": self.stepper.steps - self._started}

    def restore_episodes(self, state: Mapping[str, Any]) -> None:
        """Goes on counting from what `episode_state` gave; after a reset."""
        self._returns = np.array(state["returns"], np.float64)
        self._started = self.stepper.steps - np.asarray(state["lengths"], np.int64)

    # -- what is asked beside the steps

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """What is known about each env: render_mode, spec, spaces, max_episode_steps, the methods of `env_method` that
        this engine has, and, by its name, the value of a parameter of the game.

        Raises:
            UnsupportedByEngine: (an AttributeError) anything else lives inside the engine.
        """
        envs = self._get_indices(indices)
        if attr_name in _KNOWN:
            return [getattr(self, attr_name) for _ in envs]
        if attr_name in _METHODS:
            return [self._method(attr_name, env) for env in envs]
        if attr_name in self._parameters:
            return [self.get_params([attr_name], env)[attr_name] for env in envs]
        raise self._inside("get_attr", attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Sets render_mode or max_episode_steps, for all envs at once, or a parameter of the game by its name.

        Raises:
            ConfigurationError: no such render_mode, or no step is allowed.
            UnsupportedByEngine: anything else lives inside the engine; or it sends no pictures.
        """
        envs = self._get_indices(indices)
        everywhere = len(set(envs)) == self.num_envs
        if attr_name == "render_mode" and everywhere:
            self.render_mode = check_render_mode(self.engine_spec, value)
        elif attr_name == "max_episode_steps" and everywhere:
            self.max_episode_steps = _check_limit(value)
        elif attr_name in self._parameters:
            for env in [None] if everywhere else envs:
                self.set_params({attr_name: value}, env)
        else:
            raise self._inside("set_attr", attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """What the engine answers: action_masks (FEATURES=MASK), compute_reward (an argument of this class, or
        FEATURES=GOAL_REWARD), render (FEATURES=RENDER), list_params, get_params and set_params.

        Raises:
            UnsupportedByEngine: it does not, or any other method, with what to use instead.
        """
        methods = [self._method(method_name, env) for env in self._get_indices(indices)]
        return [method(*method_args, **method_kwargs) for method in methods]

    def _method(self, name: str, env: int) -> Callable[..., Any]:
        if name == "action_masks" and self.stepper.masks is not None:
            return functools.partial(self.stepper.masks.action_masks, env)
        if name == "compute_reward" and self._compute_reward is not None:
            return self._compute_reward
        if name == "render" and "RENDER" in self.engine_spec.features:
            return functools.partial(self._picture, env)
        if name in ("get_params", "set_params") and self._parameters:
            return functools.partial(getattr(self, name), env_id=env)
        if name == "list_params" and self._parameters:
            return self.list_params
        raise self._inside("env_method", name)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Monitor: True where the episode statistics are in the infos. No other wrapper runs inside the engine."""
        return [self._monitor and wrapper_class is Monitor for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of each env, uint8 [height, width, channels], with render_mode="rgb_array"; otherwise None each.

        An env that has no picture now is black beside those that have one; None each where none has.
        """
        if self.render_mode is None:
            return [None] * self.num_envs
        pictures = [self._picture(env) for env in range(self.num_envs)]
        black = next((np.zeros_like(picture) for picture in pictures if picture is not None), None)
        return [black if picture is None else picture for picture in pictures]

    def render(self, mode: str | None = None) -> NDArray[np.uint8] | None:
        """The pictures of all envs, tiled; None where no env has one."""
        if self.render_mode is None or mode not in (None, self.render_mode):
            return super().render(mode)  # says why there is none
        pictures = [picture for picture in self.get_images() if picture is not None]
        if not pictures:
            return None
        return tile_images(pictures)

    def _get_indices(self, indices: VecEnvIndices) -> list[int]:
        n = self.num_envs
        given = list(super()._get_indices(indices))
        if any(isinstance(env, np.bool_) for env in given):  # which NumPy 1 takes for 0 and 1
            raise TypeError("flags are no indices of envs; np.flatnonzero(flags) gives those")
        chosen = [operator.index(env) for env in given]
        for env in chosen:
            if not -n <= env < n:
                raise IndexError(f"env index {env} is outside 0..{n - 1}")
        return [env % n for env in chosen]  # -1 is the last one, as in a list

    def _inside(self, call: str, name: str) -> UnsupportedByEngine:
        return UnsupportedByEngine(
            f"{call}({name!r}) asks for something that lives inside the engine",
            expected=", ".join((*_KNOWN, *self._parameters)),
            cure="pass values at the start of an episode with set_options(), let the game list it as a parameter, or "
            "wrap the VecEnv",
        )


def _check_limit(steps: int | None) -> int | None:
    """The most steps of an episode; None: as many as the engine allows.

    Raises:
        ConfigurationError: it is no whole number from 1 on.
    """
    if steps is None:
        return None
    whole = 0
    with suppress(TypeError, ValueError, OverflowError):  # text, NaN, infinity
        whole = int(steps)
    if whole < 1 or whole != steps:
        raise ConfigurationError(
            "an episode has at least one step",
            field="max_episode_steps",
            expected="a whole number from 1 on",
            got=steps,
        )
    return whole
