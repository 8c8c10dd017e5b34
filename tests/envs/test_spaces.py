"""Space trees as Gymnasium spaces, rows as observations, actions as rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.preprocessing import get_action_dim

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.hybrid_box import HybridBox
from ue_rl.envs.observations import Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spaces.gymnasium import batched
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, box, leaves
from ue_rl.protocol.spec import ActionSpec, EnvSpec, ImageSpec
from ue_rl.system.errors import ActionError

RNG = np.random.default_rng(0)
DISCRETE = Leaf(LeafKind.DISCRETE, counts=(4,))
FROM_MINUS_ONE = Leaf(LeafKind.DISCRETE, counts=(3,), starts=(-1,))
GRID = Leaf(LeafKind.MULTI_DISCRETE, (2, 2), counts=(2, 3, 4, 5), starts=(0, 1, 0, -2))
FLAGS = Leaf(LeafKind.MULTI_BINARY, (3,))
FLAG_GRID = Leaf(LeafKind.MULTI_BINARY, (2, 2))

EVERYTHING = Branch(
    (
        ("z position", box((3,), -1, 1)),
        ("matrix", box((2, 3), np.arange(-6, 0), np.arange(6))),
        ("temperature", box((), -40, 40)),
        ("pixels", box((2, 2), 0, 255, "uint8")),
        ("count", box((), -5, 5, "int16")),
        ("weapon", DISCRETE),
        ("gear", FROM_MINUS_ONE),
        ("grid", GRID),
        ("flags", FLAGS),
        ("flag grid", FLAG_GRID),
        ("inner", Branch((("0", box((2,), 0, 1)), ("1", Branch((("x", DISCRETE),)))), named=False)),
        ("camera", Leaf(LeafKind.IMAGE)),
    )
)
CAMERA = ImageSpec(4, 5, 3)
HYBRID = Branch(
    (
        ("move", box((2,), -2, 3)),
        ("weapon", FROM_MINUS_ONE),
        ("grid", GRID),
        ("flags", FLAGS),
        ("pair", Branch((("0", DISCRETE), ("1", box((1, 2), -1, 1))), named=False)),
    )
)


def spec_of(obs: Space, act: Space = DISCRETE, num_envs: int = 3, image: ImageSpec | None = None) -> EnvSpec:
    """A handshake with these spaces."""
    action = ActionSpec.of(act)
    return EnvSpec(obs.size or 1, action.size, num_envs=num_envs, action=action, obs_space=obs, image=image)


def rows_of(tree: Space, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Rows that fit the tree, float32 [n, tree.size]."""
    rows = np.zeros((n, tree.size or 1), np.float32)
    for _, leaf, at in leaves(tree):
        if leaf.kind is LeafKind.BOX:
            numbers = rng.uniform(np.maximum(leaf.low, -100), np.minimum(leaf.high, 100), (n, leaf.size))
            if leaf.dtype != "float32":
                numbers = np.rint(numbers)
        elif leaf.kind is not LeafKind.IMAGE:
            counts = (2,) if leaf.kind is LeafKind.MULTI_BINARY else leaf.counts
            numbers = rng.integers(0, counts, (n, leaf.size)) + np.array(leaf.starts or (0,))
        else:
            continue
        rows[:, at : at + leaf.size] = numbers
    return rows


def everything() -> EnvSpec:
    return spec_of(EVERYTHING, HYBRID, image=CAMERA)


def buffers_of(spec: EnvSpec) -> StepBuffers:
    buffers = StepBuffers.of(spec)
    assert spec.obs_space is not None
    buffers.obs[:] = rows_of(spec.obs_space, spec.num_rows, RNG)
    if buffers.image is not None:
        buffers.image[:] = RNG.integers(0, 256, buffers.image.shape)
    return buffers


def test_every_leaf_becomes_its_space() -> None:
    space = observation_space(everything())
    assert isinstance(space, spaces.Dict)
    assert list(space.spaces) == [name for name, _ in EVERYTHING.parts]
    expected = {
        "z position": spaces.Box(-1, 1, (3,), np.float32),
        "matrix": spaces.Box(
            np.arange(-6, 0).reshape(2, 3).astype(np.float32), np.arange(6).reshape(2, 3).astype(np.float32)
        ),
        "temperature": spaces.Box(-40, 40, (), np.float32),
        "pixels": spaces.Box(0, 255, (2, 2), np.uint8),
        "count": spaces.Box(-5, 5, (), np.int16),
        "weapon": spaces.Discrete(4),
        "gear": spaces.Discrete(3, start=-1),
        "grid": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [0, -2]])),
        "flags": spaces.MultiBinary(3),
        "flag grid": spaces.MultiBinary((2, 2)),
        "inner": spaces.Tuple((spaces.Box(0, 1, (2,), np.float32), spaces.Dict({"x": spaces.Discrete(4)}))),
        "camera": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    }
    for name, part in expected.items():
        assert space[name] == part, name
    assert list(batched(space, 2).spaces) == list(space.spaces)  # pyright: ignore[reportAttributeAccessIssue]


