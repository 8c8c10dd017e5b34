"""Counts of what binds the tests to the inside of the library: they may fall, and not rise.

Counted are, as `ast` sees them, over every Python file of `tests`:

- lines that read a private name of the library: `_x`, and not `__x__`, that a file of the library defines as a
  function, class, variable or attribute. A name is read by an attribute (`connection._link`), by an import and by a
  text: the name's argument of getattr, setattr and delattr, of `patch.object` and of pytest's setattr and delattr, or
  the end of a dotted path (`"ue_rl.system.compiled._warned"`). Not counted are attributes of another project's
  modules, of `self` in a class without a base of the library or the tests, `_replace`, `_asdict` and `_fields` of named
  tuples, and what the test's own file or a helper in `tests/harness` or `tests/support` defines, unless it is read of
  something that is the library's (below). The compiled modules, `_kernels` and `_sync`, are files and no names in one.
  A line counts once, for its first such name.
- of these the foreign ones: no file of the test's own folder defines the name. The own folder of
  `tests/protocol/text/test_lines.py` is `ue_rl/protocol/text`, and what is below it. Wherever else the same name is
  defined too, it counts as the own folder's: the name alone is compared, and not what it belongs to.
- attributes of the library that are replaced, each place where one is:
    - `setattr` and `delattr` of pytest's MonkeyPatch, the builtins of these names, `object.__setattr__`, `patch`,
      `patch.object` and `patch.multiple` of unittest.mock;
    - a row of a dict: `monkeypatch.setitem` and `delitem`, `patch.dict`, `vars(x)[..] = y`, `x.__dict__[..] = y` and
      `x.__dict__.update(..)`; of `sys.modules` where the row is one of the library;
    - an assignment `x.name = y`, `del x.name` too: where x is a module or class of the library, where the name is
      private, or where a class of the library has a method of that name (no property) and y may be called or None. So
      `env.max_steps = 5`, a public setting, is not counted, and `env.step = broken` is.

Whose an attribute is says the name that the target begins with. What is imported from the library, what its functions
and classes return, parameters declared to be of its classes: the library's, and so is all that is reached through it,
as `ue_rl.training.learner.shutil.copyfile`. What begins with another project's name, with `self` or with a class of the
tests themselves is not, nor are samples, recipes and benchmarks, which `load_script` loads. Where the name says nothing
(a fixture without a type, what a helper of the tests returns), a place counts by its means: by a function it does, by
an assignment it does as above. Replaced attributes of the standard library and of other projects are not counted;
neither are methods that a subclass overrides.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.trees import statements_in, walked, without_collecting

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("bridges", "connections", "inference")  # links of the same names in ue_rl
FOREIGN = "lines that read a private name of another folder"
OWN = "lines that read a private name of the own folder"
REPLACED = "replaced attributes of the library"
# What was counted last. Who brings a count down writes the new one here.
LIMITS = {FOREIGN: 0, OWN: 89, REPLACED: 20}

LIBRARY = "the library's"
OTHER = "another project's"
OURS = "the tests'"
UNKNOWN = "unknown"
SETTERS = {"setattr", "delattr", "setitem", "delitem", "__setattr__", "__delattr__"}
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
DATA = (ast.BinOp, ast.Compare, ast.Dict, ast.JoinedStr, ast.List, ast.ListComp)  # values that nobody calls
PATCHES = {"object", "multiple", "dict"}
# Without one of these no line can count: what replaces, and assignments to attributes (first and last name). As ruff
# writes them, these have a space before the sign, and arguments have none.
PRIVATE = re.compile(r"\b_[^\W_]\w*")
MEANS = re.compile(r"\b(?:setattr|delattr|setitem|delitem|__setattr__|__delattr__|__dict__|del|patch|vars)\b")
ASSIGNED = re.compile(r"(?:(?<![\w.])(\w+)(?:\.\w+)*)?\.(\w+)(?=(?:[:,)\]][^=\n]*)? (?:[-+*/%&|^@]|//|\*\*|<<|>>)?= )")
IMPORTS_OF = re.compile(r"^\s*(?:from|import)\b[^(\n]*(?:\([^)]*\))?", re.MULTILINE)
TEXTS = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "object", "patch"}  # take a name as a text


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and len(name) > 1 and name not in OF_TUPLES


class Names(NamedTuple):
    """What the library defines.

    Attributes:
        private: of each private name that stands anywhere in the tests the folders that define it, such as
            "protocol/text"; of other names perhaps not all.
        methods: names of methods that are no properties.
    """

    private: dict[str, set[str]]
    methods: set[str]


def nodes_of(path: Path) -> list[ast.AST]:
    return walked(ast.parse(path.read_text(encoding="utf-8")))


def pieces(text: str) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement of a file that stands in no other, and its text."""
    lines = text.splitlines()
    for statement in ast.parse(text).body:
        first = min([statement.lineno, *(mark.lineno for mark in getattr(statement, "decorator_list", []))])
        yield statement, "\n".join(lines[first - 1 : statement.end_lineno])


