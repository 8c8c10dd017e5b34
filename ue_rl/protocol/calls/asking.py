"""EngineCalls: what a trainer may ask an engine for between two steps (docs/protocol.md, section 8), as plain methods.

    calls = EngineCalls(transport)
    calls.set_parameters({"gravity": 3.7})
    calls.render(0)

Each call is a round trip of its own, so none may be made while a step is under way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spec import Parameter
from ue_rl.protocol.text import calls
from ue_rl.protocol.text.settings import check_parameter, find_parameter
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError, MalformedMessage, ProtocolError, UnsupportedByEngine

T = TypeVar("T")

_NUMBER_TEXT = 18  # bytes that a float32 and its comma may take: -6843686000000000,


class EngineCalls:
    """The calls of one connection, whatever carries it.

    What the engine does not announce in its handshake is refused here, before anything is sent.

    Args:
        transport: connected.
        call_limit: bytes of a call; what needs more goes over in several.
    """

    def __init__(self, transport: Transport, call_limit: int = calls.CALL_LIMIT) -> None:
        self._transport = transport
        self._limit = call_limit

    # -- parameters

    def list_parameters(self) -> dict[str, Parameter]:
        """Name -> parameter with its value now (of env 0) and its range; {} where the engine has none."""
        known = self._known
        if not known:
            return {}
        now = self.get_parameters()
        return {name: _now(known[name], value) for name, value in now.items()}

    def get_parameters(self, names: Iterable[str] | None = None, env_id: int | None = None) -> dict[str, float]:
        """The values now.

        Args:
            names: or one name; None: all. env_id: of this env; None: of env 0.

        Raises:
            UnsupportedByEngine: the engine has no parameters, or none of such a name. ConfigurationError: no such env.
            CommandFailed: the engine refused. Also what Transport.receive raises.
        """
        if isinstance(names, str):
            names = [names]
        known = self._require_parameters()
        if names is None:
            wanted = list(known)
        else:
            wanted = [find_parameter(known, name).name for name in names]
        env = self._check_env(env_id)
        line = calls.write_get(() if names is None else wanted, env)
        return self._ask(line, lambda answer: calls.read_values(answer, wanted))

    def set_parameters(self, values: Mapping[str, float], env_id: int | None = None) -> dict[str, float]:
        """Sets all of `values`, or none where one is wrong.

        Args:
            values: name -> value. env_id: of this env; None: of all.

        Returns:
            what the engine has afterwards, of the same names.

        Raises:
            UnsupportedByEngine: the engine has no parameters, or none of such a name. ConfigurationError: a value is
                no number or out of its range, or there is no such env; nothing was sent. CommandFailed: the engine
                refused. Also what Transport.receive raises.
        """
        known = self._require_parameters()
        for name, value in values.items():
            check_parameter(known, name, value)
        if not values:
            return {}
        line = calls.write_set(values, self._check_env(env_id))
        return self._ask(line, lambda answer: calls.read_values(answer, list(values)))

    # -- the game

    def set_time_scale(self, scale: float) -> None:
        """Runs the game at `scale` times real time; 1 is real time.

        Raises:
            UnsupportedByEngine, ConfigurationError (not positive and finite), CommandFailed.
        """
        self._require("TIME_SCALE", "run faster or slower than real time")
        self._ask(calls.write_time_scale(scale), calls.read_ok)

    def pause(self) -> None:
        """Stops the game between two steps; a step that is asked for is taken all the same.

        Raises:
            UnsupportedByEngine, CommandFailed.
        """
        self._pause(True)

    def resume(self) -> None:
        """Lets the game go on; otherwise as `pause`."""
        self._pause(False)

    def render(self, env_id: int = 0) -> NDArray[np.uint8]:
        """A picture of an env, uint8 [height, width, channels].

        Raises:
            UnsupportedByEngine, ConfigurationError (no such env), CommandFailed (there is no picture now).
        """
        self._require("RENDER", "send pictures")
        return self._ask(calls.write_render(self._check_env(env_id)), calls.read_picture)

    def compute_reward(self, achieved: Any, desired: Any) -> NDArray[np.float32]:
        """The rewards for pairs of goals, as hindsight relabelling asks for them.

        Args:
            achieved, desired: float32 [n, k] each, or [k] for one pair.

        Returns:
            float32 [n].

        Raises:
            UnsupportedByEngine, CommandFailed. ConfigurationError: other shapes, or numbers that are not finite.
        """
        self._require("GOAL_REWARD", "compute rewards of goals")
        pairs = [np.atleast_2d(np.asarray(goals, np.float32)) for goals in (achieved, desired)]
        if pairs[0].shape != pairs[1].shape or pairs[0].ndim != 2:
            raise ConfigurationError(
                "goals have one shape, a row for each pair", field="GOALS", expected=pairs[0].shape, got=pairs[1].shape
            )
        count, size = pairs[0].shape
        rewards = np.empty(count, np.float32)
        most = max(1, (self._limit - 64) // (2 * size * _NUMBER_TEXT + 4))
        for start in range(0, count, most):
            part = slice(start, min(start + most, count))
            line = calls.write_goals(pairs[0][part], pairs[1][part])
            asked = part.stop - start
            rewards[part] = self._ask(line, functools.partial(calls.read_rewards, count=asked))
        return rewards

    # -- helpers

    def _ask(self, line: str, read: Callable[[str], T]) -> T:
        """The answer to a call as `read` gives it; one that it refuses makes the connection dead (section 10)."""
        answer = self._transport.call(line)
        try:
            return read(answer)
        except ProtocolError as error:
            self._transport.fail(error)
            raise

    @property
    def _known(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self._transport.spec.parameters}

    def _pause(self, paused: bool) -> None:
        self._require("PAUSE", "pause")
        self._ask(calls.write_pause(paused), calls.read_ok)

    def _require(self, feature: str, ability: str) -> None:
        features = self._transport.spec.features
        if feature not in features:
            raise UnsupportedByEngine(
                f"this engine cannot {ability}",
                field=feature,
                expected=f"FEATURES={feature} in the handshake",
                got=sorted(features) or "no FEATURES",
                cure="leave it out, or teach the engine to do it (docs/protocol.md, section 8)",
            )

    def _require_parameters(self) -> dict[str, Parameter]:
        known = self._known
        if not known:
            find_parameter(known, "PARAMS")  # says so
        return known

    def _check_env(self, env_id: int | None) -> int | None:
        count = self._transport.spec.num_envs
        if env_id is not None and not (isinstance(env_id, (int, np.integer)) and 0 <= env_id < count):
            raise ConfigurationError("no such env", field="env_id", expected=f"0 to {count - 1}", got=env_id)
        return env_id


def _now(parameter: Parameter, value: float) -> Parameter:
    try:
        return replace(parameter, value=value)
    except ConfigurationError as error:
        raise MalformedMessage(
            "the engine has a parameter outside its own range",
            fault="engine",
            field=parameter.name,
            expected=f"{parameter.low:g} to {parameter.high:g}",
            got=value,
        ) from error
