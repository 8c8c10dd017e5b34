"""TorchUpload: one answer as tensors, on a GPU with one upload from pinned memory. Only this file needs torch.

    tensors = connection.to_torch("cuda")       after receive(): {"obs", "rewards", "dones", "truncated"[, "image"]}

All of an answer is put into one block of bytes; the tensors are views of that block. On a GPU the block is pinned and
goes up in one asynchronous copy; the next call waits for it before it writes there again. Nobody's tensors are written
again: every call gives new ones. The engine's own GPU memory (gpu_obs_mode in the header) is described by `gpu_facts`;
opening a CUDA IPC handle is the caller's business.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.memory.header import Header
from ue_rl.system.errors import ConfigurationError

_MODES = ("cpu", "cuda_ipc", "vulkan_external")


def gpu_facts(header: Header) -> dict[str, Any]:
    """What a segment's header (`connection.memory.header`) says of the engine's GPU.

    Returns:
        available: bool. mode: "cpu", "cuda_ipc" or "vulkan_external". device_id: int. handle: 64 bytes.
    """
    return {
        "available": bool(header.gpu_available),
        "mode": _MODES[header.gpu_obs_mode],
        "device_id": header.gpu_device_id,
        "handle": header.gpu_obs_handle,
    }


class TorchUpload:
    """See the module's docstring.

    Args:
        buffers: of a transport; read at every call. device: a torch device.

    Raises:
        ConfigurationError: torch is not installed, or sees no such GPU.
    """

    def __init__(self, buffers: StepBuffers, device: Any = "cuda") -> None:
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise ConfigurationError("tensors need torch", got=str(error), cure="pip install 'ue_rl[train]'") from error
        self.device = self._torch.device(device)
        self._asked = device
        self._pinned = self.device.type == "cuda"
        cuda = self._torch.cuda
        if self._pinned and not (cuda.is_available() and (self.device.index or 0) < cuda.device_count()):
            raise ConfigurationError(
                "torch sees no such GPU", field="device", expected="a GPU, or 'cpu'", got=str(device)
            )
        self._buffers = buffers
        # floats first: a view of bytes as floats begins at a multiple of 4
        self._parts: dict[str, slice] = {}
        self._size = 0
        for name, array in self._arrays().items():
            self._parts[name] = slice(self._size, self._size + array.nbytes)
            self._size += array.nbytes
        self._stage: Any
        if self._pinned:
            self._stage = self._block()
        else:
            self._stage = None
        self._uploaded: Any = None

    def serves(self, device: Any) -> bool:
        """Was it made for this device?"""
        return bool(self._asked == device or self.device == self._torch.device(device))

    def __call__(self) -> dict[str, Any]:
        """Of the last answer.

        Returns:
            obs: float32 [num_envs, obs_size]. rewards: float32 [num_envs]. dones, truncated: bool [num_envs].
            image, where there are images: uint8 [num_envs, ..].
        """
        if self._uploaded is not None:
            self._uploaded.synchronize()
        if self._pinned:
            stage = self._stage
        else:
            stage = self._block()
        arrays = self._arrays()
        bytes_of = stage.numpy()
        for name, array in arrays.items():
            bytes_of[self._parts[name]].view(array.dtype).reshape(array.shape)[...] = array
        block = stage.to(self.device, non_blocking=self._pinned)
        if self._pinned:
            self._uploaded = self._torch.cuda.Event()
            self._uploaded.record(self._torch.cuda.current_stream(self.device))
        torch = self._torch
        kinds = {"obs": torch.float32, "rewards": torch.float32, "dones": torch.bool, "truncated": torch.bool}
        return {
            name: block[self._parts[name]].view(kinds.get(name, torch.uint8)).reshape(array.shape)
            for name, array in arrays.items()
        }

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        of = self._buffers
        arrays: dict[str, np.ndarray[Any, Any]] = {"obs": of.obs, "rewards": of.rewards}
        if of.image is not None:
            arrays["image"] = of.image
        return {**arrays, "dones": of.dones, "truncated": of.truncated}

    def _block(self) -> Any:
        return self._torch.empty(self._size, dtype=self._torch.uint8, pin_memory=self._pinned)
