"""What the kernels make of arrays, and refuse where C would read or write beyond them: no text is read here."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.text import kernel_forms

fast_kernels = pytest.importorskip(
    "ue_rl.protocol.text._kernels", reason="no C compiler built the kernels in this installation"
)

WRONG: dict[int, list[Any]] = {  # argument of decode_states: values that it must refuse
    0: ["text"],
    1: [np.zeros((2, 2)), np.zeros((2, 2), np.int32), np.zeros(4, np.float32), np.zeros((2, 4), np.float32)[:, ::2],
        np.frombuffer(bytearray(17), np.float32, 4, 1).reshape(2, 2), np.zeros((3, 2), np.float32),
        np.zeros((2, 2), ">f4"), np.frombuffer(bytes(16), np.float32).reshape(2, 2), np.zeros((0, 2), np.float32)],
    2: [np.zeros(3, np.float32), np.zeros(2, np.int32)],
    3: [np.zeros(2, np.int8), np.zeros(3, np.uint8)],
    6: [np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64), np.zeros((1, 2), np.int32)],
    7: [np.zeros((2, 2), np.int8), np.zeros((2, 1), np.uint8), np.zeros(3, np.uint8), "masks"],
    8: [np.zeros((1, 2), np.int64), np.zeros(2, np.int32), "layout"],
    9: [-1, 2, 2**70], 10: [99, -1], 11: ["MULTI", kernel_forms.AGENTS], 12: [2, 2**70],
}  # fmt: skip


@pytest.mark.parametrize(("at", "value"), [(at, value) for at, values in WRONG.items() for value in values])
def test_decoders_check_what_python_gives_them(at: int, value: Any) -> None:
    buffers = StepBuffers(2, 2)
    spans = np.zeros((2, 2), np.int32)
    args: list[Any] = [b"x", buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.pending, spans,
                       None, None, 0, 1, 0, -1]  # fmt: skip
    assert fast_kernels.decode_states(*args)[0] == kernel_forms.NOT_A_FIELD
    args[at] = value
    with pytest.raises((TypeError, ValueError, BufferError, OverflowError)):
        fast_kernels.decode_states(*args)


@pytest.mark.parametrize(
    ("call", "at", "value"),
    [
        ("encode_states", 0, np.zeros(4, np.int16)),
        ("encode_states", 0, np.zeros(2, np.int64)),
        ("encode_states", 1, np.zeros((2, 2), np.int32)),
        ("encode_states", 3, np.zeros(2, np.int8)),
        ("encode_actions", 0, np.zeros(2, np.float32)),
        ("encode_actions", 1, np.zeros((2, 2), np.int32)),
        ("encode_actions", 1, np.zeros(4, np.float32)),
    ],
)
def test_encoders_check_what_python_gives_them(call: str, at: int, value: Any) -> None:
    ids, obs, flags = np.array([0, 1], np.int32), np.zeros((2, 2), np.float32), np.zeros(2, np.uint8)
    args: list[Any] = [ids, obs, np.zeros(2, np.float32), flags, flags, None, None, 0]
    if call == "encode_actions":
        args = [ids, obs, None, 0, True]
    getattr(fast_kernels, call)(*args)
    args[at] = value
    with pytest.raises(TypeError):
        getattr(fast_kernels, call)(*args)


def test_every_failed_allocation_is_a_memory_error() -> None:
    """Among them a list of lines that was made before its lines could be: it was once given out, full of NULLs."""
    _testcapi = pytest.importorskip("_testcapi", reason="this Python has no way to make allocations fail")
    n, size = 3, 300  # more numbers than the decoder keeps on the stack
    obs, zeros, flags = np.full((n, size), 0.1, np.float32), np.zeros(n, np.float32), np.zeros(n, np.uint8)
    ids, spans = np.arange(n, dtype=np.int32), np.zeros((n, 2), np.int32)
    ask_spans = np.zeros((n, 4), np.int32)
    buffers, batch = StepBuffers(n, size), ActionBatch(n, size)
    digits = b"0." + b"1234567890" * 20  # a number that takes the slow way
    line = b"OBS=" + b",".join([digits] * size) + b";REW=0;DONE=0;ENV=1"
    request = b"ACT=" + b",".join([b"1"] * size) + b";ENV=1"
    state = (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, buffers.pending, spans, None, None)
    asked = (batch.actions, batch.command, batch.seeds, ask_spans, None)
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (fast_kernels.encode_actions, (ids, obs, None, 0, True)),
        (fast_kernels.encode_actions, (ids, obs, None, 0, False)),
        (fast_kernels.encode_states, (ids, obs, zeros, flags, flags, None, None, 0)),
        (fast_kernels.decode_states, (line, *state, 0, len(line), 0, -1)),
        (fast_kernels.decode_requests, (request, *asked, 0, len(request), 0, -1)),
        (fast_kernels.own_dicts, ([{}] * 300, "a", 1)),  # more than Python keeps for later
        (fast_kernels.write_choices, (np.arange(n), np.array([[0], [n], [0]]))),
        (fast_kernels.take_step, (obs, zeros, flags, np.zeros(n), np.zeros(n, np.int64), None, 600, 300)),
    ]
    for call, args in calls:
        buffers.pending[:] = 1
        batch.clear()
        right = call(*args)
        assert not isinstance(right, tuple) or call is fast_kernels.take_step
        refused = 0
        for start in range(1, 30):
            buffers.pending[:] = 1
            batch.clear()
            outcome: Any = None
            _testcapi.set_nomemory(start, start + 1)
            try:
                outcome = call(*args)
            except MemoryError:
                refused += 1
            finally:
                _testcapi.remove_mem_hooks()
            assert outcome is None or repr(outcome) == repr(right)
        assert refused > 0, call


def test_each_dict_is_its_owners(kernels: Any) -> None:
    """Whatever was given out before, and is held, changed, or came back changed."""
    kept: list[dict[str, Any]] = [{}] * 6
    held: Any = None
    for _ in range(4):
        given = kernels.own_dicts(kept, "a", False)
        assert given == [{"a": False}] * 6
        assert len(set(map(id, given))) == 6
        assert held is None or not {*map(id, held)} & {*map(id, given)}
        held = given[1:3]
        given[2]["a"], held[0]["b"] = True, 1
        given[3]["b"] = 1
        given[4].clear()
        given[5]["a"] = 0  # equal, and not the same
        changed = list(map(dict.copy, held))
        del given
        assert kernels.own_dicts(kept, "a", False) == [{"a": False}] * 6
        assert held == changed
    with pytest.raises(TypeError):
        fast_kernels.own_dicts((), "a", False)
    with pytest.raises(TypeError):
        fast_kernels.own_dicts(kept, [], False)
    with pytest.raises(TypeError):
        fast_kernels.own_dicts(kept, "a")


def test_dicts_that_nobody_holds_are_given_out_again() -> None:
    kept: list[dict[str, Any]] = [{}] * 3
    value = object()
    first = {*map(id, fast_kernels.own_dicts(kept, "a", value))}
    held = fast_kernels.own_dicts(kept, "a", value)
    assert {*map(id, held)} == first
    assert not first & {*map(id, fast_kernels.own_dicts(kept, "a", value))}
    del held
    kept.clear()
    assert sys.getrefcount(value) == 2


def test_choices_become_rows(kernels: Any) -> None:
    choices = np.array([[0, -1], [3, 2], [0, 5]])
    rows = kernels.write_choices(np.array([[2, -1], [0, 1]]), choices)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, [[2, 4], [0, 6]])
    assert kernels.write_choices(np.empty((0, 2), np.int64), choices).shape == (0, 2)
    for wrong, index in (([[2, -1], [3, 1]], 2), ([[0, -2], [-1, 9]], 1), ([[0, 0], [0, 2**63 - 1]], 3)):
        assert kernels.write_choices(np.array(wrong), choices) == index
    one = kernels.write_choices(np.arange(5), np.array([[0], [5], [-2]]))
    np.testing.assert_array_equal(one, [[-2], [-1], [0], [1], [2]])
    large = 2**24 + 1  # rounded as NumPy does
    assert kernels.write_choices(np.array([large]), np.array([[0], [large + 1], [0]]))[0, 0] == np.float32(large)


def test_the_first_number_that_is_no_choice(kernels: Any) -> None:
    low, high = np.array([[0, -np.inf, -1]], np.float32), np.array([[2, np.inf, 1]], np.float32)
    good = np.array([[0, 0.5, -1], [2, np.nan, 1], [-0.0, np.inf, 0]], np.float32)
    assert kernels.find_no_choice(good, low, high) == -1
    assert kernels.find_no_choice(good[:0], low, high) == -1
    for row, number, value in ((0, 0, 3), (1, 2, 0.5), (2, 0, np.nan), (2, 2, np.inf), (1, 0, -1)):
        wrong = good.copy()
        wrong[row, number] = wrong[2, 2] = value
        assert kernels.find_no_choice(wrong, low, high) == 3 * row + number
    each = np.array([[0], [5]], np.float32)  # bounds of every row
    assert kernels.find_no_choice(each, each, each) == -1
    assert kernels.find_no_choice(each[::-1].copy(), each, each) == 0


@pytest.mark.parametrize("limit", [-1, 0, 3])
@pytest.mark.parametrize("of", [None, np.array([True, False, False, True])], ids=["all", "some"])
def test_a_step_is_taken(kernels: Any, limit: int, of: Any) -> None:
    """Copies, as NumPy makes them; float64 returns of float32 rewards."""
    rng = np.random.default_rng(0)
    obs, rewards = rng.random((4, 3), np.float32), rng.random(4, np.float32)
    dones, returns, started = np.array([0, 1, 0, 0], np.uint8), rng.random(4), np.array([7, 7, 5, 6])
    taken = kernels.take_step(obs, rewards, dones, returns, started, of, 8, limit)
    asked = np.ones(4, bool) if of is None else of
    over = ((dones != 0) | (limit >= 0) & (8 - started >= limit)) & asked
    wanted = obs, rewards * asked, over, returns + rewards * asked
    for got, want in zip(taken, wanted, strict=False):
        assert got.dtype == want.dtype
        assert got.flags.owndata
        assert got.flags.writeable
        np.testing.assert_array_equal(got, want)
    assert taken[4] == np.flatnonzero(over).tolist()
    assert kernels.take_step(None, rewards, dones, returns, started, of, 8, limit)[0] is None


def test_steps_are_refused_where_arrays_disagree() -> None:
    rewards, dones, returns, started = np.zeros(2, np.float32), np.zeros(2, np.uint8), np.zeros(2), np.zeros(2, int)
    with pytest.raises(ValueError, match="number of rows"):
        fast_kernels.take_step(None, rewards, dones, returns[:1], started, None, 0, -1)
    with pytest.raises(TypeError):
        fast_kernels.take_step(None, rewards, dones, returns, started.astype(np.int32), None, 0, -1)
    with pytest.raises(ValueError, match="disagree"):
        fast_kernels.write_choices(np.zeros(3, np.int64), np.zeros((3, 2), np.int64))
    with pytest.raises(ValueError, match="disagree"):
        fast_kernels.find_no_choice(rewards, rewards, rewards[:1])


def test_parts_are_views_of_one_copy(kernels: Any) -> None:
    rows = np.random.default_rng(0).random((3, 12), np.float32)
    before = rows.copy()
    parts = (("last", 11, ()), ("a", 0, (3,)), ("", 3, (2, 1, 2)), ("ü", 7, (4, 1)))
    found = kernels.copy_parts(rows, parts)
    assert list(found) == ["last", "a", "", "ü"]
    owner = found["a"].base
    for name, first, shape in parts:
        want = rows[:, first : first + math.prod(shape)].reshape(3, *shape)
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], want)
        assert found[name].strides == want.strides
        assert found[name].flags.writeable
        assert np.shares_memory(found[name], owner)
        assert not np.shares_memory(found[name], rows)
    kept = found.pop("last")
    del found, owner  # a view keeps the memory alive
    rows[:] = 7
    np.testing.assert_array_equal(kept, before[:, 11])
    assert kernels.copy_parts(rows, ()) == {}
    assert kernels.copy_parts(np.empty((0, 12), np.float32), parts)["a"].shape == (0, 3)


@pytest.mark.parametrize(
    "part", [("x", -1, (2,)), ("x", 11, (2,)), ("x", 12, ()), ("x", 0, (13,)), ("x", 0, (2**62, 2**62)), ("x", 0, (0,))]
)
def test_parts_outside_of_the_rows_are_refused(kernels: Any, part: Any) -> None:
    with pytest.raises(ValueError, match="no such part"):
        kernels.copy_parts(np.zeros((3, 12), np.float32), (part,))


@pytest.mark.parametrize("rows", [np.zeros((3, 12)), np.zeros((3, 24), np.float32)[:, ::2], np.zeros(12, np.float32)])
def test_parts_of_anything_but_rows_are_refused(rows: Any) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        fast_kernels.copy_parts(rows, (("x", 0, (2,)),))
    with pytest.raises(TypeError):
        fast_kernels.copy_parts(np.zeros((3, 12), np.float32), (("x", 0),))


def test_parts_leak_nothing() -> None:
    rows, parts = np.zeros((3, 12), np.float32), (("a", 0, (3,)), ("b", 5, ()))
    names = [sys.getrefcount(part[0]) for part in parts]
    found = fast_kernels.copy_parts(rows, parts)
    owner = found["a"].base
    assert sys.getrefcount(owner) == 4  # two views, `owner`, and the argument
    with pytest.raises(ValueError, match="no such part"):
        fast_kernels.copy_parts(rows, (*parts, ("c", 12, ())))
    del found
    assert sys.getrefcount(owner) == 2
    assert [sys.getrefcount(part[0]) for part in parts] == names
