"""From a Stable-Baselines3 model to a verified ONNX file; needs torch."""
