"""Gymnasium's spaces and the trees of the handshake, each made from the other; and their values as flat rows.

DICT is a Dict in the tree's order, TUPLE a Tuple, BOX a Box of its shape and dtype, DISCRETE a Discrete, MULTI_DISCRETE
a MultiDiscrete, MULTI_BINARY a MultiBinary. IMAGE is a Box uint8 0..255, whose shape the handshake's IMAGE says. A row
has the numbers of the leaves in the tree's order, which is the order of the space's own parts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ue_rl.protocol.spaces.engine_leaf import noted, own_leaf
from ue_rl.protocol.spaces.forms import BY_TYPE, form_of
from ue_rl.protocol.spaces.forms.base import MAX_EXACT
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, beyond_exact, leaves
from ue_rl.protocol.spaces.walks import Key, Path, flatten, fold, getter, map_leaves, parts_of, unflatten
from ue_rl.system.errors import ConfigurationError

Target = tuple[Callable[[Any], Any], NDArray[Any]]
_IMAGE = "Box uint8 0..255 [height, width], [height, width, channels] or [channels, height, width]"
_CARRIED = ", ".join(["Dict", "Tuple", *BY_TYPE])
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
        image_shape: of what its IMAGE leaf stands for. zero_based: as a trainer has it that counts from 0, see
            `LeafForm.trained`; what differs from the engine's keeps its leaf, see engine_leaf.py.
    """
    made: spaces.Space[Any] = fold(tree, lambda leaf, _: _leaf_space(leaf, image_shape, zero_based), _space_of_parts)
    return made


def _space_of_parts(node: Any, parts: dict[Key, spaces.Space[Any]], _: Path) -> spaces.Space[Any]:
    """A Dict or Tuple as `node`, which is of either kind, has its parts."""
    if isinstance(node, spaces.Tuple) or (isinstance(node, Branch) and not node.named):
        return spaces.Tuple([*parts.values()])
    return spaces.Dict([(str(key), part) for key, part in parts.items()], **_ORDER)


def _leaf_space(leaf: Leaf, image_shape: tuple[int, ...], zero_based: bool) -> spaces.Space[Any]:
    seen = leaf
    if zero_based:
        seen = leaf.form.trained(leaf)
    made: spaces.Space[Any] = noted(seen.form.space(seen, image_shape), seen, leaf)
    return made


def batched(space: spaces.Space[Any], n: int) -> spaces.Space[Any]:
    """The space of `n` values at once; Gymnasium's own function sorts a Dict's keys in versions before 1.3."""
    made: spaces.Space[Any] = fold(space, lambda part, _: batch_space(part, n), _space_of_parts)
    return made


# -- space -> tree


def tree_of(space: Any, field: str, image: Path | None = None) -> Space:
    """The tree of a Gymnasium space.

    A Box of float16 is announced as float32. One of float64 keeps its name, because models compare spaces when they are
    loaded; what travels is float32 all the same.

    Args:
        field: OBS_SPACE or ACT_SPACE, for errors. image: where the part stands that travels as the image.

    Raises:
        ConfigurationError: a space that the wire cannot carry, with its place.
    """

    def leaf(part: Any, at: Path) -> Leaf:
        if at == image:
            return Leaf(LeafKind.IMAGE)
        if form_of(part) is None:
            cure = "wrap the env to change it"
            if field == "OBS_SPACE":
                cure = "wrap the env so that this has a fixed size or is left out: --env-wrapper MODULE:CLASS does it"
            raise _refused(f"the wire cannot carry a {type(part).__name__} space", field, at, part, cure)
        return _placed(lambda: own_leaf(part), part, field, at)

    def branch(node: Any, parts: dict[Key, Space], at: Path) -> Branch:
        named = isinstance(node, spaces.Dict)
        for name in parts:
            if named and not (isinstance(name, str) and name):
                raise _refused(
                    "a part's name must be a non-empty string", field, at, repr(name), "use non-empty strings as keys"
                )
        made = tuple((str(name), part) for name, part in parts.items())
        return _placed(lambda: Branch(made, named), node, field, at)

    tree: Space = fold(space, leaf, branch)
    return tree


_S = TypeVar("_S", Leaf, Branch)


def _placed(make: Callable[[], _S], space: Any, field: str, at: Path) -> _S:
    """What `make` gives; its error says where in the whole."""
    try:
        return make()
    except ConfigurationError as error:
        if error.got is None:
            got = space
        else:
            got = error.got
        raise _refused(error.message, field, at, got, None) from error


def find_image(space: Any) -> Path:
    """Where the one image of an observation space stands; raises ConfigurationError: it has none, or several."""
    found = [path for path, part in flatten(space) if _is_image(part)]
    if len(found) == 1:
        return found[0]
    what = "this env's observations are no images"
    if parts_of(space) is not None:
        what = f"this env's observations have {len(found)} images, one can be carried"
    raise ConfigurationError(
        what,
        field="images",
        expected=f"{_IMAGE}, or a Dict with one such part",
        got=space,
        cure="leave images=True out: observations then travel as numbers",
    )


def _is_image(space: Any) -> bool:
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    return bool((space.low == 0).all() and (space.high == 255).all())


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
            for (keys, _), (path, leaf, at) in zip(flatten(tree), leaves(tree), strict=True)
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
            if not leaf.form.in_row:
                assert images is not None
                found.append((get, images[row].reshape(self._image_shape)))
            else:
                found.append((get, rows[row, at : at + leaf.size].reshape(leaf.shape)))
        return found


def flat_reader(tree: Space) -> Callable[[Any], Any]:
    """From an observation to its numbers in the row's order: an array, or a number where there is but one."""
    gets = [getter(path) for path, _ in flatten(tree)]
    if isinstance(tree, Leaf):
        return gets[0]
    return lambda obs: np.concatenate([np.ravel(get(obs)) for get in gets])


def action_reader(space: Any) -> Callable[[NDArray[np.float32]], Any]:
    """From a flat row float32 [size] to an action as the env takes it: its form, its dtypes, arrays of its own."""
    tree = tree_of(space, "ACT_SPACE")
    cuts = unflatten(tree, (slice(at, at + leaf.size) for _, leaf, at in leaves(tree)))
    read: Callable[[NDArray[np.float32]], Any] = fold(map_leaves(_leaf_reader, space, cuts), _itself, _reader_of_parts)
    return read


def _itself(reader: Any, _: Path) -> Any:
    return reader


def _reader_of_parts(node: Any, readers: dict[Key, Any], _: Path) -> Callable[[NDArray[np.float32]], Any]:
    pairs = list(readers.items())
    if isinstance(node, tuple):
        return lambda row: tuple([read(row) for _, read in pairs])
    return lambda row: {name: read(row) for name, read in pairs}


def _leaf_reader(space: Any, cut: slice) -> Callable[[NDArray[np.float32]], Any]:
    form = form_of(space)
    if form is not None and form.is_number:
        kind = np.dtype(space.dtype).type
        return lambda row: kind(row.item(cut.start))
    shape = space.shape
    dtype = space.dtype
    return lambda row: row[cut].reshape(shape).astype(dtype)


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
