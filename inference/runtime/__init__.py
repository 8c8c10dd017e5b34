"""Running a policy: NumPy and onnxruntime, no torch."""
