"""`ue-rl runs` and `ue-rl top`: runs in a folder, listed, compared, watched from outside and deleted."""
