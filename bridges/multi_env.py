"""MultiEnvBridge and SingleEnvBridge: one callback for each event of an env, as the deployed plugin has them."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.game import Mode, PerEnv
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import Codec
from ue_rl.system.errors import MalformedMessage, WrongCount

Mask = Sequence[bool] | Sequence[int] | NDArray[Any]
State = str | Sequence[float] | NDArray[Any]


def accepted_keywords(reset: Callable[..., None]) -> set[str]:
    """Which of `seed` and `options` an override of a reset callback takes."""
    accepted = inspect.signature(reset).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    return {name for name in ("seed", "options") if takes_any or name in accepted}


class MultiEnvBridge(BaseBridge):
    """N envs behind one bridge; implement the five callbacks.

    Where `create_action_mask_for_env` is overridden too, the trainer is told which actions are legal (MASK).
    An asked action is applied in the tick that sees the request and answered in the first tick, that one
    included, in which `is_action_running_for_env` says False. A reset is answered in the tick that sees it.
    """

    def __init__(self, spec: EnvSpec | None = None) -> None:
        super().__init__(spec)
        self._reset_takes = accepted_keywords(self.handle_reset_for_env)

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure."""
        if self._makes_masks and spec.action_spec.mask_size and spec.version and spec.env_type is not EnvType.RLBASE:
            spec = replace(spec, features=spec.features | {"MASK"})
        with self.lock:
            one = EnvSpec(spec.obs_size, 1, EnvType.SINGLE)
            self._state_codec = Codec(one)
            self._state_row = StepBuffers(1, spec.obs_size)
            super().configure(spec)

    # -- callbacks

    @abc.abstractmethod
    def create_state_string_for_env(self, env_id: int) -> State:
        """The observation: obs_size floats, or a ready state string in any of the plugin's spellings."""

    @abc.abstractmethod
    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool] | tuple[float, bool, bool]:
        """(reward, done) or (reward, done, truncated).

        truncated: over by a limit only; False where the game was lost or won in the same step.
        """

    @abc.abstractmethod
    def handle_reset_for_env(self, env_id: int) -> None:
        """Starts a new episode. Declare `seed=None` and `options=None` to be given those of the request."""

    @abc.abstractmethod
    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        """Applies an action, float32 [act_size]; it may take several ticks."""

    def is_action_running_for_env(self, env_id: int) -> bool:
        """Does the applied action still run? Until it does not, the env is not answered for."""
        return False

    def create_action_mask_for_env(self, env_id: int) -> Mask | None:
        """Flags, 1 for each choice that is legal in the present state; None: all are.

        One for each choice of each number of the action, lowest first, docs/protocol.md, section 5: DISCRETE(4) has 4,
        MULTI_DISCRETE(2,3) has 2 + 3, MULTI_BINARY(n) has 2 n (off, on). Not asked in terminal states.
        """
        return None

    # -- for the driver

    @property
    def _makes_masks(self) -> bool:
        return type(self).create_action_mask_for_env is not MultiEnvBridge.create_action_mask_for_env

    def begin_in(self, envs: int, seeds: PerEnv, options: PerEnv) -> None:
        """See Game."""
        given = {"seed": seeds[0], "options": options[0]}
        reset: Callable[..., None] = self.handle_reset_for_env
        reset(envs, **{name: given[name] for name in self._reset_takes})

    def act_in(self, envs: int, actions: NDArray[np.float32]) -> None:
        """See Game."""
        self.handle_response_actions_for_env(envs, actions[envs].copy())

    def running_in(self, envs: int) -> bool:
        """See Game."""
        return self.is_action_running_for_env(envs)

    def read_in(self, envs: int, begun: bool) -> None:
        """See Game. The plugin answers a reset with a reward, too; in inference mode nobody is answered."""
        env = envs
        self._read_state(env)
        if begun and self.mode is Mode.INFERENCE:
            self._read_mask(env)
            return
        result: Any = self.calculate_reward_for_env(env)
        if not isinstance(result, (tuple, list)) or len(result) not in (2, 3):
            raise MalformedMessage(
                "the game's reward does not say whether the episode is over",
                fault="engine",
                env_id=env,
                field="REW",
                expected="(reward, done) or (reward, done, truncated)",
                got=repr(result),
                cure="look at what calculate_reward returns; is a `return` missing?",
            )
        reward, done, *rest = result
        truncated = any(rest)
        out = self.outbox
        out.rewards[env] = reward
        out.dones[env] = bool(done or truncated)  # a game may say so with a flag of its own, such as 4
        out.truncated[env] = truncated
        if done and not truncated:
            out.masks[env] = 1
        else:
            self._read_mask(env)

    def _read_mask(self, env: int) -> None:
        row = self.outbox.masks[env]
        if not row.size:
            return
        flags = self.create_action_mask_for_env(env)
        if flags is None:
            row[:] = 1
            return
        values = np.ravel(flags)
        if values.size != row.size:
            raise WrongCount(
                "the game's action mask has the wrong number of flags",
                env_id=env,
                field="MASK",
                expected=row.size,
                got=values.size,
                cure="it has one flag for each choice of each number",
            )
        row[:] = values != 0

    def _read_state(self, env: int) -> None:
        state = self.create_state_string_for_env(env)
        if isinstance(state, str):
            self._state_row.pending[0] = 1
            self._state_codec.decode_states(f"OBS={state}REW=0;DONE=0".encode(), self._state_row)
            self.outbox.obs[env] = self._state_row.obs[0]
            return
        try:
            if state is None:
                given = {}
            else:
                given = state
            values = np.asarray(given, np.float32).reshape(-1)
        except (TypeError, ValueError) as error:
            raise MalformedMessage(
                "the game's state is not a row of numbers",
                fault="engine",
                env_id=env,
                field="OBS",
                expected=f"{self.spec.obs_size} numbers",
                got=repr(state),
                cure="look at what create_state_string returns; is a `return` missing?",
            ) from error
        if values.size != self.spec.obs_size:
            what = "the game's state has the wrong number of numbers"
            cure = "it must be the OBS of the handshake"
            raise WrongCount(what, env_id=env, field="OBS", expected=self.spec.obs_size, got=values.size, cure=cure)
        self.outbox.obs[env] = values


