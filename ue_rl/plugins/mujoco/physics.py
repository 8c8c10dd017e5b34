"""N simulations of one MuJoCo model as arrays: mujoco.batch under the names that MujocoBridge needs.

Each simulation is stepped as mj_step steps one MjData, so results are those of a loop, bit for bit, whatever the number
of threads. mujoco.rollout begins each call without the solver's last solution, so its results are not those of a loop.
A step of 64 HalfCheetahs, one thread of each: 2.3 ms here, 2.6 in mujoco.rollout; 6.5 in two Python threads, which take
turns at the interpreter's lock; 3.8 in a Python loop.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.mujoco.library import batch, mj
from ue_rl.plugins.mujoco.tasks import TASKS, Floats, MujocoTask, PhysicsStates, model_file
from ue_rl.system.errors import ConfigurationError

_log = logging.getLogger("ue_rl.bridges")

Ids = NDArray[np.intp] | None  # which envs, ascending; None: all
_ENVS_PER_THREAD = 16  # fewer are stepped before a second thread has woken
_NO_STAGE = int(mj.mjtStage.mjSTAGE_NONE)
_STATE = frozenset({"time", "qpos", "qvel", "act", "ctrl"})  # what mujoco.batch keeps for each simulation anyway
_KEPT_OUTSIDE_OF_THE_STATE = int(mj.mjtEnableBit.mjENBL_SLEEP) | int(mj.mjtEnableBit.mjENBL_IPC)
_UNSTABLE = [int(getattr(mj.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC", "CTRL")]
assert max(_UNSTABLE) - min(_UNSTABLE) == 3, "MuJoCo's warnings of bad numbers stand side by side"


def load(model: Any, task: MujocoTask | type[MujocoTask] | None) -> tuple[Any, MujocoTask, str]:
    """The mj.MjModel, the task, and a name for both.

    Args:
        model: see MujocoBridge. task: an instance or a class; None: that of `model`, or one without rewards.

    Raises:
        ConfigurationError: no such file or task, or MuJoCo cannot read the model.
    """
    if not isinstance(task, type):
        made = task
    else:
        made = task()
    if made is not None and not isinstance(made, MujocoTask):
        what = "the task is no MujocoTask"
        cure = "derive its class from ue_rl.plugins.mujoco.MujocoTask"
        raise ConfigurationError(what, field="task", got=type(made).__name__, cure=cure)
    if isinstance(model, str) and model in TASKS:
        if made is None:
            made = TASKS[model]()
        path: Any = model_file(TASKS[model]())
    else:
        path = model
    if isinstance(path, mj.MjModel):
        return path, made or MujocoTask(), "model"
    text = str(path)
    try:
        if text.lstrip().startswith("<"):
            loaded = _compiled(mj.MjSpec.from_string, text)
            name = "model"
        elif Path(text).is_file():
            binary = text.endswith(".mjb")
            if binary:
                loaded = mj.MjModel.from_binary_path(text)
            else:
                loaded = _compiled(mj.MjSpec.from_file, text)
            name = Path(text).stem
        else:
            raise ConfigurationError(
                "there is no such model",
                field="model",
                got=text,
                expected=f"the path of an MJCF file, or one of {', '.join(TASKS)}",
            )
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError("MuJoCo cannot read the model", field="model", got=str(error)) from error
    if not loaded.nu:
        raise ConfigurationError(
            "the model has no actuators: there is nothing to act with", field="model", got=text[:80]
        )
    return loaded, made or MujocoTask(), name


def _compiled(read: Callable[[str], Any], text: str) -> Any:
    """MuJoCo's warnings go to our log; MjModel.from_xml_path writes them into a file in the current folder."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = read(text).compile()
    for warning in caught:
        _log.info("MuJoCo: %s", warning.message)
    return model


class Physics:
    """N simulations.

    Args:
        model: a mujoco.MjModel. task: prepared here. num_envs: simulations. threads: None: as many as there are cores,
            and one for each 16 envs at most.

    Attributes:
        batch: the mujoco.batch.Batch. ctrl: float64 [n, nu], live. now: States of all envs, live.
    """

    def __init__(self, model: Any, task: MujocoTask, num_envs: int, threads: int | None) -> None:
        self.model = model
        self.task = task
        if threads is None:
            threads = max(1, min(_cores(), num_envs // _ENVS_PER_THREAD))
        task.prepare(model)
        names = dict.fromkeys(("time", "qpos", "qvel", *task.observed, *task.fields))
        self.batch = batch.Batch(model, num_envs, threads, _needs_own_data(model, names))
        self.ctrl: Floats = self.batch.bind("ctrl")
        self._unstable = self.batch.warning[:, min(_UNSTABLE) : max(_UNSTABLE) + 1, 1]  # a view: counts, live
        try:
            self.now = PhysicsStates({name: self.batch.bind(name) for name in names})
        except ValueError as error:
            raise ConfigurationError(
                "the task asks for a field that cannot be observed",
                field="observed, fields",
                expected="array fields of mujoco.MjData",
                got=str(error),
            ) from error

    def reset(self, ids: Sequence[int], rngs: Sequence[np.random.Generator]) -> None:
        """New episodes: the initial state, changed by the task's `begin` with each env's own generator."""
        rows = np.asarray(ids)
        self.batch.reset(rows, stage=_NO_STAGE)
        self.batch.warning[rows] = 0
        for env, rng in zip(ids, rngs, strict=True):
            self.task.begin(rng, self.now.qpos[env], self.now.qvel[env])

    def forward(self, ids: Ids) -> None:
        """Derives everything from the state, without a step; after `reset`, and whatever else was written."""
        self.batch.forward(ids)

    def step(self, ids: Ids) -> NDArray[np.bool_] | None:
        """`frame_skip` substeps with the controls in `ctrl`.

        Returns:
            bool [n]: those whose numbers got out of hand; MuJoCo has put them back to the initial state. None: none,
            as a rule, and then this costs a microsecond; one small env's step is only some twenty.
        """
        self.batch.step(ids, nstep=self.task.frame_skip)
        if not np.count_nonzero(self._unstable):
            return None
        rows = slice(None) if ids is None else ids
        unstable: NDArray[np.bool_] = self._unstable[rows].any(axis=1)
        self.batch.warning[rows] = 0
        return unstable

    def simulation(self, env_id: int) -> tuple[Any, Any]:
        """(MjModel, MjData) of one env, with everything derived: for whoever asks about it between two steps."""
        model = self.batch.get_model(env_id)
        data = self.batch.get_data(env_id)
        mj.mj_forward(model, data)
        return model, data


def _needs_own_data(model: Any, names: Iterable[str]) -> bool:
    """Must each simulation have an MjData of its own (persistent=True)?

    Else all of them take turns in one MjData for each thread, which is a few percent faster. What a step does not
    compute, such as subtree_linvel between two readings of a sensor with an interval, is then another simulation's.
    MuJoCo refuses sleep and IPC there.
    """
    derived = any(name not in _STATE for name in names)
    by_interval = bool(np.any(model.sensor_interval))
    return derived or by_interval or bool(model.opt.enableflags & _KEPT_OUTSIDE_OF_THE_STATE)


def _cores() -> int:
    # not before Python 3.13
    count = getattr(os, "process_cpu_count", os.cpu_count)()
    if not count:
        count = 1
    if sys.platform == "linux":
        return min(count, len(os.sched_getaffinity(0)))
    return count
