"""GymnasiumBridge keeps the spaces of its envs: what the handshake says, the rows, and the actions that arrive."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from tests.support.steps import advance, begin
from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.text import decode_handshake, encode_handshake
from ue_rl.system import errors

N = 3


def box(*shape: int, dtype: Any = np.float32, low: float = -2, high: float = 5) -> spaces.Box:
    return spaces.Box(low, high, shape, dtype)


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


# A space, and what the handshake says of it.
SPACES: dict[str, tuple[spaces.Space[Any], str]] = {
    "row": (box(3), "BOX(-2:5)"),
    "row-float64": (box(3, dtype=np.float64), "BOX(-2:5)[3]FLOAT64"),
    "one-number": (box(), "BOX(-2:5)[]"),
    "matrix": (box(2, 3), "BOX(-2:5)[2,3]"),
    "matrix-float64": (box(2, 3, dtype=np.float64), "BOX(-2:5)[2,3]FLOAT64"),
    "own-bounds": (spaces.Box(np.array([[0, -1]], np.float16), np.array([[2, 1]], np.float16)), "BOX(0:2,-1:1)[1,2]"),
    "int": (box(2, dtype=np.int32), "BOX(-2:5)[2]INT32"),
    "int64": (spaces.Box(-7, 2**24, (2,), np.int64), "BOX(-7:16777216)[2]INT64"),
    "uint32": (spaces.Box(0, 9, (2,), np.uint32), "BOX(0:9)[2]INT64"),
    "bytes": (pixels(4, 2), "BOX(0:255)[4,2]UINT8"),
    "half-open": (spaces.Box(-np.inf, np.array([1, np.inf], np.float32)), "BOX(-inf:1,-inf:inf)"),
    "choice": (spaces.Discrete(4), "DISCRETE(4)"),
    "choice-from": (spaces.Discrete(3, start=-1), "DISCRETE(-1:1)"),
    "choices": (spaces.MultiDiscrete([2, 5]), "MULTI_DISCRETE(2,5)"),
    "choices-from": (spaces.MultiDiscrete([2, 5], start=[3, -4]), "MULTI_DISCRETE(3:4,-4:0)"),
    "choices-matrix": (spaces.MultiDiscrete([[2, 5], [3, 1]]), "MULTI_DISCRETE(2,5,3,1)[2,2]"),
    "flags": (spaces.MultiBinary(4), "MULTI_BINARY(4)"),
    "flags-matrix": (spaces.MultiBinary([2, 3]), "MULTI_BINARY(6)[2,3]"),
    "dict": (
        spaces.Dict({"b": spaces.Discrete(3), "a": box(2, 2), "c d": spaces.MultiBinary(2)}),
        "DICT(a:BOX(-2:5)[2,2],b:DISCRETE(3),c%20d:MULTI_BINARY(2))",
    ),
    "tuple": (
        spaces.Tuple([spaces.Discrete(2, start=7), box(2, dtype=np.float64)]),
        "TUPLE(DISCRETE(7:8),BOX(-2:5)[2]FLOAT64)",
    ),
    "nested": (
        spaces.Dict({"x": spaces.Tuple([box(1), spaces.Dict({"y": spaces.MultiDiscrete([2, 3])})]), "z": box()}),
        "DICT(x:TUPLE(BOX(-2:5)[1],DICT(y:MULTI_DISCRETE(2,3))),z:BOX(-2:5)[])",
    ),
}  # fmt: skip


def numbers(value: Any) -> list[float]:
    """What a row is to hold of a value, in the order of its parts."""
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, tuple):
        return [number for part in value for number in numbers(part)]
    return [float(np.float32(number)) for number in np.ravel(value).tolist()]


def same(got: Any, want: Any) -> bool:
    """Equal in form, types and numbers."""
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[key], want[key]) for key in want)
    if isinstance(want, tuple):
        return len(got) == len(want) and all(same(a, b) for a, b in zip(got, want, strict=True))
    return type(got) is type(want) and got.dtype == want.dtype and np.array_equal(got, want)


class Sampled(gym.Env[Any, Any]):
    """Observations drawn from its space; notes the actions that it is given."""

    def __init__(self, observed: spaces.Space[Any], acted: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observed, acted
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        self.last = self.observation_space.sample()
        return self.last, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.given.append(action)
        self.last = self.observation_space.sample()
        return self.last, 1.0, False, False, {}


@pytest.mark.parametrize("through_codec", [True, False], ids=["codec", "arrays"])
@pytest.mark.parametrize("kind", SPACES)
def test_observations_and_actions_keep_their_space(kind: str, through_codec: bool) -> None:
    space, text = SPACES[kind]
    bridge = GymnasiumBridge(lambda: Sampled(space, space), N)
    line = bridge.build_handshake().split(";")
    assert f"OBS_SPACE={text}" in line
    assert f"ACT_SPACE={text}" in line
    assert decode_handshake(encode_handshake(bridge.spec)) == bridge.spec
    transport = MemoryTransport(bridge, through_codec=through_codec)
    spec = transport.connect()
    transport.reset(seeds=[1, 2, 3])
    space.seed(5)
    for _ in range(4):
        rows = transport.receive().obs
        for env, hosted in enumerate(bridge.envs):
            assert rows[env].tolist() == numbers(hosted.last)  # type: ignore[attr-defined]
        actions = [space.sample() for _ in range(N)]
        sent = np.array([numbers(action) for action in actions], np.float32)
        assert sent.shape == (N, spec.act_size)
        advance(transport, sent)
        for hosted, action in zip(bridge.envs, actions, strict=True):
            got = hosted.given[-1]  # type: ignore[attr-defined]
            assert space.contains(got)
            assert kind in ("own-bounds", "row-float64", "matrix-float64", "tuple") or same(got, action)
            assert np.allclose(numbers(got), numbers(action))
        transport.reset()


def test_an_action_is_the_envs_own_to_keep() -> None:
    """The next request is written over the same memory."""
    space = spaces.Dict({"a": box(2), "b": spaces.Tuple([spaces.MultiDiscrete([3, 3])])})
    bridge = GymnasiumBridge(lambda: Sampled(space, space), 1)
    transport = MemoryTransport(bridge, through_codec=False)
    begin(transport)
    for value in (0, 2):
        advance(transport, value)
    first, second = bridge.envs[0].given  # type: ignore[attr-defined]
    assert first["a"].tolist() == first["b"][0].tolist() == [0, 0]
    assert second["a"].tolist() == second["b"][0].tolist() == [2, 2]


# -- what cannot be carried


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), "carry a Text space .at: the whole of it"),
        (spaces.Dict({"a": spaces.Tuple([box(1), spaces.Text(5)])}), r"carry a Text space .at: a / 1\)"),
        (spaces.Dict({"g": spaces.Graph(box(1), None)}), "carry a Graph space .at: g"),
        (spaces.Sequence(box(1)), "carry a Sequence space"),
        (spaces.OneOf([box(1), box(2)]), "carry a OneOf space"),
        (spaces.Dict({"a": spaces.Dict({1: box(1)})}), "non-empty string .at: a.*got 1"),
        (spaces.Dict({"": box(1)}), "non-empty string"),
        (spaces.Dict({}), "one part or more"),
        (box(2, 0), "Box without numbers"),
        (spaces.Dict({"a": spaces.Discrete(2**25)}), "number of choices is out of range .at: a"),
        (spaces.Box(0, 2**64 - 1, (1,), np.uint64), "bounds outside int64"),
    ],
    ids=lambda given: "" if isinstance(given, str) else type(given).__name__,
)
@pytest.mark.parametrize("field", ["OBS_SPACE", "ACT_SPACE"])
def test_spaces_that_cannot_be_carried_are_refused_with_their_place(
    space: spaces.Space[Any], message: str, field: str
) -> None:
    given = (space, spaces.Discrete(2)) if field == "OBS_SPACE" else (spaces.Discrete(2), space)
    with pytest.raises(errors.ConfigurationError, match=message) as caught:
        GymnasiumBridge(lambda: Sampled(*given), 1)
    assert caught.value.field == field
