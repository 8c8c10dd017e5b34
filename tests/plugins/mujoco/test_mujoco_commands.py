"""What a MujocoBridge answers beside the steps: joints, telemetry, scene, cameras and drawing, over shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported
pytest.importorskip("mujoco", reason="the extra `mujoco` is not installed")
pytest.importorskip("mujoco.batch", reason="MujocoBridge needs mujoco 4.0")

import ue_rl
from ue_rl.bridges import run_shm_in_thread
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.plugins.mujoco import MujocoBridge, MujocoTask
from ue_rl.protocol.commands import Method, messages, text
from ue_rl.system.errors import CommandFailed

M = messages()
PUSH = np.ones((2, 1), np.float32)
MODEL = """
<mujoco model="cart">
  <option timestep="0.01" gravity="0 0 0"/>
  <worldbody>
    <light pos="0 -2 3"/>
    <camera name="side" pos="0 -3 0.5" xyaxes="1 0 0 0 0 1" fovy="60"/>
    <body name="cart" pos="0 0 .5">
      <joint name="rail" type="slide" axis="1 0 0"/>
      <geom type="box" size=".1 .1 .05" mass="1" contype="0" conaffinity="0"/>
      <site name="tip"/>
    </body>
    <body name="ball" pos="1 0 1"><freejoint name="loose"/><geom type="sphere" size=".1" mass=".2"/></body>
  </worldbody>
  <actuator><motor name="engine" joint="rail" ctrlrange="-3 3"/></actuator>
  <sensor><velocimeter name="speed" site="tip"/></sensor>
</mujoco>
"""


class Game:
    """Two envs over shared memory."""

    def __init__(self, env: UnrealVecEnv, bridge: MujocoBridge) -> None:
        self.env, self.bridge = env, bridge
        self.commands: Any = env.transport.commands
        self.env.reset()

    def ask(self, method: Method, payload: Any = None) -> Any:
        return self.commands.request(method, payload, timeout=10)

    def step(self, steps: int = 1) -> list[Any]:
        """The events that came meanwhile."""
        for _ in range(steps):
            self.env.step(PUSH)
        return list(self.commands.poll())


@pytest.fixture
def game() -> Iterator[Game]:
    bridge = MujocoBridge(MODEL, MujocoTask(frame_skip=2), 2, picture=(24, 32))
    with run_shm_in_thread(bridge) as engine:
        env = ue_rl.connect(engine.url)
        yield Game(env, bridge)
        env.close()
    bridge.close()


@pytest.fixture
def pictures(game: Game) -> Game:
    try:
        game.bridge.render(0)
    except Exception as error:  # noqa: BLE001 - whatever keeps OpenGL from working here
        pytest.skip(f"no OpenGL here: {error}")
    return game


NO_SCREEN = """
import mujoco
from ue_rl.plugins.mujoco import MujocoBridge
from ue_rl.system.errors import ConfigurationError

def broken(*_):
    raise mujoco.FatalError("no context")

for attempt in range(2):
    bridge = MujocoBridge("InvertedPendulum", num_envs=1, picture=(8, 8))
    try:
        bridge.render(0)
    except ConfigurationError as error:
        print(attempt, error)
    mujoco.Renderer = lambda *_: print("tried again")
