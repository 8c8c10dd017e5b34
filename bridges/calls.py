"""Calls of a trainer, answered from what the game offers (docs/protocol.md, section 8; bridges/hosting.py). No I/O.

A host calls `answer_call` with a line between two steps, whatever carries it. The answer may be a refusal: a call that
cannot be followed costs the trainer nothing, and never the session.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ue_rl.bridges.hosting import ComputesRewards, Pauses, Renders, ScalesTime
from ue_rl.bridges.parameters import check_env, lacks, read_parameters, set_parameters
from ue_rl.errors import ConfigurationError, UeRlError
from ue_rl.spec import EnvSpec
from ue_rl.wire import calls
from ue_rl.wire.calls import Call

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge

_log = logging.getLogger("ue_rl.bridges")


def answer_call(bridge: BaseBridge, line: bytes) -> bytes:
    """The answer to `line`; both without line ending. Never raises: what cannot be done is answered with REFUSED=.

    The caller makes sure that no request is open. The game's methods run here, with the bridge's lock held.
    """
    with bridge.lock:
        before, bridge.lockstep.caller = bridge.lockstep.caller, threading.get_ident()
        try:
            answer = _answer(bridge, calls.read_call(line))
        except UeRlError as error:
            answer = calls.write_refused(error.plain())
        except Exception as error:  # noqa: BLE001 - a bug of the game: logged with its traceback, and told
            _log.exception("the game's code failed in a call: %s", line[:80].decode("ascii", "replace"))
            answer = calls.write_refused(f"the game's code failed: {error!r}")
        finally:
            bridge.lockstep.caller = before
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
        picture = game.render(check_env(bridge.num_envs, call.env or 0))
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
        raise ConfigurationError(
            "the game's compute_reward gave a wrong number of rewards",
            fault="engine",
            field="REW",
            expected=len(call.achieved),
            got=len(rewards),
        )
    return calls.write_rewards(rewards)
