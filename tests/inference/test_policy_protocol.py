"""The policy server's handshake and its last line: which engines fit which model, and what is left of an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ue_rl.inference.metadata import tree_from_json
from ue_rl.inference.server.protocol import read_hello, write_refusal
from ue_rl.protocol.spec import ActionKind, EnvType
from ue_rl.system import errors

BOX = {"type": "Box", "shape": [2], "low": -1, "high": 1}


def model(obs: int | None = 3, act: int | None = 2, space: dict[str, Any] | None = None) -> Any:
    """As much of an OnnxInference as a handshake is compared with."""
    return SimpleNamespace(
        obs_size=obs,
        act_size=act,
        spaces=(None, None if space is None else tree_from_json(space)),
        number_names=(("x", "y", "fuel"), ("turn", "run")),
        takes_masks=False,
        needs_masks=False,
    )


@pytest.mark.parametrize(
    ("line", "envs", "env_type"),
    [
        (b"CONFIG:OBS=3;ACT=2", 1, EnvType.SINGLE),
        (b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=1", 1, EnvType.SINGLE),
        (b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2", 2, EnvType.MULTI),
        (b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=8;VERSION=1;FEATURES=INFO\r\n", 8, EnvType.MULTI),
    ],
)
def test_what_an_engine_is_for_the_server(line: bytes, envs: int, env_type: EnvType) -> None:
    """Its sizes and how many envs it has; what concerns training only is left out."""
    for own in (model(), model(obs=None), model(act=None), model(space=BOX)):
        spec = read_hello(line, own, max_rows=8)
        assert (spec.obs_size, spec.act_size, spec.num_envs, spec.env_type) == (3, 2, envs, env_type)
        assert spec.features == frozenset()


@pytest.mark.parametrize(("obs", "act"), [(4, 2), (2, 2), (3, 1), (3, 3), (4, 3), (None, 3), (4, None)])
def test_other_sizes_than_the_models_are_refused(obs: int | None, act: int | None) -> None:
    for space in (None, BOX):
        with pytest.raises(errors.HandshakeError, match=f"OBS={obs};ACT={act}") as caught:
            read_hello(b"CONFIG:OBS=3;ACT=2", model(obs, act, space), max_rows=8)
        assert caught.value.fault == "engine"
        assert caught.value.got is not None


def test_named_numbers_stand_in_the_models_order() -> None:
    for said in (b"OBS_NAMES=x,y,fuel;ACT_NAMES=turn,run", b"OBS_NAMES=x,height,fuel"):
        assert read_hello(b"CONFIG:OBS=3;ACT=2;" + said, model(), max_rows=8).obs_size == 3
    with pytest.raises(errors.HandshakeError, match=r"OBS_NAMES.*expected y at 1; got fuel at 1"):
        read_hello(b"CONFIG:OBS=3;ACT=2;OBS_NAMES=x,fuel,y", model(), max_rows=8)


def test_huge_sizes_are_compared_before_anything_of_that_size_is_made() -> None:
    for line in (b"CONFIG:OBS=3;ACT=4000000;ACT_SPACE=BOX(0:1)", b"CONFIG: obs = 300000000;ACT=2;OBS_SPACE=BOX(0:1)"):
        with pytest.raises(errors.HandshakeError, match="not the model's"):
            read_hello(line, model(), max_rows=8)


@pytest.mark.parametrize("rows", [1, 3])
def test_more_envs_than_are_answered_at_once_are_refused(rows: int) -> None:
    line = b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=%d"
    assert read_hello(line % rows, model(), rows).num_envs == rows
    with pytest.raises(errors.HandshakeError) as caught:
        read_hello(line % (rows + 1), model(), rows)
    error = caught.value
    assert (error.field, error.fault, error.expected, error.got) == ("ENV_COUNT", "engine", f"at most {rows}", rows + 1)


def test_more_numbers_than_a_line_may_hold_are_refused() -> None:
    line = b"CONFIG:OBS=255;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=65536"
    with pytest.raises(errors.HandshakeError, match="too long for text"):
        read_hello(line, model(255, 2), max_rows=65_536)


SPACES = {
    "BOX(-1:1)": (2, BOX),
    "DISCRETE(4)": (1, {"type": "Discrete", "n": 4}),
    "DISCRETE(5)": (1, {"type": "Discrete", "n": 5}),
    "MULTI_DISCRETE(2,3)": (2, {"type": "MultiDiscrete", "nvec": [2, 3]}),
    "MULTI_DISCRETE(3,2)": (2, {"type": "MultiDiscrete", "nvec": [3, 2]}),
    "MULTI_BINARY(2)": (2, {"type": "MultiBinary", "shape": [2]}),
}


@pytest.mark.parametrize("theirs", SPACES)
@pytest.mark.parametrize("mine", SPACES)
def test_the_engine_takes_the_choices_that_the_model_gives(theirs: str, mine: str) -> None:
    (act, _), (own, space) = SPACES[theirs], SPACES[mine]
    line = f"CONFIG:OBS=3;ACT={act};VERSION=1;act_space={theirs}".encode()
    if theirs == mine:
        assert read_hello(line, model(3, own, space), 8).act_size == act
        return
    with pytest.raises(errors.HandshakeError) as caught:
        read_hello(line, model(3, own, space), 8)
    if act == own:
        kind = {"Box": "BOX"}.get(space["type"]) or mine.partition("(")[0]
        assert caught.value.field == "ACT_SPACE"
        assert str(caught.value.expected).startswith(ActionKind[kind].value)
    # a file without metadata, or an engine that says nothing of it, is taken at its sizes
    if act == own:
        assert read_hello(line, model(3, own), 8).act_size == act
    assert read_hello(f"CONFIG:OBS=3;ACT={own}".encode(), model(3, own, space), 8).act_size == own


def test_a_refusal_is_one_line_of_printable_ascii() -> None:
    error = errors.HandshakeError("naïve; a|b\n\x7f\x1f~ end", fault="engine", cure="one line;\nor two")
    line = write_refusal(error)
    assert line.endswith(b" One line  or two\n")
    assert line.startswith(b"ERROR=HandshakeError: na\\xefve  a b")
    assert b"~ end" in line
    assert all(0x20 <= byte < 0x7F and byte not in b";|" for byte in line[:-1])
    assert write_refusal(errors.HandshakeError("  tilde~ and space ", fault="engine"))[6:].count(b"~") == 1
    long = write_refusal(errors.HandshakeError("x" * 2000, fault="engine"))
    assert len(long) == len(b"ERROR=") + 600 + 1


def masked(counts: int, start: int = 0) -> Any:
    found = model(3, 1, {"type": "Discrete", "n": counts, "start": start})
    found.takes_masks = True
    return found


def test_masks_are_read_where_the_engine_sends_and_the_model_takes_them() -> None:
    line = b"CONFIG:OBS=3;ACT=1;VERSION=1;ACT_SPACE=DISCRETE(4);FEATURES=MASK,INFO"
    assert read_hello(line, masked(4), 8).mask_size == 4
    assert read_hello(line, model(3, 1, {"type": "Discrete", "n": 4, "start": 0}), 8).mask_size == 0
    assert read_hello(line.replace(b"MASK,", b""), masked(4), 8).mask_size == 0
    needy = masked(4)
    needy.needs_masks = True
    assert read_hello(line, needy, 8).mask_size == 4
    with pytest.raises(errors.HandshakeError, match="must be told which choices are legal") as caught:
        read_hello(line.replace(b"MASK,", b""), needy, 8)
    assert caught.value.field == "FEATURES"


def test_choices_that_begin_elsewhere_are_others() -> None:
    line = b"CONFIG:OBS=3;ACT=1;VERSION=1;ACT_SPACE=DISCRETE(2:5)"
    assert read_hello(line, masked(4, start=2), 8).num_envs == 1
    with pytest.raises(errors.HandshakeError, match=r"expected DISCRETE\(1:4\); got DISCRETE\(2:5\)"):
        read_hello(line, masked(4, start=1), 8)


def test_hybrid_actions_are_compared() -> None:
    gun, on = {"type": "Discrete", "n": 3, "start": 0}, {"type": "MultiBinary", "shape": [1]}
    space = {"type": "Dict", "spaces": {"aim": BOX, "gun": gun, "on": on}}
    line = b"CONFIG:OBS=3;ACT=4;VERSION=1;ACT_SPACE=DICT(aim:BOX(-1:1)[2],gun:DISCRETE(3),on:MULTI_BINARY(1))"
    assert read_hello(line, model(3, 4, space), 8).action_spec.kind is ActionKind.HYBRID
    for there, other, field in (
        (b"DISCRETE(3)", b"DISCRETE(2)", "ACT_SPACE.gun"),
        (b"DICT(aim:BOX(-1:1)[2],gun:DISCRETE(3),", b"DICT(gun:DISCRETE(3),aim:BOX(-1:1)[2],", "ACT_SPACE"),
    ):
        with pytest.raises(errors.HandshakeError, match="the engine's spaces are not the model's") as caught:
            read_hello(line.replace(there, other), model(3, 4, space), 8)
        assert caught.value.field == field


def test_agents_are_no_envs() -> None:
    line = b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;AGENTS=striker:2"
    with pytest.raises(errors.HandshakeError, match="answers envs, not their agents"):
        read_hello(line, model(), 8)
