"""Whole requests to a transport: what is asked, and the answer to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.transport import Transport


def begin(transport: Transport, *asks: Any, **more: Any) -> StepBuffers:
    """The answer to a reset, connected first where it is not yet; asks, more: what `Transport.reset` takes."""
    transport.connect()
    transport.reset(*asks, **more)
    return transport.receive()


def advance(transport: Transport, actions: Any = 1.0, *asks: Any, **more: Any) -> StepBuffers:
    """The answer to a step; a number or a row is that of all rows. asks, more: what `Transport.send_actions` takes."""
    spec = transport.connect()
    rows = np.broadcast_to(np.asarray(actions, np.float32), (spec.num_rows, spec.act_size)).copy()
    transport.send_actions(rows, *asks, **more)
    return transport.receive()


def totals(transport: Transport, actions: Any = 1.0) -> list[float]:
    """The first number of each env's observation behind a step: what a game that adds its actions up has come to."""
    return [float(row[0]) for row in advance(transport, actions).obs]
