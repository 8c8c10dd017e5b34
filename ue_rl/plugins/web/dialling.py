"""page://HOST:PORT/NAME: what such an address means."""

from __future__ import annotations

from contextlib import AbstractContextManager
from os import PathLike
from typing import Any

from ue_rl.connections.base.address import refuse_given, split_place
from ue_rl.plugins.web.carriers import BROWSERS
from ue_rl.plugins.web.connection import PageConnection
from ue_rl.plugins.web.page_port import PagePort, PortSetup
from ue_rl.protocol.access.client_access import ClientAccess
from ue_rl.system.errors import ConfigurationError


def dial(
    place: str,
    transport: str,
    *,
    origin: str = "",
    serve: str | PathLike[str] | None = None,
    browser: str | None = None,
    token_file: str | PathLike[str] | None = None,
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    **options: Any,
) -> PageConnection:
    """A connected transport, once a page has dialled.

    Args:
        place: HOST:PORT or HOST:PORT/NAME. origin: of pages of other servers that may be the engine, with commas
            between them. serve: a folder, or a page and what lies beside it. browser: shows that page; "open": the
            user's own, "headless": a Chromium, None: none. token_file: a secret of both sides. cert, key: with them
            pages are served and dial over TLS (https, wss); ca: whose certificates browsers must show.
        options: those of PageConnection, and what `connect` has beside them.

    Raises:
        ConfigurationError: a transport or a wiring, or a file that cannot be used. Also what PageConnection raises.
    """
    if transport != "auto" or options.pop("channel", "auto") not in ("auto", "shared"):
        raise ConfigurationError("this address is a page's", field="transport", expected="'auto'", got=transport)
    refuse_given(options, ("nul_terminated",), "a page speaks text within a WebSocket")
    if browser is not None and (browser not in BROWSERS or serve is None):
        raise ConfigurationError(
            "a browser is shown a page that is served here",
            field="browser",
            expected=" or ".join(BROWSERS),
            got=browser,
            cure="give serve=PATH, too",
        )
    where, _, name = place.partition("/")
    host, port = split_place(where)
    connection = PageConnection(
        host,
        port,
        name,
        setup=PortSetup.of(origin, serve, ca, cert, key, secret=token_file is not None),
        browser=browser,
        access=ClientAccess.of(token_file),
        **options,
    )
    connection.connect()
    return connection


def keep(
    place: str,
    *,
    origin: str = "",
    serve: str | PathLike[str] | None = None,
    token_file: str | PathLike[str] | None = None,
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    **others: Any,
) -> AbstractContextManager[None]:
    """The place stays open between two connections: its page may be reloaded just then, and a browser asks only once.

    Args:
        place, origin, serve, token_file, ca, cert, key: as for `dial`.

    Raises:
        EngineBusy, EngineUnreachable, ConfigurationError: as PagePort.at.
    """
    where, _, name = place.partition("/")
    host, port = split_place(where)
    setup = PortSetup.of(origin, serve, ca, cert, key, secret=token_file is not None)
    return PagePort.kept(host, port, name, setup)
