"""The compiled loops and their pure twin: the same answer to everything, and never an altered row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.support.properties import examples
from tests.support.twins import of_both_kernels
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import AgentGroup, EnvSpec, EnvType, Parameter
from ue_rl.protocol.text import Codec, kernel_forms, kernels_pure
from ue_rl.system.errors import (
    MalformedMessage,
    NonFiniteValue,
    ProtocolError,
    RepeatedEnv,
    UnknownEnv,
    WrongCount,
)

fast_kernels = pytest.importorskip(
    "ue_rl.protocol.text._kernels", reason="no C compiler built the kernels in this installation"
)

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
EDGES = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 1e-4, 9.999999e-05, 1e16,
     9.999999e15, 16777216, 16777217, 0.1, 0.3, 1 / 3, 100, 1e10, 123456.789, 33554432, 9007199254740993],
    np.float32,
)  # fmt: skip


def texts(module: Any, values: np.ndarray) -> list[bytes]:
    line = module.encode_actions(np.zeros(1, np.int32), values.reshape(1, -1), None, kernel_forms.FORM_SINGLE, False)
    return line[4:-1].split(b",")


def read_back(module: Any, line: bytes, size: int) -> tuple[Any, np.ndarray]:
    batch, spans = ActionBatch(1, size), np.zeros((1, 4), np.int32)
    into = batch.actions, batch.command, batch.seeds, spans, None
    return module.decode_requests(line, *into, 0, len(line), kernel_forms.FORM_SINGLE, -1), batch.actions[0]


def test_numbers_round_trip_bit_for_bit_over_the_whole_range() -> None:
    """Every exponent with random mantissas, and the edges; shortest, as NumPy's own digits are."""
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 2**32, 60_000, dtype=np.uint64).astype(np.uint32)
    every_exponent = (np.arange(255, dtype=np.uint32) << 23)[:, None] | np.array([0, 1, 0x7FFFFF], np.uint32)
    values = np.concatenate([bits.view(np.float32), every_exponent.ravel().view(np.float32), EDGES, -EDGES])
    values = values[np.isfinite(values)]
    written = texts(fast_kernels, values)
    for module in (fast_kernels, kernels_pure):
        rows, again = read_back(module, b"ACT=" + b",".join(written), len(values))
        assert rows == 1
        np.testing.assert_array_equal(again.view(np.uint32), values.view(np.uint32))
    sample = np.concatenate([values[:3000], values[-1000:]])
    assert texts(fast_kernels, sample) == texts(kernels_pure, sample)
    for value, text in zip(sample, texts(fast_kernels, sample), strict=True):
        digits = np.format_float_scientific(value, unique=True).split("e")[0].strip("-").replace(".", "").strip("0")
        mantissa = text.decode().lstrip("-").split("e")[0].replace(".", "").strip("0")
        assert mantissa == digits, (value, text)


# [+-]? up to 25 digits, a point and 25 more, or either of them, and an exponent of up to three; faster than from_regex
_DIGITS = st.builds(
    lambda width, number: str(number % 10**width).zfill(width), st.integers(1, 25), st.integers(0, 10**25)
)
_MANTISSAS = st.one_of(
    _DIGITS, _DIGITS.map("{}.".format), st.builds("{}.{}".format, _DIGITS, _DIGITS), _DIGITS.map(".{}".format)
)
_EXPONENTS = st.one_of(
    st.just(""),
    st.builds(
        "{}{}{:0{}}".format,
        st.sampled_from("eE"),
        st.sampled_from(["", "+", "-"]),
        st.integers(0, 999),
        st.integers(1, 3),
    ),
)
DECIMALS = st.builds("{}{}{}".format, st.sampled_from(["", "+", "-"]), _MANTISSAS, _EXPONENTS)


@given(DECIMALS)
@example("9007199254740993")
@example("0.1000000000000000055511151231257827")
@example("179769313486231580793728971405301e-10")
@example("1e-400")
@examples(300)
def test_any_decimal_is_read_as_python_reads_it(text: str) -> None:
    with np.errstate(over="ignore"):
        value = np.float32(float(text))
    for module in (fast_kernels, kernels_pure):
        rows, (number,) = read_back(module, f"ACT={text}".encode(), 1)
        if np.isfinite(value):
            assert rows == 1
            assert number == value
            assert math.copysign(1, number) == math.copysign(1, value)
        else:
            assert rows[0] == kernel_forms.NON_FINITE


