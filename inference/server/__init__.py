"""The policy server: engines that cannot run ONNX send observations and get actions."""
