"""What a run sets in the game before its first episode: parameters, time scale, the curriculum."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from ue_rl.calls.asking import EngineCalls
from ue_rl.calls.parameters import as_ranges, check_ranges, randomize, shown
from ue_rl.errors import ConfigurationError
from ue_rl.training.curriculum import Curriculum
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import Report

_log = logging.getLogger(__name__)


def prepared(options: TrainOptions, vec_env: VecEnv, lessons: Path | None, report: Report) -> Curriculum | None:
    """Sets what the options say of the game itself, before its first episode; the curriculum, if there is one.

    Args:
        lessons: the file that says in which lesson the run is; None, or where it does not exist: in the first.

    Raises:
        UnsupportedByEngine: the engine has no parameters. ConfigurationError: not these. An engine that has no time
            scale is only told of: it changes how long a run takes, not what it learns.
    """
    engine: Any = vec_env.unwrapped
    spec, transport = engine.engine_spec, engine.transport
    ranges = as_ranges(options.params, "params")
    if ranges:
        check_ranges(spec, ranges, "params")
        randomize(transport, ranges, options.seed)
        _log.info("parameters: %s", ", ".join(f"{name} {shown(*value)}" for name, value in ranges.items()))
    if options.time_scale is not None:
        if "TIME_SCALE" in spec.features:
            EngineCalls(transport).set_time_scale(options.time_scale)
        else:
            text = (
                "the engine does not change its speed (no FEATURES=TIME_SCALE in its handshake): time_scale is left out"
            )
            _log.info(text)  # the report shows it
            report.said(text)
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
