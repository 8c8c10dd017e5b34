"""The log of a session in a file: one form for all that is recorded, and what reads and writes it."""