def defined(nodes: list[ast.AST]) -> Iterator[str]:
    """Names that a file defines, wherever in it."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            yield node.attr


def slots(nodes: list[ast.AST]) -> Iterator[str]:
    """Texts of `__slots__`: attributes that C or a base class assigns."""
    for node in nodes:
        if isinstance(node, ast.Assign) and "__slots__" in [getattr(target, "id", "") for target in node.targets]:
            yield from (text_of(each) for each in ast.walk(node.value))


def methods_of(node: ast.ClassDef) -> Iterator[str]:
    """Names of methods that are no properties."""
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            marks = {name_of(mark) for mark in each.decorator_list}
            if not marks & {"property", "cached_property", "setter"}:
                yield each.name


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}


@cache
def helpers() -> set[str]:
    """Private names of what only tests have."""
    paths = [path for room in ("harness", "support") for path in (ROOT / "tests" / room).rglob("*.py")]
    return {name for path in paths for name in defined(nodes_of(path)) if is_private(name)}


@cache
def library() -> Names:
    private: dict[str, set[str]] = defaultdict(set)
    methods: set[str] = set()
    asked = {name for path in (ROOT / "tests").rglob("*.py") for name in PRIVATE.findall(path.read_text("utf-8"))}
    for room in ("ue_rl", *ROOMS):
        for path in sorted((ROOT / room).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents):
                continue
            folder = path.parent.relative_to(ROOT).as_posix().removeprefix("ue_rl/")
            source = path.read_text(encoding="utf-8")
            if "class " not in source and asked.isdisjoint(PRIVATE.findall(source)):
                continue
            for statement, text in pieces(source):
                for node in statements_in(statement):
                    if isinstance(node, ast.ClassDef):
                        methods.update(methods_of(node))
                if not asked.isdisjoint(PRIVATE.findall(text)):
                    nodes = walked(statement)
                    for name in {*defined(nodes), *slots(nodes)}:
                        if is_private(name):
                            private[name].add(folder)
    return Names(private, methods)


class Origins:
    """Whose the names of one file are.

    Args:
        nodes: of the file.
    """

    def __init__(self, nodes: list[ast.AST], outer: Origins | None = None) -> None:
        self._of: dict[str, str] = {}
        self._imported: set[str] = set()
        if outer is not None:
            self._of.update(outer._of)
            self._imported |= outer._imported
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._of[alias.asname or alias.name.split(".")[0]] = imported(alias.name, "")
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self._of[alias.asname or alias.name] = imported(node.module or "", alias.name)
            elif isinstance(node, ast.ClassDef):
                self._of[node.name] = OURS
        if outer is None:
            self._imported = set(self._of)
        naming = [
            node for node in nodes if isinstance(node, (ast.Assign, ast.AnnAssign, ast.For, ast.withitem, ast.arg))
        ]
        for _ in range(2):  # what is assigned from a name that stands further below
            for node in naming:
                self._note(node)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign):
            for target, value in pairs(node):
                self._name(target, self.of(value))
        elif isinstance(node, ast.AnnAssign):
            self._name(node.target, self.of(node.annotation))
        elif isinstance(node, ast.For):
            self._name(node.target, self.of(node.iter))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._name(node.optional_vars, self.of(node.context_expr))
        elif isinstance(node, ast.arg) and node.arg not in {"self", "cls"}:
            self._of[node.arg] = UNKNOWN
            if node.annotation is not None:
                self._of[node.arg] = self.of(node.annotation)
            self._imported.discard(node.arg)

    def _name(self, target: ast.expr, whose: str) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._name(each, whose)
        elif isinstance(target, ast.Name):
            self._of[target.id] = whose
            self._imported.discard(target.id)

    def of(self, node: ast.expr) -> str:
        """Whose it is, by the name that it begins with."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return imported(node.value.split("[")[0], "")
        if isinstance(node, ast.JoinedStr):
            return self.of(node.values[0])
        if isinstance(node, ast.FormattedValue):
            return self.of(node.value)
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name == "import_module" and node.args:
                return self.of(node.args[0])
            if name == "load_script":  # a sample, a recipe or a benchmark
                return OTHER
            if name in {"enumerate", "list", "reversed", "sorted", "zip"} and node.args:
                return self.of(node.args[0])
            if name in {"cast", "type", "vars"} and node.args:
                return self.of(node.args[-1])
            return self.of(node.func)
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Await, ast.Starred)):
            return self.of(node.value)
        if isinstance(node, (ast.Tuple, ast.List)) and node.elts:
            return self.of(node.elts[0])
        if isinstance(node, ast.Name):
            if is_self(node):
                return OURS
            return self._of.get(node.id, UNKNOWN)
        return UNKNOWN

    def is_imported(self, node: ast.expr) -> bool:
        """Whether it is a module or class as it was imported, and not an instance."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._imported


def imported(module: str, name: str) -> str:
    """Whose a name is that is imported from a module."""
    root = module.split(".", maxsplit=1)[0]
    if root == "ue_rl" or root in ROOMS:
        return LIBRARY
    if root in {"typing", "collections"}:  # Any and Callable say nothing
        return UNKNOWN
    if root == "tests":  # a helper may return anything, a class is the tests' own
        return OURS if name[:1].isupper() else UNKNOWN
    return OTHER


def text_of(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def name_of(node: ast.AST) -> str:
    """What a call calls: "setattr" of `monkeypatch.setattr(..)`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def of_strangers(nodes: list[ast.AST], origins: Origins) -> set[ast.AST]:
    """Attributes of `self` in classes that have no base of the library or the tests."""
    found: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef) and all(origins.of(base) == OTHER for base in node.bases):
            found.update(each for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_self(each.value))
    return found


