"""What the value of an option may be: the kinds that the table of options.py names."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ue_rl.connections.dialling import address_of
from ue_rl.connections.engines.restarts import FORM as RESTARTS_FORM
from ue_rl.connections.engines.restarts import restarts_text
from ue_rl.system.durations import duration_text, read_duration
from ue_rl.system.errors import ConfigurationError

LOG_TARGETS = ("tensorboard", "wandb", "mlflow")  # each is also the name of the package that it needs


class OptionKind(NamedTuple):
    """What the value of an option may be.

    Attributes:
        words: what is allowed; fits: is it that?
        flag: what click reads one word as: a type, or a tuple of choices.
        read: the value of what a person writes; raises ValueError. shown: what a person would write for a value.
        metavar: of its flag.
        of_flag: the value of (its name, what click has read: one word, or a tuple where it may be given several
            times), where that is something else; raises ConfigurationError.
    """

    words: str
    fits: Callable[[Any], bool]
    flag: Any = str
    read: Callable[[Any], Any] | None = None
    shown: Callable[[Any], str] = str
    metavar: str | None = None
    of_flag: Callable[[str, Any], Any] | None = None


def _whole(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(value: Any) -> bool:
    return _text(value) or (isinstance(value, (list, tuple)) and bool(value) and all(map(_text, value)))


def _reads(read: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Whether a value is one that `read` takes."""

    def fits(value: Any) -> bool:
        try:
            read(value)
        except (TypeError, ValueError):
            return False
        return True

    return fits


def log_targets(value: Any) -> list[str]:
    """The names in "wandb,tensorboard", or in a list; [] of "none".

    Raises:
        ValueError: one is none of LOG_TARGETS.
    """
    if isinstance(value, str):
        names = [part.strip() for part in value.split(",")]
    else:
        names = list(value)
    if names == ["none"]:
        return []
    if not names or not set(names) <= set(LOG_TARGETS):
        raise ValueError(value)
    return names


def _read_urls(value: Any) -> Any:
    """Each in its canonical form; raises ConfigurationError for what is none."""
    if not _texts(value):
        raise ValueError(value)
    if isinstance(value, str):
        return str(address_of(value))
    return [str(address_of(url)) for url in value]


def named_of(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """What "module:Class", {"module:Class": {ARGUMENT: VALUE}} or a list of these names, each with its arguments.

    module.Class means the same. The mapping may be a text in JSON, as flags have it.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return named_of(json.loads(value))  # its JSONDecodeError is a ValueError
    if isinstance(value, str) and re.fullmatch(r"[^\W\d]\w*(\.\w+)*[.:][\w.]+", value.strip()):
        module, _, name = value.strip().partition(":")
        if name:
            class_name = value.strip()
        else:
            class_name = ":".join(module.rpartition(".")[::2])
        return [(class_name, {})]
    if isinstance(value, Mapping) and value and all(isinstance(given, Mapping | None) for given in value.values()):
        return [(named_of(name)[0][0], dict(given or {})) for name, given in value.items()]
    if isinstance(value, (list, tuple)) and value:
        return [each for part in value for each in named_of(part)]
    raise ValueError(value)


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
            "not a parameter", field="param", expected="NAME=VALUE or NAME=LOW..HIGH", got=text
        ) from None
    return name, numbers if len(numbers) == 2 else numbers[0]


def _params_given(name: str, given: tuple[str, ...]) -> dict[str, Any]:
    return dict(parse_param(text) for text in given)


def _json_mapping(name: str, given: str) -> dict[str, Any]:
    try:
        value = json.loads(given)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationError("not a JSON object", field=name, got=given)
    return value


def _all_given(name: str, given: tuple[str, ...]) -> list[str]:
    return list(given)


def text(metavar: str) -> OptionKind:
    """Any text that is not blank."""
    return OptionKind("text", _text, metavar=metavar)


def _one_of(*words: str) -> OptionKind:
    return OptionKind(", ".join(words), lambda value: value in words, words)


POSITIVE = OptionKind("a positive integer", _whole(1), int)
COUNT = OptionKind("an integer from 0", _whole(0), int)
SEED = OptionKind("an integer from 0 to 2**32 - 1", _whole(0, 2**32 - 1), int)
NUMBER = OptionKind("a number from 0", _number, float)
_DURATION: dict[str, Any] = {"read": read_duration, "shown": duration_text, "metavar": "DURATION"}
DEADLINE = OptionKind("a duration above 0, such as 30s", lambda value: _number(value) and value > 0, **_DURATION)
SECONDS = OptionKind("a duration from 0, such as 30s", _number, **_DURATION)
RESTARTS = OptionKind(RESTARTS_FORM, _reads(restarts_text), read=restarts_text, metavar="TIMES/WINDOW")
SWITCH = OptionKind("true or false", lambda value: isinstance(value, bool), bool)
NORMALIZE = OptionKind(
    "true or false, or arguments of VecNormalize", lambda value: isinstance(value, (bool, Mapping)), flag=bool
)
RETURN = OptionKind(
    "a number",
    lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value),
    float,
    metavar="RETURN",
)
NAMED = OptionKind(
    "module:Class, {module:Class: {ARGUMENT: VALUE}}, or a list of these",
    _reads(named_of),
    metavar="MODULE:CLASS",
    of_flag=_all_given,
)
TRANSPORT = _one_of("auto", "tcp", "shm")
LEARNER = _one_of("auto", "torch", "numpy")
CHANNEL = OptionKind(
    "auto, shared, per-env",
    lambda value: value in ("auto", "shared", "per_env"),
    ("auto", "shared", "per-env"),
    read=lambda value: value.replace("-", "_") if isinstance(value, str) else value,
)
ADDRESS = OptionKind(
    "PORT, or HOST:PORT",
    lambda value: isinstance(value, str) and value.rpartition(":")[2].isdecimal(),
    read=lambda value: str(value) if _whole(0, 65535)(value) else value,
    metavar="PORT",
)
LOGS = OptionKind(
    f"none, or of {', '.join(LOG_TARGETS)}, with commas between them", _reads(log_targets), metavar="NAMES"
)
URLS = OptionKind("an address, or a list of them", _texts, read=_read_urls, metavar="URL")
MAPPING = OptionKind(
    "a mapping, {NAME: VALUE}", lambda value: isinstance(value, Mapping), metavar="JSON", of_flag=_json_mapping
)
PARAMETERS = MAPPING._replace(metavar="NAME=VALUE", of_flag=_params_given)
LESSONS = OptionKind("lessons", lambda value: True)  # parse_curriculum says what is wrong
SCALE = OptionKind("a positive number, of which 1 is real time", lambda value: _number(value) and value > 0, float)
