"""What `ue-rl inspect` advises: about the engine's dialect and speed, and about what it did in some random steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.spec import EnvSpec, EnvType
from ue_rl.training.symptoms import Symptoms

_FEW = 50  # steps; less say nothing about what never happens
_NAGLE = (0.0385, 0.0455)  # seconds: Linux delays an acknowledgement by 40 ms


class Seen:
    """What random steps show.

    Args:
        spec: of the engine. carrier: what the steps travel over. steps: how many there will be.
    """

    def __init__(self, spec: EnvSpec, carrier: str, steps: int) -> None:
        self._symptoms = Symptoms(spec, "", long=steps, enough=steps) if steps >= _FEW else None
        self._said: list[str] = []
        self._steps, self._carrier = steps, carrier
        self._seconds: list[float] = []
        self._same = spec.num_envs > 1 and spec.obs_size > 0
        self._first: Any = None
        self._moved = False

    def step(self, buffers: Any, rewards: Any, dones: Any, seconds: float) -> None:
        """After each step; `buffers`: of the transport."""
        if self._symptoms is not None:
            self._said += self._symptoms.step(buffers.obs, buffers.image, rewards, dones, seconds)
        self._seconds.append(seconds)
        if self._same:
            if self._first is None:
                self._first = buffers.obs[0].copy()
            self._same = bool(np.array_equal(buffers.obs, np.broadcast_to(buffers.obs[0], buffers.obs.shape)))
            self._moved = self._moved or not np.array_equal(buffers.obs[0], self._first)

    def notes(self) -> list[str]:
        """Sentences."""
        said = list(dict.fromkeys(self._said))
        if self._same and self._moved:
            said.append(
                f"all envs had the same observations in {self._steps} random steps: does each env have a state and a "
                "seed of its own, and does its action reach it?"
            )
        median = float(np.median(self._seconds)) if self._seconds else 0.0
        if "tcp" in self._carrier and _NAGLE[0] < median < _NAGLE[1]:
            said.append(
                f"a step takes {median * 1e3:.0f} ms, as long as TCP delays an acknowledgement: unless that is the "
                "game's tick, send each message at once and set TCP_NODELAY on the engine's socket"
            )
        return said


def notes(spec: EnvSpec, median: float | None) -> list[str]:
    """What a user of such an engine should know; `median` seconds a step."""
    said = []
    if spec.version == 0:
        said.append(
            "this is the deployed plugin's dialect: rewards have two decimals, there are no seeds, and truncation "
            "cannot be told from termination (max_episode_steps= on the client can)"
        )
        longest = 4 + 16 * spec.act_size
        if longest > 1024:
            said.append(
                f"an action may take {longest} bytes; the plugin reads 1024 per tick, so it takes several ticks"
            )
    if median is not None and spec.env_type is EnvType.RLBASE and spec.version == 0 and 3 / 200 < median < 3 / 20:
        said.append(
            f"a step takes three of the game's ticks with RLBASE ({median * 1e3 / 3:.0f} ms each): MULTI with "
            "ENV_COUNT=1 takes one and reads actions rightly; shorter ticks help (-UseFixedTimeStep -FPS=..)"
        )
    elif median is not None and 1 / 200 < median < 1 / 20:
        more = "more envs" if spec.env_type is EnvType.MULTI else "MULTI with several envs"
        said.append(
            f"{1 / median:.0f} answers per second is the game's tick, not the bridge: use {more}, a fixed time step "
            "(-UseFixedTimeStep -FPS=..), and no frame cap (t.MaxFPS 0)"
        )
    if spec.version == 0 and spec.env_type is not EnvType.MULTI:
        said.append(
            f"{spec.env_type.value} of the deployed plugin reads doubled or wrong actions, mostly without an error, "
            "unless a NUL byte is sent behind each line (not with --no-nul-terminated): use MULTI with ENV_COUNT=1 "
            "(docs/unreal.md)"
        )
    return said
