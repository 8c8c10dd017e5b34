"""Observations: a transport's flat rows and images -> what a user sees: arrays, dicts, tuples.

The transport writes into its buffers again at the next step, and SB3 keeps the last observation: copies are given out
unless the caller asked for the buffers themselves. The float32 parts of a Dict are views into one copy of all rows,
which costs no more than that copy; only integers are converted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.spaces import observation_tree
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spaces.forms.base import MAX_EXACT
from ue_rl.protocol.spaces.tree import Branch, Leaf, Space, beyond_exact, leaves
from ue_rl.protocol.spaces.walks import Key, Path, fold
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.compiled import load
from ue_rl.system.errors import MalformedMessage

# Arrays [num_envs, ...], or dicts and tuples of them, as the observation space says.
Observation = Any
Rows: TypeAlias = NDArray[np.float32]
Image: TypeAlias = "NDArray[np.uint8] | None"
_Reader: TypeAlias = "Callable[[Rows, Image], Any]"
_Put: TypeAlias = "Callable[[Any, Any, Sequence[int]], None]"


class Observations:
    """Reads observations out of StepBuffers.

    Args:
        spec: of the session.
        copy: give out copies; otherwise float32 parts and images are the transport's own arrays, good until its next
            request.
        zero_based: names and choices as in `observation_space(spec, zero_based=True)`.

    Attributes:
        plain: what is given out is a copy of the rows, unless a transport gives them away (StepBuffers.may_give).
    """

    def __init__(self, spec: EnvSpec, copy: bool = True, zero_based: bool = False) -> None:
        tree = observation_tree(spec, zero_based)
        self._copy = copy
        self._tree = None
        self._take: Callable[[Any, int], Any] = _copy_of_row
        self._put: _Put = _put_rows
        if tree is not None:
            self._tree = _reader(tree, zero_based)
            self._take = fold(tree, _taker, _taker_of_parts)
            self._put = fold(tree, _putter, _putter_of_parts)
        self.plain = copy and tree is None
        self._parts: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
        if copy:
            self._parts = _plain_parts(tree, zero_based)
        self._copy_parts = None
        if self._parts:
            self._copy_parts = load("kernels").copy_parts

    def read(self, buffers: StepBuffers) -> Observation:
        """All envs' observations."""
        rows = buffers.obs
        tree = self._tree
        if tree is None:
            if self._copy and not buffers.may_give:
                return rows.copy()
            buffers.given = self._copy
            return rows
        if self._copy_parts is not None:  # the usual Dict: nothing to convert
            return self._copy_parts(rows, self._parts)
        image = buffers.image
        if self._copy:
            buffers.given = buffers.may_give
            return tree(rows if buffers.may_give else rows.copy(), image if image is None else image.copy())
        return tree(rows, image)

    def of_rows(self, rows: Rows, image: Image = None) -> Observation:
        """The observations of these rows, float32 [n, obs_size]; float32 parts and images are views of them."""
        if self._tree is None:
            return rows
        return self._tree(rows, image)

    def row(self, observation: Observation, env: int) -> Observation:
        """A copy of one env's observation out of what `read` gave."""
        return self._take(observation, env)

    def put(self, observation: Observation, buffers: StepBuffers, envs: Sequence[int]) -> None:
        """Takes these envs' rows over into what `read` gave before."""
        if self._tree is None:
            if self._copy:  # else they are the same array
                for env in envs:
                    observation[env] = buffers.obs[env]
            return
        image = buffers.image
        self._put(observation, self._tree(buffers.obs[envs], image if image is None else image[envs]), envs)


def _copy_of_row(seen: Any, env: int) -> Any:
    return seen[env, ...].copy()


def _taker(leaf: Leaf, _: Path) -> Callable[[Any, int], Any]:
    """From what `read` gave of a leaf to a copy of one env's."""
    # a Discrete's is a number, a Box's an array, that of a Box without a shape too
    if leaf.form.is_number:
        return operator.getitem
    return _copy_of_row


def _taker_of_parts(node: Branch, parts: dict[Key, Any], _: Path) -> Callable[[Any, int], Any]:
    pairs = list(parts.items())
    if node.named:
        return lambda seen, env: {name: take(seen[name], env) for name, take in pairs}
    return lambda seen, env: tuple([take(seen[at], env) for at, take in pairs])


def _putter(_: Leaf, __: Path) -> _Put:
    """Takes rows over into what `read` gave of a leaf."""
    return _put_rows


