"""Several engines as one connection: how each of them lives, is lost, and comes back."""
