"""tianshou: its PPO over all envs of one engine, which take a tianshou vector env's place.

python samples/recipes/tianshou_ppo.py [TIMESTEPS]
"""

import functools
import sys
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import BaseVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
