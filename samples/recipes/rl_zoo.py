"""RL Zoo trains on an engine by its own command, with its own hyperparameters.

python samples/recipes/rl_zoo.py [ALGO] [TASK] [TIMESTEPS] [SEED]

RL Zoo imports this file, too (--gym-packages). Each env that it makes starts an engine of its own. Register your game
in the same way, by what starts it: one("./Game.sh --port {port}").
"""

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium
import yaml

import ue_rl


def one(command: str | list[str], render_mode: str | None = None) -> ue_rl.UnrealEnv:
    """The one env of an engine that is started for it, and ends with it."""
    return ue_rl.UnrealEnv(ue_rl.launch(command, num_envs=1).transport, render_mode=render_mode)


for task in ("CartPole-v1", "Pendulum-v1"):  # Gymnasium's, hosted as engines: what is learnt can be compared
    serve = [sys.executable, "-m", "ue_rl", "serve", "--env", task, "--num-envs", "1", "--port", "{port}", "--shm"]
    gymnasium.register(f"game/{task}", entry_point=functools.partial(one, serve))


def zoo(command: str, algo: str, task: str, *more: str) -> str:
    """What `python -m rl_zoo3.COMMAND` prints."""
    game = ["--algo", algo, "--env", f"game/{task}", "--gym-packages", Path(__file__).stem, "--device", "cpu"]
    line = [sys.executable, "-m", f"rl_zoo3.{command}", *game, *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parent)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main(algo: str = "ppo", task: str = "CartPole-v1", timesteps: str = "-1", seed: str = "0") -> None:
    """Trains as RL Zoo's section of this task says, saves, loads, plays; -1 takes the section's timesteps."""
    import rl_zoo3

    sections = yaml.safe_load((Path(rl_zoo3.__file__).parent / "hyperparams" / f"{algo}.yml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{algo}.yml"
        file.write_text(yaml.safe_dump({f"game/{task}": sections[task]}))
        run = ("-f", folder, "--seed", seed)
        zoo("train", algo, task, *run, "-n", timesteps, "--conf-file", str(file), "--eval-episodes", "1")
        print("saved:", *sorted(path.name for path in Path(folder).rglob("*.zip")))
        played = zoo("enjoy", algo, task, *run, "--no-render", "-n", "5000")
    returns = [float(value) for value in re.findall(r"Episode Reward: (\S+)", played)]
    print(f"mean return {sum(returns) / len(returns):.1f} of {len(returns)} episodes")


if __name__ == "__main__":
    main(*sys.argv[1:])
