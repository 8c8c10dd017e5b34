"""`ue-rl tune`: a search for hyperparameters, whose trials are runs like any other."""
