"""MessagePack by the functions of its own: Ray replaces those of `msgpack` by msgpack-numpy's, which load pickles."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ue_rl.system.lazy import named_if_missing

with named_if_missing("MessagePack"):
    from msgpack import OutOfData, UnpackException

    _own: Any = import_module("msgpack._cmsgpack" if find_spec("msgpack._cmsgpack") else "msgpack.fallback")

__all__ = ["OutOfData", "Packer", "UnpackException", "Unpacker", "packb", "unpackb"]
Packer = _own.Packer
Unpacker = _own.Unpacker
unpackb = _own.unpackb


def packb(what: Any, **options: Any) -> bytes:
    """One object; for the options see `msgpack.Packer`."""
    packed: bytes = Packer(**options).pack(what)
    return packed
