"""One training run and its directory, without a command line."""
