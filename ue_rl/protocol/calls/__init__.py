"""What a trainer asks between two steps, and the parameters that travel with a reset."""
