"""The header of a shared-memory segment: bytes, sizes, and every field turned against its reader."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from ue_rl.connections.shm.attach import spec_of
from ue_rl.protocol.memory.header import HEADER_SIZE, NAMES, Header, plan
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.spec import ImageSpec
from ue_rl.system import errors

CONFIG = b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=4;VERSION=1\n"
# two envs of two agents each, with masks
TEAM = (
    b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED;ACT_SPACE=MULTI_DISCRETE(2,3);"
    b"FEATURES=MASK;AGENTS=striker:2\n"
)
TEAM_REGIONS = {"agents": True, "mask_size": 5}


def make(config: bytes | None = CONFIG, **options: object) -> tuple[bytearray, Header]:
    header, size = plan(4, 3, 2, ring_size=256, config=config, **options)  # type: ignore[arg-type]
    memory = bytearray(size)
    StepMemory.create(memory, header, config or b"")
    return memory, header


def test_the_public_part_is_the_layout_byte_by_byte() -> None:
    """Each value stands where the table says, written by hand."""
    header = Header(
        server_pid=0x11,
        client_pid=0x22,
        mode=1,
        num_envs=0x33,
        obs_size=0x44,
        act_size=0x55,
        frame_seq=0x66,
        action_seq=0x77,
        obs_offset=0x1000,
        act_offset=0x2000,
        rewards_offset=0x3000,
        dones_offset=0x4000,
        resets_offset=0x5000,
        cmd_s2c_offset=0x6000,
        cmd_c2s_offset=0x7000,
        cmd_ring_size=0x88,
        image_offset=0x8000,
        image_width=0x99,
        image_height=0xAA,
        image_channels=0xBB,
        gpu_available=1,
        gpu_obs_mode=2,
        gpu_obs_handle=bytes(range(64)),
        gpu_device_id=0xCC,
    )
    expected = bytearray(HEADER_SIZE)
    for at, value in {0: 0x4C524243, 4: 1, 8: 0x11, 12: 0x22, 20: 0x33, 24: 0x44, 28: 0x55, 104: 0x88}.items():
        struct.pack_into("<I", expected, at, value)
    for at, value in {120: 0x99, 124: 0xAA, 128: 0xBB, 200: 0xCC}.items():
        struct.pack_into("<I", expected, at, value)
    offsets = (0x66, 0x77, 0x1000, 0x2000, 0x3000, 0x4000, 0x5000, 0x6000, 0x7000)
    for at, value in zip(range(32, 104, 8), offsets, strict=True):
        struct.pack_into("<Q", expected, at, value)
    struct.pack_into("<Q", expected, 112, 0x8000)
    expected[16], expected[132], expected[133] = 1, 1, 2
    expected[134:198] = bytes(range(64))
    assert header.pack() == bytes(expected)
    assert header.pack()[:4] == b"CBRL"
    assert Header.unpack(expected) == header


def test_worked_example_of_the_layout() -> None:
    header, size = plan(4096, 100, 12)
    assert {name: start for name, (start, _) in header.regions.items()} == {
        "obs": 4096,
        "act": 1642496,
        "rewards": 1839104,
        "dones": 1855488,
        "truncateds": 1859584,
        "resets": 1863680,
        "cmd_s2c": 1867776,
        "cmd_c2s": 2392064,
    }
    assert size == 2916352
    assert not header.extended
    assert header.pack()[208:] == bytes(HEADER_SIZE - 208)
    assert plan(64, 1, 1, image=(64, 64, 3))[1] == pytest.approx(2e6, rel=0.1)
    assert plan(16, 1, 1, image=(256, 256, 3))[1] == pytest.approx(4e6, rel=0.1)


def test_our_extension_changes_nothing_of_the_plain_part() -> None:
    plain, size = plan(4096, 100, 12)
    ours, ours_size = plan(4096, 100, 12, config=CONFIG)
    assert ours.pack()[:208] == plain.pack()[:208]
    assert {name: ours.regions[name] for name in plain.regions} == plain.regions
    assert ours_size > size


def test_arrays_are_views_of_the_segment() -> None:
    config = CONFIG.replace(b"VERSION=1", b"VERSION=1;IMAGE=HWC(2,5,3)")
    memory, header = make(config, image=(2, 5, 3))
    step = StepMemory(memory)
    base = np.frombuffer(memory, np.uint8).ctypes.data
    for array, name in (
        (step.obs, "obs"), (step.actions, "act"), (step.rewards, "rewards"), (step.dones, "dones"),
        (step.truncated, "truncateds"), (step.resets, "resets"), (step.ask, "ask"), (step.answered, "answered"),
        (step.seeds, "seeds"), (step.image, "image"),
    ):  # fmt: skip
        assert array is not None
        assert array.ctypes.data == base + header.regions[name][0]
        assert array.nbytes == header.regions[name][1]
    assert step.image is not None
    assert step.image.shape == (4, 2, 5, 3)
    assert step.seeds is not None
    assert step.seeds.tolist() == [-1] * 4
    assert spec_of(step).image == ImageSpec(2, 5, 3)
    with pytest.raises(errors.SegmentInvalid, match=r"disagree.*IMAGE"):
        spec_of(StepMemory(make(image=(2, 5, 3))[0]))
    memory_first, _ = make(image=(2, 5, 3), image_order=1)
    image = StepMemory(memory_first).image
    assert image is not None
    assert image.shape == (4, 3, 2, 5)


def test_masks_and_agents_have_regions_of_their_own() -> None:
    """Behind all others, so that those stand where they stood; a row is an agent."""
    memory, header = make(TEAM, **TEAM_REGIONS)
    step = StepMemory(memory)
    base = np.frombuffer(memory, np.uint8).ctypes.data
    assert step.masks is not None
    assert step.present is not None
    assert (step.masks.shape, step.masks.dtype) == ((4, 5), np.uint8)
    assert step.masks.ctypes.data == base + header.masks_offset
    assert step.present.shape == (4,)
    assert step.present.ctypes.data == base + header.present_offset
    spec = spec_of(step)
    assert (spec.num_envs, spec.num_rows, spec.agents_per_env, spec.mask_size) == (2, 4, 2, 5)
    plain = make(TEAM)[1].regions
    assert {name: header.regions[name] for name in plain} == plain
    old, _ = make()
    assert StepMemory(old).masks is StepMemory(old).present is None, "zeros, as older engines have them there"


@pytest.mark.parametrize(
    ("config", "options", "field", "expected", "got"),
    [
        (TEAM, {"agents": True}, "mask_size", 0, 5),
        (TEAM, {"mask_size": 5}, "present_offset", False, True),
        (CONFIG, {"mask_size": 3}, "mask_size", 3, 0),
        (CONFIG, {"agents": True}, "present_offset", True, False),
        (TEAM.replace(b"striker:2", b"striker:4"), TEAM_REGIONS, "num_envs", 4, 8),
    ],
)
def test_regions_and_the_config_line_must_agree(
    config: bytes, options: dict[str, object], field: str, expected: object, got: object
) -> None:
    memory, _ = make(config, **options)
    with pytest.raises(errors.SegmentInvalid, match="CONFIG line and the header disagree") as caught:
        spec_of(StepMemory(memory))
    assert (caught.value.field, caught.value.expected, caught.value.got) == (field, expected, got)


def test_a_plain_producer_is_read() -> None:
    memory, header = make(config=None)
    step = StepMemory(memory)
    assert not step.header.extended
    assert step.ask is None
    assert step.seeds is None
    assert step.truncated.ctypes.data == step.dones.ctypes.data + 64
    spec = spec_of(step)
    assert (spec.num_envs, spec.obs_size, spec.act_size, spec.version) == (4, 3, 2, 0)
    # no room for truncateds: none
    header.resets_offset = header.dones_offset + 4
    memory[:HEADER_SIZE] = header.pack()
    step = StepMemory(memory)
    assert "truncateds" not in step.header.regions
    assert not step.truncated.any()


def test_a_foreign_use_of_the_reserved_part_is_a_plain_producer() -> None:
    memory, _ = make(config=None)
    memory[208:300] = bytes(range(92))
    assert not StepMemory(memory).header.extended


HOSTILE = {
    "magic": 0x4C524244, "version": 2, "mode": 2, "num_envs": 0, "obs_size": 0, "act_size": 2**31, "obs_offset": 0,
    "act_offset": 2**64 - 8, "rewards_offset": 4098, "dones_offset": 2**40, "resets_offset": 2**63,
    "cmd_s2c_offset": 12, "cmd_c2s_offset": 2**64 - 1, "cmd_ring_size": 2**32 - 1, "image_offset": 1,
    "gpu_available": 7, "gpu_obs_mode": 9, "ext_version": 9, "total_size": 2**62, "ask_offset": 100,
    "answered_offset": 2**64 - 1, "seeds_offset": 4100, "config_offset": 2**50, "config_size": 2**31,
    "truncateds_at": 2**32 - 1, "image_order": 3, "server_state": 8, "masks_offset": 2**64 - 1, "mask_size": 2**32 - 1,
    "present_offset": 2**63, "first_offset": 2**62, "ahead_offset": 2**61,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_each_field_is_refused_by_its_name(name: str) -> None:
    memory, header = make()
    header = replace(header, **{name: HOSTILE[name]})
    if name == "image_offset":
        header.image_width = header.image_height = header.image_channels = 1
    if name == "masks_offset":
        header.mask_size = 3
    if name == "ahead_offset":
        header.first_offset = header.obs_offset
    memory[:HEADER_SIZE] = header.pack()
    with pytest.raises(errors.SegmentInvalid) as caught:
        StepMemory(memory)
    assert caught.value.field == name
    assert name in str(caught.value)
    assert caught.value.expected is not None


def test_a_segment_shorter_than_it_says_is_refused() -> None:
    memory, _ = make()
    for cut, field in ((0, "size"), (HEADER_SIZE - 1, "size"), (-1, "total_size")):
        with pytest.raises(errors.SegmentInvalid) as caught:
            StepMemory(memory[:cut])
        assert caught.value.field == field


INTERESTING = st.one_of(
    st.sampled_from([0, 1, 2, 3, 4, 7, 8, 63, 64, 4095, 4096, 4160, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 8192),
)
FUZZED = [n for n in NAMES if n not in ("token", "proof", "gpu_obs_handle", "reason")]


def put(header: Header, name: str, value: int) -> Header:
    """With the value, cut to the width of its field."""
    for bits in (64, 32, 8):
        changed = replace(header, **{name: value % 2**bits})
        with contextlib.suppress(struct.error):
            changed.pack()
            break
    return changed


@examples(400)
@given(
    changes=st.dictionaries(st.sampled_from(FUZZED), INTERESTING, min_size=1, max_size=4),
    kind=st.sampled_from(["plain", "extended", "team"]),
)
@example(changes={"obs_offset": 2**64 - 4, "num_envs": 1}, kind="plain")
@example(changes={"mask_size": 2**31 - 1, "num_envs": 1}, kind="team")
def test_no_header_leads_out_of_the_segment(changes: dict[str, int], kind: str) -> None:
    """Either a named error, or arrays that lie inside: nothing else."""
    memory, header = make(TEAM, **TEAM_REGIONS) if kind == "team" else make(None if kind == "plain" else CONFIG)
    for name, value in changes.items():
        header = put(header, name, value)
    memory[:HEADER_SIZE] = header.pack()
    try:
        step = StepMemory(memory)
        spec_of(step)
    except errors.ProtocolError:
        return
    base = np.frombuffer(memory, np.uint8).ctypes.data
    seen = []
    arrays = (step.obs, step.actions, step.rewards, step.dones, step.resets, step.ask, step.seeds, step.image)
    for array in (*arrays, step.masks, step.present):
        if array is not None:
            start = array.ctypes.data - base
            assert start >= HEADER_SIZE
            assert start + array.nbytes <= len(memory)
            seen.append((start, start + array.nbytes))
    for (_, end), (start, _) in zip(sorted(seen), sorted(seen)[1:], strict=False):
        assert end <= start


@settings(max_examples=200, deadline=None)
@given(noise=st.binary(min_size=0, max_size=400), at=st.integers(0, 300))
def test_noise_over_the_header_is_a_named_error_or_harmless(noise: bytes, at: int) -> None:
    memory, _ = make()
    memory[at : at + len(noise)] = noise
    with contextlib.suppress(errors.ProtocolError):
        spec_of(StepMemory(memory))
