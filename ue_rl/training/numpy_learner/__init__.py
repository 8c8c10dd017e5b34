"""On-policy learning in NumPy: rollouts and updates over views of the parameters that a policy of torch has."""
