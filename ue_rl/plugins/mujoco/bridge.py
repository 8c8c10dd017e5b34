"""MujocoBridge: MuJoCo as an engine of its own; N envs of one model as arrays (docs/mujoco.md).

bridge = MujocoBridge("HalfCheetah", num_envs=64)                       Gymnasium's task, on its model
bridge = MujocoBridge("arm.xml", MyTask, num_envs=16, parameters={"mass": (0.8, 1.2)})
with run_shm_in_thread(bridge) as engine: ...
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.game import EnvIds
from ue_rl.bridges.hosting import Ranges
from ue_rl.bridges.vector import VectorBridge
from ue_rl.plugins.mujoco.cameras import Cameras, Picture
from ue_rl.plugins.mujoco.commands import SceneCommands
from ue_rl.plugins.mujoco.parameters import PhysicsParameters
from ue_rl.plugins.mujoco.physics import Ids, Physics, load
from ue_rl.plugins.mujoco.tasks import MujocoTask
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.spec import ActionKind, ActionSpec, EnvSpec, EnvType
from ue_rl.system.errors import ConfigurationError

_log = logging.getLogger("ue_rl.bridges")

_STATE = ("qpos", "qvel")  # what the OPTIONS of a reset may give


class MujocoBridge(VectorBridge):
    """N envs of one MuJoCo model behind one bridge.

    Args:
        model: the path of an MJCF file (or .mjb), MJCF as text, a mujoco.MjModel, or the name of one of Gymnasium's
            tasks: Ant, HalfCheetah, Hopper, InvertedPendulum, Reacher, whose model is then Gymnasium's too.
        task: what is observed and rewarded: a MujocoTask or its class. None: that of the name; of a model file one
            that observes qpos and qvel and rewards nothing.
        num_envs: how many.
        env_type: MULTI, SINGLE or RLBASE.
        parameters: what a trainer may set in each env: name -> (low, high); see PhysicsParameters. None: gravity,
            friction, mass and damping.
        picture: (height, width) of pictures: offers RENDER. Cameras are streamed in any case, 240 x 320 where this is
            None. Needs OpenGL: MUJOCO_GL=egl in the environment where there is no screen.
        camera: of RENDER, name or number; None: a free one that sees the whole model.
        threads: that step the envs, this one included; None: as many as there are cores, one for each 16 envs at most.
            Results are the same with any number.

    An action is what the controls get, with the model's ctrlrange. A reset takes a seed and OPTIONS `qpos` and `qvel`,
    the state to begin with. An env whose numbers get out of hand ends its episode with the last good observation,
    reward 0 and info["unstable"]. Over shared memory it answers all commands of docs/commands.md but SET_TIME_SCALE.

    Raises:
        ConfigurationError: no such file, task, parameter or camera; a model that MuJoCo cannot read, or without
            actuators; a task whose arrays have wrong shapes.
    """

    render: Callable[[int], Picture]  # only where `picture` is given: a host asks whether it is there

    def __init__(
        self,
        model: Any,
        task: MujocoTask | type[MujocoTask] | None = None,
        num_envs: int = 1,
        *,
        env_type: EnvType = EnvType.MULTI,
        parameters: Mapping[str, tuple[float, float]] | None = None,
        picture: tuple[int, int] | None = None,
        camera: str | int | None = None,
        threads: int | None = None,
    ) -> None:
        if num_envs < 1:
            raise ConfigurationError("size out of range", field="ENV_COUNT", expected="1 or more", got=num_envs)
        self.model, self.task, self.name = load(model, task)
        self._ranges = parameters
        self._threads = threads
        size = picture
        if not size:
            size = (240, 320)
        self._cameras = Cameras(self, size, camera)
        self._scene = SceneCommands(self)
        self._num = 0  # simulations that were made
        self._make(num_envs)
        features = {"SEED", "TRUNC", "OPTIONS", "INFO"}
        if picture is not None and env_type is not EnvType.RLBASE:
            self.render = self._cameras.render
            features.add("RENDER")
        obs_size = self._try_task()
        limits = np.where(
            self.model.actuator_ctrllimited[:, None] != 0, self.model.actuator_ctrlrange, (-np.inf, np.inf)
        )
        low, high = limits.astype(np.float32).T.tolist()
        action = ActionSpec(ActionKind.BOX, tuple(low), tuple(high))
        super().__init__(
            EnvSpec(obs_size, action.size, env_type, num_envs, action=action, features=frozenset(features))
        )
        self.action_names = self._scene.actuator_names

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure; another number of envs makes all of them anew.

        Raises:
            ConfigurationError: other sizes than those of the model and task.
        """
        if self._spec is not None and (spec.obs_size, spec.act_size) != (self._spec.obs_size, self._spec.act_size):
            raise ConfigurationError(
                "this bridge's sizes are those of its model and task",
                field="OBS, ACT",
                expected=(self._spec.obs_size, self._spec.act_size),
                got=(spec.obs_size, spec.act_size),
            )
        with self.lock:
            if spec.num_envs != self._num:
                self._make(spec.num_envs)
                spec = replace(spec, parameters=())
            super().configure(spec)

    def _make(self, num_envs: int) -> None:
        self._num = num_envs
        self.physics = Physics(self.model, self.task, num_envs, self._threads)
        self._parameters = PhysicsParameters(self.physics.batch, self._ranges)
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]
        self._steps = np.zeros(num_envs, np.int64)
        self._contracts: dict[int, _Contract] = {}
        self._before: dict[tuple[int, str], float] = {}  # the parameters that contracts have changed, as they were
        self._scene.forget()
        self._cameras.forget()

    def _try_task(self) -> int:
        """How many numbers the task observes; it is tried before there is a trainer."""
        n = self._num
        now = self.physics.now
        self.physics.forward(None)
        before = now.rows(None)
        actions = np.zeros((n, self.model.nu), np.float32)
        obs = np.asarray(self.task.observe(now))
        rewards = np.asarray(self.task.reward(before, actions, now))
        over = np.asarray(self.task.terminated(now))
        for field, array, good in (
            ("observe", obs, obs.ndim == 2 and len(obs) == n and obs.size > 0),
            ("reward", rewards, rewards.shape == (n,)),
            ("terminated", over, over.shape == (n,)),
        ):
            if not good:
                raise ConfigurationError(
                    "the task gave an array of a wrong shape",
                    field=field,
                    expected=f"({n}, numbers of an observation)" if array is obs else (n,),
                    got=array.shape,
                    cure="it is given all envs at once: keep the first axis",
                )
        return int(obs.shape[1])

    # -- episodes and steps

    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """See VectorBridge."""
        ids = env_ids.tolist()
        for env, seed in zip(ids, seeds, strict=True):
            contract = self._contracts.get(env)
            if contract is not None and contract.seed is not None:
                self._rngs[env] = np.random.default_rng([contract.seed, env])
                contract.seed = None
            if seed is not None:
                self._rngs[env] = np.random.default_rng(seed)
            if contract is not None:
                for name, value in contract.draw(self._rngs[env]).items():
                    self._before.setdefault((env, name), self._parameters.get(name, env))
                    self._parameters.set(name, value, env)
        self.physics.reset(ids, [self._rngs[env] for env in ids])
        for env, option in zip(ids, options, strict=True):
            if option:
                self._place(env, option)
        self.physics.forward(env_ids)
        self._steps[env_ids] = 0
        self._scene.episode_begins(env_ids)
        self.outbox.obs[env_ids] = self.task.observe(self.physics.now.rows(env_ids))

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorBridge."""
        physics = self.physics
        task = self.task
        out = self.outbox
        ids: Ids
        if len(env_ids) == self._num:
            ids = None
        else:
            ids = env_ids
        rows: Any
        if ids is None:
            rows = slice(None)
        else:
            rows = ids
        given = actions[rows]
        physics.ctrl[rows] = given
        self._scene.hold(physics.ctrl)
        before = physics.now.rows(ids)
        unstable = physics.step(ids)
        if ids is None:
            now = physics.now
        else:
            now = physics.now.rows(ids)
        over = task.terminated(now)
        self._steps[rows] += 1
        if unstable is not None and unstable.any():
            self._stop_unstable(env_ids, unstable, before, given, now)
        else:
            out.obs[rows] = task.observe(now)
            out.rewards[rows] = task.reward(before, given, now)
            out.dones[rows] = over
        if task.max_episode_steps is None:
            out.truncated[rows] = 0
        else:
            out.truncated[rows] = (self._steps[rows] >= task.max_episode_steps) & (out.dones[rows] == 0)
        if self.lockstep.sender is not None:
            self._scene.stream(env_ids)
            self._cameras.stream(env_ids)

    def single_step(self) -> None:
        """One step of the physics of all envs with the controls as they are; the trainer's episodes do not count it."""
        self.physics.step(None)

    def close(self) -> None:
        """Ends the thread that draws."""
        self._cameras.close()

    def session_ends(self) -> None:
        """See Game; what the trainer held, streamed and drew ends with it, and so do its contracts."""
        for (env, name), value in self._before.items():
            self._parameters.set(name, value, env)
        self._contracts.clear()
        self._before.clear()
        self._scene.forget()
        self._cameras.forget()

    def _stop_unstable(
        self, env_ids: EnvIds, unstable: NDArray[np.bool_], before: Any, actions: NDArray[np.float32], now: Any
    ) -> None:
        out = self.outbox
        good = env_ids[~unstable]
        bad = env_ids[unstable]
        out.obs[good] = self.task.observe(now)[~unstable]
        out.rewards[good] = self.task.reward(before, actions, now)[~unstable]
        out.dones[good] = self.task.terminated(now)[~unstable]
        out.rewards[bad] = 0
        out.dones[bad] = 1
        for env in bad.tolist():
            self.write_info(env, {"unstable": True})
        _log.warning("the simulation of env %s got out of hand: its episode ends", ", ".join(map(str, bad.tolist())))

    def _place(self, env: int, option: Mapping[str, Any]) -> None:
        for name, value in option.items():
            if name not in _STATE:
                raise LookupError(f"{name!r} is none of {', '.join(_STATE)}")
            row = getattr(self.physics.now, name)[env]
            numbers = np.asarray(value, np.float64)
            if numbers.shape != row.shape or not np.isfinite(numbers).all():
                raise ValueError(f"{name} has {len(row)} finite numbers")
            row[:] = numbers

    # -- parameters

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """See ListsParameters."""
        return self._parameters.list()

    def get_parameter(self, name: str, env_id: int) -> float:
        """See GetsParameters."""
        return self._parameters.get(name, env_id)

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """See SetsParameters."""
        self._parameters.set(name, value, env_id)

    def begin_contract(
        self, seed: int | None, parameters: Mapping[str, float], randomization: Ranges, env_ids: Sequence[int]
    ) -> None:
        """See BeginsContracts; ranges are drawn from in each reset until the next contract."""
        envs = env_ids
        if not envs:
            envs = range(self.num_envs)
        for env in envs:
            self._contracts[env] = _Contract(seed, dict(parameters), dict(randomization))

    def register_commands(self, dispatcher: Dispatcher) -> None:
        """See BaseBridge."""
        self._scene.register(dispatcher)
        self._cameras.register(dispatcher)


class _Contract:
    """What the next resets of an env begin with."""

    def __init__(self, seed: int | None, parameters: dict[str, float], ranges: dict[str, tuple[float, float]]) -> None:
        self.seed = seed
        self.parameters = parameters
        self.ranges = ranges

    def draw(self, rng: np.random.Generator) -> dict[str, float]:
        """The parameters of the episode that begins."""
        drawn = {name: float(rng.uniform(low, high)) for name, (low, high) in self.ranges.items()}
        fixed = self.parameters
        self.parameters = {}
        return {**fixed, **drawn}
