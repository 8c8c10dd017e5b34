"""What an env of a MuJoCo model observes, is rewarded for and ends with: MujocoTask, and five of Gymnasium's tasks.

    class Balance(MujocoTask):
        frame_skip, max_episode_steps, reset_noise = 2, 1000, 0.01

        def reward(self, before, actions, now):
            return np.abs(now.qpos[:, 1]) <= 0.2

or the same of functions: `MujocoTask(frame_skip=2, reward=lambda before, actions, now: ..)`. Everything but `begin`
works on the arrays of all envs at once. The tasks with Gymnasium's names are its v5 tasks on its own model files:
same numbers, same random draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import ConfigurationError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class PhysicsStates:
    """Fields of MjData as arrays with one row per env.

    Always there: `time` [n], `qpos` [n, nq], `qvel` [n, nv]; beside them what the task's `fields` and `observed` name,
    such as `xpos` [n, nbody, 3] or `sensordata` [n, nsensordata]. As after mj_step, what MuJoCo derives (all but the
    state itself) is that of the beginning of the last substep.
    """

    time: Floats
    qpos: Floats
    qvel: Floats

    def __init__(self, fields: Mapping[str, Floats]) -> None:
        self._fields = dict(fields)
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Floats:
        raise AttributeError(f"no field {name!r} was asked for: name it in the task's `fields`")

    def rows(self, ids: NDArray[np.intp] | None) -> PhysicsStates:
        """A copy of the rows `ids`; None: of all."""
        if ids is None:
            return PhysicsStates({name: array.copy() for name, array in self._fields.items()})
        return PhysicsStates({name: array[ids] for name, array in self._fields.items()})


class MujocoTask:
    """A task; derive from it, or give functions in place of the methods of the same names.

    Attributes:
        file: the model file, for a task that belongs to one.
        frame_skip: substeps of the physics in one step of an env.
        max_episode_steps: then an episode is truncated; None: never.
        reset_noise: `begin` adds uniform noise from -reset_noise to reset_noise to positions and velocities.
        observed: fields that `observe` puts one behind the other.
        fields: more fields of MjData that the methods read.
        model, dt: the mujoco.MjModel, and the seconds of one step; set by `prepare`.
    """

    file: str | None = None
    frame_skip: int = 1
    max_episode_steps: int | None = None
    reset_noise: float = 0.0
    observed: Sequence[str] = ("qpos", "qvel")
    fields: Sequence[str] = ()
    model: Any = None
    dt: float = 0.0

    def __init__(
        self,
        *,
        frame_skip: int | None = None,
        max_episode_steps: int | None = None,
        reset_noise: float | None = None,
        observed: Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        observe: Callable[[PhysicsStates], Floats] | None = None,
        reward: Callable[[PhysicsStates, NDArray[np.float32], PhysicsStates], NDArray[Any]] | None = None,
        terminated: Callable[[PhysicsStates], Bools] | None = None,
        begin: Callable[[np.random.Generator, Floats, Floats], None] | None = None,
    ) -> None:
        given = {
            "frame_skip": frame_skip, "max_episode_steps": max_episode_steps, "reset_noise": reset_noise,
            "observed": observed, "fields": fields, "observe": observe, "reward": reward, "terminated": terminated,
            "begin": begin,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None:
                setattr(self, name, value)

    def prepare(self, model: Any) -> None:
        """Called once with the mujoco.MjModel, before anything else."""
        self.model = model
        self.dt = float(model.opt.timestep * self.frame_skip)

    def begin(self, rng: np.random.Generator, qpos: Floats, qvel: Floats) -> None:
        """Draws the first state of one env, in place.

        Args:
            rng: that env's own. qpos [nq], qvel [nv]: the model's initial state.
        """
        low = -self.reset_noise
        high = self.reset_noise
        qpos += rng.uniform(low, high, len(qpos))
        qvel += rng.uniform(low, high, len(qvel))

    def observe(self, now: PhysicsStates) -> Floats:
        """The observations [n, k]."""
        return np.concatenate([_flat(getattr(now, name)) for name in self.observed], axis=1)

    def reward(self, before: PhysicsStates, actions: NDArray[np.float32], now: PhysicsStates) -> NDArray[Any]:
        """The rewards [n] of a step from `before` to `now`; `actions` float32 [n, nu] as they came."""
        return np.zeros(len(now.time))

    def terminated(self, now: PhysicsStates) -> Bools:
        """Which episodes end here [n]."""
        return np.zeros(len(now.time), np.bool_)


def _flat(array: Floats) -> Floats:
    return array.reshape(len(array), -1)


# -- Gymnasium's tasks, version 5


class HalfCheetah(MujocoTask):
    """HalfCheetah-v5: run forward."""

    file = "half_cheetah.xml"
    frame_skip = 5
    max_episode_steps = 1000
    reset_noise = 0.1

    def begin(self, rng: np.random.Generator, qpos: Floats, qvel: Floats) -> None:
        """Uniform noise on positions, normal on velocities."""
        qpos += rng.uniform(-self.reset_noise, self.reset_noise, len(qpos))
        qvel += self.reset_noise * rng.standard_normal(len(qvel))

    def observe(self, now: PhysicsStates) -> Floats:
        """All but how far it has come."""
        return np.concatenate((now.qpos[:, 1:], now.qvel), axis=1)

    def reward(self, before: PhysicsStates, actions: NDArray[np.float32], now: PhysicsStates) -> NDArray[Any]:
        """Forward velocity less the cost of control."""
        rewards: Floats = (now.qpos[:, 0] - before.qpos[:, 0]) / self.dt - 0.1 * np.square(actions).sum(axis=1)
        return rewards


class Hopper(MujocoTask):
    """Hopper-v5: hop forward without falling."""

    file = "hopper.xml"
    frame_skip = 4
    max_episode_steps = 1000
    reset_noise = 5e-3

    def observe(self, now: PhysicsStates) -> Floats:
        """All but how far it has come; velocities are cut at 10."""
        return np.concatenate((now.qpos[:, 1:], np.clip(now.qvel, -10, 10)), axis=1)

    def reward(self, before: PhysicsStates, actions: NDArray[np.float32], now: PhysicsStates) -> NDArray[Any]:
        """Forward velocity and 1 for standing, less the cost of control."""
        forward = (now.qpos[:, 0] - before.qpos[:, 0]) / self.dt
        rewards: Floats = forward + ~self.terminated(now) - 1e-3 * np.square(actions).sum(axis=1)
        return rewards

    def terminated(self, now: PhysicsStates) -> Bools:
        """Fallen, tilted, or a number is out of hand."""
        height = now.qpos[:, 1]
        angle = now.qpos[:, 2]
        rest = np.concatenate((now.qpos, now.qvel), axis=1)[:, 2:]
        healthy: Bools = (np.abs(rest) < 100).all(axis=1) & (height > 0.7) & (np.abs(angle) < 0.2)
        return ~healthy


class Ant(MujocoTask):
    """Ant-v5 with include_cfrc_ext_in_observation=False and contact_cost_weight=0: walk forward."""

    file = "ant.xml"
    frame_skip = 5
    max_episode_steps = 1000
    reset_noise = 0.1
    fields = ("xpos",)
    begin = HalfCheetah.begin

    def observe(self, now: PhysicsStates) -> Floats:
        """All but where it is."""
        return np.concatenate((now.qpos[:, 2:], now.qvel), axis=1)

    def reward(self, before: PhysicsStates, actions: NDArray[np.float32], now: PhysicsStates) -> NDArray[Any]:
        """The torso's forward velocity and 1 for standing, less the cost of control."""
        forward = (now.xpos[:, 1, 0] - before.xpos[:, 1, 0]) / self.dt
        rewards: Floats = forward + ~self.terminated(now) - 0.5 * np.square(actions).sum(axis=1)
        return rewards

    def terminated(self, now: PhysicsStates) -> Bools:
        """The torso is too low or too high."""
        height = now.qpos[:, 2]
        return ~((height >= 0.2) & (height <= 1.0))


