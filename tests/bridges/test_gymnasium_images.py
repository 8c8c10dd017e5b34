"""GymnasiumBridge(images=True): rollouts equal to DummyVecEnv's over the same envs; export of what learns from them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from tests.support.carriers import over
from tests.support.models import export_briefly
from tests.support.steps import begin
from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_thread
from ue_rl.cli import cli
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.inference import OnnxInference
from ue_rl.inference.export.onnx import check_exportable
from ue_rl.protocol.spec import ImageSpec
from ue_rl.protocol.text import decode_handshake, encode_handshake
from ue_rl.system import errors

N = 3


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def box(*shape: int) -> spaces.Box:
    return spaces.Box(-1, 1, shape, np.float32)


NUMBERS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
# A space, its image, and what the handshake says of it where the image and a row beside it do not say it all.
SPACES: dict[str, tuple[spaces.Space[Any], ImageSpec, str | None]] = {
    "grey": (pixels(8, 9), ImageSpec(8, 9, 1, only=True), None),
    "hwc": (pixels(8, 9, 3), ImageSpec(8, 9, 3, only=True), None),
    "chw": (pixels(3, 8, 9), ImageSpec(8, 9, 3, channels_first=True, only=True), None),
    "middle": (pixels(9, 3, 8), ImageSpec(9, 3, 8, only=True), None),
    "dict": (spaces.Dict({"obs": NUMBERS, "image": pixels(8, 9, 3)}), ImageSpec(8, 9, 3), None),
    "dict-chw": (
        spaces.Dict({"obs": box(4), "image": pixels(4, 8, 9)}), ImageSpec(8, 9, 4, channels_first=True), None,
    ),
    "tree": (
        spaces.Dict({"z": box(2, 2), "camera": pixels(8, 9, 3), "mode": spaces.Discrete(3)}), ImageSpec(8, 9, 3),
        "DICT(camera:IMAGE,mode:DISCRETE(3),z:BOX(-1:1)[2,2])",
    ),
    "tree-grey": (
        spaces.Dict({"obs": box(2), "camera": pixels(8, 9)}), ImageSpec(8, 9, 1), "DICT(camera:IMAGE,obs:BOX(-1:1)[2])",
    ),
    "tree-alone": (
        spaces.Dict({"camera": pixels(3, 8, 9)}), ImageSpec(8, 9, 3, channels_first=True, only=True),
        "DICT(camera:IMAGE)",
    ),
}  # fmt: skip


class Noise(gym.Env[Any, Any]):
    """Observations out of its own seeded generator; ends now and then, and is cut after 7 steps."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.draw(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        ends = bool(self.np_random.random() < 0.15)
        return self.draw(self.observation_space), float(self.np_random.normal()), ends, self.steps == 7, {}

    def draw(self, space: spaces.Space[Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self.draw(part) for key, part in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(map(self.draw, space))
        if isinstance(space, spaces.Discrete):
            return self.np_random.integers(space.n)
        assert isinstance(space, spaces.Box)
        if space.dtype == np.uint8:
            return self.np_random.integers(0, 256, space.shape, np.uint8)
        return self.np_random.uniform(-1, 1, space.shape).astype(np.float32)


def expected(kind: str, observation: Any) -> Any:
    """What the trainer is to see of one env's observation: an image of two dimensions has one channel."""
    if kind == "grey":
        return observation[:, :, None]
    if kind == "tree-grey":
        return {"obs": observation["obs"], "camera": observation["camera"][:, :, None]}
    return observation


def row(batch: Any, env: int) -> Any:
    return {key: part[env] for key, part in batch.items()} if isinstance(batch, dict) else batch[env]


def assert_same(got: Any, want: Any) -> None:
    assert isinstance(got, dict) == isinstance(want, dict)
    for a, b in [(got[key], want[key]) for key in want] if isinstance(want, dict) else [(got, want)]:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert not isinstance(want, dict) or got.keys() == want.keys()


@pytest.fixture(params=["memory", "upgraded", "shm"])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Any]]:
    """A transport to Noise envs, in each way that carries images."""
    with contextlib.ExitStack() as stack:

        def open_transport(kind: str) -> Any:
            space, image, tree = SPACES[kind]
            bridge = GymnasiumBridge(lambda: Noise(space), N, images=True)
            assert bridge.spec.image == image
            assert (bridge.spec.obs_space is None) == (tree is None)
            assert tree is None or f"OBS_SPACE={tree};" in bridge.build_handshake()
            assert decode_handshake(encode_handshake(bridge.spec)) == bridge.spec
            return stack.enter_context(over(request.param, bridge))

        yield open_transport


@pytest.mark.parametrize("limit", [None, 4], ids=["engine", "limited"])
@pytest.mark.parametrize("kind", SPACES)
def test_rollouts_equal_dummy_vec_envs(opened: Any, kind: str, limit: int | None) -> None:
    env = UnrealVecEnv(opened(kind), max_episode_steps=limit)

    def make() -> Any:
        env = Noise(SPACES[kind][0])
        return env if limit is None else TimeLimit(env, limit)

    reference = DummyVecEnv([make] * N)
    env.seed(11)
    reference.seed(11)
    got, want = env.reset(), reference.reset()
    rng, ended, cut = np.random.default_rng(2), 0, 0
    for _ in range(40):
        for i in range(N):
            assert_same(row(got, i), expected(kind, row(want, i)))
        actions = rng.integers(0, 2, N)
        got, rewards, dones, infos = env.step(actions)
        want, want_rewards, want_dones, want_infos = reference.step(actions)
        np.testing.assert_array_equal(rewards, want_rewards)
        np.testing.assert_array_equal(dones, want_dones)
        for i in np.flatnonzero(dones):
            assert_same(infos[i]["terminal_observation"], expected(kind, want_infos[i]["terminal_observation"]))
            assert infos[i]["TimeLimit.truncated"] == want_infos[i]["TimeLimit.truncated"]
            ended, cut = ended + 1, cut + infos[i]["TimeLimit.truncated"]
    assert ended > 10
    assert 0 < cut < ended
    env.close()


