"""What RLlib's server would send for a config: its own bytes, and what ue_rl.plugins.rllib.rllink reads in them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.external.rllink import RLlink, send_rllink_message

from ue_rl.plugins.rllib.rllink.frames import FrameReader
from ue_rl.plugins.rllib.rllink.messages import ServerConfig, ServerState
from ue_rl.plugins.rllib.rllink.msgpack_dialect import MsgpackDialect


class _Socket:
    def __init__(self) -> None:
        self.reader = FrameReader()

    def sendall(self, data: bytes) -> None:
        self.reader.feed(data)


def build(config: Any) -> Any:
    """The module that RLlib's external env runner holds."""
    spaces = (config.observation_space, config.action_space)
    spec = config.get_rl_module_spec({}, {INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces}, inference_only=True)
    return spec.build()


def randomize(module: Any, rng: np.random.Generator, scale: float = 1.0) -> None:
    """Other weights than those that a module begins with, `scale` times as large as usual."""
    with torch.no_grad():
        for value in module.parameters():
            fan = value.shape[-1] if value.ndim > 1 else 9
            value.copy_(torch.from_numpy(rng.normal(0, scale / np.sqrt(fan), value.shape).astype(np.float32)))


def heard(config: Any, module: Any) -> tuple[ServerConfig, ServerState]:
    """The config and the state as they come from the wire."""
    socket, dialect = _Socket(), MsgpackDialect()
    send_rllink_message(socket, {"type": RLlink.SET_CONFIG.name, "config": pickle.dumps(config)})
    state = {"rl_module": module.get_state(inference_only=True), "weights_seq_no": 3}
    send_rllink_message(socket, {"type": RLlink.SET_STATE.name, "state": state})
    answers = [dialect.answer(socket.reader.next_body() or b"") for _ in range(2)]
    assert isinstance(answers[0], ServerConfig)
    assert isinstance(answers[1], ServerState)
    return answers[0], answers[1]
