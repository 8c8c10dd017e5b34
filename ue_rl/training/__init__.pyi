# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.training.callbacks import EngineNumbers as EngineNumbers
from ue_rl.training.curriculum import Curriculum as Curriculum
from ue_rl.training.directory import RunDirectory as RunDirectory
from ue_rl.training.options import TrainOptions as TrainOptions
from ue_rl.training.report import RunResult as RunResult
from ue_rl.training.report import TrainingReport as TrainingReport
from ue_rl.training.run import train as train
