"""What a call over gRPC costs: one session's FastAdvance beside bare echoes, and StepAll beside the step over text.

    python benchmarks/bench_sessions_grpc.py [--calls 2000] [--rounds 5]

A pool of a game that does nothing has a process of its own, as have two echoes of as many bytes, on grpc.aio as the
pool's server is, and on gRPC's server with threads: event loops of one process would wake each other. All take turns,
so that what else the machine does meets each.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorBridge, run_in_process
from ue_rl.connections import open_transport
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.limits import client_options
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub
from ue_rl.protocol.spec import EnvSpec

ENVS, OBS, ACT = 64, 100, 4
ECHO = "/bench.Echo/Echo"


class Still(VectorBridge):
    """Does nothing: the way to it is measured. Its numbers are not 0, which text writes faster than others."""

    def __init__(self, num_envs: int = ENVS) -> None:
        super().__init__(EnvSpec(obs_size=OBS, act_size=ACT, num_envs=num_envs))
        self.outbox.obs[:] = np.random.default_rng(0).normal(size=self.outbox.obs.shape)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        """Episodes without an end."""

    def step_envs(self, actions: NDArray[np.float32], env_ids: Any) -> None:
        """Nothing moves."""
        self.outbox.obs[env_ids, 0] = actions[env_ids, 0]


def echo() -> Any:
    def same(request: bytes, context: Any) -> bytes:
        return request

    return grpc.method_handlers_generic_handler("bench.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(same)})


def serve_pool() -> None:
    """Says its address, and ends with its standard input."""
    from ue_rl.plugins.sessions.grpc import serve
    from ue_rl.plugins.sessions.realtime import SessionPool

    with SessionPool(Still, max_sessions=ENVS + 1, workers=1) as pool, serve(pool) as server:
        print(server.url, flush=True)
        sys.stdin.read()


def serve_echoes() -> None:
    """Likewise, of both."""
    from ue_rl.bridges.serving.thread import LoopServer

    worker = ThreadPoolExecutor(1)

    async def same(request: bytes, context: Any) -> bytes:
        return request

    async def in_a_thread(request: bytes, context: Any) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(worker, bytes, request)

    async def echoing(ready: Callable[[str], None], stop: asyncio.Event) -> None:
        server = grpc.aio.server()
        handlers = {
            "Echo": grpc.unary_unary_rpc_method_handler(same),
            "EchoInThread": grpc.unary_unary_rpc_method_handler(in_a_thread),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        ready(f"127.0.0.1:{port}")
        await stop.wait()
        await server.stop(0)

    threads = grpc.server(ThreadPoolExecutor(2))
    threads.add_generic_rpc_handlers((echo(),))
    port = threads.add_insecure_port("127.0.0.1:0")
    threads.start()
    with LoopServer(echoing, "echo") as aio:
        print(aio.url, f"127.0.0.1:{port}", flush=True)
        sys.stdin.read()


def microseconds(call: Callable[[], Any], calls: int) -> list[float]:
    """Of each call."""
    times = []
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - begun))
    return times


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=("pool", "echoes"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve_pool() if given.serve == "pool" else serve_echoes()
        return
    with server("pool") as (url,), server("echoes") as (aio, threads):
        measure(url, {"echo, grpc.aio": aio, "echo, threads": threads}, given.calls, given.rounds)


@contextmanager
def server(what: str) -> Iterator[list[str]]:
    """A process that serves; its addresses."""
    command = [sys.executable, __file__, "--serve", what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()
        finally:
            process.communicate("")


def measure(url: str, echoes: dict[str, str], calls: int, rounds: int) -> None:
    """Prints both tables."""
    channels = {name: grpc.insecure_channel(target) for name, target in echoes.items()}
    channel = grpc.insecure_channel(url.removeprefix("grpc://"), client_options())
    stub = SessionsStub(channel)
    name = stub.CreateSession(messages.CreateSessionRequest()).session_id
    action = messages.Action(action=bytes(4 * ACT))
    request = messages.FastAdvanceRequest(session_id=name, ticks=1, actions=[action])
    payload = bytes(4 * OBS)
    unary: dict[str, Callable[[], Any]] = {
        each: functools.partial(there.unary_unary(ECHO), payload) for each, there in channels.items()
    }
    unary["echo, aio, thread"] = functools.partial(channels["echo, grpc.aio"].unary_unary(ECHO + "InThread"), payload)
    unary["FastAdvance"] = lambda: stub.FastAdvance(request)
    report("one session, one tick", unary, calls, rounds, list(echoes))
    with run_in_process(Still) as engine:
        text, sessions = open_transport(engine.url, "tcp"), open_transport(url, num_envs=ENVS)
        with closing(text), closing(sessions):
            steps = {}
            for title, transport in (("text", text), ("StepAll", sessions)):
                transport.connect()
                transport.reset()
                transport.receive()
                rows = np.random.default_rng(0).normal(size=(ENVS, ACT)).astype(np.float32)

                def step(transport: Any = transport, rows: Any = rows) -> None:
                    transport.send_actions(rows)
                    transport.receive()

                steps[title] = step
            report(f"{ENVS} sessions x {OBS} observations", steps, calls, rounds, ["text"])
    for each in (channel, *channels.values()):
        each.close()


def report(title: str, calls: dict[str, Callable[[], Any]], count: int, rounds: int, bases: list[str]) -> None:
    """p50 and p99 of each, and how many times the bases that is."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        microseconds(call, 200)
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] += microseconds(call, count // rounds)
    p50 = {name: float(np.percentile(each, 50)) for name, each in times.items()}
    print(f"\n{title}")
    for name, each in times.items():
        ratios = ", ".join(f"{p50[name] / p50[base]:.2f} x {base}" for base in bases if base != name)
        print(f"  {name:17} p50 {p50[name]:7.0f} us   p99 {np.percentile(each, 99):7.0f} us   {ratios}")


if __name__ == "__main__":
    main()
