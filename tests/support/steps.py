"""Whole requests to a transport: what is asked, and the answer to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.buffers import StepBuffers
from ue_rl.transport import Transport


def begin(transport: Transport, *asks: Any, **more: Any) -> StepBuffers:
    """The answer to a reset, connected first where it is not yet; asks, more: what `Transport.reset` takes."""
    transport.connect()
    transport.reset(*asks, **more)
    return transport.receive()


def advance(transport: Transport, actions: Any = 1.0, resets: Any = None) -> StepBuffers:
    """The answer to a step; a number is every number of all rows."""
    spec = transport.spec
    if np.ndim(actions) == 0:
        actions = np.full((spec.num_rows, spec.act_size), actions, np.float32)
    transport.send_actions(actions, resets)
    return transport.receive()


def totals(transport: Transport, actions: Any = 1.0) -> list[float]:
    """The first number of each env's observation behind a step: what a game that adds its actions up has come to."""
    return [float(row[0]) for row in advance(transport, actions).obs]
