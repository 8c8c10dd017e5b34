"""From an algorithm to a checkpoint's files and back: model.zip, vecnormalize.pkl, replay_buffer.pkl, state.pkl"""

from __future__ import annotations

import json
import logging
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

from ue_rl.envs.journal_transport import journal_of
from ue_rl.envs.replay import restore_draws
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.trust.files import load_model, load_pickle
from ue_rl.training.saving import snapshot
from ue_rl.training.saving.checkpoints import Checkpoint, CheckpointStore

MODEL = "model.zip"
NORMALIZE = "vecnormalize.pkl"
REPLAY = "replay_buffer.pkl"
STATE = "state.pkl"
FORMAT = 2  # of state.pkl

_log = logging.getLogger(__name__)
# Attributes of SB3's replay buffers with a row for each step, in the order of the steps; zeros, or {}, before.
_ROWS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts", "ep_start", "ep_length", "infos",
)  # fmt: skip


class CheckpointPart(Protocol):
    """Something beside the model that a checkpoint holds as NAME.json: a curriculum, for instance."""

    def state(self) -> Mapping[str, Any]:
        """What JSON can hold. It is asked at each rollout's start, so it must be quick."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state()` gave."""


@dataclass
class Resumed:
    """A model that was loaded, and what is put into it when its first rollout begins.

    Attributes:
        steps: the model's num_timesteps.
    """

    checkpoint: Checkpoint
    model: Any
    steps: int
    _state: snapshot.State
    _envs: bool  # the envs are where they were
    _draws: Any
    _done: Any  # HER and memory-saving replay buffers: the row that learn() may have changed

    def put(self, parts: Mapping[str, CheckpointPart], env: UnrealVecEnv | None) -> None:
        """At the first rollout's start."""
        if self._done is not None:
            buffer = self.model.replay_buffer
            buffer.dones[(buffer.pos - 1) % buffer.buffer_size] = self._done
        snapshot.put(self.model, self._state, self._envs)
        for name, part in parts.items():
            file = self.checkpoint.file(f"{name}.json")
            if file is not None:
                part.restore(json.loads(file.read_text("utf-8")))
        if env is not None:
            restore_draws(env.transport, self._draws)


def write_model(model: BaseAlgorithm, folder: Path, replay_buffer: bool = True) -> None:
    """Writes the files of the model, of its VecNormalize and, where it has one, of its replay buffer."""
    with (folder / MODEL).open("wb") as file:  # given a path, SB3 leaves it open on a full disk
        model.save(file)
    statistics = model.get_vec_normalize_env()
    if statistics is not None:
        statistics.save(str(folder / NORMALIZE))
    if replay_buffer and isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is not None:
        write_replay_buffer(model.replay_buffer, folder / REPLAY)


def resume(
    store: CheckpointStore,
    kind: Any,
    env: VecEnv,
    load: Mapping[str, Any],
    check: Callable[[Checkpoint, Any, VecEnv], object] | None = None,
) -> Resumed | None:
    """See AutoSave.resume.

    Args:
        check: raises where a checkpoint is not to be loaded, before it is; None: where it is of another algorithm.
    """

    def loaded(checkpoint: Checkpoint) -> tuple[Any, Any]:
        (check or _check)(checkpoint, kind, env)
        # Nothing is trusted as a whole: of each file the bytes that are loaded are compared with the signed manifest.
        return _loaded(checkpoint, kind, env, load)

    found = store.newest_that_loads(loaded)
    if found is None:
        return None
    return _resumed(found[0], *found[1], env)


def _check(checkpoint: Checkpoint, kind: Any, env: VecEnv) -> None:
    algorithm = checkpoint.facts.get("algorithm")
    name = kind.__name__
    if algorithm is not None and algorithm != name:
        what = f"the checkpoint {checkpoint.path} is of another algorithm"
        cure = "go on with that one, or begin a new run in another folder"
        raise ConfigurationError(what, field="algo", expected=algorithm, got=name, cure=cure)
    if checkpoint.file(NORMALIZE) is None and unwrap_vec_normalize(env) is not None:
        _log.warning("checkpoint %s was saved without a VecNormalize: its statistics begin anew", checkpoint)


