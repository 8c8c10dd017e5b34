"""Every recipe runs as a user would run it, where its library is installed; one screen of code shows each."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli

RECIPES = Path(__file__).resolve().parents[2] / "samples" / "recipes"

CART_POLE = f"'{sys.executable}' -m ue_rl serve --env CartPole-v1 --port {{port}} --num-envs {{num_envs}}"
# recipe: its library, arguments that keep it short, and by how much the mean return must rise at least
CASES: dict[str, tuple[str, tuple[str, ...], float | None]] = {
    "cleanrl_ppo": ("torch", ("12288",), 3.0),  # torch is always there: that it learns is a test apart
    "optuna_search": ("optuna", (CART_POLE, "2", "1024"), 1.0),
    "pettingzoo_parallel": ("pettingzoo", ("30",), 2.0),
    "rl_zoo": ("rl_zoo3", ("ppo", "CartPole-v1", "10240"), None),
    "skrl_ppo": ("skrl", ("12288",), 2.0),
    "tianshou_ppo": ("tianshou", ("12288",), 3.0),
    "tune": ("ray", ("2", "8"), 1.0),
    "torchrl_ppo": ("torchrl", ("12288",), 2.0),
}
# The search runs in the process in each run: test_optuna_search.py.
MARKS = {"cleanrl_ppo": pytest.mark.exhaustive, "optuna_search": pytest.mark.exhaustive, "tune": pytest.mark.exhaustive}


def test_recipes_are_short_and_all_of_them_are_run() -> None:
    scripts = list(RECIPES.glob("*.py"))
    for script in scripts:
        longest = 100 if script.stem == "optuna_search" else 60  # `ue-rl init` writes that one: it is a program
        assert len(script.read_text("utf-8").splitlines()) <= longest, script
    runnable = {script.stem for script in scripts if "__main__" in script.read_text("utf-8")}
    assert runnable == set(CASES)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("recipe", "arguments", "rise"),
    [
        ("cleanrl_ppo", ("2048",), 0.0),
        *(pytest.param(recipe, *case[1:], marks=MARKS.get(recipe, ())) for recipe, case in CASES.items()),
    ],
)
def test_recipe(tmp_path: Path, recipe: str, arguments: tuple[str, ...], rise: float | None, warm_cli: WarmCli) -> None:
    library = CASES[recipe][0]
    pytest.importorskip(library, reason=f"{library} is not installed")
    out = warm_cli.run_script(RECIPES / f"{recipe}.py", *arguments, folder=tmp_path, timeout=380)
    assert out.returncode == 0, out.stderr[-3000:]
    numbers = re.findall(r"(\d+\.\d+) (?:->|to) (\d+\.\d+)", out.stdout)
    if rise is None:
        played = re.search(r"mean return (\S+) of (\d+) episodes", out.stdout)
        assert played is not None, out.stdout
        assert float(played[1]) > 15
        assert int(played[2]) > 3
        return
    first, last = map(float, numbers[-1])
    assert first > 0, out.stdout
    assert last >= rise * first, out.stdout


REACHED = {("ppo", "CartPole-v1"): 475.0, ("td3", "Pendulum-v1"): -300.0, ("sac", "Pendulum-v1"): -300.0}


@pytest.mark.learning
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("section", REACHED, ids="-".join)
def test_rl_zoo_reaches_with_its_own_values_what_it_reaches_without_an_engine(
    tmp_path: Path, section: tuple[str, str], warm_cli: WarmCli
) -> None:
    """Without one, with seed 0: 500.0, -179.9 and -166.7; over an engine 500.0 and -179.9 of the first two."""
    pytest.importorskip("rl_zoo3", reason="rl_zoo3 is not installed")
    out = warm_cli.run_script(RECIPES / "rl_zoo.py", *section, folder=tmp_path, timeout=2900)
    assert out.returncode == 0, out.stderr[-3000:]
    played = re.search(r"mean return (\S+) of (\d+) episodes", out.stdout)
    assert played is not None, out.stdout
    assert float(played[1]) >= REACHED[section]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_rl_zoo_learns_over_an_engine_what_it_learns_without_one(tmp_path: Path) -> None:
    """The same seed, section and steps: the weights are equal to the bit."""
    pytest.importorskip("rl_zoo3", reason="rl_zoo3 is not installed")
    section = "{n_timesteps: 300, policy: MlpPolicy, learning_starts: 200, batch_size: 16}"
    (tmp_path / "sac.yml").write_text(f"Pendulum-v1: {section}\ngame/Pendulum-v1: {section}\n")
    weights = []
    for env in ("Pendulum-v1", "game/Pendulum-v1"):
        words = ["--algo", "sac", "--env", env, "--seed", "3", "--device", "cpu", "--eval-freq", "-1", "-f"]
        zoo = [sys.executable, "-m", "rl_zoo3.train", *words, str(tmp_path), "--conf-file", str(tmp_path / "sac.yml")]
        done = subprocess.run(
            [*zoo, "--gym-packages", "rl_zoo"], cwd=RECIPES, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (model,) = tmp_path.rglob(f"{env.replace('/', '-')}.zip")
        with zipfile.ZipFile(model) as archive:
            weights.append(archive.read("policy.pth"))
    assert weights[0] == weights[1]
