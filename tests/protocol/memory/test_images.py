"""Images: from an engine's outbox through shared memory to a policy that learns from them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

import ue_rl
from tests.protocol.memory.test_image_forms import SPECS
from tests.support.carriers import over
from tests.support.steps import advance, begin
from ue_rl.bridges import ShmHost, ShmUpgrader, VectorBridge, run_in_thread, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm.attach import spec_of
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.memory import segment
from ue_rl.protocol.memory.header import Header
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.spec import ActionSpec, EnvSpec, ImageSpec
from ue_rl.system import errors

N = 3


def picture(spec: ImageSpec, env: int, step: int) -> np.ndarray:
    """A pattern in which no env, no step and no two axes look alike."""
    h, w, c = np.meshgrid(*(np.arange(n) for n in spec.size), indexing="ij")
    hwc = (h + 10 * w + 80 * c + 37 * env + 91 * step) % 256
    return (hwc.transpose(2, 0, 1) if spec.channels_first else hwc).astype(np.uint8)


class Painter(VectorBridge):
    """Draws `picture(env, step)`; env i's episodes last 3 + i steps."""

    def configure(self, spec: EnvSpec) -> None:
        super().configure(spec)
        self.steps = np.zeros(spec.num_envs, np.int64)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.steps[env_ids] = 0
        self.paint(env_ids)

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.steps[env_ids] += 1
        self.outbox.rewards[env_ids] = actions[env_ids, 0]
        self.outbox.dones[env_ids] = self.steps[env_ids] >= 3 + env_ids
        self.paint(env_ids)

    def paint(self, env_ids: Any) -> None:
        assert self.spec.image is not None
        assert self.outbox.image is not None
        for env in env_ids:
            self.outbox.image[env] = picture(self.spec.image, env, self.steps[env])
        self.outbox.obs[env_ids, 0] = self.steps[env_ids]


def painter(image: ImageSpec, n: int = N) -> Painter:
    return Painter(EnvSpec(2, 1, num_envs=n, image=image))


@pytest.fixture(params=["memory", "arrays", "upgraded", "shm"])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """A transport to a bridge, in each of the ways that carry images."""
    with contextlib.ExitStack() as stack:
        yield lambda bridge: stack.enter_context(over(request.param, bridge))


def parts(observation: Any, image: ImageSpec) -> tuple[Any, Any]:
    """(numbers or None, pixels) of an observation, whose form is checked."""
    assert isinstance(observation, dict) != image.only
    return (None, observation) if image.only else (observation["obs"], observation["image"])


# -- what a trainer sees


@pytest.mark.parametrize("image", SPECS.values(), ids=SPECS)
def test_every_step_and_episode_end_shows_its_own_pictures(opened: Any, image: ImageSpec) -> None:
    env = UnrealVecEnv(opened(painter(image)))
    pixels = spaces.Box(0, 255, image.shape, np.uint8)
    numbers = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.observation_space == (pixels if image.only else spaces.Dict({"obs": numbers, "image": pixels}))
    steps = np.zeros(N, int)
    observation, held = env.reset(), []
    for k in range(12):
        got_numbers, got = parts(observation, image)
        expected = np.stack([picture(image, i, steps[i]) for i in range(N)])
        assert got.dtype == np.uint8
        np.testing.assert_array_equal(got, expected)
        if got_numbers is not None:
            np.testing.assert_array_equal(got_numbers[:, 0], steps)
        held.append((got, expected))
        observation, rewards, dones, infos = env.step(np.full((N, 1), k / 16, np.float32))
        np.testing.assert_array_equal(rewards, [k / 16] * N)
        steps += 1
        np.testing.assert_array_equal(dones, steps >= 3 + np.arange(N))
        for i in np.flatnonzero(dones):
            last_numbers, last = parts(infos[i]["terminal_observation"], image)
            np.testing.assert_array_equal(last, picture(image, i, steps[i]))
            assert last_numbers is None or last_numbers[0] == steps[i]
            steps[i] = 0
    for got, expected in held:  # none was written again: they are copies
        np.testing.assert_array_equal(got, expected)
    env.close()


