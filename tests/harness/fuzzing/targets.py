"""The readers that get mutated messages. A target is called with a random generator and feeds itself one message.

What a target raises beside UeRlError is a fault of the project, and so is a message on which the compiled and the pure
readers disagree. State that a peer could keep alive (sessions, rings) is kept from message to message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.harness.fuzzing.corpus import corpus
from tests.harness.fuzzing.servers import Engines, Policies
from tests.harness.lab import Lab
from ue_rl.bridges.calls import answer_call
from ue_rl.connections.shm.attach import spec_of
from ue_rl.devtools.check.garbage import mutate
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.memory.header import HEADER_SIZE
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.offer import parse_offer, proves, refusal
from ue_rl.protocol.memory.ring import Ring
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import Codec, decode_handshake, encode_handshake
from ue_rl.protocol.text.calls import read_ok, read_picture, read_rewards, read_values, understood
from ue_rl.protocol.text.kernels_pure import find_number
from ue_rl.protocol.text.notices import ended_by, notice_of
from ue_rl.system import errors
from ue_rl.system.compiled import load

Target = Callable[[random.Random], bytes]
Pairs = Sequence[tuple[bytes, bytes]]
_BIG = 200_000  # numbers in a session's arrays: larger ones would measure the memory of this machine


def targets(vectors: Path) -> dict[str, Target]:
    """All targets by name; each returns the message that it was fed, or raises with it in `args`."""
    found = corpus(vectors)
    lines = {kind: [line for _, line in pairs] for kind, pairs in found.items()}
    made: dict[str, Target] = {
        "handshake": partial(_mutated, _read_handshake, lines["handshake"]),
        "notices": partial(_mutated, _read_notice, lines["notice"] + lines["handshake"]),
        "answers": partial(_mutated, _read_answer, lines["answer"]),
        "calls": partial(_mutated, _Calls(), lines["call"]),
        "offer": partial(_mutated, _read_offer, [b"ue_rl_1_ab:" + b"0f" * 16, b"SHM=ACCEPT;PROOF=" + b"0f" * 16]),
        "requests": _Sessions("request", found["request"]),
        "replies": _Sessions("reply", found["reply"]),
        "observations": _Sessions("observation", found["reply"]),
        "numbers": _Regions(lines["reply"]),
        "engine": Engines(lines["request"] + lines["call"]),
        "policy": Policies(lines["reply"]),
        "header": _Headers(),
        "ring": _Rings(),
    }
    return made


def _mutated(read: Callable[[bytes], None], lines: Sequence[bytes], rng: random.Random) -> bytes:
    message = mutate(rng, rng.choice(lines), lines)
    _feed(read, message)
    return message


def _feed(read: Callable[[bytes], None], message: bytes) -> None:
    try:
        read(message)
    except errors.UeRlError as error:
        str(error)  # it must be possible to say it
    except Exception as error:
        raise AssertionError(f"{error!r} for {message[:2000]!r}") from error


# -- without state


def _read_handshake(message: bytes) -> None:
    spec = decode_handshake(message)
    if spec.version and spec.obs_size < 1000 and decode_handshake(encode_handshake(spec)) != spec:
        raise AssertionError("a handshake does not come back")


def _read_notice(message: bytes) -> None:
    notice_of(message)
    ended_by(message)


def _read_answer(message: bytes) -> None:
    text = understood("GET", message)
    for read in (read_ok, read_values, read_picture, partial(read_rewards, count=2)):
        try:
            read(text)
        except errors.UeRlError as error:
            str(error)


def _read_offer(message: bytes) -> None:
    proves(message, b"\x0f" * 16)
    for read in (lambda: refusal(message), lambda: parse_offer(message.decode("ascii", "replace"))):
        try:
            read()
        except errors.UeRlError as error:
            str(error)


class _Calls:
    def __init__(self) -> None:
        self._bridge = Lab(2)

    def __call__(self, message: bytes) -> None:
        answer = answer_call(self._bridge, message)
        if b"\n" in answer or (b"code%20failed" in answer and b"shapes" not in answer):  # goals of different sizes
            raise AssertionError(answer)
        self._bridge.log.clear()
        self._bridge.scales.clear()
        self._bridge.pauses.clear()


# -- compiled and pure readers


class _Sessions:
    """Lines under the handshakes of the golden vectors, read by both kinds of kernels."""

    def __init__(self, kind: str, pairs: Pairs) -> None:
        self._kind, self._pairs, self._lines = kind, pairs, [line for _, line in pairs]
        self._made: dict[bytes, tuple[EnvSpec, list[Codec]] | None] = {}

    def __call__(self, rng: random.Random) -> bytes:
        config, line = rng.choice(self._pairs)
        if config not in self._made:
            self._made[config] = self._session(config)
        session = self._made[config]
        message = mutate(rng, line, self._lines)
        if session is not None:
            spec, codecs = session
            only = rng.choice((None, None, None, 0))
            results = [self._read(spec, codec, message, only) for codec in codecs]
            if any(result != results[0] for result in results):
                raise AssertionError(f"kernels disagree: {results!r:.2000} for {config!r} {message[:2000]!r}")
        return message

    @staticmethod
    def _session(config: bytes) -> tuple[EnvSpec, list[Codec]] | None:
        try:
            spec = decode_handshake(config)
        except errors.UeRlError:
            return None
        if spec.num_rows * max(spec.obs_size, spec.act_size) > _BIG:
            return None
        return spec, [Codec(spec, compiled=False), Codec(spec)]

    def _read(self, spec: EnvSpec, codec: Codec, message: bytes, only: int | None) -> Any:
        line = message.replace(b"\n", b" ")
        try:
            found = codec.find_number(line, 0, len(line))
            wanted = max(found[1], 0) if len(line) % 2 else 7
            if self._kind == "request":
                batch = ActionBatch.of(spec)
                rows = codec.decode_requests(line, batch, only, number=wanted)
                read = batch.actions.tobytes(), batch.command.tobytes(), batch.options, batch.parameters
                return found, rows, read
            buffers = StepBuffers.of(spec)
            if self._kind == "reply":
                buffers.pending[:] = 1
                rows = codec.decode_states(line, buffers, only, number=wanted)
                states = buffers.obs.tobytes(), buffers.rewards.tobytes(), buffers.dones.tobytes()
                return found, rows, states, buffers.infos
            if spec.groups:
                return None
            envs = codec.decode_observations(line, buffers.obs, buffers.dones)
            return envs.tolist(), buffers.obs.tobytes(), buffers.dones.tobytes()
        except errors.UeRlError as error:
            return type(error).__name__, str(error)
        except Exception as error:
            raise AssertionError(f"{error!r} for {spec.text!r} {message[:2000]!r}") from error


class _Regions:
    """What has come on three env sockets, of which a trainer cuts off the numbers; both kernels must say the same."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines, self._cut = lines, getattr(load("kernels"), "cut_numbers", None)

    def __call__(self, rng: random.Random) -> bytes:
        said = [mutate(rng, rng.choice(self._lines), self._lines)[:400] for _ in range(3)]
        regions = [line + rng.choice((b"", b";SEQ=7")) + b"\n" for line in said]
        message, stride = b"".join(regions), max(map(len, regions))
        data = bytearray(b"".join(region.ljust(stride, b"\n") for region in regions))
        fill = np.array([len(region) for region in regions], np.int32)
        right = [line.count(b"\n") == 1 and find_number(line, 0, len(line) - 1)[1] == 7 for line in regions]
        if self._cut is not None:
            wrong = self._cut(data, stride, fill, np.full(3, 7, np.int64))
            ends = [find_number(line, 0, len(line) - 1)[0] if all(right) else len(line) for line in regions]
            if wrong != [*right, False].index(False) or fill.tolist() != ends:
                raise AssertionError(f"cut_numbers: {wrong}, {fill.tolist()} for {message!r}")
        return message