"""


def test_opengl_that_failed_is_not_tried_again() -> None:
    """MuJoCo would wait for ever in the second try of a process."""
    code = NO_SCREEN.replace("for attempt", "mujoco.Renderer = broken\nfor attempt")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    first, second = done.stdout.splitlines()
    assert "OpenGL cannot be used here" in first
    assert second == first.replace("0", "1", 1)


def test_every_method_has_a_handler(game: Game) -> None:
    schema = game.commands.get_schema()
    without = {Method.ENV_INFO, Method.TELEMETRY_FRAME, Method.IMAGE_FRAME}  # which only an engine sends
    assert {method for method in Method if method not in without} <= set(schema["methods"])
    assert schema["action_names"] == ["engine"]


def test_joints_are_read_and_held(game: Game) -> None:
    game.step(5)
    state = game.ask(Method.JOINT_STATE, M.JointStateT(envId=1))
    now = game.bridge.physics.now
    assert [text(name) for name in state.names] == ["rail"]
    assert (state.positions[0], state.velocities[0]) == (np.float32(now.qpos[1, 0]), np.float32(now.qvel[1, 0]))
    assert (state.efforts[0], state.envId) == (1, 1)
    game.ask(Method.JOINT_CONTROL, M.JointControlT(names=["rail"], targets=[-2], envId=1))
    game.step()
    assert game.bridge.physics.ctrl[:, 0].tolist() == [1, -2]
    game.ask(Method.JOINT_CONTROL, M.JointControlT(envId=1))
    game.step()
    assert game.bridge.physics.ctrl[:, 0].tolist() == [1, 1]
    game.ask(Method.JOINT_CONTROL, M.JointControlT(names=["engine"], targets=[0.5], envId=-1))
    game.step()
    assert game.bridge.physics.ctrl[:, 0].tolist() == [0.5, 0.5]
    game.env.reset()
    game.step()
    assert game.bridge.physics.ctrl[:, 0].tolist() == [1, 1]


def test_telemetry_has_units_and_comes_at_its_rate(game: Game) -> None:
    schema = game.ask(Method.GET_TELEMETRY_SCHEMA)
    units = dict(zip(map(text, schema.channels), map(text, schema.units), strict=True))
    assert list(units)[:3] == ["time", "position/rail", "position/loose[0]"]
    assert (units["position/rail"], units["velocity/rail"], units["sensor/speed[2]"]) == ("m", "m/s", "")
    wanted = ["position/rail", "sensor/speed[0]", "velocity/loose[5]"]
    game.ask(Method.TELEMETRY_STREAM, M.TelemetryStreamT(channels=wanted, rateHz=25))
    frames = game.step(10)  # 0.02 s each: every second one is due
    assert {frame.method for frame in frames} == {Method.TELEMETRY_FRAME}
    assert [(frame.payload.envId, round(frame.payload.time, 6)) for frame in frames] == [
        (env, time) for time in (0.02, 0.06, 0.1, 0.14, 0.18) for env in (0, 1)
    ]
    values = frames[-1].payload.values
    assert len(values) == 3
    assert values[0] > 0
    assert values[1] > 0
    game.env.reset()  # time begins again
    assert len(game.step(1)) == 2
    game.ask(Method.TELEMETRY_STREAM, M.TelemetryStreamT(enabled=False))
    assert game.step(2) == []
    game.ask(Method.TELEMETRY_STREAM, M.TelemetryStreamT())
    assert len(game.step(2)) == 4  # all channels, in each step
    assert len(game.step(1)[0].payload.values) == len(units)


def test_a_stream_ends_with_its_trainer() -> None:
    bridge = MujocoBridge(MODEL, None, 2)
    with run_shm_in_thread(bridge) as engine:
        for stream in (True, False):
            env = ue_rl.connect(engine.url)
            game = Game(env, bridge)
            if stream:
                game.ask(Method.TELEMETRY_STREAM, M.TelemetryStreamT())
                game.ask(Method.JOINT_CONTROL, M.JointControlT(names=["rail"], targets=[2], envId=0))
            assert bool(game.step()) == stream
            assert bridge.physics.ctrl[0, 0] == (2 if stream else 1)
            env.close()


def test_the_scene_is_told_and_moved(game: Game) -> None:
    info = game.ask(Method.GET_SCENE_INFO)
    assert (text(info.name), info.entityCount, info.time) == ("model", 4, 0)
    entities = game.ask(Method.LIST_ENTITIES, M.ListEntitiesT(nameContains="ball")).entities
    assert [text(entity.name) for entity in entities] == ["0/ball", "1/ball"]
    ball = entities[1]
    assert (ball.position.x, ball.position.y, ball.position.z, ball.rotation.w) == (1, 0, 1, 1)
    half = np.sqrt(0.5)
    ball.position, ball.rotation = M.Vec3T(3, 4, 5), M.QuatT(0, 0, 2 * half, 2 * half)  # a quarter turn; any length
    ball.linearVelocity, ball.angularVelocity = M.Vec3T(0.5, 0, 0), M.Vec3T(0, 1, 0)
    game.ask(Method.SET_ENTITY, M.SetEntityT(entity=ball))
    moved = game.ask(Method.GET_ENTITY, M.GetEntityT(id=ball.id))
    assert (moved.position.x, moved.position.y, moved.position.z) == (3, 4, 5)
    assert (moved.rotation.z, moved.rotation.w) == pytest.approx((half, half))
    assert (moved.linearVelocity.x, moved.angularVelocity.y) == pytest.approx((0.5, 1))
    assert abs(moved.angularVelocity.x) < 1e-6
    game.ask(Method.SET_ENTITY, M.SetEntityT(entity=M.EntityT(id=ball.id, position=M.Vec3T(0, 0, 9))))
    kept = game.ask(Method.GET_ENTITY, M.GetEntityT(id=ball.id))
    assert (kept.position.z, kept.linearVelocity.x) == pytest.approx((9, 0.5))
    other = game.ask(Method.GET_ENTITY, M.GetEntityT(id=entities[0].id))
    assert other.position.z == 1
    assert game.env.step(PUSH)[0][1, 3] == pytest.approx(9, abs=0.1)


def test_a_single_step(game: Game) -> None:
    for mode in (M.Mode.Paused, M.Mode.Running):
        game.ask(Method.SET_SIMULATION_MODE, M.SetSimulationModeT(mode=mode))
        assert game.bridge.physics.now.time.tolist() == [0, 0]
    game.ask(Method.SET_SIMULATION_MODE, M.SetSimulationModeT(mode=M.Mode.SingleStep))
    assert game.bridge.physics.now.time.tolist() == [0.02, 0.02]


@pytest.mark.parametrize(
    ("method", "payload", "error"),
    [
        (Method.JOINT_STATE, M.JointStateT(envId=2), "env id does not exist"),
        (Method.JOINT_STATE, M.JointStateT(names=["loose"]), "no such hinge or slide.*rail"),
        (Method.JOINT_CONTROL, M.JointControlT(names=["rail"], targets=[]), "one finite target for each name"),
        (Method.JOINT_CONTROL, M.JointControlT(names=["rail"], targets=[np.nan]), "one finite target for each name"),
        (Method.TELEMETRY_STREAM, M.TelemetryStreamT(channels=["mood"]), "no such channel"),
        (Method.TELEMETRY_STREAM, M.TelemetryStreamT(rateHz=-1), "finite and not negative"),
        (Method.GET_ENTITY, M.GetEntityT(id=0), "no such entity"),
        (Method.GET_ENTITY, M.GetEntityT(id=7), "no such entity"),
        (Method.SET_ENTITY, M.SetEntityT(), "an entity is missing"),
        (Method.SET_ENTITY, M.SetEntityT(entity=M.EntityT(id=1)), "only a body with a free joint.*0/cart"),
        (Method.SET_ENTITY, M.SetEntityT(entity=M.EntityT(id=2, rotation=M.QuatT())), "a rotation is not 0"),
        (Method.SET_ENTITY, M.SetEntityT(entity=M.EntityT(id=2, position=M.Vec3T(np.inf))), "must be finite"),
        (Method.STREAM_CAMERA, M.StreamCameraT(id=4), "no such camera"),
        (Method.STREAM_VIEWPORT, M.StreamViewportT(id=2), "env id does not exist"),
        (Method.DEBUG_DRAW, M.DebugDrawT(envId=2), "env id does not exist"),
        (Method.DEBUG_DRAW, M.DebugDrawT(spheres=[M.DrawSphereT()]), "a point of a drawing is missing"),
    ],
)
def test_what_cannot_be_done_is_named(game: Game, method: Method, payload: Any, error: str) -> None:
    with pytest.raises(CommandFailed, match=f"(?s){error}"):
        game.ask(method, payload)
    game.step()


# -- pictures


def test_cameras_are_listed(game: Game) -> None:
    cameras = game.ask(Method.LIST_CAMERAS).cameras
    assert [(camera.id, text(camera.name)) for camera in cameras] == [
        (0, "0/side"),
        (1, "0/free"),
        (2, "1/side"),
        (3, "1/free"),
    ]
    assert (cameras[0].width, cameras[0].height, cameras[0].channels, cameras[0].fovDegrees) == (32, 24, 3, 60)


@pytest.mark.parametrize(
    ("method", "make", "camera"),
    [(Method.STREAM_CAMERA, M.StreamCameraT, 2), (Method.STREAM_VIEWPORT, M.StreamViewportT, 1)],
)
def test_pictures_are_streamed(pictures: Game, method: Method, make: Callable[..., Any], camera: int) -> None:
    pictures.ask(method, make(id=camera, rateHz=25))
    frames = pictures.step(3)
    assert [frame.method for frame in frames] == [Method.IMAGE_FRAME] * 2
    frame = frames[1].payload
    assert (frame.width, frame.height, frame.channels, frame.time) == (32, 24, 3, pytest.approx(0.06))
    assert frame.cameraId == (2 if method == Method.STREAM_CAMERA else 3)
    assert len(frame.pixels) == 24 * 32 * 3
    assert np.ptp(frame.pixels) > 20  # something is seen
    pictures.ask(method, make(id=camera, enabled=False))
    assert pictures.step(2) == []


def test_render_and_what_is_drawn_into_it(pictures: Game) -> None:
    plain = pictures.env.transport.render(0) if hasattr(pictures.env.transport, "render") else pictures.bridge.render(0)
    assert (plain.shape, plain.dtype) == ((24, 32, 3), np.uint8)
    red, seconds = 0xFF0000FF, 0.03
    shapes = M.DebugDrawT(
        envId=0,
        spheres=[M.DrawSphereT(center=M.Vec3T(0.5, 0, 1), radius=0.4, color=red, seconds=seconds)],
        lines=[M.DrawLineT(start=M.Vec3T(-1, 0, 0), end=M.Vec3T(1, 0, 1), color=red)],
        texts=[M.DrawTextT(at=M.Vec3T(0, 0, 1), text="here", color=red)],
    )
    before = pictures.bridge.render(1)
    pictures.ask(Method.DEBUG_DRAW, shapes)
    drawn = pictures.bridge.render(0)
    redder = (drawn.astype(int)[..., 0] - drawn.astype(int)[..., 1] > 60).sum()
    assert redder > 20
    assert (pictures.bridge.render(1) == before).all()
    pictures.step(2)  # 0.04 s: the sphere has gone, the line stays
    later = pictures.bridge.render(0).astype(int)
    assert 0 < (later[..., 0] - later[..., 1] > 60).sum() < redder
    pictures.ask(Method.DEBUG_DRAW, M.DebugDrawT(clear=True))
    cleared = pictures.bridge.render(0).astype(int)
    assert not (cleared[..., 0] - cleared[..., 1] > 60).any()


def test_a_bridge_without_opengl_says_what_to_do(
    game: Game, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    from ue_rl.plugins.mujoco import cameras

    def fails(*_: Any) -> None:
        raise RuntimeError("no display")

    monkeypatch.setattr(pytest.importorskip("mujoco"), "Renderer", fails)
    before = cameras.failures[:]
    request.addfinalizer(lambda: cameras.failures.__setitem__(slice(None), before))
    cameras.failures.clear()  # neither of another test nor for one
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CommandFailed, match=r"OpenGL cannot be used here.*no display"):
        game.ask(Method.STREAM_CAMERA, M.StreamCameraT(id=0))
    assert game.step() == []