@pytest.mark.parametrize("zeros", [0, 1, 30, 5000])
@pytest.mark.parametrize("seed", [0, 7, 2**63 - 11, 2**63 - 8, 2**63 - 2, 2**63 - 1, 2**63, 2**64 + 7, 10**30])
def test_every_seed_up_to_the_largest_is_read_and_none_beyond(seed: int, zeros: int, compiled: bool) -> None:
    codec, batch = Codec(EnvSpec(1, 1, EnvType.MULTI, 2), compiled=compiled), ActionBatch(2, 1)
    line = f"ACT=RESET;SEED={'0' * zeros}{seed};ENV=1".encode()
    if seed < 2**63:
        assert codec.decode_requests(line, batch) == 1
        assert batch.seeds[1] == seed
    else:
        with pytest.raises(ProtocolError) as caught:
            codec.decode_requests(line, batch)
        assert caught.value.field == "SEED"
        assert batch.seeds[1] == -1


STATES = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float32, (n, 3), elements=FINITE),
        hnp.arrays(np.float32, n, elements=FINITE),
        hnp.arrays(np.uint8, n, elements=st.integers(0, 1)),
        hnp.arrays(np.uint8, n, elements=st.integers(0, 1)),
        st.permutations(range(n)),
    )
)
SPELLINGS = [
    lambda t: t,
    lambda t: t.lower(),
    lambda t: t.replace(b";", b" ; ").replace(b"=", b" = "),
    lambda t: t.replace(b";REW", b"REW"),
    lambda t: t.replace(b",", b";"),
    lambda t: t.replace(b"DONE", b"colour=blue;DONE"),
]


@given(STATES, st.sampled_from(SPELLINGS))
@examples(150, 75)
def test_states_survive_every_spelling(state: Any, spell: Any) -> None:
    obs, rewards, dones, truncated, order = state
    n = len(rewards)
    for form in ("MULTI", "SINGLE", "RLBASE"):
        if form != "MULTI" and n > 1:
            continue
        if form == "RLBASE" and spell not in (SPELLINGS[0], SPELLINGS[4]):
            continue
        spec = EnvSpec(3, 1, EnvType(form), n)
        fast, pure = Codec(spec, compiled=True), Codec(spec, compiled=False)
        line = fast.encode_states(obs, rewards, dones, truncated, order)
        assert line == pure.encode_states(obs, rewards, dones, truncated, order)
        for codec in (fast, pure):
            got = StepBuffers(n, 3)
            got.pending[:] = 1
            assert codec.decode_states(spell(line), got) == n
            np.testing.assert_array_equal(got.obs.view(np.uint32), obs.view(np.uint32))
            np.testing.assert_array_equal(got.rewards.view(np.uint32), rewards.view(np.uint32))
            np.testing.assert_array_equal(got.dones, dones)
            if form != "RLBASE":
                np.testing.assert_array_equal(got.truncated, truncated & dones)
            assert not got.pending.any()


BASES = [
    b"OBS=0.5,-1;REW=1;DONE=0;ENV=0||OBS=0.25,2e-3;REW=-0.5;DONE=1;ENV=1;TRUNC=1||OBS=3,4;REW=0;DONE=0;ENV=2",
    b"OBS=-0.17;0.99REW=-0.62;DONE=0;ENV=1;INFO=%7B%22a%22%3A1%7D",
    b"obs = 1 , 2 ; rew = 0 ; done = 1 ; env = 2 ; x = y",
    b"ACT=0.5,-1;ENV=0||ACT=RESET;ENV=1;SEED=3;OPTIONS=%7B%7D||ACT=1,2;ENV=2",
    b"0.5,0.25-1.00;1",
]
TOKENS = [b"nan", b"inf", b"-", b"+", b".", b";", b",", b"|", b"||", b"=", b"ENV=9", b"ENV=1", b"1e999", b"\xff",
          b"\x00", b"\r", b" ", b"OBS=", b"REW=", b"ACT=", b"RESET", b"#", b"1.#INF", b"1e-2#", b"e5",
          b"99999999999999999999",
          b"INFO=", b"TRUNC=1", b"||OBS=1,2;REW=0;DONE=0;ENV=0"]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, bases: Sequence[bytes] = BASES, tokens: Sequence[bytes] = TOKENS) -> bytes:
    line = bytearray(draw(st.sampled_from(bases)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(line)))
        kind = draw(st.integers(0, 3))
        if kind == 0:
            line[at:at] = draw(st.sampled_from(tokens))
        elif kind == 1:
            del line[at : at + draw(st.integers(1, 6))]
        elif kind == 2 and at < len(line):
            line[at] = draw(st.integers(0, 255))
        else:
            line[at:at] = line[draw(st.integers(0, len(line))) :][: draw(st.integers(1, 12))]
    return bytes(line).replace(b"\n", b" ")


