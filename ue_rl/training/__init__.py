"""One training run and its directory, without a command line.

from ue_rl.training import TrainOptions, train

outcome = train(TrainOptions(env="Pendulum-v1", algo="sac", timesteps=20_000))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.training.callbacks import EngineNumbers as EngineNumbers
    from ue_rl.training.curriculum import Curriculum as Curriculum
    from ue_rl.training.directory import RunDirectory as RunDirectory
    from ue_rl.training.options import TrainOptions as TrainOptions
    from ue_rl.training.report import Outcome as Outcome
    from ue_rl.training.report import Report as Report
    from ue_rl.training.run import train as train

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "callbacks": "EngineNumbers",
        "curriculum": "Curriculum",
        "directory": "RunDirectory",
        "options": "TrainOptions",
        "report": "Outcome Report",
        "run": "train",
    },
)
