"""What several commands use: their console and tables, JSON flags, and the errors of those that listen."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from ue_rl.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console() -> Console:
    """Prints text as it is: an engine's may hold what rich would read as markup or emoji."""
    from rich.console import Console

    return Console(markup=False, emoji=False)


def two_columns(title: str | None = None) -> Table:
    """An empty table of names and values."""
    from rich.table import Table

    table = Table(show_header=False, title=title, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def json_object(text: str, field: str) -> dict[str, Any]:
    """The value of the flag `field`.

    Raises:
        ConfigurationError: not a JSON object.
    """
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError("not a JSON object", field=field, got=text)
    return value


def show_log(*names: str) -> None:
    """Shows the INFO records of these loggers: who connects and disconnects."""
    for name in names:
        logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setLevel(min(handler.level, logging.INFO))


def cannot_listen(host: str, port: int, error: OSError, cure: str) -> ConfigurationError:
    """The error for an address that cannot be listened on."""
    return ConfigurationError(f"cannot listen on {host}:{port}", field="port", got=str(error), cure=cure)
