"""Answers as tensors: values, copies, and on a GPU one upload that nobody overwrites before it is done."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.steps import advance, begin
from ue_rl.bridges import ShmHost, VectorBridge, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm.torch_upload import TorchUpload, gpu_facts
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec, ImageSpec
from ue_rl.system import errors

torch = pytest.importorskip("torch", reason="torch is not installed")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine")

NAMES = {"obs": torch.float32, "rewards": torch.float32, "dones": torch.bool, "truncated": torch.bool}


class Counter(VectorBridge):
    """Everything it answers is made of how often env 0 has stepped."""

    steps = 0

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.write(0)

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.write(self.steps + 1)

    def write(self, steps: int) -> None:
        self.steps = steps
        fill(self.outbox, steps)


def fill(out: StepBuffers, k: int) -> None:
    out.obs[:] = np.arange(out.obs.size).reshape(out.obs.shape) / 7 + k
    out.rewards[:] = np.arange(len(out.rewards)) - k
    out.dones[:] = [k % 2, 1, 0]
    out.truncated[:] = [0, k % 2, 0]
    if out.image is not None:
        out.image[:] = (np.arange(out.image.size).reshape(out.image.shape) + k) % 256


def assert_answer(tensors: dict[str, Any], k: int, image: ImageSpec | None, device: str = "cpu") -> None:
    """The tensors hold what `fill(.., k)` writes."""
    want = StepBuffers(3, 5, None if image is None else image.shape)
    fill(want, k)
    expected = {"obs": want.obs, "rewards": want.rewards, "dones": want.dones != 0, "truncated": want.truncated != 0}
    if want.image is not None:
        expected["image"] = want.image
    assert tensors.keys() == expected.keys()
    for name, array in expected.items():
        assert tensors[name].device.type == device
        assert tensors[name].dtype == NAMES.get(name, torch.uint8)
        np.testing.assert_array_equal(tensors[name].cpu().numpy(), array)


IMAGES = pytest.mark.parametrize(
    "image", [None, ImageSpec(3, 7, 1), ImageSpec(4, 5, 3, channels_first=True)], ids=["numbers", "hwc", "chw"]
)


def check_steps(device: str, image: ImageSpec | None) -> None:
    bridge = Counter(EnvSpec(5, 1, num_envs=3, image=image))
    with run_shm_in_thread(bridge) as host, SharedMemoryConnection(host.name, timeout=10) as trainer:
        begin(trainer)
        held = [trainer.to_torch(device)]
        for _ in range(4):
            advance(trainer, 0)
            held.append(trainer.to_torch(device))
        for k, tensors in enumerate(held):  # each still its own answer: nothing was written again
            assert_answer(tensors, k, image, device)


@IMAGES
def test_tensors_on_the_cpu_are_copies(image: ImageSpec | None) -> None:
    check_steps("cpu", image)


@gpu
@IMAGES
def test_tensors_on_a_gpu(image: ImageSpec | None) -> None:
    check_steps("cuda", image)


@gpu
def test_a_gpu_gets_one_upload_an_answer() -> None:
    buffers = StepBuffers(3, 5, (64, 64, 3))
    upload = TorchUpload(buffers, "cuda")
    upload()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        upload()
        torch.cuda.synchronize()
    assert sum(event.count for event in profile.key_averages() if "HtoD" in event.key) == 1


class LateGpu:
    """A stand-in for torch.cuda that copies as late as it may: when somebody waits for the event behind the copy.

    It shows the order of what TorchUpload does; that CUDA does the same is for the tests above.
    """

    def __init__(self) -> None:
        self.queue: list[tuple[Any, Any]] = []
        self.uploads: list[Any] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            device_count=lambda: 1,
            Event=lambda: LateEvent(self),
            current_stream=lambda device: ("stream of", str(device)),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, size: int, dtype: Any, pin_memory: bool) -> Any:
        assert pin_memory
        return Pinned(torch.empty(size, dtype=dtype), self)


class Pinned:
    """Pinned memory, from where a copy may be asynchronous."""

    def __init__(self, data: Any, gpu: LateGpu) -> None:
        self.data, self.gpu, self.numpy = data, gpu, data.numpy

    def to(self, device: Any, non_blocking: bool) -> Any:
        assert non_blocking
        target = torch.full_like(self.data, 255)
        self.gpu.queue.append((target, self.data))
        self.gpu.uploads.append(str(device))
        return target


class LateEvent:
    def __init__(self, gpu: LateGpu) -> None:
        self.gpu, self.behind = gpu, []  # type: ignore[var-annotated]

    def record(self, stream: Any) -> None:
        assert stream == ("stream of", self.gpu.uploads[-1])  # of the device that the copy goes to
        self.behind, self.gpu.queue = self.gpu.queue, []

    def synchronize(self) -> None:
        for target, source in self.behind:
            target.copy_(source)
        self.behind = []


def test_a_block_is_not_written_again_before_its_upload_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, image = LateGpu(), ImageSpec(3, 7, 1)
    monkeypatch.setitem(sys.modules, "torch", fake)
    buffers = StepBuffers(3, 5, image.shape)
    upload = TorchUpload(buffers, "cuda:0")
    held = []
    for k in range(3):
        fill(buffers, k)
        held.append(upload())
        assert len(fake.uploads) == k + 1  # one for all of it
    upload()
    for k in range(3):
        assert_answer(held[k], k, image)


def test_a_device_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = StepBuffers(1, 1)
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    with pytest.raises(errors.ConfigurationError, match=rf"no such GPU.*device.*cuda:{there}"):
        TorchUpload(buffers, f"cuda:{there}")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(errors.ConfigurationError, match="need torch"):
        TorchUpload(buffers, "cpu")


def test_tensors_between_question_and_answer_are_refused() -> None:
    with run_shm_in_thread(Counter(EnvSpec(5, 1, num_envs=3))) as host:
        trainer = SharedMemoryConnection(host.name, timeout=10)
        with pytest.raises(errors.ConnectionUnusable):
            trainer.to_torch("cpu")
        trainer.connect()
        trainer.reset()
        with pytest.raises(errors.UeRlError):
            trainer.to_torch("cpu")  # half of them may be the last answer's
        trainer.close()
        with pytest.raises(errors.ConnectionUnusable):
            trainer.to_torch("cpu")


# -- the engine's own GPU memory


def test_gpu_fields_are_written_and_read() -> None:
    handle = bytes(range(64))
    fields = {"gpu_available": 1, "gpu_obs_mode": 1, "gpu_obs_handle": handle, "gpu_device_id": 3}
    with run_shm_in_thread(Counter(EnvSpec(5, 1, num_envs=3)), gpu=fields) as host:
        assert bytes(host.host.memory.buffer[132:134]) == b"\1\1"  # where the layout has them
        assert bytes(host.host.memory.buffer[134:198]) == handle
        with SharedMemoryConnection(host.name, timeout=10) as trainer:
            assert gpu_facts(trainer.memory.header) == {
                "available": True,
                "mode": "cuda_ipc",
                "device_id": 3,
                "handle": handle,
            }
    with ShmHost(Counter(EnvSpec(5, 1, num_envs=3))) as plain:
        assert gpu_facts(plain.memory.header) == {
            "available": False,
            "mode": "cpu",
            "device_id": 0,
            "handle": bytes(64),
        }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_available", 2), ("gpu_obs_mode", 3), ("gpu_obs_mode", -1), ("gpu_device_id", 2**32),
        ("gpu_device_id", "0"), ("gpu_obs_handle", bytes(65)), ("gpu_obs_handle", "text"), ("server_pid", 1),
    ],
)  # fmt: skip
def test_gpu_fields_that_cannot_be_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match=name):
        ShmHost(Counter(EnvSpec(5, 1, num_envs=3)), gpu={name: value})