def private_lines(nodes: list[ast.AST], origins: Origins, ours: set[str]) -> dict[int, str]:
    """The lines that read a private name of the library, and the name; `ours`: names of the tests."""
    found: dict[int, str] = {}

    def note(line: int, name: str) -> None:
        if name in library().private:
            found.setdefault(line, name)

    strangers = of_strangers(nodes, origins)
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in library().private and node not in strangers:
            whose = origins.of(node.value)
            if whose == LIBRARY or (whose != OTHER and node.attr not in ours):
                note(node.end_lineno or node.lineno, node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                for name in f"{getattr(node, 'module', '')}.{alias.name}".split("."):
                    if "ue_rl" in f"{getattr(node, 'module', '')}.{alias.name}":
                        note(alias.lineno, name)
        elif isinstance(node, ast.Call) and name_of(node.func) in TEXTS:
            for each in node.args:
                if origins.of(node.args[0]) != OTHER:
                    note(each.lineno, text_of(each))
        elif isinstance(node, ast.Constant) and text_of(node).startswith("ue_rl.") and " " not in text_of(node):
            note(node.lineno, text_of(node).split(".")[-1])
    return found


def replaced(nodes: list[ast.AST], origins: Origins) -> Iterator[int]:
    """The line of each attribute of the library that is replaced."""
    for node in nodes:
        if isinstance(node, ast.Call) and is_replaced(node, origins):
            yield node.lineno
        elif isinstance(node, ast.Assign):
            for target, value in pairs(node):
                if is_assigned(target, value, origins):
                    yield node.lineno
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if is_assigned(target, None, origins):
                    yield node.lineno
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)) and is_assigned(node.target, node.value, origins):
            yield node.lineno


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to what."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        elif isinstance(target, ast.Tuple):
            for each in target.elts:
                yield each, node.value
        else:
            yield target, node.value


