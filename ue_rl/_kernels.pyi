from typing import Any

import numpy as np
from numpy.typing import NDArray

Failure = tuple[int, int, int, int, int]

def decode_states(
    data: Any,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    pending: NDArray[np.uint8],
    spans: NDArray[np.int32],
    start: int,
    end: int,
    form: int,
    only_env: int,
    /,
) -> int | Failure: ...
def decode_requests(
    data: Any,
    actions: NDArray[np.float32],
    command: NDArray[np.uint8],
    seeds: NDArray[np.int64],
    spans: NDArray[np.int32],
    start: int,
    end: int,
    form: int,
    only_env: int,
    /,
) -> int | Failure: ...
def encode_actions(
    env_ids: NDArray[np.int32], actions: NDArray[np.float32], form: int, separate: bool, /
) -> bytes | list[bytes] | Failure: ...
def encode_states(
    env_ids: NDArray[np.int32],
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    form: int,
    /,
) -> bytes | Failure: ...
