"""The engine's side over shared memory."""
