"""SelfPlay: a callback that lets a model learn against its own past.

    env = GroupVecEnv(SidesTransport(transport))
    PPO("MlpPolicy", env).learn(200_000, callback=SelfPlay(env, Path("runs/tug"), SelfPlayOptions(save_steps=10_000)))

The options have ML-Agents' names. A game is won by whose last reward was positive, lost where it was negative, else
drawn (of a side with several agents: the sum of their last rewards), as in ML-Agents.
"""

from __future__ import annotations

import csv
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.envs.agents.players import NormalizedPolicy
from ue_rl.envs.agents.pool import Past, Pool
from ue_rl.envs.agents.selfplay_options import SelfPlayOptions
from ue_rl.envs.agents.sides import Match, SidesTransport, names_of
from ue_rl.envs.agents.vec_env import GroupVecEnv
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.seeds import own_stream

LATEST = "latest"
_log = logging.getLogger(__name__)


class SelfPlay(BaseCallback):
    """See the module's docstring.

    Writes the pool into `folder`/opponents (see Pool) and every game into `folder`/self_play.csv; logs
    self_play/elo, opponent_elo, win_rate (of the last 100 games against the pool) and pool. A folder of an earlier run
    is gone on with.

    Args:
        env: a GroupVecEnv over a SidesTransport, without its wrappers.
        folder: of the run.
        seed: for drawing opponents.

    Attributes:
        pool: past policies and ratings.

    Raises:
        ConfigurationError: the env has no sides; the pool cannot be read.
    """

    def __init__(
        self, env: GroupVecEnv, folder: Path, options: SelfPlayOptions | None = None, seed: int | None = None
    ) -> None:
        super().__init__()
        if not isinstance(env.transport, SidesTransport):
            what = "self-play needs an env with sides"
            cure = "make it with GroupVecEnv(SidesTransport(transport))"
            raise ConfigurationError(what, field="env", got=type(env.transport).__name__, cure=cure)
        self._transport = env.transport
        self._folder = folder
        self.options = options or SelfPlayOptions()
        self.pool = Pool(folder / "opponents", self.options.initial_elo)
        self._rng = np.random.default_rng(own_stream(seed, "opponents"))
        self._results: deque[float] = deque(maxlen=100)
        self._told = False
        self._against: Past | None = None

    def _on_training_start(self) -> None:
        seen = self.model.observation_space
        if seen != self._transport_space():
            what = "the learner sees other observations than the opponents would"
            expected = f"{self._transport_space()}, in VecNormalize or VecMonitor, or in none"
            raise ConfigurationError(what, field="env", got=str(seen), expected=expected)
        self._file = (self._folder / "self_play.csv").open("a", buffering=1, newline="")
        self._writer = csv.writer(self._file)
        if not self._file.tell():
            self._writer.writerow(["env_steps", "side", "opponent", "result", "elo", "opponent_elo"])
        options = self.options
        self._every = {
            self._save: options.save_steps, self._swap_sides: options.team_change or 5 * options.save_steps,
            self._draw: options.swap_steps,
        }  # fmt: skip
        self._done = {task: self.num_timesteps // every for task, every in self._every.items()}
        if not self.pool.policies:
            self._save()
        self._draw(now=True)

    def _on_step(self) -> bool:
        for game in self._transport.finished_games():
            self._count(game)
        for task, every in self._every.items():
            due = self.num_timesteps // every
            if due > self._done[task]:
                self._done[task] = due
                task()
        return True

    def _on_rollout_end(self) -> None:
        self.logger.record("self_play/elo", self.pool.elo)
        self.logger.record("self_play/pool", len(self.pool.policies))
        if self._against is not None:
            self.logger.record("self_play/opponent_elo", self._against.elo)
        if self._results:
            self.logger.record("self_play/win_rate", float(np.mean(self._results)))

    def _on_training_end(self) -> None:
        self.close()

    def close(self) -> None:
        """Writes the pool's ratings and closes the file of games; also after an exception."""
        self._try(self.pool.save)
        if hasattr(self, "_file"):
            self._try(self._file.close)

    # -- what happens every so many steps

    def _save(self) -> None:
        if self.pool.policies:
            self._try(lambda: self.pool.add(self.num_timesteps, self.model))
        else:  # without any there is nobody to play against
            self.pool.add(self.num_timesteps, self.model)

    def _swap_sides(self) -> None:
        self._transport.swap_sides()

    def _draw(self, now: bool = False) -> None:
        self._try(self.pool.save)
        recent = self.pool.policies[-self.options.window :]
        self.pool.keep_loaded({past.name for past in recent} | set(self._transport.opponent_of))
        if self._rng.random() < self.options.play_against_latest_model_ratio:
            self._against = None
            self._transport.play_against(LATEST, self._present(), now)
        else:
            self._against = recent[int(self._rng.integers(len(recent)))]
            policy = self.pool.policy(self._against, type(self.model.policy))
            self._transport.play_against(self._against.name, policy, now)

    # -- helpers

    def _count(self, game: Match) -> None:
        result = 0.5 + 0.5 * float(np.sign(game.reward))
        past = next((past for past in self.pool.policies if past.name == game.opponent), None)
        if past is not None:  # a game against oneself says nothing of one's strength
            self.pool.rate(past, result)
            self._results.append(result)
        side = names_of(self._transport.engine_spec, self._transport.sides[game.side])
        elo = round(self.pool.elo, 2), round(self.pool.elo if past is None else past.elo, 2)
        self._try(lambda: self._writer.writerow([self.num_timesteps, side, game.opponent, result, *elo]))

    def _try(self, write: Callable[[], object]) -> None:
        """A disk that is full costs a row, a rating or an opponent, and not the run."""
        try:
            write()
        except OSError as error:
            if not self._told:
                self._told = True
                _log.warning("self-play cannot be written: %s; learning goes on without what does not fit", error)

    def _present(self) -> Any:
        """The model's policy as it is at any time, for raw observations."""
        statistics = self.model.get_vec_normalize_env()
        if statistics is None:
            return self.model.policy
        return NormalizedPolicy(self.model.policy, statistics)

    def _transport_space(self) -> Any:
        from ue_rl.envs.spaces import observation_space

        return observation_space(self._transport.spec)
