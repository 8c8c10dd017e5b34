"""RL Zoo: train and enjoy, with its own commands; the engine has one env, as RL Zoo makes envs one by one.

python samples/recipes/rl_zoo.py [TIMESTEPS]
"""

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ue_rl.bridges import GymnasiumBridge, run_in_process

HYPERPARAMETERS = """
ue_rl/Engine-v0:
  n_timesteps: 40000
  policy: MlpPolicy
  n_steps: 256
  batch_size: 256
  n_epochs: 20
  gae_lambda: 0.8
  gamma: 0.98
  learning_rate: 0.001
"""


def zoo(command: str, url: str, *more: str) -> str:
    """What `python -m rl_zoo3.COMMAND` prints."""
    engine = ["--env", "ue_rl/Engine-v0", "--gym-packages", "ue_rl.envs", "--env-kwargs", f"url:'{url}'"]
    line = [sys.executable, "-m", f"rl_zoo3.{command}", "--algo", "ppo", "--device", "cpu", *engine, *more]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def main(timesteps: int = 40_000) -> None:
    """Trains, saves, loads, plays."""
    one_env = functools.partial(GymnasiumBridge, "CartPole-v1", 1)
    with run_in_process(one_env) as engine, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ppo.yml"
        file.write_text(HYPERPARAMETERS)
        zoo("train", engine.url, "-n", str(timesteps), "--conf-file", str(file), "-f", folder, "--eval-freq", "-1")
        print("saved:", *sorted(path.name for path in Path(folder).rglob("*.zip")))
        played = zoo("enjoy", engine.url, "-f", folder, "--no-render", "-n", "2000")
    returns = [float(value) for value in re.findall(r"Episode Reward: (\S+)", played)]
    print(f"mean return {sum(returns) / len(returns):.1f} of {len(returns)} episodes")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
