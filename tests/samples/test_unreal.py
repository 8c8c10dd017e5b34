"""samples/unreal: the plugin against stand-ins of Unreal's types, compiled as Unreal compiles, and run by a trainer.

unreal_stand_in/ has the types, unreal/ the program that plays a world with them and a game of the tests.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ue_rl
from tests.samples import building
from tests.samples.programs import running
from tests.support.listening import free_port
from ue_rl.devtools import check as compliance
from ue_rl.system.errors import EngineDisconnected

ROOT = Path(__file__).resolve().parents[2]
PLUGIN, OWN = ROOT / "samples" / "unreal" / "UeRlBridge", Path(__file__).parent / "unreal"
STAND_IN = Path(__file__).parent / "unreal_stand_in"
MODULE = PLUGIN / "Source" / "UeRlBridge"
HEADER = ROOT / "samples" / "cpp" / "ue_rl_bridge.hpp"
FLAGS = [
    "-Wall", "-Wextra", "-Werror", "-Wshadow", "-fno-exceptions", "-fno-rtti", "-ffp-contract=off", "-pthread",
    "-DUERLBRIDGE_API=",
]  # fmt: skip
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None or os.name == "nt", reason="g++ is not installed")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="shared memory of the header was run on Linux only")


# -- what a project gets when it copies the folder


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The plugin's folder in a project."""
    (tmp_path / "Game.uproject").touch()
    for _ in range(2):  # again after an update
        subprocess.run([sys.executable, PLUGIN.parent / "install.py", tmp_path], check=True, capture_output=True)
    return tmp_path / "Plugins" / "UeRlBridge"


def test_a_project_gets_the_plugin_and_its_header(installed: Path) -> None:
    for file in (path for path in PLUGIN.rglob("*") if path.is_file()):
        assert (installed / file.relative_to(PLUGIN)).read_bytes() == file.read_bytes()
    for header in HEADER.parent.glob("ue_rl_*.hpp"):
        assert (installed / "Source/ThirdParty/ue_rl" / header.name).read_bytes() == header.read_bytes()


