"""blames_options: what a game raises because of a reset's OPTIONS is one sentence, and the trainer's doing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ue_rl.errors import MalformedMessage, UeRlError

_log = logging.getLogger("ue_rl.bridges")
_OF_A_WRONG_TYPE = (TypeError, ValueError, LookupError, AttributeError)


@contextmanager
def blames_options(options: Mapping[str, Any] | None, env_id: int | None) -> Iterator[None]:
    """Around the game's reset. Without options what it raises is a bug of the game, and passes through.

    Raises:
        MalformedMessage: the game could not use the options: wrong names, types or values. Its own traceback stands in
            the log at DEBUG.
    """
    try:
        yield
    except _OF_A_WRONG_TYPE as error:
        if not options or isinstance(error, UeRlError):
            raise
        _log.debug("the game's reset failed with options", exc_info=True)
        raise MalformedMessage(
            f"the game cannot use the options of a reset: {type(error).__name__}: {error}",
            fault="trainer",
            env_id=env_id,
            field="OPTIONS",
            got=dict(options),
            cure="give the names and types that the game's reset takes; its traceback is logged at DEBUG",
        ) from error
