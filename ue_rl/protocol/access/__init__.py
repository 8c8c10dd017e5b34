"""Files, peers and lines that may be a stranger's: what is loaded without running anything, tokens, TLS."""
