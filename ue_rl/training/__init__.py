"""One training run and its directory, without a command line.

from ue_rl.training import TrainOptions, train

outcome = train(TrainOptions(env="Pendulum-v1", algo="sac", timesteps=20_000))
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
