"""A game whose commands the tests call, hosted over shared memory by name and by upgrade."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.support.waiting import eventually
from ue_rl.bridges import ShmHost, ShmUpgrader, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm.commands import ShmCommands
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.envelope import Method, messages
from ue_rl.protocol.memory.header import CLIENT_PID
from ue_rl.protocol.memory.ring import Ring
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors
from ue_rl.system.timing import Timing

M = messages()
SPEC = EnvSpec(2, 1, num_envs=3, features=frozenset({"SEED", "OPTIONS", "INFO"}))


class Game(VectorBridge):
    """Counts steps; notes what it is told. Method 1000 raises, 1001 doubles a stamp, 1002 sends an event."""

    def __init__(self, spec: EnvSpec = SPEC) -> None:
        super().__init__(spec)
        self.values = {"gravity": 9.81, "friction": 0.5}
        self.per_env: dict[tuple[int, str], float] = {}
        self.told: list[Any] = []
        self.resets: list[Any] = []
        self.observation_names, self.action_names = ["x", "v"], ["push"]

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"gravity": (self.values["gravity"], 0.0, 20.0), "friction": (self.values["friction"], 0.0, 1.0)}

    def get_parameter(self, name: str, env_id: int) -> float:
        return self.per_env.get((env_id, name), self.values[name])

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        if env_id < 0:
            self.values[name] = value
        else:
            self.per_env[env_id, name] = value

    def set_time_scale(self, scale: float) -> None:
        self.told.append(scale)

    def begin_contract(self, *contract: Any) -> None:
        self.told.append(contract)

    def trainer_closes(self, reason: str) -> None:
        self.told.append(reason)

    def register_commands(self, dispatcher: Dispatcher) -> None:
        dispatcher.register(1000, lambda payload, command: 1 // 0)
        dispatcher.register(1001, lambda payload, command: M.PingT(stamp=2 * payload.stamp))
        dispatcher.register(1002, lambda payload, command: self.told.append(self.send_event(payload.stamp)))

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 0
        self.resets.append((env_ids.tolist(), list(seeds), list(options)))
        for env in env_ids.tolist():
            self.write_info(env, {"reset": len(self.resets)})

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.obs[env_ids] += 1
        self.outbox.rewards[env_ids] = self.outbox.obs[env_ids, 0]
        for env in env_ids.tolist():
            if actions[env, 0] > 0:
                self.write_info(env, {"step": float(self.outbox.obs[env, 0])})


Session = tuple[Game, SharedMemoryConnection]


@contextmanager
def attached(game: Game, **options: Any) -> Iterator[SharedMemoryConnection]:
    with run_shm_in_thread(game, **options) as handle, SharedMemoryConnection(handle.name, timeout=10) as connection:
        yield connection


@contextmanager
def upgraded(game: Game) -> Iterator[SharedMemoryConnection]:
    with run_in_thread(game, port=0, upgrader=ShmUpgrader()) as handle:
        with SharedMemoryConnection(engine=("127.0.0.1", handle.port), timeout=10) as connection:
            yield connection


class GameClock:
    """A trainer's clock: whenever it looks at it while it waits, `turn` is called."""

    def __init__(self, turn: Callable[[], object] = lambda: None) -> None:
        self.at_each_look = turn
        self.timing = Timing(self.now)

    def now(self) -> float:
        self.at_each_look()
        return time.monotonic()


@contextmanager
def unhosted(
    game: Game, ticking: bool = True, clock: GameClock | None = None, **options: Any
) -> Iterator[tuple[ShmHost, SharedMemoryConnection]]:
    """No thread: the engine ticks when the trainer waits, or when the test or its clock says so."""
    clock = clock or GameClock()
    with ShmHost(game, **options) as host:
        with SharedMemoryConnection(host.name, timeout=10, timing=clock.timing) as connection:
            if ticking:
                clock.at_each_look = lambda: host.tick(0)
            yield host, connection


def let_go(host: ShmHost) -> None:
    """Until the engine has seen that its trainer left: it looks every 20 ms."""
    eventually(lambda: host.tick(0) is False and host.memory.load_u32(CLIENT_PID) == 0)


def events(game: Game) -> list[tuple[int, Any]]:
    return [
        (Method.TELEMETRY_FRAME, M.TelemetryFrameT(time=1.5, values=np.arange(4.0), envId=1)),
        (Method.JOINT_STATE, M.JointStateT(names=["hip"], positions=[0.5], velocities=[1], efforts=[2], envId=2)),
        (Method.IMAGE_FRAME, M.ImageFrameT(width=2, height=2, channels=1, pixels=bytes(4), cameraId=7)),
        (Method.DEBUG_DRAW, M.DebugDrawT(lines=[M.DrawLineT(M.Vec3T(1, 2, 3), M.Vec3T(4, 5, 6), 0xFF0000FF, 1.0)])),
        (Method.CLOSE, M.CloseT(reason="level change")),
        (1234, None),
    ]


def lonely(incoming: Any, out: Any = ...) -> ShmCommands:
    def fail(error: errors.UeRlError) -> None:
        raise error

    nothing: Any = lambda *_: None  # noqa: E731
    return ShmCommands(
        Ring(bytearray(4096)) if out is ... else out,
        incoming,
        nudge=nothing,
        wait=nothing,
        check=nothing,
        fail=fail,
        infos={},
        num_rows=1,
        timeout=20,
    )


class Flood:
    """A ring that always has one more message."""

    capacity, write_pos, max_payload = 4096, 0, 4096

    def __init__(self, data: bytes) -> None:
        self.data, self.count = data, 0

    def try_read(self) -> bytes:
        self.count += 1
        return self.data


def fill_from_trainer(connection: SharedMemoryConnection, data: bytes) -> int:
    connection.commands.timeout = 0
    for count in range(100_000):
        try:
            connection.commands.send_entry(data)
        except errors.RingFull:
            connection.commands.timeout = 10
            return count
    raise AssertionError("the ring never filled")
