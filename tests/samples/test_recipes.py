"""Every recipe runs as a user would run it, where its library is installed; none is longer than 60 lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli

RECIPES = Path(__file__).resolve().parents[2] / "samples" / "recipes"

# recipe: its library, arguments that keep it short, and by how much the mean return must rise at least
CASES: dict[str, tuple[str, tuple[str, ...], float | None]] = {
    "cleanrl_ppo": ("torch", ("12288",), 3.0),  # torch is always there: that it learns is a test apart
    "optuna_search": ("optuna", ("2", "2048"), 1.0),
    "pettingzoo_parallel": ("pettingzoo", ("30",), 2.0),
    "rl_zoo": ("rl_zoo3", ("2048",), None),
    "skrl_ppo": ("skrl", ("12288",), 2.0),
    "tianshou_ppo": ("tianshou", ("12288",), 3.0),
    "tune": ("ray", ("2", "8"), 1.0),
    "torchrl_ppo": ("torchrl", ("12288",), 2.0),
}


def test_recipes_are_short_and_all_of_them_are_run() -> None:
    scripts = list(RECIPES.glob("*.py"))
    for script in scripts:
        assert len(script.read_text("utf-8").splitlines()) <= 60, script
    runnable = {script.stem for script in scripts if "__main__" in script.read_text("utf-8")}
    assert runnable == set(CASES)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("recipe", "arguments", "rise"),
    [
        ("cleanrl_ppo", ("2048",), 0.0),
        *(
            pytest.param(recipe, *case[1:], marks=pytest.mark.learning if case[0] == "torch" else ())
            for recipe, case in CASES.items()
        ),
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
