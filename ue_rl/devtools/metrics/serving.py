"""serve_metrics: the metrics of a source over HTTP, for Prometheus; most of them are computed when somebody asks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ue_rl.protocol.access.server_access import Refusals, is_local, warn_if_open
from ue_rl.protocol.access.visitors import Visitors
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.forks import leave_to_parent
from ue_rl.system.lazy import named_if_missing

with named_if_missing("--metrics"):
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.registry import Collector

_CURE = "ask for 127.0.0.1 or localhost, or let it listen on another address: --metrics HOST:PORT"
_log = logging.getLogger(__name__)


class _WsgiGate:
    """A WSGI application: asks the one behind it only what `visitors` let through."""

    def __init__(self, app: Any, visitors: Visitors) -> None:
        self._app = app
        self._visitors = visitors
        self._refusals = Refusals(_log, "a request for metrics")

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        given = {key.removeprefix("HTTP_"): value for key, value in environ.items() if key.startswith("HTTP_")}
        kinds = {key: environ[key] for key in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(key)}
        headers = [(name.replace("_", "-"), str(value)) for name, value in {**given, **kinds}.items()]
        refusal = self._visitors.refusal(environ["REQUEST_METHOD"], headers)
        if refusal is None:
            answered: Iterable[bytes] = self._app(environ, start_response)
            return answered
        self._refusals.log(environ.get("REMOTE_ADDR", "?"), refusal.reason)
        start_response(f"{refusal.status} Refused", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{refusal.reason}\n".encode()]


def _leave_to_parent(server: Any) -> None:
    """What the server listens on, and what it accepts, is closed in forked children."""
    accept = server.get_request

    def accept_and_leave() -> Any:
        accepted = accept()
        leave_to_parent(accepted[0])
        return accepted

    leave_to_parent(server.socket)
    server.get_request = accept_and_leave


@contextmanager
def serve_metrics(
    address: str, metrics: Collector, start: Callable[..., tuple[Any, Any]] = start_http_server
) -> Iterator[str]:
    """Serves within the block; gives the URL.

    Args:
        address: PORT on loopback, or HOST:PORT; port 0 takes a free one. On loopback no page of elsewhere is answered.
        metrics: a Metrics, or whatever else prometheus_client collects from.
        start: gives the server and its thread, as `start_http_server` does.

    Raises:
        ConfigurationError: not an address, or it cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(
            "not an address for metrics", field="metrics", expected="PORT or HOST:PORT", got=address
        )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    bare = host.strip("[]")
    if not bare:
        bare = "127.0.0.1"
    try:
        server, thread = start(int(port), bare, registry)
    except OSError as error:
        cure = "choose another port for --metrics"
        raise ConfigurationError(f"cannot listen on {address}", field="metrics", got=str(error), cure=cure) from error
    local = is_local(str(server.server_address[0]))
    if not local:
        warn_if_open(bare)
    named = []
    if local and not is_local(bare):
        named = [bare]
    _leave_to_parent(server)
    server.set_app(_WsgiGate(server.get_app(), Visitors(local, named, cure=_CURE)))
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