def _loaded(checkpoint: Checkpoint, kind: Any, env: VecEnv, load: Mapping[str, Any]) -> tuple[Any, Any]:
    statistics = checkpoint.file(NORMALIZE)
    own = unwrap_vec_normalize(env)
    if statistics is not None and own is None:
        _log.warning("the env has no VecNormalize, but checkpoint %s has: its statistics are used", checkpoint)
    elif statistics is not None and own is not None:
        saved = load_pickle(statistics)
        if hasattr(saved, "obs_rms") and hasattr(own, "obs_rms"):
            own.obs_rms = saved.obs_rms
        own.ret_rms = saved.ret_rms
    try:
        if statistics is not None and own is None:
            env = with_statistics(statistics, env)
        model = load_model(kind, checkpoint.path / MODEL, env=env, **load)
    except ValueError as error:
        if "spaces do not match" not in str(error):
            raise
        raise ConfigurationError(
            f"the checkpoint {checkpoint.path} is of another engine",
            got=str(error),
            cure="connect to the engine that it was trained with, or begin a new run in another folder",
        ) from error
    file = checkpoint.file(STATE)
    state = None
    if file is not None:
        state = load_pickle(file)
    if state is not None and state["format"] != FORMAT:
        _log.warning("not exact: checkpoint %s was saved by another version of this library", checkpoint)
        state = None
    replay = checkpoint.file(REPLAY)
    if replay is None and isinstance(model, OffPolicyAlgorithm):
        _log.warning("not exact: checkpoint %s holds no replay buffer, learning goes on with an empty one", checkpoint)
        if state is not None:  # where it was filled up to
            state["snapshot"].pop("buffer", None)
    elif replay is not None and isinstance(model, OffPolicyAlgorithm):
        with warnings.catch_warnings():  # HER's, where the episodes under way are lost
            warnings.filterwarnings("ignore", message="The last trajectory in the replay buffer will be truncated")
            _put_replay_buffer(model, load_pickle(replay), state is None or not _same_envs(state, env))
        buffer: Any = model.replay_buffer
        if buffer.n_envs != env.num_envs:
            raise ConfigurationError(
                f"{kind.__name__} goes on with as many envs as it began with: its replay buffer has a column for each",
                field="num_envs",
                expected=buffer.n_envs,
                got=env.num_envs,
            )
    return model, state


def with_statistics(path: Path, env: VecEnv) -> VecNormalize:
    """`env` in the VecNormalize that was saved as `path`: VecNormalize.load, of a file that may be anybody's.

    Raises:
        ValueError: other observations or actions, as SB3 says it. TypeError: it holds something else.
    """
    normalize = load_pickle(path)
    if not isinstance(normalize, VecNormalize):
        raise TypeError(f"it holds no VecNormalize, but {type(normalize).__name__}")
    if normalize.action_space != env.action_space:  # set_venv compares observations alone, and keeps its own actions
        raise ValueError(f"Action spaces do not match: {normalize.action_space} != {env.action_space}")
    normalize.set_venv(env)
    return normalize


def _put_replay_buffer(model: OffPolicyAlgorithm, buffer: Any, truncate: bool) -> None:
    """OffPolicyAlgorithm.load_replay_buffer, of a buffer that was loaded."""
    if not isinstance(buffer, ReplayBuffer):
        raise TypeError(f"it holds no replay buffer, but {type(buffer).__name__}")
    model.replay_buffer = buffer
    if isinstance(buffer, HerReplayBuffer):
        assert model.env is not None
        buffer.set_env(model.env)
        if truncate:
            buffer.truncate_last_trajectory()
    buffer.device = model.device