# -- with masks, agents and parameters, and without

_GROUPS = (AgentGroup("a", 2, EnvSpec(2, 2)), AgentGroup("b", 1, EnvSpec(3, 1, action=ActionSpec.discrete(3))))
_MASK = frozenset({"MASK", "TRUNC"})
_PARAMETERS = (Parameter("g", 9.8), Parameter("w", 0.0))
EXTENDED = [
    EnvSpec(2, 2, num_envs=3, action=ActionSpec.multi_discrete((2, 3)), features=_MASK, parameters=_PARAMETERS),
    EnvSpec(3, 2, num_envs=2, groups=_GROUPS, features=_MASK, parameters=_PARAMETERS),
    EnvSpec(3, 2, num_envs=2, groups=_GROUPS),
    EnvSpec(2, 1, EnvType.SINGLE, action=ActionSpec.multi_binary(1), features=_MASK),
    EnvSpec(2, 2, num_envs=3),
    EnvSpec(2, 2, EnvType.SINGLE),
    EnvSpec(2, 2, EnvType.RLBASE),
]
EXTENDED_BASES = [
    *BASES,
    b"OBS=1,2;REW=1;DONE=0;ENV=0;MASK=01101||OBS=3,4;REW=0;DONE=1;ENV=2;TRUNC=1;MASK=00000||OBS=0,0;REW=0;DONE=0;ENV=1",
    b"OBS=1,2;REW=0.5;DONE=0;ENV=1;AGENT=0||OBS=3,4;REW=1;DONE=1;ENV=1;AGENT=1||OBS=5,6,7;REW=2;DONE=0;ENV=1;AGENT=2;MASK=101",
    b"AGENT=1;OBS=1;2;REW=1;ENV=0;DONE=1;TRUNC=1||OBS=1,2,3REW=0;DONE=0;mask = 011 ;env=0;agent=2;INFO=%7B%7D",
    b"ACT=1,2;ENV=0;AGENT=0||ACT=2;AGENT=2;ENV=0||ACT=RESET;ENV=1;SEED=3;SET=g:1.5,w:-2;OPTIONS=%7B%22a%22%3A1%7D",
    b"ACT=RESET;ENV=1;SET= w : 1e3 ||ACT=1,2;ENV=0;SET=x",
    b"OBS=1,2;REW=0;DONE=0;MASK=10",
]
EXTENDED_TOKENS = [*TOKENS, b"MASK=", b"MASK=000", b"0", b"1", b"AGENT=2", b"AGENT=0", b"AGENT=3", b"AGENT=", b"SET=",
                   b":", b"%", b"g:2", b"ENV=0", b"||ACT=RESET;ENV=0", b"ERROR=x"]  # fmt: skip


@given(
    mutated(EXTENDED_BASES, EXTENDED_TOKENS),
    st.sampled_from(EXTENDED),
    st.lists(st.sampled_from([0, 1, 1, 2]), min_size=1, max_size=6),
    st.sampled_from([None, 0, 1]),
)
@example(EXTENDED_BASES[5], EXTENDED[0], [1], None)
@example(EXTENDED_BASES[6], EXTENDED[1], [1], None)
@example(EXTENDED_BASES[6], EXTENDED[1], [2, 1], None)
@example(EXTENDED_BASES[8], EXTENDED[1], [1], None)
@examples(1200)
def test_mutated_traffic_gives_protocol_errors_and_both_kernels_agree(
    line: bytes, spec: EnvSpec, pending: list[int], only: int | None
) -> None:
    """Nothing but the project's own errors leaves the decoder, and both twins see the same thing."""
    if not spec.groups:
        pending = [min(state, 1) for state in pending]  # 2 is an agent's that need not be there
    compiled_one, pure_one = of_both_kernels(spec, line, pending, only if spec.num_envs > 1 else None)
    assert compiled_one == pure_one


