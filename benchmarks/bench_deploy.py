"""How long a game waits for actions: onnxruntime from Python, C++ and C#, and the policy server over loopback.

    python benchmarks/bench_deploy.py [--calls 2000] [--rounds 7]

The programs are the demos of samples/deploy, which time themselves; C# runs with mono. UE_RL_ORT_INCLUDE names the
folder of onnxruntime's C++ headers; without it, and for C#, the stand-ins of tests/samples/deploy are taken, which call
the same library. Contenders take turns; figures are medians over the rounds of the median of a call. Prints a table.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import onnxruntime
from stable_baselines3 import PPO

from ue_rl.inference import OnnxInference, export_onnx

ROOT = Path(__file__).resolve().parents[1]
SAMPLE, STAND_INS = ROOT / "samples" / "deploy", ROOT / "tests" / "samples" / "deploy"
OBS, ACT = 8, 2


class AnyEnv(gym.Env[object, object]):
    """Spaces only."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (ACT,), np.float32)


def build(folder: Path) -> dict[str, list[str]]:
    """The commands of the four demos."""
    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        (folder / name).symlink_to(library)
    include = os.environ.get("UE_RL_ORT_INCLUDE", str(STAND_INS))
    cpp = ["g++", "-std=c++17", "-O2", "-isystem", include, "-L", str(folder), "-lonnxruntime"]
    sharp, mcs = SAMPLE / "csharp", ["mcs", "-optimize+"]
    ort = [sharp / "OnnxPolicy.cs", sharp / "OnnxDemo.cs", STAND_INS / "OnnxRuntimeStandIn.cs"]
    client = [sharp / "PolicyClient.cs", sharp / "ClientDemo.cs"]
    subprocess.run([*cpp[:-3], SAMPLE / "cpp" / "onnx_demo.cpp", *cpp[-3:], "-o", folder / "onnx"], check=True)
    subprocess.run([*cpp[:-3], SAMPLE / "cpp" / "client_demo.cpp", "-o", folder / "client"], check=True)
    subprocess.run([*mcs, *ort, f"-out:{folder / 'onnx.exe'}"], check=True)
    subprocess.run([*mcs, *client, f"-out:{folder / 'client.exe'}"], check=True)
    names = {"C++": "", "C#": "mono "}
    kinds = {"onnxruntime": "onnx", "policy server": "client"}
    return {
        f"{kind}, {language}": [*start.split(), str(folder / (program + (".exe" if start else "")))]
        for kind, program in kinds.items()
        for language, start in names.items()
    }


def timed(command: list[str], said: str, folder: Path) -> float:
    """The median that the demo says, in microseconds."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(command, input=said, capture_output=True, text=True, check=True, env=environment)
    return float(done.stderr)


def in_python(policy: OnnxInference, rows: np.ndarray[tuple[int, int], np.dtype[np.float32]], calls: int) -> float:
    """The median of a call, in microseconds."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        policy.run_inference(rows)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def measure(folder: Path, calls: int, rounds: int) -> None:
    """Prints the table."""
    model = folder / "model.onnx"
    export_onnx(PPO("MlpPolicy", AnyEnv(), n_steps=8, batch_size=8, seed=0, device="cpu"), model)  # type: ignore[arg-type]
    policy, demos = OnnxInference(model), build(folder)
    command = [sys.executable, "-m", "ue_rl", "policy-server", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
            assert address is not None
            seen: dict[tuple[str, int], list[float]] = {}
            for _ in range(rounds):
                for n in (1, 64):
                    rows = np.random.default_rng(0).normal(size=(n, OBS)).astype(np.float32)
                    said = "".join(f"{number:.9g} " for number in rows.ravel().tolist()) + "\n"
                    seen.setdefault(("onnxruntime, Python", n), []).append(in_python(policy, rows, calls))
                    for name, demo in demos.items():
                        onnx = name.startswith("onnxruntime")
                        words = [model, OBS, ACT] if onnx else ["127.0.0.1", address[1], OBS, ACT, n, 5000]
                        figure = timed([*demo, *map(str, words), str(calls)], said, folder)
                        seen.setdefault((name, n), []).append(figure)
        finally:
            server.terminate()
    print(f"{platform.machine()}; Python {platform.python_version()}; onnxruntime {version('onnxruntime')}")
    print("| way | 1 row | 64 rows |\n|---|---:|---:|")
    for name in ("onnxruntime, Python", *demos):
        print(f"| {name} | {' | '.join(f'{statistics.median(seen[name, n]):.1f} us' for n in (1, 64))} |")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), words.calls, words.rounds)


if __name__ == "__main__":
    main()
