"""Every kind of end of a session over shared memory, and engines that count wrongly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.connections.shm_games import N, Sum, hosted, kinds, posix, summing
from tests.support.clocks import once
from tests.support.steps import begin, totals
from ue_rl.bridges import (
    MultiEnvBridge,
    ShmUpgrader,
    run_in_thread,
    run_shm_in_process,
    run_shm_in_thread,
)
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.memory import segment
from ue_rl.protocol.memory.header import FRAME_SEQ
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.parametrize("upgraded", kinds())
def test_an_engine_that_closes_is_noticed_at_once(upgraded: bool, slack: float) -> None:
    with hosted(summing(), upgraded) as (engine, connection):
        with connection:
            begin(connection)
            engine.close()
            begun = time.monotonic()
            with pytest.raises(errors.EngineDisconnected, match="the engine stops"):
                totals(connection)
            assert time.monotonic() - begun < slack
            with pytest.raises(errors.ConnectionUnusable, match="failed before"):
                connection.reset()


@pytest.mark.parametrize("upgraded", kinds())
@pytest.mark.parametrize("how", ["start_inference", "configure", "disconnect"])
def test_a_bridge_that_turns_to_something_else_ends_the_session(upgraded: bool, how: str) -> None:
    class Policy:
        obs_size, act_size = 2, 1

        def run_inference(self, observations: Any) -> Any:
            return np.zeros((len(observations), 1), np.float32)

    bridge = summing()
    with hosted(bridge, upgraded) as (_, connection):
        with connection:
            begin(connection)
            if how == "start_inference":
                bridge.set_inference_interface(Policy())  # type: ignore[arg-type]
                bridge.start_inference()
            elif how == "configure":
                bridge.configure(EnvSpec(5, 1, num_envs=N))
            else:
                bridge.disconnect()
            with pytest.raises(errors.EngineDisconnected):
                totals(connection)
                totals(connection)
        assert bridge.outbox.obs.shape == (N, 5 if how == "configure" else 2)


@pytest.mark.parametrize("upgraded", kinds())
def test_a_step_in_which_the_game_turns_away_is_not_answered(upgraded: bool) -> None:
    """What the callback wrote before it switched belongs to a request that is void."""

    class Turns(Sum):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            if actions[0, 0] == 9:
                self.configure(EnvSpec(2, 1, num_envs=N))

    with hosted(Turns(EnvSpec(2, 1, num_envs=N)), upgraded) as (_, connection), connection:
        begin(connection)
        assert totals(connection, 2) == [2.0] * N
        with pytest.raises(errors.EngineDisconnected, match="the game left training mode, or was given other sizes"):
            totals(connection, 9)


def test_a_callback_may_disconnect_without_waiting_for_itself() -> None:
    class Leaves(Sum):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            if actions[0, 0] == 9:
                self.disconnect()

    bridge = Leaves(EnvSpec(2, 1, num_envs=N))
    handle = run_in_thread(bridge, upgrader=ShmUpgrader())
    with SharedMemoryConnection(engine=("127.0.0.1", handle.port), timeout=20) as connection:
        begin(connection)
        with pytest.raises(errors.EngineDisconnected):
            totals(connection, 9)
    handle.close()


@posix
def test_a_killed_engine_is_named_within_a_moment_and_leaves_nothing(slack: float) -> None:
    with run_shm_in_process(summing) as host:
        connection = SharedMemoryConnection(host.name, timeout=20)
        connection.connect()
        begin(connection)
        os.kill(host.process.pid, signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(errors.EngineDisconnected, match=rf"process {host.process.pid} has died"):
            while True:
                totals(connection)
        assert time.monotonic() - begun < 2 * slack
        connection.close()
        host.process.join()
        with pytest.raises(errors.EngineUnreachable, match=r"has died|no shared memory named"):
            SharedMemoryConnection(host.name).connect()
        with run_shm_in_thread(summing()):  # the next engine clears up
            assert not (segment.SHM_DIR / host.name).exists()


def trainer(target: str, then: str) -> subprocess.Popen[str]:
    """A trainer in a process of its own that has stepped once."""
    code = (
        "import sys, os, time, numpy as np\nfrom ue_rl.connections import SharedMemoryConnection, open_engine\n"
        "t = sys.argv[1]\n"
        "c = open_engine('127.0.0.1', int(t), transport='shm') if t.isdigit() else SharedMemoryConnection.attach(t)\n"
        f"c.reset(); c.receive(); a = np.ones(({N}, 1), np.float32); c.send_actions(a); c.receive()\n"
        f"print('READY', flush=True)\n{then}"
    )
    process = subprocess.Popen([sys.executable, "-c", code, target], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"
    return process


def deaths() -> Iterator[Any]:
    """Each way over one of the two kinds in each run."""
    ways = ["time.sleep(60)", "c.send_actions(a); time.sleep(60)", "os._exit(1)", "1 / 0"]
    for number, then in enumerate(ways):
        for upgraded in (False, True):
            marks = [pytest.mark.exhaustive] if upgraded == bool(number % 2) else []
            yield pytest.param(upgraded, then, marks=marks)


@posix
@pytest.mark.parametrize(("upgraded", "then"), list(deaths()))
def test_a_trainer_that_dies_makes_room_for_the_next(upgraded: bool, then: str) -> None:
    with hosted(summing(), upgraded) as (engine, _):
        process = trainer(str(engine.port) if upgraded else engine.name, then)
        process.kill()
        process.wait()
        again = (
            SharedMemoryConnection(engine=("127.0.0.1", engine.port), connect_timeout=20)
            if upgraded
            else SharedMemoryConnection(engine.name, connect_timeout=20)
        )
        with again:
            begin(again)
            assert totals(again) == [1.0] * N


@posix
@pytest.mark.parametrize("upgraded", kinds())
def test_a_stalling_peer_loses_and_doubles_nothing(upgraded: bool) -> None:
    """Both sides are stopped by a signal at any moment, again and again; every action counts exactly once."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from soak_shm import Counting
    finally:
        sys.path.pop(0)
    steps = 1500
    with hosted(Counting(), upgraded) as (engine, _):
        code = (
            "import sys; sys.path.insert(0, sys.argv[2])\nfrom soak_shm import soak\n"
            "from ue_rl.connections import SharedMemoryConnection, open_engine\n"
            "t = sys.argv[1]\n"
            "over = {'engine': ('127.0.0.1', int(t))} if t.isdigit() else {'name': t}\n"
            "c = SharedMemoryConnection(**over)\nc.connect()\n"
            f"print('READY', flush=True)\nsoak(c, {steps})\n"
            f"print(c.memory.load_u64({FRAME_SEQ}), flush=True)\nc.close()"
        )
        target = str(engine.port) if upgraded else engine.name
        process = subprocess.Popen(
            [sys.executable, "-c", code, target, str(Path(__file__).parents[2] / "benchmarks")],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        rng = np.random.default_rng(0)
        while process.poll() is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(float(rng.uniform(0, 0.004)))  # not a wait for something: the stall itself
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(float(rng.uniform(0, 0.004)))
        assert process.stdout.read() == f"{steps + 1}\n"


# -- actions that take ticks, and engines that count wrongly


class Walk(MultiEnvBridge):
    """Env i needs i + 1 ticks for an action; env 2 never ends one of 99."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=N))
        self.left, self.at, self.asked = [0] * N, [0.0] * N, [0.0] * N

    def calculate_reward_for_env(self, env_id: int) -> tuple[float, bool]:
        return self.at[env_id], False

    def create_state_string_for_env(self, env_id: int) -> list[float]:
        return [self.at[env_id]]

    def handle_reset_for_env(self, env_id: int) -> None:
        self.at[env_id] = 0

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self.left[env_id], self.asked[env_id] = env_id + 1, actions[0]

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left[env_id] -= self.asked[env_id] != 99 or env_id != N - 1
        if self.left[env_id] == 0:
            self.at[env_id] += self.asked[env_id]
        return self.left[env_id] > 0


def test_actions_that_run_for_several_ticks_and_one_that_never_ends() -> None:
    walk = Walk()
    # five looks from then on: the game's loop runs on between them
    timing = once(lambda: walk.at[:-1] == [101.0] * (N - 1), 2.0)
    with run_shm_in_thread(walk) as host, SharedMemoryConnection(host.name, timeout=10, timing=timing) as connection:
        begin(connection)
        assert totals(connection, 2) == [2.0] * N
        with pytest.raises(errors.EngineTimeout, match=r"2 of 3 envs.*env 2.*Its loop runs on") as caught:
            totals(connection, 99)
        assert caught.value.env_id == N - 1


def test_an_engine_that_counts_wrongly_is_found_out() -> None:
    with run_shm_in_thread(summing()) as host, SharedMemoryConnection(host.name) as connection:
        begin(connection)
        connection.memory.store_u64(FRAME_SEQ, 55)
        with pytest.raises(errors.UnexpectedMessage, match=r"frame that nobody asked for.*frame_seq"):
            totals(connection)
