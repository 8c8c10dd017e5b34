"""Reads a pickle as data: opcodes are walked, nothing is imported and nothing is called. No I/O.

RLlib's server sends its whole AlgorithmConfig as a pickle. To load it would run what the server wants; here a class is
its name, and an object is its class's name, its arguments and its state.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ue_rl.errors import MalformedMessage

MOST_OPCODES = 200_000  # a config of Ray 2.60 has about 3 000
_STACK_ONLY = frozenset({"PROTO", "FRAME"})


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


class _Mark:
    """Where a group of values begins on the stack."""


class _Reader:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._mark = _Mark()

    def run(self, data: bytes) -> Any:
        for count, (opcode, arg, _) in enumerate(pickletools.genops(data)):
            name = opcode.name
            if name == "STOP":
                return self.pop()
            if count > MOST_OPCODES:
                raise ValueError(f"it has more than {MOST_OPCODES} opcodes")
            if name in _LITERALS:
                self.stack.append(arg)
            elif name in _CONSTANTS:
                self.stack.append(_CONSTANTS[name]())
            elif name not in _STACK_ONLY:
                action = _ACTIONS.get(name)
                if action is None:
                    raise ValueError(f"its opcode {name} is not read")
                action(self, arg)
        raise ValueError("it does not end")

    def pop(self) -> Any:
        value = self.stack.pop()
        if isinstance(value, _Mark):
            raise ValueError("a value is missing")
        return value

    def to_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is self._mark:
                values = self.stack[at + 1 :]
                del self.stack[at:]
                return values
        raise ValueError("a mark is missing")

    # -- opcodes

    def mark(self, _: Any) -> None:
        self.stack.append(self._mark)

    def pop_mark(self, _: Any) -> None:
        self.to_mark()

    def discard(self, _: Any) -> None:
        self.stack.pop()

    def dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def put(self, arg: Any) -> None:
        self.memo[int(arg)] = self.stack[-1]

    def memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def get(self, arg: Any) -> None:
        self.stack.append(self.memo[int(arg)])

    def tuple_(self, _: Any) -> None:
        self.stack.append(tuple(self.to_mark()))

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def list_(self, _: Any) -> None:
        self.stack.append(self.to_mark())

    def set_(self, _: Any) -> None:
        self.stack.append(self.to_mark())

    def dict_(self, _: Any) -> None:
        values = self.to_mark()
        made: dict[Any, Any] = {}
        _into(made, list(zip(values[::2], values[1::2], strict=True)))
        self.stack.append(made)

    def append(self, _: Any) -> None:
        value = self.pop()
        _extend(self.stack[-1], [value])

    def appends(self, _: Any) -> None:
        values = self.to_mark()
        _extend(self.stack[-1], values)

    def setitem(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        _into(self.stack[-1], [(key, value)])

    def setitems(self, _: Any) -> None:
        values = self.to_mark()
        _into(self.stack[-1], list(zip(values[::2], values[1::2], strict=True)))

    def global_(self, arg: Any) -> None:
        module, _, name = str(arg).partition(" ")
        self.stack.append(Name(module, name))

    def stack_global(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a name is not text")
        self.stack.append(Name(module, name))

    def reduce(self, _: Any) -> None:
        args, made_by = self.pop(), self.pop()
        self.stack.append(Object(made_by, args))

    def newobj_ex(self, _: Any) -> None:
        keywords, args, made_by = self.pop(), self.pop(), self.pop()
        self.stack.append(Object(made_by, (args, keywords)))

    def obj(self, _: Any) -> None:
        values = self.to_mark()
        self.stack.append(Object(values[0], tuple(values[1:])))

    def inst(self, arg: Any) -> None:
        module, _, name = str(arg).partition(" ")
        self.stack.append(Object(Name(module, name), tuple(self.to_mark())))

    def build(self, _: Any) -> None:
        state = self.pop()
        target = self.stack[-1]
        if not isinstance(target, Object):
            raise ValueError("a state belongs to no object")
        target.state = state

    def nothing(self, _: Any) -> None:
        pass


def _extend(target: Any, values: list[Any]) -> None:
    """Adds values to a list, or to what would be one."""
    if isinstance(target, Object):
        target.items += values
    elif isinstance(target, list):
        target += values
    else:
        raise ValueError("values belong to no list")


def _into(target: Any, pairs: list[tuple[Any, Any]]) -> None:
    """Adds pairs to a dict, or to what would be one; keys that nobody could look up are left out."""
    if isinstance(target, Object):
        target.items += pairs
        return
    if not isinstance(target, dict):
        raise ValueError("pairs belong to no dict")
    for key, value in pairs:
        if isinstance(key, (str, int, float, bool, type(None), bytes, Name)):
            target[key] = value


# LONG4 is none: to look up a number of megabytes in a dict, or to print it, takes its length again and again
_LITERALS = frozenset(
    {
        "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "STRING", "BINSTRING", "SHORT_BINSTRING",
        "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE",
        "BINUNICODE8", "FLOAT", "BINFLOAT",
    }
)  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_LIST": list, "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple, "EMPTY_SET": list,
}  # fmt: skip
_ACTIONS: dict[str, Callable[[_Reader, Any], None]] = {
    "MARK": _Reader.mark, "POP_MARK": _Reader.pop_mark, "POP": _Reader.discard, "DUP": _Reader.dup,
    "PUT": _Reader.put, "BINPUT": _Reader.put, "LONG_BINPUT": _Reader.put, "MEMOIZE": _Reader.memoize,
    "GET": _Reader.get, "BINGET": _Reader.get, "LONG_BINGET": _Reader.get,
    "TUPLE": _Reader.tuple_, "TUPLE1": lambda r, _: r.tuple_of(1), "TUPLE2": lambda r, _: r.tuple_of(2),
    "TUPLE3": lambda r, _: r.tuple_of(3), "LIST": _Reader.list_, "FROZENSET": _Reader.set_, "DICT": _Reader.dict_,
    "APPEND": _Reader.append, "APPENDS": _Reader.appends, "ADDITEMS": _Reader.appends,
    "SETITEM": _Reader.setitem, "SETITEMS": _Reader.setitems,
    "GLOBAL": _Reader.global_, "STACK_GLOBAL": _Reader.stack_global,
    "REDUCE": _Reader.reduce, "NEWOBJ": _Reader.reduce, "NEWOBJ_EX": _Reader.newobj_ex, "OBJ": _Reader.obj,
    "INST": _Reader.inst, "BUILD": _Reader.build, "READONLY_BUFFER": _Reader.nothing,
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
        return _Reader().run(data)
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError, Warning) as error:
        what = "a pickle cannot be read"
        raise MalformedMessage(what, fault="server", field="config", got=f"{type(error).__name__}: {error}") from error
