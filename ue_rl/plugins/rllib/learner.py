"""RLlib learns: an Algorithm whose env runners play on engines of their own, and its checkpoints.

checkpoints/0007_350000_steps/
    algorithm/          Algorithm.save_to_path: weights, optimizers, counters; Algorithm.from_checkpoint reads it
    replay_buffer.pkl   of SAC and DQN
    model.onnx          where it is exported
    manifest.json       sums, env_steps, episodes, iterations, versions
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import logging
import math
import os
import pickle
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from ray.exceptions import RayError

from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.plugins.rllib.algorithms import algorithm_config, check_actions, lost_ends, num_env_runners, resources
from ue_rl.plugins.rllib.cluster import cluster
from ue_rl.plugins.rllib.engines import SEEDS, register
from ue_rl.plugins.rllib.inbox import Inbox
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError, EngineDisconnected, UeRlError, printable
from ue_rl.system.trust.files import load_pickle, require_trust
from ue_rl.training.comparison import check_spaces, check_unfinished
from ue_rl.training.directory import RunDirectory
from ue_rl.training.engine import NO_TIME_SCALE
from ue_rl.training.learner import Learner
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import TrainingReport
from ue_rl.training.saving.callbacks import LEARNING
from ue_rl.training.saving.checkpoints import OVER, Checkpoint, CheckpointStore
from ue_rl.training.saving.periodic import Periodic
from ue_rl.training.saving.stopping import Stopping
from ue_rl.training.watching import diverged
from ue_rl.training.writing import WriteGuard, sentence

_log = logging.getLogger(__name__)
_SEED = 2**31  # seeds are below: NumPy's and engines'
_FLUSH = 10.0  # seconds in which env runners tell what they have played
_COUNTED = ("num_", "diff_num_", "module_train_batch_size", "weights_seq_no")  # not of learning
_SYNCHRONOUS = ("ppo", "sac", "dqn")  # their env runners wait between two iterations
FOLDER = "algorithm"
REPLAY = "replay_buffer.pkl"


class RllibLearner(Learner):
    """One run of one Algorithm.

    Args:
        resume: go on with what the directory holds, if anything was saved there.
        stack: ends the engines, the Algorithm and Ray.

    Raises:
        ConfigurationError: the algorithm cannot be made or continued for this engine. Also what stops an engine from
            being opened.
    """

    def __init__(
        self, options: TrainOptions, run: RunDirectory, *, resume: bool, report: TrainingReport, stack: ExitStack
    ) -> None:
        super().__init__(options, run, report)
        self._store = run.store(options.keep)
        name = f"ue_rl-{uuid.uuid4().hex}"
        register()
        config = self._config(resume, name)  # what is wrong with it is said before Ray is started
        if text := lost_ends(config):
            _log.warning("%s", text)
            report.warned(text)
        stack.enter_context(cluster(options.ray_address, *resources(options), options.start_timeout))
        self.inbox = stack.enter_context(Inbox(name, report))
        self.algorithm: Any = self._built(config)
        stack.callback(self._stop)
        self._finite = True
        self._tables = WriteGuard("the run's tables", report.warned, Exception)
        self._periodic = Periodic(self._store, options.save_freq, options.save_interval)
        checkpoint = None
        if resume:
            checkpoint = self._restored()
        if checkpoint is None:
            self._first = self.inbox.env_steps = 0
        else:
            self._first = self.inbox.env_steps = checkpoint.env_steps
        connected = self.inbox.connected
        facts = dict(connected[min(connected)].facts)
        facts["engines"] = sum(int(each.facts.get("engines", 1)) for each in connected.values())
        report.connected(self.inbox.num_envs, {key: printable(str(value)) for key, value in facts.items()})
        report.engines(self.inbox)
        if options.time_scale is not None and "TIME_SCALE" not in self._spec.features:  # else said in Ray's logs alone
            _log.info(NO_TIME_SCALE)
            report.said(NO_TIME_SCALE)
        self._logger = self._open(self._first, self._spec)

    def _config(self, resume: bool, name: str) -> Any:
        """The AlgorithmConfig; a resumed run does not play the same episodes once more."""
        o = self.options
        last = None
        if resume:
            last = self._store.last
        done = 0
        if last is not None:
            done = last.env_steps
        check_unfinished(o, done)
        if o.seed is not None:
            o = replace(o, seed=(o.seed + done) % _SEED)
        return algorithm_config(o, self.run.engines, name)

    def _built(self, config: Any) -> Any:
        """The Algorithm, whose env runners are connected to their engines."""
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
        return connected[min(connected)].spec

    @property
    def env_steps(self) -> int:
        """See Learner."""
        return self.inbox.env_steps

    @property
    def restarts(self) -> int:
        """See Learner."""
        return self.inbox.restarts

    def _learn(self, stopping: Stopping) -> None:
        inbox = self.inbox
        self._begun_at = time.monotonic()
        self._periodic.begin(self._first)
        if self._first == 0:
            self._save("the run begins")
        self.episodes.at(self._first)
        inbox.episodes = self.episodes
        try:
            while inbox.env_steps < self.options.timesteps:
                with stopping.interruptible(LEARNING):
                    result = self.algorithm.train()
                self._after(result)
        except BaseException:
            inbox.try_pump()  # what was played until now, as far as it is known
            raise
        finally:
            inbox.stop_counting()

    def _save_rest(self, stopped: BaseException | None) -> Checkpoint | None:
        if self._periodic.last is None or self._periodic.last.env_steps < self.env_steps:
            if stopped is None:
                why = OVER
            else:
                why = sentence(stopped)
            self._save(why)
        return self._periodic.last

    def _after(self, result: Any) -> None:
        """An iteration is over: what was played, the tables, a checkpoint."""
        group = self.algorithm.env_runner_group
        if self.options.algo in _SYNCHRONOUS:
            self._flush()
        self.inbox.pump()
        if num_env_runners(self.options) and not group.num_healthy_remote_workers():
            self._wait_for_runners(group)
        with self._tables:
            self._record(result)
        if self._periodic.due(self.env_steps):
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
                what = f"no env runner has come back within {self.options.start_timeout:g} s"
                cure = "their processes were killed: look for memory (dmesg), and in Ray's logs in /tmp/ray"
                raise EngineDisconnected(what, fault="caller", cure=cure)
            time.sleep(0.2)

    def _record(self, result: Any) -> None:
        """A row of the tables."""
        logger = self._logger
        episodes = self.episodes
        seconds = time.monotonic() - self._begun_at
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
        if self._finite and not self._is_finite_now():
            self._finite = False
            text = diverged({f"train/{name}": loss}, self.inbox.env_steps) or ""
            _log.warning("%s", text)
            self.report.warned(text)

    def _is_finite_now(self) -> bool:
        return is_finite(self.algorithm.learner_group.get_weights())

    def _save(self, reason: str) -> None:
        write = functools.partial(self._write, reason)
        saved = self._periodic.save(self.env_steps, self._is_finite_now, write, reason)
        if saved is not None:
            self._saved(saved)

    def _write(self, reason: str, folder: Path) -> dict[str, object]:
        """The files of a checkpoint, see checkpoints.py."""
        algorithm = self.algorithm
        o = self.options
        algorithm.save_to_path((folder / FOLDER).absolute())
        buffer = algorithm.local_replay_buffer
        if buffer is not None and o.save_replay_buffer:
            with (folder / REPLAY).open("wb") as file:
                pickle.dump(buffer.get_state(), file, protocol=5)
        RunDirectory(folder).write_config(o)
        if o.export:
            self._export_by(functools.partial(self._export, folder / "model.onnx"))
        return {
            "backend": "rllib",
            "algorithm": type(algorithm).__name__,
            "episodes": self.episodes.count,
            "iterations": algorithm.iteration,
            "reason": reason,
        }

    def _export(self, path: Path) -> Any:
        from ue_rl.plugins.rllib.exporting import export_rl_module

        module = self.algorithm.get_module()
        config = self.algorithm.config
        spec = self._spec
        state = self.algorithm.learner_group.get_state("learner/rl_module", inference_only=True)
        module.set_state(state["learner"]["rl_module"]["default_policy"])
        return export_rl_module(
            module,
            path,
            observation_space(spec),
            action_space(spec),
            normalize_actions=config.normalize_actions,
            clip_actions=config.clip_actions,
            algorithm=type(self.algorithm).__name__,
            num_timesteps=self.env_steps,
            spec=spec,
        )

    def _returns(self, episodes: int) -> Sequence[float]:
        o = self.options
        group = self.algorithm.env_runner_group
        runners = num_env_runners(o)
        seed = None
        if o.seed is not None:
            seed = (o.seed + 500_000_000) % _SEED
        group.sync_weights(
            from_worker_or_learner_group=self.algorithm.learner_group, inference_only=True, timeout_seconds=None
        )
        found = group.foreach_env_runner(
            functools.partial(_evaluated, count=episodes, runners=max(1, runners), seed=seed),
            local_env_runner=runners == 0,
        )
        return [each for part in found for each in part]

    def _stop(self) -> None:
        with suppress(RayError):
            self.algorithm.stop()


def _tell_played(runner: Any) -> bool:
    runner.tell_played()
    return True


def _evaluated(runner: Any, count: int, runners: int, seed: int | None) -> list[float]:
    """This runner's part of `count` episodes."""
    number = runner.worker_index
    if not number:
        number = 0
    worker = max(0, number - 1)
    part = (count + worker) // runners
    found: list[float]
    if part:
        own_seed = None
        if seed is not None:
            own_seed = seed + worker * SEEDS
        found = runner.evaluate(part, own_seed)
    else:
        found = []
    return found


