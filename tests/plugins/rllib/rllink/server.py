"""RLlinkServer: a server as RLlib's external env runner is one, without Ray; it judges what a client sends.

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

from tests.plugins.rllib.rllink.judge import Equations, Judge
from ue_rl.plugins.rllib.rllink.frames import FrameReader, frame
from ue_rl.plugins.rllib.rllink.messages import ASKS, EPISODES, EPISODES_AND_GET_STATE, GET_CONFIG, GET_STATE, PING
from ue_rl.plugins.rllib.rllink.msgpack_dialect import pack, unpack
from ue_rl.plugins.rllib.rllink.networks import Network, network
from ue_rl.protocol.spaces.actions import ActionKind, ActionSpec
from ue_rl.system.errors import MalformedMessage, shorten

__all__ = ["RLlinkFault", "RLlinkServer"]

_LOOK = 0.05  # seconds between looks whether the server is to stop
_PIECE = 0.03  # seconds between the pieces of an answer


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
    PIECES = "each answer comes in three pieces, cut within the header and within the body"


@dataclass
class RLlinkServer:
    """The server, on 127.0.0.1, in a thread of its own; use it as a context manager.

    Args:
        obs_size, action: of the engine that will play. steps_per_sample: what a client must send at least.
        hidden: sizes of the encoder's layers. activation: behind each of them.
        dialect: "msgpack", as Ray 2.49 and later speak it, or "json", as Ray 2.41 to 2.48 do.
        fault: what goes wrong; None: nothing. delay: seconds before each state, as a learner takes to learn.
        trap: the command of the fault TRAP. config_pickle: sent as the config instead of the server's own.
        equations: of an env that is known, see Judge; its observations and rewards are checked, too.
        port: where it listens; 0: a free one, which stands here then.

    Attributes:
        mistakes: what clients did wrong, see Judge. batches: env-steps of each message of episodes.
        finished: (return, length) of each episode that ended. clients: how many have connected.
        heard: the type of each message, of all clients. connected: a client is there.
        weights: those that are sent next. states: how many times some were sent.
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
    config_pickle: bytes | None = None
    equations: Equations | None = None
    port: int = 0
    batches: list[int] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)
    clients: int = 0
    connected: bool = False
    mistakes: list[str] = field(init=False)
    finished: list[tuple[float, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._gaussian = self.action.kind is ActionKind.BOX
        self.weights = self._first_weights(self.hidden)
        self._seq = 0
        self.states = 0
        self._asked: set[str] = set()
        self._net = self.network
        self._judge = Judge(self.obs_size, self.action, self._net.num_logits, self.dialect, self.equations)
        self.mistakes, self.finished = self._judge.mistakes, self._judge.finished
        self.host = "127.0.0.1"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rllink-server", daemon=True)

    def __enter__(self) -> RLlinkServer:
        self._listener = socket.create_server((self.host, self.port), backlog=1)
        self._listener.settimeout(_LOOK)
        self.port = self._listener.getsockname()[1]
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
        for name, values in self.weights.items():
            if name != "pi.log_std_clip_param_const":
                self.weights[name] = values + self._rng.normal(0, 0.02, values.shape).astype(np.float32)
        self._seq += self.fault is not RLlinkFault.REPEATED

    @property
    def network(self) -> Network:
        """The policy that was sent last."""
        return network(self.weights, self.activation, "relu", gaussian=self._gaussian)

    def config(self) -> bytes:
        """The pickle of SET_CONFIG: an object of RLlib's class, with the few facts that are read."""
        if self.fault is RLlinkFault.TRAP:
            return pickle.dumps(_Trap(self.trap))
        if self.config_pickle is not None:
            return self.config_pickle
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
                self._last, self._asked = "the connection's start", set()
                self._judge.begin()
                with client:
                    self.connected = True
                    try:
                        self._talk(client)
                    finally:
                        self.connected = False

    def _talk(self, client: socket.socket) -> None:
        reader = FrameReader()
        client.settimeout(_LOOK)
        while not self._stop.is_set():
            try:
                data = client.recv(1 << 20)
            except TimeoutError:
                continue
            if not data:
                if len(reader):
                    self.mistakes.append(f"the connection ended inside a message: {reader.said()}")
                return
            reader.feed(data)
            try:
                while (body := reader.next_body()) is not None:
                    if not self._answer(client, self._read(body)):
                        return
            except MalformedMessage as error:
                self.mistakes.append(f"behind {self._last}: {error.plain()}")
                return

    def _answer(self, client: socket.socket, message: dict[str, Any]) -> bool:
        """False: the connection is closed."""
        said = message.get("type")
        kind = said if isinstance(said, str) else ""
        self._last = shorten(said, 30)
        if kind in (EPISODES, EPISODES_AND_GET_STATE):
            self._judge_start(kind)
        self._asked.add(kind)
        self.heard.append(self._last)
        if kind == PING:
            self._send(client, frame(self.write({"type": "PONG"})))
        elif kind == GET_CONFIG:
            self._send(client, frame(self.write(self.config_message())))
        elif kind == GET_STATE:
            return self._send_state(client)
        elif kind in (EPISODES, EPISODES_AND_GET_STATE):
            self.batches.append(self._judge.take(message, self.steps_per_sample, self._net, self._seq))
            if kind == EPISODES_AND_GET_STATE:
                self._stop.wait(self.delay)
                self._update()
                return self._send_state(client)
        else:
            self.mistakes.append(
                f"type: a message that a client does not send; expected {', '.join(sorted(ASKS))}, got {self._last}"
            )
            return False
        return True

    def _judge_start(self, kind: str) -> None:
        """Both are asked for before the first episodes, by each client."""
        for ask, why in ((GET_CONFIG, "how many steps RLlib wants"), (GET_STATE, "which weights to act by")):
            if ask not in self._asked and not (ask == GET_STATE and EPISODES_AND_GET_STATE in self._asked):
                self._asked.add(ask)
                self.mistakes.append(f"type: expected {ask} before the first {kind}: nobody had said {why}")

    def _read(self, body: bytes) -> dict[str, Any]:
        if self.dialect == "msgpack":
            return unpack(body)
        try:
            message = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise MalformedMessage("a message is no JSON", fault="trainer", got=body[:40]) from error
        if not isinstance(message, dict):
            raise MalformedMessage("a message is no map", fault="trainer", got=type(message).__name__)
        return message

    def write(self, message: dict[str, Any]) -> bytes:
        return pack(message) if self.dialect == "msgpack" else json.dumps(message).encode()

    def config_message(self) -> dict[str, Any]:
        if self.dialect == "msgpack":
            return {"type": "SET_CONFIG", "config": self.config()}
        return {"type": "SET_CONFIG", "env_steps_per_sample": self.steps_per_sample, "force_on_policy": True}

    def state_message(self, weights: dict[str, Any]) -> dict[str, Any]:
        if self.dialect == "msgpack":
            return {"type": "SET_STATE", "state": {"rl_module": weights, "weights_seq_no": self._seq}}
        file = base64.b64encode(gzip.compress(onnx_of(self.network))).decode()
        return {"type": "SET_STATE", "onnx_file": file, "weights_seq_no": self._seq}

    def _send_state(self, client: socket.socket) -> bool:
        self.states += 1
        again = self.states > 1
        if self.fault is RLlinkFault.SILENT:
            return True
        if self.fault is RLlinkFault.DISCONNECT and self.states == 2:
            return False
        weights: dict[str, Any] = dict(self.weights)
        if self.fault is RLlinkFault.LAYERS and again:
            self.weights = self._first_weights((16,))
            weights = dict(self.weights)
        if self.fault is RLlinkFault.UNKNOWN_LAYERS and again:
            weights["encoder.encoder.net.cnn.0.weight"] = np.zeros((4, 3, 3, 3), np.float32)
        if self.fault is RLlinkFault.OBJECTS:
            weights["pi.net.mlp.0.bias"] = {
                b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": pickle.dumps(_Trap(self.trap)),
            }  # fmt: skip
        whole = frame(self.write(self.state_message(weights)))
        if self.fault is RLlinkFault.NINE_DIGITS and again:
            whole = b"1" + whole
        self._net = self.network
        if self.fault is RLlinkFault.GARBAGE and again:
            whole = self._rng.bytes(len(whole))
        self._send(client, whole)
        return True

    def _send(self, client: socket.socket, data: bytes) -> None:
        """Waits longer than a look for the next message does."""
        client.settimeout(5.0)
        if self.fault is RLlinkFault.PIECES:
            for cut in (3, min(len(data) - 1, 13)):
                client.sendall(data[:cut])
                data = data[cut:]
                self._stop.wait(_PIECE)
        client.sendall(data)
        client.settimeout(_LOOK)


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
