"""What a token and TLS cost, and whether the time of an answer says anything of a token.

python benchmarks/access.py steps       steps per second: plain, with a token, with TLS
python benchmarks/access.py timing      1,000 wrong proofs each: wrong from the first digit on, or in the last alone
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.connections import open_transport
from ue_rl.protocol.access import tokens
from ue_rl.protocol.access.server_access import ServerAccess

CERTS = Path(__file__).resolve().parents[1] / "tests/security/certs"
TOKEN = b"a token of thirty-two bytes, made"


def bridge_of(num_envs: int) -> Any:
    return GymnasiumBridge("CartPole-v1", num_envs)


def steps(seconds: float, repeats: int) -> None:
    """Envs that cost next to nothing, so that what is measured is the way."""
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_bytes(TOKEN)
        token.chmod(0o600)
        ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "plain": ({}, {}),
            "again": ({}, {}),  # how far two engines of the same kind are apart
            "token": ({"token_file": token}, {"token_file": token}),
            "TLS": ({"tls_cert": CERTS / "engine.pem"}, {"ca": CERTS / "ca.pem"}),
        }
        for num_envs in (1, 16):
            found: dict[str, list[float]] = {name: [] for name in ways}
            with ExitStack() as stack:  # all at once, measured in turn: what else the machine does meets each of them
                transports = {}
                for name, (access, options) in ways.items():
                    more: dict[str, Any] = {"access": ServerAccess(**access)} if access else {}
                    engine = stack.enter_context(run_in_process(functools.partial(bridge_of, num_envs), **more))
                    transports[name] = stack.enter_context(closing(open_transport(engine.url, **options)))
                for _ in range(repeats):
                    for name, transport in random.sample([*transports.items()], len(transports)):
                        found[name].append(rate(transport, num_envs, seconds))
            base = statistics.median(found["plain"])
            for name, rates in found.items():
                middle = statistics.median(rates)
                said = f"{num_envs:3} envs  {name:6} {middle:8,.0f} steps/s"
                print(f"{said}  {1e6 / middle:6.1f} us  {middle / base:.3f}")


def rate(transport: Any, num_envs: int, seconds: float) -> float:
    """Steps of all envs per second."""
    actions = np.zeros((num_envs, 1), np.float32)
    transport.reset()
    transport.receive()
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        transport.send_actions(actions)
        transport.receive()
        done += 1
        if transport.buffers.dones.any():
            transport.reset([int(env) for env in np.flatnonzero(transport.buffers.dones)])
            transport.receive()
    return done / (time.perf_counter() - began)


def timing(tries: int) -> None:
    """Seconds of `accept` for two kinds of wrong proofs, in turn; Welch's t between them."""
    _, nonce = tokens.challenge()
    took: dict[str, list[float]] = {"first digit": [], "last digit": []}
    for _ in range(tries):
        line, _ = tokens.answer(TOKEN, f"AUTH={nonce}") or (b"", "")
        right = line.decode().strip()
        first = right.index(",") + 1
        kinds = [("first digit", first), ("last digit", len(right) - 1)]
        random.shuffle(kinds)  # the second of two is quicker
        for name, at in kinds:
            wrong = right[:at] + ("0" if right[at] != "0" else "1") + right[at + 1 :]
            began = time.perf_counter_ns()
            accepted = tokens.accept(TOKEN, nonce, wrong)
            took[name].append(time.perf_counter_ns() - began)
            assert accepted is None
    cut = {name: sorted(times)[: int(0.95 * len(times))] for name, times in took.items()}  # without interruptions
    means = {name: statistics.mean(times) for name, times in cut.items()}
    spread = sum(statistics.variance(times) / len(times) for times in cut.values()) ** 0.5
    t = (means["first digit"] - means["last digit"]) / spread
    for name, mean in means.items():
        print(f"wrong in the {name}: {mean:,.0f} ns, {tries} tries")
    print(f"Welch's t = {t:.2f}: {'no significant difference' if abs(t) < 3.29 else 'A DIFFERENCE'} (p = 0.001)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "timing"])
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--tries", type=int, default=1000)
    given = parser.parse_args()
    if given.what == "steps":
        steps(given.seconds, given.repeats)
    else:
        timing(given.tries)


if __name__ == "__main__":
    main()
