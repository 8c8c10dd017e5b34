"""ue_rl.protocol.spaces.tree and its text: one row, many meanings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, bounds, box, choices, leaves
from ue_rl.protocol.spec import ActionKind, ActionSpec
from ue_rl.protocol.text.space_text import read_space, space_text
from ue_rl.system.errors import ConfigurationError

EVERYTHING = (
    "DICT(camera:IMAGE,position:BOX(-inf:inf)[3],pixels:BOX(0:255)[2,2]UINT8,team:DISCRETE(-1:1),"
    "bag:TUPLE(MULTI_BINARY(5),MULTI_DISCRETE(2,3,1:4,5)[2,2]),speed:BOX(-1:1,0:0.5,-2:inf)[3])"
)


def test_the_rows_order_is_the_trees() -> None:
    space = read_space(EVERYTHING)
    assert space.size == 3 + 4 + 1 + 5 + 4 + 3
    found = [("/".join(path), leaf.kind.value, offset) for path, leaf, offset in leaves(space)]
    assert found == [
        ("camera", "IMAGE", 0),
        ("position", "BOX", 0),
        ("pixels", "BOX", 3),
        ("team", "DISCRETE", 7),
        ("bag/0", "MULTI_BINARY", 8),
        ("bag/1", "MULTI_DISCRETE", 13),
        ("speed", "BOX", 17),
    ]


def test_bounds_and_choices_of_every_number() -> None:
    space = read_space(EVERYTHING)
    low, high = bounds(space)
    assert low.dtype == high.dtype == np.float32
    inf = float("inf")
    assert low.tolist() == [-inf] * 3 + [0] * 4 + [-1] + [0] * 5 + [0, 0, 1, 0] + [-1, 0, -2]
    assert high.tolist() == [inf] * 3 + [255] * 4 + [1] + [1] * 5 + [1, 2, 4, 4] + [1, 0.5, inf]
    assert choices(space).tolist() == [0] * 7 + [3] + [2] * 5 + [2, 3, 4, 5] + [0] * 3


def test_the_text_reads_back_in_any_spelling() -> None:
    space = read_space(EVERYTHING)
    assert space_text(space) == EVERYTHING
    spelt = " dict( camera : image , position:box( -inf : inf ) [ 3 ] ,pixels:Box(0:255)[2, 2]uint8 ,"
    spelt += "team:discrete(-1:1),bag:tuple( multi_binary(5) ,multi_discrete(0:1,0:2,1:4,0:4)[2,2]),"
    spelt += "speed:BOX(-1:1,0:.5,-2:inf)) "
    assert read_space(spelt) == space
    assert read_space("BOX(0:1)[]") == box((), 0, 1)
    assert space_text(Leaf(LeafKind.DISCRETE, counts=(4,))) == "DISCRETE(4)"


@pytest.mark.parametrize("name", ["achieved_goal", "my key", "a:b,c(d)", "größe", "100%", "x[m/s]"])
def test_names_of_any_characters(name: str) -> None:
    space = Branch(((name, box((1,))), ("other", box((2,)))))
    text = space_text(space)
    assert text.isascii()
    assert not set(text) & set("; |=")
    assert read_space(text) == space


def test_equal_bounds_are_one_bound_and_integers_stay_exact() -> None:
    assert box((3,), [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == box((3,), 1, 2)
    double = box((2,), -0.1, 1e300, "float64")
    assert space_text(double) == "BOX(-0.1:1e+300)[2]FLOAT64"
    assert read_space(space_text(double)) == double
    wide = box((2,), -(2**63), 2**63 - 1, "int64")
    assert read_space(space_text(wide)) == wide
    assert (wide.low, wide.high) == ((-(2**63),), (2**63 - 1,))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DICT()", "cannot be read"),
        ("DICT(a:BOX(0:1)[3],a:BOX(0:1)[2])", "name of its own"),
        ("DICT(BOX(0:1))", "cannot be read"),
        ("TUPLE(BOX(0:1)[2]", "cannot be read"),
        ("BOX(0:1)[3]COMPLEX64", "unknown type"),
        ("BOX(0:1,0:1)[3]", "bounds and shape disagree"),
        ("BOX(1:0)[3]", "must not exceed"),
        ("BOX(nan:1)[3]", "must not exceed"),
        ("BOX(0:256)[3]UINT8", "outside uint8"),
        ("BOX(0:0.5)[3]UINT8", "integer"),
        ("BOX(0:inf)[3]INT32", "integer"),
        ("BOX(0:1)[0]", "sizes of 1 or more"),
        ("BOX(0:1)[4096,4097]", "too large"),
        ("BOX(0:1)[1,1,1,1,1,1,1,1,1]", "too large"),
        ("DISCRETE(0)", "out of range"),
        ("DISCRETE(3:1)", "out of range"),
        ("DISCRETE(3)[1]", "no shape"),
        ("DISCRETE(3,4)", "no shape"),
        ("DISCRETE(16777217)", "out of range"),
        ("DISCRETE(16777210:16777220)", "not exact"),
        ("MULTI_BINARY(4)[3]", "disagree"),
        ("MULTI_DISCRETE(2,3)[3]", "disagree"),
        ("SPHERE(2)", "cannot be read"),
        ("BOX(0:1)[3] and more", "unknown type"),
        ("DISCRETE(3) and more", "cannot be read"),
        ("DICT(%ff:BOX(0:1))", "percent-encoded"),
        ("TUPLE(" * 8 + "BOX(0:1)" + ")" * 8, "too deep"),
        (f"TUPLE({','.join(['DISCRETE(2)'] * 1025)})", "too many parts"),
    ],
)
def test_what_cannot_be_is_named(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_space(text)
    assert says in str(caught.value)


def test_an_image_has_no_numbers() -> None:
    assert read_space("IMAGE").size == 0
    assert [path for path, _, _ in leaves(read_space("DICT(a:IMAGE,b:BOX(0:1)[2])"))] == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("text", "kind", "counts", "starts", "tree"),
    [
        ("BOX(-1:1)[3]", ActionKind.BOX, (), (), False),
        ("BOX(-1:1)[2,3]", ActionKind.BOX, (), (), True),
        ("BOX(0:9)[2]INT32", ActionKind.BOX, (), (), True),
        ("DISCRETE(4)", ActionKind.DISCRETE, (4,), (), False),
        ("DISCRETE(-2:2)", ActionKind.DISCRETE, (5,), (-2,), False),
        ("MULTI_DISCRETE(2,1:3)", ActionKind.MULTI_DISCRETE, (2, 3), (0, 1), False),
        ("MULTI_DISCRETE(2,3)[2,1]", ActionKind.MULTI_DISCRETE, (2, 3), (), True),
        ("MULTI_BINARY(3)", ActionKind.MULTI_BINARY, (2, 2, 2), (), False),
        (
            "DICT(move:BOX(-1:1)[2],jump:DISCRETE(3),lamps:MULTI_BINARY(2))",
            ActionKind.HYBRID,
            (0, 0, 3, 2, 2),
            (),
            True,
        ),
    ],
)
def test_action_specs_of_trees(text: str, kind: ActionKind, counts: Any, starts: Any, tree: bool) -> None:
    space: Space = read_space(text)
    action = ActionSpec.of(space)
    assert (action.kind, action.counts, action.starts) == (kind, counts, starts)
    assert action.size == space.size
    assert action.space == (space if tree else None)
    assert action.mask_size == sum(counts)


def test_action_specs_refuse_images_and_nothing() -> None:
    for text in ("IMAGE", "DICT(a:IMAGE,b:BOX(0:1)[1])"):
        with pytest.raises(ConfigurationError, match="no image"):
            ActionSpec.of(read_space(text))
