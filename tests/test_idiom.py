"""Counts of what makes a statement do several things at once, over the library: they may fall, and not rise.

Counted are, as `ast` sees them:

- assignments of several things: a tuple or list on the left and a tuple on the right, `a, b = x, y`. Unpacking what a
  call returns is one thing, and so is `a = b = x`.
- conditional expressions: `x if c else y`, and `and`/`or` in their place. `a or b` and `a and b` stand in their place
  where their value is used, and not only their truth: `x = given or default`, `ready and start()`. Only their truth is
  used in the test of an if, while or assert, after `not`, as an argument of bool, any and all, in what a function
  returns that is declared to return bool, and where one of the operands is a truth by its form: a comparison, `not x`,
  True, `isinstance(..)`, `x.is_..()`. Of `a or b and c` the outer one counts.
- statements with more than one conditional expression `x if c else y`, in the header alone of one that has a body.
- conditional expressions within conditional expressions.
- lines that ruff must not format: tables alone may.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.trees import walked, without_collecting

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("bridges", "connections", "inference")  # links of the same names in ue_rl
# What was counted last. Who brings a count down writes the new one here.
LIMITS = {
    "assignments of several things": 102,
    "statements with several conditional expressions": 27,
    "nested conditional expressions": 5,
    "lines that ruff must not format": 69,
}
CONDITIONALS_IN_1000_LINES = 11.7  # that are not blank
TRUTHS = {
    "all",
    "allclose",
    "any",
    "array_equal",
    "bool",
    "callable",
    "endswith",
    "exists",
    "hasattr",
    "isinstance",
    "issubclass",
    "startswith",
}


def files() -> list[Path]:
    found = []
    for room in ("ue_rl", *ROOMS):
        for path in sorted((ROOT / room).rglob("*.py")):
            generated = path.name.startswith("generated") or "_pb2" in path.name
            linked = any(parent.is_symlink() for parent in path.parents)
            if not generated and not linked:
                found.append(path)
    return found


def is_truth(node: ast.expr) -> bool:
    """Whether a value is true or false by its form."""
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if isinstance(node, ast.BoolOp):
        return any(map(is_truth, node.values))
    if isinstance(node, ast.Call):
        name = ""
        if isinstance(node.func, ast.Name):
            name = node.func.id
        if isinstance(node.func, ast.Attribute):
            name = node.func.attr
        return name in TRUTHS or name.startswith(("is", "has_"))
    return False


def conditions(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """Expressions of which only the truth is used."""
    for node in nodes:
        if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.match_case) and node.guard is not None:
            yield node.guard
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"all", "any", "bool"}:
            yield from node.args
            yield from (each.elt for each in node.args if isinstance(each, ast.GeneratorExp))
        elif isinstance(node, ast.AnnAssign) and node.value is not None and is_named(node.annotation, "bool"):
            yield node.value
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_named(node.returns, "bool"):
            for each in ast.walk(node):
                if isinstance(each, ast.Return) and each.value is not None:
                    yield each.value


def is_named(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def truths(nodes: list[ast.AST]) -> set[ast.expr]:
    """Every `and` and `or` of which only the truth is used."""
    found: set[ast.expr] = set()
    waiting = list(conditions(nodes))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.BoolOp):
            found.add(node)
            waiting += node.values
    return found


def in_their_place(nodes: list[ast.AST]) -> int:
    """How many `and` and `or` stand in the place of a conditional expression."""
    found = [node for node in nodes if isinstance(node, ast.BoolOp)]
    if not found:
        return 0
    known = truths(nodes)
    inner = {each for node in found for each in node.values}
    return sum(node not in known and node not in inner and not is_truth(node) for node in found)


def choices(node: ast.AST) -> Iterator[ast.IfExp]:
    """The conditional expressions of a statement or expression, without those of the statements in its body."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            continue
        if isinstance(child, ast.IfExp):
            yield child
        yield from choices(child)


def is_several(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, (ast.Tuple, ast.List)) for target in node.targets)


def counts_of(text: str) -> Counter[str]:
    nodes = walked(ast.parse(text))
    conditionals = [node for node in nodes if isinstance(node, ast.IfExp)]
    statements = []
    if len(conditionals) > 1:  # else no statement has several
        statements = [node for node in nodes if isinstance(node, ast.stmt)]
    return Counter(
        {
            "lines": sum(bool(line.strip()) for line in text.splitlines()),
            "assignments of several things": sum(map(is_several, nodes)),
            "conditional expressions": len(conditionals) + in_their_place(nodes),
            "statements with several conditional expressions": sum(len(list(choices(node))) > 1 for node in statements),
            "nested conditional expressions": sum(any(choices(node)) for node in conditionals),
            "lines that ruff must not format": text.count("# fmt: skip"),
        }
    )


@pytest.fixture(scope="module")
def counts() -> dict[str, Counter[str]]:
    with without_collecting():
        return {str(path.relative_to(ROOT)): counts_of(path.read_text(encoding="utf-8")) for path in files()}


def worst(counts: dict[str, Counter[str]], what: str) -> str:
    found = sorted(counts, key=lambda path: -counts[path][what])
    return ", ".join(f"{path}: {counts[path][what]}" for path in found[:10])


@pytest.mark.parametrize("what", LIMITS)
def test_no_more_than_were_counted_last(counts: dict[str, Counter[str]], what: str) -> None:
    total = sum(one[what] for one in counts.values())
    assert total <= LIMITS[what], f"{total} {what}, at most {LIMITS[what]}; most are in {worst(counts, what)}"


def test_conditional_expressions_are_few(counts: dict[str, Counter[str]]) -> None:
    what = "conditional expressions"
    total = sum(one[what] for one in counts.values())
    rate = 1000 * total / sum(one["lines"] for one in counts.values())
    most = CONDITIONALS_IN_1000_LINES
    assert rate <= most, f"{rate:.1f} {what} in 1000 lines, at most {most}; most are in {worst(counts, what)}"


@pytest.mark.parametrize(
    ("text", "what", "count"),
    [
        ("a, b = x, y", "assignments of several things", 1),
        ("[a, b] = c = x, y", "assignments of several things", 1),
        ("a, b = f()", "assignments of several things", 0),
        ("a = b = x", "assignments of several things", 0),
        ("a = x, y", "assignments of several things", 0),
        ("a = x if c else y", "conditional expressions", 1),
        ("a = x or y", "conditional expressions", 1),
        ("a = x or y and z", "conditional expressions", 1),
        ("ready and start()", "conditional expressions", 1),
        ("f(x or y, named=x or y)", "conditional expressions", 2),
        ("if x or y:\n    pass", "conditional expressions", 0),
        ("a = not (x or y)", "conditional expressions", 0),
        ("a = x > 1 and y", "conditional expressions", 0),
        ("a = x or y.is_open()", "conditional expressions", 0),
        ("a: bool = x or y", "conditional expressions", 0),
        ("def f() -> bool:\n    return x or y", "conditional expressions", 0),
        ("def f() -> str:\n    return x or y", "conditional expressions", 1),
        ("a = any(x or y for x in z)", "conditional expressions", 0),
        ("f(x if c else y, x if d else y)", "statements with several conditional expressions", 1),
        ("if x if c else y:\n    a = x if c else y", "statements with several conditional expressions", 0),
        ("a = x if c else y if d else z", "nested conditional expressions", 1),
        ("a = (x if c else y) + (x if d else y)", "nested conditional expressions", 0),
        ("a = [  # fmt: skip\n]", "lines that ruff must not format", 1),
    ],
)
def test_what_counts(text: str, what: str, count: int) -> None:
    assert counts_of(text)[what] == count
