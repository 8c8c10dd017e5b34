"""Who draws the parameters of a transport's resets (Transport.draw_parameters): saved, restored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ue_rl.calls.parameters import drawer_of
from ue_rl.transport import Transport


def draws_of(transport: Transport) -> Any:
    """The generators of who draws the parameters of this transport's resets; None where nobody does."""
    generators = getattr(drawer_of(transport), "generators", None)
    return None if generators is None else generators()


def restore_draws(transport: Transport, state: Any) -> None:
    """Gives who draws now the generators that `draws_of` returned."""
    drawer = drawer_of(transport)
    if state is not None and hasattr(drawer, "set_generators"):
        drawer.set_generators(state)


def show_drawn(transport: Transport, values: Mapping[int, Mapping[str, float]]) -> None:
    """Who draws now is told what the present episodes of these envs have, which somebody else has drawn."""
    show = getattr(drawer_of(transport), "show_drawn", None)
    if show is not None:
        show(values)
