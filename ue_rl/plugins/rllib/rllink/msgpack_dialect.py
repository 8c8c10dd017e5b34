"""Dialect M: msgpack bodies with msgpack-numpy's arrays, as Ray 2.49 and later speak it. No I/O.

Sources: ray.rllib.env.external (Ray 2.49 to 2.60), msgpack-numpy 0.4.8, and captured messages. An array is a map with
bin keys: {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [..], b"data": bytes}. msgpack-numpy loads the data of
other kinds as a pickle; here they are refused.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.rllib.rllink.configs import config_of
from ue_rl.plugins.rllib.rllink.messages import Chunk, Dialect, ServerConfig, ServerState
from ue_rl.plugins.rllib.rllink.pickles import read_pickle
from ue_rl.system.errors import ConfigurationError, MalformedMessage, shorten
from ue_rl.system.messagepack import UnpackException, packb, unpackb

_MOST_DIMS = 32
_PLAIN = re.compile(r"[<>|=]?([fiu][248]|[iub]1)")  # numpy reads much more in a type's text


class MsgpackDialect(Dialect):
    """See ue_rl.plugins.rllib.rllink.messages.Dialect."""

    name = "msgpack"
    answers = "PONG, SET_CONFIG with config or SET_STATE with state"

    def _pack(self, message: dict[str, Any]) -> bytes:
        return pack(message)

    def _unpack(self, body: bytes) -> dict[str, Any]:
        return unpack(body)

    def _episode(self, chunk: Chunk) -> dict[str, Any]:
        """SingleAgentEpisode.get_state(): all of these keys are read, though most mean nothing here."""
        steps = len(chunk.rewards)
        return {
            "id_": chunk.id_,
            "agent_id": None,
            "module_id": None,
            "multi_agent_episode_id": None,
            "observations": _buffer(chunk.obs),
            "actions": _buffer(chunk.actions),
            "rewards": _buffer(chunk.rewards),
            # a finalized buffer of infos ends RLlib's listener without a word
            "infos": {"data": [{}] * (steps + 1), "lookback": 0, "finalized": False, "space": None},
            "extra_model_outputs": {"action_dist_inputs": _buffer(chunk.logits), "action_logp": _buffer(chunk.logp)},
            "is_terminated": chunk.terminated,
            "is_truncated": chunk.truncated,
            "t_started": chunk.t_started,
            "t": chunk.t_started + steps,
            "_observation_space": None,
            "_action_space": None,
            "_start_time": None,
            "_last_step_time": None,
            "custom_data": {},
        }

    def _config(self, message: dict[str, Any]) -> ServerConfig | None:
        config = message.get("config")
        if isinstance(config, bytes):
            return config_of(read_pickle(config))
        return None

    def _state(self, message: dict[str, Any]) -> ServerState:
        state = message.get("state")
        weights = None
        if isinstance(state, dict):
            weights = state.get("rl_module")
        seq = 0
        if isinstance(state, dict):
            seq = state.get("weights_seq_no", 0)
        # one policy, or {"default_policy": one policy}
        if isinstance(weights, dict) and len(weights) == 1 and isinstance(inner := next(iter(weights.values())), dict):
            weights = inner
        if not isinstance(weights, dict) or not all(isinstance(value, np.ndarray) for value in weights.values()):
            raise MalformedMessage(
                "SET_STATE has no weights",
                fault="server",
                field="state",
                expected="rl_module: {name: array}",
                got=sorted(map(str, state)) if isinstance(state, dict) else state,
            )
        return ServerState({str(name): value for name, value in weights.items()}, None, int(seq) if _whole(seq) else 0)


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and abs(int(value)) < 2**63


def _buffer(values: NDArray[Any]) -> dict[str, Any]:
    return {"data": values, "lookback": 0, "finalized": True, "space": None}


# -- msgpack and its arrays


def pack(message: dict[str, Any]) -> bytes:
    """A body."""
    return packb(message, use_bin_type=True, default=_packable)


def _packable(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return {
            b"nd": True,
            b"type": value.dtype.str,
            b"kind": b"",
            b"shape": list(value.shape),
            b"data": np.ascontiguousarray(value).tobytes(),
        }
    if isinstance(value, np.generic):
        return value.item()
    raise ConfigurationError("this cannot be sent over RLlink", field="EPISODES", got=type(value).__name__)


def unpack(body: bytes) -> dict[str, Any]:
    """The message in a body; arrays are copies of their own.

    Raises:
        MalformedMessage: it is no msgpack, no map, or holds an array that only a pickle could make.
    """
    try:
        message = unpackb(body, raw=False, object_hook=array_of, strict_map_key=True)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, UnpackException) as error:
        raise MalformedMessage(
            "a message is not msgpack as Ray 2.49 and later send it",
            fault="server",
            field="body",
            got=f"{type(error).__name__}: {error}; {shorten(body, 60)}",
            cure="Ray 2.41 to 2.48 speak JSON: --dialect json",
        ) from error
    if not isinstance(message, dict):
        raise MalformedMessage("a message is no map", fault="server", field="body", got=type(message).__name__)
    return message


def array_of(value: dict[Any, Any]) -> Any:
    """The array or number that a map of msgpack-numpy says; another map as it is.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: it says none, or one that only a pickle could make.
    """
    if b"complex" in value:
        raise ValueError("a complex number")
    if b"nd" not in value:
        return value
    special = value.get(b"kind", b"")
    if not isinstance(special, (bytes, str)) or special:  # an array is neither empty nor not
        raise ValueError(f"an array of kind {shorten(special, 20)}, which only a pickle could make")
    kind = str(value[b"type"])
    if not _PLAIN.fullmatch(kind):
        raise ValueError(f"an array of type {shorten(kind, 20)}")
    dtype = np.dtype(kind)
    data = value[b"data"]
    if not isinstance(data, bytes):
        raise ValueError("an array without data")
    if value[b"nd"] is not True:
        return np.frombuffer(data, dtype, count=1)[0]
    shape = value[b"shape"]
    if not isinstance(shape, list) or len(shape) > _MOST_DIMS or not all(_whole(n) and n >= 0 for n in shape):
        raise ValueError("an array without a shape")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"an array of shape {shape} has {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape).copy()
