"""How a run ends, whatever learns in it: why, in a sentence, in the log and, for what nobody expected, in a file."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ue_rl.errors import ConfigurationError, UeRlError, printable
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


def said_of(report: ExportReport, reference: str) -> str:
    """How an exported file compares with `reference`, for the summary."""
    largest, equal = f"largest difference {report.max_abs_difference:.1g}", f"equal to {reference}"
    rounding = f"{equal} but for the rounding of float32; {largest}"
    return rounding if report.reason == "rounding" else f"{equal}, {largest}"


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


@contextmanager
def writable(run: RunDirectory) -> Iterator[None]:
    """Before anything is learnt, a folder that cannot be written into is said.

    Raises:
        ConfigurationError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{run.path} cannot be written", field="log_dir", got=str(error),
            cure="free some space, or check the folder's permissions",
        ) from error  # fmt: skip


def closed(close: Callable[[], object]) -> None:
    """Closes what shows or writes: what it raises must not keep the model from being saved."""
    try:
        close()
    except Exception as error:  # noqa: BLE001 - anybody's report
        _log.error("%s: %s", type(error).__name__, error)
