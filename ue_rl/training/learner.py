"""What happens between a connected engine and the files of a run: model, learning, saving, evaluation, export."""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import time
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger, make_output_format
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ue_rl.engine_calls import EngineCalls
from ue_rl.errors import ConfigurationError, ExportError, UeRlError, printable
from ue_rl.randomize import as_ranges, check_ranges, randomize, shown
from ue_rl.saving.durable import write_whole
from ue_rl.saving.stop_callback import StopCallback
from ue_rl.saving.stopping import Stopping
from ue_rl.training import agents
from ue_rl.training.callbacks import Checkpoints, EngineNumbers, EpisodeLog
from ue_rl.training.curriculum import Curriculum
from ue_rl.training.curves import draw_curves
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import ALGORITHMS, CLASS_NAMES, TrainOptions, tuned_for
from ue_rl.training.report import Outcome, Report
from ue_rl.training.surviving import Surviving, quiet_tensorboard
from ue_rl.training.watching import Watching
from ue_rl.training.writing import Guard
from ue_rl.wire.handshake import encode_handshake

_log = logging.getLogger(__name__)
_ACTION_SPACES: dict[str, type[spaces.Space[Any]]] = {
    **dict.fromkeys(("sac", "td3", "ddpg", "tqc"), spaces.Box),
    **dict.fromkeys(("dqn", "qrdqn"), spaces.Discrete),
}  # where an algorithm does not take any


