"""From an address to a connected transport: what the schemes of engines' URLs mean, and who dials them.

tcp://HOST:PORT    the engine's text protocol; upgraded to shared memory where both sides can (transport="auto")
tls://HOST:PORT    the same text within TLS
shm://NAME         an engine's shared memory, by name or by the path of a file; shm:// alone: $LUCKY_SHM_NAME

Plug-ins add schemes: grpc://HOST:PORT, grpcs://HOST:PORT (ue_rl/plugins/sessions/grpc/client/carriers.py). Behind a "?"
stand options of the connection: tcp://HOST:PORT?channel=per-env (connections/base/address.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from ue_rl.connections.base.address import Address, Scheme, host_and_port, named, read_address, split_place
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.engines.url_engine import UrlEngine
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.plugins import load_plugin, plugins

if TYPE_CHECKING:
    from ue_rl.connections.engines.lifecycle import Listener


class Hosting(NamedTuple):
    """How `ue-rl serve` hosts a bridge at an address.

    Attributes:
        function: MODULE:FUNCTION; FUNCTION(bridge, ready=.., tick_rate=.., **arguments) serves until a signal comes.
        place: as Scheme.place, where one listens.
        arguments: of the function, for such a place.
        takes: further ones that it has: "upgrader" (offers shared memory), "access" (TLS and tokens).
    """

    function: str
    place: Callable[[str], str]
    arguments: Callable[[str], dict[str, Any]]
    takes: tuple[str, ...] = ()


class SchemeHandler(NamedTuple):
    """What the addresses of one scheme mean, to both sides.

    Attributes:
        scheme: how they are written.
        dial: MODULE:FUNCTION, imported when such an address is dialled; FUNCTION(place, transport, **options) is a
            connected transport. It gets the options of `connect` that the address or the caller names; those that its
            carrier has no use for are its to leave out or to refuse.
        hosting: the engine's side; None: `ue-rl serve` has none.
        text_at: the socket's address on which such a place speaks plain text; None: it speaks something else.
        text_through: MODULE:FUNCTION; FUNCTION(place, **options) is a context in which something speaks plain text for
            such a place, and gives the socket's address of that; "": there is none.
        kept: MODULE:FUNCTION; FUNCTION(place, **options) is a context for who dials again after a loss: it is open from
            before the first connection to the end, and holds what must stay between two of them; "": nothing must.
    """

    scheme: Scheme
    dial: str
    hosting: Hosting | None = None
    text_at: Callable[[str], tuple[str, int]] | None = None
    text_through: str = ""
    kept: str = ""

    def load(self, what: str) -> Callable[..., BaseTransport]:
        """The function; raises MissingPackage: `what` lacks an extra."""
        with named_if_missing(what):
            function: Callable[..., BaseTransport] = resolve_name(self.dial)
        return function


DEADLINES = ("timeout", "connect_timeout", "wait")
_TEXT = ("channel", "nul_terminated", "token_file", *DEADLINES)
CARRIERS = {
    "tcp": SchemeHandler(
        Scheme("tcp://HOST:PORT", "tcp://127.0.0.1:7777", host_and_port, ("transport", *_TEXT)),
        "ue_rl.connections.opening:dial_tcp",
        Hosting(
            "ue_rl.bridges:serve",
            partial(host_and_port, lowest=0),
            lambda place: dict(zip(("host", "port"), split_place(place, 0), strict=True)),
            ("upgrader", "access"),
        ),
        text_at=split_place,
    ),
    "tls": SchemeHandler(
        Scheme("tls://HOST:PORT", "tls://10.0.0.5:7777?ca=ours.pem", host_and_port, (*_TEXT, "ca", "cert", "key")),
        "ue_rl.connections.opening:dial_tls",
    ),
    "shm": SchemeHandler(
        Scheme("shm://NAME", "shm://arena", str, DEADLINES),
        "ue_rl.connections.shm.dialling:dial",
        Hosting("ue_rl.bridges:serve_shm", named, lambda place: {"name": place}),
    ),
}  # those of plug-ins: entry points of the group ue_rl.carriers


def carriers() -> dict[str, SchemeHandler]:
    """All of them by scheme, those of plug-ins too, which are imported for it."""
    return CARRIERS | {scheme: load_plugin("ue_rl.carriers", scheme) for scheme in plugins("ue_rl.carriers")}


def carriers_for(url: str) -> dict[str, SchemeHandler]:
    """Among which the scheme of an address is looked for: those of plug-ins only where it is none of the core's."""
    scheme, colon, _ = url.strip().partition("://")
    if scheme in CARRIERS or not colon:
        return CARRIERS
    return carriers()


