# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.inference.export.file import ExportReport as ExportReport
from ue_rl.inference.export.onnx import adopt_onnx as adopt_onnx
from ue_rl.inference.export.onnx import check_exportable as check_exportable
from ue_rl.inference.export.onnx import export_onnx as export_onnx
from ue_rl.inference.export.onnx import load_and_export as load_and_export
from ue_rl.inference.export.sb3 import Sb3Inference as Sb3Inference
from ue_rl.inference.interface import InferenceInterface as InferenceInterface
from ue_rl.inference.metadata import PolicyMetadata as PolicyMetadata
from ue_rl.inference.runtime.component import InferenceComponent as InferenceComponent
from ue_rl.inference.runtime.onnx import OnnxInference as OnnxInference
from ue_rl.inference.runtime.reload import ReloadingInference as ReloadingInference
