"""What a trainer asks beside the steps, done by what the game offers (docs/protocol.md, section 8; bridges/hosting.py).

Calls, the game's parameters, listed, read and set, with every check in one place, and what comes with a reset. No I/O.

A host calls `answer_call` with a line between two steps, whatever carries it. The answer may be a refusal: a call that
cannot be followed costs the trainer nothing, and never the session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ue_rl.bridges.hosting import (
    AnswersCalls,
    ComputesRewards,
    GetsParameters,
    ListsParameters,
    Pauses,
    Renders,
    ScalesTime,
    SetsParameters,
)
from ue_rl.protocol.spec import EnvSpec, Parameter
from ue_rl.protocol.text import calls
from ue_rl.protocol.text.calls import Call
from ue_rl.protocol.text.settings import check_parameter, find_parameter
from ue_rl.system.errors import ConfigurationError, MalformedMessage, UeRlError, UnknownEnv, UnsupportedByEngine

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges")
Known = dict[str, Parameter]
ALL_ENVS = -1  # what SetsParameters takes for all of them
_OF_A_WRONG_TYPE = (TypeError, ValueError, LookupError, AttributeError)


def answer_call(bridge: BaseBridge, line: bytes) -> bytes:
    """The answer to `line`; both without line ending. Never raises: what cannot be done is answered with REFUSED=.

    The caller makes sure that no request is open. The game's methods run here, with the bridge's lock held.
    """
    with bridge.lock:
        before = bridge.lockstep.caller
        bridge.lockstep.caller = threading.get_ident()
        try:
            if isinstance(bridge, AnswersCalls):
                answer = bridge.answer_line(line.decode("ascii"))
            else:
                answer = _answer(bridge, calls.read_call(line))
        except UeRlError as error:
            answer = calls.write_refused(error.plain())
        except Exception as error:  # noqa: BLE001 - a bug of the game: logged with its traceback, and told
            _log.exception("the game's code failed in a call: %s", line[:80].decode("ascii", "replace"))
            answer = calls.write_refused(f"the game's code failed: {error!r}")
        finally:
            bridge.lockstep.caller = before
        if bridge.lockstep.recorder is not None:
            bridge.lockstep.recorder.called(line.decode("ascii", "replace"), answer)
    return answer.encode("ascii")


def takes_calls(spec: EnvSpec) -> bool:
    """Does the engine announce any call?"""
    return bool(spec.parameters) or not spec.features.isdisjoint(("TIME_SCALE", "PAUSE", "RENDER", "GOAL_REWARD"))


def _answer(bridge: BaseBridge, call: Call) -> str:
    game: Any = bridge
    if call.name == "GET":
        return calls.write_values(read_parameters(game, call.names, call.env))
    if call.name == "SET":
        set_parameters(game, call.settings, call.env)
        return calls.write_values(read_parameters(game, call.settings, call.env))
    if call.name == "TIME_SCALE":
        if not isinstance(game, ScalesTime):
            raise lacks("set_time_scale")
        game.set_time_scale(call.value)
        return calls.OK
    if call.name == "PAUSE":
        if not isinstance(game, Pauses):
            raise lacks("set_paused")
        bridge.lockstep.pause(call.value == 1)
        return calls.OK
    if call.name == "RENDER":
        if not isinstance(game, Renders):
            raise lacks("render")
        env = call.env
        if not env:
            env = 0
        picture = game.render(check_env(bridge.num_envs, env))
        if picture is None:
            raise ConfigurationError("there is no picture of this env now", fault="engine", env_id=call.env or 0)
        return calls.write_picture(picture)
    return _rewards(game, call)


def _rewards(game: Any, call: Call) -> str:
    if not isinstance(game, ComputesRewards):
        raise lacks("compute_reward")
    assert call.achieved is not None
    assert call.desired is not None
    rewards = np.asarray(game.compute_reward(call.achieved, call.desired), np.float32).reshape(-1)
    if len(rewards) != len(call.achieved):
        what = "the game's compute_reward gave a wrong number of rewards"
        raise ConfigurationError(what, fault="engine", field="REW", expected=len(call.achieved), got=len(rewards))
    return calls.write_rewards(rewards)


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
    env = 0
    if env_id is not None:
        env = check_env(game.num_envs, env_id)
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
        if env_id is None:
            where = ALL_ENVS
        else:
            where = env_id
        game.set_parameter(name, float(value), where)


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
            field = error.field
            if not field:
                field = "SET"
            got = error.got
            if not got:
                got = dict(values)
            raise MalformedMessage(
                f"SET beside a reset cannot be followed: {error.message}",
                fault="trainer",
                env_id=env_id,
                field=field,
                expected=error.expected,
                got=got,
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