def test_a_folder_that_is_no_project_is_left_alone(tmp_path: Path) -> None:
    command = [sys.executable, PLUGIN.parent / "install.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "holds no .uproject" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_descriptor_names_the_module() -> None:
    (module,) = json.loads((PLUGIN / "UeRlBridge.uplugin").read_text("utf-8"))["Modules"]
    assert (module["Name"], module["Type"]) == ("UeRlBridge", "Runtime")
    assert (MODULE / f"{module['Name']}.Build.cs").is_file()
    assert "IMPLEMENT_MODULE(FDefaultModuleImpl, UeRlBridge)" in (
        MODULE / "Private" / "UeRlBridgeModule.cpp"
    ).read_text("utf-8")


def test_the_readme_begins_with_what_was_not_run() -> None:
    text = (PLUGIN / "README.md").read_text("utf-8")
    assert text.startswith("**This was never run inside the Unreal editor.**")
    named = re.findall(r"^   \| `(\w+)`(?:, `(\w+)`)? \|", text, re.M)
    events = {name for row in named for name in row if name}
    assert events == set(
        re.findall(r"Event, .*\)\n\t\w+ (\w+)\(", (MODULE / "Public" / "UeRlBridgeComponent.h").read_text())
    )


@pytest.mark.skipif(shutil.which("mcs") is None or shutil.which("mono") is None, reason="mono is not installed")
def test_the_build_rules_find_the_header(tmp_path: Path, installed: Path) -> None:
    module = installed / "Source" / "UeRlBridge"
    command = ["mcs", f"-out:{tmp_path / 'rules.exe'}", module / "UeRlBridge.Build.cs", OWN / "BuildTool.cs"]
    subprocess.run([str(word) for word in command], check=True, timeout=60)
    for platform, library in (("Win64", "ws2_32.lib"), ("Linux", "rt"), ("Mac", None)):
        words = ["mono", str(tmp_path / "rules.exe"), str(module), platform]
        said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.split("\n")
        assert (Path(said[0]) / "ue_rl_bridge.hpp").is_file()
        assert said[1:-1] == ([library] if library else [])


# -- compiling


def generated_code(header: Path, folder: Path) -> Path:
    """What UnrealHeaderTool writes for a header: X.generated.h, and the events' code, whose path is returned."""
    text, file_id = header.read_text("utf-8"), f"FID_{header.stem}"
    macros, code = [f"#undef CURRENT_FILE_ID\n#define CURRENT_FILE_ID {file_id}_"], [f'#include "{header.name}"']
    declared = re.compile(r"^(class|struct) (?:\w+_API )?(\w+)(?: : public (\w+))?\n\{\n\tGENERATED_BODY\(\)", re.M)
    event = re.compile(r"UFUNCTION\(Blueprint(Native|Implementable)Event.*\)\n\t(\w+) (\w+)\((.*)\);")
    for match in declared.finditer(text):
        line = text.count("\n", 0, match.end()) + 1
        kind, name, base = match.groups()
        body = f"public: using Super = {base}; private:" if kind == "class" else ""
        macros.append(f"#define {file_id}_{line}_GENERATED_BODY {body}")
        for native, result, function, parameters in event.findall(text, match.end(), text.index("\n};", match.end())):
            names = re.findall(r"(\w+)(?:,|$)", parameters)
            if native == "Native":
                does = f"return {function}_Implementation({', '.join(names)});"
                assert f"\tvirtual {result} {function}_Implementation({parameters});" in text, function
            else:
                does = "".join(f"(void){one};" for one in names)
            code.append(f"{result} {name}::{function}({parameters}) {{ {does} }}")
    assert len(macros) == text.count("GENERATED_BODY()") + 1, "a body that this tool does not see"
    (folder / f"{header.stem}.generated.h").write_text("\n".join(macros) + "\n")
    (folder / f"{header.stem}.gen.cpp").write_text("\n".join(code) + "\n")
    return folder / f"{header.stem}.gen.cpp"


def sources(folder: Path) -> tuple[list[Path], list[str]]:
    """All that one program is made of, and the include paths."""
    blocks = re.findall(r"```cpp (\w+\.\w+)\n(.*?)```", (PLUGIN / "README.md").read_text("utf-8"), re.S)
    for name, text in blocks:
        (folder / name).write_text(text, "utf-8")
    headers = [MODULE / "Public" / "UeRlBridgeComponent.h", folder / "CartBridge.h", OWN / "LabBridge.h"]
    generated = [generated_code(header, folder) for header in headers]
    files = [*sorted((MODULE / "Private").glob("*.cpp")), folder / "CartBridge.cpp", OWN / "Host.cpp", *generated]
    places = [STAND_IN, folder, MODULE / "Public", HEADER.parent, OWN]
    return files, [word for place in places for word in ("-I", str(place))]


def compile_(compiler: str, standard: str, files: list[Path], includes: list[str], *more: str) -> None:
    building.compiled([compiler, f"-std={standard}", *FLAGS, *more, *includes, *files])


def make_host(folder: Path) -> None:
    files, includes = sources(folder)
    together = folder / "together.cpp"  # as Unreal's "unity builds"; it takes a third of the time
    together.write_text("".join(f'#include "{file}"\n' for file in files))
    compile_("g++", "c++20", [together], includes, "-o", str(folder / "host"), "-lrt")


def built_host() -> Path:
    reads = [path for place in (PLUGIN, OWN, STAND_IN) for path in place.rglob("*.*") if path.is_file()]
    return building.kept([*reads, Path(__file__)], make_host) / "host"


@pytest.fixture(scope="module")
def host() -> Path:
    return built_host()


@needs_compiler
@pytest.mark.exhaustive
def test_it_compiles_as_c_plus_plus_20_and_with_clang(tmp_path: Path) -> None:
    """Unreal 5.3 and later compile C++20, with clang on Linux and Mac. File by file: each includes what it uses."""
    files, includes = sources(tmp_path)
    compile_(shutil.which("clang++") or "g++", "c++20", files, includes, "-fsyntax-only")


# -- running


def playing(host: Path, *words: str, log: list[str] | None = None) -> Any:
    return running(host, *words, log=log, code=0)


def connect(port: int, **options: Any) -> ue_rl.UnrealVecEnv:
    return ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, **options)


