"""What a run learns from beside its own rewards: --bc, --prefill, --gail and --rnd (ue_rl/training/demonstrations)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.checks import check_teaching
from ue_rl.training.demonstrations.cloning import clone
from ue_rl.training.demonstrations.dataset import Demonstrations, read
from ue_rl.training.demonstrations.prefill import prefill
from ue_rl.training.demonstrations.rewards import Gail, LearntRewards, Rnd
from ue_rl.training.options import TrainOptions


class Teaching:
    """The demonstrations that a run names, read before an engine is started.

    Args:
        resumed: the model has cloned already, and its replay buffer is that of its checkpoint.

    Attributes:
        files: option -> what it names.

    Raises:
        ConfigurationError: options that do not go together, or a file that holds no demonstrations.
    """

    def __init__(self, options: TrainOptions, resumed: bool) -> None:
        self._options = o = options
        check_teaching(o)
        names = [name for name in ("bc", "prefill", "gail") if getattr(o, name) and (name == "gail" or not resumed)]
        read_once = {path: read(path, name) for name in names for path in [getattr(o, name)]}
        self.files: dict[str, Demonstrations] = {name: read_once[getattr(o, name)] for name in names}

    def fit(self, env: VecEnv) -> dict[str, LearntRewards]:
        """Makes the demonstrations those of `env`; what learns rewards, by name.

        Raises:
            ConfigurationError: they are of another game, or the engine has agents or acts itself.
        """
        engine: Any = env.unwrapped
        if "DEMO" in engine.engine_spec.features:
            what = "the engine acts itself and follows no policy"
            cure = "start the game without its demo mode; to record it: ue-rl demos record FOLDER"
            raise ConfigurationError(what, field="FEATURES", expected="no DEMO", got="DEMO", cure=cure)
        o = self._options
        for name in ("gail", "rnd"):
            if getattr(o, name) and engine.engine_spec.groups:
                raise ConfigurationError(f"--{name} does not go with agents", field=name, got="AGENTS in the handshake")
        self.files = {name: found.of(env.observation_space, env.action_space) for name, found in self.files.items()}
        rewards: dict[str, LearntRewards] = {}
        if o.gail:
            rewards["gail"] = Gail(self.files["gail"])
        if o.rnd:
            rewards["rnd"] = Rnd(o.rnd)
        return rewards

    def teach(self, model: BaseAlgorithm, folder: Path, tell: Callable[[str], object]) -> None:
        """Before the first step of a new model: fills its replay buffer, clones. `folder`: the run's."""
        if "prefill" in self.files:
            taken: Any = model
            tell(f"{prefill(taken, self.files['prefill']):,} steps of demonstrations are in the replay buffer")
        if "bc" in self.files:
            found = clone(model, self.files["bc"], folder / "cloning.csv", seed=self._options.seed, tell=tell)
            tell(
                f"cloned {found.steps:,} steps in {found.epochs} epochs; loss of {found.held_out} held-out episodes "
                f"{found.first:.4g} before, {found.last:.4g} after epoch {found.best}"
            )
