"""One training run: engine, model, learning, and everything that is kept of it. No command-line parsing here."""

from __future__ import annotations

import logging
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ue_rl.errors import ConfigurationError, ExportError, UeRlError
from ue_rl.training.callbacks import Checkpoints, EpisodeLog, ProgressBar
from ue_rl.training.curves import draw_curves
from ue_rl.training.directory import RunDirectory
from ue_rl.training.engine import open_engine
from ue_rl.training.options import ALGORITHMS, CLASS_NAMES, DEFAULT_ENV, TrainOptions, tuned_for

_log = logging.getLogger("ue_rl.cli.train")
_CONTINUOUS_ONLY = ("sac", "td3", "ddpg", "tqc")
_DISCRETE_ONLY = ("dqn", "qrdqn")


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        mean_return: of the last 100 training episodes, None without any.
        evaluation: (mean, standard deviation) without exploration, None where it was not evaluated.
        stopped_by: None when it ran to its end; KeyboardInterrupt or what broke it otherwise.
    """

    env_steps: int
    episodes: int
    seconds: float
    mean_return: float | None
    evaluation: tuple[float, float] | None = None
    exported: str | None = None
    stopped_by: BaseException | None = None


class Training:
    """One run in one directory.

    Args:
        options: resolved options.
        run: its directory.
        resume: go on with the directory's model.
        console: where progress is shown.
    """

    def __init__(self, options: TrainOptions, run: RunDirectory, *, resume: bool, console: Console) -> None:
        self.options, self.run, self.resume, self.console = options, run, resume, console

    def __call__(self) -> Outcome:
        """Trains.

        Raises:
            UeRlError: nothing could be started. What breaks a running training is in the outcome, with the model saved.
        """
        o = self.options
        # Small networks learn no faster on several threads, and the engine needs a core too.
        torch.set_num_threads(o.threads or max(1, (os.cpu_count() or 2) // 2))
        handler = logging.FileHandler(self.run.log, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("ue_rl")
        logger.addHandler(handler)
        level, logger.level = logger.level, logging.INFO
        try:
            with open_engine(
                env=(o.env or DEFAULT_ENV) if o.embedded else None, num_envs=o.num_envs, env_kwargs=o.env_kwargs,
                host=o.host, port=o.port, max_episode_steps=o.max_episode_steps, transport=o.transport,
                channel=o.channel, timeout=o.timeout, wait=o.wait,
            ) as vec_env:  # fmt: skip
                facts = ", ".join(f"{k} {v}" for k, v in vec_env.transport.describe().items())
                self.console.print(f"{vec_env.num_envs} envs: {facts}")
                _log.info("engine: %s", facts)
                return self._run(vec_env)
        except UeRlError as error:
            _log.error("%s: %s", type(error).__name__, error)
            raise
        finally:
            logger.level = level
            logger.removeHandler(handler)
            handler.close()

    def _run(self, vec_env: Any) -> Outcome:
        o, run = self.options, self.run
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the engine takes no seeds")
            env = self._wrapped(vec_env)
            model = self._model(env)
        model.set_logger(self._sb3_logger())
        if o.export:
            self._check_export(model)
        run.config.write_text(o.as_yaml(), "utf-8")
        episodes = EpisodeLog(run)
        progress = ProgressBar(self.console, o.timesteps, episodes)
        checkpoints = Checkpoints(o.save_freq, lambda name: self._checkpoint(model, name))
        begun = time.monotonic()
        stopped: BaseException | None = None
        try:
            model.learn(
                o.timesteps - model.num_timesteps if self.resume else o.timesteps,
                callback=CallbackList([episodes, progress, checkpoints]),
                reset_num_timesteps=not self.resume,
            )
        except (KeyboardInterrupt, UeRlError) as error:
            stopped = error
            _log.error("stopped after %d env-steps: %s %s", model.num_timesteps, type(error).__name__, error)
        finally:
            progress.close()
            episodes.close()
        outcome = Outcome(
            model.num_timesteps, episodes.episodes, time.monotonic() - begun, episodes.mean_return, stopped_by=stopped
        )
        self._save(model, run.model)
        if isinstance(model, OffPolicyAlgorithm):
            model.save_replay_buffer(run.replay)
        draw_curves(run.episodes, run.curves, f"{o.algo.upper()} on {o.task}")
        if stopped is None:
            outcome.evaluation = self._evaluate(model, env)
        if o.export:
            outcome.exported = self._export(model, run.onnx)
        return outcome

    def _wrapped(self, vec_env: VecEnv) -> VecEnv:
        saved = self.run.normalize
        if self.resume and saved.exists():
            return VecNormalize.load(str(saved), vec_env)
        if self.options.init_from:
            beside = Path(self.options.init_from).parent / "vecnormalize.pkl"
            if beside.exists():
                return VecNormalize.load(str(beside), vec_env)
        gamma = float(tuned_for(self.options).get("gamma", 0.99))
        return VecNormalize(vec_env, gamma=gamma) if self.options.normalize else vec_env

    def _model(self, env: VecEnv) -> BaseAlgorithm:
        o = self.options
        kind = _algorithm(o.algo)
        check_action_space(o.algo, env.action_space)
        if self.resume or o.init_from:
            path = self.run.model if self.resume else Path(str(o.init_from))
            try:
                model: BaseAlgorithm = kind.load(path, env=env, device=o.device)
            except (OSError, ValueError, KeyError) as error:
                raise ConfigurationError(
                    f"{path} cannot be continued with {o.algo} on this engine", fault="caller", got=str(error),
                    cure="the algorithm, observation and action sizes must be those it was trained with",
                ) from error  # fmt: skip
            if self.resume and self.run.replay.exists() and isinstance(model, OffPolicyAlgorithm):
                model.load_replay_buffer(self.run.replay)
            if self.resume and model.num_timesteps >= o.timesteps:
                raise ConfigurationError(
                    "the run has reached its timesteps already", fault="caller", field="timesteps",
                    expected=f"more than {model.num_timesteps}", got=o.timesteps, cure="raise --timesteps",
                )  # fmt: skip
            return model
        policy = o.policy if o.policy != "auto" else _policy_for(o.algo, env.observation_space)
        try:
            return kind(policy, env, seed=o.seed, device=o.device, verbose=o.verbose, **tuned_for(o))  # type: ignore[no-any-return]
        except (TypeError, ValueError, AssertionError) as error:
            raise ConfigurationError(
                f"{o.algo} does not take these arguments", fault="caller", field="hyperparameters", got=str(error),
                cure=f"see the parameters of {kind.__name__} in the documentation of {ALGORITHMS[o.algo]}",
            ) from error  # fmt: skip

    def _sb3_logger(self) -> Any:
        parts = len(list(self.run.path.glob("progress*.csv")))
        suffix = f"_{parts}" if parts else ""
        formats = ["csv", "tensorboard"] + (["stdout"] if self.options.verbose else [])
        folder = self.run.path
        logger = configure(str(folder), formats)
        if suffix:  # a resumed run must not overwrite the first part's table
            logger.close()
            from stable_baselines3.common.logger import Logger, make_output_format

            logger = Logger(str(folder), [make_output_format(name, str(folder), suffix) for name in formats])
        return logger

    def _checkpoint(self, model: BaseAlgorithm, name: str) -> None:
        path = self.run.checkpoints / f"{name}.zip"
        self._save(model, path)
        if self.options.export:
            self._export(model, path.with_suffix(".onnx"))

    def _save(self, model: BaseAlgorithm, path: Path) -> None:
        """Model and statistics, written beside and renamed: a crash leaves the last good pair."""
        half = path.with_name(f"half-{path.name}")
        model.save(half)
        os.replace(half, path)
        stats = model.get_vec_normalize_env()
        if stats is not None:
            target = self.run.normalize if path == self.run.model else path.with_name(f"{path.stem}_vecnormalize.pkl")
            half = target.with_name(f"half-{target.name}")
            stats.save(str(half))
            os.replace(half, target)

    def _check_export(self, model: BaseAlgorithm) -> None:
        from ue_rl.inference import check_exportable

        try:
            check_exportable(model, model.get_vec_normalize_env())
        except ExportError as error:
            error.cure = f"{error.cure + '; or t' if error.cure else 't'}rain with --no-export"
            raise

    def _export(self, model: BaseAlgorithm, path: Path) -> str:
        from ue_rl.inference import export_onnx

        try:
            report = export_onnx(model, path, model.get_vec_normalize_env())
        except ExportError as error:
            _log.error("no ONNX file: %s", error)
            return f"not exported: {error}"
        _log.info("exported %s, largest difference %g", path, report.max_abs_difference)
        return f"{path} (differs from predict() by at most {report.max_abs_difference:.1g})"

    def _evaluate(self, model: BaseAlgorithm, env: VecEnv) -> tuple[float, float] | None:
        o = self.options
        count = o.eval_episodes if o.eval_episodes is not None else (20 if o.embedded else 0)
        if count < 1:
            return None
        stats = model.get_vec_normalize_env()
        if stats is not None:
            stats.training = stats.norm_reward = False
        if o.seed is not None:
            env.seed(o.seed + 1_000_000)
        try:
            returns, _ = evaluate_policy(
                model, env, n_eval_episodes=count, deterministic=True, return_episode_rewards=True, warn=False
            )
        except UeRlError as error:
            _log.error("not evaluated: %s", error)
            return None
        return float(np.mean(returns)), float(np.std(returns))


def _algorithm(name: str) -> Any:
    import importlib

    try:
        module = importlib.import_module(ALGORITHMS[name])
    except ImportError as error:
        raise ConfigurationError(
            f"{name} needs sb3-contrib", fault="caller", field="algo", cure="pip install sb3-contrib"
        ) from error
    return getattr(module, CLASS_NAMES.get(name, name.upper()))


def check_action_space(algo: str, space: spaces.Space[Any]) -> None:
    """Raises ConfigurationError where the algorithm cannot act in the space."""
    name = type(space).__name__
    if algo in _CONTINUOUS_ONLY and not isinstance(space, spaces.Box):
        raise ConfigurationError(
            f"{algo} needs a Box action space", fault="caller", field="algo", got=f"the engine's {name}",
            cure="use ppo, a2c, or dqn for a Discrete one",
        )  # fmt: skip
    if algo in _DISCRETE_ONLY and not isinstance(space, spaces.Discrete):
        raise ConfigurationError(
            f"{algo} needs a Discrete action space", fault="caller", field="algo", got=f"the engine's {name}",
            cure="use ppo, a2c, sac or td3; or let the engine say ACT_SPACE=DISCRETE(n)",
        )  # fmt: skip


def _policy_for(algo: str, space: spaces.Space[Any]) -> str:
    kind = "MlpPolicy"
    if isinstance(space, spaces.Dict):
        kind = "MultiInputPolicy"
    elif isinstance(space, spaces.Box) and len(space.shape) == 3:
        kind = "CnnPolicy"
    if algo == "recurrentppo":
        return {"MultiInputPolicy": "MultiInputLstmPolicy", "CnnPolicy": "CnnLstmPolicy"}.get(kind, "MlpLstmPolicy")
    return kind
