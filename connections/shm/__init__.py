"""The client's transport over shared memory."""
