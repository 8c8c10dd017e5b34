"""samples/cpp: what the C++ header reads and writes, against the golden vectors; spaces as handshakes have them."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.samples import building
from tests.samples.cpp_engine import CLANG, ENVIRONMENT, MARKS, ROOT, SAMPLE, compile_, made, played
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake

pytestmark = MARKS

# -- the golden vectors


def vector_lines() -> tuple[list[str], list[tuple[dict[str, Any], str]]]:
    """What vectors.cpp is asked, and for each line its vector with what must come; "" there: not asked."""
    asked, wanted = [], []
    for vector in json.loads((ROOT / "docs" / "protocol-vectors.json").read_text("utf-8")):
        for fields, answer in questions(vector):
            asked.append("\t".join(fields))
            wanted.append((vector, answer))
    return asked, wanted


def questions(vector: dict[str, Any]) -> Iterator[tuple[list[str], str]]:
    config, reject = vector.get("config", ""), f"REJECT {vector.get('reject')}"
    if "request" in vector:
        meaning = reject if "reject" in vector else meaning_of(vector)
        yield ["request", config, vector["request"], "-1"], meaning
    elif "call" in vector:
        settings = vector.get("answered", {}).get("values", {}) if vector.get("asked", {}).get("name") == "GET" else {}
        before = ",".join(f"{quote(name)}:{value!r}" for name, value in settings.items())
        answer = vector.get("answer", "VALUES=gravity:3.7,top%20speed:2")
        yield ["call", config, vector["call"], before], reject if "reject" in vector else answer
    elif "reply" in vector:
        if vector.get("canonical") and "states" in vector and "plugin" not in vector["name"]:
            yield ["reply", config, str(vector.get("seq", 0)), *map(row_text, vector["states"])], vector["reply"]
    elif "notice" in vector:
        means = vector["means"]
        if means["kind"] == "ERROR":
            yield ["error", means["text"]], vector["notice"]
        elif "fields" in means:
            yield ["busy", means["fields"]["SINCE"], means["fields"]["PEER"]], vector["notice"]
    else:
        yield ["handshake", config], reject if "reject" in vector else config


def row_text(state: dict[str, Any]) -> str:
    info = quote(json.dumps(state["info"]), safe="") if "info" in state else "-"
    obs = ",".join(repr(float(x)) for x in state["obs"])
    numbers = (state["env"], state.get("agent", 0), repr(float(state["reward"])), state["done"])
    return " ".join(map(str, (*numbers, state.get("truncated", 0), state.get("mask", "-"), info, obs)))


def meaning_of(vector: dict[str, Any]) -> str:
    out = []
    for ask in sorted(vector["asks"], key=lambda ask: (ask["env"], ask.get("agent", 0))):
        if ask.get("reset"):
            options = json.dumps(ask["options"], separators=(",", ":")) if "options" in ask else ""
            settings = "".join(f" {name}:{number(value)}" for name, value in ask.get("set", {}).items())
            out.append(f"env {ask['env']} reset seed {ask.get('seed', -1)} options {options} set{settings}|")
        else:
            numbers = " ".join(number(value) for value in ask["action"])
            out.append(f"env {ask['env']} agent {ask.get('agent', 0)} act {numbers}|")
    return "".join(out) + (f"seq {vector['seq']}" if "seq" in vector else "")


def number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def german_locale() -> dict[str, str]:
    """An environment in which de_DE has a decimal comma."""

    def make(folder: Path) -> None:
        made = folder / "de_DE.UTF-8"
        if shutil.which("localedef") is not None:
            command = ["localedef", "-c", "-i", "de_DE", "-f", "UTF-8", str(made)]
            subprocess.run(command, capture_output=True, check=False)
        if not made.is_dir():
            pytest.skip("localedef cannot make a German locale here")

    return {"LOCPATH": str(building.kept([], make, "de_DE"))}


@pytest.mark.parametrize(
    ("program", "locale"),
    [
        ("vectors", "C"),
        ("vectors", "de_DE.UTF-8"),
        pytest.param("vectors-asan", "C", marks=pytest.mark.exhaustive),
        pytest.param("vectors-asan", "de_DE.UTF-8", marks=pytest.mark.exhaustive),
        pytest.param("vectors-own", "de_DE.UTF-8", marks=pytest.mark.exhaustive),
    ],
)
def test_golden_vectors(program: str, locale: str) -> None:
    environment = german_locale() if locale != "C" else {"LC_ALL": "C"}
    asked, _ = vector_lines()
    done = subprocess.run(
        [made(program), locale], input="\n".join(asked) + "\n", capture_output=True, text=True, check=False,
        env={**os.environ, **environment, **ENVIRONMENT},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ("0.5\n" if locale == "C" else "0,5\n"), "the locale is in force"
    check_answers(done.stdout.split("\n"))


def check_answers(answers: list[str]) -> None:
    """What vectors.cpp says to all of `vector_lines`."""
    asked, wanted = vector_lines()
    wrong, accepted = [], 0
    assert len(answers) == len(asked) + 1
    for (vector, expected), question, got in zip(wanted, asked, answers, strict=False):
        if question.startswith("handshake") and not expected.startswith("REJECT"):
            accepted += 1
            if not same_handshake(got, expected):
                wrong.append((vector["name"], expected, got))
        elif got != expected:
            wrong.append((vector["name"], expected, got))
    assert not wrong
    assert accepted > 15
    assert len(asked) > 85


def same_handshake(got: str, expected: str) -> bool:
    """Do both mean the same? The header adds ERROR and SEQ to the features, and says CHANNEL where it can be chosen."""
    if got.startswith("REJECT"):
        return False
    mine, theirs = (decode_handshake(line.encode() + b"\n") for line in (got, expected))
    skipped = {"features", "channel", "version"}
    fields = [field.name for field in dataclasses.fields(EnvSpec) if field.compare and field.name not in skipped]
    if mine.features - {"ERROR", "SEQ"} != theirs.features or mine.version != theirs.version:
        return False
    return all(getattr(mine, name) == getattr(theirs, name) for name in fields)


# -- spaces


SPACES = {  # C++ for an action of `act` numbers: what the handshake says of it, or the problem
    ("Discrete(3)", 1): "DISCRETE(3)",
    ("Discrete(3, -1)", 1): "DISCRETE(-1:1)",
    ("MultiDiscrete({3, 2})", 2): "MULTI_DISCRETE(3,2)",
    ("MultiDiscrete({{3, -1}, 2}, {2, 1})", 2): "MULTI_DISCRETE(-1:1,2)[2,1]",
    ("MultiBinary(4, {2, 2})", 4): "MULTI_BINARY(4)[2,2]",
    ("Box(0, 1)", 7): "BOX(0:1)",
    ("Box({{-1, 1}, {0, 5}})", 2): "BOX(-1:1,0:5)",
    ("Box({{0, 5}})", 2): "BOX(0:5)",
    ("Box(0, 255, {2, 3}, Number::UInt8)", 6): "BOX(0:255)[2,3]UINT8",
    ("Box(-INFINITY, INFINITY)", 1): "BOX(-inf:inf)",
    ('Dict({{"a b", Box(-0.5, 1e9)}})', 1): "DICT(a%20b:BOX(-0.5:1e+09))",
    ("Tuple({Discrete(2), Box(0, 1, {2})})", 3): "TUPLE(DISCRETE(2),BOX(0:1)[2])",
    ("Discrete(0)", 1): "DISCRETE(0): it has no such choices",
    ("Discrete(3, INT64_MAX)", 1): "DISCRETE(3): it has no such choices",
    ("Discrete(3)", 2): "DISCRETE(3): it has 1 numbers, not 2",
    ("MultiDiscrete({})", 1): "MULTI_DISCRETE(): it has no such choices",
    ("MultiDiscrete({2, 2}, {3})", 2): "MULTI_DISCRETE(2,2)[3]: it has no such choices, or not of this shape",
    ("MultiBinary(-1)", 1): "MULTI_BINARY(-1): it has 1 to 262144 flags",
    ("Box(1, 0)", 1): "BOX(1:0): a range is low:high",
    ("Box(NAN, 1)", 1): "BOX(nan:1): a range is low:high",
    ("Box(0, 1, {0})", 1): "BOX(0:1)[0: its shape",
    ("Box(0, 1, {70000, 70000})", 1): "BOX(0:1)[70000,70000: its shape",
    ('Dict({{"a", Box(0, 1)}, {"a", Box(0, 1)}})', 2): "DICT(a:BOX(0:1),a:BOX(0:1)): each part has a name of its own",
    ("Tuple({})", 1): "TUPLE(): it has no parts",
    ("Tuple({Discrete(0)})", 1): "TUPLE(DISCRETE(0)): it has no such choices",
    ("Tuple({Space()})", 1): "TUPLE(): a part is no space",
}


def test_a_space_is_written_as_it_is_said_or_refused() -> None:
    lines = "".join(f"show({space}, {act});\n" for space, act in SPACES)
    text = f"""\
#define UE_RL_BRIDGE_IMPLEMENTATION
#include "ue_rl_bridge.hpp"
using namespace ue_rl;
static void show(const Space& space, int act) {{
    Spec spec;
    spec.act_size = act, spec.act_space = space;
    const Layout layout(spec);
    std::printf("%s\\n", (layout.problem.empty() ? layout.config : layout.problem).c_str());
}}
int main() {{
{lines}}}
"""

    def make(folder: Path) -> None:
        (folder / "spaces.cpp").write_text(text)
        compile_(CLANG, folder / "spaces.cpp", folder / "spaces", "-lrt")

    said = played(building.kept(SAMPLE.glob("*.hpp"), make, text) / "spaces")
    for ((space, act), wanted), line in zip(SPACES.items(), said, strict=True):
        if ": it" in wanted or ": a " in wanted or ": each" in wanted:
            assert line.startswith(f"ACT_SPACE {wanted}"), space
        else:
            assert f";ACT_SPACE={wanted};" in line, space
            assert decode_handshake(f"{line}\n".encode()).act_size == act
