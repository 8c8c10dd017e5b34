"""What is said of images: in the handshake, in their sizes, and by a producer of the plain layout."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.shm.plain import PlainSteps
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.spec import MAX_BYTES, EnvSpec, ImageSpec
from ue_rl.protocol.text.handshake import decode_handshake, encode_handshake
from ue_rl.system import errors

SPECS = {
    "hwc": ImageSpec(5, 7, 3),
    "chw": ImageSpec(5, 7, 3, channels_first=True),
    "hwc-only": ImageSpec(5, 7, 3, only=True),
    "chw-only": ImageSpec(4, 6, 1, channels_first=True, only=True),
}


# -- the handshake and the sizes


@pytest.mark.parametrize("image", SPECS.values(), ids=SPECS)
def test_the_handshake_carries_each_form(image: ImageSpec) -> None:
    spec = EnvSpec(2, 1, num_envs=2, image=image)
    assert decode_handshake(encode_handshake(spec)) == spec
    assert ImageSpec.parse(image.text()) == image
    assert image.nbytes == int(np.prod(image.shape)) == int(np.prod(image.size))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HWC(84,96,3)", ImageSpec(84, 96, 3)),
        (" chw ( 3 , 84 , 96 ) , only ", ImageSpec(84, 96, 3, channels_first=True, only=True)),
        ("HWC(1,1,1)", ImageSpec(1, 1, 1)),
        ("HWC(65535,00001,1)", ImageSpec(65535, 1, 1)),
    ],
)
def test_spellings_that_are_read(text: str, expected: ImageSpec) -> None:
    assert ImageSpec.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "HWC", "HWC()", "HWC(84,84)", "HWC(84,84,3,1)", "HWC(84,84,3),", "HWC(84,84,3),BOTH", "HWC(84,84,3) ONLY",
        "HWC(84,0,3)", "HWC(84,-4,3)", "HWC(84,8.0,3)", "HWC(65536,1,1)", "HWC(999999,1,1)", "WHC(84,84,3)",
        "HWC(84,84,3)x", "HWC(\u0663,84,3)", "HWC(84;84;3)", "84,84,3",
    ],
)  # fmt: skip
def test_spellings_that_are_refused(text: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="IMAGE"):
        ImageSpec.parse(text)
    with pytest.raises(errors.HandshakeError):
        decode_handshake(f"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;IMAGE={text}".encode())


@pytest.mark.parametrize("size", [(0, 1, 1), (1, 65_536, 1), (1, 1, -1), (84.0, 84, 3), (True, 84, 3), ("84", 84, 3)])
def test_sizes_that_cannot_be(size: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="IMAGE"):
        ImageSpec(*size)


def test_more_pictures_than_any_memory_are_refused_before_they_are_made() -> None:
    image = ImageSpec(4096, 4096, 4)
    most = MAX_BYTES // image.nbytes
    assert EnvSpec(1, 1, num_envs=most, image=image).image == image
    with pytest.raises(errors.ConfigurationError, match=r"bytes of images.*IMAGE"):
        EnvSpec(1, 1, num_envs=most + 1, image=image)
    with pytest.raises(errors.ConfigurationError, match="without a version"):
        encode_handshake(EnvSpec(1, 1, version=0, image=image))


# -- producers of the plain layout


def plain(**fields: Any) -> StepMemory:
    header, size = plan(2, 1, 1, image=(2, 3, 1), ring_size=64, **fields)
    return StepMemory.create(bytearray(size), header)


def test_a_plain_producers_last_picture_is_that_of_its_episode() -> None:
    """Env 1 ends in the frame that resets env 0: the next step reports it, with its own last picture."""
    memory = plain()
    image = memory.image
    assert image is not None
    out = StepBuffers(2, 1)
    steps = PlainSteps(memory, out)
    assert out.image is not None

    def frame(*pictures: int, dones: tuple[int, int] = (0, 0)) -> None:
        assert image is not None
        for env, value in enumerate(pictures):
            image[env], memory.obs[env], memory.dones[env] = value, value, dones[env]
        steps.answered(out)

    steps.ask_resets(np.arange(2))
    frame(10, 20)
    assert out.image[:, 0, 0, 0].tolist() == [10, 20]
    steps.ask_resets(np.array([0]))
    frame(11, 21, dones=(0, 1))
    assert out.image[:, 0, 0, 0].tolist() == [11, 20]  # env 1 was not asked
    steps.ask_step()
    frame(12, 22)
    assert out.dones.tolist() == [0, 1]
    assert out.image[:, 0, 0, 0].tolist() == out.obs[:, 0].tolist() == [12, 21]


def test_a_plain_segment_with_pictures_is_attached(tmp_path: Path) -> None:
    """By its public part alone: height, width and channels, in that order, beside the numbers."""
    header, size = plan(2, 1, 1, image=(2, 3, 1), ring_size=64, server_pid=os.getpid())
    with Segment.create(size, str(tmp_path / "plain")) as made:
        engine = StepMemory.create(made.memory, header)
        struct.pack_into("<I", made.memory, 208, 0x12345678)  # somebody else's use of the reserved part
        made.memory[212:480] = b"\7" * 268
        assert engine.image is not None
        engine.image[:] = 9
        with SharedMemoryConnection(made.name, timeout=10) as trainer:
            assert trainer.spec.image == ImageSpec(2, 3, 1)
            assert trainer.image is not None
            assert trainer.image.shape == (2, 2, 3, 1)
            assert not np.shares_memory(trainer.image, np.frombuffer(made.memory, np.uint8))
        del engine
