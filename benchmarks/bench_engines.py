"""What several engines as one connection cost; prints markdown tables.

    python benchmarks/bench_engines.py [--quick]

"On the client": the time that UnrealVecEnv spends in a step, its wait for the engines left out: what was asked has
been answered before it waits. The engines cost nothing and live in this process, so that waking them is nobody's time
either. 4 engines with 16 envs and 1 with 64 take turns; figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from bench_tcp import table
from numpy.typing import NDArray

from ue_rl.bridges import ShmHost, run_in_process
from ue_rl.cli.do_nothing import ACT, OBS, DoNothingBridge
from ue_rl.connections import open_transport
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.connections.engines.url_engine import UrlEngine
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spec import Channel, EnvSpec
from ue_rl.protocol.text import Codec, encode_handshake

Opened: TypeAlias = "tuple[UnrealVecEnv, Callable[[], None]]"

ENGINES, ENVS = 4, 16
SLOW, STEP = 8, 0.005
CONSTANT = 0.001  # seconds that an engine takes for a step, however many envs it has


class Sleeper(DoNothingBridge):
    """An engine whose step takes 5 ms."""

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """See the class."""
        time.sleep(STEP)


class Counter:
    """An engine in shared memory that answers when it is told to, and does nothing else."""

    def __init__(self, num_envs: int) -> None:
        self.host = ShmHost(DoNothingBridge(num_envs))
        self.host.__enter__()
        self.url = self.host.url
        self._bell = self.host.memory.bell(engine=True)
        self._answered = self.host.memory.answered_seq

    def answer(self) -> None:
        """Counts."""
        assert self._answered is not None
        self._answered[0] = self._bell.peek()
        self._bell.publish()

    def close(self) -> None:
        """Ends."""
        self._bell.release()
        self.host.__exit__(None, None, None)


def joined(urls: Sequence[str], transport: str) -> Any:
    """One connection as it is, several as one."""
    if len(urls) == 1:
        return open_transport(urls[0], transport)
    return EnginesTransport([UrlEngine(url, lambda *_, url=url: open_transport(url, transport)) for url in urls])  # type: ignore[misc]


class Speaker:
    """An engine on a socket that answers when it is told to, always the same; in this process, so that nobody wakes up.

    Its handshake is made and sent by a thread, which ends then.
    """

    def __init__(self, num_envs: int) -> None:
        spec = EnvSpec(OBS, ACT, num_envs=num_envs, channel=Channel.SHARED)
        rng = np.random.default_rng(0)
        obs, none = rng.normal(size=(num_envs, OBS)).astype(np.float32), np.zeros(num_envs, np.uint8)
        self._line = bytes(Codec(spec).encode_states(obs, np.ones(num_envs, np.float32), none, none))
        self._handshake = encode_handshake(spec)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._greeter = threading.Thread(target=self._greet)
        self._greeter.start()

    def _greet(self) -> None:
        self._sock = self._listener.accept()[0]
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.sendall(self._handshake)

    def answer(self) -> None:
        """Reads a request, and answers."""
        self._greeter.join()
        while not self._sock.recv(65_536).endswith(b"\n"):
            pass
        self._sock.sendall(self._line)

    def close(self) -> None:
        """Ends."""
        self._greeter.join()
        self._sock.close()
        self._listener.close()


def opened(kind: type[Counter | Speaker], stack: contextlib.ExitStack, engines: int, envs: int) -> Opened:
    """A VecEnv, and the function that lets the engines answer."""
    peers = [kind(envs) for _ in range(engines)]
    for peer in peers:
        stack.callback(peer.close)
    env = UnrealVecEnv(joined([peer.url for peer in peers], "shm" if kind is Counter else "tcp"), monitor=False)
    stack.callback(env.close)

    def ready() -> None:
        for peer in peers:
            peer.answer()

    return env, ready


def timed(env: UnrealVecEnv, ready: Callable[[], None], rounds: int, engine: float = 0.0) -> list[float]:
    """Microseconds of each step: on the client alone, or of the whole step with engines that take `engine` seconds."""
    actions = np.full((env.num_envs, ACT), 0.25, np.float32)
    clock, took = time.perf_counter, []
    for _ in range(rounds):
        begun = clock()
        env.step_async(actions)
        sent = clock()
        ready()
        if engine:
            while clock() < sent + engine:
                pass
            sent = there = 0.0
        else:
            there = clock()
        env.step_wait()
        took.append((clock() - there + sent - begun) * 1e6)
    return took


def bench_client(carrier: str, rounds: int, repeats: int) -> None:
    """4 x 16 against 1 x 64."""
    kind: type[Counter | Speaker] = {"text over TCP": Speaker, "shared memory": Counter}[carrier]
    rows: list[tuple[object, ...]] = []
    with contextlib.ExitStack() as stack:
        contenders = {shape: opened(kind, stack, *shape) for shape in ((1, ENGINES * ENVS), (ENGINES, ENVS))}
        for env, ready in contenders.values():
            env.transport.reset()
            ready()
            env.transport.receive()
            timed(env, ready, 50)
        for engine in (0.0, CONSTANT):
            medians: dict[tuple[int, int], list[float]] = {shape: [] for shape in contenders}
            for _ in range(repeats):
                for shape, (env, ready) in contenders.items():
                    medians[shape].append(statistics.median(timed(env, ready, rounds if not engine else 200, engine)))
            one, several = (statistics.median(values) for values in medians.values())
            ratio = statistics.median(b / a for a, b in zip(*medians.values(), strict=True))
            what = f"whole, with engines that take {CONSTANT * 1e3:g} ms" if engine else "on the client"
            rows.append((what, f"{one:.1f} us", f"{several:.1f} us", f"{ratio:.2f}"))
    title = f"A step of {ENGINES * ENVS} envs, {carrier}"
    table(title, f"|1 x {ENGINES * ENVS}|{ENGINES} x {ENVS}|ratio", rows)


def bench_slow(rounds: int) -> None:
    """8 engines whose step takes 5 ms, each in a process of its own."""
    with contextlib.ExitStack() as stack:
        hosts = [stack.enter_context(run_in_process(functools.partial(Sleeper, 4))) for _ in range(SLOW)]
        env = UnrealVecEnv(joined([host.url for host in hosts], "tcp"), monitor=False)
        stack.callback(env.close)
        env.reset()
        actions = np.zeros((env.num_envs, ACT), np.float32)
        took = []
        for _ in range(rounds):
            begun = time.perf_counter()
            env.step(actions)
            took.append((time.perf_counter() - begun) * 1e3)
    table(
        f"{SLOW} engines with a step of {STEP * 1e3:g} ms each",
        "a step of all, median|p90",
        [(f"{statistics.median(took):.2f} ms", f"{np.percentile(took, 90):.2f} ms")],
    )


def bench_supervision(rounds: int) -> None:
    """What a step does for the engines' lives alone: latencies noted, episodes looked for, losses looked for."""
    with contextlib.ExitStack() as stack:
        env, ready = opened(Counter, stack, ENGINES, ENVS)
        env.transport.reset()
        ready()
        env.transport.receive()
        timed(env, ready, 20)
        transport: Any = env.transport
        took = statistics.median(_supervised(transport) for _ in range(rounds))
    table(f"Supervision of {ENGINES} engines", "a step", [(f"{took:.2f} us",)])


def _supervised(transport: Any, count: int = 200) -> float:
    """Microseconds of those statements of a step."""
    clock = time.perf_counter
    begun = clock()
    for _ in range(count):
        since = clock()
        if transport._some_lost or transport.buffers.lost:
            raise AssertionError
        for part in transport._parts:
            part.answered_after.append(clock() - since)
        transport._note_episodes()
    return (clock() - begun) / count * 1e6


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds of each")
    rounds, repeats = (200, 3) if parser.parse_args().quick else (2000, 9)
    for carrier in ("text over TCP", "shared memory"):
        bench_client(carrier, rounds, repeats)
    bench_slow(40 if rounds < 1000 else 200)
    bench_supervision(20)


if __name__ == "__main__":
    main()
