"""What the commands that serve have in common: their log is shown, and a port that is taken is named."""

from __future__ import annotations

import logging

from ue_rl.errors import ConfigurationError


def show_log(*names: str) -> None:
    """Shows what these loggers say of who comes and goes."""
    for name in names:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setLevel(min(handler.level, logging.INFO))


def cannot_listen(host: str, port: int, error: OSError, cure: str) -> ConfigurationError:
    """The error for an address that cannot be listened on."""
    return ConfigurationError(
        f"cannot listen on {host}:{port}", fault="caller", field="port", got=str(error), cure=cure
    )
