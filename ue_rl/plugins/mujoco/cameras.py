"""Pictures of a MujocoBridge: RENDER, camera streams, and what a trainer draws into them (docs/commands.md).

OpenGL wants one thread, and a host may answer in any: a thread of its own draws.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.calls import check_env
from ue_rl.plugins.mujoco.commands import Clock, checked_rate, send_or_drop
from ue_rl.plugins.mujoco.library import mj
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.envelope import Command, Method, messages, text
from ue_rl.system.errors import ConfigurationError

if TYPE_CHECKING:
    from ue_rl.plugins.mujoco.bridge import MujocoBridge

Picture = NDArray[np.uint8]

_SPHERE = int(mj.mjtGeom.mjGEOM_SPHERE)
_CAPSULE = int(mj.mjtGeom.mjGEOM_CAPSULE)
_LABEL = int(mj.mjtGeom.mjGEOM_LABEL)
# m
_LINE_RADIUS = 0.005
_TEXT_SIZE = 0.02
_MAX_SHAPES = 1000
_UPRIGHT = np.eye(3).reshape(-1)
failures: list[str] = []  # with what OpenGL failed in this process


class Cameras:
    """The cameras of all envs: number env * (ncam + 1) + k is the model's k-th, the last of an env a free one.

    Args:
        bridge: whose. size: (height, width). camera: of RENDER, by name or number; None: the free one.

    Raises:
        ConfigurationError: no such camera, or a size below 1.
    """

    def __init__(self, bridge: MujocoBridge, size: tuple[int, int], camera: str | int | None) -> None:
        self._bridge = bridge
        model = bridge.model
        self._height, self._width = map(int, size)
        if min(size) < 1:
            raise ConfigurationError(
                "a picture has one pixel or more", field="picture", expected="(height, width)", got=size
            )
        self._names = [str(model.camera(k).name or f"camera_{k}") for k in range(model.ncam)] + ["free"]
        self._own = self._number(camera)
        view = model.vis.global_
        view.offwidth = max(view.offwidth, self._width)
        view.offheight = max(view.offheight, self._height)
        self._thread: ThreadPoolExecutor | None = None
        self._renderer: Any = None  # of that thread
        self.forget()

    def forget(self) -> None:
        """Nothing is streamed or drawn any more."""
        self._streams: dict[int, Clock] = {}
        self._shapes: list[_Shape] = []

    def close(self) -> None:
        """Ends the thread; idempotent."""
        if self._thread is not None:
            self._thread.submit(self._close).result()
            self._thread.shutdown()
            self._thread = None

    def register(self, dispatcher: Dispatcher) -> None:
        """Sets the handlers."""
        for method, handler in (
            (Method.LIST_CAMERAS, self.list_cameras),
            (Method.STREAM_CAMERA, self.stream_camera),
            (Method.STREAM_VIEWPORT, self.stream_viewport),
            (Method.DEBUG_DRAW, self.debug_draw),
        ):
            dispatcher.register(method, handler)

    # -- pictures

    def render(self, env_id: int = 0) -> Picture:
        """See Renders; the camera is the one that the bridge was given."""
        return self._picture(env_id * len(self._names) + self._own)

    def _picture(self, camera: int) -> Picture:
        """uint8 [height, width, 3]; raises ConfigurationError: OpenGL cannot be used here."""
        env, k = divmod(camera, len(self._names))
        _, data = self._bridge.physics.simulation(env)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "ue_rl-mujoco-cameras")
        return self._thread.submit(self._draw, data, k, env).result()

    def _draw(self, data: Any, k: int, env: int) -> Picture:
        model = self._bridge.model
        if self._renderer is None:
            # MuJoCo waits for ever where a process tries again after its first try has failed.
            if failures:
                raise no_pictures(failures[0])
            try:
                self._renderer = mj.Renderer(model, self._height, self._width)
            except Exception as error:
                failures.append(str(error))
                raise no_pictures(str(error)) from error
        view = mj.MjvCamera()
        if k < model.ncam:
            view.type = int(mj.mjtCamera.mjCAMERA_FIXED)
            view.fixedcamid = k
        else:
            mj.mjv_defaultFreeCamera(model, view)
        self._renderer.update_scene(data, view)
        scene = self._renderer.scene
        for shape in self._shapes:
            if shape.env in (-1, env) and shape.visible(env, data.time) and scene.ngeom < scene.maxgeom:
                shape.draw(scene.geoms[scene.ngeom])
                scene.ngeom += 1
        return np.array(self._renderer.render(), np.uint8)

    def _close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _number(self, camera: str | int | None) -> int:
        if camera is None:
            return len(self._names) - 1
        if camera in self._names:
            return self._names.index(str(camera))
        if isinstance(camera, int) and 0 <= camera < len(self._names):
            return camera
        raise ConfigurationError("the model has no such camera", field="camera", expected=self._names, got=camera)

    # -- commands

    def list_cameras(self, payload: Any, command: Command) -> Any:
        """All cameras of all envs, named `ENV/CAMERA`."""
        model = self._bridge.model
        m = messages()
        angles = [*model.cam_fovy.tolist(), float(model.vis.global_.fovy)]
        return m.CamerasT(
            cameras=[
                m.CameraT(env * len(angles) + k, f"{env}/{name}", self._width, self._height, 3, angles[k])
                for env in range(self._bridge.num_envs)
                for k, name in enumerate(self._names)
            ]
        )

    def stream_camera(self, payload: Any, command: Command) -> None:
        """From now on its pictures, `rate_hz` of them in a second of its env's own time; or no longer."""
        camera = int(payload.id)
        if not 0 <= camera < self._bridge.num_envs * len(self._names):
            raise ConfigurationError(
                "there is no such camera", field="id", expected="a number that LIST_CAMERAS gives", got=camera
            )
        if not payload.enabled:
            self._streams.pop(camera, None)
            return
        clock = Clock(self._bridge.num_envs, checked_rate(payload.rateHz))
        self._picture(camera)  # raises here, where the trainer hears of it
        self._streams[camera] = clock

    def stream_viewport(self, payload: Any, command: Command) -> None:
        """The same of the free camera of env `id`."""
        env = check_env(self._bridge.num_envs, int(payload.id))
        payload.id = (env + 1) * len(self._names) - 1
        self.stream_camera(payload, command)

    def stream(self, ids: NDArray[np.intp]) -> None:
        """Sends what is due; called after each step of `ids`."""
        time = self._bridge.physics.now.time
        for camera, clock in self._streams.items():
            env = np.array([camera // len(self._names)])
            if not len(clock.due(env[np.isin(env, ids)], time)):
                continue
            frame = messages().ImageFrameT(
                cameraId=camera,
                width=self._width,
                height=self._height,
                channels=3,
                time=float(time[env[0]]),
                pixels=self._picture(camera),
            )
            if not send_or_drop(self._bridge, Method.IMAGE_FRAME, frame):
                return

    def debug_draw(self, payload: Any, command: Command) -> None:
        """Lines, spheres and texts for the pictures of an env (-1: of all); colors are 0xRRGGBBAA."""
        env = int(payload.envId)
        if env != -1:
            check_env(self._bridge.num_envs, env)
        shapes = [_Shape(env, _CAPSULE, line, (line.start, line.end)) for line in payload.lines or ()]
        shapes += [_Shape(env, _SPHERE, ball, (ball.center,), ball.radius) for ball in payload.spheres or ()]
        shapes += [_Shape(env, _LABEL, label, (label.at,), label=text(label.text)) for label in payload.texts or ()]
        if payload.clear:
            kept = []
        else:
            kept = self._shapes
        if payload.clear and env != -1:
            kept = [shape for shape in self._shapes if shape.env != env]
        self._shapes = [*kept, *shapes][-_MAX_SHAPES:]


class _Shape:
    """One thing that a trainer has drawn.

    Args:
        env: -1 for all. drawn: its `color` and `seconds`, in each env's own time; 0: until it is cleared.
    """

    def __init__(
        self, env: int, kind: int, drawn: Any, points: tuple[Any, ...], radius: float = _LINE_RADIUS, label: str = ""
    ) -> None:
        if any(point is None for point in points):
            raise ConfigurationError("a point of a drawing is missing", field=type(drawn).__name__)
        self.env = env
        self._kind = kind
        self._radius = float(radius)
        self._label = label
        self._points = [np.array((p.x, p.y, p.z), np.float64) for p in points]
        color = int(drawn.color)
        self._color = np.array([color >> shift & 255 for shift in (24, 16, 8, 0)], np.float32) / 255
        self._seconds = float(drawn.seconds)
        self._since: dict[int, float] = {}  # env -> when it was first drawn there

    def visible(self, env: int, now: float) -> bool:
        """Whether its time has not passed; an episode that begins ends it."""
        since = self._since.setdefault(env, now)
        return self._seconds <= 0 or since <= now <= since + self._seconds

    def draw(self, geom: Any) -> None:
        """Into an MjvGeom."""
        if self._kind == _LABEL:
            half = _TEXT_SIZE
        else:
            half = self._radius
        size = np.full(3, half)
        mj.mjv_initGeom(geom, self._kind, size, self._points[0], _UPRIGHT, self._color)
        if self._kind == _CAPSULE:
            mj.mjv_connector(geom, _CAPSULE, self._radius, *self._points)
        if self._label:
            geom.label = self._label[:99]  # MuJoCo's limit


def no_pictures(reason: str) -> ConfigurationError:
    """The error for OpenGL that cannot be used in this process."""
    return ConfigurationError(
        "OpenGL cannot be used here: there are no pictures", fault="engine", got=reason, cure=_cure()
    )


def _cure() -> str:
    screen = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if screen:
        return "install OpenGL"
    return "there is no screen: set MUJOCO_GL=egl (or osmesa) before Python starts"
