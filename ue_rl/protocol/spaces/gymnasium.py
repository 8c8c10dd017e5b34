"""Gymnasium's spaces and the trees of the handshake, each made from the other; and their values as flat rows.

DICT is a Dict in the tree's order, TUPLE a Tuple, BOX a Box of its shape and dtype, DISCRETE a Discrete, MULTI_DISCRETE
a MultiDiscrete, MULTI_BINARY a MultiBinary. IMAGE is a Box uint8 0..255, whose shape the handshake's IMAGE says. A row
has the numbers of the leaves in the tree's order, which is the order of the space's own parts.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ue_rl.protocol.spaces.tree import DTYPES, MAX_EXACT, Branch, Leaf, LeafKind, Space, beyond_exact, box, leaves
from ue_rl.system.errors import ConfigurationError

Key = str | int
Path = tuple[Key, ...]
Target = tuple[Callable[[Any], Any], NDArray[Any]]
_IMAGE = "Box uint8 0..255 [height, width], [height, width, channels] or [channels, height, width]"
_CARRIED = "Dict, Tuple, Box, Discrete, MultiDiscrete, MultiBinary"
# Older versions keep the order of a list of parts without being told.
_ORDER: dict[str, Any]
if "sort_keys" in inspect.signature(spaces.Dict).parameters:
    _ORDER = {"sort_keys": False}
else:
    _ORDER = {}


# -- tree -> space


def gymnasium_space(tree: Space, image_shape: tuple[int, ...] = (), zero_based: bool = False) -> spaces.Space[Any]:
    """The Gymnasium space of a tree.

    Args:
        image_shape: of what its IMAGE leaf stands for. zero_based: choices count from 0, whatever the engine does.
    """
    if isinstance(tree, Branch):
        parts = [(name, gymnasium_space(part, image_shape, zero_based)) for name, part in tree.parts]
        if tree.named:
            return spaces.Dict(parts, **_ORDER)
        return spaces.Tuple([part for _, part in parts])
    if tree.kind is LeafKind.IMAGE:
        return spaces.Box(0, 255, image_shape, np.uint8)
    if tree.kind is LeafKind.BOX:
        dtype = np.dtype(tree.dtype)
        low, high = (np.full(tree.size, bound, dtype).reshape(tree.shape) for bound in (tree.low, tree.high))
        return spaces.Box(low, high, tree.shape, dtype.type)
    if tree.kind is LeafKind.MULTI_BINARY:
        return spaces.MultiBinary(tree.size if len(tree.shape) == 1 else tree.shape)
    return _discrete(tree, zero_based)


def _discrete(leaf: Leaf, zero_based: bool) -> spaces.Discrete | spaces.MultiDiscrete:
    """A Discrete (of no shape) or a MultiDiscrete; one that counts from 0 where the engine does not says so.

    `engine_starts` is that note, int64 [size]: a model keeps its spaces, and its exported file counts as the engine.
    """
    starts = np.array(leaf.starts or (0,) * leaf.size, np.int64)
    if zero_based:
        first = np.zeros_like(starts)
    else:
        first = starts
    made: spaces.Discrete | spaces.MultiDiscrete
    if not leaf.shape:
        made = spaces.Discrete(leaf.counts[0], start=int(first[0]))
    else:
        made = spaces.MultiDiscrete(
            np.array(leaf.counts, np.int64).reshape(leaf.shape), start=first.reshape(leaf.shape)
        )
    if zero_based and leaf.starts:
        vars(made)["engine_starts"] = starts
    return made


def batched(space: spaces.Space[Any], n: int) -> spaces.Space[Any]:
    """The space of `n` values at once; Gymnasium's own function sorts a Dict's keys in versions before 1.3."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(name, batched(part, n)) for name, part in space.spaces.items()], **_ORDER)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([batched(part, n) for part in space.spaces])
    return batch_space(space, n)


# -- space -> tree


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
        cure = "wrap the env to change it"
        if field == "OBS_SPACE":
            cure = "wrap the env so that this has a fixed size or is left out: --env-wrapper MODULE:CLASS does it"
        raise _refused(f"the wire cannot carry a {type(space).__name__} space", field, at, space, cure)
    try:
        return make()
    except ConfigurationError as error:
        if error.got is None:
            got = space
        else:
            got = error.got
        raise _refused(error.message, field, at, got, None) from error


