"""The 4096-byte header of a shared-memory segment: read, written and checked in full. No mapping, no waiting.

Source: docs/shared-memory.md, which gives every field. The first 208 bytes are the public layout (a robotics engine's,
magic "CBRL" in memory order, version 1); our extension stands in its reserved part and is all zeros with a plain
producer. A reader calls `Header.parse` once; what passes it can be mapped into arrays. The header's offsets are
never read again afterwards: the other side could change them.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass, field, fields
from typing import Any

from ue_rl.protocol.spec import MAX_BYTES, MAX_ENVS, MAX_NUMBERS
from ue_rl.system.errors import ConfigurationError, SegmentInvalid

MAGIC = 0x4C524243
VERSION = 1
# "UERX"
EXT_MAGIC = 0x58524555
EXT_VERSION = 1
HEADER_SIZE = 4096
ALIGN = 64
RING_SIZE = 524_288
MAX_CONFIG = 65_536
MAX_REASON = 1024  # bytes, the zero behind the text included

# offsets of the words that change while a session runs
SERVER_PID = 8
CLIENT_PID = 12
FRAME_SEQ = 32
ACTION_SEQ = 40
ENGINE_FLAG = 264
CLIENT_FLAG = 268
HEARTBEAT = 272
SERVER_STATE = 280
CLIENT_STATE = 284
ANSWERED_SEQ = 288
REASON_PID = 372
CLIENT_SINCE = 376
REASON = 384
# server_state
SERVING = 1
CLOSED = 2
# client_state
ATTACHED = 1
LEAVING = 2

_BASE = struct.Struct("<4I B3x 3I 2Q 7Q I4x Q 3I 2B 64s 2x I 4x")
_EXT = struct.Struct(f"<2I Q 16s 16s Q 2I Q 2I Q 4Q 4I Q 2Q 2I Q {MAX_REASON}s 2Q")
_EXT_AT = 208
_OTHER = struct.Struct("<4I")  # num_envs, obs_size, act_size, 0 at byte 16: the other layout with this magic

_CURE = "check the producer against docs/shared-memory.md, section 2"


@dataclass
class Header:
    """Every field, in the order of the layout; sizes in numbers (floats) per row, offsets and sizes in bytes.

    `num_envs` counts rows: with agents num_envs * agents_per_env of them, see EnvSpec.num_rows.

    The fields from `ext_magic` on are ours and mean nothing where `extended` is False.
    """

    magic: int = MAGIC
    version: int = VERSION
    server_pid: int = 0
    client_pid: int = 0
    mode: int = 0  # 0 training, 1 inference
    num_envs: int = 1
    obs_size: int = 1
    act_size: int = 1
    frame_seq: int = 0
    action_seq: int = 0
    obs_offset: int = 0
    act_offset: int = 0
    rewards_offset: int = 0
    dones_offset: int = 0
    resets_offset: int = 0
    cmd_s2c_offset: int = 0
    cmd_c2s_offset: int = 0
    cmd_ring_size: int = 0
    image_offset: int = 0
    image_width: int = 0
    image_height: int = 0
    image_channels: int = 0
    gpu_available: int = 0
    gpu_obs_mode: int = 0  # 0 CPU, 1 CUDA_IPC, 2 VULKAN_EXTERNAL
    gpu_obs_handle: bytes = bytes(64)
    gpu_device_id: int = 0

    ext_magic: int = 0
    ext_version: int = 0
    total_size: int = 0
    token: bytes = bytes(16)  # names this segment in an offer over TCP
    proof: bytes = bytes(16)  # whoever knows it has read this segment
    server_start: int = 0  # start time of the engine's process, 0 unknown: tells a reused pid apart
    engine_flag: int = 0  # what the sleeping engine waits on, see ue_rl/protocol/memory/_sync.c
    client_flag: int = 0
    heartbeat: int = 0  # counted up by the engine's loop
    server_state: int = 0  # 0 made, 1 serving, 2 closed
    client_state: int = 0  # 0 nobody, 1 attached, 2 leaving
    answered_seq: int = 0  # the action_seq to which `answered` belongs
    ask_offset: int = 0  # u8 [rows], 0 nothing, 1 step, 2 reset
    answered_offset: int = 0  # u8 [rows]
    seeds_offset: int = 0  # i64 [rows], -1 none
    config_offset: int = 0  # the CONFIG line, text
    config_size: int = 0
    truncateds_at: int = 0  # bytes from dones_offset to the truncateds
    image_order: int = 0  # 0 height, width, channels; 1 channels, height, width
    image_role: int = 0  # 0 beside the observation, 1 instead of it
    server_namespace: int = 0  # in which server_pid means something, 0 unknown; see processes.pid_namespace
    masks_offset: int = 0  # u8 [rows, mask_size], not 0: this choice is legal; 0: no masks
    present_offset: int = 0  # u8 [rows], not 0: this agent is there; 0: an env is one agent
    mask_size: int = 0  # flags of one row's mask
    reason_pid: int = 0  # the client_pid of the session that `reason` is about
    client_since: int = 0  # seconds since 1970 at which client_pid took the segment, 0 unknown
    reason: bytes = bytes(MAX_REASON)  # why the engine ended it: UTF-8, up to the first zero
    first_offset: int = 0  # f32 [rows, obs_size], of episodes that were asked ahead; 0: none can be (AUTORESET)
    ahead_offset: int = 0  # u8 [rows], 1: the reset behind the end of this episode is asked ahead

    regions: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def extended(self) -> bool:
        """Was this segment made by a producer that writes our extension?"""
        return self.ext_magic == EXT_MAGIC

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Of all envs' images; () where there are none."""
        if not self.image_offset:
            return ()
        one = (self.image_height, self.image_width, self.image_channels)
        if self.image_order == 0:
            shape = one
        else:
            shape = (one[2], *one[:2])
        return (self.num_envs, *shape)

    def pack(self) -> bytes:
        """The 4096 bytes."""
        values = [getattr(self, name) for name in NAMES]
        head = _BASE.pack(*values[:_BASE_COUNT])
        return (head + _EXT.pack(*values[_BASE_COUNT:])).ljust(HEADER_SIZE, b"\0")

    @classmethod
    def unpack(cls, data: Any) -> Header:
        """The fields as they stand there, unchecked; `data` holds at least 4096 bytes."""
        return cls(*_BASE.unpack_from(data, 0), *_EXT.unpack_from(data, _EXT_AT))

    @classmethod
    def parse(cls, data: Any, size: int | None = None) -> Header:
        """The checked header, with `regions` filled: name to (offset, bytes).

        Args:
            data: the segment, or at least its first 4096 bytes.
            size: of the whole segment in bytes; None: `data` is the whole.

        Raises:
            SegmentInvalid: naming the first invalid field.
        """
        view = memoryview(data).cast("B")
        if size is None:
            total = len(view)
        else:
            total = size
        if min(len(view), total) < HEADER_SIZE:
            raise _bad("size", "the segment is smaller than its header", f"at least {HEADER_SIZE} bytes", total)
        header = cls.unpack(view)
        header._check_words(view)
        header._check_sizes()
        header.regions = header._regions(total)
        return header

    # -- checks

    def _check_words(self, view: memoryview) -> None:
        if self.magic != MAGIC:
            raise _bad("magic", "not a shared-memory segment of this layout", hex(MAGIC), hex(self.magic))
        if self.version != VERSION:
            raise _bad("version", "unknown version of the layout", VERSION, self.version)
        other = _OTHER.unpack_from(view, 16)
        if self.act_size == 0 and other[3] == 0 and all(other[:3]):
            raise _bad(
                "act_size",
                "this is the other public layout with the same magic, whose num_envs stands at byte 16",
                "mode at byte 16, act_size at byte 28",
                f"num_envs {other[0]}, obs_size {other[1]}, act_size {other[2]}",
            )
        if self.ext_magic != EXT_MAGIC:  # 0, or somebody else's use of the reserved part: a plain producer
            self.ext_magic = self.image_order = self.image_role = 0
            self.masks_offset = self.present_offset = self.mask_size = self.first_offset = self.ahead_offset = 0
        if self.extended and self.ext_version != EXT_VERSION:
            raise _bad("ext_version", "a newer extension of the layout", EXT_VERSION, self.ext_version)

    def _check_sizes(self) -> None:
        for name, top in (("mode", 1), ("gpu_available", 1), ("gpu_obs_mode", 2)):
            _within(name, getattr(self, name), 0, top)
        _within("num_envs", self.num_envs, 1, MAX_ENVS)
        _within("obs_size", self.obs_size, 1, MAX_NUMBERS // self.num_envs)
        _within("act_size", self.act_size, 1, MAX_NUMBERS // self.num_envs)
        if self.cmd_ring_size:
            _within("cmd_ring_size", self.cmd_ring_size, 64, 1 << 30)
            if self.cmd_ring_size % 8:
                raise _bad("cmd_ring_size", "not a multiple of 8", "a multiple of 8", self.cmd_ring_size)
        if self.image_offset:
            for name in ("image_width", "image_height", "image_channels"):
                _within(name, getattr(self, name), 1, 65_535)
        if self.extended:
            _within("image_order", self.image_order, 0, 1)
            _within("image_role", self.image_role, 0, 1)
            _within("server_state", self.server_state, 0, 2)
            _within("client_state", self.client_state, 0, 2)
            _within("config_size", self.config_size, 1, MAX_CONFIG)
            _within("mask_size", self.mask_size, int(self.masks_offset > 0), min(MAX_BYTES // self.num_envs, 2**31 - 1))

    def _layout(self) -> list[tuple[str, int, int]]:
        """Of every region the field that says where it stands, its bytes and its alignment, in the usual order."""
        n = self.num_envs
        layout = [
            ("obs_offset", 4 * n * self.obs_size, 4),
            ("act_offset", 4 * n * self.act_size, 4),
            ("rewards_offset", 4 * n, 4),
            ("dones_offset", n, 1),
            ("truncateds_at", n, 1),
            ("resets_offset", n, 1),
        ]
        if self.cmd_ring_size:
            layout += [("cmd_s2c_offset", self.cmd_ring_size, 8), ("cmd_c2s_offset", self.cmd_ring_size, 8)]
        if self.image_offset:
            layout.append(("image_offset", n * self.image_width * self.image_height * self.image_channels, 1))
        if self.extended:
            layout += [
                ("ask_offset", n, 1),
                ("answered_offset", n, 1),
                ("seeds_offset", 8 * n, 8),
                ("config_offset", self.config_size, 1),
            ]
            if self.mask_size:
                layout.append(("masks_offset", n * self.mask_size, 1))
            if self.present_offset:
                layout.append(("present_offset", n, 1))
            if self.first_offset:
                layout += [("first_offset", 4 * n * self.obs_size, 4), ("ahead_offset", n, 1)]
        return layout

    def _regions(self, total: int) -> dict[str, tuple[int, int]]:
        """Every region, inside the segment, aligned, apart from all others."""
        if self.extended:
            _within("total_size", self.total_size, HEADER_SIZE, total)
            total = self.total_size
        if not self.cmd_ring_size and (self.cmd_s2c_offset or self.cmd_c2s_offset):
            raise _bad("cmd_ring_size", "command rings without a size", "64 or more", 0)
        wanted = []
        for name, size, align in self._layout():
            start = getattr(self, name)
            if name != "truncateds_at":
                wanted.append((name, start, size, align))
            elif self.extended:
                wanted.append((name, self.dones_offset + start, size, align))
        for name, start, size, align in wanted:
            if start < HEADER_SIZE or start + size > total:
                raise _bad(name, "a region leaves the segment", f"{size} bytes within {HEADER_SIZE}..{total}", start)
            if start % align:
                raise _bad(name, "a region is not aligned", f"a multiple of {align}", start)
        ordered = sorted(wanted, key=lambda region: region[1])
        for (name, start, size, _), (following, begin, _, _) in itertools.pairwise(ordered):
            if start + size > begin:
                raise _bad(following, f"two regions overlap, {name} before it", f">= {start + size}", begin)
        regions = {name.removesuffix("_offset"): (start, size) for name, start, size, _ in wanted}
        if self.extended:
            regions["truncateds"] = regions.pop("truncateds_at")
        else:
            self._find_truncateds(regions)
        return regions

    def _find_truncateds(self, regions: dict[str, tuple[int, int]]) -> None:
        """The layout has no offset for them: right after the dones, where there is room before the next region."""
        start, n = regions["dones"]
        ends = [at for at, _ in regions.values() if at > start]
        for at in (aligned(start + n), start + n):
            if ends and at + n <= min(ends):
                regions["truncateds"] = (at, n)
                return


NAMES = tuple(f.name for f in fields(Header) if f.name != "regions")
_BASE_COUNT = NAMES.index("ext_magic")


def aligned(offset: int, to: int = ALIGN) -> int:
    """`offset` rounded up."""
    return -(-offset // to) * to


def plan(
    num_envs: int,
    obs_size: int,
    act_size: int,
    *,
    image: tuple[int, int, int] | None = None,
    ring_size: int = RING_SIZE,
    config: bytes | None = None,
    agents: bool = False,
    ahead: bool = False,
    **given: Any,
) -> tuple[Header, int]:
    """The header of a new segment and the segment's size in bytes.

    Args:
        num_envs: rows, which with agents are more than envs.
        image: (height, width, channels) of one env's image.
        ring_size: bytes of each command ring, its two positions included; 0: no rings.
        config: the CONFIG line; None plans a plain segment, without our extension.
        agents: with room for who is there. ahead: with room for resets that are asked ahead.
        given: other fields, such as server_pid or mask_size.

    Raises:
        ConfigurationError: an invalid field.
    """
    header = Header(num_envs=num_envs, obs_size=obs_size, act_size=act_size, cmd_ring_size=ring_size, **given)
    if image is not None:
        header.image_height, header.image_width, header.image_channels = image
        header.image_offset = HEADER_SIZE  # for now: there are images
    if agents:
        header.present_offset = HEADER_SIZE  # the same
    if ahead:
        header.first_offset = HEADER_SIZE
    if config is not None:
        header.ext_magic = EXT_MAGIC
        header.ext_version = EXT_VERSION
        header.config_size = len(config)
    at = HEADER_SIZE
    for name, size, _ in header._layout():
        if name == "truncateds_at":
            place = at - header.dones_offset
        else:
            place = at
        setattr(header, name, place)
        at = aligned(at + size)
    total = aligned(at, 4096)
    if config is None:  # those of a plain segment are found without their field
        header.truncateds_at = 0
    else:
        header.total_size = total
    try:
        return Header.parse(header.pack(), total), total
    except SegmentInvalid as error:
        what = f"no segment can have this layout: {error.message}"
        raise ConfigurationError(what, field=error.field, expected=error.expected, got=error.got) from error


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise _bad(name, "a header field is out of range", f"{low} to {high}", value)


def _bad(name: str, what: str, expected: Any, got: Any) -> SegmentInvalid:
    return SegmentInvalid(what, field=name, expected=expected, got=got, cure=_CURE)
