"""samples/cpp: which compilers, libraries and build systems build the C++ header, and beside what."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.samples.cpp_engine import CLANG, MARKS, ROOT, SAMPLE, compile_

pytestmark = MARKS


def test_clang_builds_it_without_a_warning() -> None:
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("clang++ is not installed")
    compile_(clang, SAMPLE / "reach.cpp", Path(os.devnull), "-fsyntax-only")


@pytest.mark.exhaustive
def test_two_files_include_it_and_one_has_the_implementation(tmp_path: Path) -> None:
    """Also without exceptions, and where the header came in before the macro."""
    (tmp_path / "game.cpp").write_text(
        '#include "ue_rl_bridge.hpp"\nint actions() { return ue_rl::Layout(ue_rl::Spec()).problem.empty(); }\n'
    )
    (tmp_path / "main.cpp").write_text(
        '#include "ue_rl_bridge.hpp"\n#define UE_RL_BRIDGE_IMPLEMENTATION\n#include "ue_rl_bridge.hpp"\n'
        "int actions();\nint main() { return actions() == 1 ? 0 : 1; }\n"
    )
    flags = ["-fno-exceptions", "-fno-rtti", tmp_path / "game.cpp"]
    compile_(CLANG, tmp_path / "main.cpp", tmp_path / "game", *map(str, flags))
    assert subprocess.run([tmp_path / "game"], check=False).returncode == 0


def test_its_declarations_bring_in_no_header_of_the_system() -> None:
    first = (SAMPLE / "ue_rl_bridge.hpp").read_text("utf-8").split("#endif  // UE_RL_BRIDGE_HPP")[0]
    assert all("." not in name for name in re.findall(r"#include <(.*)>", first))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "command",
    [["clang++", "-stdlib=libc++"], ["x86_64-w64-mingw32-g++-posix"]],
    ids=["libc++", "MinGW"],
)
def test_other_systems_libraries_build_it(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.cpp").write_text("#include <vector>\n")
    try:
        subprocess.run([*command, "-fsyntax-only", str(tmp_path / "empty.cpp")], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("it is not installed")
    flags = [*command[1:], "-Wconversion", "-Wshadow"]
    compile_(command[0], SAMPLE / "reach.cpp", Path(os.devnull), *flags, "-fsyntax-only")


def test_the_page_s_callbacks_are_those_of_the_header() -> None:
    def types(text: str) -> list[str]:
        text = re.sub(r"/\*.*?\*/", "", text)
        return [re.sub(r"\b(env|reset|actions|observation|done|truncated|mask|pixels)\b", "", t).strip() for t in
                text.replace("ue_rl::", "").split(",")]  # fmt: skip

    header = (SAMPLE / "ue_rl_bridge.hpp").read_text("utf-8").split("class MultiEnvBridge", 1)[1]
    shown = re.findall(r"^(\S+) (\w+)\((.*)\) override;", (ROOT / "docs" / "cpp.md").read_text("utf-8"), re.M)
    assert len(shown) == 8
    for result, name, parameters in shown:
        declared = re.search(rf"virtual {result} {name}\((.*?)\)", header)
        assert declared, name
        assert types(declared[1]) == types(parameters), name


@pytest.mark.exhaustive
def test_cmake_builds_it(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    commands = (
        ["cmake", "-S", str(SAMPLE), "-B", str(tmp_path), "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_COMPILER={CLANG}"],
        ["cmake", "--build", str(tmp_path)],
    )  # fmt: skip
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "reach").is_file()


@pytest.mark.parametrize("only", ["-E", pytest.param("-fsyntax-only", marks=pytest.mark.exhaustive)])
def test_it_builds_beside_the_macros_of_engines_and_systems(only: str, tmp_path: Path) -> None:
    """Unreal, <windows.h> and X11 have macros of names that anybody may use; the standard headers come before them.

    Each run asks the preprocessor alone: a macro that was used would stand in what it writes.
    """
    system = re.findall(r"^ *#include <[a-z_/0-9]+(?:\.h)?>$", (SAMPLE / "ue_rl_bridge.hpp").read_text("utf-8"), re.M)
    system = [line for line in system if not re.search(r"win|ws2|xlocale", line)]
    words = """
        check verify ensure TEXT PI BIG_NUMBER INDEX_NONE unimplemented dynamic_cast LOCTEXT nil small near far
        interface hyper ERROR IN OUT OPTIONAL DELETE NO_ERROR STRICT TRUE FALSE CALLBACK GetMessage GetObject Yield
        None Bool Status Success Always True False min(a,b) max(a,b)
    """
    macros = [f"#define {word} this_macro_must_not_be_used +" for word in words.split()]
    source = [*system, *macros, "#define UE_RL_BRIDGE_IMPLEMENTATION", '#include "ue_rl_bridge.hpp"']
    (tmp_path / "one.cpp").write_text("\n".join(source) + "\n")
    flags = ["-Wshadow", "-Wundef", "-fno-exceptions", "-fno-rtti", only]
    compile_("g++", tmp_path / "one.cpp", tmp_path / "one.ii", *flags)
    if only == "-E":
        seen = (tmp_path / "one.ii").read_text("utf-8")
        assert "class MultiEnvBridge" in seen
        assert "this_macro_must_not_be_used" not in seen