def _box(space: spaces.Box) -> Leaf:
    low = np.asarray(space.low)
    high = np.asarray(space.high)
    kind = np.dtype(space.dtype)
    if not math.prod(space.shape):
        raise ConfigurationError("a Box without numbers", expected="sizes of 1 or more", got=space.shape)
    if (low == low.flat[0]).all() and (high == high.flat[0]).all():  # said once, however many numbers there are
        low = low.ravel()[:1]
        high = high.ravel()[:1]
    if kind == np.float64:
        return box(space.shape, low, high, "float64")
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return box(space.shape, np.asarray(low, np.float32), np.asarray(high, np.float32))
    # uint32, uint64
    if kind.kind == "b":
        dtype = "uint8"
    elif kind.name in DTYPES:
        dtype = kind.name
    else:
        dtype = "int64"
    return box(space.shape, low, high, dtype)


def find_image(space: Any) -> Path:
    """Where the one image of an observation space stands; raises ConfigurationError: it has none, or several."""
    found = _images(space, ())
    if len(found) == 1:
        return found[0]
    what = "this env's observations are no images"
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        what = f"this env's observations have {len(found)} images, one can be carried"
    raise ConfigurationError(
        what,
        field="images",
        expected=f"{_IMAGE}, or a Dict with one such part",
        got=space,
        cure="leave images=True out: observations then travel as numbers",
    )


def _images(space: Any, at: Path) -> list[Path]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [path for name, part in _parts(space) for path in _images(part, (*at, name))]
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return []
    if (space.low == 0).all() and (space.high == 255).all():
        return [at]
    return []


def _parts(space: Any) -> list[tuple[Any, Any]]:
    if isinstance(space, spaces.Dict):
        return list(space.spaces.items())
    return list(enumerate(space.spaces))


def _refused(what: str, field: str, at: Path, got: Any, cure: str | None) -> ConfigurationError:
    place = " / ".join(map(str, at))
    if not place:
        place = "the whole of it"
    return ConfigurationError(f"{what} (at: {place})", field=field, expected=_CARRIED, got=got, cure=cure)


# -- values


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
    if path:
        return functools.partial(_follow, path)
    return _itself


def action_reader(space: Any) -> Callable[[NDArray[np.float32]], Any]:
    """From a flat row float32 [size] to an action as the env takes it: its form, its dtypes, arrays of its own."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        readers: list[tuple[Any, Callable[[NDArray[np.float32]], Any], slice]] = []
        at = 0
        for name, part in _parts(space):
            size = tree_of(part, "ACT_SPACE").size
            readers.append((name, action_reader(part), slice(at, at + size)))
            at += size
        if isinstance(space, spaces.Tuple):
            return lambda row: tuple(read(row[cut]) for _, read, cut in readers)
        return lambda row: {name: read(row[cut]) for name, read, cut in readers}
    if isinstance(space, spaces.Discrete):
        kind = np.dtype(space.dtype).type
        return lambda row: kind(row.item(0))
    assert isinstance(space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary))
    shape = space.shape
    dtype = space.dtype
    return lambda row: row.reshape(shape).astype(dtype)


def _exact(get: Callable[[Any], Any], path: tuple[str, ...]) -> Callable[[Any], Any]:
    """`get`, which refuses integers that would be rounded."""

    def checked(value: Any) -> Any:
        numbers = get(value)
        wrong = beyond_exact(numbers)
        if wrong is not None:
            raise ConfigurationError(
                "an integer of the observation is not exact in float32, which is what travels",
                fault="engine",
                field=".".join(("OBS", *path)),
                expected=f"{-MAX_EXACT} to {MAX_EXACT}",
                got=wrong,
                cure="wrap the env: two smaller integers, or a float that may be rounded",
            )
        return numbers

    return checked


def _follow(path: Path, value: Any) -> Any:
    return functools.reduce(operator.getitem, path, value)


def _itself(value: Any) -> Any:
    return value
