"""Joints, telemetry and the scene of a MujocoBridge, for a trainer over shared memory (docs/commands.md)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.calls import check_env
from ue_rl.plugins.mujoco.library import mj
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.envelope import Command, Method, messages, text
from ue_rl.system.errors import ConfigurationError, RingFull

if TYPE_CHECKING:
    from ue_rl.plugins.mujoco.bridge import MujocoBridge

_log = logging.getLogger("ue_rl.bridges")

_HINGE, _SLIDE, _FREE = (int(getattr(mj.mjtJoint, f"mjJNT_{kind}")) for kind in ("HINGE", "SLIDE", "FREE"))
_OF_JOINTS = (int(mj.mjtTrn.mjTRN_JOINT), int(mj.mjtTrn.mjTRN_JOINTINPARENT))
_XBODY = int(mj.mjtObj.mjOBJ_XBODY)


class Clock:
    """When the next message of a stream is due, in each env's own time.

    Args:
        num_envs: how many. rate: messages per second of the simulation; 0: one in each step.
    """

    def __init__(self, num_envs: int, rate: float) -> None:
        if rate > 0:
            self._period = 1 / rate
        else:
            self._period = 0.0
        self._last = np.full(num_envs, -np.inf)

    def due(self, ids: NDArray[np.intp], time: NDArray[np.float64]) -> NDArray[np.intp]:
        """Those of `ids` whose message is due; `time` [num_envs]."""
        passed = time[ids] - self._last[ids]
        now: NDArray[np.intp] = ids[
            (passed >= self._period * (1 - 1e-9)) | (passed < 0)
        ]  # before the last one: a new episode
        self._last[now] = time[now]
        return now


def checked_rate(rate: float) -> float:
    """`rate`; raises ConfigurationError: negative or not finite."""
    if not 0 <= rate < np.inf:
        raise ConfigurationError(
            "a rate is finite and not negative; 0 is one message in each step", field="rate_hz", got=rate
        )
    return rate


class SceneCommands:
    """Handlers of the joint, telemetry and scene commands.

    Args:
        bridge: whose; its `physics` may be made anew.

    Attributes:
        actuator_names: of each number of an action.
    """

    def __init__(self, bridge: MujocoBridge) -> None:
        self._bridge = bridge
        model = bridge.model
        self._joints = {
            _name(model.joint(j), "joint", j): j for j in range(model.njnt) if model.jnt_type[j] in (_HINGE, _SLIDE)
        }
        self._bodies = [_name(model.body(b), "body", b) for b in range(model.nbody)]
        self.actuator_names = [self._actuator_name(a) for a in range(model.nu)]
        self._channels = self._all_channels()
        self.forget()

    def forget(self) -> None:
        """Nothing is held and nothing streamed any more."""
        self._held: NDArray[np.float64] | None = None  # [n, nu], NaN where the action holds
        self._streamed: list[str] = []
        self._clock = Clock(1, 0)

    def register(self, dispatcher: Dispatcher) -> None:
        """Sets the handlers."""
        for method, handler in (
            (Method.JOINT_STATE, self.joint_state),
            (Method.JOINT_CONTROL, self.joint_control),
            (Method.GET_TELEMETRY_SCHEMA, self.telemetry_schema),
            (Method.TELEMETRY_STREAM, self.telemetry_stream),
            (Method.GET_SCENE_INFO, self.scene_info),
            (Method.LIST_ENTITIES, self.list_entities),
            (Method.GET_ENTITY, self.get_entity),
            (Method.SET_ENTITY, self.set_entity),
            (Method.SET_SIMULATION_MODE, self.set_mode),
        ):
            dispatcher.register(method, handler)

    # -- joints

    def joint_state(self, payload: Any, command: Command) -> Any:
        """Hinges and slides of one env: positions, velocities, and the actuators' forces."""
        env = check_env(self._bridge.num_envs, int(payload.envId))
        names = [text(name) for name in payload.names or ()] or list(self._joints)
        joints = [self._joint(name) for name in names]
        model, data = self._bridge.physics.simulation(env)
        at = model.jnt_qposadr[joints]
        dof = model.jnt_dofadr[joints]
        return messages().JointStateT(
            names=names, positions=data.qpos[at], velocities=data.qvel[dof], efforts=data.qfrc_actuator[dof], envId=env
        )

    def joint_control(self, payload: Any, command: Command) -> None:
        """Holds controls in place of the action's numbers until the env's next reset; without names: lets go."""
        env = int(payload.envId)
        rows = slice(None) if env == -1 else check_env(self._bridge.num_envs, env)
        names = [text(name) for name in payload.names or ()]
        given_targets = []
        if payload.targets is not None:
            given_targets = payload.targets
        targets = np.array(given_targets, np.float64)
        if len(names) != len(targets) or not np.isfinite(targets).all():
            raise ConfigurationError(
                "there is one finite target for each name", field="targets", expected=len(names), got=targets.tolist()
            )
        columns = [self._actuators(name) for name in names]
        if self._held is None:
            self._held = np.full((self._bridge.num_envs, self._bridge.model.nu), np.nan)
        if not names:
            self._held[rows] = np.nan
        for column, target in zip(columns, targets, strict=True):
            self._held[rows, column] = target

    def hold(self, ctrl: NDArray[np.float64]) -> None:
        """Puts what is held into `ctrl` [n, nu]."""
        if self._held is not None:
            np.copyto(ctrl, self._held, where=~np.isnan(self._held))

    def episode_begins(self, ids: NDArray[np.intp]) -> None:
        """Lets go of the controls of `ids`."""
        if self._held is not None:
            self._held[ids] = np.nan

    def _joint(self, name: str) -> int:
        if name not in self._joints:
            raise ConfigurationError(
                "the model has no such hinge or slide", field="names", expected=list(self._joints), got=name
            )
        return self._joints[name]

    def _actuators(self, name: str) -> list[int]:
        """Those of a joint, or the one of this name."""
        if name in self.actuator_names:
            return [self.actuator_names.index(name)]
        model = self._bridge.model
        joint = self._joint(name)
        found = [
            a
            for a in range(model.nu)
            if model.actuator_trntype[a] in _OF_JOINTS and model.actuator_trnid[a, 0] == joint
        ]
        if not found:
            raise ConfigurationError("nothing drives this joint", field="names", got=name)
        return found

    def _actuator_name(self, actuator: int) -> str:
        model = self._bridge.model
        if model.actuator_trntype[actuator] in _OF_JOINTS:
            joint = model.actuator_trnid[actuator, 0]
        else:
            joint = -1
        fallback = ""
        if joint >= 0:
            fallback = _name(model.joint(joint), "joint", joint)
        name = model.actuator(actuator).name or fallback
        if not name:
            name = f"actuator_{actuator}"
        return str(name)

    # -- telemetry

    def telemetry_schema(self, payload: Any, command: Command) -> Any:
        """All channels: `time`, positions and velocities of joints, numbers of sensors."""
        return messages().TelemetrySchemaT(
            channels=list(self._channels), units=[unit for unit, _, _ in self._channels.values()]
        )

    def telemetry_stream(self, payload: Any, command: Command) -> None:
        """From now on a frame of each env that is stepped, `rate_hz` times in a second of its own time."""
        channels = [text(name) for name in payload.channels or ()] or list(self._channels)
        for name in channels:
            if name not in self._channels:
                raise ConfigurationError(
                    "there is no such channel", field="channels", expected=list(self._channels), got=name
                )
        self._clock = Clock(self._bridge.num_envs, checked_rate(payload.rateHz))
        if payload.enabled:
            self._streamed = channels
        else:
            self._streamed = []

    def stream(self, ids: NDArray[np.intp]) -> None:
        """Sends what is due; called after each step of `ids`."""
        if not self._streamed:
            return
        batch = self._bridge.physics.batch
        time = batch.bind("time")
        due = self._clock.due(ids, time)
        if not len(due):
            return
        columns = [self._channels[name][1:] for name in self._streamed]
        values = np.stack([batch.bind(field).reshape(len(time), -1)[due, k] for field, k in columns], axis=1)
        for env, row in zip(due.tolist(), values.astype(np.float32), strict=True):
            frame = messages().TelemetryFrameT(time=float(time[env]), values=row, envId=env)
            if not send_or_drop(self._bridge, Method.TELEMETRY_FRAME, frame):
                return

    def _all_channels(self) -> dict[str, tuple[str, str, int]]:
        """Name -> (unit, field of MjData, number in its row)."""
        model = self._bridge.model
        found = {"time": ("s", "time", 0)}
        for kind, field, starts, per in (
            ("position", "qpos", model.jnt_qposadr, ""),
            ("velocity", "qvel", model.jnt_dofadr, "/s"),
        ):
            count = "nv"
            if field == "qpos":
                count = "nq"
            ends = [*starts[1:], getattr(model, count)]
            for j, (start, end) in enumerate(zip(starts, ends, strict=True)):
                name = f"{kind}/{_name(model.joint(j), 'joint', j)}"
                unit = {_HINGE: f"rad{per}", _SLIDE: f"m{per}"}.get(int(model.jnt_type[j]), "")
                for k in range(end - start):
                    found[name if end - start == 1 else f"{name}[{k}]"] = unit, field, int(start) + k
        for s in range(model.nsensor):
            size = int(model.sensor_dim[s])
            start = int(model.sensor_adr[s])
            name = f"sensor/{_name(model.sensor(s), 'sensor', s)}"
            for k in range(size):
                found[name if size == 1 else f"{name}[{k}]"] = "", "sensordata", start + k
        return found

    # -- the scene

    def scene_info(self, payload: Any, command: Command) -> Any:
        """Bodies of all envs, and the time of env 0."""
        count = (len(self._bodies) - 1) * self._bridge.num_envs
        now = float(self._bridge.physics.now.time[0])
        return messages().SceneInfoT(name=self._bridge.name, entityCount=count, time=now)

    def list_entities(self, payload: Any, command: Command) -> Any:
        """Bodies, named `ENV/BODY`."""
        wanted = text(payload.nameContains)
        bodies = range(1, len(self._bodies))
        found = []
        for env in range(self._bridge.num_envs):
            chosen = [body for body in bodies if wanted in f"{env}/{self._bodies[body]}"]
            if chosen:
                found += self._entities(env, chosen)
            else:
                found += []
        return messages().EntitiesT(entities=found)

    def get_entity(self, payload: Any, command: Command) -> Any:
        """One body."""
        env, body = self._find(payload.id)
        return self._entities(env, [body])[0]

    def set_entity(self, payload: Any, command: Command) -> None:
        """Moves a body that is joined to nothing; what is left out stays."""
        entity = payload.entity
        if entity is None:
            raise ConfigurationError("an entity is missing", field="entity")
        env, body = self._find(entity.id)
        model = self._bridge.model
        now = self._bridge.physics.now
        joint = int(model.body_jntadr[body])
        if joint < 0 or model.jnt_type[joint] != _FREE:
            raise ConfigurationError(
                "only a body with a free joint can be moved", field="entity", got=f"{env}/{self._bodies[body]}"
            )
        qpos = now.qpos[env, model.jnt_qposadr[joint] :][:7].copy()
        qvel = now.qvel[env, model.jnt_dofadr[joint] :][:6].copy()
        if entity.position is not None:
            qpos[:3] = _three(entity.position)
        if entity.rotation is not None:
            q = entity.rotation
            qpos[3:] = _unit((q.w, q.x, q.y, q.z))
        if entity.linearVelocity is not None:
            qvel[:3] = _three(entity.linearVelocity)
        if entity.angularVelocity is not None:  # MuJoCo keeps it in the body's own frame
            back = np.empty(4)
            mj.mju_negQuat(back, qpos[3:])
            mj.mju_rotVecQuat(qvel[3:], np.array(_three(entity.angularVelocity)), back)
        if not (np.isfinite(qpos).all() and np.isfinite(qvel).all()):
            raise ConfigurationError("an entity's numbers must be finite", field="entity")
        now.qpos[env, model.jnt_qposadr[joint] :][:7] = qpos
        now.qvel[env, model.jnt_dofadr[joint] :][:6] = qvel
        self._bridge.physics.forward(np.array([env]))

    def set_mode(self, payload: Any, command: Command) -> None:
        """SingleStep steps all envs once. The physics moves only when it is asked to, so the others change nothing."""
        if payload.mode == messages().Mode.SingleStep:
            self._bridge.single_step()

    def _find(self, entity: int) -> tuple[int, int]:
        """(env, body) of an id."""
        env, body = divmod(int(entity), len(self._bodies))
        if not 0 <= env < self._bridge.num_envs or body == 0:
            raise ConfigurationError(
                "there is no such entity",
                field="id",
                got=entity,
                expected=f"env * {len(self._bodies)} + body, as LIST_ENTITIES says",
            )
        return env, body

    def _entities(self, env: int, bodies: Sequence[int]) -> list[Any]:
        m = messages()
        found = []
        velocity = np.empty(6)
        model, data = self._bridge.physics.simulation(env)
        for body in bodies:
            mj.mj_objectVelocity(model, data, _XBODY, body, velocity, 0)
            w, x, y, z = data.xquat[body].tolist()
            found.append(
                m.EntityT(
                    id=env * len(self._bodies) + body,
                    name=f"{env}/{self._bodies[body]}",
                    position=m.Vec3T(*data.xpos[body].tolist()),
                    rotation=m.QuatT(x, y, z, w),
                    linearVelocity=m.Vec3T(*velocity[3:].tolist()),
                    angularVelocity=m.Vec3T(*velocity[:3].tolist()),
                )
            )
        return found


def send_or_drop(bridge: MujocoBridge, method: int, payload: Any) -> bool:
    """Sends an event of a stream; False: nobody is there, or nobody reads, and it is dropped."""
    try:
        return bridge.send_event(method, payload)
    except RingFull as error:
        _log.warning("a frame is dropped: %s", error.message)
        return False


def _name(named: Any, kind: str, number: int) -> str:
    name = named.name
    if not name:
        name = f"{kind}_{number}"
    return str(name)


def _three(vector: Any) -> tuple[float, float, float]:
    return vector.x, vector.y, vector.z


def _unit(quaternion: Sequence[float]) -> NDArray[np.float64]:
    q = np.array(quaternion, np.float64)
    size = float(np.linalg.norm(q))
    if not size > 0:
        raise ConfigurationError("a rotation is not 0", field="rotation", got=tuple(quaternion))
    return q / size
