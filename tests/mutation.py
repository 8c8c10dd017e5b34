"""Which changes of a module does no test notice? A small mutation run over the modules that everything rests on.

    python tests/mutation.py [--module ue_rl/protocol/text/codec.py ...] [--sample 60 --seed 0] [--list]

Changes one thing at a time (an operator, a constant, a condition, a statement) in a copy of the checkout, runs the
tests that cover the module, and prints what survived and a score for each module. Texts, type hints, assertions,
logging and docstrings are left alone. tests/README.md tells what survives today and why.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("ue_rl", "connections", "bridges", "inference", "tests", "docs", "samples", "benchmarks")
# What stands for the codec and both kernels: the quick files in one process, then the twins, then what is drawn.
WIRE = [
    "tests/protocol/text/test_codec_edges.py tests/protocol/text/test_golden_vectors.py "
    "tests/protocol/text/test_agents_and_masks.py",
    "tests/protocol/text/test_twins.py tests/protocol/text/test_lines.py",
    "tests/protocol/text/test_kernels.py tests/protocol/text/test_kernel_arrays.py",
]
# Module to the tests that cover it, the fastest first; each entry in a process of its own, up to the first that fails.
TARGETS = {
    "ue_rl/protocol/text/connection_state.py": ["tests/protocol/test_connection_state.py"],
    "ue_rl/protocol/text/codec.py": WIRE,
    **{f"ue_rl/protocol/text/kernels_{part}.py": WIRE for part in ("pure", "rows", "writing")},
    "ue_rl/protocol/memory/header.py": [
        "tests/protocol/memory/test_header_limits.py",
        "tests/protocol/memory/test_header.py",
    ],
    "inference/server/engine.py": ["tests/inference/test_policy_engines.py", "tests/inference/test_policy_server.py"],
    "inference/server/protocol.py": ["tests/inference/test_policy_protocol.py"],
    "inference/export/verify.py": [
        "tests/inference/test_verify.py",
        "tests/inference/test_export_comparison.py",
        "tests/inference/test_export_spaces.py",
        "tests/inference/test_wrong_files.py",
    ],
    "ue_rl/training/directory.py": ["tests/training/test_directory.py tests/training/test_directory_races.py"],
    "ue_rl/protocol/memory/ring.py": ["tests/protocol/memory/test_ring_edges.py", "tests/protocol/memory/test_ring.py"],
}
# Added to the copy's conftest: a failing example is enough, nobody needs the smallest one, and each run is the same.
PROFILE = """
def pytest_pycollect_makemodule(module_path):
    if "hypothesis" in module_path.read_text():
        from hypothesis import Phase, settings
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", database=None, derandomize=True, phases=phases)
        settings.load_profile("mutation")
"""
# Loading every plugin that is installed takes longer than most of these tests.
PLUGINS = ["-p", "pytest_timeout", "-p", "pytest_asyncio.plugin", "-p", "ue_rl.devtools.testing.plugin"]
SWAPS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.And: "or", ast.Or: "and", ast.Add: "-", ast.Sub: "+",
    ast.Mult: "+", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "//", ast.BitAnd: "|", ast.BitOr: "&", ast.LShift: ">>",
    ast.RShift: "<<",
}  # fmt: skip
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)  # swapping them is negating them


@dataclass(frozen=True)
class Mutant:
    """The source between two offsets, and what stands there instead."""

    line: int
    start: int
    end: int
    new: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


class Finder:
    """All mutants of one module."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.mutants = [self._mutant(node, new) for node, new in self._walk(ast.parse(source))]

    def text(self, mutant: Mutant) -> str:
        """One line: what stood there, and what stands there now."""
        old = self.source[mutant.start : mutant.end].decode()
        return " ".join(f"{old}  ->  {mutant.new}".split())

    def _mutant(self, node: ast.AST, new: str) -> Mutant:
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        start = self.starts[line - 1] + node.col_offset  # type: ignore[attr-defined]
        return Mutant(line, start, self.starts[end_line - 1] + node.end_col_offset, new)  # type: ignore[attr-defined]

    def _walk(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        if _left_alone(node):
            return
        yield from self._changes(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment", "bases", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child)

    def _changes(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        def of(child: ast.AST) -> str:
            return f"({ast.unparse(child)})"

        if isinstance(node, ast.Compare):
            for at, op in enumerate(node.ops):
                sides = [node.left, *node.comparators]
                text = of(sides[0])
                for n, other in enumerate(node.ops):
                    text += f" {SWAPS[type(op)] if n == at else _sign(other)} {of(sides[n + 1])}"
                yield node, f"({text})"
        elif isinstance(node, ast.BoolOp):
            yield node, f"({f' {SWAPS[type(node.op)]} '.join(of(value) for value in node.values)})"
        elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS and not _is_text(node):
            if isinstance(node, ast.BinOp):
                yield node, f"({of(node.left)} {SWAPS[type(node.op)]} {of(node.right)})"
            else:
                yield node, f"{ast.unparse(node.target)} {SWAPS[type(node.op)]}= {ast.unparse(node.value)}"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield node, of(node.operand)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                yield node, str(not node.value)
            elif isinstance(node.value, (int, float)):
                yield node, f"({node.value + 1})"
                if node.value >= 2:
                    yield node, f"({node.value - 1})"
        if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not _negates(node.test):
            yield node.test, f"(not {of(node.test)})"
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                if not _negates(test):
                    yield test, f"(not {of(test)})"
        # a statement that is gone; of assignments only those that change an object
        gone = isinstance(node, (ast.Raise, ast.AugAssign, ast.Break, ast.Continue, ast.Delete))
        gone |= isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await))
        gone |= isinstance(node, ast.Return) and node.value is not None
        gone |= isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
        if gone:
            yield node, "pass"


def _sign(op: ast.AST) -> str:
    return next(sign for kind, sign in SIGNS.items() if isinstance(op, kind))


SIGNS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


def _negates(test: ast.expr) -> bool:
    """Another mutant of this condition is its negation already."""
    return (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)) or (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], NEGATED)
    )