class Learner:
    """One run of one model.

    Args:
        vec_env: the connected engine; wrapped, but not closed, here.
        resume: go on with the directory's model.

    Attributes:
        begun: True as soon as a step was learnt from.

    Raises:
        ConfigurationError: the model cannot be made or continued for this engine.
        ExportError: the policy could not be exported later.
    """

    def __init__(
        self, options: TrainOptions, run: RunDirectory, vec_env: VecEnv, *, resume: bool, report: Report
    ) -> None:
        self.options, self.run, self.report = options, run, report
        self.begun = False
        self._resume = resume
        self.curriculum = _prepared(options, run, vec_env, resume, report)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the engine takes no seeds")
            self.env = _normalized(options, run, vec_env, resume)
            self.model = _resumed(options, run, self.env) if resume else _new_model(options, self.env)
        logger = _tables(run, options.verbose)
        logger.output_formats = [Surviving(table, report.warned) for table in logger.output_formats]
        self.model.set_logger(logger)
        if options.export:
            self._check_export()
        spec = replace(self.env.unwrapped.engine_spec, shm=None)  # type: ignore[attr-defined]
        write_whole(run.handshake, lambda path: path.write_bytes(encode_handshake(spec)))
        write_whole(run.config, lambda path: path.write_text(options.as_yaml(), "utf-8"))

    def learn(self, stopping: Stopping) -> Outcome:
        """Learns, saves, evaluates, exports.

        Args:
            stopping: who takes the signals; nothing is interrupted but learning and the evaluation.

        Raises:
            BaseException: whatever it is, before the first step. What ends learning later is in the outcome.
        """
        o, run, model = self.options, self.run, self.model
        episodes = EpisodeLog(run.episodes, self.report, o.timesteps)
        watching = Watching(self.report.warned)
        callbacks = [
            StopCallback(stopping), episodes, Checkpoints(o.save_freq, self._checkpoint), EngineNumbers(), watching,
        ]  # fmt: skip
        if self.curriculum is not None:
            callbacks.append(self.curriculum)
        self_play = agents.self_play(o, run.path, self.env)
        callbacks += agents.callbacks(self.env) if self_play is None else [*agents.callbacks(self.env), self_play]
        first, begun_at = model.num_timesteps, time.monotonic()
        stopped: BaseException | None = None
        try:
            with quiet_tensorboard(), stopping.interruptible():
                model.learn(o.timesteps - first, callback=CallbackList(callbacks), reset_num_timesteps=not self._resume)
        except BaseException as error:  # noqa: BLE001 - whatever it is, what was learnt is saved
            stopped = _explained(error, o, model)
            if model.num_timesteps == first:
                raise stopped from (None if stopped is error else error)
        finally:
            self.begun = model.num_timesteps > first
            episodes.close()
            if self_play is not None:
                self_play.close()
            model.logger.close()
        seconds = time.monotonic() - begun_at
        crash = None if stopped is None else self._note(stopped)
        self._save(run.model)
        if isinstance(model, OffPolicyAlgorithm):
            write_whole(run.replay, model.save_replay_buffer)
        with Guard(run.curves, self.report.warned):
            draw_curves(run.episodes, run.curves, f"{o.algo.upper()} on {o.task}")
        return Outcome(
            run, model.num_timesteps, episodes.episodes, seconds, episodes.mean_return, before=first,
            stopped_by=stopped, crash=crash, evaluation=self._evaluate(stopping) if stopped is None else None,
            exported=self._export(run.onnx) if o.export else None,
        )  # fmt: skip

    def _note(self, error: BaseException) -> Path | None:
        """Writes into the log why learning ended; where nobody expected it, the traceback into a file of its own."""
        steps = self.model.num_timesteps
        if isinstance(error, KeyboardInterrupt):
            _log.warning("%s after %d env-steps; saving the model, wait", _sentence(error), steps)
            return None
        _log.error("stopped after %d env-steps: %s", steps, _sentence(error))
        if isinstance(error, UeRlError):
            return None
        path = self.run.path / time.strftime("crash-%Y%m%d-%H%M%S.txt")
        try:
            path.write_text("".join(traceback.format_exception(error)), "utf-8")
        except OSError as failed:
            _log.error("%s could not be written: %s", path, failed)
            return None
        return path

    def _checkpoint(self, name: str) -> None:
        path = self.run.checkpoints / f"{name}.zip"
        self._save(path)
        if self.options.export:
            self._export(path.with_suffix(".onnx"))

    def _save(self, path: Path) -> None:
        """Model and statistics."""
        write_whole(path, self.model.save)
        self.run.remove_replaced()
        stats = self.model.get_vec_normalize_env()
        if self.curriculum is not None and path == self.run.model:  # as old as the model: a run goes on with both
            state = json.dumps(self.curriculum.state(), indent=2)
            write_whole(self.run.curriculum, lambda half: half.write_text(state, "utf-8"))
        if stats is not None:
            target = self.run.normalize if path == self.run.model else path.with_name(f"{path.stem}_vecnormalize.pkl")
            write_whole(target, lambda half: stats.save(str(half)))

    def _check_export(self) -> None:
        from ue_rl.inference import check_exportable

        try:
            check_exportable(self.model, self.model.get_vec_normalize_env())
        except ExportError as error:
            error.cure = f"{error.cure}; or train with --no-export" if error.cure else "train with --no-export"
            raise

    def _export(self, path: Path) -> str:
        from ue_rl.inference import export_onnx

        try:
            report = export_onnx(self.model, path, self.model.get_vec_normalize_env())
        except ExportError as error:
            _log.error("no ONNX file: %s", error)
            return f"not exported: {error}"
        _log.info("exported %s", report)
        largest = f"largest difference {report.max_abs_difference:.1g}"
        if report.reason == "rounding":
            return f"{path} (equal to predict() but for the rounding of float32; {largest})"
        return f"{path} (equal to predict(), {largest})"

    def _evaluate(self, stopping: Stopping) -> tuple[float, float] | None:
        o = self.options
        count = o.eval_episodes if o.eval_episodes is not None else (20 if o.embedded else 0)
        if count < 1:
            return None
        stats = self.model.get_vec_normalize_env()
        if stats is not None:  # what is exported afterwards must be what was trained and saved
            stats.training = stats.norm_reward = False
        if o.seed is not None:
            self.env.seed(o.seed + 1_000_000)
        try:
            with stopping.interruptible():
                returns, _ = _evaluation_of(o.algo)(
                    self.model, self.env, n_eval_episodes=count, deterministic=True, return_episode_rewards=True,
                    warn=False,
                )  # fmt: skip
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the model is learnt, whatever this was
            text = f"not evaluated: {_sentence(error)}; the model is saved"
            _log.error("%s", text, exc_info=None if isinstance(error, (UeRlError, KeyboardInterrupt)) else error)
            self.report.said(text)
            return None
        return float(np.mean(returns)), float(np.std(returns))