class SingleEnvBridge(MultiEnvBridge):
    """One env; implement the five callbacks.

    Args:
        spec: env_type SINGLE or RLBASE.
    """

    _env_type = EnvType.SINGLE

    def __init__(self, spec: EnvSpec | None = None) -> None:
        super().__init__(spec)
        self._reset_takes = accepted_keywords(self.handle_reset)

    @abc.abstractmethod
    def create_state_string(self) -> State:
        """The observation: obs_size floats, or a ready state string in any of the plugin's spellings."""

    @abc.abstractmethod
    def calculate_reward(self) -> tuple[float, bool] | tuple[float, bool, bool]:
        """(reward, done) or (reward, done, truncated)."""

    @abc.abstractmethod
    def handle_reset(self) -> None:
        """Starts a new episode. Declare `seed=None` and `options=None` to be given those of the request."""

    @abc.abstractmethod
    def handle_response_actions(self, actions: NDArray[np.float32]) -> None:
        """Applies an action, float32 [act_size]."""

    def is_action_running(self) -> bool:
        """Does the applied action still run?"""
        return False

    def create_action_mask(self) -> Mask | None:
        """Which choices are legal now, see MultiEnvBridge.create_action_mask_for_env; None: all are."""
        return None

    @property
    def _makes_masks(self) -> bool:
        return type(self).create_action_mask is not SingleEnvBridge.create_action_mask

    def create_action_mask_for_env(self, env_id: int) -> Mask | None:
        """The one env's."""
        return self.create_action_mask()

    def create_state_string_for_env(self, env_id: int) -> State:
        """The one env's."""
        return self.create_state_string()

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool] | tuple[float, bool, bool]:
        """The one env's."""
        return self.calculate_reward()

    def handle_reset_for_env(self, env_id: int, **given: Any) -> None:
        """The one env's."""
        self.handle_reset(**given)

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        """The one env's."""
        self.handle_response_actions(actions)

    def is_action_running_for_env(self, env_id: int) -> bool:
        """The one env's."""
        return self.is_action_running()