def _is_text(node: ast.AST) -> bool:
    """A sum of texts: any other operator raises a TypeError."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.AugAssign):
        return _is_text(node.value)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)))


def _left_alone(node: ast.AST) -> bool:
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.AnnAssign, ast.Assert)):
        return not (isinstance(node, ast.AnnAssign) and node.value is not None)
    if isinstance(node, ast.keyword):
        return node.arg == "strict"  # of zip(): an assertion
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) in ("__all__", "__slots__")
    return isinstance(node, ast.Call) and ast.unparse(node.func).partition(".")[0] in (
        "_log",
        "log",
        "logging",
        "warnings",
    )


def copy_checkout(to: Path) -> None:
    """The checkout without what was generated, but with the compiled modules; its tests load the mutation profile."""
    for name in TREES:
        shutil.copytree(ROOT / name, to / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, to / name)
    with (to / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(PROFILE)


def passes(tree: Path, tests: list[str], timeout: float) -> bool:
    """Whether the tests pass with the package as it stands in `tree`; what takes too long fails.

    Raises:
        RuntimeError: pytest did not run any tests.
    """
    return all(_passes(tree, test, timeout) for test in tests)


def _passes(tree: Path, test: str, timeout: float) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *PLUGINS, *test.split()]
    command += ["-o", "addopts=--import-mode=importlib --strict-markers"]
    environ = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            print(f"  longer than {timeout:.0f} s: {test}", file=sys.stderr, flush=True)
            return False
    if process.returncode in (4, 5) and "while loading conftest" not in output:  # a conftest may need the module, too
        raise RuntimeError(output)
    return process.returncode == 0


def run(module: str, tests: list[str], mutants: list[Mutant], finder: Finder, tree: Path) -> list[Mutant]:
    """The mutants of `module` that survive `tests`."""
    path, source = tree / module, finder.source
    begun = time.monotonic()
    if not passes(tree, tests, 900):
        raise SystemExit(f"{module}: its tests fail without any change: {' '.join(tests)}")
    timeout = 10 + 4 * (time.monotonic() - begun)
    survivors: list[Mutant] = []
    try:
        for number, mutant in enumerate([None, *mutants]):
            # A broken module first: were it not noticed, the tests would read another copy of the package.
            path.write_bytes(b"raise RuntimeError\n" if mutant is None else mutant.apply(source))
            for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
                cached.unlink()  # its time is told in whole seconds: two mutants can be made in one
            survived = passes(tree, tests, timeout)
            if mutant is None and survived:
                raise SystemExit(f"{module}: the tests do not import the copy in {tree}")
            if mutant is not None and survived:
                survivors.append(mutant)
                print(f"  survived {module}:{mutant.line}: {finder.text(mutant)}", flush=True)
            if number % 25 == 0:
                print(f"  {module}: {number} of {len(mutants)}, {len(survivors)} survived", file=sys.stderr, flush=True)
    finally:
        path.write_bytes(source)
    return survivors


def main() -> None:
    """Runs the chosen modules, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", nargs="+", choices=TARGETS, default=list(TARGETS), help="default: all")
    parser.add_argument("--sample", type=int, help="so many mutants of each module, chosen by the seed; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--line", type=int, nargs="*", help="only the mutants of these lines")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    arguments = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Path(folder)
        copy_checkout(tree)
        for module in arguments.module:
            finder = Finder((tree / module).read_bytes())
            mutants = [m for m in finder.mutants if not arguments.line or m.line in arguments.line]
            if arguments.sample is not None and arguments.sample < len(mutants):
                mutants = sorted(random.Random(arguments.seed).sample(mutants, arguments.sample), key=lambda m: m.start)
            if arguments.list:
                for mutant in mutants:
                    print(f"{module}:{mutant.line}: {finder.text(mutant)}")
                continue
            killed = len(mutants) - len(run(module, TARGETS[module], mutants, finder, tree))
            table.append((module, len(mutants), len(finder.mutants), killed))
            print(_row(*table[-1]), flush=True)
    if table:
        print("\n| module | changes | noticed | score |\n|---|---|---|---|")
        together = [sum(row[at] for row in table) for at in (1, 2, 3)]  # type: ignore[misc]
        for row in (*table, ("together", *together)):
            print(_row(*row))


def _row(module: str, count: int, total: int, killed: int) -> str:
    of = "" if count == total else f" of {total}"
    return f"| `{module}` | {count}{of} | {killed} | {killed / max(count, 1):.0%} |"


if __name__ == "__main__":
    main()
