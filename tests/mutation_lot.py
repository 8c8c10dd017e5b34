"""Changes drawn by lot over the whole core: do two states of the tests notice the same share of them?

    python -m tests.mutation_lot trace TREE REACH.json [-n 2]
    python -m tests.mutation_lot run TREE REACH.json RESULT.json --both OTHER_TREE [--count 120 --seed 40]
    python -m tests.mutation_lot compare RESULT.json OTHER_RESULT.json

TREE is a checkout with its compiled modules. `trace` runs its suite once under coverage, and writes which tests reach
each line of the core: `{file: {line: [test, ..]}}`. `run` draws the changes (tests/mutation.py has the operators) from
those that both trees have, so that the same seed draws the same changes in either; runs the tests that reach the
changed line, those that reach the fewest lines first; and stops at the first that fails. A line that runs only while
its module is imported is reached by all tests that reach another line of the file. `compare` prints both shares, and
each change that only one state notices.

A test that takes longer than a minute has noticed it, too: what was changed hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation import PLUGINS, PROFILE, Finder, Mutant

CORE = ("ue_rl", "connections", "bridges", "inference")
Reach = dict[str, dict[str, list[str]]]
NOTHING_RAN = "no test could be run"  # the change breaks what the tests import


# Added to a copy's conftest. Coverage's own object, for what each test reaches goes by the test's whole name.
WATCHED = """
import coverage

_watched = coverage.Coverage(data_file={file!r}, data_suffix=True, config_file=False, source={sources!r})
_watched.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    _watched.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _watched.switch_context("")


def pytest_unconfigure():
    _watched.stop()
    _watched.save()
"""


@dataclass(frozen=True)
class Change:
    """One change of one file, told by what stands there and not by where: both trees can have it."""

    file: str
    line: str  # the text of its first line
    nth: int  # of the changes of this file with the same line and text
    text: str


def core_files(tree: Path) -> list[str]:
    """The core's files: no plug-in, nothing that is generated, nothing that is only a link."""
    found = []
    for room in CORE:
        for path in sorted((tree / room).rglob("*.py")):
            name = path.relative_to(tree).as_posix()
            linked = any(parent.is_symlink() for parent in path.parents)
            generated = path.name.startswith("generated") or "_pb2" in path.name
            if not linked and not generated and "/plugins/" not in name:
                found.append(name)
    return found


def changes(tree: Path) -> dict[Change, tuple[str, Mutant]]:
    """Every change that the operators make of the core."""
    found: dict[Change, tuple[str, Mutant]] = {}
    for file in core_files(tree):
        source = (tree / file).read_bytes()
        lines = source.decode().splitlines()
        finder = Finder(source)
        seen: Counter[tuple[str, str]] = Counter()
        for mutant in finder.mutants:
            line = lines[mutant.line - 1].strip()
            text = finder.text(mutant)
            found[Change(file, line, seen[line, text], text)] = (file, mutant)
            seen[line, text] += 1
    return found


def trace(tree: Path, workers: int) -> Reach:
    """The suite once, under coverage: which tests reach each line. What fails beside coverage's load still reaches."""
    from coverage import Coverage

    reach: Reach = {}
    with copied(tree) as copy, tempfile.TemporaryDirectory(prefix="reach-") as folder:
        with (copy / "tests" / "conftest.py").open("a") as conftest:
            conftest.write(WATCHED.format(file=f"{folder}/reach", sources=[str(copy / room) for room in CORE]))
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "--tb=no"]
        subprocess.run(command, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, check=False)
        watched = Coverage(data_file=f"{folder}/reach", config_file=False)
        watched.combine()
        data = watched.get_data()
        for measured in sorted(data.measured_files()):
            rows = reach.setdefault(Path(measured).resolve().relative_to(copy.resolve()).as_posix(), {})
            for line, tests in data.contexts_by_lineno(measured).items():
                rows[str(line)] = sorted({*rows.get(str(line), []), *filter(None, tests)})
    return reach


