"""Both dialects against bytes that Ray sent, and against bytes that nobody should send."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from tests.plugins.rllib.rllink.server import RLlinkServer
from tests.plugins.rllib.rllink.test_client import ACTIONS
from ue_rl.plugins.rllib.rllink.json_dialect import JsonDialect
from ue_rl.plugins.rllib.rllink.messages import Chunk, Pong, ServerConfig, ServerState
from ue_rl.plugins.rllib.rllink.msgpack_dialect import MsgpackDialect, pack, unpack
from ue_rl.system.errors import MalformedMessage

CHUNK = Chunk(
    "a" * 32, 5, np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1, 0]), np.float32([1, 0.5]),
    np.float32([[0, 1], [2, 3]]), np.float32([-0.5, -0.25]), terminated=True,
)  # fmt: skip


def test_captured_messages() -> None:
    m, j = MsgpackDialect(), JsonDialect()
    assert m.ask("PING") == b"\x81\xa4type\xa4PING"
    assert m.ask("GET_CONFIG") == b"\x81\xa4type\xaaGET_CONFIG"
    assert m.ask("GET_STATE") == b"\x81\xa4type\xa9GET_STATE"
    assert j.ask("PING") == b'{"type": "PING"}'
    assert m.answer(b"\x81\xa4type\xa4PONG") == Pong()
    assert j.answer(b'{"type": "PONG"}') == Pong()
    said = j.answer(b'{"type": "SET_CONFIG", "env_steps_per_sample": 1000, "force_on_policy": true}')
    assert isinstance(said, ServerConfig)
    assert said.steps_per_sample == 1000
    # the first bytes of a state of Ray 2.60
    head = bytes.fromhex("82a474797065a95345545f5354415445a5737461746582a9726c5f6d6f64756c6581d920")
    array = bytes.fromhex("85c4026e64c3c40474797065a33c6634c4046b696e64c400c4057368617065920102c40464617461c408")
    name = b"encoder.encoder.net.mlp.0.weight"
    body = head + name + array + np.float32([1.5, -2]).tobytes() + b"\xaeweights_seq_no\x07"
    state = m.answer(body)
    assert isinstance(state, ServerState)
    assert state.seq == 7
    assert state.weights is not None
    assert (state.weights[name.decode()] == np.float32([[1.5, -2]])).all()


def test_episodes() -> None:
    message = unpack(MsgpackDialect().episodes([CHUNK]))
    assert (message["type"], message["timesteps"]) == ("EPISODES_AND_GET_STATE", 2)
    (episode,) = message["episodes"]
    assert (episode["id_"], episode["t_started"], episode["t"], episode["is_terminated"]) == ("a" * 32, 5, 7, True)
    assert (episode["observations"]["data"] == CHUNK.obs).all()
    assert episode["infos"] == {"data": [{}] * 3, "lookback": 0, "finalized": False, "space": None}
    record = json.loads(JsonDialect().episodes([CHUNK]))
    assert record["type"] == "EPISODES_AND_GET_STATE"
    assert record["episodes"][0]["obs"] == CHUNK.obs.tolist()
    assert " ".join(sorted(record["episodes"][0])) == (
        "action_dist_inputs action_logp actions is_terminated is_truncated obs rewards"
    )


def test_the_config_of_a_real_class_is_read() -> None:
    server = RLlinkServer(4, ACTIONS["box"], steps_per_sample=321, activation="relu")
    said = MsgpackDialect().answer(pack({"type": "SET_CONFIG", "config": server.config()}))
    assert isinstance(said, ServerConfig)
    assert (said.steps_per_sample, said.activation, said.explore) == (321, "relu", True)
    assert said.algorithm == "ray.rllib.algorithms.ppo.ppo.PPOConfig"


@pytest.mark.parametrize(
    ("runners", "learners", "each", "whole", "wanted"),
    [(0, 0, None, 4000, 4000), (2, 0, 1000, 4000, 500), (3, 2, 1000, None, 667), (1, 2, None, 4000, 4000)],
)
def test_how_many_steps_a_sample_has(runners: int, learners: int, each: Any, whole: Any, wanted: int) -> None:
    state = {
        "num_env_runners": runners, "num_learners": learners, "_train_batch_size_per_learner": each,
        "train_batch_size": whole,
    }  # fmt: skip
    made = b"\x80\x04cray.x\nConfig\n)\x81" + pickle.dumps(state, 4)[2:-1] + b"b."
    said = MsgpackDialect().answer(pack({"type": "SET_CONFIG", "config": made}))
    assert isinstance(said, ServerConfig)
    assert said.steps_per_sample == wanted


def array_of(**changes: Any) -> bytes:
    fields: dict[bytes, Any] = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": b"\0" * 8}
    return msgpack.packb(
        {
            "type": "SET_STATE",
            "state": {"rl_module": {"w": fields | {name.encode(): value for name, value in changes.items()}}},
        }
    )


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xc1", b"[]", b"\x90", b"\x81\xa4type\xa4PINK", b"\xdd\xff\xff\xff\xff", b"\x81" * 2000,
        array_of(kind=b"O"),
        array_of(kind="O"), array_of(type="|O"), array_of(type="(3,)f4"), array_of(type="f4,f4"), array_of(type="<U9"),
        array_of(shape=[3]), array_of(shape=[-1]), array_of(shape=[2**62, 2**62]), array_of(shape="2"),
        array_of(data="x"),
        array_of(nd=False, data=b"\0"), msgpack.packb({"type": "SET_STATE"}),
        msgpack.packb({"type": "SET_STATE", "state": 3}),
        msgpack.packb({"type": "SET_CONFIG", "config": 3}), msgpack.packb({"type": "SET_CONFIG", "config": b"N."}),
    ],
)  # fmt: skip
def test_what_msgpack_may_not_say(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        MsgpackDialect().answer(body)


class Trap:
    """Whoever loads its pickle makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


def test_nothing_is_loaded_beside_ray_either(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    body = array_of(kind=b"O", data=pickle.dumps(Trap(tmp_path / "sprung")))
    request.getfixturevalue("msgpack_of_ray")
    with pytest.raises(MalformedMessage, match="only a pickle could make"):
        MsgpackDialect().answer(body)
    assert not (tmp_path / "sprung").exists()


def test_a_file_that_grows_is_not_unpacked() -> None:
    dialect = JsonDialect()
    dialect.most_onnx = 1000
    bomb = base64.b64encode(gzip.compress(b"\0" * 100_000)).decode()
    for file in (bomb, "!!", 3, base64.b64encode(b"no gzip").decode()):
        with pytest.raises(MalformedMessage, match="ONNX file"):
            dialect.answer(json.dumps({"type": "SET_STATE", "onnx_file": file}).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"type": "SET_CONFIG"}', b"[" * 100_000, b"\xff"])
def test_what_json_may_not_say(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        JsonDialect().answer(body)
