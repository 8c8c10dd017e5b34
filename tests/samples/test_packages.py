"""The engine sides as packages: Unity's package manager, CMake, vcpkg; each says the version that ue_rl has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import ue_rl

ROOT = Path(__file__).resolve().parents[2]
CPP, UNITY = ROOT / "samples" / "cpp", ROOT / "samples" / "unity"


def test_all_say_the_same_version() -> None:
    for file in (CPP / "vcpkg" / "vcpkg.json", UNITY / "package.json", ROOT / "samples/web/package.json"):
        assert json.loads(file.read_text("utf-8"))["version"] == ue_rl.__version__, file
    assert f"project(ue_rl VERSION {ue_rl.__version__} " in (CPP / "CMakeLists.txt").read_text("utf-8")
    assert f"\nversion: {ue_rl.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion = {ue_rl.__version__}\n" in (ROOT / "setup.cfg").read_text("utf-8")


def test_unity_compiles_the_bridge_and_leaves_out_the_console() -> None:
    bridge, console = (
        json.loads(path.read_text("utf-8")) for path in (UNITY / "ue_rl.asmdef", *(UNITY / "console").glob("*.asmdef"))
    )
    assert "defineConstraints" not in bridge
    assert console["references"] == [bridge["name"]]
    assert console["defineConstraints"]
    namespaces = {re.search(r"^namespace (\w+)", p.read_text("utf-8"), re.M)[1] for p in UNITY.glob("*.cs")}  # type: ignore[index]
    assert namespaces == {bridge["rootNamespace"]}


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("g++")), reason="cmake and g++ are not installed")
def test_a_cmake_project_finds_the_installed_header(tmp_path: Path) -> None:
    (tmp_path / "game.cpp").write_text("#include <ue_rl_bridge.hpp>\nint main() { return sizeof(ue_rl::Spec) < 8; }\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(game CXX)\nfind_package(ue_rl CONFIG REQUIRED)\n"
        "add_executable(game game.cpp)\ntarget_link_libraries(game PRIVATE ue_rl::bridge)\n"
    )
    installed, built = tmp_path / "installed", tmp_path / "built"
    for command in (
        ["cmake", "-S", CPP, "-B", tmp_path / "ue_rl", f"-DCMAKE_INSTALL_PREFIX={installed}"],
        ["cmake", "-P", tmp_path / "ue_rl" / "cmake_install.cmake"],  # the header alone: nothing is built
        ["cmake", "-S", tmp_path, "-B", built, f"-DCMAKE_PREFIX_PATH={installed}", "-DCMAKE_BUILD_TYPE=Debug"],
        ["cmake", "--build", built],
        [built / "game"],
    ):
        subprocess.run(command, check=True, capture_output=True, timeout=100)
