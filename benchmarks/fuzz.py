"""Feeds ten million mutated messages to every reader of the project, and reports what they did to it.

python benchmarks/fuzz.py [--messages 10000000] [--processes 2] [--seed 0] [--rllink]

Exits with 1 where a message crashed or stopped a process, raised anything but an error of the project, cost more than
50 ms of processor time, was read differently by the compiled and the pure code, or where a process has grown by more
than 16 MB between the first fifth and the end. The short form of it is tests/devtools/testing/test_fuzz.py. `--rllink`
feeds the readers of RLlink instead, which may not import, open, compile or call anything either
(tests/plugins/rllib/rllink/test_fuzz.py).
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.fuzzing.run import Outcome, run
from tests.harness.fuzzing.targets import targets
from tests.plugins.rllib.rllink.fuzzing import Guard, rllink_targets

VECTORS = Path(__file__).resolve().parents[1] / "docs" / "protocol-vectors.json"
GROWTH = 16 << 20


def work(given: tuple[int, int, bool]) -> Outcome:
    messages, seed, rllink = given
    logging.disable(logging.CRITICAL)  # the log of a hostile peer's mistakes is not what is measured
    return run(rllink_targets(Guard()) if rllink else targets(VECTORS), messages, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rllink", action="store_true", help="RLlink's readers.")
    given = parser.parse_args()
    began = time.perf_counter()
    jobs = [(given.messages // given.processes, given.seed + n, given.rllink) for n in range(given.processes)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.processes) as pool:
        results = [pool.apply_async(work, (job,)) for job in jobs]
        pool.close()
        while not all(result.ready() for result in results):
            if any(process.exitcode for process in pool._pool):  # type: ignore[attr-defined]
                print("a process has died: see above")
                return 1
            time.sleep(0.2)
    outcomes = [result.get() for result in results]
    total: dict[str, int] = {}
    for outcome in outcomes:
        for name, count in outcome.messages.items():
            total[name] = total.get(name, 0) + count
    print("| reader | messages |\n|---|---|")
    for name, count in total.items():
        print(f"| {name} | {count:,} |")
    slowest = max(outcomes, key=lambda outcome: outcome.slowest[0]).slowest
    print(
        f"\n{sum(total.values()):,} messages in {time.perf_counter() - began:,.0f} s; slowest: "
        f"{slowest[0] * 1000:.1f} ms of {slowest[1]} ({len(slowest[2])} bytes); "
        f"grown: {max(outcome.grown for outcome in outcomes) / 2**20:.1f} MB"
    )
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    for fault in faults[:50]:
        print(fault)
    return 1 if faults or any(outcome.grown > GROWTH for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
