"""What is measured, one table; samples of it; and a histogram that costs a step one append to a list."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from ue_rl.protocol.spec import EnvSpec

_BOUNDS = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 5.0)
_KEPT = 4096  # values that wait until they are counted


class Metric(NamedTuple):
    """Attributes: kind: counter, gauge or histogram. help: for people. labels: of each sample."""

    kind: str
    help: str
    labels: tuple[str, ...] = ()


# fmt: off
METRICS: dict[str, Metric] = {
    "ue_rl_env_steps_total": Metric("counter", "env-steps; of a policy server, observations answered"),
    "ue_rl_episodes_total": Metric("counter", "episodes that have ended while training"),
    "ue_rl_return": Metric("gauge", "mean return of the last 100 training episodes"),
    "ue_rl_step_seconds": Metric("histogram", "seconds of a step of all envs; of a served engine, of its tick"),
    "ue_rl_engine_state": Metric("gauge", "1 for what an engine is doing, else 0", ("engine", "state")),
    "ue_rl_restarts_total": Metric("counter", "engines that were lost and came back"),
    "ue_rl_bytes_total": Metric("counter", "actions and states, as float32 whatever carries them", ("direction",)),
    "ue_rl_queue": Metric("gauge", "rows that were asked and are not answered yet"),
    "ue_rl_sessions_total": Metric("counter", "trainers that were served so far"),
    "ue_rl_engines": Metric("gauge", "engines that a policy server serves now"),
    "ue_rl_latency_seconds": Metric("gauge", "a policy server's recent answers", ("quantile",)),
}
# fmt: on
TRAINING = tuple(METRICS)[:8]
SERVING = (TRAINING[0], TRAINING[3], *TRAINING[6:8], "ue_rl_sessions_total")
POLICY = (TRAINING[0], TRAINING[7], "ue_rl_engines", "ue_rl_latency_seconds")


class Histogram:
    """Counts of values by size. `add` is called in one thread, `read` in any."""

    def __init__(self) -> None:
        self._new: list[float] = []
        self._counts = np.zeros(len(_BOUNDS) + 1, np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """One more value."""
        self._new.append(seconds)
        if len(self._new) > _KEPT:
            self.read()

    def read(self) -> tuple[list[tuple[str, int]], float]:
        """Cumulated counts by upper bound, the last "+Inf", and the sum."""
        with self._lock:
            values, self._new = self._new, []
            self._counts += np.bincount(np.searchsorted(_BOUNDS, values), minlength=len(self._counts))
            self._sum += sum(values)
            return list(zip([*map(str, _BOUNDS), "+Inf"], np.cumsum(self._counts).tolist(), strict=True)), self._sum


class MetricSample(NamedTuple):
    """One number: a key of METRICS, its value, and its labels in their order."""

    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


class Source(Protocol):
    """Whatever has numbers."""

    def samples(self) -> Iterable[MetricSample]:
        """Of this moment; called from another thread."""
        ...


def flat(samples: Iterable[MetricSample]) -> Iterator[tuple[str, float]]:
    """For a log: names with labels behind them, a histogram as its count and its sum."""
    for name, value, labels in samples:
        if isinstance(value, Histogram):
            counts, total = value.read()
            yield f"{name}_count", counts[-1][1]
            yield f"{name}_sum", round(total, 6)
        elif value or METRICS[name].labels != ("engine", "state"):
            yield ".".join((name, *labels)), value


def exchanged(spec: EnvSpec, env_steps: int) -> Iterator[MetricSample]:
    """The bytes of so many env-steps."""
    image = 0 if spec.image is None else spec.image.nbytes
    rows = spec.agents_per_env * env_steps
    yield MetricSample("ue_rl_bytes_total", 4 * spec.act_size * rows, ("to_engine",))
    yield MetricSample("ue_rl_bytes_total", (4 * spec.obs_size + 6 + spec.mask_size + image) * rows, ("from_engine",))
