"""Options that are one word of the command line: `--set KEY=VALUE` and `--param NAME=LOW..HIGH`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import yaml

from ue_rl.errors import ConfigurationError


def in_one_line(error: yaml.YAMLError) -> str:
    """What YAML says is wrong."""
    return " ".join(str(error).split())


def parse_setting(text: str) -> tuple[str, Any]:
    """("gamma", 0.98) of "gamma=0.98"; the value is YAML.

    Raises:
        ConfigurationError: no "=", or a value that is not YAML.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigurationError("not a setting", field="set", expected="KEY=VALUE", got=text)
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigurationError(
            "not a value", field=f"set {key.strip()}", expected="a number, a word, or YAML such as {net_arch: [64]}",
            got=value, cure=f"YAML says: {in_one_line(error)}",
        ) from error  # fmt: skip
    if isinstance(parsed, str):
        with suppress(ValueError):
            parsed = float(parsed)  # YAML reads 3e-4 as text
    return key.strip(), parsed


def parse_param(text: str) -> tuple[str, Any]:
    """("gravity", 3.0) of "gravity=3"; ("wind", [0.0, 2.0]) of "wind=0..2".

    Raises:
        ConfigurationError: neither of the two.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    try:
        if not equals or not name:
            raise ValueError
        numbers = [float(number) for number in value.split("..")]
        if not 1 <= len(numbers) <= 2:
            raise ValueError
    except ValueError:
        raise ConfigurationError(
            "not a parameter", fault="caller", field="param", expected="NAME=VALUE or NAME=LOW..HIGH", got=text
        ) from None
    return name, numbers if len(numbers) == 2 else numbers[0]
