"""A policy's weights as a safetensors file: names, shapes and numbers, nothing that runs.

Source: the format's README (huggingface/safetensors): the header's size, uint64; the header, JSON; the tensors' bytes.
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.export.models import choose_vec_normalize
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ExportError, words_of

_DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "int32": "I32", "uint8": "U8",
           "bool": "BOOL"}  # fmt: skip


def export_safetensors(model: Any, path: str | PathLike[str], vec_normalize: Any = None) -> dict[str, tuple[int, ...]]:
    """Writes the weights of a model of Stable-Baselines3; `policy.load_state_dict` takes them back by their names.

    Args:
        vec_normalize: as export_onnx. Its means and variances are tensors, too: normalize.mean, or normalize.mean.KEY.

    Returns:
        The shape of each tensor.

    Raises:
        ExportError: a tensor of a kind that the format does not have, or the file cannot be written.
    """
    found: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(value.detach().cpu().numpy()) for name, value in model.policy.state_dict().items()
    }
    about = {
        "algorithm": type(model).__name__,
        "policy": type(model.policy).__name__,
        "observation_space": str(model.observation_space),
        "action_space": str(model.action_space),
    }
    stats = choose_vec_normalize(model, vec_normalize)
    if stats is not None:
        rms: Any = stats.obs_rms
        for key, one in rms.items() if isinstance(rms, dict) else [("", rms)]:
            found |= {f"normalize.{what}{key and '.'}{key}": getattr(one, what) for what in ("mean", "var")}
        about |= {"clip_obs": str(stats.clip_obs), "epsilon": str(stats.epsilon)}
    header: dict[str, Any] = {"__metadata__": about}
    at = 0
    for name, array in found.items():
        if array.dtype.name not in _DTYPES:
            raise ExportError("safetensors has no such numbers", field=name, got=array.dtype.name)
        places = [at, at := at + array.nbytes]
        header[name] = {"dtype": _DTYPES[array.dtype.name], "shape": [*array.shape], "data_offsets": places}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    content = b"".join([len(text).to_bytes(8, "little"), text, *(array.tobytes() for array in found.values())])
    try:
        write_whole(Path(path), lambda half: half.write_bytes(content))
    except OSError as error:
        got = words_of(error)
        raise ExportError(f"{path} cannot be written", got=got) from error
    return {name: array.shape for name, array in found.items()}
