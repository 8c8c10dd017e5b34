"""Factories of bridges on their way to a process of their own: lambdas and what a notebook's cell defines go too."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ue_rl.system.errors import ConfigurationError, shorten

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge


def packed(factory: Callable[[], BaseBridge], options: dict[str, Any], instead: str) -> bytes:
    """The factory and the options of its host, for `unpacked` in another process.

    With the package cloudpickle, as vector envs of other libraries send their envs: what the main module defines goes
    by its code, since a notebook's cannot be imported elsewhere. Without it by pickle, which sends a name.

    Args:
        instead: what hosts such a bridge in this process, for the error.

    Raises:
        ConfigurationError: it cannot be sent.
    """
    wrong: list[str] = []
    for send in _senders():
        try:
            return send((factory, options))
        except Exception as error:  # noqa: BLE001 - whatever the __reduce__ of somebody's class raises
            wrong.append(f"{type(error).__name__}: {error}")
    cloud = ", or install the package cloudpickle"
    if len(wrong) > 1:
        cloud = ""
    raise ConfigurationError(
        "the factory cannot be sent to a process of its own",
        field="factory",
        got=shorten(wrong[0], 400),
        expected="a class, a function or a functools.partial of what can be pickled",
        cure=f"host the bridge in this process: {instead}{cloud}",
    )


def _senders() -> list[Callable[[Any], bytes]]:
    """The second is for what refers to a global of the main module that cannot be sent, such as a lock."""
    try:
        import cloudpickle
    except ImportError:
        return [pickle.dumps]
    return [cloudpickle.dumps, pickle.dumps]


def unpacked(data: bytes) -> tuple[Callable[[], BaseBridge], dict[str, Any]]:
    """What `packed` has packed, in the other process.

    Raises:
        whatever its import raises.
    """
    factory, options = pickle.loads(data)  # of the process that has started this one
    return factory, options
