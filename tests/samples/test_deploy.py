"""samples/deploy: models run by onnxruntime from C++ and C#, and clients of the policy server, against Python.

The library is the one that Python's onnxruntime brings. Its C++ header and its NuGet package are on no package index of
Python, so tests/samples/deploy has stand-ins of the few types that the samples use, which call the real library. Where
UE_RL_ORT_INCLUDE names the folder of the official headers, the C++ sample is built with those, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import pytest
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.samples import building
from ue_rl.inference import OnnxInference, ReloadingInference, export_onnx
from ue_rl.inference.server.server import PolicyServer
from ue_rl.spaces.gymnasium import gymnasium_space
from ue_rl.spaces.tree import Leaf, LeafKind

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, STAND_INS = ROOT / "samples" / "deploy", Path(__file__).resolve().parent / "deploy"
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
PAGE = ROOT / "docs" / "deploy.md"
LIBRARY = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
HEADERS = os.environ.get("UE_RL_ORT_INCLUDE")
NEEDS = {"C++": ("g++",), "C#": ("mcs", "mono"), "C++, official header": ("g++",)}
OBS = 5
ACTIONS: dict[str, gym.Space[Any]] = {
    "box": spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32)),
    "discrete": gymnasium_space(Leaf(LeafKind.DISCRETE, counts=(7,), starts=(-3,)), zero_based=True),
    "multi discrete": spaces.MultiDiscrete([3, 2, 5]),
    "multi binary": spaces.MultiBinary(3),
}
MODELS = [(kind, normalised) for kind in ACTIONS for normalised in (False, True)]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the samples' Windows side was never run")


class Game(gym.Env[Any, Any]):
    """Observations of all sizes; nothing is learnt here."""

    def __init__(self, action_space: gym.Space[Any], observation_space: gym.Space[Any] | None = None) -> None:
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (OBS,))
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def exported(path: Path, env: Game, *, normalised: bool = False, algorithm: Any = PPO, **options: Any) -> Path:
    """A policy with random weights, large enough that its actions differ, in an ONNX file."""
    th.manual_seed(1)
    env.observation_space.seed(2)
    venv: Any = DummyVecEnv([lambda: env])
    if normalised:
        venv = VecNormalize(venv, clip_obs=1.5)
        venv.reset()
        for _ in range(20):
            venv.step([env.action_space.sample()])
        venv.training = False
    kind = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    kind = "MlpLstmPolicy" if algorithm is RecurrentPPO else kind
    model = algorithm(kind, venv, n_steps=8, batch_size=8, device="cpu", policy_kwargs={"net_arch": [16]})
    with th.no_grad():
        for weights in model.policy.parameters():
            weights.normal_()
    export_onnx(model, path, venv if normalised else None, **options)
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        (kind, normalised): exported(folder / f"{kind}-{normalised}.onnx", Game(ACTIONS[kind]), normalised=normalised)
        for kind, normalised in MODELS
    }


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recurrent") / "model.onnx"
    return exported(path, Game(spaces.Box(-1, 1, (2,))), algorithm=RecurrentPPO)


@pytest.fixture(scope="module")
def programs() -> dict[tuple[str, str], list[str]]:
    """(language, demo) -> its command."""
    reads = [path for place in (SAMPLE, STAND_INS) for path in place.rglob("*.*") if path.is_file()]
    installed = [shutil.which(tool) for tools in NEEDS.values() for tool in tools]
    folder = building.kept([*reads, PAGE, Path(__file__)], build, LIBRARY, HEADERS, *installed)
    found = ["env", f"LD_LIBRARY_PATH={folder}", "LC_ALL=de_DE.UTF-8"]  # a comma in place of the point, if it is known
    return {
        (language, demo): [*found, *(["mono"] if language == "C#" else []), str(folder / name)]
        for language, demo, name in json.loads((folder / "programs.json").read_text())
    }


def build(folder: Path) -> None:
    """All of them, without a warning, two at a time."""
    commands, names = jobs(folder), []
    for language, demo in commands:
        names.append(f"{language}-{demo}.exe".translate({ord(" "): None, ord("'"): None, ord(","): None}))
        target = folder / names[-1]
        commands[language, demo] += [f"-out:{target}"] if language == "C#" else ["-o", str(target)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(building.compiled, commands.values()))
    table = [[*key, name] for key, name in zip(commands, names, strict=True)]
    (folder / "programs.json").write_text(json.dumps(table))


def jobs(folder: Path) -> dict[tuple[str, str], list[str]]:
    """(language, demo) -> the compiler's command, where that is installed."""
    jobs: dict[tuple[str, str], list[str]] = {}
    pages = {}
    for ending, kind, source in re.findall(r"```(cpp|csharp) (\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.S):
        pages[ending, kind] = folder / f"page_{kind}.{ending}"
        pages[ending, kind].write_text(source, "utf-8")
    assert set(pages) == {("cpp", "onnx"), ("csharp", "onnx")}
    own = ["-I", str(SAMPLE / "cpp")]
    for language, headers in (("C++", str(STAND_INS)), ("C++, official header", HEADERS)):
        if shutil.which("g++") is None or headers is None:
            continue
        if headers != HEADERS:
            jobs[language, "client"] = ["g++", *STRICT, str(SAMPLE / "cpp" / "client_demo.cpp")]
        if LIBRARY is not None:
            for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
                if not (folder / name).exists():  # made for the headers before
                    (folder / name).symlink_to(LIBRARY)
            onnx_flags = ["-isystem" if headers == HEADERS else "-I", headers, "-L", str(folder), "-lonnxruntime"]
            jobs[language, "onnx"] = ["g++", *STRICT, str(SAMPLE / "cpp" / "onnx_demo.cpp"), *onnx_flags]
            jobs[language, "page's onnx"] = ["g++", *STRICT, *own, str(pages["cpp", "onnx"]), *onnx_flags]
    if all(map(shutil.which, NEEDS["C#"])):
        mcs = ["mcs", "-langversion:7", "-optimize+", "-warn:4", "-warnaserror+"]
        csharp = SAMPLE / "csharp"
        onnx_policy = [*mcs, str(csharp / "OnnxPolicy.cs"), str(STAND_INS / "OnnxRuntimeStandIn.cs")]
        jobs["C#", "client"] = [*mcs, str(csharp / "PolicyClient.cs"), str(csharp / "ClientDemo.cs")]
        jobs["C#", "onnx"] = [*onnx_policy, str(csharp / "OnnxDemo.cs")]
        jobs["C#", "page's onnx"] = [*onnx_policy, str(pages["csharp", "onnx"])]
    return jobs


def skip_without_tools(language: str) -> None:
    missing = [tool for tool in NEEDS[language] if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {' '.join(missing)}")


@pytest.fixture(params=["C++", "C#", *(["C++, official header"] if HEADERS else [])])
def onnx_demo(request: pytest.FixtureRequest, programs: dict[tuple[str, str], list[str]]) -> list[str]:
    skip_without_tools(request.param)
    if LIBRARY is None:
        pytest.skip("this onnxruntime wheel has no libonnxruntime.so of its own")
    return programs[request.param, "onnx"]


@pytest.fixture(params=["C++", "C#"])
def client_demo(request: pytest.FixtureRequest, programs: dict[tuple[str, str], list[str]]) -> list[str]:
    skip_without_tools(request.param)
    return programs[request.param, "client"]


def text(rows: NDArray[np.float32]) -> str:
    return "".join(" ".join(f"{number:.9g}" for number in row) + "\n" for row in rows.tolist())


def floats(lines: str) -> NDArray[np.float32]:
    return np.array([line.split() for line in lines.splitlines()], np.float32)


def observations(rows: int, size: int = OBS, seed: int = 0) -> NDArray[np.float32]:
    """From tiny to large, both signs, zeros of both."""
    rng = np.random.default_rng(seed)
    made = (rng.normal(size=(rows, size)) * 10.0 ** rng.integers(-6, 3, (rows, size))).astype(np.float32)
    made[0, :2] = -0.0, 0.0
    return made


def run(command: Sequence[str | Path], said: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*map(str, command)], input=said, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def same_bits(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    return one.shape == other.shape and bool((one.view(np.uint32) == other.view(np.uint32)).all())


# -- onnxruntime


@pytest.mark.parametrize(("kind", "normalised"), MODELS)
def test_actions_are_those_of_python_to_the_bit(
    onnx_demo: list[str], models: dict[tuple[str, bool], Path], kind: str, normalised: bool
) -> None:
    policy = OnnxInference(models[kind, normalised])
    rows = observations(64)
    actions = policy.run_inference(rows)
    assert len(np.unique(actions, axis=0)) > 3
    done = run([*onnx_demo, models[kind, normalised], str(OBS), str(policy.act_size)], text(rows))
    assert same_bits(floats(done.stdout), actions)


def test_a_dict_observation_as_one_row(onnx_demo: list[str], tmp_path: Path) -> None:
    parts = {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (3,))}
    env = Game(spaces.Box(-1, 1, (2,)), spaces.Dict(parts))
    flat = exported(tmp_path / "flat.onnx", env, flat_input=True)
    rows = observations(8)
    done = run([*onnx_demo, flat, "5", "2"], text(rows))
    assert same_bits(floats(done.stdout), OnnxInference(flat).run_inference(rows))
    keyed = exported(tmp_path / "keyed.onnx", env)
    said = run([*onnx_demo, keyed, "5", "2"], text(rows), 1).stderr
    assert "the model's inputs are a, b, not obs alone: export a Dict observation with flat_input=True" in said


def test_an_image_as_the_engine_has_it(onnx_demo: list[str], tmp_path: Path) -> None:
    pixels = spaces.Box(0, 255, (8, 6, 3), np.uint8)
    file = exported(tmp_path / "image.onnx", Game(spaces.Box(-1, 1, (2,)), pixels))
    rows = np.random.default_rng(0).integers(0, 256, (4, 8 * 6 * 3)).astype(np.float32)
    done = run([*onnx_demo, file, "144", "2"], text(rows))
    assert same_bits(floats(done.stdout), OnnxInference(file).run_inference(rows.reshape(4, 8, 6, 3)))


def test_a_model_that_could_take_masks_has_every_choice(onnx_demo: list[str], tmp_path: Path) -> None:
    file = exported(tmp_path / "masked.onnx", Game(spaces.MultiDiscrete([3, 4])), algorithm=MaskablePPO)
    policy = OnnxInference(file)
    assert policy.takes_masks
    rows = observations(8)
    done = run([*onnx_demo, file, str(OBS), "2"], text(rows))
    assert same_bits(floats(done.stdout), policy.run_inference(rows))


def test_files_that_do_not_fit_are_refused_in_a_sentence(
    onnx_demo: list[str], models: dict[tuple[str, bool], Path], recurrent: Path, tmp_path: Path
) -> None:
    good = models["box", False]
    model = onnx.load(good)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    model = onnx.load(good)
    model.metadata_props[0].value = model.metadata_props[0].value.replace('"format": 1', '"format": 2')
    onnx.save(model, tmp_path / "later.onnx")
    (tmp_path / "broken.onnx").write_bytes(good.read_bytes()[:1000])
    for file, obs, act, said in [
        (good, 6, 2, "the model has 5 observation and 2 action numbers, the game 6 and 2"),
        (good, 5, 1, "the model has 5 observation and 2 action numbers, the game 5 and 1"),
        (recurrent, 5, 2, "the model's inputs are obs, "),
        (tmp_path / "foreign.onnx", 5, 2, "the model has no description: export it with ue_rl"),
        (tmp_path / "later.onnx", 5, 2, "has another format than 1"),
        (tmp_path / "broken.onnx", 5, 2, "broken.onnx failed"),
        (tmp_path / "none.onnx", 5, 2, "File doesn't exist"),
    ]:
        done = run([*onnx_demo, file, str(obs), str(act)], text(observations(2)), 1)
        assert said in done.stderr
        assert done.stdout == ""


def test_an_observation_that_is_no_number_is_named(onnx_demo: list[str], models: dict[Any, Path]) -> None:
    done = run([*onnx_demo, models["discrete", True], str(OBS), "1"], "1 2 3 4 5\n1 2 3 NaN 5\n", 1)
    assert "the observation of row 1 holds NaN or infinity" in done.stderr


def test_a_call_is_timed(onnx_demo: list[str], models: dict[Any, Path]) -> None:
    done = run([*onnx_demo, models["discrete", True], str(OBS), "1", "11"], text(observations(3)))
    assert len(done.stdout.splitlines()) == 3
    assert float(done.stderr) > 0


# -- the policy server


@contextmanager
def serving(path: Path) -> Iterator[PolicyServer]:
    """A policy server in a thread of its own."""
    made: list[PolicyServer] = []
    ready = threading.Event()

    async def serve() -> None:
        nonlocal stop
        stop = asyncio.Event()
        with ReloadingInference(path, interval=None) as policy:
            async with PolicyServer(policy, port=0) as server:
                made.append(server)
                ready.set()
                await stop.wait()

    stop: asyncio.Event
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield made[0]
    finally:
        made[0].loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(("kind", "num_envs"), [("box", 1), ("box", 3), ("discrete", 2), ("multi discrete", 3)])
def test_answers_are_those_of_python_to_the_bit(
    client_demo: list[str], models: dict[tuple[str, bool], Path], kind: str, num_envs: int
) -> None:
    policy = OnnxInference(models[kind, True])
    assert policy.act_size is not None
    steps = [observations(num_envs, seed=step) for step in range(10)]
    with serving(models[kind, True]) as server:
        words = ["127.0.0.1", server.port, OBS, policy.act_size, num_envs]
        done = run([*client_demo, *map(str, words)], "".join(text(rows.reshape(1, -1)) for rows in steps))
    assert (server.batches, server.requests) == (10, 10 * num_envs)  # all envs of a line are one call of the model
    answers = floats(done.stdout).reshape(10, num_envs, policy.act_size)
    assert all(same_bits(rows, policy.run_inference(asked)) for rows, asked in zip(answers, steps, strict=True))


def test_a_recurrent_model_begins_anew_where_it_is_told(client_demo: list[str], recurrent: Path) -> None:
    policy = OnnxInference(recurrent)
    steps = [observations(2, seed=step) for step in range(9)]
    begins = {0: [0, 1], 4: [1], 6: [0], 7: [0, 1]}
    said, actions = "", []
    for step, rows in enumerate(steps):
        said += "".join(f"reset={env} " for env in begins.get(step, [])) + text(rows.reshape(1, -1))
        policy.reset(begins.get(step, []))
        actions.append(policy.run_inference(rows))
    with serving(recurrent) as server:
        done = run([*client_demo, "127.0.0.1", str(server.port), str(OBS), "2", "2"], said)
    assert same_bits(floats(done.stdout).reshape(9, 2, 2), np.array(actions))
    policy.reset()
    assert not same_bits(policy.run_inference(steps[5]), actions[5])  # the state does matter


def test_many_envs_in_one_line(client_demo: list[str], models: dict[tuple[str, bool], Path]) -> None:
    """The answer is longer than what is read at once."""
    policy = OnnxInference(models["box", False])
    rows = observations(3000)
    with serving(models["box", False]) as server:
        done = run([*client_demo, "127.0.0.1", str(server.port), str(OBS), "2", "3000"], text(rows.reshape(1, -1)))
    assert same_bits(floats(done.stdout).reshape(3000, 2), policy.run_inference(rows))


def test_what_the_server_refuses_is_shown(client_demo: list[str], models: dict[tuple[str, bool], Path]) -> None:
    with serving(models["box", False]) as server:
        command = [*client_demo, "127.0.0.1", str(server.port)]
        said = run([*command, "4", "2"], "1 2 3 4\n", 1).stderr
        assert f"the policy server 127.0.0.1:{server.port} refuses: HandshakeError" in said
        assert "expected OBS=5 ACT=2" in said
        said = run([*command, str(OBS), "2"], "1 2 3 4 5\n1 2 NaN 4 5\n1 2 3 4 5\n", 1)
        assert len(said.stdout.splitlines()) == 1
        assert "refuses: " in said.stderr


def test_a_server_that_ends_is_a_sentence(client_demo: list[str], models: dict[tuple[str, bool], Path]) -> None:
    with serving(models["box", False]) as server:
        port = server.port
        command = [*client_demo, "127.0.0.1", str(port), str(OBS), "2"]
        process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("1 2 3 4 5\n")
        process.stdin.flush()
        assert len(process.stdout.readline().split()) == 2
    said = process.communicate("1 2 3 4 5\n", timeout=20)[1]
    assert f"the policy server 127.0.0.1:{port} closed the connection" in said
    assert process.returncode == 1
    said = run(command, "1 2 3 4 5\n", 1).stderr
    assert f"the policy server 127.0.0.1:{port} does not listen: is ue-rl policy-server running there?" in said


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([b"ACT=1,2;ENV=0"], "has not answered in time"),
        ([b"ACT=1,2;EN", b"V=0||ACT=3,4;ENV=1\n"], ""),
        ([b"ACT=1,2;ENV=0||ACT=3,4;ENV=0\n"], "answers what are no actions: ACT=1,2;ENV=0||ACT=3,4;ENV=0"),
        ([b"ACT=1,2;ENV=0\n"], "answers what are no actions"),
        ([b"ACT=1,2;ENV=0||ACT=3;ENV=1\n"], "answers what are no actions"),
        ([b"ACT=1,2;ENV=0||ACT=3,x;ENV=1\n"], "answers what are no actions"),
        ([b"ACT=1,2;ENV=0||ACT=3,4,5;ENV=1\n"], "answers what are no actions"),
        *[
            ([b"ACT=1,2;ENV=0||ACT=3,%s;ENV=1\n" % x], "answers what are no actions")
            for x in (b"nan", b"NaN", b"Infinity")
        ],
        ([b"HTTP/1.1 400 Bad Request\r\n"], "answers what are no actions: HTTP/1.1 400 Bad Request"),
    ],
)
def test_a_server_that_is_silent_or_speaks_nonsense(client_demo: list[str], answers: list[bytes], said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        soon = 2000 if "mono" in client_demo else 100  # mono's first task may take long to be run
        timeout = soon if "in time" in said else 20_000
        command = [*client_demo, "127.0.0.1", str(listener.getsockname()[1]), "3", "2", "2", str(timeout)]
        done = pool.submit(run, command, "1 2 3 4 5 6\n", 1 if said else 0)
        listener.settimeout(20)
        peer = listener.accept()[0]
        with peer, peer.makefile("rb") as lines:
            assert lines.readline() == b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2\n"
            assert lines.readline() == b"OBS=1,2,3;ENV=0||OBS=4,5,6;ENV=1\n"
            for answer in answers:
                peer.sendall(answer)
            told = done.result(20)
    assert said in told.stderr
    assert told.stdout == ("" if said else "1 2 3 4\n")


# -- docs/deploy.md


@pytest.fixture(scope="module")
def page_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = spaces.Box(-2, 2, (1,)), spaces.Box(-9, 9, (3,))
    return exported(tmp_path_factory.mktemp("page") / "policy.onnx", Game(*sizes))


def shown(model: Path, lines: str) -> None:
    rows = np.array([[1, 0, 0.5], [0, 1, -0.5]], np.float32)
    assert [float(word) for word in lines.split()] == pytest.approx(
        OnnxInference(model).run_inference(rows)[:, 0], 1e-5
    )


@pytest.mark.parametrize("language", ["C++", "C#"])
def test_the_page_s_onnxruntime(language: str, programs: dict[tuple[str, str], list[str]], page_model: Path) -> None:
    skip_without_tools(language)
    if LIBRARY is None:
        pytest.skip("this onnxruntime wheel has no libonnxruntime.so of its own")
    command = ["env", "-C", str(page_model.parent), *programs[language, "page's onnx"]]
    shown(page_model, run(command, "").stdout.replace(",", "."))
