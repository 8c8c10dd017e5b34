"""PageConnection: text over the WebSocket of a page that dials; the rest is the connection over TCP."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from ue_rl.connections.tcp.connection import TcpConnection
from ue_rl.connections.tcp.greeting import hear_handshake
from ue_rl.connections.tcp.link import Link
from ue_rl.connections.tcp.wirings import Wiring
from ue_rl.plugins.web.browser import opened
from ue_rl.plugins.web.page_port import PLAIN, PagePort, PortSetup
from ue_rl.plugins.web.page_socket import PageSocket
from ue_rl.plugins.web.row_wiring import RowWiring
from ue_rl.plugins.web.rows import RowCodec
from ue_rl.protocol.access.client_access import ClientAccess
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import MAX_HANDSHAKE
from ue_rl.system.errors import EngineDisconnected, EngineTimeout, HandshakeError

PATIENCE = 300.0  # seconds for somebody to open the page, where the caller names none


class PageConnection(TcpConnection):
    """See the module's docstring.

    Args:
        host, port: where pages dial. name: of the place there for one page; "": the first free one.
        setup: of the port. browser: "open": the user's own shows its page, "headless": a Chromium; None: none does.
        wait: seconds to wait for a page; 0: five minutes. timeout, connect_timeout, compiled: see TcpConnection.
        access: the token of this side; None: it has none.

    Raises:
        ConfigurationError: an invalid argument.
    """

    carries = "text over a page's WebSocket"
    _types = (EnvType.MULTI, EnvType.SINGLE)

    def __init__(
        self,
        host: str,
        port: int,
        name: str = "",
        *,
        setup: PortSetup = PLAIN,
        browser: str | None = None,
        timeout: float = 30.0,
        connect_timeout: float | None = None,
        wait: float = 0.0,
        compiled: bool | None = None,
        access: ClientAccess | None = None,
    ) -> None:
        super().__init__(
            host,
            port,
            channel="shared",
            timeout=timeout,
            connect_timeout=connect_timeout,
            wait=wait or PATIENCE,
            compiled=compiled,
            nul_terminated=False,
            access=access,
        )
        self.name = name
        self._setup = setup
        self._how = browser
        self._port: PagePort | None = None
        self._page: PageSocket | None = None
        self._browser = ExitStack()

    def _shake_hands(self) -> tuple[Link, EnvSpec]:
        """Waits for a page, and hears it; one that goes away before it has said a word makes room for the next one."""
        self._port = PagePort.at(self.host, self.port, self.name, self._setup)
        token = None
        if self._access is not None:
            token = self._access.token
        look = self._browser.enter_context(opened(self._how, self._port.page(self.name), token))
        until = time.monotonic() + self.wait
        while True:
            page = self._port.take(self.name, until, look)
            try:
                return self._greet(page, until)
            except EngineDisconnected as error:
                page.close()
                if not error.unheard or time.monotonic() >= until:
                    raise
            except BaseException:  # Ctrl-C among them
                page.close()
                raise

    def _greet(self, page: PageSocket, until: float) -> tuple[Link, EnvSpec]:
        sock: Any = page  # what Link and ClientAccess use of a socket it has
        if self._access is not None:
            sock = self._access(sock, self.host, self.port, time.monotonic() + self.connect_timeout)
        link = Link(sock, MAX_HANDSHAKE)
        self._page = page
        try:
            return link, hear_handshake(link, self.connect_timeout, until)
        except EngineTimeout as error:
            raise HandshakeError(
                "a page has dialled, and sent no handshake",
                expected=f"CONFIG:.. within {self.connect_timeout:g} s",
                got=error.got,
                cure="its console may say why; and is it a page of ue_rl.js, with the token, if there is one?",
            ) from error

    def _choose(self, admin: Link, spec: EnvSpec) -> Wiring:
        """See TcpConnection; with binary steps where the page announced them."""
        wiring = super()._choose(admin, spec)
        if self._page is None or self._numbers is None or not RowCodec.carries(spec):
            return wiring
        return RowWiring(self._page, admin, self._codec, self.buffers, self._numbers)

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        carrier = "websocket of a page"
        if self._setup.cert:
            carrier += " with tls"
        return {**super().describe(), "transport": carrier}

    def _ended(self, error: EngineDisconnected) -> EngineDisconnected:
        """See TcpConnection; the log of a page is the browser's."""
        if error.field != "ERROR":
            error.cure = (
                "was it reloaded, closed, or frozen in a hidden tab? Its browser's console may say more; "
                "reconnect= waits for it again"
            )
        return error

    def _drop(self) -> None:
        super()._drop()
        port = self._port
        self._port = None
        self._page = None
        if port is not None:
            port.leave(self.name)
        self._browser.close()
