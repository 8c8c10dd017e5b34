"""How log records are written: text for people, or one JSON object a line for programs (`--log-format json`)."""

from __future__ import annotations

import json
import logging
import sys
import time

from ue_rl.engines.lifecycle import Change

_TOLD = frozenset(f"ue_rl.training.{name}" for name in ("learning", "watching", "writing"))  # by a Report


class JsonFormatter(logging.Formatter):
    """One JSON object: time (UTC, ISO 8601), level, logger, message; `exception` where there is one.

    A change of an engine's life has also engine, before, after and reason (ue_rl/engines/lifecycle.py).
    """

    def format(self, record: logging.LogRecord) -> str:
        """See the class; never more than one line."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        change = getattr(record, "change", None)
        if isinstance(change, Change):
            fields |= {
                "engine": change.engine,
                "before": change.before.value,
                "after": change.after.value,
                "reason": change.reason,
            }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=True)


def use_text() -> None:
    """Has the log written to stderr for people: what a run's Report tells is not said twice."""
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler and handler.level > logging.DEBUG:  # not with --debug
            handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
            handler.addFilter(_not_told)
            handler.setStream(_Stderr())


class _Stderr:
    """sys.stderr as it is now: while a progress bar stands there, rich puts lines above it."""

    def write(self, text: str) -> int:
        """See io.TextIOBase."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """See io.IOBase."""
        sys.stderr.flush()


def _not_told(record: logging.LogRecord) -> bool:
    return record.name not in _TOLD


def use_json() -> None:
    """Has the log written to stderr as JSON, from INFO on where the project writes it, from WARNING on elsewhere."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter())
        handler.setLevel(min(handler.level, logging.INFO))
    logging.getLogger("ue_rl").setLevel(min(logging.getLogger("ue_rl").getEffectiveLevel(), logging.INFO))
