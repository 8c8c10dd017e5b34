"""ue_rl.inference: export a trained policy to ONNX, and run it where no trainer is.

Two halves. The runtime (`InferenceInterface`, `OnnxInference`, `ReloadingInference`, `InferenceComponent`)
needs NumPy and onnxruntime only; the export (`export_onnx`, `load_and_export`, `check_exportable`) and
`Sb3Inference` need torch and Stable-Baselines3. Every name is imported when it is first used, so that importing
this package loads neither half.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ue_rl.inference.component import InferenceComponent
    from ue_rl.inference.export import (
        ExportReport,
        check_exportable,
        export_onnx,
        load_and_export,
    )
    from ue_rl.inference.interface import InferenceInterface
    from ue_rl.inference.metadata import PolicyMetadata
    from ue_rl.inference.onnx import OnnxInference
    from ue_rl.inference.reload import ReloadingInference
    from ue_rl.inference.sb3 import Sb3Inference

_HOMES = {
    "ExportReport": "export",
    "InferenceComponent": "component",
    "InferenceInterface": "interface",
    "OnnxInference": "onnx",
    "PolicyMetadata": "metadata",
    "ReloadingInference": "reload",
    "Sb3Inference": "sb3",
    "check_exportable": "export",
    "export_onnx": "export",
    "load_and_export": "export",
}

__all__ = [
    "ExportReport",
    "InferenceComponent",
    "InferenceInterface",
    "OnnxInference",
    "PolicyMetadata",
    "ReloadingInference",
    "Sb3Inference",
    "check_exportable",
    "export_onnx",
    "load_and_export",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
