"""What functions may return: what becomes JSON, and what cannot."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import itertools
import pathlib
import uuid
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ue_rl.system.json_values import MAX_VALUES


class Kind(enum.Enum):
    BERRY = "berry"
    FIRE = 2


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: float
    y: float


@dataclasses.dataclass
class Thing:
    name: str
    kind: Kind = Kind.BERRY
    at: Any = None


def counted() -> Iterator[Any]:
    yield 1
    yield Kind.FIRE


def breaks() -> Iterator[Any]:
    yield 1
    raise LookupError("no more")


class Tensor:
    """As tensors and series of other libraries are."""

    def tolist(self) -> list[float]:
        return [1.0, 2.0]


CONVERTED: list[tuple[Any, Any]] = [
    (None, None), (True, True), ("half \ud800", "half \ud800"), (2**64 - 1, 2**64 - 1), (-(2**63), -(2**63)),
    (Kind.BERRY, "berry"), (Level.LOW, 1), ({Kind.FIRE: Kind.BERRY, Level.LOW: 0}, {"2": "berry", "1": 0}),
    (Thing("a", at=Thing("b")), {"name": "a", "kind": "berry", "at": {"name": "b", "kind": "berry", "at": None}}),
    (Point(1, 2), [1, 2]), ((1, (2,)), [1, [2]]), ({3, 1, 2}, [1, 2, 3]), ({"b", 1}, ["b", 1]), (frozenset(), []),
    (range(3), [0, 1, 2]), (collections.deque([1]), [1]), (counted(), [1, 2]), ({"a": 1}.items(), [["a", 1]]),
    (map(str, [1]), ["1"]), (collections.Counter("aab"), {"a": 2, "b": 1}), (Tensor(), [1.0, 2.0]),
    (datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.timezone.utc), "2020-01-02T03:00:00+00:00"),
    (datetime.time(3, 4), "03:04:00"), (datetime.timedelta(minutes=1.5), 90.0), (decimal.Decimal("1.10"), "1.10"),
    (Fraction(1, 3), "1/3"), (uuid.UUID(int=1), str(uuid.UUID(int=1))), (pathlib.PurePosixPath("a/b"), "a/b"),
    (ipaddress.ip_address("::1"), "::1"), (b"\xff\x00", "/wA="), (memoryview(b"a"), "YQ=="),
    (np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (np.longdouble(2), 2.0), (np.uint64(2**64 - 1), 2**64 - 1),
    (np.bool_(True), True), (np.str_("a"), "a"), (np.array(3.0), 3.0), (np.zeros((1, 2), np.uint8), [[0, 0]]),
    (np.array([Thing("a")]), [{"name": "a", "kind": "berry", "at": None}]), (np.longdouble([1, 2]), [1.0, 2.0]),
    (np.ma.masked_array([1, 2], [False, True]), [1, None]), (np.ma.masked, None),
    (np.zeros(1, [("hp", "i4"), ("at", "f4", 2)]), [{"hp": 0, "at": [0.0, 0.0]}]),
    (np.datetime64("2020-01-02"), "2020-01-02"), (np.timedelta64(5, "m"), 300.0), (np.datetime64("NaT", "s"), None),
    ({np.int64(8): 2, np.float32(0.5): 3, None: 4, True: 5, 6: 7}, {"8": 2, "0.5": 3, "null": 4, "true": 5, "6": 7}),
    ({datetime.date(2020, 1, 2): 1, pathlib.PurePosixPath("a"): 2}, {"2020-01-02": 1, "a": 2}),
]  # fmt: skip


def circle() -> list[Any]:
    found: list[Any] = []
    found.append({"a": found})
    return found


def deep() -> Any:
    found: Any = 0
    for _ in range(3000):
        found = [found]
    return found


def endless() -> Iterator[Any]:
    """Of large values: what is counted is the numbers in them."""
    return itertools.repeat(np.zeros(1000))


REFUSED: list[tuple[Any, str]] = [
    (float("nan"), "nan at result"), ({"a": {"b": [1, float("inf")]}}, "inf at result['a']['b'][1]"),
    (Thing("a", at=float("-inf")), "-inf at result.at"), (np.array([[0, np.nan]]), "nan at result[0][1]"),
    (np.float32("nan"), "nan at result"), (decimal.Decimal("NaN"), "NaN at result"), (1j, "1j at result"),
    (np.complex64(1), "(1+0j) at result"), (np.timedelta64(5, "Y"), "5 years at result"),
    ({float("nan"): 1}, "nan at a key of result"), ({(1, 2): 3}, "a key of type tuple at result"),
    ({"b": {1: 1, "1": 2}}, "two keys that are both '1' in JSON, at result['b']"), ([object()], "object at result[0]"),
    (Thing, "type at result"), (breaks, "function at result"), (Exception("a"), "Exception at result"),
    (2**64, "an integer of more than 64 bits at result"), (10**5000, "an integer of more than 64 bits at result"),
    (circle(), "a list that contains itself, at result[0]['a']"), (deep(), "more than 100 levels"),
    (endless(), f"more than {MAX_VALUES:,} values"), (np.zeros(MAX_VALUES), f"more than {MAX_VALUES:,} values"),
]  # fmt: skip
