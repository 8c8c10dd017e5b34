"""Specs: what a handshake may ask for, what that costs, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from ue_rl.protocol.spec import MAX_LISTED, MAX_NUMBERS, MAX_SWITCHES, ActionKind, ActionSpec, EnvSpec
from ue_rl.protocol.text import decode_handshake, encode_handshake
from ue_rl.system import errors

BUDGET = 0.2  # seconds of this process: a handshake comes within the trainer's deadline, whatever it says


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ("OBS=4;ACT=16777216", None),
        ("OBS=16777216;ACT=16777216", None),
        ("OBS=4;ACT=16777216;ACT_SPACE=BOX(-2:2)", None),
        ("OBS=16777216;ACT=2;OBS_SPACE=BOX(0:1)", None),
        (f"OBS={MAX_LISTED};ACT={MAX_LISTED};OBS_SPACE=BOX(0:1)", None),
        ("OBS=4;ACT=16777216;ACT_SPACE=MULTI_BINARY(16777216)", "ACT_SPACE"),
        (f"OBS=4;ACT={MAX_SWITCHES};ACT_SPACE=MULTI_BINARY({MAX_SWITCHES})", None),
        ("OBS=4;ACT=999999999;ACT_SPACE=BOX(-1:1)", "ACT"),
        ("OBS=999999999;ACT=1;OBS_SPACE=BOX(-1:1)", "OBS"),
        ("OBS=4;ACT=999999999;ACT_SPACE=MULTI_BINARY(999999999)", "ACT_SPACE"),
    ],
)
def test_a_short_handshake_costs_little_whatever_it_asks_for(config: str, refused: str | None, slack: float) -> None:
    line = f"CONFIG:{config};VERSION=1".encode()
    begun = time.process_time()
    if refused is None:
        spec = decode_handshake(line)
        assert decode_handshake(encode_handshake(spec)) == spec
    else:
        with pytest.raises(errors.HandshakeError) as caught:
            decode_handshake(line)
        assert caught.value.field == refused
    assert time.process_time() - begun < BUDGET * slack


@pytest.mark.parametrize("size", [1, 3, MAX_LISTED + 1, MAX_NUMBERS])
def test_the_default_box_is_that_of_every_number(size: int) -> None:
    action = EnvSpec(2, size).action_spec
    assert (action, action.size) == (ActionSpec.box(size), size)
    for bounds, value in zip(action.bounds, (-1, 1), strict=True):
        assert (bounds.dtype, bounds.shape) == (np.float32, (size,))
        assert (bounds == value).all()
    if size <= MAX_LISTED:
        assert (action.low, action.high) == ((-1.0,) * size, (1.0,) * size)


def test_bounds_listed_one_by_one_and_one_for_all_are_the_same_spec() -> None:
    listed = ActionSpec(ActionKind.BOX, (-2.0,) * 3, (2.0,) * 3)
    assert listed == ActionSpec.box(3, -2, 2) == ActionSpec(ActionKind.BOX, (-2.0,), (2.0,), size=3)
    n = MAX_LISTED + 1
    assert ActionSpec(ActionKind.BOX, (-2.0,) * n, (2.0,) * n) == ActionSpec.box(n, -2, 2)
    spec = EnvSpec(3, 1, obs_low=(0.0,), obs_high=(1.0,))
    assert spec == EnvSpec(3, 1, obs_low=(0.0,) * 3, obs_high=(1.0,) * 3)
    assert [bounds.tolist() for bounds in spec.obs_bounds] == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("of", [list, np.array])
def test_bounds_and_counts_may_be_lists_and_arrays(of: Any) -> None:
    """Such as the `low` and `high` of a Box."""
    for size in (1, 2):
        lows, highs = (-1.0,) * size, (2.0,) * size
        action = ActionSpec(ActionKind.BOX, lows, highs)
        spec = EnvSpec(size, size, obs_low=lows, obs_high=highs, action=action)
        given = ActionSpec(ActionKind.BOX, of(lows), of(highs))
        assert EnvSpec(size, size, obs_low=of(lows), obs_high=of(highs), action=given) == spec
        assert spec.obs_bounds[1].tolist() == [2.0] * size
    assert ActionSpec(ActionKind.MULTI_DISCRETE, counts=of([2, 3])) == ActionSpec.multi_discrete((2, 3))


def test_very_many_bounds_that_differ_are_all_kept() -> None:
    low = tuple(range(MAX_LISTED + 1))
    action = ActionSpec(ActionKind.BOX, low, (2.0**24,) * len(low))
    assert action.low == low
    np.testing.assert_array_equal(action.bounds[0], np.arange(len(low), dtype=np.float32))


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"low": (), "high": ()}, "ACT_SPACE", "at least one number"),
        ({"low": (0.0,), "high": (1.0,), "size": 0}, "ACT_SPACE", "at least one number"),
        ({"low": (0.0,), "high": ()}, "ACT_SPACE", "differ in length"),
        ({"low": (0.0, 2.0), "high": (1.0, 1.0)}, "ACT_SPACE", r"invalid bounds.*\(2.0, 1.0\)"),
        ({"low": (float("nan"),), "high": (1.0,)}, "ACT_SPACE", "invalid bounds"),
        ({"low": (0.0,), "high": (float("nan"),)}, "ACT_SPACE", "invalid bounds"),
        ({"low": (float("inf"),), "high": (float("inf"),)}, "ACT_SPACE", "invalid bounds"),
        ({"low": (-float("inf"),), "high": (-float("inf"),)}, "ACT_SPACE", "invalid bounds"),
        ({"low": (0.0, 0.0), "high": (1.0, 1.0), "size": 3}, "ACT_SPACE", "disagree.*expected 3; got 2"),
    ],
)
def test_an_invalid_box_is_refused(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message) as caught:
        ActionSpec(ActionKind.BOX, **given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"obs_size": 3, "obs_low": (0.0, 0.0), "obs_high": (1.0, 1.0)}, "OBS_SPACE", "disagree.*expected 3; got 2"),
        ({"obs_size": 2, "obs_low": (0.0,), "obs_high": (-1.0,)}, "OBS_SPACE", "invalid bounds"),
        ({"obs_size": 2, "action": ActionSpec.box(3)}, "ACT_SPACE", "disagree.*expected 1; got 3"),
        ({"obs_size": 0}, "OBS", "out of range"),
        ({"obs_size": MAX_NUMBERS + 1}, "OBS", "out of range"),
        ({"obs_size": True}, "OBS", "out of range"),
    ],
)
def test_an_invalid_spec_is_refused(given: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message) as caught:
        EnvSpec(act_size=1, **given)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("kind", "counts", "message"),
    [
        (ActionKind.DISCRETE, (), "one choice or more"),
        (ActionKind.MULTI_DISCRETE, (3, 0), "one choice or more"),
        (ActionKind.DISCRETE, (2, 2), "one count"),
        (ActionKind.DISCRETE, (1.5,), "a whole number"),
        (ActionKind.DISCRETE, (True,), "a whole number"),
        (ActionKind.MULTI_BINARY, (2, 3), "two choices"),
        (ActionKind.MULTI_DISCRETE, (2, 2**24 + 1), "exact in float32"),
    ],
)
def test_invalid_choices_are_refused(kind: ActionKind, counts: tuple[int, ...], message: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        ActionSpec(kind, counts=counts)
    assert ActionSpec(ActionKind.MULTI_DISCRETE, counts=(2, 2**24)).size == 2
    assert ActionSpec.multi_binary(MAX_SWITCHES).size == MAX_SWITCHES
    with pytest.raises(errors.ConfigurationError, match="too many switches"):
        ActionSpec.multi_binary(MAX_SWITCHES + 1)