class Carts:
    """The README's game in Python: CartBridge.cpp and the stand-in of FRandomStream, to the bit."""

    def __init__(self, count: int) -> None:
        self.x, self.speed = np.zeros((2, count))
        self.steps, self.random = np.zeros(count, int), list(range(count))

    def reset(self, env: int, seed: int | None = None) -> None:
        state = self.random[env] if seed is None else (seed + (seed >> 32) * 23) & 0xFFFFFFFF
        self.random[env] = state = (state * 196314165 + 907633515) & 0xFFFFFFFF
        self.x[env] = np.float32(-100) + np.float32(200) * np.float32(state >> 8) / np.float32(16777216)
        self.speed[env], self.steps[env] = 0, 0

    def step(self, actions: NDArray[np.float32]) -> None:
        self.speed += 20.0 * actions[:, 0].astype(np.float64)
        self.steps += 1
        self.x += self.speed * float(np.float32(1 / 60))

    @property
    def state(self) -> NDArray[np.float32]:
        return np.stack([self.x / 100, self.speed / 100], 1).astype(np.float32)


@needs_compiler
@pytest.mark.parametrize("options", [{}, pytest.param({"transport": "shm"}, marks=needs_linux)], ids=["text", "shm"])
@pytest.mark.parametrize("words", [(), ("no-class",)], ids=["", "CartClass not set"])
def test_a_rollout_is_right_to_the_bit(host: Path, words: tuple[str, ...], options: dict[str, Any]) -> None:
    with playing(host, "carts", "-UERLNumEnvs=3", "-UERLSeed=70", *words) as port:
        for attempt in range(2):  # the next trainer is served, too
            env, carts = connect(port, **options), Carts(3)
            rng = np.random.default_rng(2)
            if attempt == 0:
                seeds: list[int] = [70, 71, 72]  # of the command line
            else:
                env.seed(5_000_000_000)
                seeds = [5_000_000_000, 5_000_000_001, 5_000_000_002]
            obs = env.reset()
            for cart, seed in enumerate(seeds):
                carts.reset(cart, seed)
            ended = 0
            for _ in range(220):
                np.testing.assert_array_equal(obs, carts.state)
                actions = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
                obs, rewards, dones, infos = env.step(actions)
                carts.step(actions)
                away = np.abs(carts.x / 100)
                np.testing.assert_array_equal(rewards, (1.0 - away).astype(np.float32))
                np.testing.assert_array_equal(dones, (away > 2) | (carts.steps >= 200))
                for cart in np.flatnonzero(dones):
                    ended += 1
                    np.testing.assert_array_equal(infos[cart]["terminal_observation"], carts.state[cart])
                    assert infos[cart]["TimeLimit.truncated"] == (away[cart] <= 2)
                    carts.reset(int(cart))
            assert ended >= 3
            env.close()


def checked(words: str, carriers: int) -> compliance.CheckReport:
    with playing(built_host(), *words.split()) as port:
        return compliance.check(f"tcp://127.0.0.1:{port}", compliance.Options(timeout=20.0))


@pytest.mark.slow
@needs_compiler
@needs_linux
@pytest.mark.ahead(job=checked)
@pytest.mark.parametrize(
    ("words", "carriers"),
    [
        ("carts patient -UERLNumEnvs=3", 2),  # text and shared memory
        # as before: in lock-step several envs have one channel
        pytest.param("lab patient any -UERLNumEnvs=3", 2, marks=pytest.mark.exhaustive),
        ("lab any", 3),
    ],
)
def test_the_checker_finds_nothing(words: str, carriers: int, result: compliance.CheckReport) -> None:
    assert result.mistakes == [], result
    assert len({finding.carrier for finding in result.findings if finding.carrier}) == carriers


@needs_compiler
def test_the_world_stands_still_while_the_trainer_thinks(host: Path) -> None:
    log: list[str] = []
    with playing(host, "lab", "watch", "action-ticks", log=log) as port:
        env = connect(port)
        ticks = [env.reset()["ticks"][0, 0]]
        assert ticks == [0]
        for step in range(8):
            if step % 4 == 1:
                time.sleep(0.12)  # longer than MaxWaitSeconds: the game is paused
            ticks.append(env.step([0])[0]["ticks"][0, 0])
        assert np.diff(ticks).tolist() == [4.0] * 8
        env.close()
    assert "PAUSED 0" in log[0]
    assert "cannot be paused" not in log[0]


