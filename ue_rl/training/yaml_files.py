"""YAML files that people write: a mapping, or an error that says in one line what is wrong."""

from __future__ import annotations

import errno
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.files import require_file

# of a file; with aliases a short one can say more than memory holds
_MOST_BYTES = 1 << 20
_MOST_VALUES = 1_000_000


def read_mapping(path: Path, field: str) -> dict[Any, Any]:
    """What the file `path` says.

    Raises:
        ConfigurationError: not readable, not YAML or not a mapping; it names `field`.
    """
    try:
        require_file(path)
        if path.stat().st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, "longer than 1 MiB", str(path))
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", field=field, got=str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text in UTF-8", field=field, got=str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of month 13, a number of 5000 digits
        raise ConfigurationError(f"{path} is not YAML", field=field, got=in_one_line(error)) from error
    waiting = [content]
    values = 0
    while waiting and values < _MOST_VALUES:
        each = waiting.pop()
        parts: Collection[Any]
        if isinstance(each, dict):
            parts = each.values()
        elif isinstance(each, list):
            parts = each
        else:
            parts = ()
        values += len(parts)
        waiting += parts
    if waiting:
        raise ConfigurationError(f"{path} has an alias within itself, or too many", field=field, cure="write it out")
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} is not a YAML mapping", field=field, got=type(content).__name__)
    return content


def in_one_line(error: Exception) -> str:
    """What YAML says is wrong."""
    return " ".join(str(error).split())
