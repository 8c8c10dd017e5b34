"""`ue-rl runs`: the runs in a folder, listed, shown and compared."""