@given(st.data(), st.sampled_from(EXTENDED))
@examples(200, 100)
def test_rows_with_masks_and_agents_are_written_alike_and_read_back(data: st.DataObject, spec: EnvSpec) -> None:
    n = spec.num_rows
    sizes = [group.spec.obs_size for group in spec.groups for _ in range(group.count)] or [spec.obs_size]
    flags = [group.spec.action_spec.mask_size for group in spec.groups for _ in range(group.count)] or [spec.mask_size]
    out = StepBuffers.of(spec)
    out.obs[:] = data.draw(hnp.arrays(np.float32, out.obs.shape, elements=FINITE))
    out.rewards[:] = data.draw(hnp.arrays(np.float32, n, elements=FINITE))
    out.dones[:] = data.draw(hnp.arrays(np.uint8, n, elements=st.integers(0, 1)))
    out.masks[:] = data.draw(hnp.arrays(np.uint8, out.masks.shape, elements=st.integers(0, 1)))
    out.masks[:, ::2] |= out.dones[:, None] == 0  # some are refused all the same
    lines = [
        Codec(spec, compiled=use).encode_states(out.obs, out.rewards, out.dones, out.truncated, masks=out.masks)
        for use in (True, False)
    ]
    assert lines[0] == lines[1]
    outcome = of_both_kernels(spec, lines[0], [1])
    assert outcome[0] == outcome[1]
    got = StepBuffers.of(spec)
    got.pending[:] = 1
    if isinstance(outcome[0][0], tuple):
        assert outcome[0][0][:3:2] == (kernel_forms.NO_CHOICE, kernel_forms.F_MASK)
        return
    Codec(spec).decode_states(lines[0], got)
    for row in range(n):
        kind = row % len(sizes)
        np.testing.assert_array_equal(got.obs[row, : sizes[kind]], out.obs[row, : sizes[kind]])
        if spec.mask_size:
            np.testing.assert_array_equal(got.masks[row, : flags[kind]], out.masks[row, : flags[kind]])
    assert got.present.all()


@given(STATES, st.data())
@examples(100, 50)
def test_a_bad_row_leaves_the_rows_before_it_exact_and_those_behind_it_alone(state: Any, data: st.DataObject) -> None:
    obs, rewards, dones, truncated, order = state
    n = len(rewards)
    codec = Codec(EnvSpec(3, 1, EnvType.MULTI, n), compiled=data.draw(st.booleans()))
    rows = codec.encode_states(obs, rewards, dones, truncated, order)[:-1].split(b"||")
    bad = data.draw(st.integers(0, n - 1))
    rows[bad] = data.draw(st.sampled_from([b"OBS=1,2;REW=0;DONE=0;ENV=0", b"x", b"", rows[bad] + b";REW=1"]))
    got = StepBuffers(n, 3)
    got.pending[:] = 1
    got.obs[:] = 7
    with pytest.raises(ProtocolError):
        codec.decode_states(b"||".join(rows), got)
    for place, env in enumerate(order):
        if place < bad:
            np.testing.assert_array_equal(got.obs[env].view(np.uint32), obs[env].view(np.uint32))
        else:
            assert (got.obs[env] == 7).all()
            assert got.pending[env] == 1


@pytest.mark.parametrize("number", [b"1#", b"1.#INF", b"-1.#QNAN", b"1e-2#", b"2.5e3#IND"])
def test_a_hash_behind_a_number_is_an_old_runtimes_infinity(number: bytes) -> None:
    outcomes = []
    for use_compiled in (True, False):
        codec, buffers = Codec(EnvSpec(1, 1, EnvType.SINGLE), compiled=use_compiled), StepBuffers(1, 1)
        buffers.pending[:] = 1
        for line in (b"OBS=%b;REW=0;DONE=0" % number, b"OBS=0;REW=%b;DONE=0" % number):
            with pytest.raises(NonFiniteValue) as caught:
                codec.decode_states(line, buffers)
            outcomes.append(caught.value.field)
    assert outcomes == ["OBS", "REW"] * 2


# -- rows of observations alone


def observed(codec: Codec, line: bytes) -> tuple[list[int], list[list[float]], list[int]]:
    n = codec.spec.num_envs
    obs, resets = np.full((n, codec.spec.obs_size), 7, np.float32), np.full(n, 7, np.uint8)
    envs = codec.decode_observations(line, obs, resets)
    return envs.tolist(), obs.tolist(), resets.tolist()


