"""Evaluation while a policy learns: the best model, stopping at a return, films; and a run that does not notice it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.harness.exactness import Drift
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.inference import OnnxInference
from ue_rl.system import errors
from ue_rl.training import RunDirectory, RunResult, TrainingReport, TrainOptions, train
from ue_rl.training.config import resolve
from ue_rl.training.hyperparameters import known_algorithm
from ue_rl.training.writing import evaluations

ME = __name__
N = 2
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}},
    "a2c": {"n_steps": 16, "use_sde": True, "policy_kwargs": {"net_arch": [8]}},
    "recurrentppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"lstm_hidden_size": 8}},
    "maskable_ppo": {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}},
    **{
        name: {"learning_starts": 20, "batch_size": 16, "buffer_size": 1000, "policy_kwargs": {"net_arch": [8]}}
        for name in ("sac", "td3", "dqn")
    },
}


class Near(gym.Env[Any, Any]):
    """Five steps to act as near to 0.7 as one can; may be drawn, and what it shows may be normalised."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self._step = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return seen, -abs(float(action[0]) - 0.7), self._step >= 5, False, {}

    def render(self) -> Any:
        return np.full((8, 12, 3), 20 * self._step, np.uint8)


class Collapse(BaseCallback):
    """From the env-step `at` on, the actor does the worst that there is."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._at:
            with torch.no_grad():
                self.model.policy.actor.mu.weight.zero_()  # type: ignore[union-attr,operator]
                self.model.policy.actor.mu.bias.fill_(-9.0)  # type: ignore[union-attr,operator]
        return True


class Breaks(BaseCallback):
    """Raises at an env-step, once in this process; `seen` is the model of the last run."""

    at: int | None = None
    seen: Any = None

    def _on_training_start(self) -> None:
        Breaks.seen = self.model

    def _on_step(self) -> bool:
        if Breaks.at is not None and self.num_timesteps >= Breaks.at:
            Breaks.at = None
            raise RuntimeError("broken off")
        return True


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """The address of a new engine with envs that a function makes."""
    with ExitStack() as stack:
        yield lambda make, n=N: stack.enter_context(run_in_thread(GymnasiumBridge(make, n))).url


class Said(TrainingReport):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def said(self, text: str) -> None:
        self.texts.append(text)

    def warned(self, text: str) -> None:
        self.texts.append(text)


def run(folder: Path, name: str, report: TrainingReport | None = None, **options: Any) -> RunResult:
    given = {"seed": 3, "threads": 1, "device": "cpu", "export": False, "save_interval": 0.0, "save_freq": 64}
    given |= {"log_dir": str(folder), "hyperparameters": SMALL[options.get("algo", "ppo")]}
    return train(resolve({**given, "run_id": name, **options}, None), report=report)


def weights(folder: Path, algo: str, file: str = "model.zip") -> list[bytes]:
    model = known_algorithm(algo).load(folder / file)
    state = [*model.policy.state_dict().values()]
    state += (
        [v for s in model.policy.optimizer.state_dict()["state"].values() for v in s.values()] if algo == "ppo" else []
    )
    return [np.asarray(value.cpu()).tobytes() for value in state]


def statistics(folder: Path) -> list[Any]:
    kept = pickle.loads((folder / "vecnormalize.pkl").read_bytes())
    all_of = kept.obs_rms.values() if isinstance(kept.obs_rms, dict) else [kept.obs_rms]
    return [(each.mean.tolist(), each.var.tolist(), each.count) for each in (*all_of, kept.ret_rms)]


def test_the_best_model_of_a_run_that_collapses_late(tmp_path: Path, serve: Callable[..., str]) -> None:
    """SAC learns, and then unlearns all: best_model.zip is from before, and does what its evaluation says."""
    report = Said()
    outcome = run(
        tmp_path, "sac", report, algo="sac", timesteps=80, url=serve(Near), eval_url=serve(Near), eval_freq=20,
        eval_episodes=4, callback={f"{ME}:Collapse": {"at": 50}}, export=True,
    )  # fmt: skip
    folder = outcome.run.path
    rows = evaluations(folder)
    assert [row.env_steps for row in rows] == [20, 40, 60, 80]
    best = max(rows, key=lambda row: row.mean_return)
    assert best.env_steps < 50
    assert rows[-1].mean_return < best.mean_return - 2
    assert outcome.best == (best.env_steps, best.mean_return)
    assert outcome.evaluation == (rows[-1].mean_return, rows[-1].std_return)
    assert json.loads((folder / "best_model.json").read_text()) == best._asdict()
    model, file = SAC.load(folder / "best_model.zip"), OnnxInference(folder / "best_model.onnx")
    assert model.num_timesteps == best.env_steps
    seen = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
    actions = model.predict(seen, deterministic=True)[0]
    assert -abs(actions - 0.7).mean() * 5 == pytest.approx(best.mean_return, abs=0.3)
    np.testing.assert_allclose(file.run_inference(seen), actions, atol=1e-5)
    events = EventAccumulator(str(folder)).Reload()
    assert [(e.step, pytest.approx(e.value)) for e in events.Scalars("eval/mean_reward")] == [row[:2] for row in rows]
    assert sum("the best so far" in text for text in report.texts) >= 2
    assert "eval/" not in (folder / "progress.csv").read_text()


@pytest.mark.parametrize(
    ("algo", "kind", "more"),
    [
        ("ppo", "discrete", {}),
        *(
            pytest.param(algo, kind, more, marks=pytest.mark.exhaustive)
            for algo, kind, more in (
                ("sac", "box", {}),
                ("a2c", "box", {}),
                ("td3", "box", {}),
                ("dqn", "discrete", {}),
                ("recurrentppo", "box", {}),
                ("maskable_ppo", "masked", {}),
                ("ppo", "box", {"overlap": True}),
                ("sac", "dict", {"frame_stack": 2}),
            )
        ),
    ],
)
def test_evaluation_changes_no_bit_of_the_run(
    tmp_path: Path, serve: Callable[..., str], algo: str, kind: str, more: Any
) -> None:
    """The run without one, the run with one that draws from every generator, and one that is broken off and goes on."""
    common: dict[str, Any] = {"algo": algo, "timesteps": 128, "normalize": True, "callback": f"{ME}:Breaks", **more}

    def make() -> Drift:
        return Drift(kind)

    class Drawing(Drift):
        """Draws from each generator that the run has, in this process."""

        def step(self, action: Any) -> Any:
            np.random.rand(3)
            torch.rand(3)
            Breaks.seen.action_space.sample()
            return super().step(action)

    def draws() -> Drift:
        return Drawing(kind)

    plain = run(tmp_path, "plain", **common, url=serve(make)).run.path
    evaluated = run(
        tmp_path, "evaluated", **common, url=serve(make), eval_url=serve(draws), eval_freq=32, eval_episodes=3
    ).run.path
    assert weights(evaluated, algo) == weights(plain, algo)
    assert statistics(evaluated) == statistics(plain)
    Breaks.at = 75
    options = {**common, "eval_freq": 32, "eval_episodes": 3}
    broken = run(tmp_path, "broken", **options, url=serve(make), eval_url=serve(make))
    assert isinstance(broken.stopped_by, RuntimeError)
    later = [row for row in evaluations(broken.run.path) if row.env_steps >= 64]
    assert later, "the last evaluations are made again"
    resumed = resolve(
        {"run_id": "broken", "log_dir": str(tmp_path), "url": serve(make), "eval_url": serve(make)},
        None,
        base=broken.run.read_config(),
    )
    path = train(resumed, resume=RunDirectory(tmp_path / "broken")).run.path
    assert weights(path, algo) == weights(plain, algo)
    assert evaluations(path) == evaluations(evaluated)
    assert weights(path, algo, "best_model.zip") == weights(evaluated, algo, "best_model.zip")


def test_it_stops_at_a_return(tmp_path: Path, serve: Callable[..., str]) -> None:
    report = Said()
    common: dict[str, Any] = {"timesteps": 6400, "stop_at_return": -100.0}
    outcome = run(tmp_path, "a", report, **common, url=serve(Near), eval_url=serve(Near), eval_freq=64, eval_episodes=2)
    assert (outcome.stopped_by, outcome.env_steps) == (None, 64 + N), "the step after the first evaluation"
    assert sum("it reaches -100: learning ends" in text for text in report.texts) == 1
    assert [row.env_steps for row in evaluations(outcome.run.path)] == [64], "no policy is evaluated twice"
    outcome = run(tmp_path, "b", report, **common, url=serve(Near), eval_episodes=0)
    assert (outcome.stopped_by, outcome.env_steps) == (None, 500), "the hundredth episode of five steps"
    assert "the last 100 episodes have a mean return of" in report.texts[-1]


def test_an_engine_that_is_lost_costs_evaluations_only(tmp_path: Path, serve: Callable[..., str]) -> None:
    engine = run_in_thread(GymnasiumBridge(Near, N))
    report = Said()
    played = 0

    class Ends(Said):
        def said(self, text: str) -> None:
            nonlocal played
            played += "evaluation at" in text
            if played == 2:
                engine.close()

    report = Ends()
    options = {"url": serve(Near), "eval_url": f"{engine.url}?connect-timeout=20s", "eval_freq": 32, "eval_episodes": 2}
    outcome = run(tmp_path, "a", report, timesteps=128, **options)
    assert (outcome.stopped_by, outcome.env_steps) == (None, 128)
    assert [row.env_steps for row in evaluations(outcome.run.path)] == [32, 64]
    assert sum(text.startswith("not evaluated at") for text in report.texts) == 2


def test_films_of_a_running_engine(tmp_path: Path, serve: Callable[..., str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    url = serve(lambda: Near("rgb_array"))
    folder = run(tmp_path, "a", timesteps=192, url=url, video_freq=100, eval_episodes=0).run.path
    (film,) = (folder / "videos").iterdir()
    assert film.name == "step-0000000100.gif"
    with image.open(film) as shown:
        assert shown.size == (12, 8)
        assert shown.n_frames > 10
    with pytest.raises(errors.ConfigurationError, match="sends no pictures") as caught:
        run(tmp_path, "b", timesteps=64, url=serve(Near), video_freq=100)
    assert caught.value.field == "video_freq"


def test_a_run_that_goes_on_keeps_the_trace_of_before(tmp_path: Path, serve: Callable[..., str]) -> None:
    """Also where the settings of the run's config.yaml alone say that there is one."""
    trace, url = tmp_path / "a.trace", serve(Near)
    path = run(tmp_path, "a", timesteps=64, url=url, trace=str(trace)).run.path
    before = trace.read_bytes()
    trace.with_name("a.trace.1").write_bytes(b"older")
    report = Said()
    train(
        resolve({"timesteps": 128}, None, base=RunDirectory(path).read_config()),
        resume=RunDirectory(path),
        report=report,
    )
    assert (tmp_path / "a.trace.before-1").read_bytes() == before
    assert (tmp_path / "a.trace.before-1.1").read_bytes() == b"older"
    assert trace.read_bytes() != before
    assert any("a.trace.before-1" in text for text in report.texts)


def test_options_without_an_engine_of_its_own() -> None:
    assert TrainOptions().evaluated == 20
    assert TrainOptions(url="a").evaluated == 0
    assert TrainOptions(url="a", eval_freq=10).evaluated == 20


class Wide(Near):
    """Shows three numbers."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}


def test_an_engine_for_evaluations_with_other_spaces_is_refused_before_the_first_step(tmp_path: Path) -> None:
    with run_in_thread(GymnasiumBridge(Near, N)) as learns, run_in_thread(GymnasiumBridge(Wide, N)) as plays:
        options = resolve(
            {"url": learns.url, "eval_url": plays.url, "eval_freq": 32, "log_dir": str(tmp_path), "timesteps": 64}, None
        )
        with pytest.raises(errors.ConfigurationError, match="for evaluations is another game") as caught:
            train(options)
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("OBS", "2", "3")
    assert "--eval-url" in str(caught.value.cure)
    assert list(tmp_path.iterdir()) == [], "nothing was learnt"