def is_replaced(call: ast.Call, origins: Origins) -> bool:
    """Whether a call replaces an attribute of the library."""
    name = name_of(call.func)
    if name == "update" and isinstance(call.func, ast.Attribute) and is_dict(call.func.value):
        return origins.of(call.func.value) in {LIBRARY, UNKNOWN}
    is_mock = name in PATCHES and isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "patch"
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "super()":
        return False
    if not call.args or not (name in SETTERS or name == "patch" or is_mock):
        return False
    if ast.unparse(call.args[0]) == "sys.modules":
        return any(origins.of(each) == LIBRARY for each in call.args[1:])
    return origins.of(call.args[0]) in {LIBRARY, UNKNOWN}


def is_dict(node: ast.AST) -> bool:
    """Whether it is `x.__dict__` or `vars(x)`."""
    if isinstance(node, ast.Call):
        return name_of(node.func) == "vars"
    return isinstance(node, ast.Attribute) and node.attr == "__dict__"


def is_assigned(target: ast.expr, value: ast.expr | None, origins: Origins) -> bool:
    """Whether an assignment to it replaces an attribute of the library."""
    if isinstance(target, ast.Subscript) and is_dict(target.value):
        return origins.of(target.value) in {LIBRARY, UNKNOWN}
    if not isinstance(target, ast.Attribute):
        return False
    whose = origins.of(target.value)
    if whose in {OTHER, OURS}:
        return False
    if whose == LIBRARY and origins.is_imported(target.value):
        return True
    if is_private(target.attr):
        return target.attr in library().private and (whose == LIBRARY or target.attr not in helpers())
    return target.attr in library().methods and not is_data(value, origins)


def is_data(node: ast.expr | None, origins: Origins) -> bool:
    """Whether a value is one that nobody calls, by its form; or what another project's function returns."""
    if isinstance(node, ast.Constant):
        return node.value is not None
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        return name in {"bool", "float", "int", "str"} or (origins.of(node) == OTHER and name != "partial")
    if isinstance(node, ast.IfExp):
        return is_data(node.body, origins) and is_data(node.orelse, origins)
    return isinstance(node, DATA)


class Found(NamedTuple):
    """What one file has, as lines with the name or the source."""

    foreign: list[str]
    own: list[str]
    replaced: list[str]


def may_count(text: str, names: set[str]) -> bool:
    """Whether a text may hold a line that counts: most need not be looked through; `names`: what its file imports."""
    if MEANS.search(text) or not library().private.keys().isdisjoint(PRIVATE.findall(text)):
        return True
    for found in ASSIGNED.finditer(text):
        if found[1] in names or (found[2] in library().methods and found[1] not in {"self", "cls"}):
            return True
    return False


def found_in(text: str, folder: str) -> Found:
    """Args:
    folder: of the test, below tests: "protocol/text".
    """
    names = {name for statement in IMPORTS_OF.findall(text) for name in re.findall(r"\w+", statement)}
    if not may_count(text, names):
        return Found([], [], [])
    looked_through = []
    nodes: list[ast.AST] = []
    for statement, its_text in pieces(text):
        inside = walked(statement)
        nodes += inside
        if may_count(its_text, names):
            looked_through.append(inside)
    whole = Origins(nodes)
    ours = helpers() | {name for name in defined(nodes) if is_private(name)}
    private: dict[int, str] = {}
    changes: list[int] = []
    for inside in looked_through:  # a name is one thing in each function
        origins = Origins(inside, whole)
        private.update(private_lines(inside, origins, ours))
        changes += replaced(inside, origins)
    lines = text.splitlines()
    foreign: list[str] = []
    own: list[str] = []
    for line, name in sorted(private.items()):
        own_folder = [each for each in library().private[name] if folder and f"{each}/".startswith(f"{folder}/")]
        (own if own_folder else foreign).append(f"{line}: {lines[line - 1].strip()}")
    changed = [f"{line}: {lines[line - 1].strip()}" for line in sorted(changes)]
    return Found(foreign, own, changed)


@cache
def counts() -> dict[str, Found]:
    found = {}
    with without_collecting():
        for path in sorted((ROOT / "tests").rglob("*.py")):
            if path != Path(__file__).resolve():
                folder = path.parent.relative_to(ROOT / "tests").as_posix().removeprefix(".")
                found[str(path.relative_to(ROOT))] = found_in(path.read_text(encoding="utf-8"), folder)
    return found


