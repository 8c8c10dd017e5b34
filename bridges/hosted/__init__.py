"""Envs of other libraries as games: Gymnasium and PettingZoo."""
