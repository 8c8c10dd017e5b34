"""One run of an RLlib Algorithm in the directory of a run: learning, saving, evaluation, tables."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import logging
import math
import os
import shutil
import time
import uuid
from contextlib import ExitStack, suppress
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.exceptions import RayError

from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.errors import EngineDisconnected, ExportError, SaveFailed, UeRlError, printable
from ue_rl.rllib.algorithms import algorithm_config, check_actions, num_env_runners, resources
from ue_rl.rllib.checkpoints import Saves, is_finite, restore
from ue_rl.rllib.cluster import cluster
from ue_rl.rllib.inbox import Inbox, RunnersFleet
from ue_rl.rllib.log import into_run_log
from ue_rl.rllib.registering import register
from ue_rl.saving.checkpoints import Checkpoint
from ue_rl.saving.stop_callback import LEARNING
from ue_rl.saving.stopping import Stopping
from ue_rl.spec import EnvSpec
from ue_rl.system.durable import write_whole
from ue_rl.training.comparison import check_spaces, check_unfinished
from ue_rl.training.curves import draw_curves
from ue_rl.training.directory import RunDirectory
from ue_rl.training.ending import closed, note, said_of, sentence, writable
from ue_rl.training.episodes import Episodes
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import Outcome, Report
from ue_rl.training.tables import open_tables, quiet_tensorboard
from ue_rl.training.watching import diverged
from ue_rl.training.writing import Guard
from ue_rl.wire.handshake import decode_handshake

_log = logging.getLogger(__name__)
_SEED = 2**31  # seeds are below: NumPy's and engines'
_FLUSH = 10.0  # seconds in which env runners tell what they have played
_COUNTED = ("num_", "diff_num_", "module_train_batch_size", "weights_seq_no")  # not of learning
_SYNCHRONOUS = ("ppo", "sac", "dqn")  # their env runners wait between two iterations


class RllibLearner:
    """One run of one Algorithm.

    Args:
        resume: go on with what the directory holds, if anything was saved there.
        stack: ends the engines, the Algorithm and Ray.

    Attributes:
        begun: True as soon as a step was learnt from.

    Raises:
        ConfigurationError: the algorithm cannot be made or continued for this engine. Also what stops an engine from
            being opened.
    """

    def __init__(
        self, options: TrainOptions, run: RunDirectory, *, resume: bool, report: Report, stack: ExitStack
    ) -> None:
        self.options, self.run, self.report = options, run, report
        self.begun = False
        self._exported: str | None = None
        self._store = run.store(options.keep)
        torch.set_num_threads(options.threads or max(1, (os.cpu_count() or 2) // 2))
        name = f"ue_rl-{uuid.uuid4().hex}"
        register()
        config = self._config(resume, name)  # what is wrong with it is said before Ray is started
        stack.enter_context(cluster(options.ray_address, *resources(options), options.start_timeout))
        into_run_log()
        self.inbox = stack.enter_context(Inbox(name, report))
        self.algorithm: Any = self._built(config)
        stack.callback(self._stop)
        self._finite = True
        self._saves = Saves(
            self._store, options.save_freq, options.save_minutes,
            self._export if options.export else None, self._saved,
            lambda folder: RunDirectory(folder).write_config(options), options.save_replay_buffer,
        )  # fmt: skip
        checkpoint = self._restored() if resume else None
        self._first = 0 if checkpoint is None else checkpoint.env_steps
        connected = self.inbox.connected
        facts = dict(connected[min(connected)].facts)
        facts["engines"] = sum(int(each.facts.get("engines", 1)) for each in connected.values())
        report.connected(self.inbox.num_envs, {key: printable(str(value)) for key, value in facts.items()})
        report.engines(RunnersFleet(self.inbox))
        if options.time_scale is not None and "TIME_SCALE" not in self._spec.features:  # else said in Ray's logs alone
            text = "the engine does not change its speed (no FEATURES=TIME_SCALE): time_scale is left out"
            _log.info(text)
            report.said(text)
        with writable(run):
            self._logger = open_tables(run.path, report.warned, self._first)
            write_whole(run.handshake, lambda path: path.write_bytes(connected[min(connected)].handshake))
            run.write_config(options)
            self.episodes = Episodes(run.episodes, report, options.timesteps)

    def _config(self, resume: bool, name: str) -> Any:
        """The AlgorithmConfig; a resumed run does not play the same episodes once more.

        Raises:
            ConfigurationError: as algorithm_config; or there is nothing left to learn.
        """
        o = self.options
        last = self._store.last if resume else None
        done = 0 if last is None else last.env_steps
        check_unfinished(o, done)
        if o.seed is not None:
            o = replace(o, seed=(o.seed + done) % _SEED)
        return algorithm_config(o, self.run.engines, name)

    def _built(self, config: Any) -> Any:
        """The Algorithm, whose env runners are connected to their engines.

        Raises:
            UeRlError: what an env runner has said, or RLlib.
            ConfigurationError: the algorithm does not learn with the actions of this engine.
        """
        try:
            algorithm = config.build_algo(use_copy=False)
        except UeRlError:
            raise
        except Exception:  # RLlib says something else of it, if anything
            self.inbox.pump()
            if self.inbox.connected:
                check_actions(self.options, action_space(self._spec))
            raise
        with suppress(OSError):  # RLlib makes an empty folder in ~/ray_results
            os.rmdir(algorithm.logdir)
        self.inbox.pump()
        return algorithm

    def _restored(self) -> Checkpoint | None:
        """The checkpoint that the run goes on from; None where nothing was saved yet."""
        check_spaces(self._spec, self.run.handshake)
        found = restore(self._store, self.algorithm)
        if found is None:
            self.report.said("nothing was saved yet: the run begins anew, with its own options")
        else:
            self.report.said(f"going on from checkpoint {found}, at {found.env_steps:,} env-steps")
        return found

    @property
    def _spec(self) -> EnvSpec:
        """Of the engines of one env runner."""
        connected = self.inbox.connected
        return decode_handshake(connected[min(connected)].handshake)

    def learn(self, stopping: Stopping) -> Outcome:
        """Learns, saves, evaluates.

        Args:
            stopping: who takes the signals; nothing is interrupted but learning and the evaluation.

        Raises:
            BaseException: whatever it is, before the first step. What ends learning later is in the outcome.
        """
        o, run, inbox = self.options, self.run, self.inbox
        inbox.env_steps, begun_at = self._first, time.monotonic()
        self._begun_at = begun_at
        self._saves.begin(self._first)
        if self._first == 0:
            self._save("the run begins")
        self.episodes.at(self._first)
        inbox.episodes = self.episodes
        stopped: BaseException | None = None
        try:
            with quiet_tensorboard():
                while inbox.env_steps < o.timesteps:
                    with stopping.interruptible(LEARNING):
                        result = self.algorithm.train()
                    self._after(result)
        except BaseException as error:
            stopped = error
            self._last_news()
            if inbox.env_steps == self._first:
                raise
        finally:
            inbox.stop_counting()
            self.begun = inbox.env_steps > self._first
            closed(self.episodes.close)
            closed(self._logger.close)
        seconds = time.monotonic() - begun_at
        crash = None if stopped is None else note(stopped, run, inbox.env_steps)
        if self._saves.last is None or self._saves.last.env_steps < inbox.env_steps:
            self._save("learning is over" if stopped is None else sentence(stopped))
        saved = self._saves.last
        if stopped is None and (saved is None or saved.env_steps < inbox.env_steps):
            stopped = SaveFailed(
                f"the model of {inbox.env_steps} env-steps could not be saved", cure=f"see {run.log} for the reason"
            )
        if saved is None and run.replaced:
            raise stopped or SaveFailed("nothing could be saved")  # the run that was to be overwritten is kept
        with Guard(run.curves, self.report.warned):
            draw_curves(run.episodes, run.curves, f"{o.algo.upper()} on {o.task}")
        evaluation = self._evaluate(stopping) if stopped is None else None
        newest = saved or self._store.last
        return Outcome(
            run, inbox.env_steps, self.episodes.count, seconds, self.episodes.mean_return, before=self._first,
            stopped_by=stopped, crash=crash, evaluation=evaluation, exported=self._exported,
            saved=None if newest is None else newest.env_steps, restarts=inbox.restarts,
            model=None if newest is None else newest.path,
        )  # fmt: skip

    def _after(self, result: Any) -> None:
        """An iteration is over: what was played, the tables, a checkpoint.

        Raises:
            Exception: an env runner has failed, or none is left.
        """
        group = self.algorithm.env_runner_group
        if self.options.algo in _SYNCHRONOUS:
            self._flush()
        self.inbox.pump()
        if num_env_runners(self.options) and not group.num_healthy_remote_workers():
            self._wait_for_runners(group)
        self._record(result)
        if self._saves.due(self.inbox.env_steps):
            self._save("")

    def _flush(self) -> None:
        """Has the env runners tell all that they have played."""
        for answer in self.algorithm.env_runner_group.foreach_env_runner(_tell_played, timeout_seconds=_FLUSH):
            assert answer  # a Failure raises what it is

    def _wait_for_runners(self, group: Any) -> None:
        """Raises EngineDisconnected where no env runner comes back in time."""
        deadline = time.monotonic() + self.options.start_timeout
        while not group.probe_unhealthy_env_runners():
            if time.monotonic() >= deadline:
                raise EngineDisconnected(
                    f"no env runner has come back within {self.options.start_timeout:g} s", fault="caller",
                    cure="their processes were killed: look for memory (dmesg), and in Ray's logs in /tmp/ray",
                )  # fmt: skip
            time.sleep(0.2)

    def _record(self, result: Any) -> None:
        """A row of the tables."""
        logger, episodes, seconds = self._logger, self.episodes, time.monotonic() - self._begun_at
        if episodes.mean_return is not None:
            logger.record("rollout/ep_rew_mean", episodes.mean_return)
            logger.record("rollout/ep_len_mean", episodes.mean_length)
        losses = result.get("learners", {}).get("default_policy", {})
        for name, value in losses.items():
            if isinstance(value, (Real, np.number)) and not name.startswith(_COUNTED):
                if math.isfinite(value):
                    logger.record(f"train/{name}", float(value))
                elif "loss" in name:
                    self._look_at_weights(name, float(value))
        logger.record("time/iterations", self.algorithm.iteration)
        logger.record("time/fps", int((self.inbox.env_steps - self._first) / max(seconds, 1e-9)))
        logger.record("time/time_elapsed", int(seconds))
        logger.record("time/total_timesteps", self.inbox.env_steps)
        logger.dump(self.inbox.env_steps)

    def _look_at_weights(self, name: str, loss: float) -> None:
        """Warns once, where learning has diverged; RLlib also says NaN of a loss that was not computed."""
        if self._finite and not is_finite(self.algorithm.learner_group.get_weights()):
            self._finite = False
            text = diverged({f"train/{name}": loss}, self.inbox.env_steps) or ""
            _log.warning("%s", text)
            self.report.warned(text)

    def _last_news(self) -> None:
        """What was played until learning ended, as far as it is known."""
        try:
            self.inbox.pump()
        except Exception as error:  # noqa: BLE001 - the cluster is gone, too
            _log.warning("no news of the env runners any more: %s", error)

    def _save(self, reason: str) -> None:
        self._saves.save(self.algorithm, self.inbox.env_steps, self.episodes.count, reason)

    def _saved(self, checkpoint: Checkpoint) -> None:
        """What is shown and played lies in the run's folder itself; the run that this one overwrites had its time."""
        source = checkpoint.file("model.onnx")
        if source is not None:
            write_whole(self.run.onnx, functools.partial(shutil.copyfile, source))
        if checkpoint.env_steps > 0:
            self.run.remove_replaced()

    def _export(self, path: Path) -> None:
        """Writes a checkpoint's ONNX file; the summary speaks of the one in the run's folder."""
        from ue_rl.rllib.exporting import export_rl_module

        module, config, spec = self.algorithm.get_module(), self.algorithm.config, self._spec
        state = self.algorithm.learner_group.get_state("learner/rl_module", inference_only=True)
        module.set_state(state["learner"]["rl_module"]["default_policy"])
        try:
            report = export_rl_module(
                module, path, observation_space(spec), action_space(spec), normalize_actions=config.normalize_actions,
                clip_actions=config.clip_actions, algorithm=type(self.algorithm).__name__,
                num_timesteps=self.inbox.env_steps, spec=spec,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - torch's own; a checkpoint does not need the file
            _log.error("no ONNX file: %s", error, exc_info=None if isinstance(error, ExportError) else error)
            self._exported = f"not exported: {error}"
            return
        self._exported = f"{self.run.onnx} ({said_of(report, 'forward_inference()')})"

    def _evaluate(self, stopping: Stopping) -> tuple[float, float] | None:
        o = self.options
        count = o.eval_episodes if o.eval_episodes is not None else (20 if o.embedded else 0)
        if count < 1:
            return None
        runners = max(1, num_env_runners(o))
        seed = None if o.seed is None else (o.seed + 500_000_000) % _SEED
        group = self.algorithm.env_runner_group
        try:
            with stopping.interruptible():
                group.sync_weights(
                    from_worker_or_learner_group=self.algorithm.learner_group, inference_only=True, timeout_seconds=None
                )
                found = group.foreach_env_runner(
                    functools.partial(_evaluated, count=count, runners=runners, seed=seed),
                    local_env_runner=num_env_runners(o) == 0,
                )
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the model is learnt, whatever this was
            text = f"not evaluated: {sentence(error)}; the model is saved"
            _log.error("%s", text, exc_info=None if isinstance(error, (UeRlError, KeyboardInterrupt)) else error)
            self.report.said(text)
            return None
        returns = [each for part in found for each in part]
        return (float(np.mean(returns)), float(np.std(returns))) if returns else None

    def _stop(self) -> None:
        with suppress(RayError):
            self.algorithm.stop()


def _tell_played(runner: Any) -> bool:
    runner.tell_played()
    return True


def _evaluated(runner: Any, count: int, runners: int, seed: int | None) -> list[float]:
    """This runner's part of `count` episodes."""
    worker = max(0, (runner.worker_index or 0) - 1)
    part = (count + worker) // runners
    found: list[float] = runner.evaluate(part, None if seed is None else seed + worker * 1_000_000) if part else []
    return found
