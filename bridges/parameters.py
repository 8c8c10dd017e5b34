"""A game's parameters for a trainer: listed, read and set, with every check in one place.

What the game offers is ListsParameters, SetsParameters and GetsParameters of bridges/hosting.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ue_rl.bridges.hosting import GetsParameters, ListsParameters, SetsParameters
from ue_rl.errors import MalformedMessage, UeRlError, UnknownEnv, UnsupportedByEngine
from ue_rl.spec import Parameter
from ue_rl.wire.settings import check_parameter, find_parameter

Known = dict[str, Parameter]
ALL_ENVS = -1  # what SetsParameters takes for all of them
_log = logging.getLogger("ue_rl.bridges")
_OF_A_WRONG_TYPE = (TypeError, ValueError, LookupError, AttributeError)


def known_parameters(game: Any) -> Known:
    """Name -> parameter, in the game's order.

    Raises:
        UnsupportedByEngine: it has none. ConfigurationError: one is outside its own range.
    """
    if not isinstance(game, ListsParameters):
        raise lacks("list_parameters")
    return {name: Parameter(name, *map(float, numbers)) for name, numbers in game.list_parameters().items()}


def read_parameters(game: Any, names: Iterable[str] = (), env_id: int | None = None) -> dict[str, float]:
    """The values now, of all parameters where none is named.

    Args:
        env_id: of this env; None: of env 0. A game without `get_parameter` has the same in all.

    Raises:
        UnsupportedByEngine: no such parameter. UnknownEnv.
    """
    env = 0 if env_id is None else check_env(game.num_envs, env_id)
    known = known_parameters(game)
    wanted = [find_parameter(known, name).name for name in names] or list(known)
    if isinstance(game, GetsParameters):
        return {name: float(game.get_parameter(name, env)) for name in wanted}
    return {name: known[name].value for name in wanted}


def set_parameters(game: Any, values: Mapping[str, float], env_id: int | None = None) -> None:
    """Sets all of `values`, or none where one is wrong.

    Args:
        env_id: of this env; None: of all.

    Raises:
        UnsupportedByEngine, ConfigurationError, UnknownEnv: as `check_values`.
    """
    check_values(game, values, env_id)
    for name, value in values.items():
        game.set_parameter(name, float(value), ALL_ENVS if env_id is None else env_id)


def check_values(game: Any, values: Mapping[str, float], env_id: int | None = None) -> None:
    """Raises where the game cannot set one of them.

    Raises:
        UnsupportedByEngine: it sets no parameters, or has none of this name. ConfigurationError: out of range.
        UnknownEnv: no such env.
    """
    num_envs: int = game.num_envs
    if not isinstance(game, SetsParameters):
        raise lacks("set_parameter")
    known = known_parameters(game)
    if env_id is not None:
        check_env(num_envs, env_id)
    for name, value in values.items():
        check_parameter(known, name, value, None, env_id)


def apply_with_resets(game: Any, given: dict[int, Mapping[str, float]], agents: int) -> None:
    """Sets what came with resets, and empties `given`: all of it, or nothing where one value is wrong.

    Args:
        given: first row of an env -> values. agents: rows of an env.

    Raises:
        MalformedMessage: a value is wrong; it says which, and what would have been right.
    """
    wanted = {row // agents: values for row, values in given.items()}
    given.clear()
    for env_id, values in wanted.items():
        try:
            check_values(game, values, env_id)
        except UeRlError as error:
            raise MalformedMessage(
                f"SET beside a reset cannot be followed: {error.message}",
                fault="trainer",
                env_id=env_id,
                field=error.field or "SET",
                expected=error.expected,
                got=error.got or dict(values),
            ) from error
    for env_id, values in wanted.items():
        for name, value in values.items():
            game.set_parameter(name, float(value), env_id)


def check_env(num_envs: int, env_id: int) -> int:
    """`env_id`; raises UnknownEnv: there is no such env."""
    if not 0 <= env_id < num_envs:
        raise UnknownEnv(
            "the env id does not exist", fault="trainer", field="ENV", expected=f"0 to {num_envs - 1}", got=env_id
        )
    return env_id


def lacks(name: str) -> UnsupportedByEngine:
    """The error for a game without the method `name`."""
    return UnsupportedByEngine(f"this engine has no {name}", cure=f"the bridge may define {name}()")


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
