"""samples/deploy: its demos, compiled, and the models that they run, with lines of numbers in and out.

The library is the one that Python's onnxruntime brings. Its C++ header and its NuGet package are on no package index of
Python, so tests/samples/deploy has stand-ins of the few types that the samples use, which call the real library. Where
UE_RL_ORT_INCLUDE names the folder of the official headers, the C++ sample is built with those, too.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnxruntime
import pytest
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.samples import building
from tests.support.models import SMALL, SMALL_RECURRENT, export_briefly
from ue_rl.protocol.spaces.gymnasium import gymnasium_space
from ue_rl.protocol.spaces.tree import Leaf, LeafKind

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

not_on_windows = pytest.mark.skipif(sys.platform == "win32", reason="the samples' Windows side was never run")


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
    small = SMALL_RECURRENT if algorithm is RecurrentPPO else SMALL
    model = algorithm(kind, venv, n_steps=8, batch_size=8, device="cpu", policy_kwargs=dict(small))
    with th.no_grad():
        for weights in model.policy.parameters():
            weights.normal_()
    export_briefly(model, path, *([venv] if normalised else []), **options)
    return path


@functools.cache
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
