"""ue_rl.inference: export a trained policy to ONNX, and run it where no trainer is.

Two halves. The runtime (`InferenceInterface`, `OnnxInference`, `ReloadingInference`, `InferenceComponent`)
needs NumPy and onnxruntime only; the export (`export_onnx`, `load_and_export`, `check_exportable`) and
`Sb3Inference` need torch and Stable-Baselines3. Every name is imported when it is first used, so that importing
this package loads neither half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.inference.export.file import ExportReport as ExportReport
    from ue_rl.inference.export.onnx import check_exportable as check_exportable
    from ue_rl.inference.export.onnx import export_onnx as export_onnx
    from ue_rl.inference.export.onnx import load_and_export as load_and_export
    from ue_rl.inference.export.sb3 import Sb3Inference as Sb3Inference
    from ue_rl.inference.interface import InferenceInterface as InferenceInterface
    from ue_rl.inference.metadata import PolicyMetadata as PolicyMetadata
    from ue_rl.inference.runtime.component import InferenceComponent as InferenceComponent
    from ue_rl.inference.runtime.onnx import OnnxInference as OnnxInference
    from ue_rl.inference.runtime.reload import ReloadingInference as ReloadingInference

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "export.file": "ExportReport",
        "export.onnx": "check_exportable export_onnx load_and_export",
        "export.sb3": "Sb3Inference",
        "interface": "InferenceInterface",
        "metadata": "PolicyMetadata",
        "runtime.component": "InferenceComponent",
        "runtime.onnx": "OnnxInference",
        "runtime.reload": "ReloadingInference",
    },
)