def test_an_image_deep_in_a_tree() -> None:
    eye = spaces.Dict({"eye": spaces.Dict({"left": pixels(8, 9, 1)}), "a": box(1)})
    space = spaces.Tuple([eye, spaces.Discrete(2)])
    bridge = GymnasiumBridge(lambda: Noise(space), 1, images=True)
    assert bridge.spec.image == ImageSpec(8, 9, 1)
    assert "OBS_SPACE=TUPLE(DICT(a:BOX(-1:1)[1],eye:DICT(left:IMAGE)),DISCRETE(2));" in bridge.build_handshake()
    assert decode_handshake(encode_handshake(bridge.spec)) == bridge.spec
    buffers = begin(MemoryTransport(bridge), seeds=[3])
    seen, choice = Noise(space).reset(seed=3)[0]
    np.testing.assert_array_equal(buffers.image, [seen["eye"]["left"]])
    assert buffers.obs.tolist() == [[*seen["a"], choice]]


def test_without_the_option_pixels_are_numbers() -> None:
    bridge = GymnasiumBridge(lambda: Noise(pixels(8, 9, 3)), 1)
    assert bridge.spec.image is None
    assert bridge.spec.obs_size == 8 * 9 * 3
    assert "OBS_SPACE=BOX(0:255)[8,9,3]UINT8" in bridge.build_handshake()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (4,), np.float32), spaces.Box(0, 255, (8, 9, 3), np.float32), pixels(8), pixels(2, 8, 9, 3),
        spaces.Box(0, 254, (8, 9), np.uint8), spaces.Discrete(3), spaces.Dict({"a": spaces.Discrete(3)}),
        spaces.Dict({"left": pixels(8, 9), "right": pixels(8, 9)}),
    ],
    ids=["numbers", "float", "1-d", "4-d", "bounds", "choice", "dict-without", "dict-of-two"],
)  # fmt: skip
def test_spaces_without_one_image_are_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"image.*Leave images=True out"):
        GymnasiumBridge(lambda: Noise(space), 1, images=True)


# -- ONNX


@pytest.mark.parametrize(
    ("kind", "space"),
    [
        pytest.param("CnnPolicy", pixels(36, 40, 1), marks=pytest.mark.exhaustive),
        ("CnnPolicy", pixels(3, 36, 40)),
        pytest.param(
            "MultiInputPolicy",
            spaces.Dict({"obs": NUMBERS, "image": pixels(36, 40, 3)}),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["hwc", "chw", "dict"],
)
def test_policies_that_see_pictures_are_exported_as_the_engine_draws_them(
    tmp_path: Path, kind: str, space: spaces.Space[Any]
) -> None:
    """Before training nothing is refused; after it the file takes the engine's own arrays and acts as predict()."""
    env = UnrealVecEnv(MemoryTransport(GymnasiumBridge(lambda: Noise(space), 2, images=True)))
    small = {"features_extractor_kwargs": {"features_dim" if kind == "CnnPolicy" else "cnn_output_dim": 16}}
    model = PPO(kind, env, n_steps=4, batch_size=8, n_epochs=1, seed=0, device="cpu", policy_kwargs=small)
    check_exportable(model)
    model.learn(8)
    report = export_briefly(model, tmp_path / "policy.onnx")
    assert report.observations >= 1000
    policy = OnnxInference()
    policy.load_model(report.path)
    wrapped = model.get_env()
    assert wrapped is not None
    seen = wrapped.reset()  # as the policy is given it
    raw = env.read(env.transport.buffers)
    acts = policy.run_inference(raw)
    np.testing.assert_array_equal(np.ravel(acts), model.predict(seen, deterministic=True)[0])
    shape = raw["image"].shape if isinstance(raw, dict) else raw.shape
    assert tuple(space["image"].shape if isinstance(space, spaces.Dict) else space.shape) == shape[1:]
    env.close()


@pytest.mark.parametrize(
    "space",
    [
        pixels(36, 36, 1),
        pytest.param(spaces.Dict({"obs": NUMBERS, "image": pixels(36, 36, 1)}), marks=pytest.mark.exhaustive),
    ],
)
def test_the_commands_take_engines_with_pictures(tmp_path: Path, space: spaces.Space[Any]) -> None:
    bridge = GymnasiumBridge(lambda: Noise(space), 2, images=True)
    env = UnrealVecEnv(MemoryTransport(bridge))
    kind = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "CnnPolicy"
    small = {"features_extractor_kwargs": {"features_dim" if kind == "CnnPolicy" else "cnn_output_dim": 16}}
    model = PPO(kind, env, n_steps=4, batch_size=8, device="cpu", policy_kwargs=small)
    export_briefly(model, tmp_path / "policy.onnx")
    env.close()
    server = run_in_thread(GymnasiumBridge(lambda: Noise(space), 2, images=True), upgrader=ShmUpgrader())
    try:
        port = ["--port", str(server.port)]
        shown = CliRunner().invoke(cli, ["inspect", *port, "--steps", "2"], catch_exceptions=False)
        assert shown.exit_code == 0, shown.output
        assert "IMAGE=HWC(36,36,1)" in shown.output
        played = CliRunner().invoke(
            cli, ["play", str(tmp_path / "policy.onnx"), *port, "--episodes", "2"], catch_exceptions=False
        )
        assert played.exit_code == 0, played.output
    finally:
        server.close()
