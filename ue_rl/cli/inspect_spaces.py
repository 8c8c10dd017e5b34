"""What `ue-rl inspect` says of an engine's spaces, names, parameters, masks and agents: text, from an EnvSpec alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, box
from ue_rl.protocol.spec import FEATURES, EnvSpec
from ue_rl.protocol.text.handshake import KNOWN_KEYS
from ue_rl.system.errors import nearest

_MOST = 64  # names in a list, and lines of a tree


def rows(spec: EnvSpec) -> Iterator[tuple[str, str]]:
    """(what, text) of everything that the handshake says beyond sizes and wiring."""
    if spec.groups:
        for group in spec.groups:
            yield f"agents: {group.name}", f"{group.count} in each env ({', '.join(group.agent_names[:8])})"
            yield from _spaces(group.spec, f" of {group.name}")
    else:
        yield from _spaces(spec, "")
    if spec.parameters:
        yield (
            "parameters",
            "\n".join(
                f"{p.name} = {p.value:g}"
                + ("" if np.isinf(p.low) and np.isinf(p.high) else f" ({p.low:g} to {p.high:g})")
                for p in spec.parameters
            ),
        )
    else:
        yield "parameters", "none"
    masks = "none"
    if spec.mask_size:
        masks = f"{spec.mask_size} flags a row"
    yield "action masks", masks
    for key in spec.unknown:
        yield "unknown key", f"{key}: {nearest(key, KNOWN_KEYS) or 'skipped'}"
    for word in sorted(spec.features - FEATURES):
        yield "unknown feature", f"{word}: {nearest(word, FEATURES) or 'skipped'}"


def _spaces(spec: EnvSpec, whose: str) -> Iterator[tuple[str, str]]:
    yield f"observation space{whose}", tree_text(observation(spec), spec.obs_names)
    yield f"action space{whose}", tree_text(spec.action_spec.tree, spec.act_names)


def observation(spec: EnvSpec) -> Space:
    """The observation as a tree, also where the handshake has none."""
    if spec.obs_space is not None:
        return spec.obs_space
    numbers = box((spec.obs_size,), *spec.obs_bounds)
    if spec.image is None:
        return numbers
    image = Leaf(LeafKind.IMAGE)
    if spec.image.only:
        return image
    return Branch((("obs", numbers), ("image", image)))


def tree_text(space: Space, names: Sequence[str] = ()) -> str:
    """One line for each part, with the numbers of the row that it has, and their names where there are any."""
    lines = list(_lines(space, "", 0, names))
    if len(lines) <= _MOST:
        shown = lines
    else:
        shown = [*lines[:_MOST], f".. and {len(lines) - _MOST} more"]
    return "\n".join(shown)


def _lines(space: Space, indent: str, at: int, names: Sequence[str]) -> Iterator[str]:
    if isinstance(space, Leaf):
        yield f"{indent}{space.form.summary(space)}{_named(names[at : at + space.size])}"
        return
    yield f"{indent}{'DICT' if space.named else 'TUPLE'}, {space.size} numbers"
    for name, part in space.parts:
        if part.size == 1:
            where = f"[{at}]"
        elif part.size:
            where = f"[{at}:{at + part.size}]"
        else:
            where = "beside the row"
        first, *more = _lines(part, "", at, names)
        yield f"{indent}  {name} {where}: {first}"
        for line in more:
            yield f"{indent}  {line}"
        at += part.size


def _named(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f": {', '.join(names[:_MOST])}{', ..' if len(names) > _MOST else ''}"
