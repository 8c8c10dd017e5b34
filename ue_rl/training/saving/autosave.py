"""AutoSave: a callback of Stable-Baselines3 that saves a run, whatever ends it, and resumes it where it was.

    autosave = ue_rl.AutoSave("runs/lander")
    model = autosave.resume(PPO, env) or PPO("MlpPolicy", env, seed=1)
    model.learn(200_000, callback=autosave)

The same script, started again, resumes: 200 000 are the env-steps of the whole run, also where it was stopped before.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import pickle
import secrets
import shutil
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.envs.journal_transport import JournalTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system.durable import write_whole
from ue_rl.training.saving import snapshot
from ue_rl.training.saving.callbacks import CALLS, LEARNING, STEPS, WAITING, guarded, leaves
from ue_rl.training.saving.checkpoints import OVER, Checkpoint, CheckpointStore
from ue_rl.training.saving.lock import RunLock
from ue_rl.training.saving.periodic import Periodic
from ue_rl.training.saving.resuming import FORMAT, REPLAY, STATE, CheckpointPart, Resumed, resume, write_model
from ue_rl.training.saving.stopping import RunStopped, Stopping, as_python_does

CHECKPOINTS = "checkpoints"  # the folder's name

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

_holders: weakref.WeakValueDictionary[Path, AutoSave] = weakref.WeakValueDictionary()  # of locks, in this process

_log = logging.getLogger(__name__)


class AutoSave(BaseCallback):
    """Saves checkpoints into FOLDER/checkpoints, see docs/saving.md for what they hold.

    One is saved when learning begins, every `save_freq` env-steps or `save_interval` seconds, whatever comes first, and
    when it ends: by itself, by SIGINT, SIGTERM or SIGHUP, because the engine or a callback failed, or, at the latest,
    when Python exits. A save that fails is logged, and the run goes on.

    A checkpoint is the run as it was at the last rollout's start, and what the envs have answered since. A run that
    is resumed collects that rollout again, without asking the engine, and goes on with the weights, bit by bit, that
    it would have had: see docs/saving.md for when that holds.

    In a list of callbacks it comes first.

    Args:
        folder: of the run; made where it is not there.
        save_freq: env-steps between two checkpoints; 0: the time alone counts.
        save_interval: seconds between two checkpoints; 0: env-steps alone count.
        keep: how many checkpoints are kept.
        replay_buffer: the newest checkpoint holds the replay buffer of algorithms that have one, as far as it is
            filled. It may be large.
        export: called with (model, path of model.onnx, VecNormalize or None) for each checkpoint, such as
            ue_rl.inference.export_onnx. What it raises is logged.
        parts: name -> what is saved and restored with the model, as NAME.json.
        extra: called with a checkpoint's folder while it is written, for more files in it.
        after: called with each complete Checkpoint.
        signals: stop learning on SIGINT, SIGTERM and SIGHUP, and save on every way out. False: whoever calls learn()
            sees to both, with `rescue`.
        tell: shows a sentence, such as which checkpoint a run goes on from.
        lock: take the run's lock (FOLDER/run.lock), so that no second process writes into it. False: the caller does.
            Another AutoSave of this process that is not learning gives it up, and saves what it has: a cell of a
            notebook may be run again.

    Attributes:
        store: the CheckpointStore.
        resumed: the Checkpoint that `resume` went on from; None for a new run.
        last: the Checkpoint that was saved last by this object; None before.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        save_freq: int = 0,
        save_interval: float = 300.0,
        keep: int = 3,
        replay_buffer: bool = True,
        export: Callable[[BaseAlgorithm, Path, Any], object] | None = None,
        parts: Mapping[str, CheckpointPart] | None = None,
        extra: Callable[[Path], object] | None = None,
        after: Callable[[Checkpoint], object] | None = None,
        signals: bool = True,
        lock: bool = True,
        tell: Callable[[str], object] = print,
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.store = CheckpointStore(self.folder / CHECKPOINTS, keep, newest_only=(REPLAY,))
        self.resumed: Checkpoint | None = None
        self._periodic = Periodic(self.store, save_freq, save_interval)
        self._with_replay_buffer = replay_buffer
        self._export = export
        given_parts = parts or {}
        self._parts = dict(given_parts)
        self._extra = extra
        self._after = after
        self._signals = signals
        if not lock:
            self._lock = None
        else:
            self._lock = RunLock(self.folder)
        self._say = tell
        self._env: UnrealVecEnv | None = None
        self._journal: JournalTransport | None = None  # of that env; those of agents keep none
        self._stops = Stopping(error=as_python_does)
        # While learning: the signals; within that, but for what is saved at the end: being stopped by them.
        self._running = ExitStack()
        self._stoppable = ExitStack()
        self._savers: Sequence[AutoSave] = ()  # of this learn(), while it learns: they are told of its end together
        self._guards = ExitStack()  # of the first of them: the callbacks that tell them
        self._learning_in: int | None = None  # the thread that learns, or has left learn() without a word
        self._process = os.getpid()  # that learns: a forked child saves nothing
        self._to_restore: Resumed | None = None  # until the first rollout of a resumed run
        # As it was at the last rollout's start.
        self._snapshot: snapshot.State = {}
        self._part_states: dict[str, Mapping[str, Any]] = {}
        self._collecting = False  # a rollout is being collected
        self._unsaved = False  # something was learnt since the last checkpoint

    @property
    def last(self) -> Checkpoint | None:
        """See the class."""
        return self._periodic.last

    # -- resuming

    def resume(self, kind: type[Algorithm], env: VecEnv, **load: Any) -> Algorithm | None:
        """The model of the newest checkpoint that loads, to learn on in `env`; None where there is none.

        Also has `env` remember what a later checkpoint needs: it is called before the first reset, in a new run too.
        `learn(total)` goes on to `total` env-steps in all; with `reset_num_timesteps=False` it learns `total` more.
        The model's num_timesteps are those of the rollout's start: files that go on (tables) are cut there.

        Args:
            kind: the algorithm that was saved.
            env: a connected UnrealVecEnv, in wrappers or not. Statistics of a VecNormalize are restored in place; where
                it has none but the checkpoint does, the model's env is wrapped in one.
            load: arguments of `kind.load`, such as device.

        Raises:
            ConfigurationError: the checkpoint is of another algorithm, or of other observations or actions, none of the
                checkpoints loads, or another process holds the run's lock. Also what the engine's failures raise.
        """
        self._take_lock()
        self._watch(env, seed=None)
        self._to_restore = self.resumed = None
        found = resume(self.store, kind, env, load)
        if found is None:
            return None
        self._to_restore = found
        self.resumed = found.checkpoint
        model: Algorithm = found.model
        self._say(f"going on from checkpoint {found.checkpoint}, at {found.checkpoint.env_steps:,} env-steps")
        return model

    def _watch(self, env: VecEnv | None, seed: int | None) -> None:
        """Has the engine's env under `env` keep its journal."""
        if env is None:
            inner = None
        else:
            inner = env.unwrapped
        self._env = None
        self._journal = None
        if isinstance(inner, UnrealVecEnv):
            self._env = inner
            if seed is None:
                journal_seed = secrets.randbits(62)
            else:
                journal_seed = seed
            self._journal = inner.keep_journal(journal_seed)

    def _take_lock(self) -> None:
        if self._lock is None or self._lock.held:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = self.folder.resolve()
        holder = _holders.get(folder)
        if holder is not None and not holder._is_learning_elsewhere():
            holder.rescue()
        self._lock.__enter__()
        _holders[folder] = self

    def _is_learning_elsewhere(self) -> bool:
        thread = self._learning_in
        return thread not in (None, threading.get_ident()) and any(
            each.ident == thread for each in threading.enumerate()
        )

    # -- what Stable-Baselines3 calls

    def _on_training_start(self) -> None:
        if self._learning_in is not None:  # learn() was left by an exception, and is called again
            self._leave()
        self._take_lock()
        self._learning_in, self._process = threading.get_ident(), os.getpid()
        model = self.model
        resumed = self._to_restore
        if resumed is not None and resumed.model is model:
            model.num_timesteps = resumed.steps
            model._num_timesteps_at_start = resumed.steps
        else:
            self._to_restore = None
            self._watch(self.training_env, seed=model.seed)
            if self._journal is not None and model.seed is not None and self.last is None:
                self._journal.seed = model.seed
        self._periodic.begin(model.num_timesteps)
        self._collecting = self._unsaved = False
        if self._signals:
            self._running.enter_context(self._stops)
            try:
                self._stoppable.enter_context(self._stops.interruptible(WAITING))
            except BaseException:
                self._leave()
                raise
            callbacks = [*leaves(self.locals.get("callback", self))]
            savers = [each for each in callbacks if isinstance(each, AutoSave) and each._signals]
            if self in savers:
                self._savers = savers
            else:
                self._savers = [self]
            if self._savers[0] is self:
                rescue = functools.partial(_rescue, self._savers)
                self._guards.enter_context(guarded(callbacks, CALLS, rescue))
                self._guards.enter_context(guarded([] if self._env is None else [self._env], STEPS, rescue))
            atexit.register(self.rescue)

    def _on_rollout_start(self) -> None:
        first = self.last is None
        resumed = self._to_restore
        if resumed is not None:
            resumed.put(self._parts, self._env)
            self._to_restore = None
            first = False
        self._take_snapshot()
        if self._stops.requested is not None and self._signals:
            self._stop()
        self._stops.grace = WAITING
        if first or self._periodic.due(self.model.num_timesteps):
            reason = ""
            if first:
                reason = "the run begins"
            self.save(reason)

    def _on_step(self) -> bool:
        if (
            self._journal is None or not self._journal.replaying
        ):  # a step that is answered from the journal is in a checkpoint
            self._unsaved = True
        if self._stops.requested is not None and self._signals:
            self._stop()
        if self._unsaved and self._periodic.due(self.model.num_timesteps, 2):  # a rollout that is longer than that
            self.save()
        return True

    def _on_rollout_end(self) -> None:
        self._collecting = False
        self._stops.grace = LEARNING

    def _on_training_end(self) -> None:
        self._stoppable.close()  # nothing interrupts what follows
        if self._unsaved:
            self.save(OVER)
        self._leave()
        if self._stops.requested is not None and self._signals:  # came while it was saved
            raise as_python_does(self._stops.requested)

    def _take_snapshot(self) -> None:
        """Takes the state that a checkpoint of this rollout holds."""
        self._snapshot = snapshot.take(self.model)
        self._part_states = {name: part.state() for name, part in self._parts.items()}
        if self._journal is not None:
            self._journal.mark()
        self._collecting = True

    def _stop(self) -> None:
        signal = self._stops.requested
        assert signal is not None
        self.rescue(RunStopped(signal))
        raise as_python_does(signal)

    def _leave(self) -> None:
        """Learning is over, somehow."""
        self._stoppable.close()
        self._running.close()
        self._learning_in = None
        self._collecting = self._unsaved = False
        self._snapshot = {}
        if self._journal is not None:
            self._journal.unmark()
        atexit.unregister(self.rescue)
        if self._lock is not None:
            self._lock.__exit__(None, None, None)
        if all(each._learning_in is None for each in self._savers):
            for each in self._savers:
                each._guards.close()
        self._savers = ()

    # -- saving

    def save(self, reason: str = "") -> Checkpoint | None:
        """Saves a checkpoint now; None where it could not be saved, which is logged. For the thread that learns.

        A policy with weights that are NaN or infinite is not saved: the last good one would have to go for it. Nor does
        a process save that was forked while this one learns: the run is its parent's.
        """
        if os.getpid() != self._process:
            _log.error("not saved: this process was forked from the one that learns, which saves the run")
            return None
        model = self.model
        write = functools.partial(self._write, reason)
        saved = self._periodic.save(model.num_timesteps, functools.partial(snapshot.is_finite, model), write, reason)
        if saved is not None:
            self._unsaved = False
            hook = self._after
            if not hook:
                hook = self._copy_up
            self._tell(hook, saved)
        return saved

    def rescue(self, error: BaseException | None = None) -> Checkpoint | None:
        """learn() was left, by `error`: saves what no checkpoint has yet. Nothing is done twice, nothing is raised."""
        savers = self._savers
        if not savers:
            savers = [self]
        return _rescue(savers, error).get(self)

    def _save_rest(self, error: BaseException | None) -> Checkpoint | None:
        saved = None
        if self._unsaved:
            self._unsaved = False
            try:
                if error is None:
                    reason = ""
                else:
                    reason = f"{type(error).__name__}: {error}"
                saved = self.save(reason)
            except Exception as failure:  # noqa: BLE001 - what is under way must not be hidden by it
                _log.error("not saved: %s: %s", type(failure).__name__, failure)
        if saved is not None:
            # Whoever takes the signals says it, too.
            if self._signals:
                level = logging.WARNING
            else:
                level = logging.INFO
            _log.log(level, "the run is saved up to env-step %d; start it again to go on", saved.env_steps)
        return saved

    def _write(self, reason: str, folder: Path) -> dict[str, object]:
        """The model and its envs as they were at the rollout's start, and as they are now again afterwards."""
        model = self.model
        exact = self._collecting or reason == OVER
        live = snapshot.take(model)
        if not self._collecting:  # an update is under way or done: as it is
            self._take_snapshot()
            self._collecting = False
        try:
            snapshot.put(model, self._snapshot)
            write_model(model, folder, self._with_replay_buffer)
            kept = snapshot.without_model(self._snapshot)
            ahead = snapshot.rows_ahead(live, self._snapshot)
            if self._journal is None:
                journal = None
            else:
                journal = self._journal.state()
            state = {"format": FORMAT, "snapshot": kept, "ahead": ahead, "env": journal}
            (folder / STATE).write_bytes(pickle.dumps(state, pickle.HIGHEST_PROTOCOL))
            for name, part in self._part_states.items():
                (folder / f"{name}.json").write_text(json.dumps(part, indent=2), "utf-8")
            if self._extra is not None:
                self._extra(folder)
            if self._export is not None:
                self._tell(self._export, model, folder / "model.onnx", model.get_vec_normalize_env())
            return {
                "algorithm": type(model).__name__,
                "num_envs": model.n_envs,
                "exact": exact and journal is not None,
                "reason": reason,
                "rollout_start": model.num_timesteps,
            }
        finally:
            snapshot.put(model, live)

    def _tell(self, hook: Callable[..., object], *given: Any) -> None:
        """What a hook raises does not end the run."""
        try:
            hook(*given)
        except Exception as error:  # noqa: BLE001 - anybody's code
            _log.error("%s: %s", type(error).__name__, error)

    def _copy_up(self, checkpoint: Checkpoint) -> None:
        """The newest model lies in the run's folder itself, too."""
        for name in ("model.zip", "vecnormalize.pkl", "model.onnx"):
            source = checkpoint.file(name)
            if source is not None:
                write_whole(self.folder / name, functools.partial(shutil.copyfile, source))


def _rescue(savers: Sequence[AutoSave], error: BaseException | None) -> dict[AutoSave, Checkpoint | None]:
    """What AutoSave.rescue says, for those of one learn(): the journal that they share is kept until all have saved."""
    savers = [each for each in savers if each._process == os.getpid()]
    for each in savers:  # the signals that one of them takes must not break off what another one saves
        each._stoppable.close()
    saved = {each: each._save_rest(error) for each in savers}
    for each in savers:
        each._leave()
    return saved