def test_for_sb3_choices_count_from_zero() -> None:
    space = observation_space(everything(), zero_based=True)
    assert isinstance(space, spaces.Dict)
    assert space["gear"] == spaces.Discrete(3)
    assert space["grid"] == spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]))
    assert action_space(spec_of(DISCRETE, FROM_MINUS_ONE)) == spaces.Discrete(3, start=-1)
    assert action_space(spec_of(DISCRETE, FROM_MINUS_ONE), zero_based=True) == spaces.Discrete(3)
    one_row = Leaf(LeafKind.MULTI_DISCRETE, (2,), counts=(2, 3), starts=(1, -1))
    assert action_space(spec_of(DISCRETE, one_row)) == spaces.MultiDiscrete([2, 3], start=[1, -1])
    assert action_space(spec_of(DISCRETE, one_row), zero_based=True) == spaces.MultiDiscrete([2, 3])


@pytest.mark.parametrize("zero_based", [False, True])
@pytest.mark.parametrize("copy", [True, False])
def test_observations_are_members_of_the_space(zero_based: bool, copy: bool) -> None:
    spec = everything()
    space, buffers = observation_space(spec, zero_based), buffers_of(spec)
    observations = Observations(spec, copy, zero_based)
    batch = observations.read(buffers)
    assert list(batch) == list(space.spaces)  # type: ignore[attr-defined]
    for env in range(spec.num_envs):
        one = observations.row(batch, env)
        assert space.contains(one)
    start = 0 if zero_based else -1
    assert set((batch["gear"] - start).tolist()) <= {0, 1, 2}
    assert (batch["gear"] + (-1 if zero_based else 0)).tolist() == buffers.obs[:, 3 + 6 + 1 + 4 + 1 + 1].tolist()
    assert batch["inner"][1]["x"].tolist() == buffers.obs[:, -1].tolist()
    np.testing.assert_array_equal(batch["camera"], buffers.image)
    shared = [np.shares_memory(batch[name], buffers.obs) for name in ("z position", "matrix", "temperature")]
    assert shared == [not copy] * 3
    assert np.shares_memory(batch["camera"], buffers.image) == (not copy)  # type: ignore[arg-type]


def test_rows_of_finished_envs_are_replaced() -> None:
    spec = everything()
    observations = Observations(spec)
    first, second = buffers_of(spec), buffers_of(spec)
    batch, new = observations.read(first), observations.read(second)
    kept = observations.row(batch, 1)
    observations.put(batch, second, [0, 2])
    for env, source in ((0, new), (1, observations.read(first)), (2, new)):
        np.testing.assert_equal(observations.row(batch, env), observations.row(source, env))
    np.testing.assert_equal(observations.row(batch, 1), kept)


def test_a_single_leaf_is_an_array() -> None:
    for tree, shape, dtype in (
        (DISCRETE, (3,), np.int64), (GRID, (3, 2, 2), np.int64), (FLAG_GRID, (3, 2, 2), np.int8),
        (box((2, 3), 0, 1), (3, 2, 3), np.float32), (box((4,), 0, 9, "uint8"), (3, 4), np.uint8),
        (box(()), (3,), np.float32),
    ):  # fmt: skip
        spec = spec_of(tree)
        batch = Observations(spec).read(buffers_of(spec))
        assert (batch.shape, batch.dtype) == (shape, np.dtype(dtype))
    flat = EnvSpec(2, 1, num_envs=3)
    assert observation_space(flat) == spaces.Box(-np.inf, np.inf, (2,), np.float32)
    only = EnvSpec(1, 1, num_envs=3, image=ImageSpec(4, 5, 1, only=True))
    assert Observations(only).read(StepBuffers.of(only)).shape == (3, 4, 5, 1)
    beside = EnvSpec(2, 1, num_envs=3, image=ImageSpec(4, 5, 1))
    assert set(Observations(beside).read(StepBuffers.of(beside))) == {"obs", "image"}


def sampled(space: spaces.Space[Any], n: int, seed: int) -> Any:
    batch = batched(space, n)
    batch.seed(seed)
    return batch.sample()


@pytest.mark.parametrize("tree", [HYBRID, GRID, FROM_MINUS_ONE, FLAG_GRID, box((2, 2), -1, 1)])
def test_actions_of_gymnasium_become_rows(tree: Space) -> None:
    spec = spec_of(DISCRETE, tree)
    actions = sampled(action_space(spec), 3, 4)
    rows = ActionWriter(spec)(actions)
    assert rows.dtype == np.float32
    assert rows.shape == (3, tree.size)
    assert rows.flags.c_contiguous
    back = Observations(spec_of(tree)).of_rows(rows)  # the same tree read as an observation gives it back
    np.testing.assert_equal(back, actions)
    alone = spec_of(DISCRETE, tree, num_envs=1)
    one = action_space(alone)
    one.seed(1)
    action = one.sample()
    seen = Observations(spec_of(tree, num_envs=1)).of_rows(ActionWriter(alone).one(action))
    assert one.contains(Observations(spec_of(tree)).row(seen, 0))
    np.testing.assert_equal(Observations(spec_of(tree)).row(seen, 0), action)


