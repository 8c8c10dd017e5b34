"""RLlink's readers of both dialects, as targets that get mutated messages.

Beside what run.py looks for, nothing may be imported, opened, compiled, executed or connected to while a message is
read, and no warning may come: `Guard` watches Python's audit events.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.harness.fuzzing.targets import Target
from tests.plugins.rllib.rllink.server import RLlinkServer, onnx_of
from ue_rl.devtools.check.garbage import mutate
from ue_rl.plugins.rllib.rllink.configs import config_of
from ue_rl.plugins.rllib.rllink.frames import FrameReader, frame
from ue_rl.plugins.rllib.rllink.json_dialect import JsonDialect
from ue_rl.plugins.rllib.rllink.messages import Dialect, ServerConfig, ServerState
from ue_rl.plugins.rllib.rllink.msgpack_dialect import MsgpackDialect, pack
from ue_rl.plugins.rllib.rllink.onnx_network import OnnxNetwork
from ue_rl.plugins.rllib.rllink.pickles import read_pickle
from ue_rl.plugins.rllib.rllink.policy import RLlinkPolicy
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import UeRlError

_WATCHED = (
    "import", "open", "exec", "compile", "code.", "cpython.run", "subprocess.", "os.", "socket.", "pickle.", "marshal.",
    "ctypes.", "shutil.", "tempfile.", "urllib.", "sqlite3.", "mmap.", "fcntl.", "pty.", "signal.",
)  # fmt: skip
_OBS, _ACTION = 4, ActionSpec.box(2, -2, 2)
_SPEC = EnvSpec(_OBS, 2, num_envs=3, action=_ACTION)
_MOST = 1 << 16


class Guard:
    """Notes what Python's audit events say while it is armed; a process needs one, as hooks cannot be taken out."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._armed = 0  # the thread that reads; others of the process may load what they like
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._armed == threading.get_ident() and event.startswith(_WATCHED):
            self.seen.append(f"{event} {arguments!r:.200}")

    def read(self, read: Callable[[bytes], None], message: bytes) -> None:
        """Feeds a reader; whatever it does beside reading, or raises beside UeRlError, is an AssertionError."""
        self.seen.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self._armed = threading.get_ident()
            try:
                read(message)
            except UeRlError as error:
                str(error)
            except Exception as error:
                self._armed = 0
                raise AssertionError(f"{error!r} for {message[:2000]!r}") from error
            finally:
                self._armed = 0
        if self.seen:
            raise AssertionError(f"{self.seen[0]} for {message[:2000]!r}")


def rllink_targets(guard: Guard) -> dict[str, Target]:
    made: dict[str, Target] = {}
    for dialect in ("msgpack", "json"):
        server = RLlinkServer(_OBS, _ACTION, hidden=(3,), dialect=dialect, steps_per_sample=3)
        made[f"rllink client, {dialect}"] = _Bytes(guard, _client(dialect), list(map(frame, _answers(server))))
    made["rllink client, msgpack values"] = _Values(guard, _client("msgpack"), _states())
    config = RLlinkServer(_OBS, _ACTION, hidden=(3,)).config()
    pickles = [config, *(pickle.dumps(_CONFIG_LIKE, protocol) for protocol in range(6))]
    made["rllink pickles"] = _Bytes(guard, _read_config, pickles)
    made["rllink client, ONNX"] = _onnx(guard)
    return made


def _onnx(guard: Guard) -> Target:
    """The files of dialect J, which onnxruntime reads in the end."""
    file, obs = onnx_of(RLlinkServer(_OBS, _ACTION, hidden=(3,)).network), np.ones((2, _OBS), np.float32)

    def read(message: bytes) -> None:
        OnnxNetwork(message)(obs)

    return _Bytes(guard, read, [file])


_CONFIG_LIKE = [
    {"_train_batch_size_per_learner": 4000, "num_learners": 2, "explore": True, "_model_config": {"a": (1, 2.5)}},
    ActionSpec, _ACTION, {1, 2}, b"bytes", "text" * 60, [None] * 9, 2**70, frozenset({"x"}),
]  # fmt: skip


def _read_config(message: bytes) -> None:
    config_of(read_pickle(message))


# -- the client's side


def _client(dialect: str) -> Callable[[bytes], None]:
    """Reads frames as a link does, and makes and runs the policy that they bring."""
    kind: Dialect = MsgpackDialect() if dialect == "msgpack" else JsonDialect()
    obs, rng = np.ones((3, _OBS), np.float32), np.random.default_rng(0)

    def read(message: bytes) -> None:
        frames, config = FrameReader(most=_MOST * 4), ServerConfig(activation="tanh")
        frames.feed(message)
        while (body := frames.next_body()) is not None:
            answer = kind.answer(body)
            if isinstance(answer, ServerConfig):
                config = answer.under(ServerConfig(own_code=()))
            elif isinstance(answer, ServerState) and answer.weights is not None:
                policy = RLlinkPolicy.of(answer, config, _SPEC)
                actions, _, _ = policy.act(obs, rng)
                policy.how.to_engine(actions)

    return read


