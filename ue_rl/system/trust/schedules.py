"""A schedule that is data, and two of Stable-Baselines3, read as data out of pickled functions.

    def linear_schedule(initial_value):  # of its documentation
        def func(progress_remaining):
            return progress_remaining * initial_value
        return func

    def constant_fn(val):  # what a number became before 2.7
        def func(_):
            return val
        return func

cloudpickle writes func as its bytecode and the cell that holds the number. Nothing of it is made or run here: the
bytecode is compared with what CPython 3.9 to 3.13 make of these functions, and the number is taken.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from ue_rl.system.trust.pickles import DataUnpickler, Unmade, wants_code

# `return argument * cell`, with one argument and one cell: load both, multiply, return.
_PRODUCT = {
    bytes.fromhex("7c00880014005300"),  # 3.9, 3.10
    bytes.fromhex("950197007c0089017a0500005300"),  # 3.11, 3.12
    bytes.fromhex("3e019500550054012d0500002400"),  # 3.13
}
# `return cell`, with one argument and one cell.
_CONSTANT = {
    bytes.fromhex("88005300"),  # 3.9, 3.10
    bytes.fromhex("9501970089015300"),  # 3.11, 3.12
    bytes.fromhex("3e01950054012400"),  # 3.13
}
# `lambda argument: float(cell(argument))`, in which SB3 before 2.7 puts a schedule.
_AS_FLOAT = {
    bytes.fromhex("740088007c00830183015300"),  # 3.9, 3.10
    bytes.fromhex(
        "95019700740100000000000000000000020089017c00a6010000ab010000000000000000a6010000ab0100000000000000005300"
    ),  # 3.11
    bytes.fromhex("9501970074010000000000000000020089017c00ab01000000000000ab010000000000005300"),  # 3.12
    bytes.fromhex("3e0195005b010000000000000000540122005500350100000000000035010000000000002400"),  # 3.13
}
# arguments of CodeType, the same in all of them
_CODE = 6
_NAMES = 8
_CLOUDPICKLE = "cloudpickle.cloudpickle"
_ANNOTATIONS = {"float", "int"}


@dataclass(frozen=True)
class LinearSchedule:
    """Falls from `start` to 0 over the run; a class, so that a saved model can be loaded anywhere."""

    start: float

    def __call__(self, remaining: float) -> float:
        """`remaining` goes from 1 to 0."""
        return float(self.start) * remaining  # whatever a stranger's file has put there


class _FunctionReader(DataUnpickler):
    """Notes what cloudpickle would make a function of."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.codes: list[tuple[Any, ...]] = []
        self.cells: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle may name: what writes a function down, beside data."""
        if module == "builtins" and name in _ANNOTATIONS:
            return Unmade
        if module != _CLOUDPICKLE:
            return super().find_class(module, name)
        if name == "_builtin_type":
            return self._type
        if name == "_make_cell":
            return self._cell
        if name in ("_make_function", "_make_empty_cell", "_function_setstate"):
            return lambda *_: Unmade()
        raise wants_code(f"{module}.{name}")

    def _type(self, name: str) -> Any:
        if name != "CodeType":
            raise wants_code(f"the type {name}")
        return self._code

    def _code(self, *given: Any) -> Unmade:
        self.codes.append(given)
        return Unmade()

    def _cell(self, value: Any = None) -> Unmade:
        self.cells.append(value)
        return Unmade()


def known_schedule(pickled: bytes) -> LinearSchedule | float | None:
    """The documentation's linear_schedule that the pickle holds, or a constant; None: it holds something else."""
    reader = _FunctionReader(pickled)
    try:
        found = reader.load()
    except Exception:  # noqa: BLE001 - whatever it is, it is no such schedule
        return None
    function = getattr(found, "value_schedule", found)  # SB3's FloatSchedule, which it stands in
    if not isinstance(function, Unmade):
        return None
    if any(len(code) <= _NAMES or not isinstance(code[_CODE], bytes) for code in reader.codes):
        return None
    products = [code for code in reader.codes if code[_CODE] in _PRODUCT and code[_NAMES] == ()]
    constants = [code for code in reader.codes if code[_CODE] in _CONSTANT and code[_NAMES] == ()]
    casts = [code for code in reader.codes if code[_CODE] in _AS_FLOAT and code[_NAMES] == ("float",)]
    values = [value for value in reader.cells if type(value) in (float, int)]
    inner = products + constants
    if not inner and len(casts) == len(reader.codes) == len(reader.cells) == 1:
        if isinstance(reader.cells[0], LinearSchedule):
            return reader.cells[0]
        return None
    # Each function has one cell: that of the inner one holds the number, that of a cast the other function.
    if len(inner) != 1 or len(casts) > 1 or len(values) != 1:
        return None
    if len(inner) + len(casts) != len(reader.codes) or len(reader.codes) != len(reader.cells):
        return None
    number = float(values[0])
    if products:
        return LinearSchedule(number)
    return number
