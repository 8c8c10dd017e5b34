"""tianshou: its PPO over all envs of one engine, which take a tianshou vector env's place.

python samples/recipes/tianshou_ppo.py [TIMESTEPS]
"""
