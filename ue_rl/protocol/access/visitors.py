"""Visitors: which requests over HTTP a server answers: none that a page of somebody else's made a browser send. No I/O.

A page that is open in a browser can send requests to 127.0.0.1, too: what listens there is not out of its reach. It
cannot choose what the browser writes into Host, Origin and Sec-Fetch-Site, and must ask before it sends JSON.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ue_rl.protocol.access.server_access import is_local
from ue_rl.system.errors import ConfigurationError, shorten

_NAME = r"\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+"
_HOST = re.compile(rf"({_NAME})(?::\d*)?")
_ORIGIN = re.compile(rf"[a-zA-Z][a-zA-Z0-9+.-]*://({_NAME})(?::\d+)?")
_JSON = re.compile(r"application/(?:[a-z0-9.+-]+\+)?json")
_SCHEME = "Bearer"
_READS = ("GET", "HEAD", "OPTIONS")
_FORMS = ("POST",)  # what a form of a page can send; before any other method a browser asks (CORS)
_CURE = (
    "if this is a page or a proxy of yours, start the server with its name: --allow-host NAME, in Python allow_hosts"
)


class Refusal(NamedTuple):
    """Why a request is not answered.

    Attributes:
        status: of HTTP. reason: a sentence, for who has sent it and for the log.
    """

    status: int
    reason: str


class Visitors:
    """Who may ask a server.

    Args:
        local: it listens on this machine alone: other names than this machine's are refused in Host.
        names: host names that may stand in Host and in Origin beside "localhost" and loopback addresses.
        token: what each request must bring, as `Authorization: Bearer TOKEN`; None: nothing.
        cure: what to do where a request is refused for its host or its page.

    Raises:
        ConfigurationError: one of `names` is no host name, or the token cannot stand in a header.
    """

    def __init__(self, local: bool, names: Collection[str] = (), token: bytes | None = None, cure: str = _CURE) -> None:
        for name in names:
            if re.fullmatch(_NAME, name) is None:
                raise ConfigurationError(
                    "not the name of a host",
                    field="allow_hosts",
                    expected="such as game.example",
                    got=name,
                    cure="leave out the scheme and the port",
                )
        self._local = local
        self._cure = cure
        self._names = {_plain(name) for name in names}
        if token is None:
            self._proof = None
        else:
            self._proof = bearer(token)

    def refusal(self, method: str, headers: Iterable[tuple[str, str]]) -> Refusal | None:
        """Why a request is not answered; None: it is.

        Args:
            method: of HTTP; of a WebSocket GET. headers: names in any case, and values.
        """
        said: dict[str, list[str]] = {}
        for name, value in headers:
            said.setdefault(name.lower(), []).append(value.strip())
        found = self._foreign(said) or self._foreign_type(method, said)
        if found is not None:
            return found
        if method.upper() == "OPTIONS" and "access-control-request-method" in said:
            return None  # a browser asks whether its page may ask, and shows no token with that
        reason = self.unproved(said.get("authorization", []))
        if reason is None:
            return None
        return Refusal(401, reason)

    def unproved(self, shown: Collection[str]) -> str | None:
        """What is wrong with the values of the header Authorization; None: nothing, or no token is asked for."""
        if self._proof is None:
            return None
        if not shown:
            return "this server asks for a token, and none was given: Authorization: Bearer TOKEN"
        given = [_normal(value).encode() for value in shown]
        if len(given) == 1 and hmac.compare_digest(given[0], self._proof.encode()):
            return None
        return "this is not the token of this server"

    def _foreign(self, said: dict[str, list[str]]) -> Refusal | None:
        hosts = said.get("host", [])
        names = [_name_in(_HOST, host) for host in hosts]
        if self._local and not (len(names) == 1 and self._knows(names[0])):
            got = shorten(", ".join(hosts)) or "none"
            return Refusal(421, f"it asks for the host {got}, and this server is for this machine alone; {self._cure}")
        origins = said.get("origin", [])
        for origin in origins:
            page = "null"
            if origin != "null":
                page = _name_in(_ORIGIN, origin)
            # behind a name of its own a server's pages are those of this name
            own = not self._local and page != "" and names == [page]
            if not own and not self._knows(page):
                return Refusal(403, f"a page of {shorten(origin) or 'nobody'} has sent it; {self._cure}")
        # a browser says no Origin where a page loads a picture or a script; of an address typed or clicked it says
        # "navigate": that one is the user's own doing
        site = said.get("sec-fetch-site", [])
        mode = said.get("sec-fetch-mode", [])
        if not origins and "cross-site" in site and "navigate" not in mode:
            return Refusal(403, f"a page of elsewhere has sent it; {self._cure}")
        return None

    def _foreign_type(self, method: str, said: dict[str, list[str]]) -> Refusal | None:
        if method.upper() in _READS:
            return None
        kinds = [kind for kind in said.get("content-type", []) if kind]
        # without a word on it: a page can send that, too, but not without its Origin
        unasked = "origin" in said and method.upper() in _FORMS and said.get("content-length") != ["0"]
        silent = not kinds and not unasked
        right = [_JSON.fullmatch(kind.partition(";")[0].strip().lower()) is not None for kind in kinds]
        if silent or (right and all(right)):
            return None
        got = shorten(", ".join(kinds)) or "none"
        return Refusal(415, f"its content type is {got}; expected Content-Type: application/json")

    def _knows(self, name: str) -> bool:
        return name in self._names or is_local(name.strip("[]"))


def bearer(token: bytes) -> str:
    """The value of the header Authorization for a token.

    Raises:
        ConfigurationError: it cannot stand in a header.
    """
    if not re.fullmatch(rb"[ -~]+", token):
        raise ConfigurationError(
            "this token cannot stand in a header",
            field="token_file",
            expected="printable ASCII",
            cure="make one: openssl rand -hex 32",
        )
    return f"{_SCHEME} {token.decode('ascii')}"


def _normal(value: str) -> str:
    """With the name of the scheme as `bearer` writes it: any case will do."""
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() == _SCHEME.lower():
        return f"{_SCHEME} {rest.strip()}"
    return value


def _name_in(form: re.Pattern[str], text: str) -> str:
    """The host name in a header; "": there is none."""
    found = form.fullmatch(text)
    if found is None:
        return ""
    return _plain(found[1])


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")
