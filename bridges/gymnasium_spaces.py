"""Gymnasium's spaces as space trees: what the handshake says of them, and values of them as flat rows and back.

The trees are those of ue_rl/spaces/tree.py; the row's order is the tree's, which is the order of the space's own parts.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError
from ue_rl.spaces.tree import DTYPES, MAX_EXACT, Branch, Leaf, LeafKind, Space, beyond_exact, box, leaves
from ue_rl.spec import ImageSpec

Key = str | int
Path = tuple[Key, ...]
Target = tuple[Callable[[Any], Any], NDArray[Any]]
_IMAGE = "Box uint8 0..255 [height, width], [height, width, channels] or [channels, height, width]"
_CARRIED = "Dict, Tuple, Box, Discrete, MultiDiscrete, MultiBinary"


def tree_of(space: Any, field: str, image: Path | None = None, at: Path = ()) -> Space:
    """The tree of a Gymnasium space.

    A Box of float16 is announced as float32. One of float64 keeps its name, because models compare spaces when they are
    loaded; what travels is float32 all the same.

    Args:
        field: OBS_SPACE or ACT_SPACE, for errors. image: where the part stands that travels as the image.
        at: where `space` stands in the whole.

    Raises:
        ConfigurationError: a space that the wire cannot carry, with its place.
    """
    if at == image:
        return Leaf(LeafKind.IMAGE)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        named = isinstance(space, spaces.Dict)
        for name, _ in _parts(space):
            if named and not (isinstance(name, str) and name):
                raise _refused(
                    "a part's name must be a non-empty string", field, at, repr(name), "use non-empty strings as keys"
                )
        parts = tuple((str(name), tree_of(part, field, image, (*at, name))) for name, part in _parts(space))
        make: Callable[[], Space] = functools.partial(Branch, parts, named)
    elif isinstance(space, spaces.Box):
        make = functools.partial(_box, space)
    elif isinstance(space, spaces.Discrete):
        make = functools.partial(Leaf, LeafKind.DISCRETE, counts=(int(space.n),), starts=(int(space.start),))
    elif isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(np.ravel(values).tolist()) for values in (space.nvec, space.start))
        make = functools.partial(Leaf, LeafKind.MULTI_DISCRETE, space.nvec.shape, counts=counts, starts=starts)
    elif isinstance(space, spaces.MultiBinary):
        make = functools.partial(Leaf, LeafKind.MULTI_BINARY, space.shape)
    else:
        cure = "wrap the env so that it has a fixed size" if field == "OBS_SPACE" else "wrap the env to change it"
        raise _refused(f"the wire cannot carry a {type(space).__name__} space", field, at, space, cure)
    try:
        return make()
    except ConfigurationError as error:
        raise _refused(error.message, field, at, space if error.got is None else error.got, None) from error


def find_image(space: Any) -> Path:
    """Where the one image of an observation space stands.

    Raises:
        ConfigurationError: it has none, or several.
    """
    found = _images(space, ())
    if len(found) == 1:
        return found[0]
    what = "this env's observations are no images"
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        what = f"this env's observations have {len(found)} images, one can be carried"
    raise ConfigurationError(
        what, field="images", expected=f"{_IMAGE}, or a Dict with one such part", got=space,
        cure="leave images=True out: observations then travel as numbers",
    )  # fmt: skip


def part_at(space: Any, path: Path) -> Any:
    """The space, or the value, that stands at `path`."""
    return functools.reduce(operator.getitem, path, space)


def image_spec(space: spaces.Box, only: bool) -> ImageSpec:
    """The image as SB3 sees it; the order of the env's own array is kept.

    Of three dimensions the shortest holds the channels, first or last; where it is the middle one, the channels are
    last. Two dimensions are one channel.
    """
    shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
    if len(space.shape) == 3 and int(np.argmin(shape)) == 0:
        return ImageSpec(shape[1], shape[2], shape[0], channels_first=True, only=only)
    return ImageSpec(shape[0], shape[1], shape[2], only=only)


class ObservationWriter:
    """Writes observations of one tree into rows, without an array in between.

    Args:
        tree: of the observations. image_shape: of the env's own image, which may have two dimensions.
    """

    def __init__(self, tree: Space, image_shape: tuple[int, ...] = ()) -> None:
        self._leaves = [
            (_exact(getter(keys), path) if leaf.wide else getter(keys), leaf, at)
            for keys, (path, leaf, at) in zip(tree_keys(tree), leaves(tree), strict=True)
        ]
        self._image_shape = image_shape
        self._row: NDArray[np.float32] | None = None
        self._targets: list[list[Target]] = []

    def targets(self, rows: NDArray[np.float32], images: NDArray[np.uint8] | None) -> list[list[Target]]:
        """Of each row: how to get each part of an observation, and the view of the row that it belongs into.

        Args:
            rows: float32 [num_rows, ..]. images: uint8 [num_rows, ..], None without images. The same views are given
                again as long as `rows` is the same array.
        """
        if self._row is not rows:
            self._row = rows
            self._targets = [self._of_row(row, rows, images) for row in range(len(rows))]
        return self._targets

    def _of_row(self, row: int, rows: NDArray[np.float32], images: NDArray[np.uint8] | None) -> list[Target]:
        found: list[Target] = []
        for get, leaf, at in self._leaves:
            if leaf.kind is LeafKind.IMAGE:
                assert images is not None
                found.append((get, images[row].reshape(self._image_shape)))
            else:
                found.append((get, rows[row, at : at + leaf.size].reshape(leaf.shape)))
        return found


def flat_reader(tree: Space) -> Callable[[Any], Any]:
    """From an observation to its numbers in the row's order: an array, or a number where there is but one."""
    gets = [getter(keys) for keys in tree_keys(tree)]
    if isinstance(tree, Leaf):
        return _itself
    return lambda obs: np.concatenate([np.ravel(get(obs)) for get in gets])


