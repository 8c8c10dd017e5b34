"""Requests over a transport, answered."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.buffers import StepBuffers
from ue_rl.transport import Transport


def reset(transport: Transport, *args: Any, **given: Any) -> StepBuffers:
    """Begins episodes, over a connection that is made where there is none."""
    transport.connect()
    transport.reset(*args, **given)
    return transport.receive()


def step(transport: Transport, actions: Any = 0.0, **given: Any) -> StepBuffers:
    """A step with these actions of all rows, or with one number for all of them."""
    spec = transport.connect()
    rows = np.broadcast_to(np.asarray(actions, np.float32), (spec.num_rows, spec.act_size)).copy()
    transport.send_actions(rows, **given)
    return transport.receive()