@contextlib.contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A copy of the tree, with its compiled modules, in which anything may be changed."""
    with tempfile.TemporaryDirectory(prefix="mutation-lot-") as folder:
        copy = Path(folder) / "tree"
        left_out = shutil.ignore_patterns("__pycache__", ".git", ".venv", "node_modules", "*.egg-info")
        shutil.copytree(tree, copy, symlinks=True, ignore=left_out)
        yield copy


def tests_of(reach: Reach, file: str, line: int) -> list[str]:
    """The tests that reach a line, those that reach the fewest lines of its file first."""
    rows = reach.get(file, {})
    tests = set(rows.get(str(line), []))
    width = Counter(test for each in rows.values() for test in each)
    if str(line) in rows and not tests:  # it runs while the module is imported
        tests = set(width)
    return sorted(tests, key=lambda test: (width[test], test))


def run(tree: Path, reach: Reach, drawn: list[Change], workers: int) -> list[dict[str, Any]]:
    """Makes each change in a copy of the tree, and tells what noticed it."""
    results = []
    with copied(tree) as copy:
        with (copy / "tests" / "conftest.py").open("a") as conftest:
            conftest.write(PROFILE)
        found = changes(copy)
        there = collected(copy)
        for change in drawn:
            file, mutant = found[change]
            # A name may hold the path of the tree that was traced: of one unknown name pytest would run no test at all.
            tests = [test for test in tests_of(reach, file, mutant.line) if test in there]
            row: dict[str, Any] = {"file": file, "line": mutant.line, "change": change.text, "tests": len(tests)}
            row["noticed"] = noticed(copy, file, mutant, tests, workers)
            results.append(row)
            print(f"{row['noticed'] or 'SURVIVED'}: {file}:{mutant.line}: {change.text}"[:200], flush=True)
    return results


def collected(tree: Path) -> set[str]:
    """The names of all tests of the tree."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", "--collect-only"]
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    ended = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=True)
    return {line for line in ended.stdout.splitlines() if "::" in line}


def noticed(tree: Path, file: str, mutant: Mutant, tests: list[str], workers: int) -> str:
    """The test that noticed the change; empty if none did."""
    path = tree / file
    source = path.read_bytes()
    left = tests
    while left:
        try:
            path.write_bytes(mutant.apply(source))
            forget_compiled(path)
            failed = first_failure(tree, left, workers)
        finally:
            path.write_bytes(source)
            forget_compiled(path)
        # What fails without the change, too, tells nothing: load, or a test that needs what a copy lacks.
        if not failed or failed == NOTHING_RAN or not first_failure(tree, [failed], 0):
            return failed
        left = [test for test in left if test != failed]
    return ""


def first_failure(tree: Path, tests: list[str], workers: int) -> str:
    """Runs the tests up to the first that fails, and names it; empty if all pass."""
    chosen = tree / "chosen.txt"
    chosen.write_text("\n".join(tests) + "\n")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *PLUGINS, "-p", "xdist.plugin"]
    command += ["-o", "addopts=--import-mode=importlib --strict-markers", "-rfE", "--tb=no", "--timeout=60"]
    if len(tests) > 40:
        command += ["-n", str(workers)]
    command.append(f"@{chosen.name}")
    environ = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        command, cwd=tree, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode == 0:
        return ""
    for line in ended.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" ")[2].partition(" - ")[0]
    return NOTHING_RAN


def forget_compiled(path: Path) -> None:
    """Compiled files tell the time of their source in whole seconds: two changes can be made in one."""
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        cached.unlink()


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("trace", "run", "compare"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("-n", type=int, default=2, help="pytest's workers")
    parser.add_argument("--both", type=Path, help="another tree: only changes that both have are drawn")
    parser.add_argument("--count", type=int, default=120)
    parser.add_argument("--seed", type=int, default=40)
    arguments = parser.parse_args()
    if arguments.action == "trace":
        tree, reached = arguments.paths
        reached.write_text(json.dumps(trace(tree, arguments.n)))
    elif arguments.action == "run":
        tree, reached, result = arguments.paths
        common = set(changes(tree))
        if arguments.both is not None:
            common &= set(changes(arguments.both))
        ordered = sorted(common, key=lambda each: (each.file, each.line, each.text, each.nth))
        drawn = random.Random(arguments.seed).sample(ordered, arguments.count)
        rows = run(tree, json.loads(reached.read_text()), drawn, arguments.n)
        result.write_text(json.dumps(rows, indent=1))
    else:
        compare(*(json.loads(path.read_text()) for path in arguments.paths))


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    """Both shares, and what differs."""
    for name, rows in (("before", before), ("after", after)):
        caught = sum(bool(row["noticed"]) for row in rows)
        print(f"{name}: {caught} of {len(rows)} noticed, {sum(not row['tests'] for row in rows)} reached by no test")
    for old, new in zip(before, after, strict=True):
        if bool(old["noticed"]) != bool(new["noticed"]):
            print(f"{new['file']}:{new['line']}: {new['change']}: {old['noticed']!r} before, {new['noticed']!r} after")


if __name__ == "__main__":
    main()