def tree_keys(tree: Space, at: Path = ()) -> list[Path]:
    """Of each leaf in the row's order, the keys that lead to it in a value: names in a DICT, positions in a TUPLE."""
    if isinstance(tree, Leaf):
        return [at]
    keys: list[Key] = [name if tree.named else i for i, (name, _) in enumerate(tree.parts)]
    return [path for key, (_, part) in zip(keys, tree.parts, strict=True) for path in tree_keys(part, (*at, key))]


def getter(path: Path) -> Callable[[Any], Any]:
    """From a value to what stands at `path` in it."""
    if len(path) == 1:
        return operator.itemgetter(path[0])
    return functools.partial(_follow, path) if path else _itself


def action_reader(space: Any) -> Callable[[NDArray[np.float32]], Any]:
    """From a flat row float32 [size] to an action as the env takes it: its form, its dtypes, arrays of its own."""
    if isinstance(space, spaces.Dict):
        named = list(zip(space.spaces, _readers(list(space.spaces.values())), strict=True))
        return lambda row: {name: read(row[low:high]) for name, (read, low, high) in named}
    if isinstance(space, spaces.Tuple):
        parts = _readers(list(space.spaces))
        return lambda row: tuple(read(row[low:high]) for read, low, high in parts)
    if isinstance(space, spaces.Discrete):
        kind = np.dtype(space.dtype).type
        return lambda row: kind(row.item(0))
    assert isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary))
    shape, dtype = space.shape, space.dtype
    return lambda row: row.reshape(shape).astype(dtype)


def _readers(parts: list[Any]) -> list[tuple[Callable[[NDArray[np.float32]], Any], int, int]]:
    """(reader, first number, end) of each part of a row."""
    found, at = [], 0
    for part in parts:
        size = tree_of(part, "ACT_SPACE").size
        found.append((action_reader(part), at, at + size))
        at += size
    return found


def _box(space: spaces.Box) -> Leaf:
    low, high, kind = np.asarray(space.low), np.asarray(space.high), np.dtype(space.dtype)
    if not math.prod(space.shape):
        raise ConfigurationError("a Box without numbers", expected="sizes of 1 or more", got=space.shape)
    if (low == low.flat[0]).all() and (high == high.flat[0]).all():  # said once, however many numbers there are
        low, high = low.ravel()[:1], high.ravel()[:1]
    if kind == np.float64:
        return box(space.shape, low, high, "float64")
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return box(space.shape, np.asarray(low, np.float32), np.asarray(high, np.float32))
    dtype = "uint8" if kind.kind == "b" else kind.name if kind.name in DTYPES else "int64"  # uint32, uint64
    return box(space.shape, low, high, dtype)


def _parts(space: Any) -> list[tuple[Any, Any]]:
    return list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))


def _images(space: Any, at: Path) -> list[Path]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [path for name, part in _parts(space) for path in _images(part, (*at, name))]
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return []
    return [at] if (space.low == 0).all() and (space.high == 255).all() else []


def _exact(get: Callable[[Any], Any], path: tuple[str, ...]) -> Callable[[Any], Any]:
    """`get`, which refuses integers that would be rounded."""

    def checked(value: Any) -> Any:
        numbers = get(value)
        wrong = beyond_exact(numbers)
        if wrong is not None:
            raise ConfigurationError(
                "an integer of the observation is not exact in float32, which is what travels", fault="engine",
                field=".".join(("OBS", *path)), expected=f"{-MAX_EXACT} to {MAX_EXACT}", got=wrong,
                cure="wrap the env: two smaller integers, or a float that may be rounded",
            )  # fmt: skip
        return numbers

    return checked


def _follow(path: Path, value: Any) -> Any:
    return functools.reduce(operator.getitem, path, value)


def _itself(value: Any) -> Any:
    return value


def _refused(what: str, field: str, at: Path, got: Any, cure: str | None) -> ConfigurationError:
    place = " / ".join(map(str, at)) or "the whole of it"
    return ConfigurationError(f"{what} (at: {place})", field=field, expected=_CARRIED, got=got, cure=cure)
