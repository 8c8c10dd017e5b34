"""ue_rl.inference: export a trained policy to ONNX, and run it where no trainer is.

Two halves. The runtime (`InferenceInterface`, `OnnxInference`, `ReloadingInference`, `InferenceComponent`)
needs NumPy and onnxruntime only; the export (`export_onnx`, `load_and_export`, `check_exportable`) and
`Sb3Inference` need torch and Stable-Baselines3. Every name is imported when it is first used, so that importing
this package loads neither half.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
