"""samples/cpp: the C++ header against the golden vectors, this library's trainer, and hostile trainers."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

import ue_rl
from tests.harness.warm_cli import WarmCli
from tests.samples import building, heuristic, programs
from tests.samples.reach import Reach
from ue_rl import compliance
from ue_rl.bridges import run_in_thread
from ue_rl.compliance import Report
from ue_rl.compliance.memory_peer import MEMORY
from ue_rl.compliance.text_peer import PER_ENV, SHARED
from ue_rl.connecting import open_transport
from ue_rl.errors import CommandFailed, EngineDisconnected
from ue_rl.spec import EnvSpec
from ue_rl.wire.handshake import decode_handshake

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, SOURCES = ROOT / "samples" / "cpp", Path(__file__).parent / "cpp"
DEPLOY, STAND_INS = ROOT / "samples" / "deploy" / "cpp", Path(__file__).parent / "deploy"
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off", "-pthread"]
SANITIZED = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the header's Windows side was never run"),
]
needs_shm = pytest.mark.skipif(sys.platform != "linux", reason="shared memory of the header was run on Linux only")


def compile_(compiler: str, source: Path, binary: Path, *flags: str) -> None:
    building.compiled([compiler, *STRICT, *flags, "-I", SAMPLE, "-o", binary, source])


def program(compiler: str, source: Path, *flags: str) -> Path:
    headers = [*SAMPLE.glob("*.hpp"), *SOURCES.glob("*.hpp"), *DEPLOY.glob("*.hpp"), *STAND_INS.glob("*.h")]
    command = [compiler, *STRICT, *flags, "-I", SAMPLE, "-o", "OUT", source, "-lrt"]
    return building.built(source.stem, command, [source, *headers])


CLANG = shutil.which("clang++") or "g++"  # half as long as g++ for the same
SANITIZER = CLANG if building.sanitizes(CLANG) else "g++"
PROGRAMS: dict[str, tuple[str, Path, Sequence[str]]] = {
    "lab-asan": (SANITIZER, SOURCES / "lab.cpp", SANITIZED),
    "vectors-asan": (SANITIZER, SOURCES / "vectors.cpp", SANITIZED),
    "reach": ("g++", SAMPLE / "reach.cpp", ["-O2"]),
    "vectors-own": (CLANG, SOURCES / "vectors.cpp", ["-DUE_RL_OWN_FLOATS"]),  # as with libc++
}


def made(name: str) -> Path:
    compiler, source, flags = PROGRAMS[name]
    return program(compiler, source, *flags)


@pytest.fixture(scope="module")
def built() -> dict[str, Path]:
    """The demo and the two programs of the tests; `*-asan`: under AddressSanitizer and UBSan. Two at a time."""
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(PROGRAMS, pool.map(made, PROGRAMS), strict=True))


def running(binary: Path, *arguments: str, log: list[str] | None = None) -> Any:
    return programs.running(binary, *arguments, log=log, env={"ASAN_OPTIONS": "detect_leaks=0"})


def lab(built: dict[str, Path], kind: str, *words: str, log: list[str] | None = None) -> Any:
    return running(built["lab-asan"], kind, *words, log=log)


def reach(built: dict[str, Path], *arguments: str) -> Any:
    return running(built["reach"], "--port", "0", *arguments)


# -- building


def test_clang_builds_it_without_a_warning() -> None:
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("clang++ is not installed")
    compile_(clang, SAMPLE / "reach.cpp", Path(os.devnull), "-fsyntax-only")


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


def test_it_builds_beside_the_macros_of_engines_and_systems(tmp_path: Path) -> None:
    """Unreal, <windows.h> and X11 have macros of names that anybody may use; the standard headers come before them."""
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
    flags = ["-Wshadow", "-Wundef", "-fno-exceptions", "-fno-rtti", "-fsyntax-only"]
    compile_("g++", tmp_path / "one.cpp", Path(os.devnull), *flags)


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
    ("program", "locale"), [("vectors-asan", "C"), ("vectors-asan", "de_DE.UTF-8"), ("vectors-own", "de_DE.UTF-8")]
)
def test_golden_vectors(built: dict[str, Path], program: str, locale: str) -> None:
    environment = german_locale() if locale != "C" else {"LC_ALL": "C"}
    asked, wanted = vector_lines()
    done = subprocess.run(
        [built[program], locale], input="\n".join(asked) + "\n", capture_output=True, text=True, check=False,
        env={**os.environ, **environment, "ASAN_OPTIONS": "detect_leaks=0"},  # libc keeps its locale
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ("0.5\n" if locale == "C" else "0,5\n"), "the locale is in force"
    wrong, accepted = [], 0
    answers = done.stdout.split("\n")
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


def test_a_space_is_written_as_it_is_said_or_refused(tmp_path: Path) -> None:
    lines = "".join(f"show({space}, {act});\n" for space, act in SPACES)
    (tmp_path / "spaces.cpp").write_text(f"""\
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
""")
    compile_(SANITIZER, tmp_path / "spaces.cpp", tmp_path / "spaces", *SANITIZED, "-lrt")
    said = played(tmp_path / "spaces")
    for ((space, act), wanted), line in zip(SPACES.items(), said, strict=True):
        if ": it" in wanted or ": a " in wanted or ": each" in wanted:
            assert line.startswith(f"ACT_SPACE {wanted}"), space
        else:
            assert f";ACT_SPACE={wanted};" in line, space
            assert decode_handshake(f"{line}\n".encode()).act_size == act


# -- the demo is the same task as in Python, to the bit


def rollout(url: str, **options: Any) -> list[Any]:
    """150 steps of random actions, with seeds and a parameter set on the way: everything that came."""
    env = ue_rl.connect(url, timeout=20, wait=5, **options)
    try:
        rng = np.random.default_rng(5)
        env.seed(11)
        seen: list[Any] = [env.reset().copy()]
        for step in range(150):
            if step == 70:
                env.transport.call("SET=power:2.5;ENV=1")
            actions = rng.uniform(-1.3, 1.3, (env.num_envs, 2)).astype(np.float32)
            obs, rewards, dones, infos = env.step(actions)
            seen += [obs.copy(), rewards.copy(), dones.copy()]
            seen += [info["terminal_observation"].copy() for info in infos if "terminal_observation" in info]
            seen += [np.array([bool(info.get("TimeLimit.truncated"))]) for info in infos]
        return seen
    finally:
        env.close()


@functools.cache
def reference() -> list[Any]:
    with run_in_thread(Reach(5, 8), port=0, upgrader=None) as handle:
        return rollout(handle.url, channel="shared")


CARRIERS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "shared": ([], {"channel": "shared"}),
    "per-env": ([], {"channel": "per_env"}),
    "upgrade": (["--shm"], {"transport": "shm"}),
    "by-name": (["--shm-name"], {}),
    "shared, callbacks of single envs": (["--per-env"], {"channel": "shared"}),
    "upgrade, callbacks of single envs": (["--shm", "--per-env"], {"transport": "shm"}),
}


@needs_shm
@pytest.mark.parametrize("carrier", CARRIERS)
def test_rollouts_are_equal_to_the_bit(built: dict[str, Path], carrier: str) -> None:
    arguments, options = CARRIERS[carrier]
    name = f"cpp_{os.getpid()}_{secrets.token_hex(3)}"
    arguments = [*arguments, name] if carrier == "by-name" else arguments
    with reach(built, "--num-envs", "5", "--obs-size", "8", *arguments) as port:
        url = f"shm://{name}" if carrier == "by-name" else f"tcp://127.0.0.1:{port}"
        got = rollout(url, **options)
        again = rollout(url, **options)  # the next trainer; the parameter stays as it was set
    wanted = reference()
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(again[0], wanted[0])
    assert not Path(f"/dev/shm/{name}").exists()


@needs_shm
def test_the_segment_of_an_engine_that_was_killed_is_taken_over(built: dict[str, Path]) -> None:
    name = f"cpp_{os.getpid()}_{secrets.token_hex(3)}"
    command = [str(built["reach"]), "--shm-name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        assert second.returncode == 1
        assert "cannot be made" in second.stderr  # the first one lives
        killed.kill()
    with reach(built, "--shm-name", name):
        env = ue_rl.connect(f"shm://{name}", timeout=10)
        assert env.reset().shape == (8, 6)
        env.close()
    assert not Path(f"/dev/shm/{name}").exists()


# -- masks, agents, parameters, calls, infos


TRANSPORTS: list[dict[str, Any]] = [{"channel": "shared"}, {"channel": "per_env"}, {"transport": "shm"}]


@needs_shm
@pytest.mark.parametrize("options", TRANSPORTS, ids=["shared", "per-env", "shm"])
def test_masks_options_infos_parameters_and_calls(built: dict[str, Path], options: dict[str, Any]) -> None:
    with lab(built, "plain") as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, **options)
        call = env.transport.call
        assert call("GET") == "VALUES=step%20size:1,wind:-0.5"
        env.set_options([{"a": [1, "ü|;"]}, None, None])
        env.seed(100)
        obs = env.reset()
        assert obs.tolist() == [[100, 0], [101, 0], [102, 0]]
        assert env.reset_infos[0]["options"] == {"a": [1, "ü|;"]}
        assert env.reset_infos[0]["ü|;"] == "ü"
        assert np.array(env.env_method("action_masks")).tolist() == [[True] * 3] * 3
        obs, rewards, _, _ = env.step(np.array([2, 1, 0]))
        assert obs.tolist() == [[102, 1], [102, 1], [102, 1]]
        assert rewards.tolist() == [102, 102, 102]
        assert np.array(env.env_method("action_masks")).tolist() == [[True, False, True]] * 3
        assert call("SET=step%20size:10;ENV=2") == "VALUES=step%20size:10"
        assert call("GET=step%20size;ENV=2") == "VALUES=step%20size:10"
        assert call("GET=step%20size") == "VALUES=step%20size:1"
        for wrong in ("SET=step%20size:11", "SET=wind:2,sun:1", "GET=sun", "RENDER;ENV=1"):
            with pytest.raises(CommandFailed):
                call(wrong)
        assert call("GET=wind") == "VALUES=wind:-0.5"  # not even the first half was set
        assert env.step(np.array([2, 2, 2]))[0].tolist() == [[104, 2], [104, 2], [122, 2]]
        assert call("PAUSE=1") == "OK"
        picture = call("RENDER")
        assert picture.startswith("PICTURE=300,400,3;DATA=BwcH")
        assert len(picture) > 480_000  # over shared memory in many pieces
        assert call("TIME_SCALE=0.5") == "OK"
        assert call("GOALS=1,9/0.75,9||3,9/1,9") == "REW=0.25,2"
        assert env.step(np.array([0, 0, 0]))[1].tolist() == [52, 52, 61]
        _, _, dones, infos = env.step(np.array([0, 0, 0]))
        assert dones.all()
        assert all(info["TimeLimit.truncated"] for info in infos)
        env.close()


@needs_shm
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_parameters_beside_resets(built: dict[str, Path], transport: str) -> None:
    with lab(built, "plain") as port:
        carrier: Any = open_transport(f"tcp://127.0.0.1:{port}", transport, timeout=10)
        try:
            wanted = {1: {"step size": 4.0}, 2: {"wind": 1e-07}}
            carrier.draw_parameters = wanted.get
            carrier.reset(seeds=[0, 0, 0])
            carrier.receive()
            assert carrier.call("GET;ENV=1") == "VALUES=step%20size:4,wind:-0.5"
            assert carrier.call("GET;ENV=2") == "VALUES=step%20size:1,wind:1e-07"
        finally:
            carrier.close()


@needs_shm
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_agents_come_and_go(built: dict[str, Path], transport: str) -> None:
    with lab(built, "agents") as port:
        carrier: Any = open_transport(f"tcp://127.0.0.1:{port}", transport, timeout=20)
        assert carrier.spec.agent_names == ("hunter_0", "hunter_1", "prey")
        carrier.reset()
        assert carrier.receive().present.tolist() == [1] * 6
        history = []
        actions = np.tile(np.array([[1, 2], [3, 4], [2, 0]], np.float32), (2, 1))
        for _ in range(6):
            carrier.send_actions(actions)
            seen = carrier.receive()
            history.append((seen.present[3:].tolist(), seen.dones[3:].tolist(), seen.masks[5].tolist()))
        rewards, obs = seen.rewards.tolist(), seen.obs[5].tolist()
        carrier.close()
    here, mask = [1, 1, 1], [0, 1, 1]
    assert history[0] == (here, [0, 0, 0], mask)
    assert history[1][:2] == (here, [0, 0, 1])
    assert history[2][0] == [1, 1, 0]
    assert history[3] == (here, [0, 0, 0], mask)
    assert history[5] == (here, [1, 1, 1], history[5][2])
    assert rewards == [1, 3, 2, 1, 3, 2]
    assert obs == pytest.approx([5, 6, 0.1])


@pytest.mark.parametrize(
    ("kind", "options"), [("single", {}), ("rlbase", {}), ("tree", {}), ("tree", {"transport": "shm"})]
)
def test_other_kinds_of_env(built: dict[str, Path], kind: str, options: dict[str, Any]) -> None:
    with lab(built, kind) as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, **options)
        env.reset()
        action = env.action_space.sample()
        actions = [action] if kind == "tree" else np.array([action])
        dones = [bool(env.step(actions)[2][0]) for _ in range(6)]
        assert dones == [False, False, True] * 2
        env.close()


@needs_shm
def test_images(built: dict[str, Path]) -> None:
    with lab(built, "image") as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", transport="shm", timeout=20)
        env.reset()
        obs = env.step(np.zeros((2, 1), np.float32))[0]
        assert obs["image"].shape == (2, 4, 5, 3)
        assert obs["image"][1, 3, 4, 2] == obs["image"][1, 0, 0, 0] > 0
        env.close()


# -- the checker


def checked(engine: str) -> Report:
    words = ["--port", "0", "--shm", "--num-envs", "3"] if engine == "reach" else [engine]
    with running(made("reach" if engine == "reach" else "lab-asan"), *words) as port:
        return compliance.check(f"tcp://127.0.0.1:{port}")


@needs_shm
@pytest.mark.ahead(job=checked)
@pytest.mark.parametrize("engine", ["reach", "single", "agents", "tree"])
def test_the_checker_finds_nothing(engine: str, result: Report) -> None:
    assert result.mistakes == [], result
    if engine == "reach":
        assert {finding.carrier for finding in result.findings} >= {SHARED, PER_ENV, MEMORY}


# -- trainers that misbehave, and games that do


@pytest.mark.parametrize("options", TRANSPORTS, ids=["shared", "per-env", "shm"])
def test_an_exception_of_the_game_ends_the_session_with_its_sentence(
    built: dict[str, Path], options: dict[str, Any]
) -> None:
    with lab(built, "thrower") as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, **options)
        env.reset()
        with pytest.raises(EngineDisconnected, match=re.escape("no ammunition; sorry | ü")):
            env.step(np.zeros((2, 1), np.float32))
        env.close()
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, **options)
        env.reset()
        env.step(np.zeros((2, 1), np.float32))
        env.close()


def test_the_plugin_s_trainer_may_start_for_long(built: dict[str, Path]) -> None:
    with lab(built, "plain", "0", "0.1", "30") as port:
        programs.start_for_long(port, 3)


@pytest.mark.parametrize(("starting", "sockets"), [("30", 0), ("0.2", 1)])
def test_a_silent_stranger_gives_way(built: dict[str, Path], starting: str, sockets: int) -> None:
    with lab(built, "plain", "0", "0.1", starting) as port:
        programs.give_way(port, sockets)
    with lab(built, "plain", "0", "0.1", "30") as port:
        programs.give_up(port)


def test_wrong_specs_and_taken_ports_are_named(built: dict[str, Path]) -> None:
    with reach(built) as port:
        taken = subprocess.run([built["reach"], "--port", str(port)], capture_output=True, text=True, check=False)
    assert taken.returncode == 1
    assert f"port {port}" in taken.stderr
    wrong = subprocess.run([built["reach"], "--num-envs", "70000"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "ENV_COUNT is 1 to 65536" in wrong.stderr
    assert subprocess.run([built["reach"], "--envs"], capture_output=True, check=False).returncode == 2


# -- training


@pytest.mark.learning
@needs_shm
def test_ppo_learns_to_reach(built: dict[str, Path]) -> None:
    """An untrained policy's return is about -6; after 81 920 env-steps it is above 3 (4.4 was seen)."""

    with reach(built, "--num-envs", "32", "--shm") as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20)
        env.seed(0)
        model = PPO(
            "MlpPolicy", env, n_steps=64, batch_size=512, n_epochs=10, learning_rate=2e-3, gamma=0.95, seed=0,
            device="cpu",
        )  # fmt: skip
        before, _ = evaluate_policy(model, env, 32)
        model.learn(81_920)
        after, _ = evaluate_policy(model, env, 32)
        env.close()
    assert float(np.mean(before)) < 0.0
    assert float(np.mean(after)) > 3.0


