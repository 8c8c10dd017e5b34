"""Words, checked copies and the Bell: no wake-up lost, nobody burns a core."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ue_rl.system.compiled import load

words = load("sync")
OWN, PEER, OWN_FLAG, PEER_FLAG, RING = 0, 8, 16, 20, 24


def test_words() -> None:
    memory = bytearray(64)
    words.store_u64(memory, 8, 2**64 - 1)
    assert words.load_u64(memory, 8) == 2**64 - 1
    assert words.increment_u64(memory, 8) == 0
    assert words.increment_u64(memory, 8) == 1
    words.store_u32(memory, 4, 0xFFFFFFFF)
    assert memory[:16] == bytes(4) + b"\xff" * 4 + b"\1" + bytes(7)
    assert words.compare_exchange_u32(memory, 4, 0xFFFFFFFF, 7)
    assert not words.compare_exchange_u32(memory, 4, 0xFFFFFFFF, 8)
    assert words.load_u32(memory, 4) == 7
    for offset in (-8, 4, 57, 64, 2**62):
        with pytest.raises((ValueError, OverflowError)):
            words.load_u64(memory, offset)
    for call in (words.store_u32, words.store_u64):
        with pytest.raises((ValueError, TypeError)):
            call(bytes(16), 0, 1)


@pytest.mark.parametrize("size", [1, 7, 4095, 4096, 4097, 20_000])
def test_finite_checks_find_the_first_bad_number(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.normal(size=size).astype(np.float32)
    values[rng.integers(0, size, 3)] = [0.0, -0.0, np.finfo(np.float32).max]
    target = np.empty_like(values)
    assert words.first_nonfinite(values) == -1
    assert words.copy_finite(target, values) == -1
    np.testing.assert_array_equal(target, values)
    for at in {0, size // 2, size - 1}:
        for bad in (np.nan, np.inf, -np.inf):
            spoilt = values.copy()
            spoilt[at] = bad
            spoilt[-1] = np.nan
            assert words.first_nonfinite(spoilt) == at
            assert words.copy_finite(target, spoilt) == at
    with pytest.raises(ValueError, match="bytes into"):
        words.copy_finite(target, values[:-1])


def test_check_step_names_what_is_wrong() -> None:
    obs, rewards = np.zeros((3, 2), np.float32), np.zeros(3, np.float32)
    dones, cut = np.array([0, 1, 1], np.uint8), np.array([0, 0, 1], np.uint8)
    assert words.check_step(obs, rewards, dones, cut) == 0
    for array, at, value, expected in (
        (cut, 0, 1, (4, 0)), (cut, 1, 2, (4, 1)), (dones, 1, 255, (3, 1)), (dones, 2, 0, (4, 2)),
        (rewards, 2, np.inf, (2, 2)), (obs, (1, 1), np.nan, (1, 3)),
    ):  # fmt: skip
        before = array.copy()
        array[at] = value
        assert words.check_step(obs, rewards, dones, cut) == expected
        array[:] = before
    with pytest.raises(ValueError, match="disagree"):
        words.check_step(obs, rewards, dones[:2], cut)


def test_bell_refuses_places_outside() -> None:
    for places in ((0, 60), (4, 8), (-8, 0), (0, 8, 62), (0, 8, 16, 20, 2**40)):
        with pytest.raises((ValueError, OverflowError)):
            words.Bell(bytearray(64), *places)
    bell = words.Bell(bytearray(64), OWN, PEER)
    bell.release()
    bell.release()
    for call in (bell.publish, bell.peek, bell.nudge, lambda: bell.wait(0)):
        with pytest.raises(ValueError, match="released"):
            call()


def bells(link: str, spin_us: float) -> tuple[object, object, list[socket.socket]]:
    """Both ends over one buffer: with a socket, a futex, or neither."""
    memory = bytearray(64)
    flags = (OWN_FLAG, PEER_FLAG) if link != "naps" else (0, 0)
    socks = list(socket.socketpair()) if link == "socket" else []
    left, right = socks or (None, None)
    for sock in socks:
        sock.settimeout(None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, b"\0" * 8 + (50_000).to_bytes(8, "little"))
    return (
        words.Bell(memory, OWN, PEER, *flags, 0, left, spin_us),
        words.Bell(memory, PEER, OWN, *flags[::-1], 0, right, spin_us),
        socks,
    )


@pytest.mark.skipif(os.name != "posix", reason="SO_RCVTIMEO as bytes is POSIX's")
@pytest.mark.parametrize("link", ["socket", "futex", "naps"])
@pytest.mark.parametrize("spin_us", [0.0, 20.0])
def test_lock_step_without_a_lost_wake_up(link: str, spin_us: float, slack: float) -> None:
    """Thousands of turns with random delays on both sides; a lost wake-up would cost a slice each."""
    client, engine, socks = bells(link, spin_us)
    rounds = 1500
    rng = np.random.default_rng(1)
    pauses = rng.integers(0, 3, (2, rounds)) * rng.integers(0, 60, (2, rounds))

    def busy(us: int) -> None:
        end = time.perf_counter() + us / 1e6
        while time.perf_counter() < end:
            pass

    def serve() -> None:
        for turn in range(rounds):
            while engine.wait(turn, 0, 1000) == turn:
                pass
            busy(int(pauses[1, turn]))
            assert engine.publish() == turn + 1

    thread = threading.Thread(target=serve)
    thread.start()
    late = 0
    for turn in range(rounds):
        busy(int(pauses[0, turn]))
        assert client.publish() == turn + 1
        begun = time.monotonic()
        while client.wait(turn, 0, 1000) == turn:
            pass
        late += time.monotonic() - begun > 0.5 * slack
        assert client.peek() == turn + 1
    thread.join()
    assert late == 0
    for sock in socks:
        sock.close()


@pytest.mark.skipif(os.name != "posix", reason="SO_RCVTIMEO as bytes is POSIX's")
@pytest.mark.parametrize("link", ["socket", "futex", "naps"])
def test_a_waiting_side_leaves_the_core_alone(link: str) -> None:
    client, _, socks = bells(link, 50.0)
    for _ in range(2):  # it looks in full at first, and naps briefly
        assert client.wait(0, 0, 100) == 0
    cpu, wall = time.thread_time(), time.perf_counter()
    while time.perf_counter() - wall < 0.4:
        assert client.wait(0, 0, 100) == 0
    share = (time.thread_time() - cpu) / (time.perf_counter() - wall)
    assert share < 0.05
    assert client.sleeps > 0
    for sock in socks:
        sock.close()


def test_the_end_of_the_socket_is_noticed_at_once(slack: float) -> None:
    client, engine, socks = bells("socket", 0.0)
    threading.Timer(0.05, socks[1].shutdown, (socket.SHUT_RDWR,)).start()  # closing is not enough: a Bell has its own
    begun = time.monotonic()
    with pytest.raises(ConnectionResetError):
        while True:
            client.wait(0, 0, 100)
    assert time.monotonic() - begun < slack
    engine.publish()  # the last word of a peer that then closed still counts
    assert client.wait(0, 0, 100) == 1
    socks[0].close()


def test_a_message_in_the_ring_wakes_the_sleeper(slack: float) -> None:
    memory = bytearray(64)
    client = words.Bell(memory, OWN, PEER, OWN_FLAG, PEER_FLAG, RING, None, 0.0)
    engine = words.Bell(memory, PEER, OWN, PEER_FLAG, OWN_FLAG, 0, None, 0.0)

    def write() -> None:
        words.store_u32(memory, RING, 8)
        engine.nudge()

    timer = threading.Timer(0.05, write)
    timer.start()
    begun = time.monotonic()
    client.wait(0, 0, 5000)
    assert time.monotonic() - begun < slack
    timer.join()
    assert client.wait(0, 0, 1) == 0  # already seen as different from 0: comes back at once


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_gets_through_a_wait() -> None:
    code = (
        "import signal\nfrom ue_rl.system.compiled import load\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # started in the background it would be ignored
        "bell = load('sync').Bell(bytearray(64), 0, 8, 16, 20)\n"
        "print('waiting', flush=True)\n"
        "while True: bell.wait(0, 0, 100)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"waiting\n"
    process.send_signal(signal.SIGINT)
    _, trace = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in trace


def test_a_peer_that_wakes_no_futex_is_not_waited_for_in_vain(slack: float) -> None:
    """An engine in a language without futexes says so with 3 in its flag (docs/shared-memory.md, section 4)."""
    memory = bytearray(64)
    client = words.Bell(memory, OWN, PEER, OWN_FLAG, PEER_FLAG, 0, None, 0.0)
    words.store_u32(memory, PEER_FLAG, 3)
    timer = threading.Timer(0.05, lambda: words.increment_u64(memory, PEER))  # and nobody rings
    timer.start()
    begun = time.monotonic()
    assert client.wait(0, 0, 5000) == 1
    assert time.monotonic() - begun < slack
    timer.join()


def test_masks_are_copied_as_flags_and_checked() -> None:
    """Against the same in NumPy, at random: 3 envs of 2 agents, whose actions have other choices."""
    rng = np.random.default_rng(0)
    counts = [[2, 3, 1], [4, 0, 0]]
    ends = np.array([[2, 5, 6], [4, 4, 4]], np.int32)
    outcomes = set()
    for _ in range(500):
        given = rng.choice(np.array([0, 1, 2, 255], np.uint8), (6, 6), p=[0.5, 0.2, 0.2, 0.1])
        asked, over, there = (rng.integers(0, 2, 6).astype(np.uint8) for _ in range(3))
        copied = np.full((6, 6), 9, np.uint8)
        expected = -1
        for row, number in itertools.product(range(6), range(3)):
            start, count = sum(counts[row % 2][:number]), counts[row % 2][number]
            empty = count > 0 and not given[row, start : start + count].any()
            if expected < 0 and empty and asked[row] and there[row] and not over[row]:
                expected = row * 3 + number
        assert words.copy_masks(copied, given, ends, asked, over, there) == expected
        assert (copied == (given != 0)).all()
        outcomes.add(expected)
    assert -1 in outcomes
    assert len(outcomes) > 5
    ones = np.ones(6, np.uint8)
    for wrong_ends in (np.array([[3, 2], [4, 4]]), np.array([[2, 7], [4, 4]]), np.array([[-1, 2]]), np.zeros((4, 1))):
        with pytest.raises(ValueError, match="disagree"):
            words.copy_masks(copied, given, wrong_ends.astype(np.int32), ones, ones, ones)
    for position, wrong in ((1, given[:5].copy()), (3, ones[:4]), (4, ones[:4]), (5, ones[:4])):
        arrays = [copied, given, ends, ones, ones, ones]
        arrays[position] = wrong
        with pytest.raises(ValueError, match="disagree"):
            words.copy_masks(*arrays)
    with pytest.raises(TypeError):
        words.copy_masks(copied, given, ends)


@pytest.mark.skipif(os.name != "posix", reason="a descriptor of its own is POSIX's")
def test_who_waits_reads_no_other_file_when_the_socket_is_closed_meanwhile() -> None:
    """The number of a closed descriptor is given to the next file that is opened, here one with bytes in it."""
    client, _, socks = bells("socket", 0.0)
    number, others = socks[0].fileno(), []

    def close() -> None:
        socks[0].close()
        one, other = socket.socketpair()
        others.extend([one, other])
        assert number in (one.fileno(), other.fileno())
        for sock in others:
            sock.sendall(b"not a doorbell")

    timer = threading.Timer(0.02, close)
    timer.start()
    for _ in range(8):
        client.wait(0, 0, 10)
    timer.join()
    assert [sock.recv(100) for sock in others] == [b"not a doorbell"] * 2
    for sock in (*others, *socks):
        sock.close()


def test_what_is_taken_is_checked_as_a_copy_and_a_late_write_changes_nothing() -> None:
    memory = bytearray(1024)
    view = np.frombuffer(memory, np.uint8)
    given = view[256:320].view(np.float32).reshape(4, 4), view[320:336].view(np.float32), view[336:340], view[340:344]
    taken = tuple(np.zeros_like(array) for array in given)
    bell = words.Bell(memory, OWN, PEER, OWN_FLAG, PEER_FLAG, 0, None, 0.0)
    bell.bind(np.zeros((4, 1), np.float32), *given, 512, 0, 0, taken)
    given[0][:], given[1][:], given[2][:] = 3, 2, 1
    assert bell.take() == 0
    given[0][:] = np.nan
    assert taken[0].tolist() == [[3.0] * 4] * 4
    assert (taken[1].tolist(), taken[2].tolist(), taken[3].tolist()) == ([2] * 4, [1] * 4, [0] * 4)
    assert bell.take() == (1, 0)
    given[0][:], given[2][2] = 0, 0
    given[3][2] = 1
    assert bell.take() == (4, 2)
    before, other = taken[0].copy(), np.zeros_like(taken[0])
    given[0][:], given[3][2] = 5, 0
    bell.take_into(other)
    assert bell.take() == 0
    assert (other == 5).all()
    assert (taken[0] == before).all()
    for wrong_array in (other[:2], other.astype(np.float64), other.tolist(), np.ascontiguousarray(other.T[:, :2])):
        with pytest.raises((TypeError, ValueError, BufferError)):
            bell.take_into(wrong_array)
    assert bell.take() == 0
    for wrong in (taken[:3], [*taken], (*taken[:3], np.zeros(3, np.uint8)), (taken[0][:2], *taken[1:])):
        with pytest.raises((TypeError, ValueError)):
            bell.bind(np.zeros((4, 1), np.float32), *given, 512, 0, 0, wrong)
    bell.bind(np.zeros((4, 1), np.float32), *given, 512, 0, 0)
    with pytest.raises(ValueError, match="copies nothing"):
        bell.take_into(other)
    bell.release()
