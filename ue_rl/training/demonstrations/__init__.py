"""Learning from what somebody else has played: Minari datasets written, read, and learnt from."""