def _forget_ends(buffer: HerReplayBuffer, ahead: int) -> None:
    """Episodes that ended while the rollout was collected have not ended yet: rows that are written again."""
    for env, start in enumerate(buffer._current_ep_start.tolist()):
        count = (buffer.pos - start) % buffer.buffer_size + ahead
        buffer.ep_length[(start + np.arange(count)) % buffer.buffer_size, env] = 0


def _same_envs(state: Any, env: VecEnv) -> bool:
    kept = state["env"]
    return kept is not None and journal_of(env.unwrapped) is not None and kept["num_envs"] == env.num_envs


def _resumed(checkpoint: Checkpoint, model: Any, state: Any, env: VecEnv) -> Resumed:
    if state is None:
        _log.warning("checkpoint %s holds no state of another kind than the model: not exact", checkpoint)
        return Resumed(checkpoint, model, model.num_timesteps, snapshot.take(model), False, None, None)
    envs = _same_envs(state, env)
    inner = env.unwrapped
    journal = journal_of(inner)
    if envs and journal is not None and isinstance(inner, UnrealVecEnv):
        journal.resume(state["env"], inner.read)
    else:
        _log.warning("not exact: all envs begin fresh episodes, because they were not kept, or are other ones")
    buffer = getattr(model, "replay_buffer", None)
    if isinstance(buffer, HerReplayBuffer):
        _forget_ends(buffer, state["ahead"])
    done = None
    if buffer is not None:
        done = buffer.dones[(buffer.pos - 1) % buffer.buffer_size].copy()
    given = snapshot.with_model(state["snapshot"], model)
    draws = None
    if envs:
        draws = state["env"]["draws"]
    return Resumed(checkpoint, model, int(given["plain"]["num_timesteps"]), given, envs, draws, done)


def write_replay_buffer(buffer: Any, path: Path) -> None:
    """Writes a pickle that `model.load_replay_buffer` reads: unpickled it is the whole buffer again."""
    with path.open("wb") as file:
        pickle.dump(_Filled(buffer), file, protocol=pickle.HIGHEST_PROTOCOL)


class _Filled:
    """Pickled in the place of a replay buffer."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        buffer = self._buffer
        if hasattr(buffer, "__getstate__"):
            content = buffer.__getstate__()
        else:
            content = vars(buffer)
        state = dict(content)  # HER's leaves env out
        size = buffer.buffer_size
        # With optimize_memory_usage the row at `pos` has the last step's next observation.
        if buffer.full:
            rows = size
        else:
            rows = min(buffer.pos + 1, size)
        own = type(buffer).add.__module__.partition(".")[0] not in ("stable_baselines3", "sb3_contrib", "ue_rl")

        def filled(value: Any) -> Any:
            whole = own and (value.dtype == object or value[rows:].any())  # it may fill them in another order
            if whole:
                return value
            return value[:rows]

        cut = [name for name in _ROWS if name in state and rows < size]
        state.update({name: _each(state[name], filled) for name in cut})
        return _whole, (type(buffer), state, cut, size)


def _whole(kind: type[Any], state: dict[str, Any], cut: list[str], size: int) -> Any:
    def whole(value: Any) -> Any:
        if len(value) == size:
            return value
        if value.dtype == object:
            rest: list[list[dict[str, Any]]] = [[{} for _ in range(value.shape[1])] for _ in range(size - len(value))]
            return np.concatenate([value, np.array(rest, object)])
        rows = np.zeros((size, *value.shape[1:]), value.dtype)  # what is not touched takes no memory
        rows[: len(value)] = value
        return rows

    state.update({name: _each(state[name], whole) for name in cut})
    buffer = object.__new__(kind)
    if hasattr(buffer, "__setstate__"):
        buffer.__setstate__(state)
    else:
        vars(buffer).update(state)
    return buffer


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """An array, or a Dict's part by part."""
    if isinstance(value, dict):
        return {name: change(part) for name, part in value.items()}
    return change(value)
