"""The blocks that are neither Python nor typed: C++, C# and GDScript are compiled, the others read by our readers.

What a block leaves to its reader (a class, a variable) stands here around it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT, Block, every, runs_elsewhere
from tests.samples import building
from ue_rl.connections.launching import template
from ue_rl.plugins.arena.config import load_config, scene_of
from ue_rl.plugins.arena.scenes import Scene
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.memory import offer
from ue_rl.protocol.text.ahead import decode_ahead
from ue_rl.protocol.text.codec import Codec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.training.config import resolve

SAMPLES, STAND_INS = ROOT / "samples", ROOT / "tests" / "samples"

GAME_CS = """
public class BallGame : MonoBehaviour {{ }}
public class Game : UeRlGame
{{
    public Game(BallGame[] arenas, long seed) {{ }}
    public override void OnReset(int env, long seed, string options) {{ }}
    public override void OnAction(int env) {{ }}
    public override bool OnResult(int env) {{ return true; }}
}}
"""
# How a block begins -> what stands around it.
AROUND = {
    "void Handle": '#include "ue_rl_bridge.hpp"\nclass Page : ue_rl::MultiEnvBridge {{\n{}}};\n',
    "spec.act_space": '#include "ue_rl_bridge.hpp"\nvoid page(ue_rl::Spec& spec) {{\n{}}}\n',
    "ue_rl::RaySensor": """\
#include "ue_rl_bridge.hpp"
#include "ue_rl_sensors.hpp"
ue_rl::Hit Cast(int env, double angle, double length);
int Look(int env, double forward, double left);
void page(ue_rl::Spec& spec, int env, float* observation) {{
{}}}
""",
    "options.heuristic": """\
#include "ue_rl_bridge.hpp"
float JoystickX();
void DrawText(const std::string&);
void page(ue_rl::MultiEnvBridge& game, ue_rl::Options& options) {{
{}}}
""",
    "int32 Port": """\
#include "Misc/CommandLine.h"
#include "Misc/Parse.h"
struct UPage {{
    int32 ActionSpaceSize, ObservationSpaceSize;
    void InitializeEnvironments(int32, bool);
    void Connect(const TCHAR*, int32, int32, int32);
    void StartTraining();
    void BeginPlay();
}};
void UPage::BeginPlay() {{
{}}}
""",
    "using UeRl;\nusing UnityEngine;": "{}" + GAME_CS,
    "var rays = new UeRl": f"""\
using UeRl;
using UnityEngine;
{GAME_CS}
public class Page : Game
{{{{
    public Page() : base(null, 0) {{{{ }}}}
    private void Observe(int env, Transform agent)
    {{{{
{{}}
    }}}}
}}}}
""",
    "protected override void Heuristic": """\