def _sentence(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped by Ctrl-C"
    return f"{type(error).__name__}: {printable(str(error))}"


def _explained(error: BaseException, options: TrainOptions, model: BaseAlgorithm) -> BaseException:
    """`error`, or what it means in the words of this project."""
    if options.her is None or not isinstance(error, RuntimeError) or "end of the first episode" not in str(error):
        return error
    return ConfigurationError(
        "HER has no finished episode to learn from yet", field="hyperparameters.learning_starts",
        got=f"{model.num_timesteps} env-steps", cure="raise learning_starts above the first episodes' steps",
    )  # fmt: skip


def _prepared(
    options: TrainOptions, run: RunDirectory, vec_env: VecEnv, resume: bool, report: Report
) -> Curriculum | None:
    """Sets what the options say of the game itself, before its first episode; the curriculum, if there is one.

    Raises:
        UnsupportedByEngine: the engine has no parameters. ConfigurationError: not these. An engine that has no time
            scale is only told of: it changes how long a run takes, not what it learns.
    """
    engine: Any = vec_env.unwrapped
    spec, transport = engine.engine_spec, engine.transport
    ranges = as_ranges(options.params, "params")
    if ranges:
        check_ranges(spec, ranges, "params")
        randomize(transport, ranges, options.seed)
        _log.info("parameters: %s", ", ".join(f"{name} {shown(*value)}" for name, value in ranges.items()))
    if options.time_scale is not None:
        if "TIME_SCALE" in spec.features:
            EngineCalls(transport).set_time_scale(options.time_scale)
        else:
            text = (
                "the engine does not change its speed (no FEATURES=TIME_SCALE in its handshake): time_scale is left out"
            )
            _log.info(text)  # the report shows it
            report.said(text)
    if options.curriculum is None:
        return None
    curriculum = Curriculum(options.curriculum, seed=options.seed, timesteps=options.timesteps, tell=report.said)
    if resume and run.curriculum.exists():
        try:
            curriculum.restore(json.loads(run.curriculum.read_text("utf-8")))
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigurationError(
                f"{run.curriculum} cannot be read", got=str(error), cure="delete it to begin with the first lesson"
            ) from error
    curriculum.attach(vec_env)
    return curriculum


def _normalized(options: TrainOptions, run: RunDirectory, vec_env: VecEnv, resume: bool) -> VecEnv:
    """`vec_env` in the VecNormalize of the model that is continued, or in a new one where that is wanted."""
    saved = [run.normalize] if resume else []
    if options.init_from:
        saved.append(Path(options.init_from).parent / "vecnormalize.pkl")
    for path in saved:
        if path.exists():
            return VecNormalize.load(str(path), vec_env)
    gamma = float(tuned_for(options).get("gamma", 0.99))
    return VecNormalize(vec_env, gamma=gamma) if options.normalize else vec_env


def _resumed(options: TrainOptions, run: RunDirectory, env: VecEnv) -> BaseAlgorithm:
    model = _loaded(options, run.model, env)
    if run.replay.exists() and isinstance(model, OffPolicyAlgorithm):
        with warnings.catch_warnings():  # HER's, of the episode under way: a resumed run begins with new ones
            warnings.filterwarnings("ignore", message="The last trajectory in the replay buffer will be truncated")
            model.load_replay_buffer(run.replay)
    if model.num_timesteps >= options.timesteps:
        raise ConfigurationError(
            "the run has reached its timesteps already", field="timesteps",
            expected=f"more than {model.num_timesteps}", got=options.timesteps, cure="raise --timesteps",
        )  # fmt: skip
    return model


def _new_model(options: TrainOptions, env: VecEnv) -> BaseAlgorithm:
    o = options
    if o.init_from:
        model = _loaded(o, Path(o.init_from), env)
        model.num_timesteps = 0
        return model
    kind = _algorithm(o.algo, env)
    policy = o.policy if o.policy != "auto" else _policy_for(o.algo, env.observation_space)
    arguments = {**agents.buffers(o, env), **tuned_for(o)}
    if o.her is not None:
        arguments |= _hindsight(o.her, env.observation_space)
    try:
        return kind(policy, env, seed=o.seed, device=o.device, verbose=o.verbose, **arguments)  # type: ignore[no-any-return]
    except (TypeError, ValueError, AssertionError, RuntimeError) as error:
        raise ConfigurationError(
            f"{o.algo} does not take these arguments", field="hyperparameters", got=str(error),
            cure=f"see the parameters of {kind.__name__} in the documentation of {ALGORITHMS[o.algo]}",
        ) from error  # fmt: skip


def _loaded(options: TrainOptions, path: Path, env: VecEnv) -> BaseAlgorithm:
    kind = _algorithm(options.algo, env)
    try:
        return kind.load(path, env=env, device=options.device)  # type: ignore[no-any-return]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"{path} cannot be continued with {options.algo} on this engine", got=str(error),
            cure="the algorithm, observation and action sizes must be those it was trained with",
        ) from error  # fmt: skip


