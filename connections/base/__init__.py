"""What all carriers have in common: the life of a connection, and what may be asked of it."""
