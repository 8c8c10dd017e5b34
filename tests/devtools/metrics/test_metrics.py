"""What is scraped while something runs: every documented name, on loopback, and the same names in the log."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest

from tests.devtools.recording.test_traces import Counter, steps
from ue_rl.bridges import run_in_thread, run_shm_in_thread
from ue_rl.cli.policy_server import metrics_of
from ue_rl.cli.train import JsonFormatter
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.metrics.engine import EngineMetrics
from ue_rl.devtools.metrics.names import METRICS, POLICY, SERVING, TRAINING, Metrics
from ue_rl.devtools.metrics.serving import serve_metrics
from ue_rl.devtools.recording import Trace, record_engine
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import TrainOptions, train
from ue_rl.training.report import TrainingReport

ROOT = Path(__file__).resolve().parents[3]


def scrape(url: str) -> dict[str, float]:
    """Every sample, with its labels."""
    with urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def families(found: dict[str, float]) -> set[str]:
    names = {re.sub(r"\{.*", "", name) for name in found}
    return {re.sub(r"_(bucket|count|sum)$", "", name) for name in names}


class Scraping(TrainingReport):
    """Scrapes once the run is on its way, in another thread, as Prometheus would."""

    def __init__(self) -> None:
        self.url = ""
        self.found: dict[str, float] = {}

    def said(self, text: str) -> None:
        if text.startswith("metrics: "):
            self.url = text.removeprefix("metrics: ")

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        if self.url and env_steps > 200 and not self.found:
            thread = threading.Thread(target=lambda: self.found.update(scrape(self.url)))
            thread.start()
            thread.join()


def test_a_run_while_it_learns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = Scraping()
    with run_in_thread(Counter()) as engine:
        options = TrainOptions(
            url=engine.url, timesteps=600, log_dir=str(tmp_path), export=False, metrics="0", threads=1, seed=1,
            hyperparameters={"n_steps": 50, "batch_size": 50, "n_epochs": 1},
        )  # fmt: skip
        with caplog.at_level(logging.INFO, "ue_rl"):
            train(options, report=report)
    found = report.found
    assert report.url.startswith("http://127.0.0.1:")
    assert families(found) == set(TRAINING)
    assert 200 - 3 < found["ue_rl_env_steps_total"] <= 600  # it may be in the midst of a step of its 3 envs
    assert found["ue_rl_step_seconds_count"] > 60
    assert found['ue_rl_step_seconds_bucket{le="+Inf"}'] == found["ue_rl_step_seconds_count"]
    assert sum(value for name, value in found.items() if name.startswith("ue_rl_engine_state")) == 1
    assert found['ue_rl_bytes_total{direction="to_engine"}'] == 4 * found["ue_rl_env_steps_total"]
    (record,) = [record for record in caplog.records if hasattr(record, "metrics")]
    said = json.loads(JsonFormatter().format(record))
    assert {re.sub(r"(_count|_sum)$|\..*", "", name) for name in said if name.startswith("ue_rl_")} == set(TRAINING)
    assert said["ue_rl_env_steps_total"] == 600
    with pytest.raises(OSError, match="refused"):
        scrape(report.url)  # it has ended with the run


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
def test_a_served_engine(host: Any, tmp_path: Path) -> None:
    game = Counter()
    writer = record_engine(game, tmp_path / "a.trace")
    metrics = EngineMetrics(game).metrics
    with serve_metrics("127.0.0.1:0", metrics) as url:
        with host(game) as engine:
            for seed in (0, 1):
                steps(open_transport(engine.url), seed=seed)
        found = scrape(url)
    writer.close()
    assert families(found) == set(SERVING)
    assert (found["ue_rl_env_steps_total"], found["ue_rl_sessions_total"]) == (180, 2)
    assert found["ue_rl_step_seconds_count"] == 60
    assert found['ue_rl_bytes_total{direction="from_engine"}'] == 180 * (4 * 2 + 6)
    assert sum(message.kind.name in ("STEP", "SESSION") for message in Trace(tmp_path / "a.trace")) == 62


def test_a_policy_server() -> None:
    server: Any = SimpleNamespace(requests=7, waiting_rows=2, engines={1}, percentiles=lambda: (0.001, 0.002))
    with serve_metrics("0", metrics_of(server)) as url:
        found = scrape(url)
    assert families(found) == set(POLICY)
    assert (found["ue_rl_env_steps_total"], found["ue_rl_queue"], found["ue_rl_engines"]) == (7, 2, 1)
    assert found['ue_rl_latency_seconds{quantile="0.99"}'] == 0.002


def test_a_counter_is_what_it_counts_whoever_reads_it_how_often() -> None:
    counted = iter([5, 5, 8, 2])  # a second run of the same source begins anew

    def refresh(metrics: Metrics) -> None:
        metrics.total("ue_rl_env_steps_total", next(counted))
        metrics.gauge("ue_rl_engine_state", 1, "0", "playing")
        metrics.gauge("ue_rl_engine_state", 0, "0", "idle")
        metrics.gauge("ue_rl_return", 0.1234567)

    metrics = Metrics(("ue_rl_env_steps_total", "ue_rl_step_seconds", "ue_rl_engine_state", "ue_rl_return"), refresh)
    metrics.histogram("ue_rl_step_seconds").observe(0.25)
    for expected in (5, 5, 8):
        assert metrics.flat() == {
            "ue_rl_env_steps_total": expected,
            "ue_rl_step_seconds_count": 1,
            "ue_rl_step_seconds_sum": 0.25,
            "ue_rl_engine_state.0.playing": 1,
            "ue_rl_return": 0.1234567,
        }
    with serve_metrics("0", metrics) as url:
        found = scrape(url)
    assert found["ue_rl_env_steps_total"] == 2
    assert found['ue_rl_step_seconds_bucket{le="0.5"}'] == 1
    assert not [name for name in found if name.endswith("_created")]


def test_an_address_that_cannot_be_is_named() -> None:
    for wrong in ("", "abc", "127.0.0.1:99999"):
        with pytest.raises(ConfigurationError, match="not an address"), serve_metrics(wrong, metrics_of(None)):  # type: ignore[arg-type]
            pass
    with serve_metrics("0", metrics_of(None)) as url:  # type: ignore[arg-type]
        taken = url.split(":")[2].split("/")[0]
        with pytest.raises(ConfigurationError, match="cannot listen"), serve_metrics(taken, metrics_of(None)):  # type: ignore[arg-type]
            pass


def test_the_page_and_the_dashboard_have_every_name() -> None:
    page = (ROOT / "docs/operating.md").read_text("utf-8")
    dashboard = json.loads((ROOT / "samples/grafana/ue_rl.json").read_text("utf-8"))
    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    assert set(re.findall(r"`(ue_rl_[a-z_]+)`", page)) == set(METRICS)
    assert {re.sub("_bucket$", "", name) for name in re.findall(r"ue_rl_[a-z_]+", shown)} == set(METRICS)


def test_what_anybody_may_reach_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Without listening there: a stand-in says which address it has."""
    source = Metrics((), lambda metrics: None)
    with serve_metrics("127.0.0.1:0", source), serve_metrics("localhost:0", source):
        assert "may connect" not in caplog.text

    def start(port: int, host: str, registry: Any) -> tuple[Any, Any]:
        nothing = lambda *_: None  # noqa: E731
        server = SimpleNamespace(
            server_address=(host, port), server_port=port, get_app=nothing, set_app=nothing, shutdown=nothing,
            server_close=nothing, get_request=nothing, socket=SimpleNamespace(fileno=lambda: -1),
        )  # fmt: skip
        return server, SimpleNamespace(join=nothing)

    with serve_metrics("0.0.0.0:9000", source, start):
        assert "anybody who reaches 0.0.0.0 may connect" in caplog.text