def _put_rows(old: Any, new: Any, envs: Sequence[int]) -> None:
    old[envs] = new


def _putter_of_parts(node: Branch, parts: dict[Key, Any], _: Path) -> _Put:
    pairs = list(parts.items())

    def put(old: Any, new: Any, envs: Sequence[int]) -> None:
        for key, each in pairs:
            each(old[key], new[key], envs)

    return put


def _reader(space: Space, zero_based: bool) -> _Reader:
    """From the rows of one part, float32 [n, space.size], and the image to what a user sees of it."""
    if isinstance(space, Leaf):
        convert = _convert(space, zero_based) or _as_it_is
        if space.shape or not space.form.in_row:
            return convert
        return lambda rows, image: convert(rows[:, 0], image)  # a number that is not in an array
    cut = _cutter(space)
    more: list[tuple[str, _Reader]] = []
    for name, part in space.parts:
        if isinstance(part, Leaf):
            reader = _convert(part, zero_based)
        else:
            reader = _reader(part, zero_based)
        if reader is not None:
            more.append((name, reader))

    def read(rows: Rows, image: Image) -> dict[str, Any]:
        parts = cut(rows)
        for name, convert in more:
            parts[name] = convert(parts[name], image)
        return parts

    if space.named:
        return read
    return lambda rows, image: tuple(read(rows, image).values())


def _plain_parts(space: Space | None, zero_based: bool) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    """(name, first number, shape) of each part of a Dict that has float32 arrays alone; () of anything else."""
    if not isinstance(space, Branch) or not space.named:
        return ()
    plain = [
        (name, at, leaf.shape)
        for (name, *deeper), leaf, at in leaves(space)
        if not deeper and _is_as_sent(leaf, zero_based)
    ]
    if len(plain) == len(list(leaves(space))):
        return tuple(plain)
    return ()


def _cutter(space: Branch) -> Callable[[Rows], dict[str, Any]]:
    """From rows to {name: the columns of that part}; of a leaf without a shape its one column, [n].

    Written out as one expression: a loop over 8 parts costs 0.5 us more, of a step that takes 8.
    """
    known: dict[str, Any] = {}
    at = 0
    for index, (_, part) in enumerate(space.parts):
        single = isinstance(part, Leaf) and not part.shape and part.form.in_row
        known[f"cut{index}"] = (slice(None), at if single else slice(at, at + part.size))
        at += part.size
    items = ", ".join(f"{name!r}: rows[cut{index}]" for index, (name, _) in enumerate(space.parts))
    cuts = ", ".join(f"{cut}={cut}" for cut in known)
    cutter: Callable[[Rows], dict[str, Any]] = eval(f"lambda rows, {cuts}: {{{items}}}", known)
    return cutter


def _as_it_is(rows: Rows, image: Image) -> Rows:
    return rows


def _convert(leaf: Leaf, zero_based: bool) -> _Reader | None:
    """From a leaf's numbers, float32 [n, size] or, of a leaf without a shape, [n]; None where they are it already."""
    form = leaf.form
    if not form.in_row:
        return lambda rows, image: image
    shape = leaf.shape
    dtype = form.dtype(leaf)
    if _is_as_sent(leaf, zero_based):
        return None if len(shape) < 2 else lambda rows, image: rows.reshape((len(rows), *shape))
    to_trained = None
    if zero_based and form.trained(leaf) != leaf:
        shape = form.trained(leaf).shape
        to_trained = form.to_trained(leaf, np)
    edges = form.edges(leaf)
    wide = leaf.wide

    def convert(rows: Rows, image: Image) -> NDArray[Any]:
        if wide and (wrong := beyond_exact(rows)) is not None:
            raise MalformedMessage(
                "an integer of the observation is not exact in float32, which is what travels",
                fault="engine",
                field="OBS",
                expected=f"{-MAX_EXACT} to {MAX_EXACT}",
                got=wrong,
            )
        whole: NDArray[Any] = rows.astype(dtype)
        if to_trained is not None:
            whole = to_trained(whole)
        for rounded, bound in edges:
            np.copyto(whole, bound, where=rows == rounded)
        return whole if len(shape) < 2 else whole.reshape((len(whole), *shape))

    return convert


def _is_as_sent(leaf: Leaf, zero_based: bool) -> bool:
    """Whether a user sees a leaf's numbers as they come."""
    form = leaf.form
    as_sent = form.in_row and form.dtype(leaf) == np.float32
    return as_sent and not (zero_based and form.trained(leaf) != leaf)
