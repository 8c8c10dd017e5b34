"""What a run sets in the game before its first episode: parameters, time scale, the curriculum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from ue_rl.errors import ConfigurationError
from ue_rl.training.curriculum import Curriculum
from ue_rl.training.engine import set_game
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import Report


def prepared(options: TrainOptions, vec_env: VecEnv, lessons: Path | None, report: Report) -> Curriculum | None:
    """Sets what the options say of the game itself, before its first episode; the curriculum, if there is one.

    Args:
        lessons: the file that says in which lesson the run is; None, or where it does not exist: in the first.

    Raises:
        UnsupportedByEngine, ConfigurationError: see set_game.
    """
    engine: Any = vec_env.unwrapped
    spec, transport = engine.engine_spec, engine.transport
    set_game(transport, spec, options.params, options.seed, options.time_scale, report.said)
    if options.curriculum is None:
        return None
    curriculum = Curriculum(options.curriculum, seed=options.seed, timesteps=options.timesteps, tell=report.said)
    if lessons is not None and lessons.exists():
        restore(curriculum, lessons)
    curriculum.attach(vec_env)
    return curriculum


def restore(curriculum: Curriculum, lessons: Path) -> None:
    """Goes on in the lessons of a saved run.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        curriculum.restore(json.loads(lessons.read_text("utf-8")))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"{lessons} cannot be read", got=str(error), cure="delete it to begin with the first lesson"
        ) from error
