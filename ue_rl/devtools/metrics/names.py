"""What is measured, one table; and Metrics: prometheus_client's counters, gauges and histogram of one source."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.lazy import named_if_missing

with named_if_missing("metrics"):
    from prometheus_client import Counter, Gauge, Histogram, Metric
    from prometheus_client.registry import Collector

_BOUNDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 5.0)


class MetricRow(NamedTuple):
    """Attributes: kind: prometheus_client's. help: for people. labels: of each sample."""

    kind: type[Counter | Gauge | Histogram]
    help: str
    labels: tuple[str, ...] = ()


# fmt: off
METRICS: dict[str, MetricRow] = {
    "ue_rl_env_steps_total": MetricRow(Counter, "env-steps; of a policy server, observations answered"),
    "ue_rl_episodes_total": MetricRow(Counter, "episodes that have ended while training"),
    "ue_rl_return": MetricRow(Gauge, "mean return of the last 100 training episodes"),
    "ue_rl_step_seconds": MetricRow(Histogram, "seconds of a step of all envs; of a served engine, of its tick"),
    "ue_rl_engine_state": MetricRow(Gauge, "1 for what an engine is doing, else 0", ("engine", "state")),
    "ue_rl_restarts_total": MetricRow(Counter, "engines that were lost and came back"),
    "ue_rl_bytes_total": MetricRow(Counter, "actions and states, as float32 whatever carries them", ("direction",)),
    "ue_rl_queue": MetricRow(Gauge, "rows that were asked and are not answered yet"),
    "ue_rl_sessions_total": MetricRow(Counter, "trainers that were served so far"),
    "ue_rl_engines": MetricRow(Gauge, "engines that a policy server serves now"),
    "ue_rl_latency_seconds": MetricRow(Gauge, "a policy server's recent answers", ("quantile",)),
}
# fmt: on
TRAINING = tuple(METRICS)[:8]
SERVING = (TRAINING[0], TRAINING[3], *TRAINING[6:8], "ue_rl_sessions_total")
POLICY = (TRAINING[0], TRAINING[7], "ue_rl_engines", "ue_rl_latency_seconds")


class Metrics(Collector):
    """The metrics of one source, for a registry of its own and for a log.

    Args:
        names: keys of METRICS.
        refresh: sets those that are not counted as they happen; called with this object before each reading, in the
            reader's thread. So a step pays for none of them.
    """

    def __init__(self, names: tuple[str, ...], refresh: Callable[[Metrics], None]) -> None:
        self._refresh = refresh
        self._reading = threading.Lock()  # a scrape and the log may read at the same time
        self._metrics: dict[str, Any] = {}
        for name in names:
            row = METRICS[name]
            if row.kind is Histogram:
                self._metrics[name] = Histogram(name, row.help, row.labels, registry=None, buckets=_BOUNDS)
            else:
                self._metrics[name] = row.kind(name, row.help, row.labels, registry=None)

    def histogram(self, name: str) -> Histogram:
        """Whose `observe` a step calls."""
        found = self._metrics[name]
        assert isinstance(found, Histogram)
        return found

    def total(self, name: str, value: float, *labels: str) -> None:
        """Sets a counter, for `refresh`: what it counts is counted elsewhere already."""
        counter = self._of(name, labels)
        counter.reset()
        counter.inc(value)

    def gauge(self, name: str, value: float, *labels: str) -> None:
        """Sets a gauge, for `refresh`."""
        self._of(name, labels).set(value)

    def exchanged(self, spec: EnvSpec, env_steps: int) -> None:
        """Sets the bytes of so many env-steps, for `refresh`."""
        image = 0
        if spec.image is not None:
            image = spec.image.nbytes
        rows = spec.agents_per_env * env_steps
        self.total("ue_rl_bytes_total", 4 * spec.act_size * rows, "to_engine")
        self.total("ue_rl_bytes_total", (4 * spec.obs_size + 6 + spec.mask_size + image) * rows, "from_engine")

    def collect(self) -> Iterator[Metric]:
        """What a registry asks for at each scrape."""
        with self._reading:
            self._refresh(self)
            families = [family for metric in self._metrics.values() for family in metric.collect()]
        for family in families:
            # When a number was made is one more name for each, which nobody asked for; the switch for that is global.
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family

    def flat(self) -> dict[str, float]:
        """For a log: names with labels behind them, a histogram as its count and its sum, engines in their state."""
        found: dict[str, float] = {}
        for family in self.collect():
            for sample in family.samples:
                is_other_state = family.name == "ue_rl_engine_state" and not sample.value
                if is_other_state or sample.name.endswith("_bucket"):
                    continue
                value = float(sample.value)
                if sample.name.endswith("_sum"):
                    value = round(value, 6)  # to the microsecond
                if value.is_integer():
                    value = int(value)
                found[".".join((sample.name, *sample.labels.values()))] = value
        return found

    def _of(self, name: str, labels: tuple[str, ...]) -> Any:
        if labels:
            return self._metrics[name].labels(*labels)
        return self._metrics[name]
