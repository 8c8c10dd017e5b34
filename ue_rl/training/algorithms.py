"""The algorithms that a run may name: which backend has them, in which package, under which name."""

from __future__ import annotations

ALGORITHMS = {
    **dict.fromkeys(("ppo", "a2c", "sac", "td3", "ddpg", "dqn"), "stable_baselines3"),
    **dict.fromkeys(("trpo", "tqc", "qrdqn", "recurrentppo", "maskable_ppo"), "sb3_contrib"),
}  # the module that each is imported from
CLASS_NAMES = {"qrdqn": "QRDQN", "recurrentppo": "RecurrentPPO", "maskable_ppo": "MaskablePPO"}
OFF_POLICY = ("sac", "td3", "ddpg", "dqn", "tqc", "qrdqn")
IN_NUMPY = ("ppo", "a2c", "maskable_ppo")  # which the learner of that name knows
RLLIB_ALGORITHMS = ("ppo", "appo", "impala", "sac", "dqn")
BACKENDS = {"sb3": tuple(ALGORITHMS), "rllib": RLLIB_ALGORITHMS}