def _tables(run: RunDirectory, verbose: int) -> Logger:
    """SB3's table and TensorBoard; each part of a resumed run has a table of its own."""
    suffixes = itertools.chain([""], (f"_{part}" for part in itertools.count(1)))
    suffix = next(suffix for suffix in suffixes if not (run.path / f"progress{suffix}.csv").exists())
    formats = ["csv", "tensorboard"] + (["stdout"] if verbose else [])
    return Logger(str(run.path), [make_output_format(name, str(run.path), suffix) for name in formats])


def _algorithm(name: str, env: VecEnv) -> Any:
    """SB3's class of that name, if it can act in `env`."""
    needed, space = _ACTION_SPACES.get(name), env.action_space
    if needed is not None and not isinstance(space, needed):
        raise ConfigurationError(
            f"{name} needs a {needed.__name__} action space", field="algo", got=f"the engine's {type(space).__name__}",
            cure="use ppo or a2c; for a Box also sac or td3; for a Discrete space (ACT_SPACE=DISCRETE(n)) also dqn",
        )  # fmt: skip
    engine: Any = env.unwrapped
    masked = engine.engine_spec.mask_size > 0
    if name == "maskable_ppo" and not masked:
        raise ConfigurationError(
            "maskable_ppo needs action masks", field="algo",
            expected="FEATURES=MASK in the handshake, and choices in ACT_SPACE",
            got=sorted(engine.engine_spec.features), cure="use ppo, or teach the engine to send MASK",
        )  # fmt: skip
    try:
        module = importlib.import_module(ALGORITHMS[name])
    except ImportError as error:
        raise ConfigurationError(f"{name} needs sb3-contrib", field="algo", cure="pip install sb3-contrib") from error
    return getattr(module, CLASS_NAMES.get(name, name.upper()))


def _policy_for(algo: str, space: spaces.Space[Any]) -> str:
    kind = "Mlp"
    if isinstance(space, spaces.Dict):
        kind = "MultiInput"
    elif isinstance(space, spaces.Tuple):
        raise ConfigurationError(
            "Stable-Baselines3 has no policies for Tuple observations", field="OBS_SPACE", got=space,
            cure="announce a DICT in OBS_SPACE, or train from Python behind a wrapper that flattens it",
        )  # fmt: skip
    elif is_image_space(space):
        kind = "Cnn"
    return f"{kind}LstmPolicy" if algo == "recurrentppo" else f"{kind}Policy"


def _hindsight(her: dict[str, Any], space: spaces.Space[Any]) -> dict[str, Any]:
    """SB3's replay buffer for goals, as arguments of an algorithm."""
    from stable_baselines3 import HerReplayBuffer

    goal = ("observation", "achieved_goal", "desired_goal")
    if not isinstance(space, spaces.Dict) or not set(goal) <= set(space.spaces):
        raise ConfigurationError(
            "HER needs goals in the observation", field="her", expected=f"a DICT with {', '.join(goal)}", got=space
        )
    return {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": dict(her)}


def _evaluation_of(algo: str) -> Any:
    """evaluate_policy, or sb3-contrib's, which gives the policy the masks."""
    if algo == "maskable_ppo":
        from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked

        return evaluate_masked
    return evaluate_policy
