"""What a session gives and takes, as messages of sessions.proto."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.limits import FLOAT
from ue_rl.plugins.sessions.realtime import SessionObservation, ToolCall
from ue_rl.plugins.sessions.realtime.observation import ObservationColumns
from ue_rl.system.errors import ActionError, ToolError
from ue_rl.system.json_text import json_object, json_text

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.observation import Action


def read_numbers(data: bytes, size: int, rows: int | None = None) -> NDArray[np.float32]:
    """float32 [size], or [rows, size], of the bytes of a message.

    Raises:
        ActionError: they are too few or too many.
    """
    count = 1
    if rows is not None:
        count = rows
    expected = 4 * size * count
    if len(data) != expected:
        raise ActionError(
            "the action has a wrong size",
            fault="caller",
            field="action",
            got=f"{len(data)} bytes",
            expected=f"{expected} bytes: {'' if rows is None else f'{rows} x '}{size} numbers, float32, little endian",
        )
    numbers = np.frombuffer(data, FLOAT).astype(np.float32, copy=False)
    if rows is None:
        return numbers
    return numbers.reshape(rows, size)


def read_action(message: messages.Action, size: int) -> Action:
    """An action of `size` numbers, or a tool call.

    Raises:
        ActionError: the numbers are too few or too many. ToolError: the arguments are not a JSON object.
    """
    if not message.tool:
        return read_numbers(message.action, size)
    arguments = read_json(message.arguments_json)
    if arguments is None:
        raise ToolError(
            "the arguments of a tool are no JSON object",
            tool=message.tool,
            code="INVALID_PARAMETERS",
            field="arguments_json",
            got=message.arguments_json,
        )
    return ToolCall(message.tool, arguments)


def read_json(text: str) -> dict[str, Any] | None:
    """The object of a field; {} of an empty one, None where it holds no object."""
    if text:
        return json_object(text)
    return {}


def observation(seen: SessionObservation) -> messages.Observation:
    """`seen` as a message."""
    told = seen._asdict()
    del told["info"]
    told["observation"] = seen.observation.astype(FLOAT, copy=False).tobytes()
    if seen.mask is None:
        told["mask"] = None
    else:
        told["mask"] = seen.mask.tobytes()
    return messages.Observation(info_json=info_text(seen.info), **told)


def info_text(info: Mapping[str, Any]) -> str:
    """The infos as JSON; "" where there are none."""
    if info:
        return json_text(info, "INFO")
    return ""


def rows(observations: Sequence[SessionObservation]) -> messages.StepAllResponse:
    """K observations as packed rows."""
    seen = ObservationColumns.of(observations).columns
    return messages.StepAllResponse(
        observations=np.asarray(seen.observation, FLOAT).tobytes(),
        rewards=np.asarray(seen.reward, FLOAT).tobytes(),
        terminated=bytes(seen.terminated),
        truncated=bytes(seen.truncated),
        masks=b"" if seen.mask[0] is None else np.asarray(seen.mask, np.uint8).tobytes(),
        ticks=seen.tick,
        infos_json={row: info_text(info) for row, info in enumerate(seen.info) if info},
        results={row: result for row, result in enumerate(seen.result) if result},
    )
