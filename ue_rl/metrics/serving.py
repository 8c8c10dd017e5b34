"""serve_metrics: a source's numbers over HTTP, as Prometheus scrapes them. Nothing is computed before somebody asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ue_rl.errors import ConfigurationError
from ue_rl.metrics.names import METRICS, Histogram, Source
from ue_rl.system.lazy import named_if_missing

with named_if_missing("--metrics"):
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class _Collector(Collector):
    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Family]:
        """What prometheus_client calls for each scrape."""
        families: dict[str, Family] = {}
        for name, value, labels in self._source.samples():
            metric = METRICS[name]
            if isinstance(value, Histogram):
                buckets, total = value.read()
                families[name] = HistogramMetricFamily(name, metric.help, buckets=buckets, sum_value=total)
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = families.setdefault(name, kind(name, metric.help, labels=metric.labels))
            family.add_metric(labels, value)  # type: ignore[call-arg, arg-type]
        yield from families.values()


@contextmanager
def serve_metrics(address: str, source: Source) -> Iterator[str]:
    """Serves within the block; gives the URL.

    Args:
        address: PORT on loopback, or HOST:PORT; port 0 takes a free one.

    Raises:
        ConfigurationError: not an address, or it cannot be listened on.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(
            "not an address for metrics", field="metrics", expected="PORT or HOST:PORT", got=address
        )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(source))
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except OSError as error:
        cure = "choose another port for --metrics"
        raise ConfigurationError(f"cannot listen on {address}", field="metrics", got=str(error), cure=cure) from error
    try:
        yield f"http://{host or '127.0.0.1'}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