def test_train_launches_it(built: dict[str, Path], tmp_path: Path, warm_cli: WarmCli) -> None:
    words = [
        "train", "--engine", f"{built['reach']} --port {{port}} --num-envs 4 --shm", "--timesteps", "512",
        "--log-dir", str(tmp_path), "--n-steps", "64", "--batch-size", "64",
    ]  # fmt: skip
    done = warm_cli.start(words, output=tmp_path / "out.txt", cwd=tmp_path)
    assert done.wait(120) == 0, done.text
    assert list(tmp_path.rglob("model.zip"))


# -- playing


def test_the_game_plays_an_exported_model_itself(built: dict[str, Path], tmp_path: Path) -> None:
    """samples/deploy/cpp/play_reach.cpp, with the returns and lengths of `ue-rl play`, which asks the game over TCP."""
    import gymnasium as gym
    import onnxruntime
    import torch as th
    from click.testing import CliRunner

    from ue_rl.cli import cli
    from ue_rl.inference import export_onnx

    class Spaces(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
    if library is None:
        pytest.skip("this onnxruntime wheel has no libonnxruntime.so of its own")
    player = program(
        CLANG, DEPLOY / "play_reach.cpp", "-I", str(STAND_INS), "-Wl,--no-as-needed", str(library.resolve())
    )
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    model = PPO("MlpPolicy", Spaces(), n_steps=8, batch_size=8, device="cpu", policy_kwargs={"net_arch": []})
    with th.no_grad():  # a spring to the target, and a brake: no training is needed to arrive
        model.policy.action_net.weight.copy_(th.tensor([[0, 0, -2, 0, 5, 0], [0, 0, 0, -2, 0, 5]]))
    export_onnx(model, tmp_path / "spring.onnx")
    with reach(built, "--num-envs", "1") as port:
        words = ["play", tmp_path / "spring.onnx", "--port", port, "--episodes", 20, "--seed", 7]
        asked = CliRunner().invoke(cli, [*map(str, words), "--json", str(tmp_path / "asked.json")])
        assert asked.exit_code == 0, asked.output
    expected = json.loads((tmp_path / "asked.json").read_text())["episodes"]
    done = subprocess.run(
        [player, tmp_path / "spring.onnx", "20", "7"], capture_output=True, text=True, check=True, timeout=20,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
    )  # fmt: skip
    played = [line.split() for line in done.stdout.splitlines()]
    assert [int(length) for _, length in played] == [episode["length"] for episode in expected]
    returns = [float(total) for total, _ in played]
    assert returns == pytest.approx([episode["return"] for episode in expected], abs=1e-5)
    assert min(returns) > 2  # it arrives in every episode


# -- heuristic mode


def played(binary: Path, *words: str) -> list[str]:
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([binary, *words], capture_output=True, text=True, check=False, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("bridge", [[], ["--per-env"]], ids=["arrays", "single envs"])
def test_a_heuristic_is_shown_what_a_trainer_gets(built: dict[str, Path], bridge: list[str]) -> None:
    """The demo's script, and the same in Python over a socket: each env's lines are the same."""
    words = ["--num-envs", "2", "--seed", "3", "--max-steps", "15", *bridge]
    shown = played(built["reach"], "--heuristic", "6", *words)
    with reach(built, *words) as port:
        heuristic.compare(shown, port)


def test_a_heuristic_plays_agents_masks_and_actions_of_several_ticks(built: dict[str, Path]) -> None:
    plain = played(built["lab-asan"], "plain", "heuristic")
    assert plain[:6] == [
        *(f"env {env}: position[m]=0 steps=0 | reward 0, return 0, step 0 1" for env in range(3)),
        *(f"env {env}: position[m]=1 steps=1 | reward 1, return 1, step 1 0" for env in range(3)),
    ]
    assert plain[14] == "env 2: position[m]=4 steps=4 | reward 4, return 10, step 4, truncated 1"
    assert plain[15] == "env 0: position[m]=0 steps=0 | reward 0, return 0, step 0 1", "the next episode"
    agents = [line for line in played(built["lab-asan"], "agents", "heuristic") if line.startswith("env 1, agent 2")]
    steps = [line.partition("step ")[2] for line in agents]
    assert steps[:6] == ["0 1", "1 1", "2, done 1", "0 1", "1 1", "2, done 1"], (
        "it leaves, comes back, and the env ends"
    )


def test_a_heuristic_ends_with_its_game(built: dict[str, Path]) -> None:
    assert played(built["lab-asan"], "thrower", "heuristic")[-1].startswith("the game's code failed: no ammunition")
    assert played(built["lab-asan"], "plain", "heuristic")[-1] == "the game's code failed: enough"


def test_what_the_demo_s_script_does_is_recorded_and_cloned(built: dict[str, Path], tmp_path: Path) -> None:
    """FEATURES=DEMO over text and shared memory: the game acts, and says with each state what it did."""
    for kind in ([], ["--shm"]):
        with reach(built, "--num-envs", "2", "--seed", "3", "--demo", *kind) as port:
            found = heuristic.record(port, tmp_path / f"demos{len(kind)}")
    with reach(built, "--num-envs", "2", "--seed", "3") as port:
        heuristic.clone_and_play(port, found, tmp_path / "none")
