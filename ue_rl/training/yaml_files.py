"""YAML files that people write: a mapping, or an error that says in one line what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ue_rl.errors import ConfigurationError
from ue_rl.system.files import require_file


def read_mapping(path: Path, field: str) -> dict[Any, Any]:
    """What the file `path` says.

    Raises:
        ConfigurationError: not readable, not YAML or not a mapping; it names `field`.
    """
    try:
        require_file(path)
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read", field=field, got=str(error)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not text in UTF-8", field=field, got=str(error)) from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML", field=field, got=in_one_line(error)) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} is not a YAML mapping", field=field, got=type(content).__name__)
    return content


def in_one_line(error: yaml.YAMLError) -> str:
    """What YAML says is wrong."""
    return " ".join(str(error).split())