def restore(store: CheckpointStore, algorithm: Any) -> Checkpoint | None:
    """Gives `algorithm` what the newest checkpoint that loads holds; None where there is no checkpoint.

    Raises:
        ConfigurationError: it is of another backend or algorithm, or none loads.
    """

    def load(checkpoint: Checkpoint) -> None:
        facts = checkpoint.facts
        name = type(algorithm).__name__
        if facts.get("backend") != "rllib" or facts.get("algorithm") != name:
            raise ConfigurationError(
                f"the checkpoint {checkpoint.path} is of another algorithm",
                field="algo",
                expected=f"{facts.get('algorithm')} of {facts.get('backend', 'sb3')}",
                got=f"{name} of rllib",
                cure="go on with that one, or begin a new run",
            )
        require_trust(f"the pickles of RLlib in {checkpoint.path}", checkpoint.ours)
        algorithm.restore_from_path((checkpoint.path / FOLDER).absolute())
        replay = checkpoint.file(REPLAY)
        if replay is not None and algorithm.local_replay_buffer is not None:
            algorithm.local_replay_buffer.set_state(load_pickle(replay))

    found = store.newest_that_loads(load)
    if found is None:
        return None
    return found[0]


def is_finite(weights: Any) -> bool:
    """Is every number in nested dicts of arrays finite?"""
    return all(np.isfinite(array).all() for array in _arrays(weights) if array.dtype.kind == "f")


def _arrays(weights: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Every array of nested dicts of them; torch tensors, too."""
    if isinstance(weights, dict):
        for value in weights.values():
            yield from _arrays(value)
    else:
        yield np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights)
