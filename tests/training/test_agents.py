"""`ue-rl train` with agents: one group learns, others play along, self-play with its pool in the run's directory."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.bridges import VectorAgentsBridge, run_in_thread
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.system import errors
from ue_rl.training import RunDirectory, TrainOptions, train
from ue_rl.training.config import resolve


class More(VectorAgentsBridge):
    """Who does more has won after four steps; the second agent of a group of two is there for two steps only."""

    def __init__(self, groups: dict[str, int], action: ActionSpec | None = None, alone: bool = False) -> None:
        one = EnvSpec(3, 1, action=action)
        features = () if action is None else ("MASK",)
        super().__init__([AgentGroup(name, count, one) for name, count in groups.items()], 4, features)
        self.time, self.sum, self.alone = np.zeros(4, np.int64), np.zeros((4, sum(groups.values()))), alone

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        self.time[env_ids] = 0
        self.sum[env_ids] = 0
        self.states.obs[env_ids] = 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        self.time[env_ids] += 1
        self.sum[env_ids] += np.clip(actions[env_ids, :, 0], -1, 1)
        states, over = self.states, self.time[env_ids] >= 4
        states.obs[env_ids, :, 0] = self.time[env_ids, None] / 4
        won = np.sign(self.sum[env_ids] - self.sum[env_ids][:, ::-1])
        states.rewards[env_ids] = np.where(over[:, None], won, 0)
        states.dones[env_ids] = over[:, None]
        if self.alone:
            states.dones[env_ids, 1] |= self.time[env_ids] >= 2


class Shown(BaseCallback):
    """Shows the model of the last run."""

    of: ClassVar[Any] = None

    def _on_training_start(self) -> None:
        Shown.of = self.model

    def _on_step(self) -> bool:
        return True


SMALL = {"net_arch": [8]}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., TrainOptions]]:
    """Hosts a bridge; options of a short run against it."""
    with ExitStack() as stack:

        def host(bridge: VectorAgentsBridge, **options: Any) -> TrainOptions:
            url = stack.enter_context(run_in_thread(bridge)).url
            given = {
                "timesteps": 128, "run_id": "run", "seed": 0, "device": "cpu", "export": False,
                "hyperparameters": {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "policy_kwargs": SMALL},
            }  # fmt: skip
            return TrainOptions(url=url, log_dir=str(tmp_path), **(given | options))

        yield host


SELF_PLAY = {"save_steps": 32, "swap_steps": 16, "window": 3, "play_against_latest_model_ratio": 0.25}


@pytest.mark.parametrize("groups", [{"one": 2}, {"red": 1, "blue": 1}])
def test_self_play_keeps_pool_games_and_ratings_in_the_run(
    serve: Callable[..., TrainOptions], tmp_path: Path, groups: dict[str, int]
) -> None:
    options = serve(More(groups), self_play=dict(SELF_PLAY))
    train(options)
    pool = json.loads((tmp_path / "run" / "opponents" / "pool.json").read_text())
    assert [past["steps"] for past in pool["policies"]] == [0, 32, 64, 96, 128]
    with (tmp_path / "run" / "self_play.csv").open(newline="") as file:
        games = list(csv.DictReader(file))
    assert len(games) == 128 // 4
    assert "self_play/elo" in (tmp_path / "run" / "progress.csv").read_text().splitlines()[0]
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["self_play"] == SELF_PLAY
    options.timesteps = 192
    train(options, resume=RunDirectory(tmp_path / "run"))
    again = json.loads((tmp_path / "run" / "opponents" / "pool.json").read_text())
    assert [past["steps"] for past in again["policies"]] == [0, 32, 64, 96, 128, 160, 192]
    with (tmp_path / "run" / "self_play.csv").open(newline="") as file:
        assert list(csv.DictReader(file))[: len(games)] == games


def test_an_exported_model_plays_along(serve: Callable[..., TrainOptions], tmp_path: Path) -> None:
    """Of the group that learnt while the other played at random."""
    outcome = train(serve(More({"red": 1, "blue": 1}), group="red", others={"blue": "random"}, export=True))
    assert (outcome.stopped_by, outcome.episodes) == (None, 128 // 4)
    assert outcome.exported is not None
    assert "equal to predict()" in outcome.exported
    options = serve(More({"red": 1, "blue": 1}), group="blue", others={"red": str(tmp_path / "run" / "model.onnx")})
    options.run_id = "second"
    assert train(options).stopped_by is None


@pytest.mark.parametrize("algo", ["ppo", "sac", "maskable_ppo"])
def test_steps_of_agents_that_are_away_are_left_out(serve: Callable[..., TrainOptions], algo: str) -> None:
    action = ActionSpec.discrete(2) if algo == "maskable_ppo" else None
    off_policy = {"learning_starts": 64, "buffer_size": 1000, "policy_kwargs": SMALL}
    more = {"hyperparameters": off_policy} if algo == "sac" else {}
    options = serve(More({"one": 2}, action, alone=True), algo=algo, callback=f"{__name__}:Shown", **more)
    assert train(options).stopped_by is None
    model = Shown.of
    if algo == "sac":
        assert model.replay_buffer.pos == 128 * 6 // 8  # of the two agents' four steps each, two are not there
    else:
        assert len(model.rollout_buffer.actions) == 64 * 6 // 8


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        ({"red": 1, "blue": 1}, {}, "which group learns"),
        ({"red": 1, "blue": 1}, {"group": "red"}, "nobody acts for the agents of this group"),
        ({"red": 1, "blue": 1}, {"group": "red", "others": {"blue": "model.zip"}}, "path of an ONNX file"),
        ({"red": 1, "blue": 1}, {"group": "red", "self_play": {}}, "a side learns, not a group"),
        ({"red": 2}, {"max_episode_steps": 5}, "cut by the engine alone"),
        ({"red": 2}, {"algo": "recurrentppo"}, "cannot leave out"),
        ({"red": 3}, {"self_play": {}}, "two equal sides"),
    ],
)
def test_what_does_not_fit_the_engine_is_named(
    serve: Callable[..., TrainOptions], tmp_path: Path, groups: Any, options: Any, message: str
) -> None:
    with pytest.raises(errors.ConfigurationError, match=message):
        train(serve(More(groups), **options))
    assert not (tmp_path / "run").exists()


def test_agents_options_for_an_engine_without_agents_are_refused(tmp_path: Path, cartpole: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="for an engine with agents"):
        train(TrainOptions(self_play={"window": 3}, log_dir=str(tmp_path), url=cartpole))


def test_wrong_self_play_options_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="Did you mean 'window'"):
        resolve({"self_play": {"windows": 3}}, None)
    with pytest.raises(errors.ConfigurationError, match=r"must be a mapping.*field self_play"):
        resolve({"self_play": 5}, None)
