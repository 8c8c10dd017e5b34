"""AutoSave: a callback of Stable-Baselines3 that keeps a run, whatever ends it, and goes on from where it was.

    autosave = ue_rl.AutoSave("runs/lander")
    model = autosave.resume(PPO, env) or PPO("MlpPolicy", env, seed=1)
    model.learn(200_000, callback=autosave)

The same script, started again, goes on: 200 000 are the env-steps of the whole run, also where it was stopped before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)


class Part(Protocol):
    """Something beside the model that a checkpoint holds as NAME.json: a curriculum, for instance."""

    def state(self) -> Mapping[str, Any]:
        """What JSON can hold. It is asked at each rollout's start, so it must be quick."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state()` gave."""
        ...


class AutoSave(BaseCallback):
    """Saves checkpoints into FOLDER/checkpoints, see docs/saving.md for what they hold.

    One is saved when learning begins, every `save_freq` env-steps or `save_minutes`, whatever comes first, and when it
    ends: by itself, by SIGINT, SIGTERM or SIGHUP, because the engine failed, or, at the latest, when Python exits. A
    save that fails is logged, and the run goes on.

    A checkpoint is the run as it was at the last rollout's start, and what the envs have answered since. A run that
    is resumed collects that rollout again, without asking the engine, and goes on with the weights, bit by bit, that
    it would have had: see docs/saving.md for when that holds.

    In a list of callbacks it comes first.

    Args:
        folder: of the run; made where it is not there.
        save_freq: env-steps between two checkpoints.
        save_minutes: minutes between two checkpoints.
        keep: how many checkpoints are kept.
        replay_buffer: checkpoints hold the replay buffer of algorithms that have one. It may be large.
        export: called with (model, path of model.onnx, VecNormalize or None) for each checkpoint, such as
            ue_rl.inference.export_onnx. What it raises is logged.
        parts: name -> what is saved and restored with the model, as NAME.json.
        extra: called with a checkpoint's folder while it is written, for more files in it.
        after: called with each complete Checkpoint.
        signals: stop learning on SIGINT, SIGTERM and SIGHUP, and save on every way out. False: whoever calls learn()
            sees to both, with `rescue`.
        lock: take the run's lock (FOLDER/run.lock), so that no second process writes into it. False: the caller does.

    Attributes:
        store: the CheckpointStore.
        resumed: the Checkpoint that `resume` went on from; None for a new run.
        last: the Checkpoint that was saved last by this object; None before.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        save_freq: int = 50_000,
        save_minutes: float = 5.0,
        keep: int = 3,
        replay_buffer: bool = True,
        export: Callable[[BaseAlgorithm, Path, Any], object] | None = None,
        parts: Mapping[str, Part] | None = None,
        extra: Callable[[Path], object] | None = None,
        after: Callable[[Any], object] | None = None,
        signals: bool = True,
        lock: bool = True,
    ) -> None:
        super().__init__()

    def resume(self, kind: type[Algorithm], env: VecEnv, **load: Any) -> Algorithm | None:
        """The model of the newest checkpoint that loads, to go on learning in `env`; None where there is none.

        Also has `env` remember what a later checkpoint needs: it is called before the first reset, in a new run too.
        `learn(total)` goes on to `total` env-steps in all; with `reset_num_timesteps=False` it learns `total` more.
        The model's num_timesteps are those of the rollout's start: files that go on (tables) are cut there.

        Args:
            kind: the algorithm that was saved.
            env: a connected UnrealVecEnv, in wrappers or not. Statistics of a VecNormalize are restored in place; where
                it has none but the checkpoint does, the model's env is wrapped in one.
            load: arguments of `kind.load`, such as device.

        Raises:
            ConfigurationError: the checkpoint is of another algorithm, or of other observations or actions, or another
                process holds the run's lock.
        """
        raise NotImplementedError

    def save(self, reason: str = "") -> Any | None:
        """Saves a checkpoint now; None where it could not be saved, which is logged. For the thread that learns."""
        raise NotImplementedError

    def rescue(self, error: BaseException | None = None) -> Any | None:
        """learn() was left, by `error`: saves what no checkpoint has yet. Nothing is done twice, nothing is raised."""
        raise NotImplementedError
