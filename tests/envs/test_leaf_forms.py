"""ue_rl.protocol.spaces.forms: what one kind of leaf means fits together, whichever kind it is."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ue_rl.protocol.spaces.engine_leaf import leaf_of, noted_leaf, own_leaf
from ue_rl.protocol.spaces.forms import BY_TYPE, FORMS, form_of
from ue_rl.protocol.spaces.gymnasium import gymnasium_space
from ue_rl.protocol.spaces.tree import Leaf, LeafKind, leaves
from ue_rl.protocol.text.space_text import read_space, space_text
from ue_rl.system.trust.pickles import DataUnpickler

TEXTS = (
    "BOX(-1:2)[3]", "BOX(-1:1,0:0.5)[2]FLOAT64", "BOX(0:255)[2,2]UINT8", "DISCRETE(4)", "DISCRETE(-3:1)",
    "MULTI_DISCRETE(2,3,1:4,5)[2,2]", "MULTI_DISCRETE(3,2)", "MULTI_BINARY(5)", "MULTI_BINARY(4)[2,2]",
)  # fmt: skip
N = 64


def rows_of(leaf: Leaf) -> np.ndarray:
    """float32 [N, size], as an engine sends them."""
    rng = np.random.default_rng(0)
    low, high = leaf.form.bounds(leaf)
    drawn = rng.uniform(low, high, (N, leaf.size))
    if leaf.form.is_whole(leaf):
        drawn = drawn.round()
    return drawn.astype(np.float32)


def test_every_kind_is_tried_here() -> None:
    tried = {leaf.kind for text in TEXTS for _, leaf, _ in leaves(read_space(text))}
    assert tried | {LeafKind.IMAGE} == set(LeafKind)
    assert list(FORMS) == [kind.value for kind in LeafKind]


@pytest.mark.parametrize("text", TEXTS)
def test_each_way_to_write_it_reads_back(text: str) -> None:
    leaf = read_space(text)
    assert isinstance(leaf, Leaf)
    assert space_text(leaf) == text
    space = gymnasium_space(leaf)
    assert own_leaf(space) == leaf_of(space) == leaf
    said = leaf.form.to_json(leaf, ())
    assert form_of(space) is leaf.form
    assert leaf.form.space_to_json(space) == said
    found = Leaf(leaf.kind, **BY_TYPE[said["type"]].of_json(said))
    assert (found.size, found.counts, found.starts) == (leaf.size, leaf.counts, leaf.starts)
    assert leaf.form.summary(leaf).startswith(leaf.kind.value)
    assert leaf.form.counts(leaf).shape == (leaf.size,)


@pytest.mark.parametrize("text", TEXTS)
def test_a_trainer_s_numbers_are_those_of_its_own_leaf(text: str) -> None:
    leaf = read_space(text)
    assert isinstance(leaf, Leaf)
    seen = leaf.form.trained(leaf)
    rows = rows_of(leaf)
    trained = leaf.form.to_trained(leaf, np)(rows)
    assert trained.shape == (N, seen.size)
    low, high = seen.form.bounds(seen)
    assert ((trained >= low) & (trained <= high)).all()
    np.testing.assert_allclose(leaf.form.from_trained(leaf, np)(trained), rows, atol=1e-5)
    assert seen.form.trained(seen) == seen
    space = gymnasium_space(leaf, zero_based=True)
    assert space == gymnasium_space(seen)
    assert own_leaf(space) == seen
    assert noted_leaf(pickle.loads(pickle.dumps(space))) == (None if seen == leaf else leaf)


@pytest.mark.parametrize("text", TEXTS)
def test_a_policy_s_numbers_become_the_row(text: str) -> None:
    leaf = read_space(text)
    assert isinstance(leaf, Leaf)
    low, high = leaf.form.box_bounds(leaf)
    rows = rows_of(leaf)
    numbers = leaf.form.to_box(leaf)(rows)
    assert numbers.shape == (N, len(low))
    assert ((numbers >= low) & (numbers <= high)).all()
    np.testing.assert_allclose(leaf.form.from_box(leaf, np)(numbers), rows, atol=1e-5)
    scores = leaf.form.box_scores(leaf, numbers, np)
    assert [score.shape for score in scores] == [(N, count) for count in leaf.form.counts(leaf) if count]


@pytest.mark.parametrize("text", TEXTS)
def test_numpy_and_torch_compute_the_same(text: str) -> None:
    leaf = read_space(text)
    assert isinstance(leaf, Leaf)
    form = leaf.form
    rows = rows_of(leaf)
    low, high = form.box_bounds(leaf)
    numbers = np.random.default_rng(1).uniform(low, high, (N, len(low))).astype(np.float32)
    for of, given in (
        (lambda xp: form.to_trained(leaf, xp), rows),
        (lambda xp: form.from_trained(leaf, xp), form.to_trained(leaf, np)(rows).astype(np.float32)),
        (lambda xp: form.from_box(leaf, xp), numbers),
    ):
        np.testing.assert_allclose(of(torch)(torch.as_tensor(given)).numpy(), of(np)(given), rtol=1e-6, atol=1e-6)
    pairs = zip(form.box_scores(leaf, torch.as_tensor(numbers), torch), form.box_scores(leaf, numbers, np), strict=True)
    for theirs, ours in pairs:
        np.testing.assert_array_equal(theirs.numpy(), ours)


def test_models_of_before_are_still_read() -> None:
    place = b"cue_rl.protocol.spaces.tree\nLeafKind\n(VBOX\ntR."
    assert DataUnpickler(io.BytesIO(place)).load() is LeafKind.BOX
    one, several = spaces.Discrete(3), spaces.MultiDiscrete([2, 3])
    vars(one)["engine_starts"] = np.array([-1])
    vars(several)["engine_starts"] = np.array([4, 0])
    assert leaf_of(one) == Leaf(LeafKind.DISCRETE, counts=(3,), starts=(-1,))
    assert leaf_of(several) == Leaf(LeafKind.MULTI_DISCRETE, (2,), counts=(2, 3), starts=(4, 0))


def test_a_class_made_from_a_space_of_gymnasium_is_of_its_kind() -> None:
    class Pitch(spaces.Box):
        pass

    assert form_of(Pitch(-1, 1, (2,))) is FORMS["BOX"]
    assert form_of(spaces.Text(3)) is None
