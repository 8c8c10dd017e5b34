"""Mutated messages for every reader of the project: corpus.py makes them, targets.py are the readers, run.py checks."""
