"""Keeping a run: checkpoints that survive anything, and going on from them."""
