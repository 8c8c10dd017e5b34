"""Agents that reason: what the arena costs a message and a tick, slow agents beside others, and memory.

python benchmarks/bench_arena.py [--rounds 200]

The arena serves in a thread of this process; the client posts on one connection, as a game does. CPU time is that of
both sides and says more than the clock on a busy machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ue_rl.plugins.arena import AgentArena, AgentBehavior, AgentDecision, SimpleAgentBehavior
from ue_rl.plugins.arena.memory import Entry, VectorMemory


class Quick(SimpleAgentBehavior):
    """Decides at once."""

    def decide(self, context: Any) -> str:
        return "move_to"


class Slow(AgentBehavior):
    """Thinks for a second, as a model does."""

    def decide(self, observation: Any, tools: Any) -> AgentDecision:
        time.sleep(1)
        return AgentDecision()


def seen(agent_id: str, tick: int) -> dict[str, Any]:
    berry = {"name": "berry", "type": "food", "position": [3, 0, 2], "distance": 2.0}
    fire = {"name": "fire", "type": "fire", "position": [3, 0, 9], "distance": 7.0, "damage": 5}
    return {"agent_id": agent_id, "tick": tick, "position": [1, 0, 2], "health": 90, "nearby_resources": [berry],
            "nearby_hazards": [fire]}  # fmt: skip


def timed(ask: Callable[[int], object], rounds: int) -> str:
    """p50, p99 and mean CPU of `ask`, in milliseconds, after ten rounds that do not count."""
    for n in range(10):
        ask(n)
    took, cpu = [], time.process_time()
    for n in range(rounds):
        began = time.perf_counter()
        ask(10 + n)
        took.append((time.perf_counter() - began) * 1000)
    cpu = (time.process_time() - cpu) * 1000 / rounds
    p50, p99 = np.percentile(took, [50, 99])
    return f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, CPU {cpu:.2f} ms"


def main() -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    arena = AgentArena.connect(port=0)
    arena.start()
    client = http.client.HTTPConnection("127.0.0.1", arena.port)

    def post(path: str, body: Any) -> Any:
        client.request("POST", path, json.dumps(body))
        return json.loads(client.getresponse().read())

    for n in range(100):
        arena.register(f"a{n}", Quick())
    print("one agent, /observe:   ", timed(lambda n: post("/observe", seen("a0", n)), rounds))
    many = lambda n: post("/tick", {"tick": n, "perceptions": [seen(f"a{k}", n) for k in range(100)]})  # noqa: E731
    print("100 agents, /tick:     ", timed(many, rounds))
    for n in range(10):
        arena.register(f"s{n}", Slow())
    for deadline in (10.0, 0.2):
        arena.deadline = deadline
        agents = [seen(f"s{n}", 1) for n in range(10)] + [seen("a0", 1)]
        began = time.perf_counter()
        actions = post("/tick", {"tick": 1, "perceptions": agents})["actions"]
        took = time.perf_counter() - began
        late = sum("error_code" in action for action in actions)
        print(f"ten that take 1 s and one that does not, deadline {deadline:g} s: {took:.3f} s, {late} late")
    arena.stop()

    rng, memory = random.Random(0), VectorMemory(10_000)
    words = ["berry", "fire", "walked", "north", "east", "saw", "health", "took", "stone", "key", "near", "door"]
    for n in range(10_000):
        memory.store(Entry(f"tick {n}: {' '.join(rng.choices(words, k=6))}", n))
    print("10 000 entries, query: ", timed(lambda n: memory.retrieve(f"a key near door {n}", 3), rounds))


if __name__ == "__main__":
    main()
