"""The header of a segment at its limits: the last value that passes, the first that does not, region by region."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from ue_rl.protocol.memory import header as layout
from ue_rl.protocol.memory.header import EXT_MAGIC, HEADER_SIZE, MAX_CONFIG, Header, aligned, plan
from ue_rl.protocol.spec import MAX_ENVS, MAX_NUMBERS
from ue_rl.system import errors

CONFIG = b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=4;VERSION=1\n"


def extended(**changes: object) -> tuple[Header, int]:
    header, size = plan(4, 3, 2, ring_size=256, image=(2, 5, 3), config=CONFIG, agents=True, mask_size=7, ahead=True)
    return dataclasses.replace(header, **changes), size  # type: ignore[arg-type]


def refusal(header: Header, size: int) -> errors.SegmentInvalid | None:
    try:
        Header.parse(header.pack(), size)
    except errors.SegmentInvalid as error:
        return error
    return None


EXTENSION = {
    "ext_magic": (208, "I"), "ext_version": (212, "I"), "total_size": (216, "Q"), "token": (224, "16s"),
    "proof": (240, "16s"), "server_start": (256, "Q"), "engine_flag": (264, "I"), "client_flag": (268, "I"),
    "heartbeat": (272, "Q"), "server_state": (280, "I"), "client_state": (284, "I"), "answered_seq": (288, "Q"),
    "ask_offset": (296, "Q"), "answered_offset": (304, "Q"), "seeds_offset": (312, "Q"), "config_offset": (320, "Q"),
    "config_size": (328, "I"), "truncateds_at": (332, "I"), "image_order": (336, "I"), "image_role": (340, "I"),
    "server_namespace": (344, "Q"), "masks_offset": (352, "Q"), "present_offset": (360, "Q"), "mask_size": (368, "I"),
    "reason_pid": (372, "I"), "client_since": (376, "Q"), "reason": (384, "1024s"),
    "first_offset": (1408, "Q"), "ahead_offset": (1416, "Q"),
}  # fmt: skip
WORDS = [
    "server_pid", "client_pid", "frame_seq", "action_seq", "engine_flag", "client_flag", "heartbeat", "server_state",
    "client_state", "answered_seq", "reason_pid", "client_since",
]  # fmt: skip


def test_our_extension_is_the_layout_byte_by_byte() -> None:
    """Offsets and types as docs/shared-memory.md has them, section 2."""
    values = {
        name: bytes(range(n, n + 16)).ljust(int(code[:-1]), b"\0") if code[-1] == "s" else 0x11 * (n + 1) % 2**32
        for n, (name, (_, code)) in enumerate(EXTENSION.items())
    }
    expected = bytearray(HEADER_SIZE)
    expected[:208] = Header().pack()[:208]
    for name, (at, code) in EXTENSION.items():
        struct.pack_into(f"<{code}", expected, at, values[name])
    header = Header(**values)  # type: ignore[arg-type]
    assert header.pack() == bytes(expected)
    assert Header.unpack(expected) == header
    assert EXT_MAGIC.to_bytes(4, "little") == b"UERX"


@pytest.mark.parametrize("name", WORDS)
def test_the_words_of_a_running_session_stand_where_the_header_has_them(name: str) -> None:
    packed = Header(**{name: 0xAB}).pack()  # type: ignore[arg-type]
    assert [at for at, byte in enumerate(packed) if byte == 0xAB] == [getattr(layout, name.upper())]


def test_the_states_have_the_numbers_of_the_layout() -> None:
    assert (layout.SERVING, layout.CLOSED, layout.ATTACHED, layout.LEAVING) == (1, 2, 1, 2)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("mode", 0, 1),
        ("gpu_available", 0, 1),
        ("gpu_obs_mode", 0, 2),
        ("num_envs", 1, MAX_ENVS),
        ("obs_size", 1, MAX_NUMBERS // 4),
        ("act_size", 1, MAX_NUMBERS // 4),
        ("cmd_ring_size", 64, 1 << 30),
        ("image_width", 1, 65_535),
        ("image_height", 1, 65_535),
        ("image_channels", 1, 65_535),
        ("image_order", 0, 1),
        ("image_role", 0, 1),
        ("server_state", 0, 2),
        ("client_state", 0, 2),
        ("config_size", 1, MAX_CONFIG),
        ("mask_size", 1, 2**30),
    ],
)
def test_each_size_has_its_first_and_last_value(name: str, low: int, high: int) -> None:
    for good in (low, high):  # a size that is too large for the segment is refused later, as a region
        error = refusal(*extended(**{name: good}))
        assert error is None or error.expected != f"{low} to {high}", error
    step = 8 if name == "cmd_ring_size" else 1
    for bad in (low - step, high + step):
        if bad < 0:
            continue
        error = refusal(*extended(**{name: bad}))
        assert error is not None
        assert (error.field, error.expected, error.got) == (name, f"{low} to {high}", bad)
        assert error.fault == "engine"


def test_the_number_of_numbers_is_limited_for_all_envs_together() -> None:
    for name in ("obs_size", "act_size"):
        most = MAX_NUMBERS // 512
        for size in (most, most + 1):
            error = refusal(*extended(num_envs=512, **{name: size}))
            assert error is not None
            assert (error.field == name) == (size > most)


@pytest.mark.parametrize("size", [65, 68, 71])
def test_a_ring_is_a_multiple_of_eight(size: int) -> None:
    error = refusal(*extended(cmd_ring_size=size))
    assert error is not None
    assert (error.field, error.expected) == ("cmd_ring_size", "a multiple of 8")


REGIONS = {
    "obs_offset": (4 * 4 * 3, 4),
    "act_offset": (4 * 4 * 2, 4),
    "rewards_offset": (4 * 4, 4),
    "resets_offset": (4, 1),
    "cmd_s2c_offset": (256, 8),
    "cmd_c2s_offset": (256, 8),
    "image_offset": (4 * 2 * 5 * 3, 1),
    "ask_offset": (4, 1),
    "answered_offset": (4, 1),
    "seeds_offset": (8 * 4, 8),
    "config_offset": (len(CONFIG), 1),
    "masks_offset": (4 * 7, 1),
    "present_offset": (4, 1),
}


@pytest.mark.parametrize("name", REGIONS)
def test_each_region_lies_inside_apart_and_aligned(name: str) -> None:
    """To the byte at both ends of the segment, and over the edges of every other region."""
    size, align = REGIONS[name]
    header, total = extended()
    assert header.total_size == total
    regions = Header.parse(header.pack(), total).regions
    own = name.removesuffix("_offset")
    assert regions[own] == (getattr(header, name), size)
    room = dataclasses.replace(header, total_size=2 * total)  # behind `total` nothing else stands

    def moved(to: int) -> errors.SegmentInvalid | None:
        return refusal(dataclasses.replace(room, **{name: to}), 2 * total)

    last = (2 * total - size) // align * align
    assert moved(total) is None
    assert moved(last) is None
    for outside in (last + align, HEADER_SIZE - align, align):
        error = moved(outside)
        assert error is not None
        assert (error.field, error.message) == (name, "a region leaves the segment")
        assert error.expected == f"{size} bytes within {HEADER_SIZE}..{2 * total}"
    if align > 1:
        error = moved(total + align // 2)
        assert error is not None
        assert (error.field, error.expected) == (name, f"a multiple of {align}")
    others = [region for other, region in regions.items() if other != own]
    for start, length in others:  # regions may touch, and share no byte
        for edge in (
            start - size,
            start - size + 1,
            start - 1,
            start + length - size,
            start + length - 1,
            start + length,
        ):
            at = -(-edge // align) * align
            if at >= HEADER_SIZE:
                error = moved(at)
                overlaps = any(at < begin + n and begin < at + size for begin, n in others)
                assert (error is not None and "two regions overlap" in error.message) == overlaps, at
                assert overlaps or error is None, at


def test_two_regions_may_touch_and_not_share_a_byte() -> None:
    header, total = plan(4, 3, 2, ring_size=0, config=None)
    for at, good in ((header.dones_offset + 4, True), (header.dones_offset + 3, False)):
        error = refusal(dataclasses.replace(header, resets_offset=at), total)
        assert (error is None) == good
        if error is not None:
            assert error.field == "resets_offset"
            assert error.message == "two regions overlap, dones_offset before it"
            assert (error.expected, error.got) == (f">= {header.dones_offset + 4}", at)


def test_flags_need_no_alignment() -> None:
    header, total = extended()
    moved = dataclasses.replace(
        header, dones_offset=header.dones_offset + 1, truncateds_at=8, resets_offset=header.resets_offset + 3
    )
    regions = Header.parse(moved.pack(), total).regions
    assert regions["dones"] == (header.dones_offset + 1, 4)
    assert regions["truncateds"] == (header.dones_offset + 9, 4)


def test_nothing_is_read_behind_the_size_that_the_header_tells() -> None:
    header, total = extended()
    assert refusal(header, total) is None
    assert refusal(header, total + 4096) is None
    for size in (total - 1, HEADER_SIZE - 1):
        error = refusal(dataclasses.replace(header, total_size=size), total if size < HEADER_SIZE else size - 1)
        assert error is not None
        assert error.field == "total_size"
    smaller = dataclasses.replace(header, total_size=total - 4096)
    error = refusal(smaller, total)
    assert error is not None
    assert error.message == "a region leaves the segment"


def test_a_segment_of_just_its_header_is_long_enough_to_be_read() -> None:
    header, _ = plan(1, 1, 1)
    error = refusal(header, HEADER_SIZE)
    assert error is not None
    assert error.message == "a region leaves the segment"
    for data, size in ((header.pack()[:-1], None), (header.pack(), HEADER_SIZE - 1), (b"", 1 << 20)):
        with pytest.raises(errors.SegmentInvalid) as caught:
            Header.parse(data, size)
        assert caught.value.field == "size"
        assert caught.value.expected == "at least 4096 bytes"
        assert caught.value.got == (len(data) if size is None else size)


def test_rings_are_announced_whole_or_not_at_all() -> None:
    header, total = plan(4, 3, 2, ring_size=0, config=None)
    assert "cmd_s2c" not in header.regions
    for name in ("cmd_s2c_offset", "cmd_c2s_offset"):
        error = refusal(dataclasses.replace(header, **{name: HEADER_SIZE}), total)
        assert error is not None
        assert (error.field, error.message) == ("cmd_ring_size", "command rings without a size")
    error = refusal(dataclasses.replace(header, cmd_ring_size=64), total)
    assert error is not None
    assert error.field == "cmd_s2c_offset"


def test_the_other_layout_is_known_by_all_of_its_words() -> None:
    """act_size 0 alone is a wrong act_size: only with sizes at byte 16 is it the other layout."""
    header, total = plan(4, 3, 2, config=None)
    data = bytearray(header.pack())
    struct.pack_into("<4I", data, 16, 64, 100, 12, 0)
    with pytest.raises(errors.SegmentInvalid, match=r"other public layout.*byte 16") as caught:
        Header.parse(data, total)
    assert "num_envs 64, obs_size 100, act_size 12" in str(caught.value)
    for words in ((64, 0, 12, 0), (64, 100, 0, 0), (0, 100, 12, 0)):
        struct.pack_into("<4I", data, 16, *words)
        with pytest.raises(errors.SegmentInvalid) as caught:
            Header.parse(data, total)
        assert "other public layout" not in caught.value.message
    struct.pack_into("<4I", data, 16, 1, 4, 3, 2)
    Header.parse(data, total)


def test_a_plain_producer_is_not_judged_by_our_fields() -> None:
    header, total = plan(4, 3, 2, image=(2, 5, 3), config=None)
    spoilt = dataclasses.replace(
        header,
        ext_magic=EXT_MAGIC + 1,
        ext_version=7,
        image_order=9,
        image_role=9,
        server_state=9,
        client_state=9,
        config_size=0,
        total_size=1,
    )
    read = Header.parse(spoilt.pack(), total)
    assert (read.ext_magic, read.image_order, read.image_role) == (0, 0, 0)
    assert read.image_shape == (4, 2, 5, 3)
    assert not read.extended
    error = refusal(dataclasses.replace(header, ext_magic=EXT_MAGIC, ext_version=2), total)
    assert error is not None
    assert (error.field, error.expected, error.got) == ("ext_version", 1, 2)


def test_image_shapes() -> None:
    header, _ = extended()
    assert header.image_shape == (4, 2, 5, 3)
    assert dataclasses.replace(header, image_order=1).image_shape == (4, 3, 2, 5)
    assert dataclasses.replace(header, image_offset=0).image_shape == ()


@pytest.mark.parametrize(("gap", "found"), [(64, 64), (63, 4), (68, 64), (67, 4), (8, 4), (7, None), (4, None)])
def test_where_a_plain_producers_truncateds_stand(gap: int, found: int | None) -> None:
    """At the next multiple of 64 behind the dones where there is room, else right behind them, else nowhere."""
    header, total = plan(4, 3, 2, ring_size=0, config=None)
    header.resets_offset = header.dones_offset + gap
    regions = Header.parse(header.pack(), total).regions
    if found == 64 and gap == 64:
        found = 4  # the resets stand there
    expected = None if found is None else (header.dones_offset + found, 4)
    assert regions.get("truncateds") == expected


def test_a_plain_producer_with_nothing_behind_its_dones_has_no_truncateds() -> None:
    header, total = plan(4, 3, 2, ring_size=0, config=None)
    header.resets_offset, header.dones_offset = header.dones_offset, header.resets_offset
    assert "truncateds" not in Header.parse(header.pack(), total).regions


def test_aligned_rounds_up() -> None:
    assert [aligned(at) for at in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]
    assert aligned(4097, 4096) == 8192
    assert (layout.ALIGN, HEADER_SIZE, layout.RING_SIZE, MAX_CONFIG) == (64, 4096, 524_288, 65_536)


@pytest.mark.parametrize("config", [None, CONFIG])
@pytest.mark.parametrize("image", [None, (2, 5, 3)])
@pytest.mark.parametrize("ring_size", [0, 64])
def test_a_plan_lays_every_region_out_in_order(
    config: bytes | None, image: tuple[int, int, int] | None, ring_size: int
) -> None:
    """By hand: each at the next multiple of 64, the whole a multiple of 4096."""
    beside = {"mask_size": 7, "agents": True} if config and image else {}
    header, total = plan(5, 7, 3, ring_size=ring_size, image=image, config=config, server_pid=77, **beside)
    wanted = {"obs": 140, "act": 60, "rewards": 20, "dones": 5, "truncateds": 5, "resets": 5}
    if ring_size:
        wanted |= {"cmd_s2c": 64, "cmd_c2s": 64}
    if image:
        wanted["image"] = 5 * 2 * 5 * 3
    if config:
        wanted |= {"ask": 5, "answered": 5, "seeds": 40, "config": len(CONFIG)}
    if config and image:
        wanted |= {"masks": 35, "present": 5}
    at, expected = 4096, {}
    for name, size in wanted.items():
        expected[name] = (at, size)
        at = -(-(at + size) // 64) * 64
    assert header.regions == expected
    assert total == -(-at // 4096) * 4096
    assert header.total_size == (total if config else 0)
    assert header.truncateds_at == (64 if config else 0)
    assert (header.extended, header.server_pid) == (config is not None, 77)
    assert header.config_size == (len(CONFIG) if config else 0)
    assert (header.image_height, header.image_width, header.image_channels) == (image or (0, 0, 0))
    if config:
        assert header.ext_version == 1


def test_a_new_header_has_the_layouts_defaults() -> None:
    header = Header()
    assert (header.magic, header.version, header.num_envs, header.obs_size, header.act_size) == (0x4C524243, 1, 1, 1, 1)
    named = {"magic", "version", "num_envs", "obs_size", "act_size", "regions"}
    for field in dataclasses.fields(header):
        if field.name not in named:
            assert not any(getattr(header, field.name) if field.type == "bytes" else [getattr(header, field.name)])
    assert (len(header.gpu_obs_handle), len(header.token), len(header.proof)) == (64, 16, 16)


def test_a_plan_that_cannot_be_names_what_was_given() -> None:
    for ring_size in (56, 100):
        with pytest.raises(errors.ConfigurationError) as caught:
            plan(4, 3, 2, ring_size=ring_size)
        assert (caught.value.field, caught.value.fault) == ("cmd_ring_size", "caller")
        assert caught.value.got == ring_size
    for sizes in ((0, 1, 1), (70_000, 1, 1), (4, 0, 1)):
        with pytest.raises(errors.ConfigurationError, match="out of range"):
            plan(*sizes)