def handler_of(scheme: str) -> SchemeHandler:
    """The handler of a scheme that `address_of` has read."""
    own = CARRIERS.get(scheme)
    if own is None:
        own = load_plugin("ue_rl.carriers", scheme)
    return own


def address_of(url: str) -> Address:
    """What an engine's URL says; nothing is dialled; raises ConfigurationError: names the part of it that is wrong."""
    if not isinstance(url, str):
        raise ConfigurationError(
            "an engine's address is a text", field="url", expected="such as tcp://127.0.0.1:7777", got=repr(url)
        )
    return read_address(url, {name: handler.scheme for name, handler in carriers_for(url).items()})


def dial(address: Address, transport: str = "auto", **options: Any) -> BaseTransport:
    """A connected transport; what the address says itself goes before the arguments, which are those of `connect`."""
    function = handler_of(address.scheme).load(f"{address.scheme}://")
    return function(address.place, **{"transport": transport, **options, **address.options})


def keep(address: Address, **options: Any) -> AbstractContextManager[object]:
    """See SchemeHandler.kept; the options are those of `dial`."""
    handler = handler_of(address.scheme)
    if not handler.kept:
        return nullcontext()
    with named_if_missing(f"{address.scheme}://"):
        function: Callable[..., AbstractContextManager[object]] = resolve_name(handler.kept)
    return function(address.place, **{**options, **address.options})


def open_transport(
    url: str | Sequence[str],
    transport: str = "auto",
    *,
    reconnect: float = 0.0,
    restarts: str | int = "10/60s",
    on_change: Listener | None = None,
    **options: Any,
) -> BaseTransport:
    """A connected transport for `url`; the arguments as for `connect`."""
    if not reconnect and restarts != "10/60s":
        what = "restarts says how often a lost engine is dialled again, and none is"
        raise ConfigurationError(what, field="restarts", got=restarts, cure="give reconnect=60.0 too, or leave it out")
    if isinstance(url, str) and not reconnect and on_change is None:
        return dial(address_of(url), transport, **options)
    from ue_rl.connections.engines.restarts import Restarts
    from ue_rl.connections.engines.transport import EnginesTransport

    urls: list[Any] = [url]
    if isinstance(url, Iterable) and not isinstance(url, (str, bytes)):
        urls = list(url)
    engines = url_engines(urls, transport, reconnect=reconnect, **options)
    quota = None
    if reconnect:
        quota = Restarts.of(restarts)
    connection = EnginesTransport(engines, restarts=quota, on_change=on_change)
    connection.connect()
    return connection


def url_engines(
    urls: Sequence[str], transport: str = "auto", *, reconnect: float = 0.0, **options: Any
) -> list[UrlEngine]:
    """The engines at these addresses, none of which has been dialled yet; arguments and errors as for `connect`."""
    addresses = [address_of(url) for url in urls]  # raises, before the first one is dialled
    named = [address.url for address in addresses]
    twice = next((url for n, url in enumerate(named) if url in named[:n]), None)
    if twice is not None:
        raise ConfigurationError(
            "an engine serves one trainer, over one connection",
            field="url",
            expected="each address once",
            got=twice,
            cure="start a second engine on another port",
        )

    def engine_at(address: Address) -> UrlEngine:
        def dial_it(wait: float | None, connect_timeout: float | None) -> BaseTransport:
            if wait is None:
                return dial(address, transport, **options)
            again = Address(*address[:2], {**address.options, "wait": wait, "connect_timeout": connect_timeout})
            return dial(again, transport, **options)

        return UrlEngine(address.url, dial_it, reconnect, partial(keep, address, **options))

    return list(map(engine_at, addresses))
