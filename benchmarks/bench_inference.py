"""OnnxInference against Stable-Baselines3's predict(), side by side in one run; prints a markdown table.

    python benchmarks/bench_inference.py [--quick]

Rounds alternate between the contenders, figures are medians over rounds of the mean time per call, ratios are
what to quote: absolute times differ from machine to machine and from minute to minute. Each contender does the
whole way from a raw observation to an action that an env takes: predict() behind VecNormalize where
the file has the normalisation in its graph. Memory is that of a fresh process each (resident set, Linux),
after one action.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch as th
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from ue_rl.inference import OnnxInference, export_onnx

OBS, ACT = 8, 2
Contenders = dict[str, Callable[[], Any]]


class AnyEnv(gym.Env[Any, Any]):
    """Spaces only."""

    def __init__(self, observation_space: gym.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = gym.spaces.Box(-1, 1, (ACT,), np.float32)


def make(algorithm: Any, policy: str, space: gym.Space[Any], normalized: bool, **kwargs: Any) -> Any:
    env: Any = DummyVecEnv([lambda: AnyEnv(space)])
    if normalized:
        env = VecNormalize(env, training=False)
    return algorithm(policy, env, device="cpu", seed=0, **kwargs)


def race(contenders: Contenders, rounds: int, seconds: float) -> dict[str, float]:
    """Microseconds per call, medians over rounds; the contenders take turns."""
    calls = {}
    for name, call in contenders.items():
        for _ in range(20):
            call()
        began = time.perf_counter()
        for _ in range(20):
            call()
        calls[name] = max(5, int(seconds / rounds / ((time.perf_counter() - began) / 20)))
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            began = time.perf_counter()
            for _ in range(calls[name]):
                call()
            found[name].append((time.perf_counter() - began) / calls[name] * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def python_side(model: Any, obs: Any) -> Callable[[], Any]:
    stats = model.get_vec_normalize_env()
    if stats is None:
        return lambda: model.predict(obs, deterministic=True)
    return lambda: model.predict(stats.normalize_obs(obs), deterministic=True)


def latency(folder: Path, rounds: int, seconds: float) -> None:
    vector = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    image = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    lstm = {"policy_kwargs": {"lstm_hidden_size": 64}}
    cases = (
        ("PPO, MLP 2x64", make(PPO, "MlpPolicy", vector, False), (1, 64)),
        ("PPO, MLP 2x64, VecNormalize", make(PPO, "MlpPolicy", vector, True), (1, 64)),
        ("SAC, MLP 2x256", make(SAC, "MlpPolicy", vector, False, buffer_size=1), (1, 64)),
        ("RecurrentPPO, LSTM 64", make(RecurrentPPO, "MlpLstmPolicy", vector, False, **lstm), (1, 64)),
        ("PPO, NatureCNN 84x84x4", make(PPO, "CnnPolicy", image, False, n_steps=2, batch_size=2), (1,)),
    )
    print("| policy | rows | predict() | OnnxInference | raw onnxruntime | faster than predict() |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, model, sizes in cases:
        path = folder / "policy.onnx"
        export_onnx(model, path)
        for n in sizes:
            runtime = OnnxInference(path)
            session = runtime._model.session  # type: ignore[union-attr]
            obs = np.random.default_rng(0).integers(
                255, size=(n, *model.get_env().unwrapped.envs[0].observation_space.shape)
            )
            floats = (obs if "CNN" in name else obs / 255).astype(np.float32)
            raw = obs.astype(np.uint8) if "CNN" in name else floats
            feeds = {port.name: np.zeros((n, *port.shape), np.float32) for port in runtime.metadata.inputs}  # type: ignore[union-attr]
            feeds["obs"] = floats
            times = race(
                {
                    "python": python_side(model, raw),
                    "onnx": lambda runtime=runtime, floats=floats: runtime.run_inference(floats),
                    "raw": lambda session=session, feeds=feeds: session.run(["actions"], feeds),
                },
                rounds,
                seconds,
            )
            print(
                f"| {name} | {n} | {times['python']:.0f} us | {times['onnx']:.1f} us | {times['raw']:.1f} us "
                f"| {times['python'] / times['onnx']:.1f}x |"
            )


PROCESSES = {
    "onnxruntime, OnnxInference": (
        "from ue_rl.inference import OnnxInference\nm = OnnxInference(sys.argv[1])\nm.run_inference(x)"
    ),
    "torch alone, imported": "import torch",
    "Stable-Baselines3, PPO.load and predict()": (
        "from stable_baselines3 import PPO\nm = PPO.load(sys.argv[2], device='cpu')\nm.predict(x)"
    ),
}


def processes(folder: Path, repeats: int) -> None:
    """Start to first action and memory, each in processes of its own."""
    model = make(PPO, "MlpPolicy", gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32), False)
    export_onnx(model, folder / "p.onnx")
    model.save(folder / "p.zip")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in PROCESSES}
    for _ in range(repeats):
        for name, body in PROCESSES.items():
            program = (
                "import sys, time\nbegan = time.perf_counter()\nimport numpy as np\n"
                f"x = np.zeros((1, {OBS}), np.float32)\nempty = int(open('/proc/self/statm').read().split()[1])\n"
                f"{body}\nfull = int(open('/proc/self/statm').read().split()[1])\n"
                "print(time.perf_counter() - began, full * 4096 / 1e6, (full - empty) * 4096 / 1e6)\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", program, str(folder / "p.onnx"), str(folder / "p.zip")],
                capture_output=True,
                text=True,
                check=True,
            )
            start, memory, more = map(float, done.stdout.split())
            found[name].append((start, memory, more))
    print("| process | start to first action | resident memory | of it above NumPy | memory against SB3 |")
    print("|---|---:|---:|---:|---:|")
    medians = {name: [statistics.median(c) for c in zip(*rows, strict=True)] for name, rows in found.items()}
    most = medians["Stable-Baselines3, PPO.load and predict()"][1]
    for name, (start, memory, more) in medians.items():
        print(f"| {name} | {start:.2f} s | {memory:.0f} MB | {more:.0f} MB | 1/{most / memory:.1f} |")


def loading(folder: Path, rounds: int) -> None:
    """Time to load a file into a running process."""
    model = make(PPO, "MlpPolicy", gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32), False)
    report = export_onnx(model, folder / "l.onnx")
    model.save(folder / "l.zip")
    times = race(
        {"onnx": lambda: OnnxInference(folder / "l.onnx"), "sb3": lambda: PPO.load(folder / "l.zip", device="cpu")},
        rounds,
        2,
    )
    began = time.perf_counter()
    export_onnx(model, folder / "l.onnx")
    print("| what (PPO, MLP 2x64) | time |\n|---|---:|")
    print(f"| OnnxInference(path), checked and warmed up | {times['onnx'] / 1000:.1f} ms |")
    print(f"| PPO.load(path) | {times['sb3'] / 1000:.1f} ms |")
    print(f"| export_onnx, {report.observations} observations compared | {time.perf_counter() - began:.2f} s |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a look, not a measurement")
    quick = parser.parse_args().quick
    th.set_num_threads(1)
    names = ("torch", "stable-baselines3", "sb3-contrib", "onnxruntime", "numpy")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread each; Python ", end="")
    print(platform.python_version() + "; " + ", ".join(f"{name} {version(name)}" for name in names) + "\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        latency(folder, *((3, 0.3) if quick else (11, 2.0)))
        print()
        loading(folder, 3 if quick else 11)
        print()
        if Path("/proc/self/statm").exists():
            processes(folder, 1 if quick else 5)


if __name__ == "__main__":
    main()