@pytest.mark.parametrize(
    ("num_envs", "line", "envs", "obs", "resets"),
    [
        (1, b"OBS=1,2\n", [0], [[1, 2]], [0]),
        (1, b"obs = 1 ; 2 ; reset = 1", [0], [[1, 2]], [1]),
        (1, b"OBS=1,2REW=0.5;DONE=1;ENV=0", [0], [[1, 2]], [0]),
        (1, b"REW=;DONE=9;OBS=1;2;colour=blue", [0], [[1, 2]], [0]),
        (3, b"OBS=5,6;ENV=2;RESET=1||ENV=0;OBS=1,2;RESET=0", [2, 0], [[1, 2], [7, 7], [5, 6]], [0, 7, 1]),
    ],
)
def test_observations_are_read_in_every_spelling_and_order(
    num_envs: int, line: bytes, envs: list[int], obs: list[list[float]], resets: list[int], compiled: bool
) -> None:
    codec = Codec(EnvSpec(2, 1, num_envs=num_envs), compiled=compiled)
    for _ in range(2):  # the second time nothing is left of the first
        assert observed(codec, line) == (envs, obs, resets)


@pytest.mark.parametrize(
    ("line", "kind", "field"),
    [
        (b"OBS=1,2", MalformedMessage, "ENV"),
        (b"OBS=1,2;ENV=2", UnknownEnv, "ENV"),
        (b"OBS=1,2;ENV=0||OBS=1,2;ENV=0", RepeatedEnv, "ENV"),
        (b"ENV=0;RESET=1", MalformedMessage, "OBS"),
        (b"OBS=1;ENV=0", WrongCount, "OBS"),
        (b"OBS=1,nan;ENV=0", NonFiniteValue, "OBS"),
        (b"OBS=1,2;ENV=0;RESET=2", MalformedMessage, "RESET"),
        (b"OBS=1,2;ENV=0;RESET=11", MalformedMessage, "RESET"),
        (b"OBS=1,2;ENV=0;RESET=1;RESET=1", MalformedMessage, "RESET"),
        (b"nonsense", MalformedMessage, "message"),
    ],
)
def test_observations_that_are_wrong_are_refused(line: bytes, kind: Any, field: str, compiled: bool) -> None:
    with pytest.raises(kind) as caught:
        observed(Codec(EnvSpec(2, 1, num_envs=2), compiled=compiled), line)
    assert (type(caught.value), caught.value.field) == (kind, field)


@given(mutated(), st.sampled_from([1, 3]))
@example(b"OBS=1,2;RESET=1;ENV=2||OBS=3,4;ENV=1", 3)
@examples(500)
def test_mutated_observations_give_protocol_errors_and_both_kernels_agree(line: bytes, num_envs: int) -> None:
    outcomes: list[Any] = []
    for use_compiled in (True, False):
        try:
            outcomes.append(observed(Codec(EnvSpec(2, 1, num_envs=num_envs), compiled=use_compiled), line))
        except ProtocolError as error:
            outcomes.append((type(error), error.env_id, error.field))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "line",
    [
        b"OBS=1,2;REW=" + b"9" * 60 + b";DONE=0;ENV=0",
        b"OBS=1, " + b"9" * 60 + b";REW=0;DONE=0;ENV=0",
        b"OBS=1, 3#4;REW=0;DONE=0;ENV=0" + b" " * 80,
        b"OBS=1,nan;REW=0;DONE=0;ENV=0" + b" " * 80,
    ],
    ids=["reward", "beyond", "hash", "nan"],
)
def test_both_kernels_point_to_the_same_place(line: bytes) -> None:
    spec, said = EnvSpec(2, 1, num_envs=1), set()
    for use_compiled in (True, False):
        buffers = StepBuffers.of(spec)
        buffers.pending[:] = 1
        with pytest.raises(NonFiniteValue) as caught:
            Codec(spec, compiled=use_compiled).decode_states(line, buffers)
        said.add(str(caught.value))
    assert len(said) == 1


@pytest.mark.parametrize("line", [b"CT=0.5,-1", b"0.1,-0.q", b"", b"\x12ESET"])
def test_what_is_wrong_with_an_rlbase_request_is_env_0s_in_both_kernels(line: bytes) -> None:
    for use_compiled in (True, False):
        with pytest.raises(ProtocolError) as caught:
            Codec(EnvSpec(2, 2, EnvType.RLBASE), compiled=use_compiled).decode_requests(line, ActionBatch(1, 2))
        assert caught.value.env_id == 0