# -- shared memory


class _Headers:
    """A segment whose header, CONFIG line and counters have been written over."""

    def __init__(self) -> None:
        self._made: list[tuple[bytes, int]] = []
        line = encode_handshake(EnvSpec(3, 2, num_envs=4))
        for config, image, mask_size in ((line, None, 0), (None, None, 0), (line, (2, 3, 3), 4)):
            header, size = plan(4, 3, 2, ring_size=256, config=config, image=image, mask_size=mask_size)
            memory = bytearray(size)
            StepMemory.create(memory, header, config or b"").release()
            self._made.append((bytes(memory), size))

    def __call__(self, rng: random.Random) -> bytes:
        good, _ = rng.choice(self._made)
        memory = bytearray(good)
        for _ in range(1 + int(rng.expovariate(0.7))):
            at = rng.randrange(0, 512, 4) if rng.random() < 0.8 else rng.randrange(0, min(HEADER_SIZE, len(memory)), 4)
            value = rng.choice((0, 1, 2, 7, 8, 255, 4096, 65_536, 2**31 - 1, 2**31, 2**32 - 1, rng.getrandbits(32)))
            memory[at : at + 4] = value.to_bytes(4, "little")
        if rng.random() < 0.05:
            del memory[rng.randrange(len(memory)) :]
        message = bytes(memory[:512])

        def read(_: bytes) -> None:
            found = StepMemory(memory)
            try:
                found.end_of(1)
                found.words.check_step(found.obs, found.rewards, found.dones, found.truncated)
                spec_of(found)
            finally:
                found.release()

        _feed(read, message)
        return message


class _Rings:
    """A command ring whose other side writes what it likes."""

    def __init__(self) -> None:
        self._memory = bytearray(256)
        self._ring = Ring(self._memory)

    def __call__(self, rng: random.Random) -> bytes:
        memory = self._memory
        for _ in range(rng.randrange(1, 4)):
            at = rng.choice((0, 4, rng.randrange(0, 256, 4), rng.randrange(0, 256, 4)))
            value = rng.choice((0, 8, 16, 240, 248, 256, 2**31, 2**32 - 1, 2**32 - 2, rng.randrange(0, 256)))
            memory[at : at + 4] = value.to_bytes(4, "little")
        message = bytes(memory)
        _feed(self._use, message)
        return message

    def _use(self, message: bytes) -> None:
        try:
            for _turn in range(40):  # more than fit
                if self._ring.try_read() is None:
                    break
            else:
                raise AssertionError("a ring never ends")
            self._ring.try_write(b"hello")
        except errors.UeRlError:
            self._ring.repair()
            self._ring = Ring(self._memory)
            raise