def test_wrong_parts_of_a_hybrid_action_are_named() -> None:
    spec = spec_of(DISCRETE, HYBRID)
    writer = ActionWriter(spec)
    good = sampled(action_space(spec), 3, 0)
    for change, match in (
        ({"weapon": np.array([0, 1, 2])}, r"not a choice.*env 2, field ACT\.weapon.*from -1 to 1"),
        ({"move": np.zeros((3, 3))}, r"wrong shape.*ACT\.move"),
        ({"pair": (good["pair"][0],)}, r"lacks a part.*pair\.1"),
        ({"flags": np.array(["a"] * 9).reshape(3, 3)}, r"numeric.*ACT\.flags"),
    ):
        with pytest.raises(ActionError, match=match):
            writer({**good, **change})
    with pytest.raises(ActionError, match="lacks a part"):
        writer({"move": good["move"]})


@pytest.mark.parametrize("wrong", [0.5, 3.0, -1.0])
@pytest.mark.parametrize(
    "action", [ActionSpec.multi_discrete([3, 3]), ActionSpec.multi_binary(2)], ids=["choices", "flags"]
)
def test_choices_that_come_as_float32_are_checked_as_choices(action: ActionSpec, wrong: float) -> None:
    writer = ActionWriter(EnvSpec(1, 2, num_envs=2, action=action))
    fine = np.float32([[0, 1], [1, 0]])
    assert np.array_equal(writer(fine), fine)
    fine[1, 0] = wrong
    with pytest.raises(ActionError) as caught:
        writer(fine)
    assert caught.value.env_id == 1


def test_sb3_actions_count_from_zero() -> None:
    writer = ActionWriter(spec_of(DISCRETE, FROM_MINUS_ONE), zero_based=True)
    assert writer(np.array([0, 1, 2])).tolist() == [[-1], [0], [1]]
    with pytest.raises(ActionError, match="from 0 to 2"):
        writer(np.array([0, 1, 3]))
    native = ActionWriter(spec_of(DISCRETE, FROM_MINUS_ONE))
    assert native(np.array([-1, 0, 1])).tolist() == [[-1], [0], [1]]
    with pytest.raises(ActionError, match="from -1 to 1"):
        native(np.array([0, 1, 2]))


def test_a_hybrid_box_gives_back_what_it_was_given() -> None:
    spec = spec_of(DISCRETE, HYBRID)
    space = action_space(spec, zero_based=True)
    assert isinstance(space, HybridBox)
    assert get_action_dim(space) == 2 + 3 + (2 + 3 + 4 + 5) + 3 + 4 + 2
    assert space.low[:2].tolist() == [-2, -2]
    assert space.high[:2].tolist() == [3, 3]
    choice, flag, box_ = [10] * 3 + [10] * 14, [1] * 3, [1] * 2
    assert space.high[2:].tolist() == (-space.low[2:]).tolist() == [*choice, *flag, *[10] * 4, *box_]
    native = action_space(spec)
    native.seed(2)
    for _ in range(20):
        action = native.sample()
        encoded = space.encode(action)
        assert space.contains(encoded)
        alone = ActionWriter(spec_of(DISCRETE, HYBRID, num_envs=1))
        np.testing.assert_array_equal(space.decode(encoded[None]), alone.one(action))
    rows = ActionWriter(spec, zero_based=True)(np.zeros((3, space.shape[0]), np.float32))
    assert rows[0].tolist() == [0, 0, -1, 0, 1, 0, -2, 0, 0, 0, 0, 0, 0]  # of equals the first, flags off


def test_a_hybrid_box_survives_saving_and_knows_its_tree() -> None:
    space = HybridBox(HYBRID)
    again = pickle.loads(pickle.dumps(space))
    assert again == space
    assert again.stretches == space.stretches
    other = HybridBox(
        Branch((("a", Leaf(LeafKind.DISCRETE, counts=(2,))), ("b", Leaf(LeafKind.DISCRETE, counts=(3,)))))
    )
    mirrored = HybridBox(
        Branch((("a", Leaf(LeafKind.DISCRETE, counts=(3,))), ("b", Leaf(LeafKind.DISCRETE, counts=(2,)))))
    )
    assert other != mirrored
    assert other.low.shape == mirrored.low.shape
    for bad, match in (
        (np.zeros((3, 4)), "do not fit"), (np.full((3, 5), np.nan), "not a finite number.*env 0"),
        (np.full((3, 5), 1e300), "not a finite"), (np.array([["a"] * 5]), "do not fit"),
    ):  # fmt: skip
        with pytest.raises(ActionError, match=match):
            other.decode(bad)
    with pytest.raises(ActionError, match="wrong shape"):
        ActionWriter(EnvSpec(1, 2, num_envs=3, action=ActionSpec.of(other.tree)), zero_based=True)(np.zeros((2, 5)))
