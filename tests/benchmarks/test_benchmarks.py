"""Every benchmark starts, runs in its smallest size, and prints its table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harness.warm_cli import WarmCli

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

# As `python benchmarks/NAME.py WORDS`, with other constants of the module: some have sizes that no option changes.
SMALL = """
import importlib.util, json, sys
from pathlib import Path
path, constants, *words = sys.argv[1:]
name = Path(path).stem
sys.path[:0] = [str(Path(path).parent), str(Path(path).parents[1])]
spec = importlib.util.spec_from_file_location(name, path)
module = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
for key, value in json.loads(constants).items():
    assert hasattr(module, key), key
    setattr(module, key, value)
sys.argv = [path, *words]
sys.exit(module.main())
"""


class Small(NamedTuple):
    """How one is run in its smallest size.

    Attributes:
        shows: what stands in its output. needs: packages and programs without which it is skipped.
        codes: with which it may end: some judge speeds, which say nothing in so small a size.
    """

    words: str
    shows: str
    constants: dict[str, Any] = {}  # noqa: RUF012 - a NamedTuple's
    needs: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)


QUICK = {
    "access timing": Small("timing --tries 3", "wrong in the last digit"),
    "bench_crowd": Small("--server bridge --connections 2 --seconds 0.1", "| bridge | drip |"),
    "c_engine": Small("--envs 2 --rounds 10", "per-env sockets", needs=("cc",)),
    "exhaustive_floats": Small("--every 200000", "0 came back different"),
    "fuzz_sessions": Small("--messages 20 --carriers grpc", "20 messages", needs=("grpc",)),
    "soak_shm": Small("--steps 1000", "all in order"),
}
# More than a second or two of CPU: other programs are compiled or started, or torch is imported in several processes.
SLOW = {
    "access": Small("steps --seconds 0.01 --repeats 1", "TLS"),
    "bench_arena": Small("--rounds 1", "10 000 entries, query", needs=("uvicorn",)),
    "bench_mujoco": Small("--quick --tasks InvertedPendulum", "| InvertedPendulum, 64 |", needs=("mujoco",)),
    "bench_ppo cold": Small("--rounds 1 --only cold", "| step, engine |", {"COLD": 2}),
    "bench_ppo episodes": Small("--rounds 1 --only episodes", "| shared memory |", {"REPEATS": 1, "LOOP": 5}),
    "bench_ppo": Small("--rounds 1 --only ppo", "| shared memory |", {"STEPS": 16, "ROLLOUTS": 1}),
    "bench_sessions_grpc": Small("--calls 20 --rounds 1", "StepAll", needs=("grpc",)),
    "bench_spaces": Small("--rounds 1", "| shared memory, 64 |", {"STEPS": 5}),
    "arena_minds": Small("--steps 256 --seeds 1", "| PPO, seed 0 |", needs=("uvicorn",)),
    "bench_agents": Small("--steps 1 --rounds 1", "agents / envs"),
    "bench_busy": Small("--busy 0 --think 0 --engine 0 --seconds 0.05 --rounds 1", "| 0 | 0 | 0 |"),
    "bench_deploy": Small("--calls 10 --rounds 1", "us |", needs=("g++", "mcs", "mono")),
    "bench_engine_sides": Small("--quick --envs 1 --only C", "env-steps per second", needs=("g++", "cc")),
    "bench_engines": Small("--quick", "|", needs=("cc",)),
    "bench_inference": Small("--quick", "Stable-Baselines3"),
    "bench_learner": Small("--rounds 1 --only cartpole --json out.json", "| NumPy, shared memory |", {"STEPS": 16}),
    "learner_quality": Small(
        "--only CartPole --seeds 2 --jobs 1 --json out.json",
        "| CartPole | numpy |",
        {"TIMESTEPS": 600, "EPISODES": 2, "RANDOM_STEPS": 300},
        needs=("scipy",),
    ),
    "bench_learner border": Small("--rounds 1 --only border", "| wide | 8 |", {"STEPS": 16, "WIDTHS": [8]}),
    "bench_overlap": Small("--quick", "| SAC |", {"STEPS": 8}),
    "bench_pages": Small("--quick --sizes 4x4", "| 4x4 | Node, binary |", needs=("node", "websockets")),
    "bench_policy_server": Small("--seconds 0.1", "| 64 |"),
    "bench_ppo watched": Small("--rounds 1 --only watched", "| --metrics |", {"STEPS": 16, "ROLLOUTS": 1}),
    "bench_sessions": Small("--quick --sessions 2", "| 25 Hz, a bridge a session |"),
    "bench_shm": Small("--quick --only idle", "| upgraded from TCP |"),
    "bench_tcp": Small("--quick", "|", needs=("cc",)),
    "blocked_minds": Small("--seconds 0.06 0.5", "| C++ | text | 0.5 |", needs=("grpc", "websockets", "mcp", "g++")),
    "blocked_minds long": Small("--seconds 25 90 --only Python", "stayed", needs=("grpc", "websockets", "mcp")),
    "chaos_kill": Small("--kills 1", "always resumed"),
    "compare": Small(f"{BENCHMARKS.parent} --rounds 1 --only codec", "this / other", needs=("cc",)),
    "demonstrations": Small("", "| 0 |", {"STEPS": 1024}),
    "fuzz": Small("--messages 200 --processes 1", "| reader | messages |"),
    "late_answers": Small("--repeats 1", "0 wrong"),
    "learning_theory": Small("--only terminated", "| 1.9375, 1.875, 1.75, 1.5, 1 | ue_rl, by SB3"),
    "learning": Small("cartpole-ppo --channels shared", "| cartpole-ppo |"),
    "numbers_on_the_way": Small(
        "--values 1000 --only engine,",
        "| engine, Node, text | exact (1,000) | exact (1,000) | observation, reward: refused",
        needs=("g++", "node"),
    ),
    "onnx_options": Small("--only one", "| one row at a time | bits | the same |"),
    "onnx_runtimes": Small("--quick", "| PPO, Box |"),
    "rllib_faults": Small("--rounds 1", "nothing is left", needs=("ray",)),
    "seeded_episodes": Small("--only CartPole-v1 --seeds 1", "| CartPole-v1 | same |", needs=("gymnasium",)),
    "seeded_engines": Small(
        "--only carts/Python", "| carts/Python | same | same | same | same | same | same weights |", {"TRAINING": 2048}
    ),
    "sleeping_peers": Small(
        "--seconds 1 --only engine trainer both",
        "| both stopped, mcp | goes on |",
        needs=("grpc", "websockets", "mcp", "node"),
    ),
    "sleeping_peers tabs": Small(
        "--seconds 1 --only tab page", "| tab hidden, page | goes on |", needs=("websockets", "grpc", "mcp", "chromium")
    ),
    "soak": Small("--minutes 0.1 --engines 1 --envs 2 --every 3", "| what was seen | holds |", codes=(0, 1)),
}
# Where Ray is installed (tests/plugins/rllib/test_benchmarks.py).
WITH_RAY = {
    "bench_rllib": Small("--envs 1 --seconds 0.05 --rounds 1", "env-steps/s", needs=("ray",)),
    "bench_rllib_scaling": Small("--runners 1 --envs 2 --steps 64 --rounds 1", "of linear", needs=("ray",)),
    "bench_rllink": Small("--envs 1 --rounds 1 --steps 100", "RLlink clients", needs=("ray",)),
}
# charts, gallery and tables write the pages, which tests/docs compares; the others are parts of benchmarks.
OTHERS = {"charts", "gallery", "gallery_film", "plain_codec", "plain_ppo", "rllib_engines", "tables"}


def test_every_benchmark_is_run() -> None:
    run = {name.partition(" ")[0] for name in (*QUICK, *SLOW, *WITH_RAY)}
    assert run | OTHERS == {path.stem for path in BENCHMARKS.glob("*.py")}
    assert not run & OTHERS


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("learning_theory", "--only running"),
        ("onnx_runtimes", "--quick"),
        ("onnx_runtimes", "--only A2C --runtimes opencv"),
        ("seeded_engines", "--only carts/Python"),
        ("seeded_episodes", "--only CartPole-v1 --seeds 1"),
    ],
)
def test_a_part_does_not_replace_a_whole_table(name: str, part: str, tmp_path: Path, warm_cli: WarmCli) -> None:
    whole = tmp_path / "whole.json"
    whole.write_text("{}")
    words = [str(BENCHMARKS / f"{name}.py"), "{}", *part.split(), "--json", str(whole)]
    done = warm_cli.run_script(SMALL, *words, folder=tmp_path, timeout=380)
    assert done.returncode == 1
    assert "whole.json is there" in done.stderr
    assert whole.read_text() == "{}"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "small"),
    [*QUICK.items(), *(pytest.param(*each, marks=pytest.mark.exhaustive) for each in SLOW.items())],
)
def test_it_prints_its_table(name: str, small: Small, tmp_path: Path, warm_cli: WarmCli) -> None:
    check(name, small, tmp_path, warm_cli)


def check(name: str, small: Small, folder: Path, cli: WarmCli) -> None:
    """Runs it in `folder`; skips where something that it needs is missing."""
    for each in small.needs:
        if shutil.which(each) is None:
            pytest.importorskip(each, reason=f"{each} is not installed")
    path = BENCHMARKS / f"{name.partition(' ')[0]}.py"
    words = [str(path), json.dumps(small.constants), *small.words.split()]
    done = cli.run_script(SMALL, *words, folder=folder, timeout=380)
    assert done.returncode in small.codes, done.stderr[-3000:]
    assert small.shows in done.stdout, done.stdout
