"""What a user trains on: a Transport as an SB3 VecEnv, a Gymnasium Env or a Gymnasium VectorEnv."""
