"""Runs the tests of Stable-Baselines3, sb3-contrib and Gymnasium over ue_rl, where their sources are.

    python tests/thirdparty/run.py --sb3 ~/stable-baselines3 --contrib ~/stable-baselines3-contrib \
        --gymnasium ~/Gymnasium --carrier shm

A source folder is one that holds `tests/`, of the version that is installed here (an unpacked sdist has them for SB3
and sb3-contrib; Gymnasium's are in its repository). Also by environment: UE_RL_SB3, UE_RL_CONTRIB, UE_RL_GYMNASIUM.
adapter.py says what is replaced. What is known to fail stands in expected.yaml, each with its reason; a failure that
does not stand there, and a test there that passes, are told, and make the exit status 1.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
CARRIERS = ("memory", "tcp", "tcp-per-env", "shm", "shm-by-name")
SUITES = {
    "vec-env": ("sb3", "test_vec_envs test_vec_normalize test_vec_check_nan test_vec_extract_dict_obs "
                "test_vec_stacked_obs test_vec_monitor"),
    "spaces": ("sb3", "test_her test_dict_env test_spaces test_cnn test_save_load"),
    "utils": ("sb3", "test_utils test_env_checker test_envs test_monitor test_deterministic test_identity "
              "test_predict"),
    "contrib": ("contrib", "test_invalid_actions test_dict_env test_cnn test_deterministic test_identity test_lstm "
                "test_run test_save_load test_utils"),
    "vector": ("gymnasium", "vector/test_async_vector_env vector/test_autoreset_mode vector/test_observation_mode "
               "vector/test_sync_vector_env vector/test_vector_env vector/test_vector_env_info "
               "vector/test_vector_wrapper"),
}  # fmt: skip

Outcomes = dict[str, dict[str, str]]


def run_suite(name: str, source: Path, carrier: str, extra: list[str], timeout: int) -> Outcomes:
    """Runs one suite; what became of each test: {"outcome": "passed" | "failed" | "skipped", "error": text}."""
    files = SUITES[name][1].split()
    with tempfile.TemporaryDirectory() as folder:
        # beside `tests` nothing of the source folder may be seen, or its package would hide the installed one
        (Path(folder) / "tests").symlink_to((source / "tests").resolve(), target_is_directory=True)
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        outcomes = Path(folder) / "outcomes"
        outcomes.touch()
        paths = [str(HERE), str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment |= {"UE_RL_CARRIER": carrier, "UE_RL_OUTCOMES": str(outcomes)}
        chosen = [f"tests/{file}.py" for file in files if (source / "tests" / f"{file}.py").exists()]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "adapter", "-p", "no:cacheprovider", "--tb=short"]
        command += [f"--timeout={timeout}", "--disable-warnings", *extra, *chosen]
        with open(log_of(name, carrier), "w", encoding="utf-8") as log:
            subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
        lines = [json.loads(line) for line in outcomes.read_text(encoding="utf-8").splitlines()]
    return {line["test"]: line for line in lines}


def log_of(name: str, carrier: str) -> Path:
    """Where pytest's own words are kept."""
    return Path(tempfile.gettempdir()) / f"thirdparty-{name}-{carrier}.log"


def expectations(carrier: str) -> dict[str, list[dict[str, Any]]]:
    """Suite -> the known failures over this carrier."""
    known = yaml.safe_load((HERE / "expected.yaml").read_text(encoding="utf-8")) or {}
    return {
        suite: [entry for entry in entries if carrier in entry.get("carriers", CARRIERS)]
        for suite, entries in known.items()
    }


def judge(outcomes: Outcomes, known: list[dict[str, Any]]) -> tuple[list[str], list[str], Counter[str]]:
    """(failures that are not known, known ones that passed, how many of each kind of known failure)."""

    def entry_of(test: str) -> dict[str, Any] | None:
        return next((entry for entry in known if any(_fits(test, pattern) for pattern in entry["tests"])), None)

    unknown, mended, kinds = [], [], Counter[str]()
    for test, line in outcomes.items():
        entry = entry_of(test)
        if line["outcome"] == "failed":
            if entry is None:
                unknown.append(f"{test}: {line['error']}")
            else:
                kinds[entry["kind"]] += 1
        elif entry is not None and line["outcome"] == "passed" and not entry.get("sometimes"):
            mended.append(test)
    return unknown, mended, kinds


def _fits(test: str, pattern: str) -> bool:
    """`*` stands for anything; brackets are meant as they stand."""
    return fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("sb3", "contrib", "gymnasium"):
        parser.add_argument(f"--{name}", type=Path, default=os.environ.get(f"UE_RL_{name.upper()}"))
    parser.add_argument("--carrier", choices=(*CARRIERS, "none", "all"), default="all")
    parser.add_argument("--suite", choices=SUITES, action="append", help="default: all whose sources are given")
    parser.add_argument("--timeout", type=int, default=120, help="seconds that a test may take")
    parser.add_argument("--show", action="store_true", help="every failure, known ones too")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    given = parser.parse_args()
    carriers = CARRIERS if given.carrier == "all" else (given.carrier,)
    bad = 0
    for carrier in carriers:
        known = expectations(carrier) if carrier != "none" else {}
        for suite in given.suite or SUITES:
            source = getattr(given, SUITES[suite][0])
            if source is None:
                print(f"{suite}: left out, no --{SUITES[suite][0]}")
                continue
            outcomes = run_suite(suite, Path(source), carrier, given.pytest, given.timeout)
            counts = Counter(line["outcome"] for line in outcomes.values())
            unknown, mended, kinds = judge(outcomes, known.get(suite, []))
            expected = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "0"
            print(
                f"{suite} over {carrier}: {counts['passed']} passed, {counts['failed']} failed"
                f" (known: {expected}), {counts['skipped']} skipped",
                flush=True,
            )
            if given.show:
                unknown = [f"{test}: {line['error']}" for test, line in outcomes.items() if line["outcome"] == "failed"]
            for line in unknown:
                print(f"    failed  {line}")
            for test in mended:
                print(f"    passes now, take it out of expected.yaml  {test}")
            if not outcomes:
                print(f"    nothing was run: see {log_of(suite, carrier)}")
            bad += len(unknown) + len(mended) + (not outcomes)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
