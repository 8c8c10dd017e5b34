"""The gallery: trains an agent for each sample, measures it, films it, and writes docs/gallery.md.

    python benchmarks/gallery.py [NAME ...] [--keep FOLDER]

Each training is the command that the page shows. Then the exported ONNX file plays in a new engine, with other seeds:
that is the return in the table, and the film. Without names all samples are run. The numbers are kept in
docs/gallery/results.json, so that one sample can be run again alone.

Needs the train, mujoco and samples extras, g++, mono and godot3-server; a sample whose program is missing is left out
by name. Pictures of MuJoCo need OpenGL: MUJOCO_GL=egl where there is no screen.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MUJOCO_GL", "egl")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from PIL import Image

from benchmarks.gallery_film import DRAWINGS, beside, label, small, write_gif

if TYPE_CHECKING:
    from ue_rl.envs.vec_env import UnrealVecEnv

ROOT = Path(__file__).resolve().parents[1]
FOLDER, PAGE = ROOT / "docs" / "gallery", ROOT / "docs" / "gallery.md"
EPISODES, FILMED, HELD, MOST_BYTES = 50, 8, 3, 290_000  # a film holds the last picture of an episode
# what README.md shows: films of the gallery, side by side
STRIP = {"godot_rolling_ball": "Godot: rolling ball", "godot_catcher": "Godot: catcher", "reacher": "MuJoCo: reacher"}
PPO_REACH = "--n-steps 64 --batch-size 512 --learning-rate 2e-3 --set gamma=0.95"


@dataclass(frozen=True)
class Sample:
    """One row of the table.

    Args:
        title: for people.
        engine: what starts it; "" is the CartPole that `ue-rl train` hosts by itself.
        options: of `ue-rl train`.
        target: the return that must be reached. most: what the best policy gets, or why nobody knows.
        film: its drawing in gallery_film.DRAWINGS; "" where the engine sends pictures.
        step: seconds of the film for one step.
        filming: what starts an engine that sends pictures; "": `engine`.
        page: the folder of a web page, in place of `engine`; a headless Chromium shows it, and sends the pictures.
        needs: programs.
        before: shown and run before the command, with the checkout as its folder.
        agents: the envs hold agents.
        crop: left, top, right, bottom of what is shown of a picture, in parts of it; it is also made brighter.
        note: about the film; "": drawn from the observations, which the page says once.
    """

    title: str
    engine: str
    options: str
    target: float
    most: str
    film: str = ""
    step: float = 0.05
    filming: str = ""
    page: str = ""
    needs: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    agents: bool = False
    crop: tuple[float, float, float, float] | None = None
    note: str = ""


PLACES = "--port {port} --num-envs {num_envs}"
SAMPLES = {
    "cartpole": Sample(
        "CartPole, Gymnasium", "", "--timesteps 100000", 475, "500 is the most",
        filming="ue-rl serve --env CartPole-v1 " + PLACES + ' --kwargs \'{"render_mode": "rgb_array"}\'', step=0.02,
        note="the env's own picture",
    ),
    "cpp": Sample(
        "Reach, a C++ engine", f"samples/cpp/build/reach {PLACES} --seed {{seed}} --shm",
        f"--num-envs 32 --timesteps 60000 {PPO_REACH}", 4, "5 on arrival, less the way", "reach",
        needs=("g++",),
        before=("mkdir -p samples/cpp/build",
                "g++ -std=c++17 -O2 -ffp-contract=off -pthread -o samples/cpp/build/reach samples/cpp/reach.cpp -lrt"),
    ),
    "csharp": Sample(
        "Reach, an engine in C#", f"mono samples/unity/build/engine.exe {PLACES} --seed {{seed}}",
        f"--num-envs 32 --timesteps 60000 {PPO_REACH}", 4, "5 on arrival, less the way", "reach",
        needs=("mono", "mcs"),
        before=("mkdir -p samples/unity/build",
                "mcs -optimize+ -out:samples/unity/build/engine.exe samples/unity/UeRlBridge.cs "
                "samples/unity/UeRlHeuristic.cs samples/unity/console/Program.cs samples/unity/console/ReachGame.cs"),
    ),
    "godot_cart_pole": Sample(
        "Cart-pole, Godot 3", "godot:samples/godot",
        "--num-envs 8 --timesteps 80000 --n-steps 128 --batch-size 128 --learning-rate lin_0.003 --set n_epochs=8 "
        "--set 'policy_kwargs={log_std_init: -0.5}'",
        450, "500 is the most", "cart_pole", 1 / 60, needs=("godot3-server",),
    ),
    "godot_rolling_ball": Sample(
        "Rolling ball, Godot 3", "godot:samples/godot --task=rolling_ball",
        "--num-envs 16 --timesteps 130000 --n-steps 64 --batch-size 256 --learning-rate lin_0.001 --set gamma=0.98",
        4, "1 for each target", "rolling_ball", 1 / 15,
        needs=("godot3-server",), note="from above. Red: what its rays hit",
    ),
    "godot_catcher": Sample(
        "Catcher, Godot 3", "godot:samples/godot --task=catcher",
        "--num-envs 16 --timesteps 60000 --n-steps 128 --batch-size 256 --learning-rate lin_0.002 --set gamma=0.98",
        4, "1 for each ball caught, -1 for each missed, less the way", "catcher", 1 / 15,
        needs=("godot3-server",),
    ),
    "pendulum": Sample(
        "InvertedPendulum, MuJoCo", f"ue-rl serve --mujoco InvertedPendulum {PLACES} --shm",
        "--num-envs 16 --timesteps 60000 --n-steps 64 --batch-size 256 --learning-rate 0.001 --normalize "
        "--set gae_lambda=0.9 --set gamma=0.98",
        950, "1000 is the most", step=0.04,
        filming=f"ue-rl serve --mujoco InvertedPendulum {PLACES} --kwargs '{{\"picture\": [240, 320]}}'",
        crop=(0, 0.15, 1, 0.75), note="MuJoCo's picture, made brighter; 200 of 1000 steps",
    ),
    "reacher": Sample(
        "Reacher, MuJoCo", f"ue-rl serve --mujoco Reacher {PLACES} --shm",
        "--num-envs 16 --timesteps 120000 --n-steps 64 --batch-size 256 --learning-rate 0.001 --normalize "
        "--set gae_lambda=0.9 --set gamma=0.98",
        -7, "about -4 with the best known policies", step=0.04,
        filming=f"ue-rl serve --mujoco Reacher {PLACES} --kwargs '{{\"picture\": [480, 480]}}'",
        crop=(0.25, 0.34, 0.75, 0.69), note="a part of MuJoCo's picture, made brighter",
    ),
    "cover": Sample(
        "Cover, two agents with one policy", f"python samples/agents/cover.py {PLACES}",
        "--num-envs 16 --timesteps 60000 --n-steps 64 --batch-size 512 --learning-rate 2e-3 --set gamma=0.95 "
        "--set n_epochs=8",
        4.5, "5 for both places at once, less the way", "cover", 0.15, agents=True,
    ),
    "skirmish": Sample(
        "Skirmish, a strategy game",
        f"ue-rl serve --bridge samples.skirmish.bridge:Skirmish {PLACES} --shm --kwargs '{{\"ticks\": 25}}'",
        "--algo maskable_ppo --num-envs 64 --timesteps 400000 --n-steps 16 --batch-size 256 --learning-rate lin_0.002 "
        "--set gamma=0.98 --set n_epochs=3 --set ent_coef=0.001",
        1.8, "1 for a win, up to about 2 for what is built, destroyed and kept", step=0.1,
        filming=f"ue-rl serve --bridge samples.skirmish.bridge:Skirmish {PLACES} --kwargs '{{\"ticks\": 25}}'",
        note="the game's own: blue is the agent, red the middle script, darker what the agent does not see",
    ),
    "lander": Sample(
        "Lander, a web page with Rapier", "",
        "--timesteps 150000 --n-steps 128 --batch-size 512 --learning-rate 1e-3",
        14, "10 for standing on the pad, and for the way", step=1 / 30, page="samples/web/lander",
        needs=("chromium", "npm"), before=("npm ci --prefix samples/web/lander",), note="the page's",
    ),
}  # fmt: skip


def command_of(name: str) -> str:
    """The training, as a reader types it."""
    sample = SAMPLES[name]
    engine = '--engine "{}" '.format(sample.engine.replace('"', '\\"')) if sample.engine else ""
    if sample.page:
        engine = f"--page {sample.page} --headless "
    return f"ue-rl train {engine}{sample.options} --seed 0 --threads 1"


def train(name: str, folder: Path) -> float:
    """Runs the command; its seconds on the clock, with start, evaluation and export."""
    words = [*shlex.split(command_of(name))[1:], "--log-dir", str(folder), "--run-id", name, "--force"]
    for line in SAMPLES[name].before:
        subprocess.run(shlex.split(line), cwd=ROOT, check=True)
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ue_rl", *words], cwd=ROOT, check=True)
    return time.perf_counter() - began


def open_env(sample: Sample, command: str, num_envs: int, pictures: bool) -> UnrealVecEnv:
    """A new engine with seeds that training has not seen."""
    from ue_rl.connections.dialling import open_transport
    from ue_rl.connections.engines.transport import EnginesTransport
    from ue_rl.connections.launching.starting import launched
    from ue_rl.envs.agents import GroupVecEnv
    from ue_rl.envs.vec_env import UnrealVecEnv  # torch: a test reads the samples without it

    if sample.page:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        transport: Any = open_transport(f"page://127.0.0.1:{port}?serve={ROOT / sample.page}&browser=headless")
    else:
        transport = EnginesTransport(launched(command, num_envs=num_envs, seed=10_000))
    if sample.agents:
        env: UnrealVecEnv = GroupVecEnv(transport)
    else:
        env = UnrealVecEnv(transport, render_mode="rgb_array" if pictures else None)
    env.seed(10_000)
    return env


def play(sample: Sample, model: Path, num_envs: int, episodes: int, film: list[Image.Image] | None) -> list[float]:
    """The returns of `episodes` episodes, each env the same number of them; the first env's go to `film`."""
    from ue_rl.inference import OnnxInference

    policy = OnnxInference(model)
    pictures = film is not None and not sample.film
    command = sample.filming if (pictures or not sample.engine) else sample.engine
    env = open_env(sample, command, num_envs, pictures)
    rows = env.num_envs
    quota = -(-episodes // rows)
    left, returns, number = np.full(rows, quota), [], 1
    try:
        observations = env.reset()
        while left.any():
            if film is not None:
                if pictures:
                    frame = small(Image.fromarray(env.get_images()[0]), sample.crop)
                else:
                    frame = DRAWINGS[sample.film](observations[0])
                film.append(label(frame, f"episode {number}"))
            masks = np.stack(env.env_method("action_masks")) if policy.takes_masks else None
            actions = policy.run_inference(observations, action_masks=masks)
            if env.action_space.shape == ():
                actions = actions.reshape(rows).astype(np.int64)
            observations, _, dones, infos = env.step(actions)
            if dones[0] and film is not None and sample.film and "terminal_observation" in infos[0]:
                last = DRAWINGS[sample.film](infos[0]["terminal_observation"])
                film += [label(last, f"episode {number}")] * HELD
            number += int(dones[0]) if film is not None and not infos[0].get("inactive") else 0
            for row in np.flatnonzero(dones):
                if "episode" in infos[row] and left[row]:
                    left[row] -= 1
                    returns.append(float(infos[row]["episode"]["r"]))
            if film is not None and (left[0] == 0 or len(film) >= 200):
                break
    finally:
        env.close()
    return returns


def env_steps(run: Path) -> int:
    """Of the whole run, as the last rollout counts them."""
    with (run / "progress.csv").open(newline="") as file:
        return int(float(list(csv.DictReader(file))[-1]["time/total_timesteps"]))


def draw_curve(episodes: Path, sample: Sample, target: Path) -> None:
    """Mean and spread of the returns over the env-steps of the run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with episodes.open(newline="") as file:
        rows = np.array(list(csv.reader(file))[1:], np.float64)
    steps, returns = rows[:, 0], rows[:, 1]
    window = max(1, min(100, len(returns) // 10))
    figure = Figure(figsize=(3.9, 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(steps, returns, ".", markersize=2, alpha=0.2, color="tab:blue", rasterized=True)
    mean = np.convolve(returns, np.ones(window) / window, "valid")
    axes.plot(steps[window - 1 :], mean, color="tab:blue", linewidth=1.8, label=f"mean of {window} episodes")
    axes.axhline(sample.target, color="tab:green", linewidth=1, linestyle="--", label=f"goal: {sample.target:g}")
    axes.set_xlabel("env-steps")
    axes.set_ylabel("return")
    axes.set_title(sample.title, fontsize=10)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g} k" if value else "0")
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="lower right")
    picture = target.with_suffix(".tmp.png")
    figure.savefig(picture, dpi=110)
    Image.open(picture).convert("RGB").quantize(64).save(target, optimize=True)
    picture.unlink()


def run(name: str, folder: Path) -> dict[str, Any]:
    """Trains, evaluates and films one sample."""
    sample = SAMPLES[name]
    seconds = train(name, folder)
    run_folder = folder / name
    returns = play(sample, run_folder / "model.onnx", 8, EPISODES, None)
    film: list[Image.Image] = []
    play(sample, run_folder / "model.onnx", 1, FILMED, film)
    FOLDER.mkdir(exist_ok=True)
    draw_curve(run_folder / "episodes.csv", sample, FOLDER / f"{name}.png")
    write_gif(film, sample.step, FOLDER / f"{name}.gif", MOST_BYTES)
    return {
        "env_steps": env_steps(run_folder), "seconds": round(seconds), "episodes": len(returns), "seed": 0,
        "return": round(float(np.mean(returns)), 2), "deviation": round(float(np.std(returns)), 2),
        "least": round(min(returns), 2), "load": round(os.getloadavg()[0], 1), "machine": machine(),
    }  # fmt: skip


def machine() -> str:
    """What it ran on."""
    cores, model = os.cpu_count(), re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    from importlib.metadata import version

    packages = ", ".join(f"{name} {version(name)}" for name in ("stable_baselines3", "torch"))
    return f"{cores} cores{f' of {model[1]}' if model else ''}, Python {platform.python_version()}, {packages}"


def page(results: dict[str, dict[str, Any]]) -> str:
    """docs/gallery.md."""
    shown = [name for name in SAMPLES if name in results]
    machines = [results[name]["machine"].partition(", ") for name in shown]
    measured_on = [*sorted({cores for cores, _, _ in machines}), *sorted({versions for _, _, versions in machines})]
    lines = [
        "# Gallery", "",
        "<!-- benchmarks/gallery.py wrote this page: change it there -->", "",
        "Each agent was trained with the command below it: copy one that is like your game.",
        "",
        "| sample | time | return | goal |",
        "|---|---|---|---|",
    ]  # fmt: skip
    for name in shown:
        sample, result = SAMPLES[name], results[name]
        verdict = "" if result["return"] >= sample.target else " **missed**"
        lines.append(
            f"| [{sample.title}](#{anchor(sample.title)}) "
            f"| {result['seconds']} s | {result['return']} +/- {result['deviation']}{verdict} "
            f"| {sample.target:g} |"
        )
    loads = [results[name]["load"] for name in shown]
    lines += [
        "",
        "- **Return**: of 50 or more episodes of the ONNX file, in a new engine with other seeds.",
        f"- **Time**: of the whole command, on a busy machine (load average {min(loads)} to {max(loads)}):",
        *textwrap.wrap(f"{'; '.join(measured_on)}.", 118, initial_indent="  ", subsequent_indent="  "),
        "- **Films**: of the observations, unless named.",
    ]
    for name in shown:
        sample = SAMPLES[name]
        lines += [
            "", f"## {sample.title}", "",
            f"![curve](gallery/{name}.png)", f"![film](gallery/{name}.gif)", "",
            *textwrap.wrap(f"Return: {sample.most}.{f' Film: {sample.note}.' if sample.note else ''}", 118), "",
            "```bash", *map(in_lines, [*sample.before, command_of(name)]), "```",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def in_lines(command: str) -> str:
    """As a page can show it: a line goes on in the next one, at a blank that stands in no quotes."""
    words = re.findall(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+", command)
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) > 105:
            lines.append(f"   {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n ".join(lines)


def anchor(title: str) -> str:
    """Of its heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def read_results() -> dict[str, dict[str, Any]]:
    """What was measured so far."""
    file = FOLDER / "results.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def main() -> None:
    """Runs the samples and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*SAMPLES, []], help="default: all")
    parser.add_argument("--keep", type=Path, help="where runs are kept; otherwise they are deleted")
    parser.add_argument("--page-only", action="store_true", help="write the page from docs/gallery/results.json")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ue-rl, python
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep.resolve() if arguments.keep else Path(temporary)
        for name in [] if arguments.page_only else arguments.names or SAMPLES:
            missing = [program for program in SAMPLES[name].needs if shutil.which(program) is None]
            if missing:
                print(f"{name}: left out, {', '.join(missing)} is not installed", file=sys.stderr)
                continue
            result = run(name, folder)
            print(name, result, flush=True)
            (FOLDER / "results.json").write_text(json.dumps(read_results() | {name: result}, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(read_results()), "utf-8")
    beside([(title, FOLDER / f"{name}.gif") for name, title in STRIP.items()], FOLDER / "strip.gif", 4 * MOST_BYTES)


if __name__ == "__main__":
    main()
