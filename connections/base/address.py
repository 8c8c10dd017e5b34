"""Addresses of engines, read: SCHEME://PLACE?KEY=VALUE&KEY=VALUE. What a scheme means is
ue_rl.connections.dialling.CARRIERS.

tcp://127.0.0.1:7777                       HOST, HOST:PORT and [IPv6]:PORT mean the same without "tcp://"
tcp://10.0.0.5:7777?channel=per-env&timeout=2min
tls://10.0.0.5:7777?ca=ours.pem&token-file=token
shm://arena
grpc://127.0.0.1:9999?num-envs=64

The keys are arguments of ue_rl.connect, for this engine alone; "-" and "_" are the same in them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ue_rl.system.durations import FORM, duration_text, read_duration
from ue_rl.system.errors import ConfigurationError, nearest

DEFAULT_PORT = 7777
TRANSPORTS = ("auto", "tcp", "shm")  # what the text of tcp:// may be upgraded to
_HOST = re.compile(r"[^\s/\\@#?&%\[\]]+")  # {worker_index} may be a part of it


class Scheme(NamedTuple):
    """What may stand behind "SCHEME://".

    Attributes:
        form: for people. example: a right one.
        place: the canonical form of what stands there; raises WrongPart.
        keys: which options its addresses may have.
        readers: of those keys that no other scheme has: the value of a text; raises WrongPart.
    """

    form: str
    example: str
    place: Callable[[str], str]
    keys: tuple[str, ...]
    readers: Mapping[str, Callable[[str], Any]] = MappingProxyType({})


class WrongPart(ValueError):
    """Says what is wrong with which part of an address, and perhaps a cure."""

    def __init__(self, text: str, cure: str | None = None) -> None:
        super().__init__(text)
        self.cure = cure


class Address(NamedTuple):
    """An address, read.

    Attributes:
        scheme: such as "tcp". place: HOST:PORT, or a name. options: arguments of the connection.
    """

    scheme: str
    place: str
    options: Mapping[str, Any]

    @property
    def url(self) -> str:
        """Without its options: whom it names."""
        return f"{self.scheme}://{self.place}"

    def __str__(self) -> str:
        told = "&".join(f"{key.replace('_', '-')}={_written(key, value)}" for key, value in self.options.items())
        if told:
            return f"{self.url}?{told}"
        return self.url


def read_address(text: str, schemes: Mapping[str, Scheme]) -> Address:
    """Reads an address; without a scheme it is the first of `schemes`.

    Raises:
        ConfigurationError: names the part that is wrong, and shows a right address.
    """
    words, _, query = text.strip().partition("?")
    name, colon, place = words.partition("://")
    if not colon:
        name = next(iter(schemes))
        place = words
    scheme = schemes.get(name)
    if scheme is None:
        forms = " or ".join(each.form for each in schemes.values())
        cure = nearest(name, schemes)
        if not cure:
            cure = f"a right one: {next(iter(schemes.values())).example}"
        raise _wrong(text, f"it cannot begin with {name}://", forms, cure)
    try:
        return Address(name, scheme.place(place), _options(query, scheme))
    except WrongPart as wrong:
        raise _wrong(text, str(wrong), scheme.form, wrong.cure or f"a right one: {scheme.example}") from None


def _wrong(text: str, why: str, expected: str, cure: str) -> ConfigurationError:
    return ConfigurationError(
        f"not an address of an engine: {why}", field="url", expected=expected, got=text, cure=cure
    )


def named(place: str) -> str:
    """`place`, a name, which must be given where one serves."""
    if not place:
        raise WrongPart("its name is missing")
    return place


def split_place(place: str, lowest: int = 1) -> tuple[str, int]:
    """("::1", 7777) of "[::1]:7777"; without a port 7777.

    Args:
        lowest: port number that is allowed; 0 where one listens, and the system chooses.

    Raises:
        WrongPart: no host, or no such port.
    """
    whole = place.removesuffix("/")
    if whole.startswith("["):
        host, bracket, rest = whole[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise WrongPart("an IPv6 address ends with ], and :PORT follows")
        port = None
        if rest:
            port = rest[1:]
    elif whole.count(":") > 1:
        # IPv6 has colons of its own
        host = whole
        port = None
    else:
        host, colon, behind = whole.partition(":")
        port = None
        if colon:
            port = behind
    if port is None and host.isdecimal():
        raise WrongPart(f"{host} is a port, and the host is missing", f"a right one: tcp://127.0.0.1:{host}")
    if not _HOST.fullmatch(host):
        problem = "its host is missing"
        if host:
            problem = f"its host cannot be {host!r}"
        raise WrongPart(problem)
    if port is None:
        number = DEFAULT_PORT
    else:
        number = _whole(port)
    if not lowest <= number < 65_536:
        raise WrongPart(f"its port must be a number from {lowest} to 65535, not {port!r}")
    return host, number


def host_and_port(place: str, lowest: int = 1) -> str:
    """`place` with brackets around IPv6, and a port; `lowest` and errors as `split_place`."""
    host, port = split_place(place, lowest)
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def _one_of(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in words:
            raise WrongPart(" or ".join(word.replace("_", "-") for word in words))
        return value

    return read


def _switch(value: str) -> bool:
    if value not in ("yes", "no", "true", "false"):
        raise WrongPart("yes or no")
    return value in ("yes", "true")


def _duration(value: str) -> float:
    try:
        return read_duration(value)
    except ValueError:
        raise WrongPart(FORM) from None


def _whole(text: str) -> int:
    """-1 for what is no number of up to 18 digits, which no option needs."""
    if text.isdecimal() and text.isascii() and len(text) <= 18:
        return int(text)
    return -1


def _count(value: str) -> int:
    number = _whole(value)
    if number < 1:
        raise WrongPart("a whole number from 1 on")
    return number


def _file(value: str) -> Path:
    if not value:
        raise WrongPart("the name of a file")
    return Path(value)


_READERS: dict[str, Callable[[str], Any]] = {
    "transport": _one_of(*TRANSPORTS),
    "channel": _one_of("auto", "shared", "per_env"),
    "nul_terminated": _switch,
    "num_envs": _count,
    "ticks": _count,
    "timeout": _duration,
    "connect_timeout": _duration,
    "wait": _duration,
    "token_file": _file,
    "ca": _file,
    "cert": _file,
    "key": _file,
}
_WORDS = ("transport", "channel")  # "-" and "_" are the same in them


def _options(query: str, scheme: Scheme) -> dict[str, Any]:
    """The arguments of ue_rl.connect in KEY=VALUE&KEY=VALUE; raises WrongPart."""
    keys = scheme.keys
    readers = {**_READERS, **scheme.readers}
    found: dict[str, Any] = {}
    for setting in filter(None, query.split("&")):
        word, equals, value = setting.partition("=")
        key = word.replace("-", "_")
        if key not in keys:
            allowed = [name.replace("_", "-") for name in keys]
            there_are = "it has no options"
            if keys:
                there_are = f"its options are {', '.join(allowed)}"
            raise WrongPart(f"{word!r} cannot stand behind the ?; {there_are}", nearest(word, allowed))
        if key in found:
            raise WrongPart(f"{word} is there twice")
        try:
            found[key] = readers[key](value.replace("-", "_") if key in _WORDS else value)
        except WrongPart as wanted:
            if equals:
                problem = f"{word} must be {wanted}, not {value!r}"
            else:
                problem = f"{word} has no value"
            raise WrongPart(problem) from None
    return found


def _written(key: str, value: Any) -> str:
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, (int, Path)):
        return str(value)
    if isinstance(value, str):
        if key in _WORDS:
            return value.replace("_", "-")
        return value
    return duration_text(value)


def refuse_given(options: dict[str, Any], names: Iterable[str], why: str) -> None:
    """Takes what a carrier has no use for out of `options`; None and False say that it was not given.

    Raises:
        ConfigurationError: one of them was given.
    """
    for name in names:
        value = options.pop(name, None)
        if value is not None and value is not False:
            cure = "leave it out, or dial the engine's tcp:// or tls:// address"
            raise ConfigurationError(f"{name} has no effect here: {why}", field=name, got=value, cure=cure)