def test_pictures_are_views_of_the_segment_on_both_sides() -> None:
    image = SPECS["chw"]
    bridge = painter(image)
    with run_shm_in_thread(bridge) as host:
        shared = bridge.outbox.image
        assert shared is host.host.memory.image
        with SharedMemoryConnection(host.name, timeout=10) as trainer:
            memory = trainer.memory
            base = np.frombuffer(memory.buffer, np.uint8).ctypes.data
            got = begin(trainer).image
            assert got is trainer.image
            assert got.ctypes.data == base + memory.header.image_offset
            assert memory.header.regions["image"] == (memory.header.image_offset, N * 5 * 7 * 3)
            assert got.shape == (N, 3, 5, 7)
            np.testing.assert_array_equal(got[2], picture(image, 2, 0))
            advance(trainer, 0)
            np.testing.assert_array_equal(got[2], picture(image, 2, 1))  # the next answer, in the same place
    assert bridge.outbox.image is not None
    assert shared is not None
    assert not np.shares_memory(bridge.outbox.image, shared)  # its own again
    np.testing.assert_array_equal(bridge.outbox.image[2], picture(image, 2, 1))


@pytest.mark.parametrize("image", [SPECS["hwc"], SPECS["hwc-only"]], ids=["dict", "only"])
def test_without_copies_observations_are_the_transports_own(image: ImageSpec) -> None:
    with run_shm_in_thread(painter(image)) as host:
        env = ue_rl.connect(host.url, copy=False, timeout=10)
        first = parts(env.reset(), image)[1]
        assert first is env.transport.image  # type: ignore[attr-defined]
        later = parts(env.step(np.zeros((N, 1), np.float32))[0], image)[1]
        assert later is first
        np.testing.assert_array_equal(first[1], picture(image, 1, 1))
        for _ in range(2):
            infos = env.step(np.zeros((N, 1), np.float32))[3]
        last = parts(infos[0]["terminal_observation"], image)[1]
        np.testing.assert_array_equal(last, picture(image, 0, 3))  # kept apart from the reset that followed
        np.testing.assert_array_equal(first[0], picture(image, 0, 0))
        env.close()


def test_resets_of_single_envs_leave_the_other_pictures_alone(opened: Any) -> None:
    image = SPECS["hwc"]
    transport = opened(painter(image))
    begin(transport)
    advance(transport, 0)
    got = begin(transport, [1]).image
    for env, step in enumerate([1, 0, 1]):
        np.testing.assert_array_equal(got[env], picture(image, env, step))
    transport.close()


def test_frames_stack_and_channels_move_first() -> None:
    image = ImageSpec(12, 14, 3, only=True)  # of frames as small as the others, the stack would look channels-first
    with run_shm_in_thread(painter(image)) as host:
        env = VecTransposeImage(VecFrameStack(ue_rl.connect(host.url, timeout=10), 2))
        assert env.observation_space.shape == (6, 12, 14)
        env.reset()
        for _ in range(3):
            observation, _, dones, infos = env.step(np.zeros((N, 1), np.float32))
        assert dones.tolist() == [True, False, False]

        def stacked(env: int, *steps: int) -> np.ndarray:
            return np.concatenate([picture(image, env, step).transpose(2, 0, 1) for step in steps])

        np.testing.assert_array_equal(observation[1], stacked(1, 2, 3))
        np.testing.assert_array_equal(infos[0]["terminal_observation"], stacked(0, 2, 3))
        np.testing.assert_array_equal(observation[0][3:], picture(image, 0, 0).transpose(2, 0, 1))
        assert not observation[0][:3].any()
        env.close()