@pytest.mark.parametrize("what", LIMITS)
def test_no_more_than_were_counted_last(what: str) -> None:
    index = list(LIMITS).index(what)
    places = {path: len(found[index]) for path, found in counts().items()}
    total = sum(places.values())
    most = ", ".join(f"{path}: {places[path]}" for path in sorted(places, key=lambda path: -places[path])[:10])
    assert total <= LIMITS[what], f"{total} {what}, at most {LIMITS[what]}; python -m tests.test_seams. Most: {most}"


IMPORTS = """
import os, time, sys
from pathlib import Path
from ue_rl.training import learner
from ue_rl.protocol.text.lines import LineBuffer
from tests.support.engines import Game, made
"""


@pytest.mark.parametrize(
    ("text", "foreign", "own", "replaced"),
    [
        ("LineBuffer._grow", 0, 1, 0),
        ("learner._evaluate", 1, 0, 0),
        ("a = made()\na._evaluate", 1, 0, 0),
        ("os._exit", 0, 0, 0),
        ("a.__init__, a._replace(), a._never_heard_of", 0, 0, 0),
        ("from ue_rl.training.learner import _evaluate", 1, 0, 0),
        ("getattr(learner, '_evaluate')", 1, 0, 0),
        ("class A(LineBuffer):\n    def f(self):\n        self._grow", 0, 1, 0),
        ("class A(Path):\n    def f(self):\n        self._grow", 0, 0, 0),
        ("_grow = 1\nmade()._grow", 0, 0, 0),
        ("monkeypatch.setattr(learner, '_evaluate', f)", 1, 0, 1),
        ("monkeypatch.setattr('ue_rl.training.learner._evaluate', f)", 1, 0, 1),
        ("monkeypatch.setattr(learner.shutil, 'copyfile', f)", 0, 0, 1),
        ("monkeypatch.setattr(os, 'fsync', f)", 0, 0, 0),
        ("monkeypatch.setattr('os.fsync', f)", 0, 0, 0),
        ("monkeypatch.delattr(LineBuffer, 'next_line')", 0, 0, 1),
        ("monkeypatch.setitem(sys.modules, 'ue_rl.protocol', None)", 0, 0, 1),
        ("monkeypatch.setitem(sys.modules, 'torch', None)", 0, 0, 0),
        ("monkeypatch.setitem(learner.KINDS, 'a', 1)", 0, 0, 1),
        ("monkeypatch.setattr(made(), name, f)", 0, 0, 1),
        ("monkeypatch.setattr(Game, 'step', f)", 0, 0, 0),
        (
            "with patch('ue_rl.training.learner.copy'), patch.object(learner, 'x'), patch.dict(learner.y):\n  pass",
            0,
            0,
            3,
        ),
        ("object.__setattr__(made(), 'x', 1)", 0, 0, 1),
        ("setattr(LineBuffer, 'x', 1)", 0, 0, 1),
        ("vars(learner)['x'] = 1", 0, 0, 1),
        ("learner.__dict__['x'] = 1\nlearner.__dict__.update(x=1)", 0, 0, 2),
        ("learner.FORMAT = 1", 0, 0, 1),
        ("a = LineBuffer()\na.max_line = 5", 0, 0, 0),
        ("a = LineBuffer()\na.next_line = f\ndel a.next_line", 0, 0, 2),
        ("a = Game()\na.next_line = f", 0, 0, 0),
        ("def f(a: LineBuffer, b: Path, c):\n  a.next_line, b.next_line, c.next_line = f, f, f", 0, 0, 2),
        ("def f(c):\n    c.next_line = 1.0", 0, 0, 0),
    ],
)
def test_what_counts(text: str, foreign: int, own: int, replaced: int) -> None:
    found = found_in(IMPORTS + text, "protocol/text")
    assert (len(found.foreign), len(found.own), len(found.replaced)) == (foreign, own, replaced), found


if __name__ == "__main__":  # python -m tests.test_seams: every place
    for index, what in enumerate(LIMITS):
        places = [f"{path}:{line}" for path, found in counts().items() for line in found[index]]
        print(f"== {len(places)} {what}", *places, sep="\n")
