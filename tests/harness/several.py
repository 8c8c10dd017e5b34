"""Walk, a small game that several engines can share, and FragileSource, an engine that is lost when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.multi_env import MultiEnvBridge
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.lifecycle import Life, LifeState
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.protocol.buffers import Resets
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import EngineDisconnected, EngineUnreachable, UeRlError

__all__ = ["FragileSource", "FragileTransport", "MaskedWalk", "Walk"]


class Walk(MultiEnvBridge):
    """Numbers that say where they come from: observation = env among all engines, seed (-1: none), step, last action.

    An episode of seed s takes 3 + s % 4 steps, and is truncated where s is odd; without a seed it takes 4.

    Args:
        num_envs: of this engine. first: the number of its first env among those of all engines. spec: more of EnvSpec.

    Attributes:
        gravity: of each env, a parameter. log: ("reset", env, seed, options, gravity) and ("act", env), in this order.
    """

    def __init__(self, num_envs: int, first: int = 0, **spec: Any) -> None:
        given = {"action": ActionSpec.discrete(3), "act_size": 1, **spec}
        features = frozenset({"TRUNC", "SEED", "OPTIONS", "INFO", *spec.pop("features", ())})
        super().__init__(EnvSpec(4, num_envs=num_envs, **{**given, "features": features}))
        self.first = first
        self.seeds, self.steps, self.acted = [-1] * num_envs, [0] * num_envs, [0.0] * num_envs
        self.gravity = [9.8] * num_envs
        self.scale = 1.0
        self.log: list[tuple[Any, ...]] = []

    def create_state_string_for_env(self, env_id: int) -> Sequence[float]:
        if self.outbox.image is not None:
            self.outbox.image[env_id] = (self.first + env_id + 10 * self.steps[env_id]) % 256
        return [self.first + env_id, self.seeds[env_id], self.steps[env_id], self.acted[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool, bool]:
        seed, step = self.seeds[env_id], self.steps[env_id]
        over = step >= (4 if seed < 0 else 3 + seed % 4)
        self.outbox.infos[env_id] = {"step": step}
        return step + self.acted[env_id] / 4, over, over and seed % 2 == 1 and seed > 0

    def handle_reset_for_env(self, env_id: int, seed: int | None = None, options: Any = None) -> None:
        self.seeds[env_id], self.steps[env_id], self.acted[env_id] = -1 if seed is None else seed, 0, 0.0
        self.log.append(("reset", self.first + env_id, seed, options, self.gravity[env_id]))

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        self.steps[env_id] += 1
        self.acted[env_id] = float(actions[0])
        self.log.append(("act", self.first + env_id))

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"gravity": (self.gravity[0], 0.0, 20.0)}

    def get_parameter(self, name: str, env_id: int) -> float:
        return self.gravity[env_id]

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        for env in range(self.num_envs) if env_id < 0 else [env_id]:
            self.gravity[env] = value

    def set_time_scale(self, scale: float) -> None:
        self.scale = scale

    def render(self, env_id: int) -> NDArray[np.uint8]:
        """One pixel: the env among all engines."""
        return np.full((1, 1, 3), self.first + env_id, np.uint8)

    def compute_reward(self, achieved: NDArray[np.float32], desired: NDArray[np.float32]) -> NDArray[np.float32]:
        distances: NDArray[np.float32] = np.abs(achieved - desired).sum(axis=1)
        return -distances


class MaskedWalk(Walk):
    """With action masks: choice 0 is legal always, 1 at even steps, 2 at odd ones."""

    def create_action_mask_for_env(self, env_id: int) -> list[int]:
        return [1, 1 - self.steps[env_id] % 2, self.steps[env_id] % 2]


class FragileTransport(MemoryTransport):
    """A MemoryTransport that is lost where its source says.

    Args:
        source: whose `breaks` it reads.

    Attributes:
        timeout: what an answer that comes too late was waited for.
    """

    def __init__(self, source: FragileSource, bridge: Any, **options: Any) -> None:
        super().__init__(bridge, **options)
        self._source, self._resetting = source, False
        self.timeout = 30.0

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        self._source.may_break("ask")
        super()._ask(actions, resets)
        self._resetting = False

    def _ask_resets(self, resets: Resets) -> None:
        self._source.may_break("ask_resets")
        super()._ask_resets(resets)
        self._resetting = True

    def _collect(self) -> None:
        self._source.waited.append(self.timeout)
        self._source.may_break("collect_resets" if self._resetting else "collect")
        super()._collect()

    def _call(self, line: bytes) -> bytes:
        self._source.may_break("call")
        return super()._call(line)


class FragileSource:
    """An EngineSource in memory.

    Args:
        make: the number of the life, from 0 -> its bridge or transport. name: for messages.

    Attributes:
        breaks: where the engine is lost next: "open", "ask", "ask_resets", "collect", "collect_resets", "call"; each
            entry strikes once. error: what is raised there.
        bridges: of each life so far. losses: errors that `lost` was told. closed: `close` was called. started: how
            often `start` was called. waited: the timeout of each answer that was waited for.
    """

    def __init__(self, make: Callable[[int], Any], name: str = "memory", **options: Any) -> None:
        self.name, self._make, self._options = name, make, options
        self.breaks: list[str] = []
        self.error: Callable[[], UeRlError] = lambda: EngineDisconnected("the engine went away", fault="engine")
        self.bridges: list[Any] = []
        self.losses: list[UeRlError] = []
        self.waited: list[float] = []
        self.closed = False
        self.started = 0

    def may_break(self, where: str) -> None:
        """Raises where `breaks` says so."""
        if where in self.breaks:
            self.breaks.remove(where)
            raise self.error()

    def start(self, life: Life) -> None:
        self.started += 1

    def open(self, life: Life) -> BaseTransport:
        life.to(LifeState.CONNECTING)
        if "open" in self.breaks:
            self.breaks.remove("open")
            life.to(LifeState.CONNECTION_LOST, "nobody listens")
            raise EngineUnreachable("nobody listens", fault="network")
        made = self._make(len(self.bridges))
        self.bridges.append(made)
        transport = made if isinstance(made, BaseTransport) else FragileTransport(self, made, **self._options)
        transport.connect()
        life.to(LifeState.STREAMING)
        return transport

    def lost(self, error: UeRlError) -> UeRlError:
        self.losses.append(error)
        return error

    def close(self) -> None:
        self.closed = True