def test_a_gymnasium_env_sees_pictures(opened: Any) -> None:
    image = SPECS["chw"]
    env = ue_rl.UnrealEnv(opened(painter(image, 1)))
    first, _ = env.reset()
    assert env.observation_space.contains(first)
    second, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    np.testing.assert_array_equal(first["image"], picture(image, 0, 0))
    np.testing.assert_array_equal(second["image"], picture(image, 0, 1))
    assert (terminated, truncated) == (False, False)
    env.close()


@pytest.mark.parametrize("image", [SPECS["hwc"], SPECS["chw-only"]], ids=["dict", "only"])
def test_a_gymnasium_vector_env_sees_pictures(opened: Any, image: ImageSpec) -> None:
    env = ue_rl.UnrealVectorEnv(opened(painter(image)), autoreset_mode=AutoresetMode.SAME_STEP)
    held, _ = env.reset()
    assert env.observation_space.contains(held)
    for _ in range(3):
        observation, _, terminated, _, infos = env.step(np.zeros((N, 1), np.float32))
    assert env.observation_space.contains(observation)
    assert terminated.tolist() == [True, False, False]
    np.testing.assert_array_equal(parts(held, image)[1][2], picture(image, 2, 0))
    np.testing.assert_array_equal(parts(observation, image)[1][0], picture(image, 0, 0))
    np.testing.assert_array_equal(parts(observation, image)[1][1], picture(image, 1, 3))
    np.testing.assert_array_equal(parts(infos["final_obs"][0], image)[1], picture(image, 0, 3))
    masked, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    for i, step in enumerate([0, 0, 3]):
        np.testing.assert_array_equal(parts(masked, image)[1][i], picture(image, i, step))
    env.close()


def test_big_pictures() -> None:
    image = ImageSpec(256, 256, 3)
    with run_shm_in_thread(painter(image, 16)) as host:
        env = ue_rl.connect(host.url, timeout=20)
        assert 4_000_000 < host.host.memory.header.total_size < 4_400_000
        env.reset()
        observation = env.step(np.zeros((16, 1), np.float32))[0]["image"]
        assert observation.nbytes == 16 * 256 * 256 * 3
        for i in (0, 15):
            np.testing.assert_array_equal(observation[i], picture(image, i, 1))
        env.close()


# -- policies learn from them


class Sides(VectorBridge):
    """Half of the picture is lit: action 0 names the side. Action 1, beside numbers, repeats the number's sign."""

    def configure(self, spec: EnvSpec) -> None:
        super().configure(spec)
        self.rng = np.random.default_rng(3)
        self.asked = np.zeros((spec.num_envs, 2), np.int64)
        self.steps = np.zeros(spec.num_envs, np.int64)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.steps[env_ids] = 0
        self.ask(env_ids)

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        right = actions[env_ids] == self.asked[env_ids, : actions.shape[1]]
        self.outbox.rewards[env_ids] = right.mean(1)
        self.steps[env_ids] += 1
        self.outbox.dones[env_ids] = self.steps[env_ids] == 8
        self.ask(env_ids)

    def ask(self, env_ids: Any) -> None:
        assert self.outbox.image is not None
        self.asked[env_ids] = self.rng.integers(0, 2, (len(env_ids), 2))
        self.outbox.obs[env_ids, 0] = self.asked[env_ids, 1] * 2 - 1
        for env in env_ids:
            pixels = self.outbox.image[env].reshape(36, 36)  # one channel: both orders are the same bytes
            left = 18 * self.asked[env, 0]
            pixels[:] = 0
            pixels[:, left : left + 18] = 255


