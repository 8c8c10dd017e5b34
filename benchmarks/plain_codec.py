"""The yardstick for the codec: what a careful person writes in plain Python with split, float and f-strings.

It checks what the real codec checks (counts, finiteness, known and unrepeated envs, flags), because leaving that
out would be comparing different work.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec


class PlainCodec:
    """decode_states and encode_actions without regular expressions, NumPy tricks or compiled loops."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec

    def decode_states(self, line: bytes, buffers: StepBuffers) -> int:
        """One line of rows `OBS=..;REW=..;DONE=..;ENV=..` into the buffers."""
        rows = line.decode("ascii").rstrip("\r\n").split("||")
        for row in rows:
            fields: dict[str, str] = {}
            for part in row.split(";"):
                key, _, value = part.partition("=")
                if key in fields:
                    raise ValueError(row)
                fields[key] = value
            env = int(fields["ENV"])
            if not 0 <= env < self.spec.num_envs or not buffers.pending[env]:
                raise ValueError(row)
            values = [float(text) for text in fields["OBS"].split(",")]
            if len(values) != self.spec.obs_size or not all(map(math.isfinite, values)):
                raise ValueError(row)
            reward = float(fields["REW"])
            if not math.isfinite(reward) or fields["DONE"] not in ("0", "1"):
                raise ValueError(row)
            buffers.obs[env] = values
            buffers.rewards[env] = reward
            buffers.dones[env] = fields["DONE"] == "1"
            buffers.pending[env] = 0
        return len(rows)

    def encode_actions(self, actions: Any) -> bytes:
        """`ACT=..;ENV=0||ACT=..;ENV=1` with full precision."""
        if not np.isfinite(actions).all():
            raise ValueError("not finite")
        rows = [f"ACT={','.join(str(v) for v in row)};ENV={i}" for i, row in enumerate(actions)]
        return ("||".join(rows) + "\n").encode("ascii")
