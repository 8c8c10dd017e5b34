"""Dicts, lists, tuples, arrays, numbers and texts as two files: NAME.json for what they are, NAME.npz for the numbers.

No pickle: reading them runs nothing. Arrays of one dtype lie one behind the other, however many there are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ARRAY, _TUPLE, _MAPPING = "$array", "$tuple", "$mapping"


def write_packed(folder: Path, name: str, value: Any) -> None:
    """Writes folder/NAME.json and folder/NAME.npz.

    Raises:
        TypeError: something else is in it.
    """
    packer = _Packer()
    text = json.dumps(packer.pack(value))
    np.savez(folder / f"{name}.npz", **{dtype: np.concatenate(parts) for dtype, parts in packer.parts.items()})  # type: ignore[arg-type]
    (folder / f"{name}.json").write_text(text, "utf-8")


def read_packed(folder: Path, name: str) -> Any:
    """What `write_packed` was given; numbers of NumPy come back as arrays without a shape.

    Raises:
        OSError, ValueError, KeyError: the files are missing or not such files.
    """
    with np.load(folder / f"{name}.npz", allow_pickle=False) as file:
        arrays = {dtype: file[dtype] for dtype in file.files}
    return _unpacked(json.loads((folder / f"{name}.json").read_text("utf-8")), arrays)


class _Packer:
    def __init__(self) -> None:
        self.parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
        self._sizes: dict[str, int] = defaultdict(int)

    def pack(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value))
        if isinstance(value, list):
            return [self.pack(item) for item in value]
        if isinstance(value, tuple):
            return {_TUPLE: [self.pack(item) for item in value]}
        if isinstance(value, dict):
            if all(type(key) is str and not key.startswith("$") for key in value):
                return {key: self.pack(item) for key, item in value.items()}
            return {_MAPPING: [[self.pack(key), self.pack(item)] for key, item in value.items()]}
        raise TypeError(f"a {type(value).__name__} cannot be saved")

    def _array(self, array: NDArray[Any]) -> dict[str, Any]:
        if array.dtype.kind not in "biuf":
            raise TypeError(f"an array of {array.dtype} cannot be saved")
        dtype = array.dtype.name
        at = self._sizes[dtype]
        self.parts[dtype].append(array.reshape(-1))
        self._sizes[dtype] += array.size
        return {_ARRAY: [dtype, at, list(array.shape)]}


def _unpacked(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        dtype, at, shape = value[_ARRAY]
        return arrays[dtype][at : at + int(np.prod(shape, dtype=np.int64))].reshape(shape).copy()
    if _TUPLE in value:
        return tuple(_unpacked(item, arrays) for item in value[_TUPLE])
    if _MAPPING in value:
        return {_unpacked(key, arrays): _unpacked(item, arrays) for key, item in value[_MAPPING]}
    return {key: _unpacked(item, arrays) for key, item in value.items()}
