"""PagePort: where pages dial. It serves their files, lets them in, and hands each to the connection it is for.

One thread takes the connections, and one for each answers its request, which a page may be slow to write. From then on
nobody but the connection uses the page's socket.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from os import PathLike
from pathlib import Path
from typing import ClassVar, NamedTuple

from websockets.datastructures import Headers
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from ue_rl.plugins.web.page_socket import LONGEST, PageSocket
from ue_rl.plugins.web.site import Site, SiteAnswer
from ue_rl.protocol.access.tls import engine_context
from ue_rl.system.errors import ConfigurationError, EngineBusy, EngineUnreachable, words_of
from ue_rl.system.forks import leave_to_parent, notify_of_forks
from ue_rl.system.keepalive import notice_dead_peer

_log = logging.getLogger("ue_rl.connections")

# Codes of WebSocket for applications (4000 to 4999), which samples/web/ue_rl.js knows.
NO_SUCH_PLACE = 4404
TAKEN = 4409
_PATIENCE = 5.0  # seconds for a visitor's request, and for it to take the answer
_MOST_VISITORS = 64  # that are answered at once; browsers open some connections ahead and say nothing on them
_LOOK = 0.25  # seconds between two looks whether the port is closed, or Ctrl-C was pressed
_EVERYWHERE = ("0.0.0.0", "::", "")
_LOOPBACK = ("127.0.0.1", "::1")


class PortSetup(NamedTuple):
    """What a port does beside handing pages on.

    Attributes:
        origins: of pages of other servers that are let in. site: the files that it serves; None: none.
        cert, key: the port speaks TLS by these files; ca: whose certificates browsers must show; "": no such file.
        secret: pages are asked for a token.
    """

    origins: frozenset[str] = frozenset()
    site: Site | None = None
    cert: str = ""
    key: str = ""
    ca: str = ""
    secret: bool = False

    @classmethod
    def of(
        cls,
        origin: str = "",
        serve: str | PathLike[str] | None = None,
        ca: str | PathLike[str] | None = None,
        cert: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        secret: bool = False,
    ) -> PortSetup:
        """One from the options of an address; raises ConfigurationError: there is no page, or no certificate."""
        site = None
        if serve is not None:
            site = Site(Path(serve))
        if cert is None and (key is not None or ca is not None):
            raise ConfigurationError("TLS needs a certificate of this side", field="cert", expected="a PEM file")
        origins = frozenset(filter(None, origin.split(",")))
        files = {name: str(file) for name, file in (("cert", cert), ("key", key), ("ca", ca)) if file is not None}
        return cls(origins, site, secret=secret, **files)

    @property
    def certificates(self) -> tuple[str, str, str]:
        """The files of TLS, in which all that use a port must agree: (cert, key, ca)."""
        return self.cert, self.key, self.ca


PLAIN = PortSetup()


class PagePort:
    """See the module's docstring. `PagePort.at` opens one, and `leave` closes it when the last one has left.

    Args:
        host, port: where it listens. setup: of the first one who uses it.

    Attributes:
        origins: of pages of other servers that are let in. site: the files that it serves; None: none.

    Raises:
        EngineUnreachable: another program listens there, or there is no such host. ConfigurationError: its files
            cannot be used for TLS.
    """

    _all: ClassVar[dict[tuple[str, int], PagePort]] = {}
    _door = threading.Lock()  # for `_all`

    def __init__(self, host: str, port: int, setup: PortSetup) -> None:
        self.host = host
        self.port = port
        self.origins = setup.origins
        self.site = setup.site
        self._setup = setup
        self._tls: ssl.SSLContext | None = None
        self._schemes = ("http", "ws")
        if setup.cert:
            self._tls = engine_context(setup.cert, *(file or None for file in (setup.key, setup.ca)))
            self._schemes = ("https", "wss")
        self._came = threading.Condition()  # for all that follows
        self._names: list[str] = []  # of the places, as they were opened
        self._used: set[str] = set()  # those that have a connection, or are to have one now
        self._kept: set[str] = set()  # those that stay without one, see `kept`
        self._waiting: dict[str, PageSocket] = {}  # by the name of their place, until they are taken
        self._served: dict[str, PageSocket] = {}
        self._closed = False
        self._refused: set[str] = set()  # origins, for the log
        if ":" in host:
            family = socket.AF_INET6
        else:
            family = socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=64)
        except OSError as error:
            raise EngineUnreachable(
                f"nobody can listen on {self.place}",
                fault="caller",
                got=words_of(error),
                cure="does another trainer listen there? Take another port, and have the page dial that one",
            ) from error
        leave_to_parent(self._listener)
        notify_of_forks(self)
        self._listener.settimeout(_LOOK)
        self._thread = threading.Thread(target=self._accept, name=f"ue_rl-page-{port}", daemon=True)

    @property
    def place(self) -> str:
        """HOST:PORT."""
        return f"{written(self.host)}:{self.port}"

    # -- who uses it

    @classmethod
    def at(cls, host: str, port: int, name: str, setup: PortSetup = PLAIN) -> PagePort:
        """The port, opened if need be, with a place of this name for one page.

        Raises:
            EngineBusy: this process has such a place already. EngineUnreachable: see PagePort. ConfigurationError: it
                is open, with other certificates; see also PagePort.
        """
        return cls._claimed(host, port, name, setup, kept=False)

    @classmethod
    @contextmanager
    def kept(cls, host: str, port: int, name: str, setup: PortSetup = PLAIN) -> Iterator[None]:
        """The place stays open within the block: for `at`, which is called once or several times there.

        Raises:
            As `at`.
        """
        here = cls._claimed(host, port, name, setup, kept=True)
        try:
            yield
        finally:
            here._without(here._kept, name)

    @classmethod
    def _claimed(cls, host: str, port: int, name: str, setup: PortSetup, *, kept: bool) -> PagePort:
        """The port, with the place for a connection, or kept: who keeps a place comes before its first connection."""
        with cls._door:
            here = cls._opened(host, port, setup)
            with here._came:
                if kept:
                    here._require_free(name, here._names)
                    here._kept.add(name)
                else:
                    here._require_free(name, here._used)
                    here._used.add(name)
                here._add(name, setup)
            return here

    @classmethod
    def _opened(cls, host: str, port: int, setup: PortSetup) -> PagePort:
        here = cls._all.get((host, port))
        if here is None:
            return cls(host, port, setup)
        if here._setup.certificates != setup.certificates:
            raise ConfigurationError(
                f"the port {here.place} is open already, with another certificate or without one",
                field="cert",
                expected=here._setup.cert or "none",
                got=setup.cert or "none",
            )
        return here

    def _require_free(self, name: str, taken: Container[str]) -> None:
        if name in taken:
            address = f"page://{self.place}/{name}".rstrip("/")
            raise EngineBusy(
                f"this process waits for a page, or has one, at {address}",
                cure="close that env first, or give each page a name: page://HOST:PORT/NAME",
            )

    def _add(self, name: str, setup: PortSetup) -> None:
        if name not in self._names:
            self._names.append(name)
        self.origins |= setup.origins
        self.site = setup.site or self.site
        here = self.host, self.port
        if here not in self._all:
            self._all[here] = self
            self._thread.start()  # not before: a page that dialled at once would find no place

    def leave(self, name: str) -> None:
        """Its connection is over. A place that is not kept ends with it, and with the last one the port."""
        self._without(self._used, name)

    def _without(self, reasons: set[str], name: str) -> None:
        with self._door:
            left = None
            with self._came:
                reasons.discard(name)
                if name not in self._used:
                    self._served.pop(name, None)
                if name in self._names and name not in self._used | self._kept:
                    self._names.remove(name)
                    left = self._waiting.pop(name, None)
                self._came.notify_all()  # a thread that waits for a page there is told
            if left is not None:
                left.close_because(CloseCode.GOING_AWAY, "the trainer has ended")
                left.close()
            if not self._names and not self._closed:
                self._close()

    def _close(self) -> None:
        self._closed = True
        if self._all.get((self.host, self.port)) is self:
            del self._all[self.host, self.port]
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up on Linux; elsewhere it looks
        self._thread.join()
        self._listener.close()

    def forked(self) -> None:
        """In a forked child: the port is its parent's."""
        self._all.clear()

    def take(self, name: str, until: float, look: Callable[[], None] = lambda: None, log: bool = True) -> PageSocket:
        """The page that has dialled for this place, waited for until then (time.monotonic() seconds).

        Args:
            look: called again and again while it is waited for; what it raises ends that. log: say that it is.

        Raises:
            EngineUnreachable: none has come, or the place was left meanwhile.
        """
        told = not log
        with self._came:
            while name in self._used:
                page = self._waiting.pop(name, None)
                if page is not None and page.is_alive():
                    self._served[name] = page
                    return page
                if page is not None:
                    page.close()
                    continue
                left = until - time.monotonic()
                if left <= 0:
                    raise EngineUnreachable(
                        f"no page has dialled {self.url(name)}",
                        cure="open the page in a browser, and look into its console; or wait longer: "
                        "page://HOST:PORT?wait=10min",
                    )
                if not told:
                    told = True
                    _log.warning("%s", self._request(name))
                look()
                self._came.wait(min(left, _LOOK))
        raise EngineUnreachable("the connection was closed while a page was waited for", fault="caller")

    def url(self, name: str) -> str:
        """What a page dials."""
        return f"{self._schemes[1]}://{self.place}/{name}"

    def page(self, name: str) -> str:
        """What a browser of this machine opens, where files are served."""
        if ":" in self.host:
            here = f"[::1]:{self.port}"
        else:
            here = f"127.0.0.1:{self.port}"
        if self.host in _EVERYWHERE:
            place = here
        else:
            place = self.place
        address = f"{self._schemes[0]}://{place}/"
        if name:
            address += f"#engine={name}"
        return address

    def _request(self, name: str) -> str:
        where = self.page(name)
        if self.site is None:
            where = self.url(name)
        if self._setup.secret:
            where += ", with #token=.. behind the page's address"
        return f"waiting for a page at {where}"

    # -- visitors

    def _accept(self) -> None:
        room = threading.BoundedSemaphore(_MOST_VISITORS)
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._closed or self._listener.fileno() < 0:
                    return
                time.sleep(_LOOK)  # too many files are open, or the visitor has gone already
                continue
            leave_to_parent(sock)
            if not room.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._answer, args=(sock, room), name="ue_rl-page-visitor", daemon=True).start()

    def _answer(self, sock: socket.socket, room: threading.BoundedSemaphore) -> None:
        kept = False
        try:
            sock.settimeout(_PATIENCE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_dead_peer(sock)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            protocol = ServerProtocol(max_size=LONGEST)  # no extensions: nothing is compressed, which costs more
            request = _read_request(sock, protocol)
            if request is not None:
                kept = self._answer_request(sock, protocol, request)
        except OSError:  # the visitor has gone, or is too slow
            pass
        finally:
            if not kept:
                sock.close()
            room.release()

    def _answer_request(self, sock: socket.socket, protocol: ServerProtocol, request: Request) -> bool:
        """Is the socket a page's now, which keeps it?"""
        own = self._own_origins(sock)
        if getattr(request, "method", "GET") != "GET":  # older versions of websockets refuse others themselves
            protocol.send_response(protocol.reject(HTTPStatus.METHOD_NOT_ALLOWED, "Pages are read with GET.\n"))
            _send(sock, protocol)
            return False
        if not any("websocket" in each.lower() for each in request.headers.get_all("Upgrade")):
            protocol.send_response(self._file(own, request))
            _send(sock, protocol)
            return False
        origin = next(iter(request.headers.get_all("Origin")), None)
        # A program that is no browser says none: it is on this machine, or the port is open to its network.
        if origin is not None and origin not in own | self.origins:
            self._tell_refused(origin)
            protocol.send_response(protocol.reject(HTTPStatus.FORBIDDEN, f"{origin} may not be an engine here.\n"))
            _send(sock, protocol)
            return False
        response = protocol.accept(request)
        protocol.send_response(response)
        _send(sock, protocol)
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            return False
        return self._welcome(PageSocket(sock, protocol), request.path.partition("?")[0].strip("/"))

    def _own_origins(self, sock: socket.socket) -> frozenset[str]:
        """Of the pages that this port serves. None of a name that leads here by somebody else's will."""
        address = sock.getsockname()[0]
        hosts = {address, self.host}
        if address in _LOOPBACK:
            hosts.add("localhost")
        return frozenset(f"{self._schemes[0]}://{written(host)}:{self.port}" for host in hosts.difference(_EVERYWHERE))

    def _file(self, own: frozenset[str], request: Request) -> Response:
        host = next(iter(request.headers.get_all("Host")), "")
        if f"{self._schemes[0]}://{host.lower()}" not in own | self.origins:
            answer = SiteAnswer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"This is no server of that name.\n")
        elif self.site is None:
            text = b"A trainer waits here for a page to dial it by WebSocket. It serves no files.\n"
            answer = SiteAnswer(HTTPStatus.NOT_FOUND, "text/plain", text)
        else:
            answer = self.site.answer(request.path)
        headers = Headers(
            {
                "Content-Type": answer.kind,
                "Content-Length": str(len(answer.body)),
                "Cache-Control": "no-store",  # a page that is reloaded is the game as it is now
                "X-Content-Type-Options": "nosniff",
                "Connection": "close",
            }
        )
        if answer.elsewhere:
            headers["Location"] = answer.elsewhere
        return Response(answer.status.value, answer.status.phrase, headers, answer.body)

    def _welcome(self, page: PageSocket, name: str) -> bool:
        """Has the page wait for its connection, or says why it is not needed. A page without a name takes any place."""
        with self._came:
            if name and name not in self._names:
                code = NO_SUCH_PLACE
                why = f"there is no place {name} here, but {', '.join(self._names) or 'none'}"
            else:
                places = self._names
                if name:
                    places = [name]
                place = next(filter(self._is_free, places), None)
                if place is not None:
                    self._waiting[place] = page
                    self._came.notify_all()
                    return True
                code = TAKEN
                why = "another page is the engine here"
        page.close_because(code, why)
        with contextlib.suppress(OSError):
            page.shutdown(socket.SHUT_WR)
        return False

    def _is_free(self, name: str) -> bool:
        return not any(name in pages and pages[name].is_alive() for pages in (self._served, self._waiting))

    def _tell_refused(self, origin: str) -> None:
        if origin not in self._refused and len(self._refused) < _MOST_VISITORS:
            self._refused.add(origin)
            _log.warning(
                "a page of %s wanted to be the engine, and was refused; if it is yours: %s?origin=%s",
                origin,
                f"page://{self.place}",
                origin,
            )


def written(host: str) -> str:
    """As it stands in an address."""
    if ":" in host:
        return f"[{host}]"
    return host


def _read_request(sock: socket.socket, protocol: ServerProtocol) -> Request | None:
    """What a visitor asks for; None: it has gone, or spoke something else."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        data = sock.recv(65_536)
        if not data:
            return None
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                if protocol.parser_exc is not None:  # what came with it is no WebSocket's: nothing can be answered
                    return None
                return event
        if protocol.handshake_exc is not None:
            _send(sock, protocol)
            return None
    return None


def _send(sock: socket.socket, protocol: ServerProtocol) -> None:
    """Sends all that is to be sent; what is empty ends this direction."""
    for data in protocol.data_to_send():
        if data:
            sock.sendall(data)
        else:
            sock.shutdown(socket.SHUT_WR)