class InvertedPendulum(MujocoTask):
    """InvertedPendulum-v5: keep the pole up."""

    file = "inverted_pendulum.xml"
    frame_skip = 2
    max_episode_steps = 1000
    reset_noise = 0.01

    def reward(self, before: PhysicsStates, actions: NDArray[np.float32], now: PhysicsStates) -> NDArray[Any]:
        """1 while it is up."""
        return ~self.terminated(now)

    def terminated(self, now: PhysicsStates) -> Bools:
        """The pole leans by more than 0.2 rad."""
        return ~(np.abs(now.qpos[:, 1]) <= 0.2)


class Reacher(MujocoTask):
    """Reacher-v5: bring the finger to a target that is drawn anew in each episode."""

    file = "reacher.xml"
    frame_skip = 2
    max_episode_steps = 50
    fields = ("xpos",)

    def prepare(self, model: Any) -> None:
        """Finds the finger and the target."""
        super().prepare(model)
        self._finger, self._target = (model.body(name).id for name in ("fingertip", "target"))

    def begin(self, rng: np.random.Generator, qpos: Floats, qvel: Floats) -> None:
        """A target within 0.2 of the centre."""
        qpos += rng.uniform(-0.1, 0.1, len(qpos))
        while True:
            goal = rng.uniform(-0.2, 0.2, 2)
            if np.linalg.norm(goal) < 0.2:
                break
        qpos[-2:] = goal
        qvel += rng.uniform(-0.005, 0.005, len(qvel))
        qvel[-2:] = 0

    def observe(self, now: PhysicsStates) -> Floats:
        """Cosines and sines of the angles, the target, the angles' velocities, the way to the target."""
        angles = now.qpos[:, :2]
        parts = np.cos(angles), np.sin(angles), now.qpos[:, 2:], now.qvel[:, :2], self._way(now)[:, :2]
        return np.concatenate(parts, axis=1)

    def reward(self, before: PhysicsStates, actions: NDArray[np.float32], now: PhysicsStates) -> NDArray[Any]:
        """Minus the distance, minus the cost of control."""
        rewards: Floats = -np.linalg.norm(self._way(now), axis=1) - np.square(actions).sum(axis=1)
        return rewards

    def _way(self, now: PhysicsStates) -> Floats:
        return now.xpos[:, self._finger] - now.xpos[:, self._target]


TASKS: dict[str, type[MujocoTask]] = {
    task.__name__: task for task in (Ant, HalfCheetah, Hopper, InvertedPendulum, Reacher)
}


def model_file(task: MujocoTask) -> Path:
    """Where the model of one of TASKS is, in the installed Gymnasium, which need not be imported for that.

    Raises:
        ConfigurationError: Gymnasium is not installed, or the task belongs to no file.
    """
    if task.file is None:
        raise ConfigurationError("this task belongs to no model", field="model", got=type(task))
    path = Path(task.file)
    if path.is_absolute():
        return path
    gymnasium = find_spec("gymnasium")
    if gymnasium is None or not gymnasium.submodule_search_locations:
        what = f"the model {task.file} comes with Gymnasium, which is not installed"
        cure = "pip install gymnasium"
        raise ConfigurationError(what, field="model", cure=cure)
    return Path(gymnasium.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / path
