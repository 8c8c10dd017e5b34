"""From a Stable-Baselines3 model to a verified ONNX file; needs torch, which is imported when a name is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.inference.export.file import ExportReport as ExportReport
    from ue_rl.inference.export.onnx import check_exportable as check_exportable
    from ue_rl.inference.export.onnx import export_onnx as export_onnx
    from ue_rl.inference.export.onnx import load_and_export as load_and_export

__getattr__, __dir__, __all__ = lazy(
    __name__, {"file": "ExportReport", "onnx": "check_exportable export_onnx load_and_export"}
)
