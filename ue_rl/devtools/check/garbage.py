"""What a hostile or broken peer makes of a line."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_MOST_BYTES = 65_535
_NUMBER = re.compile(rb"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_TOKENS = (
    b"||", b";", b"=", b",", b":", b"\n", b"\r\n", b"\0", b" ", b"\t", b"\xa0", b"%", b"%00", b"%7B%7D", b"%ff", b"(",
    b")", b"[", b"]", b"nan", b"-inf", b"ACT=", b"ACT=RESET", b"OBS=", b"REW=", b"DONE=", b"ENV=", b"AGENT=", b"SEED=",
    b"OPTIONS=", b"SET=", b"INFO=", b"MASK=", b"SEQ=", b";SEQ=7", b"TRUNC=1", b"RESET=1", b"CONFIG:", b"VERSION=1",
    b"CHANNEL=ANY", b"FEATURES=", b"AGENTS=a:2", b"PARAMS=a:1", b"SHM=", b"SHM=ACCEPT;PROOF=", b"BUSY", b"ERROR=",
    b"GET", b"GOALS=", b"OBS_SPACE=", b"ACT_SPACE=", b"BOX(", b"DICT(", b"TUPLE(", b"DISCRETE(", b"IMAGE=HWC(2,2,3)",
    b"TRAINING_COMPLETE", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
    b"OPTIONS=%7B%22a%22%3A%5B%5D%7D",
)  # fmt: skip
_NUMBERS = (
    b"0", b"-0", b"1", b"-1", b"2", b"255", b"65535", b"65536", b"65537", b"16777216", b"16777217", b"2147483647",
    b"2147483648", b"4294967296", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"1e38",
    b"3.5e38", b"1e-45", b"1e-999", b"1e999999999999", b"0.1", b".5", b"5.", b"1e", b"0x10", b"1_0", b"00000000001",
    b"1" * 40, b"0." + b"3" * 60,
)  # fmt: skip


def mutate(rng: random.Random, line: bytes, others: Sequence[bytes]) -> bytes:
    """`line` with one to six changes; every tenth time as it is, with or without its line feed."""
    data = bytearray(line)
    if rng.random() < 0.1:
        count = 0
    else:
        count = min(6, 1 + int(rng.expovariate(0.9)))
    for _ in range(count):
        _CHANGES[rng.randrange(len(_CHANGES))](rng, data, others)
        if len(data) > _MOST_BYTES:
            del data[_MOST_BYTES:]
    return bytes(data)


def _flip(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _bit(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _insert(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(_TOKENS)


def _delete(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + 1 + int(rng.expovariate(0.2))]


def _double(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + 1 + int(rng.expovariate(0.05))]
    times = 2000
    if rng.random() < 0.98:
        times = rng.choice((1, 1, 2, 3, 50))
    data[at:at] = piece * min(times, _MOST_BYTES // max(len(piece), 1))


def _splice(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = rng.choice(others)
    at = rng.randrange(len(data) + 1)
    start = rng.randrange(len(other) + 1)
    data[at : at + rng.randrange(20)] = other[start : start + 1 + int(rng.expovariate(0.05))]


def _number(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    found = list(_NUMBER.finditer(bytes(data[:4096])))
    if found:
        start, end = rng.choice(found).span()
        data[start:end] = rng.choice(_NUMBERS)


def _cut(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _swap(rng: random.Random, data: bytearray, others: Sequence[bytes]) -> None:
    separator = rng.choice((b";", b",", b"||", b"="))
    parts = bytes(data).split(separator)
    one = rng.randrange(len(parts))
    other = rng.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]
    data[:] = separator.join(parts)


_CHANGES = (_flip, _bit, _insert, _delete, _double, _splice, _number, _number, _cut, _swap)
