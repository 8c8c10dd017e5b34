"""Dialect J: JSON bodies and weights as an ONNX file, as Ray 2.41 to 2.48 speak it. No I/O.

Source: ray.rllib.env.tcp_client_inference_env_runner (Ray 2.48) and captured messages. The file is compressed with gzip
and written as base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from typing import Any

from ue_rl.plugins.rllib.rllink.messages import Chunk, Dialect, ServerConfig, ServerState
from ue_rl.system.errors import MalformedMessage, shorten

MOST_ONNX = 2**28  # bytes of a file, unpacked: a small message must not become a large one
_GZIP = 31  # zlib's name for gzip's header


class JsonDialect(Dialect):
    """See ue_rl.plugins.rllib.rllink.messages.Dialect.

    Attributes:
        most_onnx: bytes of an ONNX file, unpacked, that are taken at most; may be changed.
    """

    name = "json"
    most_onnx = MOST_ONNX
    answers = "PONG, SET_CONFIG or SET_STATE"

    def _pack(self, message: dict[str, Any]) -> bytes:
        return json.dumps(message, allow_nan=False).encode()

    def _unpack(self, body: bytes) -> dict[str, Any]:
        try:
            message = json.loads(body.decode())  # bytes would be looked at for other encodings
        except (ValueError, RecursionError) as error:
            what = "a message is not JSON as Ray 2.41 to 2.48 send it"
            cure = "Ray 2.49 and later speak msgpack: --dialect msgpack"
            raise MalformedMessage(what, fault="server", field="body", got=shorten(body, 60), cure=cure) from error
        if isinstance(message, dict):
            return message
        return {}

    def _episode(self, chunk: Chunk) -> dict[str, Any]:
        return {
            "obs": chunk.obs.tolist(),
            "actions": chunk.actions.tolist(),
            "rewards": chunk.rewards.tolist(),
            "action_dist_inputs": chunk.logits.tolist(),
            "action_logp": chunk.logp.tolist(),
            "is_terminated": chunk.terminated,
            "is_truncated": chunk.truncated,
        }

    def _config(self, message: dict[str, Any]) -> ServerConfig:
        steps = message.get("env_steps_per_sample")
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise MalformedMessage(
                "SET_CONFIG does not say how many steps a sample has",
                fault="server",
                field="env_steps_per_sample",
                expected="a positive integer",
                got=steps,
            )
        return ServerConfig(steps)

    def _state(self, message: dict[str, Any]) -> ServerState:
        seq = message.get("weights_seq_no", 0)
        return ServerState(None, _onnx(message.get("onnx_file"), self.most_onnx), seq if isinstance(seq, int) else 0)


def _onnx(text: Any, most: int) -> bytes:
    if not isinstance(text, str):
        raise MalformedMessage(
            "SET_STATE has no ONNX file",
            fault="server",
            field="onnx_file",
            expected="base64 of a gzip file",
            got=type(text).__name__,
        )
    try:
        unpacker = zlib.decompressobj(_GZIP)
        file = unpacker.decompress(base64.b64decode(text, validate=True), most)
    except (zlib.error, binascii.Error, ValueError) as error:
        what = "the ONNX file cannot be unpacked"
        expected = "base64 of a gzip file"
        raise MalformedMessage(what, fault="server", field="onnx_file", expected=expected, got=str(error)) from error
    if not unpacker.eof:
        what = "the ONNX file is cut off, or larger than is taken"
        got = f"{len(file)} bytes and more"
        raise MalformedMessage(what, fault="server", field="onnx_file", expected=f"at most {most} bytes", got=got)
    return file
