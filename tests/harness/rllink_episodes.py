"""An RLlink client's episodes as they came, to arrays; whatever they hold, what is wrong becomes a sentence.

Source: SingleAgentEpisode.from_state and InfiniteLookbackBuffer.from_state (Ray 2.60), for JSON the env runner of Ray
2.48. RLlib reads these keys without a look at them: one that is missing ends its listener, and the client never hears.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import shorten
from ue_rl.rllink.msgpack_dialect import array_of
from ue_rl.spaces.actions import ActionKind, ActionSpec

_PARTS = ("observations", "actions", "rewards", "infos")
_OUTPUTS = ("action_dist_inputs", "action_logp")
_KEYS = (
    "id_", "agent_id", "module_id", "multi_agent_episode_id", *_PARTS, "extra_model_outputs", "is_terminated",
    "is_truncated", "t_started", "t", "_observation_space", "_action_space", "_start_time", "_last_step_time",
)  # fmt: skip
_JSON = {
    "obs": "observations", "actions": "actions", "rewards": "rewards", "action_dist_inputs": "action_dist_inputs",
    "action_logp": "action_logp",
}  # fmt: skip


@dataclass
class Received:
    """One episode, or a part of one, whose shapes are right.

    Args:
        name: for sentences. id_: None where the dialect has none. seq: weights_seq_no of its steps, where it says so.
        obs: float32 [T + 1, obs_size]. actions: [T] or [T, k]. rewards, logp: float64 [T]. logits: float64 [T, n].
    """

    name: str
    id_: str | None
    t_started: int
    t: int
    obs: NDArray[np.float32]
    actions: NDArray[Any]
    rewards: NDArray[np.float64]
    logits: NDArray[np.float64]
    logp: NDArray[np.float64]
    terminated: bool
    truncated: bool
    seq: NDArray[Any] | None = None


@dataclass
class Refused:
    """Stands where an array came that is not read."""

    why: str


def lenient_array(value: dict[Any, Any]) -> Any:
    """The object hook of msgpack: an array, or in its place why it is none."""
    try:
        return array_of(value)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        return Refused(str(error))


class Reader:
    """Reads episodes of one engine's spaces.

    Args:
        obs_size, action: of the engine. num_logits: numbers of a row that its policy puts out.
    """

    def __init__(self, obs_size: int, action: ActionSpec, num_logits: int) -> None:
        self._obs_size, self._action, self._num_logits = obs_size, action, num_logits
        self._wrong: list[str] = []

    def read(self, episode: Any, name: str, dialect: str) -> tuple[Received | None, list[str]]:
        """(the episode, what is wrong with it); it is None where it cannot be read at all.

        Args:
            name: of an episode that has no id.
        """
        self._wrong = []
        if not isinstance(episode, dict):
            self._note("an episode", "it is no map", "a map of its parts", type(episode).__name__)
            return None, self._wrong
        read = self._json if dialect == "json" else self._msgpack
        found = read(episode, name)
        return (None if self._wrong else found), self._wrong

    # -- the two dialects

    def _msgpack(self, episode: dict[Any, Any], name: str) -> Received | None:
        if self._lacks(episode, _KEYS):
            return None
        for key, value in episode.items():
            if isinstance(value, Refused):
                self._note(str(key), "an array that is not read", "plain values", value.why)
        id_ = episode["id_"]
        if not isinstance(id_, str) or not id_:
            self._note("id_", "it names no episode", "a text that no other episode has", id_)
        parts = {key: self._buffer(key, episode[key]) for key in _PARTS}
        outputs = episode["extra_model_outputs"]
        if not isinstance(outputs, dict):
            self._note("extra_model_outputs", "RLlib's learner needs them", f"a map of {', '.join(_OUTPUTS)}", outputs)
            return None
        if self._lacks(outputs, _OUTPUTS):
            return None
        parts |= {key: self._buffer(key, outputs[key]) for key in _OUTPUTS}
        seq = outputs.get("weights_seq_no")
        made = self._made(parts, episode, str(id_), id_)
        infos = episode["infos"]
        if made is not None and isinstance(infos, dict):
            self._infos(infos, len(made.rewards))
            made.t_started, made.t = self._count(episode, "t_started"), self._count(episode, "t")
            made.seq = None if seq is None else self._array("weights_seq_no", self._buffer("weights_seq_no", seq))
        return made

    def _json(self, episode: dict[Any, Any], name: str) -> Received | None:
        if self._lacks(episode, (*_JSON, "is_terminated", "is_truncated")):
            return None
        made = self._made({ours: episode[key] for key, ours in _JSON.items()}, episode, name, None)
        if made is not None:
            made.t = len(made.rewards)
        return made

    def _made(self, parts: dict[str, Any], episode: dict[Any, Any], name: str, id_: Any) -> Received | None:
        terminated, truncated = (self._flag(episode, key) for key in ("is_terminated", "is_truncated"))
        arrays = {key: self._array(key, parts[key]) for key in ("observations", "actions", "rewards", *_OUTPUTS)}
        if self._wrong:
            return None
        rewards = arrays["rewards"]
        steps = len(rewards) if rewards.ndim else 0
        if not steps:
            self._note("rewards", "the episode has no steps", "one reward for each step, and one step or more", steps)
            return None
        row = () if self._action.kind is ActionKind.DISCRETE else (self._action.size,)
        for key, shape in {
            "observations": (steps + 1, self._obs_size), "actions": (steps, *row), "rewards": (steps,),
            "action_dist_inputs": (steps, self._num_logits), "action_logp": (steps,),
        }.items():  # fmt: skip
            if arrays[key].shape != shape:
                self._note(key, f"wrong shape for {steps} rewards", list(shape), list(arrays[key].shape))
            elif not np.isfinite(arrays[key]).all():
                at = int(np.argwhere(~np.isfinite(arrays[key]))[0][0])
                self._note(key, f"not finite at step {at}", "numbers", arrays[key][at].tolist())
        self._choices(arrays["actions"])
        if isinstance(parts["observations"], np.ndarray) and parts["observations"].dtype != np.float32:
            self._note("observations", "another type than the space's", "float32", parts["observations"].dtype)
        if self._wrong:
            return None
        doubles = {key: np.asarray(arrays[key], np.float64) for key in ("rewards", *_OUTPUTS)}
        with np.errstate(over="ignore"):
            obs = np.asarray(arrays["observations"], np.float32)
        return Received(
            name, id_, 0, 0, obs, arrays["actions"], doubles["rewards"], doubles["action_dist_inputs"],
            doubles["action_logp"], terminated, truncated,
        )  # fmt: skip

    # -- their parts

    def _note(self, key: str, what: str, expected: Any, got: Any) -> None:
        self._wrong.append(f"{key}: {what}; expected {expected}, got {shorten(got, 80)}")

    def _lacks(self, found: dict[Any, Any], keys: tuple[str, ...]) -> bool:
        missing = [key for key in keys if key not in found]
        if missing:
            there = ", ".join(sorted(map(str, found)))
            self._note(", ".join(missing), "missing, RLlib would fail without a word", "a value", f"only {there}")
        return bool(missing)

    def _buffer(self, key: str, buffer: Any) -> Any:
        """The data of an InfiniteLookbackBuffer, without what is looked back on."""
        if not isinstance(buffer, dict) or not {"data", "lookback", "finalized", "space"} <= buffer.keys():
            got = sorted(map(str, buffer)) if isinstance(buffer, dict) else type(buffer).__name__
            self._note(key, "it is no buffer", "a map of data, lookback, finalized and space", got)
            return []
        data, lookback, finalized = buffer["data"], buffer["lookback"], buffer["finalized"]
        if not isinstance(lookback, int) or isinstance(lookback, bool) or lookback < 0:
            self._note(f"{key}.lookback", "it counts nothing", "0", lookback)
            return []
        if not isinstance(finalized, bool):
            self._note(f"{key}.finalized", "it is no flag", "true or false", finalized)
        elif finalized and isinstance(data, list) and key != "infos":
            self._note(f"{key}.finalized", "a finalized buffer is one array", "an array, or finalized=false", "a list")
        if isinstance(data, list) or (isinstance(data, np.ndarray) and data.ndim):
            return data[lookback:]
        return data

    def _array(self, key: str, value: Any) -> NDArray[Any]:
        refused = value if isinstance(value, Refused) else None
        if isinstance(value, list):
            refused = next((item for item in value if isinstance(item, Refused)), None)
        if refused is not None:
            self._note(key, "an array that is not read", "plain numbers", refused.why)
            return np.zeros(0)
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError) as error:
            self._note(key, "its rows differ in length", "one number, or one row of numbers, for each step", error)
            return np.zeros(0)
        if array.dtype.kind not in "iufb":
            self._note(key, "it holds more than numbers", "plain numbers", f"{array.dtype} in {type(value).__name__}")
            return np.zeros(0)
        return array

    def _choices(self, actions: NDArray[Any]) -> None:
        if self._action.kind is ActionKind.BOX or self._wrong:
            return
        rows = actions.reshape(len(actions), -1)
        outside = (rows < 0) | (rows >= np.array(self._action.counts)) | (rows != np.floor(rows))
        if outside.any():
            at = int(outside.any(axis=1).argmax())
            last = "..".join(str(count - 1) for count in self._action.counts[:8])
            what = f"not a choice at step {at}"
            self._note("actions", what, f"whole numbers from 0 to {last}", actions[at].tolist())

    def _infos(self, buffer: dict[Any, Any], steps: int) -> None:
        data = buffer["data"]
        if buffer["finalized"] is True:
            self._note("infos.finalized", "RLlib's listener would end", "false, and a list of maps", True)
        elif not isinstance(data, list) or not all(isinstance(info, dict) for info in data):
            self._note("infos", "RLlib's listener would end", "a list of maps", type(data).__name__)
        elif found := [value for info in data for value in info.values() if isinstance(value, Refused)]:
            self._note("infos", "an array that is not read", "plain values", found[0].why)
        elif len(data) - buffer["lookback"] != steps + 1:
            self._note("infos", f"wrong number for {steps} rewards", steps + 1, len(data) - buffer["lookback"])

    def _flag(self, episode: dict[Any, Any], key: str) -> bool:
        if not isinstance(episode[key], (bool, np.bool_)):
            self._note(key, "it is no flag", "true or false", episode[key])
        return bool(episode[key] is True or episode[key] is np.True_)

    def _count(self, episode: dict[Any, Any], key: str) -> int:
        value = episode[key]
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= value < 2**62:
            self._note(key, "it counts no steps", "a number from 0", value)
            return 0
        return int(value)
