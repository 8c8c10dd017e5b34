"""What is said over RLlink, whatever the dialect. No I/O.

client -> server: PING, GET_CONFIG, GET_STATE, EPISODES, EPISODES_AND_GET_STATE
server -> client: PONG, SET_CONFIG, SET_STATE

Source: ray.rllib.env.external.rllink (Ray 2.60), and what was captured from Ray 2.48 and 2.60.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import MalformedMessage

PING = "PING"
GET_CONFIG = "GET_CONFIG"
GET_STATE = "GET_STATE"
EPISODES = "EPISODES"
EPISODES_AND_GET_STATE = "EPISODES_AND_GET_STATE"
ASKS = frozenset({PING, GET_CONFIG, GET_STATE, EPISODES, EPISODES_AND_GET_STATE})


@dataclass(frozen=True)
class Pong:
    """The answer to PING."""


@dataclass(frozen=True)
class ServerConfig:
    """The answer to GET_CONFIG: what of it a client needs; None where the server does not say.

    Args:
        steps_per_sample: env-steps that one EPISODES_AND_GET_STATE must have at least: RLlib waits for as many.
        steps_before_learning: env-steps that an off-policy algorithm collects before its first update, and without an
            update it answers no EPISODES_AND_GET_STATE: the first one must have as many. None: it is on-policy.
        asynchronous: it is IMPALA or APPO, which collects several samples before it learns, and sends weights an update
            later still: it never answers a client that waits for them.
        activation: of the hidden layers of the encoder. head_activation: of those of the heads.
        explore: actions are drawn, not the most likely ones. normalize_actions: actions are within -1 to 1, and
            stretched to the bounds of a bounded Box; else clip_actions: they are cut to them.
        squashed: the policy of a BOX is SAC's squashed Gaussian; None: its parameters' names tell.
        own_code: the user's classes and connectors that stand between an observation and an action; none of them runs
            here, so that there must be none. algorithm: the class of the config, as "package.module.Name".
    """

    steps_per_sample: int | None = None
    activation: str | None = None
    head_activation: str | None = None
    explore: bool | None = None
    normalize_actions: bool | None = None
    clip_actions: bool | None = None
    squashed: bool | None = None
    own_code: tuple[str, ...] | None = None
    steps_before_learning: int | None = None
    asynchronous: bool | None = None
    algorithm: str | None = None

    def under(self, said: ServerConfig) -> ServerConfig:
        """This config, but for what `said` says."""
        given = {name: value for name, value in vars(said).items() if value is not None}
        return replace(self, **given)


@dataclass(frozen=True)
class ServerState:
    """The answer to GET_STATE and EPISODES_AND_GET_STATE.

    Args:
        weights: parameter name -> array (dialect M). onnx: an ONNX file (dialect J). One of them is None.
        seq: weights_seq_no. It may come twice with different weights, and 0 is not unique: it is for people.
    """

    weights: Mapping[str, NDArray[Any]] | None
    onnx: bytes | None
    seq: int


Answer = Pong | ServerConfig | ServerState


@dataclass
class Chunk:
    """A part of one env's episode: T steps, T + 1 observations.

    Args:
        id_: of the episode; its next chunk has the same. t_started: steps of the episode before this chunk.
        obs: [T + 1, ...]; the first one is the last one of the chunk before. actions: [T, ...], as they were drawn,
            before they were stretched or cut to the engine's bounds. rewards: float32 [T].
        logits: float32 [T, n], what the distribution was made of (action_dist_inputs). logp: float32 [T].
        terminated, truncated: the episode ended with the last step. A chunk that ends without either goes on.
        env, first: which env's it is, and which of the steps that were collected with it is its first one.
        extra: path of names -> [T, ...], what else was noted of each step; not sent.
    """

    id_: str
    t_started: int
    obs: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[Any]
    logits: NDArray[np.float32]
    logp: NDArray[np.float32]
    terminated: bool = False
    truncated: bool = False
    env: int = 0
    first: int = 0
    extra: Mapping[tuple[str, ...], NDArray[Any]] = field(default_factory=dict)


class Dialect(abc.ABC):
    """How messages become bodies of frames."""

    name: ClassVar[str]
    answers: ClassVar[str]  # what a server may say

    def ask(self, what: str) -> bytes:
        """The body of PING, GET_CONFIG or GET_STATE."""
        return self._pack({"type": what})

    def episodes(self, chunks: list[Chunk]) -> bytes:
        """The body of EPISODES_AND_GET_STATE."""
        episodes = [self._episode(chunk) for chunk in chunks]
        steps = sum(len(chunk.rewards) for chunk in chunks)
        return self._pack({"type": EPISODES_AND_GET_STATE, "episodes": episodes, "timesteps": steps})

    def answer(self, body: bytes) -> Answer:
        """What a body of the server says; raises MalformedMessage: it cannot be read, or is no answer."""
        message = self._unpack(body)
        kind = message.get("type")
        found: Answer | None = None
        if isinstance(kind, str):  # an array equals nothing
            if kind == "PONG":
                found = Pong()
            elif kind == "SET_CONFIG":
                found = self._config(message)
            elif kind == "SET_STATE":
                found = self._state(message)
        if found is None:
            what = "an answer of RLlib cannot be read"
            raise MalformedMessage(what, fault="server", field="type", expected=self.answers, got=kind)
        return found

    @abc.abstractmethod
    def _pack(self, message: dict[str, Any]) -> bytes: ...

    @abc.abstractmethod
    def _unpack(self, body: bytes) -> dict[str, Any]:
        """Raises MalformedMessage."""

    @abc.abstractmethod
    def _episode(self, chunk: Chunk) -> dict[str, Any]: ...

    @abc.abstractmethod
    def _config(self, message: dict[str, Any]) -> ServerConfig | None:
        """None: it holds none."""

    @abc.abstractmethod
    def _state(self, message: dict[str, Any]) -> ServerState: ...
