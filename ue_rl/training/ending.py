"""How a run ends, whatever learns in it: why, in a sentence, in the log and, for what nobody expected, in a file."""

from __future__ import annotations

import logging
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from ue_rl.errors import UeRlError, printable
from ue_rl.training.directory import RunDirectory

if TYPE_CHECKING:
    from ue_rl.inference import ExportReport

_log = logging.getLogger(__name__)


def sentence(error: BaseException) -> str:
    """`error` in one sentence."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "stopped by Ctrl-C"
    text = str(error) if isinstance(error, UeRlError) else str(error).partition("\n")[0]  # torch prints whole tensors
    return f"{type(error).__name__}: {printable(text, lines=True)}"


def said_of(report: ExportReport) -> str:
    """How an exported file compares with what it was made of, for the summary."""
    rounding = " but for the rounding of float32;" if report.reason == "rounding" else ","
    return f"equal to {report.reference}{rounding} largest difference {report.max_abs_difference:.1g}"


def note(error: BaseException, run: RunDirectory, env_steps: int) -> Path | None:
    """Writes into the log why learning ended; where nobody expected it, the traceback into a file of its own.

    Returns:
        that file, None without one.
    """
    if isinstance(error, KeyboardInterrupt):
        _log.warning("%s after %d env-steps; saving the model, wait", sentence(error), env_steps)
        return None
    _log.error("stopped after %d env-steps: %s", env_steps, sentence(error))
    if isinstance(error, UeRlError):
        return None
    path = run.path / time.strftime("crash-%Y%m%d-%H%M%S.txt")
    try:
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
    except OSError as failed:
        _log.error("%s could not be written: %s", path, failed)
        return None
    return path
