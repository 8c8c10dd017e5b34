"""Nothing that is drawn, filmed, counted, logged, sent or told ends a run, or undoes what it has learnt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Figure, KVWriter

from tests.support.acting import at_step
from tests.training.test_evaluation import Near, Said, run
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.training import TrainingReport, learner
from ue_rl.training.callbacks import EngineNumbers, EpisodeLog, LookingOn, RunNumbers
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.pictures import add_legend, new_figure
from ue_rl.training.report import RunResult
from ue_rl.training.seeds import train_seeds
from ue_rl.training.tables import ProgressTable, open_tables
from ue_rl.training.videos import Films
from ue_rl.training.watching import Watching

METHODS = [name for name in vars(TrainingReport) if not name.startswith("_")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of an engine that sends pictures."""
    with run_in_thread(GymnasiumBridge(lambda: Near("rgb_array"), 2)) as server:
        yield server.url


def breaks(*_: Any, **__: Any) -> Any:
    raise ValueError("it is broken")


def done(outcome: RunResult) -> None:
    """It has learnt all, and saved it."""
    assert outcome.stopped_by is None
    assert (outcome.env_steps, outcome.saved) == (64, 64)
    assert json.loads(outcome.run.outcome.read_text())["state"] == "done"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (learner, "draw_curves"),
        *((kind, "_on_step") for kind in (EpisodeLog, RunNumbers, EngineNumbers, Watching, Films)),
        (EpisodeLog, "_on_training_start"),
        (RunNumbers, "_on_rollout_start"),
        (EngineNumbers, "_on_rollout_end"),
        (Films, "_on_training_end"),
        (ProgressTable, "write"),
        (ProgressTable, "close"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_what_only_looks_on_ends_nothing(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, breaks)
    said = Said()
    freq = 16 if owner is Films else 0
    done(run(tmp_path, "r", said, timesteps=64, url=url, video_freq=freq, eval_episodes=0))
    assert sum("it is broken" in text for text in said.texts) == 1


class Broken(Near):
    def step(self, action: Any) -> Any:
        breaks()


@pytest.mark.parametrize(("game", "why"), [(Broken, "it is broken"), (Near, "best_model.zip")])
def test_an_evaluation_that_fails_ends_nothing(tmp_path: Path, url: str, game: Any, why: str) -> None:
    """By its game, or since a folder stands where the best model is written."""
    said = Said()
    in_its_way = at_step(8, (tmp_path / "r" / "best_model.zip").mkdir)
    with run_in_thread(GymnasiumBridge(game, 2)) as server:
        evaluated = {"eval_freq": 32, "eval_url": server.url}
        done(run(tmp_path, "r", said, timesteps=64, url=url, callback=in_its_way, **evaluated))
    assert [text for text in said.texts if why in text]


@pytest.mark.parametrize("names", [METHODS, *(pytest.param([name], marks=pytest.mark.exhaustive) for name in METHODS)])
def test_a_report_that_fails_ends_nothing(tmp_path: Path, url: str, names: list[str]) -> None:
    fails: Any = type("Fails", (TrainingReport,), dict.fromkeys(names, breaks))
    done(run(tmp_path, "r", fails(), timesteps=64, url=url, eval_episodes=1))


def test_a_checkpoint_is_saved_whatever_becomes_of_its_copies(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "copyfile", breaks)
    said = Said()
    done(run(tmp_path, "r", said, timesteps=64, url=url, eval_episodes=0))
    assert sum("it is broken" in text for text in said.texts) == 1


def test_an_outcome_that_cannot_be_written_is_returned(tmp_path: Path, url: str) -> None:
    in_its_way = tmp_path / "r" / "outcome.json"
    outcome = run(tmp_path, "r", timesteps=64, url=url, eval_episodes=0, callback=at_step(60, in_its_way.mkdir))
    assert in_its_way.is_dir()
    assert (outcome.stopped_by, outcome.saved) == (None, 64)


def test_an_engine_that_cannot_draw_is_asked_once_a_film(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def render(*_: Any, **__: Any) -> Any:
        asked.append(1)
        breaks()

    monkeypatch.setattr(UnrealVecEnv, "env_method", render)
    done(run(tmp_path, "r", timesteps=64, url=url, video_freq=32, eval_episodes=0))
    assert len(asked) == 2


@pytest.mark.exhaustive
def test_pictures_need_no_backend_for_windows(tmp_path: Path) -> None:
    """As where a notebook's setting reaches a process that lacks the notebook's packages."""
    script = (
        "import os, sys; from pathlib import Path; from ue_rl.training.pictures import new_figure, save\n"
        "figure, axes = new_figure(); axes.plot([1, 2]); save(figure, Path(sys.argv[1]))\n"
        "print(os.environ['MPLBACKEND'])"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "a.png")]
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    shown = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert shown.stdout == "nonsense\n", shown.stderr
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        pytest.param(rows, labels, marks=() if number % 2 == at else pytest.mark.exhaustive)
        for at, rows in enumerate([(1,), (3, 1)])
        for number, labels in enumerate(
            [["seed 0"], [f"seed {n}" for n in range(30)], ["a-run-with-a-long-name" * 3] * 4]
        )
    ],
)
def test_a_legend_covers_no_curve(rows: tuple[int, ...], labels: list[str]) -> None:
    figure, axes = new_figure("title", rows=rows)
    for label in labels:
        np.atleast_1d(axes)[0].plot([0, 1], [0, 1], label=label)
    add_legend(figure, axes)
    FigureCanvasAgg(figure).draw()
    shown = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= shown.x0
    assert shown.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= shown.y0
    lowest = np.atleast_1d(axes)[-1]
    assert shown.y1 <= lowest.xaxis.get_tightbbox().y0, "it stands below the words under the axes"


