"""GameSource: the bridges of a pool's sessions, from module:Class, a Gymnasium id or a factory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.hosting import Closes, HasNoOp
from ue_rl.protocol.spec import DEFAULT_FPS, EnvSpec, EnvType
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.loading import loaded

Game = str | Callable[..., BaseBridge]
_FEATURES = {"TRUNC", "SEED", "OPTIONS", "INFO", "MASK"}
_GYMNASIUM = re.compile(r"[^:]*|.*-v\d+")


class GameSource:
    """Makes bridges.

    Args:
        game: "module:Class", a Gymnasium id, or what makes a bridge when it is called with num_envs.
        max_sessions: rows of a bridge that is shared. kwargs: for each call.
        together: one bridge whose rows are the sessions; None: where the game is a VectorBridge, and no Gymnasium env.

    Attributes:
        name: of the game. shared: the bridge of all sessions, None where each has its own. spec: of one session.
        example: a bridge of the game, to be asked what it offers.

    Raises:
        ConfigurationError: it cannot be loaded or called, or has agents or images. MissingPackage: it is a Gymnasium
            id, and Gymnasium is not installed.
    """

    def __init__(self, game: Game, max_sessions: int, kwargs: Mapping[str, Any], together: bool | None) -> None:
        own = together is False
        factory: Callable[..., BaseBridge]
        if not isinstance(game, str):
            self.name = getattr(game, "__qualname__", type(game).__name__)
            factory = game
        elif is_gymnasium_id(game):
            with named_if_missing("ue_rl.plugins.sessions.realtime.SessionPool"):
                from ue_rl.bridges.hosted.gymnasium import GymnasiumBridge

            self.name = game
            factory = partial(GymnasiumBridge, game)
            own = together is not True
        else:
            self.name = game
            factory = loaded(game, "GAME")
        self._factory = partial(factory, **kwargs)
        self._spare: BaseBridge | None = None
        first = 1
        if getattr(factory, "together", False) and not own:
            first = max_sessions
        self.shared: BaseBridge | None = None
        self.example = self._make(first)
        if own or not self.example.together:
            self._spare = self.example
        elif first > 1 or max_sessions == 1:
            self.shared = self.example = self.example
        else:
            self.shared = self.example = self._make(max_sessions)
        self.spec = _one_env(self.example.announce())

    def own(self) -> BaseBridge:
        """A bridge for one session, in training mode."""
        spare = self._spare
        self._spare = None
        return spare or self._make(1)

    def close(self) -> None:
        """Closes the bridge that is shared."""
        for bridge in (self.shared, self._spare):
            close_bridge(bridge)

    def _make(self, num_envs: int) -> BaseBridge:
        try:
            bridge = self._factory(num_envs=num_envs)
        except TypeError as error:
            raise ConfigurationError(
                f"{self.name} cannot be called so",
                field="GAME",
                got=str(error),
                expected="a class or function that takes num_envs",
            ) from error
        if not isinstance(bridge, BaseBridge):
            raise ConfigurationError(
                f"{self.name} makes no bridge", field="GAME", expected="a bridge of ue_rl.bridges", got=type(bridge)
            )
        return bridge


def is_gymnasium_id(game: str) -> bool:
    """Is this text a Gymnasium id, and not module:Class?"""
    return _GYMNASIUM.fullmatch(game) is not None


def close_bridge(bridge: BaseBridge | None) -> None:
    """Where it holds something."""
    if isinstance(bridge, Closes):
        bridge.close()


def no_op_of(bridge: BaseBridge) -> NDArray[np.float32]:
    """The action of a tick without one, float32 [act_size]."""
    if isinstance(bridge, HasNoOp):
        return np.asarray(bridge.no_op, np.float32).reshape(bridge.spec.act_size)
    action = bridge.spec.action_spec
    if not action.counts:
        return np.clip(np.zeros(action.size, np.float32), *action.bounds)
    row = action.lowest.astype(np.float32)
    if action.low or action.space is not None:
        row = np.where(np.array(action.counts) > 0, row, np.clip(0, *action.bounds)).astype(np.float32)
    return row


def _one_env(spec: EnvSpec) -> EnvSpec:
    """What a session offers: what is said in a reset and a step, and nothing beside them."""
    if spec.groups or spec.image is not None:
        field = "IMAGE"
        if spec.groups:
            field = "AGENTS"
        raise ConfigurationError(
            "sessions carry the numbers of one agent",
            field=field,
            expected="a game without groups of agents and without images",
            cure="serve it as a lock-step engine: ue-rl serve",
        )
    features = spec.features & _FEATURES
    return replace(
        spec, num_envs=1, env_type=EnvType.MULTI, shm=None, parameters=(), features=features, render_fps=DEFAULT_FPS
    )
