"""For who writes an engine: check, tests, traces, doctor, metrics."""