using UeRl;
using UnityEngine;
public abstract class Page : UeRlBehaviour {{
{}}}
""",
    "var bridge": "extends Node\nvar envs = []\nfunc _ready():\n{}",
    "func rl_": "extends Node\n{}",
    "const Sensors": "extends Spatial\nvar body = RigidBody.new()\n{}",
}


def of(language: str) -> list[Block]:
    return [block for block in every(language) if not runs_elsewhere(block)]


def whole(block: Block, text: str = "") -> str:
    """The block with what stands around it."""
    (around,) = [around for begins, around in AROUND.items() if block.text.startswith(begins)]
    return around.format(text or block.text)


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def test_cpp_compiles(tmp_path: Path) -> None:
    """All blocks in one file, which reads the header once; the compiler names the page and the line."""
    needs("g++")
    source = tmp_path / "page.cpp"
    places = {block: f'#line {block.line + 1} "{block.page}"\n' for block in of("cpp")}
    source.write_text("\n".join(whole(block, place + block.text) for block, place in places.items()))
    includes = [f"-I{folder}" for folder in (SAMPLES / "cpp", STAND_INS / "unreal_stand_in")]
    building.compiled(["g++", "-std=c++17", "-fsyntax-only", *includes, source])


def test_csharp_compiles(tmp_path: Path) -> None:
    """Each block in a file and a namespace of its own; the compiler names the page and the line."""
    needs("mcs")
    sources = []
    for number, block in enumerate(of("csharp")):
        sources.append(tmp_path / f"Page{number}.cs")
        place = f'#line {block.line + 1} "{block.page}"\n'
        sources[-1].write_text(f"namespace Page{number} {{\n{whole(block, place + block.text)}\n}}\n")
    sides = [
        SAMPLES / "unity" / f"UeRl{name}.cs" for name in ("Bridge", "Heuristic", "Behaviour", "Sensors", "Physics")
    ]
    stand_ins = [STAND_INS / "unity" / "UnityEngineStandIn.cs", *(STAND_INS / "sensors").glob("*.cs")]
    building.compiled(["mcs", "-target:library", f"-out:{tmp_path / 'page.dll'}", *sides, *stand_ins, *sources])


@pytest.mark.parametrize("block", of("gdscript"), ids=str)
def test_gdscript_is_read_by_godot(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("godot3-server")
    monkeypatch.setenv("HOME", str(tmp_path))
    text = block.text
    if text.startswith("var"):
        text = re.sub("^", "\t", text, flags=re.M)
    if "\treturn" not in text:  # signatures alone
        text = re.sub(r"^(func .*?->[^#\n]*\S)( *#.*)?$", r"\1:\n\treturn []", text, flags=re.M)
        text = re.sub(r"^(func [^#\n]*\))( *#.*)?$", r"\1:\n\tpass", text, flags=re.M)
    script = tmp_path / "page.gd"
    script.write_text(whole(block, text))
    building.compiled(["godot3-server", "--path", SAMPLES / "godot", "--check-only", "-s", script])


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_is_a_config(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "page.yaml"
    path.write_text(block.text)
    if "scene" in yaml.safe_load(block.text):
        assert issubclass(scene_of(load_config(path)), Scene)
    else:
        resolve({}, path)


def test_the_lines_of_the_protocol_are_read() -> None:
    lines = {block.label: block.text.encode() for block in of("text") if "ten-minutes" in block.page}
    spec = decode_handshake(lines["handshake"])
    codec, batch, answer = Codec(spec), ActionBatch(2, 1), StepBuffers(2, 1)
    assert codec.decode_requests(lines["request"], batch) == 2
    assert batch.actions.tolist() == [[0.5], [-1]]
    answer.pending[:] = 1
    assert codec.decode_states(lines["reply"], answer) == 2
    assert answer.obs.tolist() == batch.actions.tolist()


def test_the_line_that_asks_ahead_is_read() -> None:
    (block,) = [block for block in of("text") if block.label == "ahead"]
    found: dict[int, tuple[int | None, Any]] = {}
    spec = decode_handshake(b"CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=8;VERSION=1;PARAMS=gravity:9.8")
    decode_ahead(Codec(spec), block.text.strip().encode(), found)
    assert found == {3: (42, {"gravity": 3.7}), 5: (None, None)}


def test_the_upgrade_is_that_of_the_code() -> None:
    (block,) = [block for block in of("text") if block.label == "upgrade"]
    asks, takes, ready = block.text.splitlines()
    config = asks.split()[1]
    assert decode_handshake(f"{config}\n".encode()).shm.startswith("ue_rl_4711_9f31c2aa:8d0f")
    assert takes.split()[1].startswith(offer.accept_line(b"").decode().strip())
    assert ready.split()[1].encode() == offer.READY.strip()
    assert ready.split()[3].partition("<")[0] in offer.refuse_line("x").decode()


def test_the_presets_are_those_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("godot4", "UnrealEditor-Cmd"):
        (tmp_path / name).touch(0o755)
    (tmp_path / "PROJECT").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    shown = " ".join(" ".join(block.text for block in of("text") if block.label == "preset").split())
    for preset, path in (("godot", "PROJECT"), ("godot", "GAME"), ("unity", "GAME"), ("unreal", "GAME")):
        program, options = template.PRESETS[preset](path)
        words = [f"'{word}'" if " " in word else word.removeprefix("./") for word in (*program, *options)]
        assert " ".join(words).replace("'-ExecCmds", "'-ExecCmds") in shown, preset
    assert template.PRESETS["unreal-editor"]("PROJECT.uproject")[0][0].removeprefix("./") in shown


def test_no_text_is_left_over() -> None:
    known = {"handshake", "request", "ahead", "reply", "upgrade", "preset"}
    assert [str(block) for block in of("text") if block.label not in known and block.page != "docs/cli.md"] == []


@pytest.mark.parametrize("block", of("abnf"), ids=str)
def test_the_grammar_is_closed(block: Block) -> None:
    """RFC 5234: each rule that is used is defined, here, on the other page or in the RFC's core, and none twice."""
    core = {"ALPHA", "DIGIT", "HEXDIG", "SP", "HTAB", "CR", "LF"}
    named: dict[str, list[str]] = {}
    for each in every("abnf"):
        text = re.sub(r'"[^"]*"', '""', re.sub(r";.*", "", re.sub(r'"[^"\n]*"', '""', each.text)))
        named[each.page] = re.findall(r"^([\w-]+) *=", text, re.M)
        if each == block:
            used = set(re.findall(r"(?<![%\w])[A-Za-z][\w-]*", re.sub(r"%x[\w-]+", "", text)))
    assert len(named[block.page]) == len(set(named[block.page]))
    outside = {"base64", "space"}  # RFC 4648
    assert used - core - outside - {rule for rules in named.values() for rule in rules} == set()


@pytest.mark.parametrize("block", of("dockerfile"), ids=str)
def test_what_an_image_copies_is_there(block: Block) -> None:
    for line in block.text.splitlines():
        instruction, *words = line.split()
        assert instruction in ("FROM", "COPY", "RUN", "USER"), line
        if instruction == "COPY" and not words[0].startswith("build/"):  # the reader's game
            assert (ROOT / words[0]).exists(), line
