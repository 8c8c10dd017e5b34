"""RLlinkServer: a server as RLlib's external env runner is one, without Ray; it names what a client does wrong.

It answers PING, GET_CONFIG, GET_STATE, EPISODES and EPISODES_AND_GET_STATE, learns nothing, and changes its weights a
little with each batch. Every episode is checked: keys, shapes, continuity, logits against the weights that were sent
last, log-probabilities against the logits. RLlib itself checks none of it: a missing key ends its listener without a
word. Source of the messages: ray.rllib.env.external (Ray 2.60) and, for JSON, Ray 2.48.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import math
import pickle
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.action_spec import ActionKind, ActionSpec
from ue_rl.errors import MalformedMessage
from ue_rl.rllink.frames import FrameReader, frame
from ue_rl.rllink.messages import EPISODES, EPISODES_AND_GET_STATE, GET_CONFIG, GET_STATE, PING
from ue_rl.rllink.msgpack_dialect import pack, unpack
from ue_rl.rllink.networks import Network, network

__all__ = ["RLlinkFault", "RLlinkServer"]

_KEYS = (
    "id_", "agent_id", "module_id", "multi_agent_episode_id", "observations", "actions", "rewards", "infos",
    "extra_model_outputs", "is_terminated", "is_truncated", "t_started", "t", "_observation_space", "_action_space",
    "_start_time", "_last_step_time",
)  # fmt: skip


class RLlinkFault(Enum):
    """How the server misbehaves."""

    LATE = "each state comes `delay` seconds late"
    SILENT = "no state ever comes"
    REPEATED = "each state comes with the sequence number of the one before"
    LAYERS = "the second state has other layers"
    UNKNOWN_LAYERS = "the second state has layers that no MLP has"
    DISCONNECT = "the connection is closed instead of the second state"
    TRAP = "the config is a pickle that runs a command when it is loaded"
    OBJECTS = "the weights are arrays of objects, which only a pickle could make"
    NINE_DIGITS = "the header of the second state has nine digits"
    GARBAGE = "the second state is random bytes"


@dataclass
class _Episode:
    """What is known of an episode that goes on."""

    steps: int
    last_obs: NDArray[Any]


@dataclass
class RLlinkServer:
    """The server, on a free port of 127.0.0.1, in a thread of its own; use it as a context manager.

    Args:
        obs_size, action: of the engine that will play. steps_per_sample: what a client must send at least.
        hidden: sizes of the encoder's layers. activation: behind each of them.
        dialect: "msgpack", as Ray 2.49 and later speak it, or "json", as Ray 2.41 to 2.48 do.
        fault: what goes wrong; None: nothing. delay: seconds before each state, as a learner takes to learn.
        trap: the command of the fault TRAP.

    Attributes:
        mistakes: what clients did wrong, one sentence each. batches: env-steps of each message of episodes.
        finished: (return, length) of each episode that ended. clients: how many have connected.
    """

    obs_size: int
    action: ActionSpec
    steps_per_sample: int = 200
    hidden: tuple[int, ...] = (32, 32)
    activation: str = "tanh"
    dialect: str = "msgpack"
    fault: RLlinkFault | None = None
    delay: float = 0.0
    trap: str = "exit 1"
    seed: int = 0
    mistakes: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    finished: list[tuple[float, int]] = field(default_factory=list)
    clients: int = 0

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._gaussian = self.action.kind is ActionKind.BOX
        self._weights = self._first_weights(self.hidden)
        self._seq = 0
        self._states = 0
        self._open: dict[str, _Episode] = {}
        self._returns: dict[str, float] = {}
        self._records = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1)
        self._listener.settimeout(0.05)
        self.host, self.port = self._listener.getsockname()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rllink-server", daemon=True)

    def __enter__(self) -> RLlinkServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5.0)
        self._listener.close()

    # -- weights

    def _first_weights(self, hidden: tuple[int, ...]) -> dict[str, NDArray[np.float32]]:
        outputs = 2 * self.action.size if self._gaussian else sum(self.action.counts)
        sizes, weights = [self.obs_size, *hidden], {}
        for n, (a, b) in enumerate(zip(sizes, [*sizes[1:], outputs], strict=True)):
            name = f"encoder.encoder.net.mlp.{2 * n}" if n < len(hidden) else "pi.net.mlp.0"
            weights[f"{name}.weight"] = self._rng.normal(0, 1 / math.sqrt(a), (b, a)).astype(np.float32)
            weights[f"{name}.bias"] = np.zeros(b, np.float32)
        return weights | {"pi.log_std_clip_param_const": np.array([20], np.float32)}

    def _update(self) -> None:
        for name, values in self._weights.items():
            if name != "pi.log_std_clip_param_const":
                self._weights[name] = values + self._rng.normal(0, 0.02, values.shape).astype(np.float32)
        self._seq += self.fault is not RLlinkFault.REPEATED

    @property
    def network(self) -> Network:
        """The policy that was sent last."""
        return network(self._weights, self.activation, "relu", gaussian=self._gaussian)

    def config(self) -> bytes:
        """The pickle of SET_CONFIG: an object of RLlib's class, with the few facts that are read."""
        if self.fault is RLlinkFault.TRAP:
            return pickle.dumps(_Trap(self.trap))
        state = {
            "_train_batch_size_per_learner": self.steps_per_sample, "num_env_runners": 0, "num_learners": 0,
            "explore": True, "normalize_actions": True, "clip_actions": False,
            "_model_config": {"fcnet_activation": self.activation, "fcnet_hiddens": list(self.hidden)},
        }  # fmt: skip
        made = b"\x80\x04cray.rllib.algorithms.ppo.ppo\nPPOConfig\n)\x81"
        return made + pickle.dumps(state, 4)[2:-1] + b"b."

    # -- the conversation

    def _serve(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError, OSError):
                client, _ = self._listener.accept()
                self.clients += 1
                with client:
                    self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        reader = FrameReader()
        client.settimeout(0.05)
        while not self._stop.is_set():
            try:
                data = client.recv(1 << 20)
            except TimeoutError:
                continue
            if not data:
                return
            reader.feed(data)
            try:
                while (body := reader.next_body()) is not None:
                    if not self._answer(client, self._read(body)):
                        return
            except MalformedMessage as error:
                self.mistakes.append(error.plain())
                return

    def _answer(self, client: socket.socket, message: dict[str, Any]) -> bool:
        """False: the connection is closed."""
        kind = message.get("type")
        if kind == PING:
            client.sendall(frame(self._write({"type": "PONG"})))
        elif kind == GET_CONFIG:
            client.sendall(frame(self._write(self._config_message())))
        elif kind == GET_STATE:
            return self._send_state(client)
        elif kind in (EPISODES, EPISODES_AND_GET_STATE):
            self._take(message)
            if kind == EPISODES_AND_GET_STATE:
                self._stop.wait(self.delay)
                self._update()
                return self._send_state(client)
        else:
            self.mistakes.append(f"a message of type {kind!r}, which a client does not send")
            return False
        return True

    def _read(self, body: bytes) -> dict[str, Any]:
        if self.dialect == "msgpack":
            return unpack(body)
        try:
            message = json.loads(body)
        except ValueError as error:
            raise MalformedMessage("a message is no JSON", fault="trainer", got=body[:40]) from error
        return message if isinstance(message, dict) else {}

    def _write(self, message: dict[str, Any]) -> bytes:
        return pack(message) if self.dialect == "msgpack" else json.dumps(message).encode()

    def _config_message(self) -> dict[str, Any]:
        if self.dialect == "msgpack":
            return {"type": "SET_CONFIG", "config": self.config()}
        return {"type": "SET_CONFIG", "env_steps_per_sample": self.steps_per_sample, "force_on_policy": True}

    def _state_message(self, weights: dict[str, Any]) -> dict[str, Any]:
        if self.dialect == "msgpack":
            return {"type": "SET_STATE", "state": {"rl_module": weights, "weights_seq_no": self._seq}}
        file = base64.b64encode(gzip.compress(onnx_of(self.network))).decode()
        return {"type": "SET_STATE", "onnx_file": file, "weights_seq_no": self._seq}

    def _send_state(self, client: socket.socket) -> bool:
        self._states += 1
        again = self._states > 1
        if self.fault is RLlinkFault.SILENT:
            return True
        if self.fault is RLlinkFault.DISCONNECT and self._states == 2:
            return False
        weights: dict[str, Any] = dict(self._weights)
        if self.fault is RLlinkFault.LAYERS and again:
            self._weights = self._first_weights((16,))
            weights = dict(self._weights)
        if self.fault is RLlinkFault.UNKNOWN_LAYERS and again:
            weights["encoder.encoder.net.cnn.0.weight"] = np.zeros((4, 3, 3, 3), np.float32)
        if self.fault is RLlinkFault.OBJECTS:
            weights["pi.net.mlp.0.bias"] = {
                b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": pickle.dumps(_Trap(self.trap)),
            }  # fmt: skip
        whole = frame(self._write(self._state_message(weights)))
        if self.fault is RLlinkFault.NINE_DIGITS and again:
            whole = b"1" + whole
        if self.fault is RLlinkFault.GARBAGE and again:
            whole = self._rng.bytes(len(whole))
        client.sendall(whole)
        return True

    # -- what came

    def _take(self, message: dict[str, Any]) -> None:
        episodes = message.get("episodes")
        if not isinstance(episodes, list):
            self.mistakes.append("a message of episodes without a list of them")
            return
        steps = sum(self._judge(episode) for episode in episodes if isinstance(episode, dict))
        self.batches.append(steps)
        if message.get("type") == EPISODES_AND_GET_STATE and steps < self.steps_per_sample:
            self.mistakes.append(
                f"{steps} env-steps where {self.steps_per_sample} are wanted: RLlib would wait for the others for ever"
            )

    def _judge(self, episode: dict[str, Any]) -> int:
        """Notes what is wrong; how many steps it has."""
        if self.dialect == "json":
            episode = self._as_msgpack(episode)
        name = str(episode.get("id_"))
        missing = [key for key in _KEYS if key not in episode]
        if missing:
            self.mistakes.append(f"episode {name} lacks {', '.join(missing)}: RLlib's listener would end")
            return 0
        parts = {key: episode[key].get("data") for key in ("observations", "actions", "rewards", "infos")}
        outputs = episode["extra_model_outputs"] or {}
        for key in ("action_dist_inputs", "action_logp"):
            if key not in outputs:
                self.mistakes.append(f"episode {name} has no {key}: RLlib's learner would fail")
                return 0
            parts[key] = outputs[key].get("data")
        if episode["infos"].get("finalized"):
            self.mistakes.append(f"episode {name} has finalized infos: RLlib's listener would end")
        obs, actions = np.asarray(parts["observations"], np.float32), np.asarray(parts["actions"])
        rewards = np.asarray(parts["rewards"], np.float64)
        logits, logp = np.asarray(parts["action_dist_inputs"]), np.asarray(parts["action_logp"])
        steps = len(rewards)
        wrong = [
            f"{len(values)} {what} for {steps} rewards"
            for what, values, count in (
                ("observations", obs, steps + 1), ("infos", parts["infos"], steps + 1), ("actions", actions, steps),
                ("action_dist_inputs", logits, steps), ("action_logp", logp, steps),
            )
            if len(values) != count
        ]  # fmt: skip
        if wrong or not steps:
            self.mistakes.append(f"episode {name} has {'; '.join(wrong) or 'no steps'}")
            return 0
        self._judge_order(name, episode, obs, steps)
        self._judge_numbers(name, obs, actions, logits, logp)
        total = self._returns.pop(name, 0.0) + float(rewards.sum())
        if episode["is_terminated"] or episode["is_truncated"]:
            self.finished.append((total, episode["t_started"] + steps))
        else:
            self._returns[name] = total
        return steps

    def _as_msgpack(self, episode: dict[str, Any]) -> dict[str, Any]:
        """A record of JSON with the keys of the other dialect; it has no id, so that each stands alone."""
        keys = {"obs": "observations", "actions": "actions", "rewards": "rewards"}
        steps = len(episode.get("rewards", ()))
        outputs = {key: {"data": episode[key]} for key in ("action_dist_inputs", "action_logp") if key in episode}
        made = dict.fromkeys(_KEYS) | {keys[key]: {"data": episode[key]} for key in keys if key in episode}
        made |= {key: episode.get(key) for key in ("is_terminated", "is_truncated")}
        if any(made[key] is None for key in (*keys.values(), "is_terminated", "is_truncated")):
            made = {key: value for key, value in made.items() if value is not None}
        self._records += 1
        infos: dict[str, Any] = {"data": [{}] * (steps + 1)}
        whole = {"id_": f"{self._records}", "extra_model_outputs": outputs, "infos": infos, "t_started": 0, "t": steps}
        return made | whole

    def _judge_order(self, name: str, episode: dict[str, Any], obs: NDArray[Any], steps: int) -> None:
        before = self._open.pop(name, None)
        if before is None and episode["t_started"] != 0:
            self.mistakes.append(f"episode {name} begins with t_started={episode['t_started']}")
        if before is not None:
            if episode["t_started"] != before.steps:
                self.mistakes.append(f"episode {name} goes on at {episode['t_started']}, not at {before.steps}")
            if not np.array_equal(before.last_obs, obs[0]):
                self.mistakes.append(f"episode {name} goes on from another observation than it stopped at")
        if episode["t"] != episode["t_started"] + steps:
            self.mistakes.append(f"episode {name} says t={episode['t']} after {steps} steps")
        if not episode["is_terminated"] and not episode["is_truncated"]:
            self._open[name] = _Episode(episode["t_started"] + steps, obs[-1])

    def _judge_numbers(
        self, name: str, obs: NDArray[Any], actions: NDArray[Any], logits: NDArray[Any], logp: NDArray[Any]
    ) -> None:
        wanted = self.network(obs[:-1])
        if logits.shape != wanted.shape or np.abs(logits - wanted).max() > 1e-4:
            self.mistakes.append(f"episode {name} has other logits than the weights that were sent last give")
            return
        right = _logp(self.action, logits.astype(np.float64), actions)
        if np.abs(logp - right).max() > 1e-3:
            self.mistakes.append(f"episode {name} has log-probabilities that are not those of its actions")


def _logp(action: ActionSpec, logits: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
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
        odds = np.exp(logits[:, start : start + count])
        total += np.log(odds[np.arange(len(rows)), rows[:, n].astype(int)] / odds.sum(axis=1))
        start += count
    return total


def onnx_of(net: Network) -> bytes:
    """An ONNX file as Ray 2.48 sends it: of one row, with an input that nobody would think of."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, stored, last = [], [], "onnx::Gemm_0"
    for n, (weight, bias) in enumerate([*net.encoder, *net.head]):
        stored += [numpy_helper.from_array(weight, f"w{n}"), numpy_helper.from_array(bias, f"b{n}")]
        nodes.append(helper.make_node("Gemm", [last, f"w{n}", f"b{n}"], [f"g{n}"]))
        last = f"g{n}"
        if n < len(net.encoder):
            nodes.append(helper.make_node("Tanh", [last], [f"t{n}"]))
            last = f"t{n}"
    given = helper.make_tensor_value_info("onnx::Gemm_0", TensorProto.FLOAT, [1, net.obs_size])
    out = helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, net.num_logits])
    graph = helper.make_graph(nodes, "main_graph", [given], [out], stored)
    model: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


class _Trap:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        import os

        return os.system, (self._command,)