@needs_compiler
@pytest.mark.parametrize("words", [("free",), ("noplayer",)])
def test_a_world_that_cannot_stand_still_goes_on(host: Path, words: tuple[str, ...]) -> None:
    log: list[str] = []
    with playing(host, "lab", "watch", *words, log=log) as port:
        env = connect(port)
        env.reset()

        def has_gone_on() -> bool:  # by more than the tick of a step, and another one
            before = env.step([0])[0]["ticks"][0, 0]
            time.sleep(0.25)
            return bool(env.step([0])[0]["ticks"][0, 0] > before + 2)

        assert any(has_gone_on() for _ in range(10))
        env.close()
    assert log[0].count("cannot be paused") == ("noplayer" in words)  # once, not in each tick


@needs_compiler
@pytest.mark.parametrize(("words", "alone", "beside"), [((), 0, 1), (("reset-ticks",), 2, 2)])
def test_resets_take_ticks_beside_actions_and_where_they_are_asked_to(
    host: Path, words: tuple[str, ...], alone: int, beside: int
) -> None:
    """Observed is the state that the next action acts on: behind the tick that another env's action takes."""
    with playing(host, "lab", "watch", "-UERLNumEnvs=2", *words) as port:
        transport = connect(port).transport
        transport.reset(seeds=[1, 2])
        assert transport.receive().obs[:, 1].tolist() == [alone, alone]
        transport.send_actions(np.zeros((2, 1), np.float32), resets=[0])
        assert transport.receive().obs[:, 1].tolist() == [beside, alone + 3]  # env 1's actions take 3
        transport.close()


@needs_compiler
def test_choices_masks_and_parameters(host: Path) -> None:
    with playing(host, "lab", "-UERLNumEnvs=2") as port:
        env = connect(port)
        assert env.action_space.n == 3
        env.seed(10)
        assert env.reset()["position"][:, 0].tolist() == [10, 11]
        assert np.array(env.env_method("action_masks")).tolist() == [[True] * 3] * 2
        obs, rewards, _, _ = env.step(np.array([2, 1]))
        assert obs["position"][:, 0].tolist() == rewards.tolist() == [12, 12]
        assert np.array(env.env_method("action_masks")).tolist() == [[True, False, True]] * 2
        assert env.transport.call("SET=push:5;ENV=1") == "VALUES=push:5"
        assert env.step(np.array([2, 2]))[0]["position"][:, 0].tolist() == [14, 22]
        for _ in range(48):
            _, _, dones, infos = env.step(np.array([0, 0]))
        assert dones.all()
        assert all(info["TimeLimit.truncated"] for info in infos)
        env.close()


@needs_compiler
def test_a_wrong_number_of_numbers_ends_the_session_with_a_sentence(host: Path) -> None:
    with playing(host, "lab", "forgets") as port:
        for _ in range(2):
            env = connect(port)
            env.reset()
            env.step([0])
            env.step([0])
            with pytest.raises(EngineDisconnected, match="CreateStateForEnv gave 1 numbers, ObservationSize is 2"):
                env.step([0])
            env.close()


@needs_compiler
def test_a_port_that_is_taken_is_tried_again(host: Path) -> None:
    """As where Play is pressed again while the last one's port is not free yet."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with subprocess.Popen(
            [host, "carts", "waits", f"-UERLPort={port}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                assert f"port {port}: it cannot be listened on" in process.stderr.readline()
                taken.close()
                assert process.stdout.readline() == f"PORT {port}\n"
                assert process.stderr.readline() == f"LogUeRl: Display: listening on 127.0.0.1, port {port}\n"
                env = connect(port)
                assert env.reset().shape == (1, 2)
                env.close()
            finally:
                process.kill()


@needs_compiler
def test_two_components_with_one_port_are_named(host: Path) -> None:
    port = free_port()
    words = [host, "carts", "twin", f"-UERLPort={port}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    said = f"Level.Carts: port {port} is that of Level.Lab, too: give each component a Port of its own"
    assert f"LogUeRl: Error: {said}" in done.stderr


@needs_compiler
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bad-space"], "ACT_SPACE DISCRETE(0): it has no such choices"),
        (["-UERLNumEnvs=-5"], "ENV_COUNT is 1 to 65536"),
        (["-UERLNumEnvs=70000"], "ENV_COUNT is 1 to 65536"),
    ],
)
def test_what_does_not_fit_stands_in_the_log(host: Path, words: list[str], said: str) -> None:
    done = subprocess.run([host, "carts", *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "LogUeRl: Error: " in done.stderr
    assert said in done.stderr
