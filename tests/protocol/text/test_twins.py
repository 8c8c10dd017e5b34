"""The compiled kernels and their pure twin, change by change: the same result, and the same place in a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.twins import Recorded
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import AgentGroup, EnvSpec, EnvType, Parameter
from ue_rl.protocol.text import Codec, kernel_forms, kernels_pure
from ue_rl.protocol.text.kernels_writing import float32_text

fast_kernels = pytest.importorskip(
    "ue_rl.protocol.text._kernels", reason="no C compiler built the kernels in this installation"
)

GROUPS = (AgentGroup("a", 2, EnvSpec(2, 2)), AgentGroup("b", 1, EnvSpec(3, 1, action=ActionSpec.discrete(3))))
MULTI = EnvSpec(2, 2, num_envs=3)
MASKED = EnvSpec(
    2,
    2,
    num_envs=2,
    action=ActionSpec.multi_discrete((2, 3)),
    features=frozenset({"MASK"}),
    parameters=(Parameter("g", 9.8), Parameter("w", 0.0)),
)
AGENTS = EnvSpec(3, 2, num_envs=2, groups=GROUPS, features=frozenset({"MASK"}))
SINGLE = EnvSpec(2, 2, EnvType.SINGLE)
RLBASE = EnvSpec(2, 2, EnvType.RLBASE)
SEQ = EnvSpec(2, 1, num_envs=2, features=frozenset({"SEQ"}))
# spec, pending, the env whose own socket it is, lines; of each every change below is read as states and as requests
CASES: list[tuple[EnvSpec, list[int], int | None, tuple[bytes, ...]]] = [
    (MULTI, [1, 0, 1], None, (
        b"OBS=1, 2 ; REW = 3 ;DONE=1; ENV=2;TRUNC=1;INFO=%7B%7D||OBS=3;4REW=-.5;DONE=0;ENV=0",
        b"OBS=1,2;REW=3;DONE=1;ENV=2;TRUNC=1||OBS=1e38,4;REW=0;DONE=0;ENV=1",
        b" ACT = 1 , 2 ;ENV=0||ACT=RESET;SEED=7;ENV=2;OPTIONS=%7B%7D||act=3,4;colour=blue;ENV=1",
        b"OBS=1,2;REW=0;DONE=0;ENV=3", b"ACT=1,2;ENV=3", b"OBS=1,2;REW=0;DONE=0;SEQ=3;ENV=0", b"ACT=1,2;AGENT=1;ENV=0",
        b"ACT=1,2;ENV=0||ACT=3,4;ENV=0",
    )),
    (MULTI, [1], 0, (b"OBS=1,2;REW=0;DONE=0", b"OBS=1,2;REW=0;DONE=0;ENV=1", b"ACT=1,2")),
    (MULTI, [1], 1, (b"OBS=1,2;REW=0;DONE=0", b"OBS=1,2;REW=0;DONE=0;ENV=1", b"ACT=1,2;ENV=2", b"ACT=RESET;SEED=1")),
    (MASKED, [1], None, (
        b"OBS=1,2;REW=0;DONE=0;ENV=1;MASK=01101||OBS=1,2;REW=0;DONE=1;TRUNC=1;MASK=00000;ENV=0",
        b"ACT=RESET;SET=g:1.5,w:-2;ENV=1||ACT=0,2;ENV=0", b"OBS=1,2;REW=0;DONE=0;ENV=1;MASK=00101",
    )),
    (AGENTS, [2, 1], None, (
        b"OBS=1,2;REW=0.5;DONE=0;ENV=1;AGENT=0||OBS=3,4;REW=1;DONE=1;ENV=1;AGENT=1||OBS=5,6,7;REW=2;DONE=0;ENV=1;AGENT=2;MASK=101",
        b"ACT=1,2;ENV=0;AGENT=1||ACT=2;AGENT=2;ENV=0||ACT=RESET;ENV=1;SEED=3",
        b"OBS=1,2;REW=0;DONE=0;ENV=1;AGENT=3", b"ACT=1;ENV=2;AGENT=1", b"ACT=1,2;ENV=1;AGENT=1||ACT=RESET;ENV=1",
    )),
    (SINGLE, [1], None, (b"OBS=1.5,-2e-3;REW=+0;DONE=0", b"ACT=1,2", b"ACT=RESET")),
    (RLBASE, [1], None, (b"0.5, 0.25;-1.00;1", b"0.5;.25-1.00; 0", b" 0.5 , -1 ", b" reset ")),
    (SEQ, [1], None, (b"OBS=1,2;REW=0;DONE=0;ENV=0||OBS=1,2;REW=0;DONE=0;ENV=1;SEQ=12", b"ACT=1;ENV=1; seq = 12 ;",
                     b"OBS=1,2;REW=0;DONE=0;SEQ=3;ENV=0;SEQ=12", b"ACT=1;SEQ=3;ENV=1;SEQ=12")),
]  # fmt: skip
TOKENS = (b"#", b" ", b",", b";", b"|", b"||", b"x", b"9", b"-", b".", b"=", b"nan", b"1e39", b"ENV=0", b";DONE=1;",
          b"\r")  # fmt: skip


def changed(line: bytes, every: int = 1) -> Iterator[bytes]:
    """The line; without each of its bytes, or all behind; with each `every`th token at each place, in turns."""
    yield line
    for at in range(len(line) + 1):
        yield line[:at]
        yield line[:at] + line[at + 1 :]
        for token in TOKENS[at % every :: every]:
            yield line[:at] + token + line[at:]


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("spec", "pending", "only", "line"),
    [(spec, pending, only, line) for spec, pending, only, lines in CASES for line in lines],
    ids=lambda value: value.decode() if isinstance(value, bytes) else "",
)
def test_whatever_changes_in_a_line_both_find_the_same(
    spec: EnvSpec, pending: list[int], only: int | None, line: bytes, every: int
) -> None:
    fast, pure = Recorded(spec, True), Recorded(spec, False)
    refused = 0
    for text in changed(line, every):
        found = fast.read(text, pending, only, number=12)
        assert found == pure.read(text, pending, only, number=12), text
        refused += isinstance(found[0], tuple)
    assert refused


@pytest.mark.parametrize("spec", [MASKED, SINGLE])
def test_whatever_changes_in_observations_both_find_the_same(spec: EnvSpec) -> None:
    fast, pure = Recorded(spec, True), Recorded(spec, False)
    line = b"OBS=1,2;ENV=1;MASK=01101;RESET=1||OBS=3,4;RESET=0;REW=1" if spec is MASKED else b"OBS=1,2;RESET=1;MASK=1"
    for text in changed(line):
        for masked in (False, spec is MASKED):
            assert fast.observe(text, masked) == pure.observe(text, masked), text


@pytest.mark.parametrize(
    ("line", "end", "number"),
    [
        (b"ACT=1;SEQ=7", 5, 7), (b"ACT=1", 5, 0), (b"", 0, 0), (b"SEQ=7", 5, 0), (b";SEQ=7", 0, 7), (b";;;", 3, 0),
        (b"ACT=1 ;\tseq\t=\r12 ; ", 6, 12), (b"ACT=1;SEQ=7;X=1", 15, 0), (b"ACT=1;XSEQ=7", 12, 0),
        (b"ACT=1;SEQX=7", 12, 0), (b"ACT=1SEQ=7", 10, 0), (b"ACT=1;SEQ", 9, 0), (b"ACT=1;SEQ=", 5, -1),
        (b"ACT=1;SEQ=0", 5, -1), (b"ACT=1;SEQ=-1", 5, -1), (b"ACT=1;SEQ=1x", 5, -1), (b"ACT=1;SEQ=1e1", 5, -1),
        (b"ACT=1;SEQ=+1", 5, -1), (b"ACT=1;SEQ=1 1", 5, -1), (b"ACT=1;SEQ=\xb2", 5, -1), (b"ACT=1;SEQ=2\t\r", 5, 2),
        (b"ACT=1;SEQ=999999999999999999", 5, 10**18 - 1), (b"ACT=1;SEQ=1000000000000000000", 5, -1),
        (b"ACT=1;SEQ=7\n", 5, -1), (b"ACT=1;S\x05Q=7", 11, 0), (b"ACT=1;SEQ=7||ACT=2", 5, -1),
        (b"ACT=1;SEQ=1;SEQ=2", 11, 2),
    ],
)  # fmt: skip
def test_the_number_of_a_line_is_its_last_field(kernels: Any, line: bytes, end: int, number: int) -> None:
    assert kernels.find_number(line, 0, len(line)) == (end, number)
    for before, behind in ((b";SEQ=5", b";SEQ=6"), (b";SEQ=9\n", b";SEQ=8")):  # of other lines
        start = len(before)
        found = kernels.find_number(bytearray(before + line + behind), start, start + len(line))
        assert found == (start + end, number)


@pytest.mark.parametrize(
    "value",
    [0.0, -0.0, 1.0, -1.5, 0.1, 1e-4, 9.9e-5, 1e15, 1e16, 9.9e16, 1.5e16, 1e17, 1.25e17, 123456.7, 3e-3, 1e-45, 3.4e38,
     16777216.0, -1e-5, 1.17e-38],
)  # fmt: skip
def test_a_number_is_written_alike(value: float) -> None:
    args = np.zeros(1, np.int32), np.array([[value]], np.float32), None, kernel_forms.FORM_RLBASE, False
    (text,) = {module.encode_actions(*args) for module in (fast_kernels, kernels_pure)}
    assert np.float32(text) == np.float32(value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("1e-05", "1e-05"), ("-1.5e-04", "-0.00015"), ("1.25e-01", "0.125"), ("1e+00", "1"), ("1.25e+01", "12.5"),
        ("-1.5e+02", "-150"), ("1e+15", "1000000000000000"), ("1.5e+16", "1.5e+16"),
    ],
)  # fmt: skip
def test_exponents_are_where_we_say_whatever_numpy_does(given: str, text: str) -> None:
    """Which numbers it writes with one differs between its versions."""
    assert float32_text(given) == text  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", [MULTI, MASKED, AGENTS, SINGLE, RLBASE, SEQ], ids=str)
def test_rows_are_written_alike(spec: EnvSpec) -> None:
    rng = np.random.default_rng(3)
    n = spec.num_rows
    obs = rng.normal(size=(n, spec.obs_size)).astype(np.float32)
    rewards, actions = rng.normal(size=n).astype(np.float32), rng.normal(size=(n, spec.act_size)).astype(np.float32)
    masks = rng.integers(0, 3, (n, spec.mask_size)).astype(np.uint8) if spec.mask_size else None
    fast, pure = Codec(spec, compiled=True), Codec(spec, compiled=False)
    for flags in range(4):
        dones, truncated = np.full(n, flags & 1, np.uint8) * 5, np.full(n, flags >> 1, np.uint8) * 9
        for number in (0, 1, 31) if "SEQ" in spec.features else (0,):
            for ids in (None, [n - 1], []):
                states = [
                    c.encode_states(obs, rewards, dones, truncated, ids, None, masks, number) for c in (fast, pure)
                ]
                assert states[0] == states[1]
                asked = [c.encode_actions(actions, ids, number) for c in (fast, pure)]
                assert asked[0] == asked[1]
        bad = obs.copy()
        bad[-1, -1] = np.inf
        for wrong in ((bad, rewards), (obs, np.full(n, np.nan, np.float32))):
            args = (fast._all, *wrong, dones, truncated, masks, fast._layout, fast._state_form)
            refused = [module.encode_states(*args) for module in (fast_kernels, kernels_pure)]
            assert refused[0] == refused[1]
            assert isinstance(refused[0], tuple)


@pytest.mark.parametrize("row", [-1, 2])
def test_a_row_that_does_not_exist_is_not_written(kernels: Any, row: int) -> None:
    ids, two, form = np.array([0, row], np.int32), np.zeros((2, 1), np.float32), kernel_forms.FORM_MULTI
    flags = np.zeros(2, np.uint8)
    with pytest.raises(IndexError):
        kernels.encode_actions(ids, two, None, form, False)
    with pytest.raises(IndexError):
        kernels.encode_states(ids, two, two[:, 0].copy(), flags, flags, None, None, form)
    line = kernels.encode_states(ids[:1], two, two[:, 0].copy(), flags, flags, None, None, form)
    assert line == b"OBS=0;REW=0;DONE=0;ENV=0\n"  # and no number, where none is given


def test_lines_for_sockets_of_their_own_have_their_own_numbers(kernels: Any) -> None:
    ids, actions = np.arange(2, dtype=np.int32), np.array([[1], [2]], np.float32)
    numbers = np.array([0, 9], np.int64)
    lines = kernels.encode_actions(ids, actions, None, kernel_forms.FORM_MULTI, True, numbers)
    assert lines == [b"ACT=1\n", b"ACT=2;SEQ=9\n"]
    assert kernels.encode_actions(ids, actions, None, kernel_forms.FORM_MULTI, True, 0) == [b"ACT=1\n", b"ACT=2\n"]
    for wrong in (numbers[:1], np.zeros(3, np.int64)):
        with pytest.raises(ValueError):
            kernels.encode_actions(ids, actions, None, kernel_forms.FORM_MULTI, True, wrong)
