"""Reads a pickle as data: opcodes are walked, nothing is imported and nothing is called. No I/O.

RLlib's server sends its whole AlgorithmConfig as a pickle. To load it would run what the server wants; here a class is
its name, and an object is its class's name, its arguments and its state.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ue_rl.system.errors import MalformedMessage

MOST_OPCODES = 200_000  # a config of Ray 2.60 has about 3 000


@dataclass(frozen=True)
class Name:
    """A class or function that the pickle names."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Object:
    """What the pickle wants to be made by a call: nothing was called.

    Args:
        made_by: what would be called. args: its arguments. state: what it would be given then. items: what would be
            added to it, as a list or as pairs of a dict.
    """

    made_by: Any
    args: Any = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)


_MARK: Any = object()  # where a group of values begins on the stack


class _OpcodeReader:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for count, (opcode, arg, _) in enumerate(pickletools.genops(data)):
            if opcode.name == "STOP":
                return self.pop()
            if count > MOST_OPCODES:
                raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
            action = _ACTIONS.get(opcode.name)
            if action is None:
                raise ValueError(f"its opcode {opcode.name} is not read")
            action(self, arg)
        raise ValueError("it does not end")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def remember(self, at: Any) -> None:
        self.memo[int(at)] = self.stack[-1]

    def recall(self, at: Any) -> None:
        self.push(self.memo[int(at)])

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a value is missing")
        return value

    def last(self, count: int) -> tuple[Any, ...]:
        """Takes so many values, in the order in which they came."""
        return tuple(self.pop() for _ in range(count))[::-1]

    def to_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                values = self.stack[at + 1 :]
                del self.stack[at:]
                return values
        raise ValueError("a mark is missing")

    def pairs(self) -> list[tuple[Any, Any]]:
        values = self.to_mark()
        return list(zip(values[::2], values[1::2], strict=True))

    def extend(self, values: list[Any]) -> None:
        """Adds values to a list, or to what would be one."""
        target = self.stack[-1]
        if isinstance(target, Object):
            target.items += values
        elif isinstance(target, list):
            target += values
        else:
            raise ValueError("values belong to no list")

    def update(self, pairs: list[Any]) -> None:
        """Adds pairs to a dict, or to what would be one; keys that nobody could look up are left out."""
        target = self.stack[-1]
        if isinstance(target, Object):
            target.items += pairs
            return
        if not isinstance(target, dict):
            raise ValueError("pairs belong to no dict")
        for key, value in pairs:
            if isinstance(key, (str, int, float, bool, type(None), bytes, Name)):
                target[key] = value

    def dict_(self, _: Any) -> None:
        pairs = self.pairs()
        self.push({})
        self.update(pairs)

    def stack_global(self, _: Any) -> None:
        module, name = self.last(2)
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a name is not text")
        self.push(Name(module, name))

    def build(self, _: Any) -> None:
        state = self.pop()
        target = self.stack[-1]
        if not isinstance(target, Object):
            raise ValueError("a state belongs to no object")
        target.state = state


def _name(arg: str) -> Name:
    module, _, name = arg.partition(" ")
    return Name(module, name)


def _called(made_by: Any, *args: Any) -> Object:
    return Object(made_by, args)


_Action = Callable[[_OpcodeReader, Any], object]
_ACTIONS: dict[str, _Action] = {
    "NONE": lambda r, _: r.push(None),
    "NEWTRUE": lambda r, _: r.push(True),
    "NEWFALSE": lambda r, _: r.push(False),
    "EMPTY_LIST": lambda r, _: r.push([]),
    "EMPTY_SET": lambda r, _: r.push([]),
    "EMPTY_DICT": lambda r, _: r.push({}),
    "EMPTY_TUPLE": lambda r, _: r.push(()),
    "MARK": lambda r, _: r.push(_MARK),
    "POP_MARK": lambda r, _: r.to_mark(),
    "POP": lambda r, _: r.stack.pop(),
    "DUP": lambda r, _: r.push(r.stack[-1]),
    "MEMOIZE": lambda r, _: r.remember(len(r.memo)),
    "TUPLE": lambda r, _: r.push(tuple(r.to_mark())),
    "TUPLE1": lambda r, _: r.push(r.last(1)),
    "TUPLE2": lambda r, _: r.push(r.last(2)),
    "TUPLE3": lambda r, _: r.push(r.last(3)),
    "LIST": lambda r, _: r.push(r.to_mark()),
    "FROZENSET": lambda r, _: r.push(r.to_mark()),
    "DICT": _OpcodeReader.dict_,
    "APPEND": lambda r, _: r.extend([r.pop()]),
    "APPENDS": lambda r, _: r.extend(r.to_mark()),
    "ADDITEMS": lambda r, _: r.extend(r.to_mark()),
    "SETITEM": lambda r, _: r.update([r.last(2)]),
    "SETITEMS": lambda r, _: r.update(r.pairs()),
    "GLOBAL": lambda r, arg: r.push(_name(arg)),
    "STACK_GLOBAL": _OpcodeReader.stack_global,
    "REDUCE": lambda r, _: r.push(Object(*r.last(2))),
    "NEWOBJ": lambda r, _: r.push(Object(*r.last(2))),
    "NEWOBJ_EX": lambda r, _: r.push(_called(*r.last(3))),
    "OBJ": lambda r, _: r.push(_called(*r.to_mark())),
    "INST": lambda r, arg: r.push(Object(_name(arg), tuple(r.to_mark()))),
    "BUILD": _OpcodeReader.build,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _OpcodeReader.remember),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _OpcodeReader.recall),
    **dict.fromkeys(("PROTO", "FRAME", "READONLY_BUFFER"), lambda r, _: None),
    **dict.fromkeys(
        (  # LONG4 is none: to look up a number of megabytes in a dict, or to print it, takes its length again and again
            "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "STRING", "BINSTRING", "SHORT_BINSTRING",
            "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
            "BINUNICODE8", "FLOAT", "BINFLOAT",
        ),
        _OpcodeReader.push,
    ),
}  # fmt: skip


def read_pickle(data: bytes) -> Any:
    """What a pickle says: numbers, texts, lists, dicts and tuples as they are; a class is a Name, an object an Object.

    Sets are lists. Whatever the bytes are, nothing of them is run, and the time and memory that it takes are
    proportional to their number. A list may hold itself.

    Raises:
        MalformedMessage: it is no pickle, or has opcodes that are not read (persistent ids, extension codes, buffers
            beside the stream, numbers of more than 255 bytes).
    """
    try:
        return _OpcodeReader().run(data)
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError, Warning) as error:
        what = "a pickle cannot be read"
        raise MalformedMessage(what, fault="server", field="config", got=f"{type(error).__name__}: {error}") from error
