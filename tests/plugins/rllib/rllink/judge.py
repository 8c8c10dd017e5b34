"""What an RLlink client's message of episodes must be, judged over a whole session.

Source: SingleAgentEpisode.from_state and InfiniteLookbackBuffer.from_state (Ray 2.60), for JSON the env runner of Ray
2.48. RLlib reads these keys without a look at them: one that is missing ends its listener, and the client never hears.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.rllib.rllink.messages import EPISODES_AND_GET_STATE
from ue_rl.protocol.spaces.actions import ActionKind, ActionSpec
from ue_rl.system.errors import shorten

Equations = Callable[[NDArray[np.float32], NDArray[Any]], tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]]
LogProbabilities = Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
Policy = Callable[[NDArray[np.float32]], NDArray[Any]]
_PARTS = ("observations", "actions", "rewards")
_OUTPUTS = ("action_dist_inputs", "action_logp")
_KEYS = {
    "id_", "agent_id", "module_id", "multi_agent_episode_id", *_PARTS, "infos", "extra_model_outputs", "is_terminated",
    "is_truncated", "t_started", "t", "_observation_space", "_action_space", "_start_time", "_last_step_time",
}  # fmt: skip
_MOST_OPEN = 3  # messages in which an open episode may be missing


class _Open(NamedTuple):
    """An episode that goes on."""

    steps: int
    total: float
    last_obs: NDArray[Any]
    message: int


class _Wrong(Exception):
    """Something of a message is wrong."""


def _must(right: object, key: str, got: object) -> None:
    if not right:
        raise _Wrong(f"{key}: got {shorten(got, 80)}")


class Judge:
    """Takes each message of episodes.

    Args:
        obs_size, action, num_logits: of the policy. dialect: "msgpack" or "json".
        logp: (logits [T, n], actions [T, ..]) -> log-probabilities [T]; None: of a DiagGaussian or of choices.
        equations: (obs [T, obs_size], actions [T, ..] as the engine gets them) -> (next obs, rewards [T], terminated
            [T]), of an env that is known; None: none of them is checked.

    Attributes:
        mistakes: what was wrong first in a message or in an episode of it, which begins with the key.
        finished: (return, length) of each episode that ended.
    """

    def __init__(
        self,
        obs_size: int,
        action: ActionSpec,
        num_logits: int,
        dialect: str,
        equations: Equations | None = None,
        logp: LogProbabilities | None = None,
    ) -> None:
        self.mistakes: list[str] = []
        self.finished: list[tuple[float, int]] = []
        self._obs_size, self._num_logits = obs_size, num_logits
        self._action, self._dialect, self._equations = action, dialect, equations
        self._logp = logp or partial(log_probabilities, action)
        self._open: dict[str, _Open] = {}
        self._ended: set[str] = set()
        self._messages = self._since_state = 0

    def begin(self) -> None:
        """A client has connected: what another one left open does not go on."""
        self._open.clear()
        self._since_state = 0

    def take(self, message: dict[Any, Any], wanted: int, net: Policy, seq: int = 0) -> int:
        """How many env-steps its right episodes have.

        Args:
            wanted: env-steps for which RLlib waits. net: the policy that was sent last, observations to logits.
            seq: its weights_seq_no.
        """
        self._messages += 1
        steps = 0
        try:
            for episode in message["episodes"]:
                steps += self._judge(episode, net, seq)
            _must(message.get("timesteps", steps) == steps, "timesteps", message.get("timesteps"))
            _must(message.get("weights_seq_no", seq) == seq, "weights_seq_no", message.get("weights_seq_no"))
            self._since_state += steps
            if message["type"] == EPISODES_AND_GET_STATE:
                _must(self._since_state >= wanted, f"episodes: RLlib waits for {wanted} steps", self._since_state)
                self._since_state = 0
            for id_, one in self._open.items():
                _must(self._messages - one.message < _MOST_OPEN, "id_: it neither ended nor went on", id_)
        except (_Wrong, LookupError, TypeError, ValueError) as error:
            self.mistakes.append(str(error) if isinstance(error, _Wrong) else repr(error))
        return steps

    def _judge(self, episode: dict[Any, Any], net: Policy, seq: int) -> int:
        read = self._of_json if self._dialect == "json" else self._of_buffers
        obs, actions, rewards, logits, logp = (np.asarray(part) for part in read(episode))
        steps = len(rewards)
        row = () if self._action.kind is ActionKind.DISCRETE else (self._action.size,)
        shapes = [(steps + 1, self._obs_size), (steps, *row), (steps,), (steps, self._num_logits), (steps,)]
        for key, array, shape in zip((*_PARTS, *_OUTPUTS), (obs, actions, rewards, logits, logp), shapes, strict=True):
            _must(steps > 0 and array.shape == shape, f"{key}: expected shape {shape}", array.shape)
            _must(array.dtype.kind in "iufb" and np.isfinite(array).all(), key, array)
        if self._action.kind is not ActionKind.BOX:
            _must(np.isin(actions, np.arange(max(self._action.counts))).all(), "actions", actions.tolist())
            _must((actions.reshape(steps, -1) < self._action.counts).all(), "actions", actions.tolist())
        terminated, truncated = episode["is_terminated"], episode["is_truncated"]
        _must(isinstance(terminated, (bool, np.bool_)), "is_terminated", terminated)
        _must(isinstance(truncated, (bool, np.bool_)), "is_truncated", truncated)
        if self._dialect == "json":
            if terminated or truncated:
                self.finished.append((float(rewards.sum()), steps))
        else:
            self._order(episode, obs, rewards, ended=bool(terminated or truncated), seq=seq)
        with np.errstate(all="ignore"):
            _close("action_dist_inputs", logits, net(obs[:-1].astype(np.float32)), 1e-4)
            _close("action_logp", logp, self._logp(logits.astype(np.float64), actions), 1e-3)
        if self._equations is not None:
            following, earned, over = self._equations(obs[:-1], for_engine(self._action, actions))
            _close("observations", obs[1:], following, 1e-3)
            _close("rewards", rewards, earned, 1e-3)
            _must(over.tolist() == [False] * (steps - 1) + [bool(terminated)], "is_terminated", terminated)
        return steps

    @staticmethod
    def _of_json(episode: dict[Any, Any]) -> list[Any]:
        return [episode[key] for key in ("obs", *_PARTS[1:], *_OUTPUTS)]

    @staticmethod
    def _of_buffers(episode: dict[Any, Any]) -> list[Any]:
        _must(episode.keys() >= _KEYS, "keys: missing", _KEYS - episode.keys())
        infos, outputs = episode["infos"], episode["extra_model_outputs"]
        steps = len(_data(episode, "rewards"))
        data = _data(episode, "infos")
        _must(infos["finalized"] is False and isinstance(data, list), "infos", infos)
        _must(len(data) == steps + 1 and all(isinstance(info, dict) for info in data), "infos", data)
        obs = _data(episode, "observations")
        _must(not isinstance(obs, np.ndarray) or obs.dtype == np.float32, "observations: expected float32", obs)
        return [*(_data(episode, key) for key in _PARTS), *(_data(outputs, key) for key in _OUTPUTS)]

    def _order(
        self, episode: dict[Any, Any], obs: NDArray[Any], rewards: NDArray[Any], *, ended: bool, seq: int
    ) -> None:
        """Does this part go on where the one before ended?"""
        id_, steps, started = episode["id_"], len(rewards), episode["t_started"]
        _must(isinstance(id_, str) and id_ and id_ not in self._ended, "id_", id_)
        before = self._open.pop(id_, _Open(0, 0.0, obs[0], 0))
        _must(isinstance(started, (int, np.integer)) and started == before.steps, "t_started", started)
        _must(episode["t"] == started + steps, "t", episode["t"])
        _must(np.array_equal(before.last_obs, obs[0]), "observations: not those of the part before", obs[0])
        if "weights_seq_no" in episode["extra_model_outputs"]:
            numbers = _data(episode["extra_model_outputs"], "weights_seq_no")
            _must(np.array_equal(numbers, np.full(steps, seq)), "weights_seq_no", numbers)
        length, total = before.steps + steps, before.total + float(rewards.sum())
        if ended:
            self.finished.append((total, length))
            self._ended.add(id_)
        else:
            self._open[id_] = _Open(length, total, obs[-1], self._messages)


def _data(holder: dict[Any, Any], key: str) -> Any:
    """The data of an InfiniteLookbackBuffer, without what is looked back on."""
    buffer = holder[key]
    _must(isinstance(buffer, dict) and {"data", "lookback", "finalized", "space"} <= buffer.keys(), key, buffer)
    data, finalized = buffer["data"], buffer["finalized"]
    _must(isinstance(finalized, bool) and not (finalized and isinstance(data, list)), f"{key}: finalized", data)
    return data[buffer["lookback"] :]


def _close(key: str, got: NDArray[Any], wanted: NDArray[Any], tolerance: float) -> None:
    """Numbers above 100 may differ by what float32 rounds."""
    apart = ~(np.abs(got - wanted) <= tolerance * np.maximum(1.0, np.abs(wanted) / 100))
    _must(not apart.any(), f"{key}: expected {shorten(np.asarray(wanted)[apart], 80)}", got[apart])


def for_engine(action: ActionSpec, actions: NDArray[Any]) -> NDArray[Any]:
    """Actions as RLlib's connectors give them to an env: a bounded Box stretched from -1..1, and cut."""
    if action.kind is not ActionKind.BOX:
        return actions
    low, high = action.bounds
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return actions
    stretched: NDArray[Any] = np.clip(low + (actions + 1) * (high - low) / 2, low, high)
    return stretched


def log_probabilities(action: ActionSpec, logits: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
    """Of these actions, in doubles; written without what the client uses."""
    rows = actions.reshape(len(actions), -1)
    total = np.zeros(len(rows))
    if action.kind is ActionKind.BOX:
        half = logits.shape[1] // 2
        for n in range(half):
            deviation = np.exp(logits[:, half + n])
            total += -(((rows[:, n] - logits[:, n]) / deviation) ** 2) / 2 - np.log(deviation * math.sqrt(2 * math.pi))
        return total
    start = 0
    for n, count in enumerate(action.counts):
        part = logits[:, start : start + count]
        odds = np.exp(part - part.max(axis=1, keepdims=True))
        total += np.log(odds[np.arange(len(rows)), rows[:, n].astype(int)] / odds.sum(axis=1))
        start += count
    return total
