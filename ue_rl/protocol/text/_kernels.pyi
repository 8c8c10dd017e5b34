from typing import Any

import numpy as np
from numpy.typing import NDArray

_Failure = tuple[int, int, int, int, int]

def decode_states(
    data: Any,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    pending: NDArray[np.uint8],
    spans: NDArray[np.int32],
    masks: NDArray[np.uint8] | None,
    layout: NDArray[np.int32] | None,
    start: int,
    end: int,
    form: int,
    only_env: int,
    number: int = 0,
    /,
) -> int | _Failure: ...
def decode_requests(
    data: Any,
    actions: NDArray[np.float32],
    command: NDArray[np.uint8],
    seeds: NDArray[np.int64],
    spans: NDArray[np.int32],
    layout: NDArray[np.int32] | None,
    start: int,
    end: int,
    form: int,
    only_env: int,
    number: int = 0,
    /,
) -> int | _Failure: ...
def encode_actions(
    env_ids: NDArray[np.int32],
    actions: NDArray[np.float32],
    layout: NDArray[np.int32] | None,
    form: int,
    separate: bool,
    number: int | NDArray[np.int64] = 0,
    /,
) -> bytes | list[bytes] | _Failure: ...
def encode_states(
    env_ids: NDArray[np.int32],
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    masks: NDArray[np.uint8] | None,
    layout: NDArray[np.int32] | None,
    form: int,
    number: int = 0,
    /,
) -> bytes | _Failure: ...
def find_number(data: Any, start: int, end: int, /) -> tuple[int, int]: ...
def copy_parts(
    rows: NDArray[np.float32], parts: tuple[tuple[str, int, tuple[int, ...]], ...], /
) -> dict[str, NDArray[np.float32]]: ...
def write_choices(actions: NDArray[np.int64], choices: NDArray[np.int64], /) -> NDArray[np.float32] | int: ...
def find_no_choice(actions: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32], /) -> int: ...
def take_step(
    obs: NDArray[np.float32] | None,
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    returns: NDArray[np.float64],
    started: NDArray[np.int64],
    of: NDArray[np.bool_] | None,
    now: int,
    limit: int,
    /,
) -> tuple[NDArray[np.float32] | None, NDArray[np.float32], NDArray[np.bool_], NDArray[np.float64], list[int]]: ...
def own_dicts(kept: list[dict[str, Any]], key: str, value: Any, /) -> list[dict[str, Any]]: ...

# POSIX only

def decode_state_lines(
    data: Any,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    pending: NDArray[np.uint8],
    spans: NDArray[np.int32],
    masks: NDArray[np.uint8] | None,
    layout: NDArray[np.int32] | None,
    stride: int,
    fill: NDArray[np.int32],
    form: int,
    /,
) -> int | _Failure: ...
def read_rows(
    message: bytes,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    pending: NDArray[np.uint8],
    number: int,
    /,
) -> int: ...
def cut_numbers(data: bytearray, stride: int, fill: NDArray[np.int32], numbers: NDArray[np.int64], /) -> int: ...
def receive(fd: int, buffer: memoryview, spin_us: int, slice_ms: int, /) -> int: ...
def receive_lines(
    fds: NDArray[np.int32],
    data: bytearray,
    stride: int,
    fill: NDArray[np.int32],
    wanted: NDArray[np.uint8],
    spin_us: int,
    slice_ms: int,
    came: NDArray[np.float64] | None = None,
    /,
) -> int | tuple[int, int]: ...
def send_lines(fds: NDArray[np.int32], lines: list[bytes], /) -> int | tuple[int, int]: ...