@pytest.mark.parametrize("name", ["seeds.png", "seeds.csv"])
def test_seeds_that_are_done_are_told_whatever_is_drawn_of_them(
    tmp_path: Path, finished: Callable[[str], RunDirectory], name: str
) -> None:
    """A folder stands in the place of a file that is made of them."""
    told: list[str] = []

    def tell(text: str) -> None:
        if not told:  # the folder of the runs is there, and none has begun
            finished("g/seed-0")
            finished("g/seed-1")
            (tmp_path / "g" / name).mkdir()
        told.append(text)

    options = TrainOptions(log_dir=str(tmp_path), run_id="g", seeds=2, timesteps=128)
    _, runs, stopped = train_seeds(options, tell=tell)
    assert [(run.seed, run.state, run.env_steps) for run in runs] == [(0, "done", 128), (1, "done", 128)]
    assert stopped is None
    assert name in told[-1]


class Picky(KVWriter):
    """A table that takes no figures, as SB3's own for CSV files."""

    def write(self, key_values: Any, key_excluded: Any, step: int = 0) -> None:
        if any(isinstance(value, Figure) for value in key_values.values()):
            breaks()


def test_a_value_that_a_table_cannot_hold_costs_its_row(tmp_path: Path) -> None:
    warned: list[str] = []
    logger = open_tables(tmp_path, warned.append, tensorboard=False, others=[Picky()])
    logger.record("figure", Figure(None, True))  # type: ignore[arg-type]
    logger.dump(1)
    logger.record("x", 1)
    logger.dump(2)
    logger.close()
    assert (tmp_path / "progress.csv").read_text() == "x\n1\n"
    assert len(warned) == 2


def test_the_screen_shows_numbers_whose_names_begin_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warned: list[str] = []
    logger = open_tables(tmp_path, warned.append, verbose=1, tensorboard=False)
    names = [f"engine/{'distance_to_the_nearest_enemy_' * 3}{suffix}" for suffix in ("mean", "mean_max")]
    for name in names:
        logger.record(name, 1)
    logger.dump(1)
    logger.close()
    assert warned == []
    assert capsys.readouterr().out.count("distance_to_the_nearest_enemy") == 6


def test_a_stop_passes_whoever_looks_on() -> None:
    class Stopped(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            raise KeyboardInterrupt

    warned: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        LookingOn(Stopped(), warned.append).on_rollout_end()
    assert warned == []