def _answers(server: RLlinkServer) -> list[bytes]:
    messages = {"type": "PONG"}, server.config_message(), server.state_message(dict(server.weights))
    return [server.write(message) for message in messages]


def _states() -> list[dict[str, Any]]:
    server = RLlinkServer(_OBS, _ACTION, hidden=(3,))
    state = server.state_message(dict(server.weights))
    weights = {name: value for name, value in server.weights.items() if "pi.net" not in name}
    head = {"pi.net.mlp.0.weight": np.ones((2, 3), np.float32), "pi.log_std": np.zeros(2, np.float32)}
    return [state, server.state_message(weights | head), server.config_message()]


# -- mutations


class _Bytes:
    """Messages with other bytes, in one or several frames."""

    def __init__(self, guard: Guard, read: Callable[[bytes], None], seeds: list[bytes]) -> None:
        self._guard, self._read, self._seeds = guard, read, seeds
        for seed in seeds:  # what is imported at first use is no message's doing
            with contextlib.suppress(UeRlError):
                read(seed)

    def __call__(self, rng: random.Random) -> bytes:
        data = bytearray(mutate(rng, rng.choice(self._seeds), self._seeds))
        if rng.random() < 0.3:
            at = rng.randrange(len(data) + 1)
            data[at : at + 4] = rng.choice(_LENGTHS)
        if rng.random() < 0.5 and bytes(data[:8]).isdigit():
            data[:8] = b"%08d" % (len(data) - 8)  # the header is right again
        if rng.random() < 0.4:
            data += rng.choice(self._seeds)
        message = bytes(data[:_MOST])
        self._guard.read(self._read, message)
        return message


_LENGTHS = (b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\xdd\xff\xff\xff", b"\xc7\0")
_NUMBERS = (np.nan, np.inf, -np.inf, 0, 1e30, -1e-40, 3e38)
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1, 0.0, 1e308, float("nan"), float("inf"), "",
    "x", "EPISODES", "PONG", b"", b"\0", [], {}, [[]], [1, [2]], [[1.0] * 4] * 3, ["a"], {"data": []}, {"a": {"b": {}}},
    np.zeros(0, np.float32), np.zeros((0, 4), np.float32), np.ones((3, 4)), np.ones((3, 4), np.int8), np.array(3.0),
    np.full((1, 4), np.nan, np.float32), np.full((2, 4), 3e38, np.float32), np.ones((2, 2, 2), np.float16),
    np.array([True]), np.full(4, 2**64 - 1, np.uint64), np.ones((1,) * 30, np.float32), np.full(4, 1e300),
    np.ones((5, 4), np.float32),
    {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"cos\nsystem\n(S'exit'\ntR."},
    {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [-1], b"data": b""}, {b"complex": True, b"data": "1j"},
    {b"nd": False, b"type": "<f8", b"kind": b"", b"shape": [], b"data": b"\0" * 8},
)  # fmt: skip


class _Values:
    """Well-formed messages with other values at some places."""

    def __init__(self, guard: Guard, read: Callable[[bytes], None], seeds: list[dict[str, Any]]) -> None:
        self._guard, self._read, self._seeds = guard, read, seeds

    def __call__(self, rng: random.Random) -> bytes:
        message: Any = rng.choice(self._seeds)
        for _ in range(1 + int(rng.expovariate(1.2))):
            message = self._changed(rng, message, rng.randrange(7))
        body = pack(message)
        self._guard.read(self._read, frame(body))
        return body

    def _changed(self, rng: random.Random, value: Any, deep: int) -> Any:
        if deep and isinstance(value, dict) and value:
            key = rng.choice(list(value))
            if rng.random() < 0.08:
                return {name: part for name, part in value.items() if name != key}
            if rng.random() < 0.04:
                return value | {rng.choice(("x", "", "data", "pi.log_std", "id_")): rng.choice(_ODD)}
            return value | {key: self._changed(rng, value[key], deep - 1)}
        if deep and isinstance(value, list) and value:
            at = rng.randrange(len(value))
            return [*value[:at], self._changed(rng, value[at], deep - 1), *value[at + rng.choice((0, 1, 1, 1)) :]]
        if deep and isinstance(value, np.ndarray) and value.ndim and value.size and value.dtype == np.float32:
            changed = value.copy()
            changed.reshape(-1)[rng.randrange(value.size)] = rng.choice(_NUMBERS)
            return changed if rng.random() < 0.7 else changed[: rng.randrange(len(changed) + 1)]
        if deep and isinstance(value, int) and not isinstance(value, bool):
            return max(-(2**63), min(value + rng.choice((-1, 1, 2, 10**6)), 2**64 - 1))
        return rng.choice(_ODD)