@pytest.mark.parametrize("learns", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["begins", "learns"])
@pytest.mark.parametrize("kind", ["CnnPolicy", "MultiInputPolicy"])
def test_ppo_learns_from_pictures(kind: str, learns: bool) -> None:
    """8 is the best return; chance, and any policy blind to the picture, gets 4, or 6 where it reads the number."""
    only = kind == "CnnPolicy"
    action = ActionSpec.discrete(2) if only else ActionSpec.multi_discrete((2, 2))
    image = ImageSpec(36, 36, 1, channels_first=not only, only=only)
    bridge = Sides(EnvSpec(1, action.size, num_envs=16, action=action, image=image, features=frozenset({"SEED"})))
    with run_shm_in_thread(bridge) as host:
        env = ue_rl.connect(host.url, timeout=20)
        extractor = {"features_dim": 64} if only else {"cnn_output_dim": 64}
        model = PPO(
            kind,
            env,
            n_steps=16,
            batch_size=128,
            n_epochs=4,
            learning_rate=1e-3,
            gamma=0.0,
            seed=0,
            device="cpu",
            policy_kwargs={"features_extractor_kwargs": extractor},
        )
        assert isinstance(model.get_env(), VecTransposeImage) == only
        if not learns:
            model.learn(256)
            env.close()
            return
        before = evaluate_policy(model, env, 48, deterministic=False, warn=False)[0]
        model.learn(6_144)
        after = evaluate_policy(model, env, 48, deterministic=False, warn=False)[0]
        env.close()
    assert before < 5
    assert after > 7.2


# -- what is refused


class Noted(ShmUpgrader):
    """Notes the segments that it offers."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def offer(self, bridge: Any) -> str | None:
        offer = super().offer(bridge)
        assert offer is not None
        self.names.append(offer.partition(":")[0])
        return offer


def test_text_refuses_pictures_by_name_and_leaves_nothing_behind() -> None:
    noted = Noted()
    for upgrader in (None, noted):
        bridge = painter(SPECS["hwc"])
        server = run_in_thread(bridge, upgrader=upgrader)
        try:
            descriptors = _descriptors()
            for options in ({"transport": "tcp"}, {"channel": "shared"}, {"channel": "per_env"}):
                with pytest.raises(errors.UnsupportedByEngine, match=r"IMAGE.*HWC\(5,7,3\).*transport='auto'"):
                    ue_rl.connect(server.url, timeout=10, **options)
            if upgrader is None:
                with pytest.raises(errors.UnsupportedByEngine, match="IMAGE"):
                    ue_rl.connect(server.url, timeout=10)
                with pytest.raises(errors.UnsupportedByEngine, match="does not offer"):
                    ue_rl.connect(server.url, "shm", timeout=10)
            else:
                env = ue_rl.connect(server.url, timeout=10)  # and those that can are served after all that
                np.testing.assert_array_equal(env.reset()["image"][2], picture(SPECS["hwc"], 2, 0))
                env.close()
        finally:
            server.close()
        assert _descriptors() <= descriptors
    assert len(noted.names) == 4
    assert not [name for name in noted.names if (segment.SHM_DIR / name).exists()]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0


def test_a_policy_that_takes_numbers_is_not_given_to_a_bridge_with_pictures() -> None:
    class Policy:
        def run_inference(self, observations: Any) -> Any:
            return np.zeros((len(observations), 1), np.float32)

    with pytest.raises(errors.ConfigurationError, match=r"not images.*IMAGE.*HWC\(5,7,3\)"):
        painter(SPECS["hwc"]).set_inference_interface(Policy())
    Painter(EnvSpec(2, 1)).set_inference_interface(Policy())


@pytest.mark.parametrize(
    "changes",
    [
        {"image_order": 1}, {"image_role": 1}, {"image_width": 5, "image_height": 7}, {"image_channels": 1},
        {"image_offset": 0},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_a_header_that_disagrees_with_its_config_is_refused(changes: dict[str, int]) -> None:
    with ShmHost(painter(SPECS["hwc"])) as host, Segment.open(host.name) as opened:
        header = replace(Header.unpack(opened.memory), **changes)
        opened.memory[: len(header.pack())] = header.pack()
        with pytest.raises(errors.SegmentInvalid, match=r"CONFIG line and the header disagree.*IMAGE"):
            SharedMemoryConnection.attach(host.name)
        with pytest.raises(errors.SegmentInvalid, match="disagree"):
            spec_of(StepMemory(opened.memory))
