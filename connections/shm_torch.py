"""TorchUpload: the last answer as tensors, on a GPU with one upload from pinned memory. Only this file needs torch.

    upload = TorchUpload(connection, "cuda")
    tensors = upload()              after receive(): {"obs", "rewards", "dones", "truncated"[, "image"]}

On a GPU the numbers go into one pinned block and from there up in one asynchronous copy (images in a second one); the
next call waits for it before it writes there again. On the CPU the tensors are copies. The engine's own GPU memory
(gpu_obs_mode in the header) is described by `gpu_facts`; opening a CUDA IPC handle is the caller's business.
"""

from __future__ import annotations

import importlib
from typing import Any

from ue_rl.connections.shared_memory import SharedMemoryConnection

_MODES = ("cpu", "cuda_ipc", "vulkan_external")


def gpu_facts(connection: SharedMemoryConnection) -> dict[str, Any]:
    """What the header says of the engine's GPU: available, mode, device_id and the 64-byte handle."""
    header = connection.memory.header
    return {
        "available": bool(header.gpu_available),
        "mode": _MODES[header.gpu_obs_mode],
        "device_id": header.gpu_device_id,
        "handle": header.gpu_obs_handle,
    }


class TorchUpload:
    """See the module's docstring.

    Args:
        connection: connected. device: a torch device.
    """

    def __init__(self, connection: SharedMemoryConnection, device: Any = "cuda") -> None:
        self._torch: Any = importlib.import_module("torch")
        self._connection = connection
        self.device = self._torch.device(device)
        self._pinned = self.device.type == "cuda"
        n, size = connection.spec.num_envs, connection.spec.obs_size
        make = self._torch.empty
        # one block: observations, rewards, dones and truncated side by side, all as float32
        self._stage = make((n, size + 3), dtype=self._torch.float32, pin_memory=self._pinned)
        self._view = self._stage.numpy()
        image = connection.image
        self._pixels = None
        if image is not None:
            self._pixels = make(image.shape, dtype=self._torch.uint8, pin_memory=self._pinned)
        self._uploaded: Any = None

    def __call__(self) -> dict[str, Any]:
        """Of the last `receive()`: float32 obs [num_envs, obs_size] and rewards, bool dones and truncated."""
        if self._uploaded is not None:
            self._uploaded.synchronize()
        buffers, view = self._connection.buffers, self._view
        size = view.shape[1] - 3
        view[:, :size] = buffers.obs
        view[:, size], view[:, size + 1], view[:, size + 2] = buffers.rewards, buffers.dones, buffers.truncated
        block = self._up(self._stage)
        tensors = {
            "obs": block[:, :size],
            "rewards": block[:, size],
            "dones": block[:, size + 1].bool(),
            "truncated": block[:, size + 2].bool(),
        }
        if self._pixels is not None:
            self._pixels.numpy()[:] = self._connection.image
            tensors["image"] = self._up(self._pixels)
        if self._pinned:
            self._uploaded = self._torch.cuda.Event()
            self._uploaded.record()
        return tensors

    def _up(self, staged: Any) -> Any:
        return staged.to(self.device, non_blocking=True) if self._pinned else staged.clone().to(self.device)
