"""RLlinkServer names each mistake of a client: the key, the episode, what was expected and what came."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.harness.rllink_server import RLlinkServer
from tests.rllink.wrong_clients import OBS, HandWrittenClient, walk
from ue_rl.spaces.actions import ActionSpec

DISCRETE, BOX = ActionSpec.discrete(3), ActionSpec.box(2, -2, 2)


def mistakes(dialect: str = "msgpack", box: bool = False, messages: int = 3, **wrong: Any) -> list[str]:
    action = BOX if box else DISCRETE
    with RLlinkServer(OBS, action, steps_per_sample=40, hidden=(8,), dialect=dialect, equations=walk) as server:
        client = HandWrittenClient(server.port, dialect, box, **wrong)
        if dialect == "json":
            client._weights = {name: value.copy() for name, value in server._weights.items()}
            server._update = lambda: None  # type: ignore[method-assign]  # it reads no ONNX
        client.play(messages)
    return server.mistakes


@pytest.mark.parametrize("dialect", ["msgpack", "json"])
@pytest.mark.parametrize("box", [False, True])
def test_a_right_client_makes_none(dialect: str, box: bool) -> None:
    assert mistakes(dialect, box) == []
    assert mistakes(dialect, box, num_envs=5, length=100, messages=4) == []


Change = Callable[[dict[str, Any]], Any]
ID = "[0-9a-f]{32}"


def without(key: str) -> Change:
    return lambda episode: {name: value for name, value in episode.items() if name != key}


def part(key: str, change: Callable[[Any], Any], part_of: str = "data") -> Change:
    """Changes an array of each episode, or another part of its buffer."""

    def changed(episode: dict[str, Any]) -> dict[str, Any]:
        holder = episode["extra_model_outputs"] if key.startswith("action_") else episode
        holder[key] = {**holder[key], part_of: change(holder[key][part_of])}
        return episode

    return changed


def but(**changes: Any) -> Change:
    return lambda episode: episode | {key: make(episode) for key, make in changes.items()}


def output_less(key: str) -> Change:
    return but(extra_model_outputs=lambda e: without(key)(e["extra_model_outputs"]))


def trap(value: Any) -> Any:
    return {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": b"cos\nsystem\n(S'exit 1'\ntR."}


def with_seq(number: int) -> Change:
    def changed(episode: dict[str, Any]) -> dict[str, Any]:
        steps = len(episode["rewards"]["data"])
        seq = {"data": np.full(steps, number), "lookback": 0, "finalized": True, "space": None}
        return episode | {"extra_model_outputs": episode["extra_model_outputs"] | {"weights_seq_no": seq}}

    return changed


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a key is missing": (
        {"episode": without("agent_id")}, f"episode {ID}: agent_id: missing.*expected a value, got only _action_space",
    ),
    "no id": ({"episode": without("id_")}, "episode number 1: id_: missing"),
    "an id that is no text": ({"episode": but(id_=lambda e: 7)}, "id_: it names no episode; .*got 7"),
    "observations of another size": (
        {"episode": part("observations", lambda x: x[:, :2])},
        rf"episode {ID}: observations: wrong shape for \d rewards; expected \[\d, 3\], got \[\d, 2\]",
    ),
    "the reset's observation is missing": (
        {"episode": part("observations", lambda x: x[1:])}, r"observations: wrong shape .* \[8, 3\], got \[7, 3\]",
    ),
    "one observation too many": (
        {"episode": part("observations", lambda x: np.concatenate([x, x[-1:]]))}, r"observations: wrong shape .*9, 3\]",
    ),
    "rewards of another shape": ({"episode": part("rewards", lambda x: x[:, None])}, r"rewards: wrong shape.*\[7, 1"),
    "no rewards": ({"episode": part("rewards", lambda x: x[:0])}, "rewards: the episode has no steps"),
    "NaN": ({"episode": part("rewards", lambda x: x * np.nan)}, "rewards: not finite at step 0.*got nan"),
    "float64": (
        {"episode": part("observations", lambda x: x.astype(np.float64))},
        "observations: another type than the space's; expected float32, got .*float64",
    ),
    "a chunk goes on from another observation": (
        {"shifted_chunks": True}, f"message 2, episode {ID}: observations: the part before ended with another",
    ),
    "t_started counts from 0 again": (
        {"episode": but(t_started=lambda e: 0, t=lambda e: len(e["rewards"]["data"]))},
        f"message 2, episode {ID}: t_started: the part before ended elsewhere; expected [1-6], got 0",
    ),
    "t is the length": (
        {"episode": but(t=lambda e: len(e["rewards"]["data"]))}, r"t: it is not t_started \+ steps; expected 7, got",
    ),
    "t_started is text": ({"episode": but(t_started=lambda e: "0")}, "t_started: it counts no steps.*got 0"),
    "the id changes with each message": (
        {"new_ids": True}, f"message 2, episode {ID}: t_started: no part of this episode came before; expected 0",
    ),
    "one id for all": (
        {"episode": but(id_=lambda e: "env-0")}, "episode env-0: id_: an episode of this id has ended already",
    ),
    "finalized infos": (
        {"episode": part("infos", lambda _: True, "finalized")}, "infos.finalized: RLlib's listener.*got True",
    ),
    "infos are missing": ({"episode": part("infos", lambda x: [])}, "infos: wrong number for 7 rewards; expected 8"),
    "infos are one map": ({"episode": part("infos", lambda x: {})}, "infos: RLlib's listener.*expected a list"),
    "no buffers": (
        {"episode": but(rewards=lambda e: e["rewards"]["data"])}, "rewards: it is no buffer; expected a map of data",
    ),
    "a finalized list": (
        {"episode": part("rewards", np.ndarray.tolist)}, "rewards.finalized: a finalized buffer is one array",
    ),
    "rows of different lengths": (
        {"episode": part("observations", lambda x: [[1.0], *x.tolist()[1:]])}, "observations: its rows differ",
    ),
    "stretched actions": (
        {"box": True, "episode": part("actions", lambda x: np.clip(2 * x, -2, 2))},
        f"episode {ID}: action_logp: not that of the action, at step .*stretched to their bounds",
    ),
    "actions that are one-hot": ({"episode": part("actions", lambda x: np.eye(3)[x])}, r"actions: wrong shape.*7, 3"),
    "actions count from 1": (
        {"episode": part("actions", lambda x: x + 1)}, "actions: not a choice at step .*from 0 to 2, got 3",
    ),
    "log-probabilities of others": (
        {"episode": part("action_logp", lambda x: x - 0.01)}, "action_logp: not that of .*step 0; expected -",
    ),
    "probabilities": ({"episode": part("action_logp", np.exp)}, "action_logp: not that of the action"),
    "no log-probabilities": ({"episode": output_less("action_logp")}, "action_logp: missing, RLlib would fail"),
    "no logits": ({"episode": output_less("action_dist_inputs")}, "action_dist_inputs: missing"),
    "no outputs": ({"episode": but(extra_model_outputs=lambda e: None)}, "extra_model_outputs: RLlib's learner needs"),
    "the first weights for ever": (
        {"stale": True}, "message 2, .*action_dist_inputs: .*at step 0; .*they are those of the weights before",
    ),
    "another activation": (
        {"activation": "relu"}, "action_dist_inputs: not those of the weights.*they are those of the activation relu",
    ),
    "observations are one step late": (
        {"episode": part("observations", lambda x: np.concatenate([x[:1], x[:-1]]))},
        "action_dist_inputs: not those .*they fit the observations one step later",
    ),
    "half a batch": (
        {"steps": 20}, "message 1: episodes: too few steps: RLlib would wait .*expected 40 env-steps, got 20",
    ),
    "another weights_seq_no": ({"episode": with_seq(9)}, r"weights_seq_no: not the number .*expected 0, got \[9, 9"),
    "another weights_seq_no for all": (
        {"message": but(weights_seq_no=lambda m: 4)}, "message 1: weights_seq_no: not the number .*expected 0, got 4",
    ),
    "objects in infos": (
        {"episode": part("infos", lambda x: [{"a": trap(0)}, *x[1:]])}, "infos: an array that is not read.*a pickle",
    ),
    "objects beside the steps": ({"episode": but(custom_data=trap)}, "custom_data: an array that is not read"),
    "episodes never end": (
        {"never_ends": True, "messages": 5},
        f"message 4, episode {ID}: is_terminated, is_truncated: it neither ended nor went on in the 3 messages since",
    ),
    "a termination counts as truncated": (
        {"length": 100, "episode": but(is_truncated=lambda e: e["is_terminated"], is_terminated=lambda e: False)},
        r"is_terminated: not what the env's equations give; expected an end behind step \d+, got False",
    ),
    "a truncation counts as terminated": (
        {"episode": but(is_terminated=lambda e: e["is_truncated"])}, "is_terminated: not.*expected false, got True",
    ),
    "ends are numbers": ({"episode": but(is_terminated=lambda e: 1)}, "is_terminated: it is no flag.*got 1"),
    "arrays of objects": (
        {"episode": part("actions", trap)},
        f"episode {ID}: actions: an array that is not read; expected plain numbers, got .*only a pickle could make",
    ),
    "texts for numbers": (
        {"episode": part("rewards", lambda x: np.array(list(map(str, x))))}, "rewards: an array .*of type <U",
    ),
    "rewards are one step late": (
        {"episode": part("rewards", lambda x: np.concatenate([x[:1] * 0, x[:-1]]))},
        f"episode {ID}: rewards: not what the env's equations give, at step 0; expected .*: they fit one step later",
    ),
    "timesteps of the episodes, not the sum": (
        {"message": but(timesteps=lambda m: len(m["episodes"]))}, "message 1: timesteps: not the sum.*expected 40",
    ),
    "no list of episodes": ({"message": but(episodes=lambda m: {})}, "message 1: episodes: missing; expected a list"),
    "an episode that is none": ({"episode": lambda e: [e]}, "episode number 1: an episode: it is no map.*got list"),
    "episodes before the config": (
        {"asks": ("PING", "GET_STATE")}, "type: nobody had said how many steps .*GET_CONFIG before the first episodes",
    ),
    "a message of the server's": ({"asks": ("PING", "PONG")}, "type: a message that a client does not send.*got PONG"),
    "a binary header": ({"frames": lambda body: len(body).to_bytes(8, "big") + body}, "begins with its length"),
    "a header that is too short": ({"frames": lambda body: b"%08d" % (len(body) - 1) + body}, "not msgpack"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_each_mistake_is_named(what: str) -> None:
    wrong, said = WRONG[what]
    found = mistakes(**wrong)
    assert any(re.search(said, sentence) for sentence in found), found[:5]


def test_what_follows_from_an_unreadable_episode_is_no_mistake_of_its_own() -> None:
    """Its steps cannot be counted: neither the sum of the steps nor their number is judged then."""
    found = mistakes(episode=without("agent_id"))
    assert found
    assert not [sentence for sentence in found if "agent_id: missing" not in sentence]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'00000016{"type": "PING"}', "behind the connection's start: a message is not msgpack"),
        (b"00000019\x81\xa4type\xa4PING", "the connection ended inside a message: 11 of 19 bytes"),
        (b"00000011\x81\xa4type\xa4PING0000", "the connection ended inside a message: 4 bytes"),
        (b"123456789\x81", "behind the connection's start: an RLlink message of 100 MB or more"),
        (b"00000005\x81\xa4typ", "not msgpack"), (b"00000002\x90\x90", "not msgpack"), (b"00000001\x90", "no map"),
        (b"GET / HTTP/1.1", "begins with its length"),
    ],
)  # fmt: skip
def test_what_is_no_message(sent: bytes, said: str) -> None:
    with RLlinkServer(OBS, DISCRETE) as server:
        with socket.create_connection((server.host, server.port), timeout=5) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while client.recv(100):
                pass  # until the server hangs up
    assert [sentence for sentence in server.mistakes if said in sentence] == server.mistakes[:1], server.mistakes


def record(key: str, change: Callable[[Any], Any]) -> Change:
    return lambda episode: episode | {key: change(episode[key])}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"episode": without("action_logp")}, "episode number 1: action_logp: missing"),
        ({"episode": without("is_truncated")}, "is_truncated: missing"),
        ({"episode": record("obs", lambda x: x[1:])}, "observations: wrong shape"),
        ({"episode": record("action_logp", lambda x: x + 1)}, "action_logp: not that of the action"),
        ({"episode": record("rewards", lambda x: np.concatenate([x[:1] * 0, x[:-1]]))}, "rewards: .*one step later"),
        ({"episode": record("is_terminated", int)}, "is_terminated: it is no flag"),
        ({"episode": record("actions", lambda x: [{}] * len(x))}, "actions: it holds more than numbers"),
        ({"box": True, "episode": record("actions", lambda x: 2 * x)}, "stretched to their bounds"),
        ({"activation": "elu"}, "they are those of the activation elu"),
        ({"steps": 20}, "too few steps"),
        ({"asks": ()}, "nobody had said how many steps"),
        ({"frames": lambda body: b"%08d" % (len(body) - 1) + body}, "no JSON"),
        ({"message": lambda m: [m]}, "a message is no map; got list"),
    ],
)  # fmt: skip
def test_each_mistake_is_named_in_json(wrong: dict[str, Any], said: str) -> None:
    found = mistakes("json", **wrong)
    assert any(re.search(said, sentence) for sentence in found), found[:5]


def test_a_batch_may_come_in_several_messages() -> None:
    with RLlinkServer(OBS, DISCRETE, steps_per_sample=40, hidden=(8,)) as server:
        client = HandWrittenClient(server.port, steps=20)
        client._rng = np.random.default_rng(0)
        with socket.create_connection((server.host, server.port), timeout=5) as client._socket:
            for ask in client.asks:
                client._answer(client._ask({"type": ask}))
            envs = [client._fresh() for _ in range(2)]
            for _ in range(3):
                client._ask(client._message(envs) | {"type": "EPISODES"})
                client._ask(client._message(envs))
                client._answer(None)
    assert server.mistakes == []
    assert server.batches == [20] * 6
