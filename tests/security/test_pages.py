"""What a page of somebody else's can make a browser send is refused on loopback, and plays nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import make
from tests.support.pages import OURS, Route, foreign_cases, said, spoken
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.devtools.metrics.serving import serve_metrics
from ue_rl.inference import export_onnx
from ue_rl.inference.runtime.reload import ReloadingInference
from ue_rl.inference.server.server import PolicyServer
from ue_rl.protocol.access.visitors import Visitors
from ue_rl.system.errors import ConfigurationError

METRICS = Route("metrics", "GET", "/metrics")


@pytest.fixture(scope="module")
def metrics() -> Iterator[int]:
    """The port of a page of metrics."""

    class Numbers:
        def collect(self) -> Iterator[Any]:
            return iter(())

    with serve_metrics("0", Numbers()) as url:
        yield int(url.split(":")[2].split("/")[0])


@pytest.mark.parametrize(("route", "changed"), foreign_cases([METRICS]))
def test_a_foreign_request_gets_no_metrics(metrics: int, route: Route, changed: dict[str, str | None]) -> None:
    status, answer = said(metrics, route, changed)
    assert status in (403, 415, 421), answer
    assert "--metrics HOST:PORT" in answer, "and says what to do"


@pytest.mark.parametrize("ours", OURS.values(), ids=OURS)
def test_the_same_from_this_machine_gets_metrics(metrics: int, ours: dict[str, str | None]) -> None:
    status, answer = said(metrics, METRICS, ours)
    assert status == 200, answer


@pytest.mark.parametrize("path", ["/", "/ACT=RESET;ENV=0", "//0,0"])
@pytest.mark.parametrize("lines", [b"ACT=RESET;ENV=0\n", b"\n\nRESET\n0\n", b"TRAINING_COMPLETE\n"])
def test_lines_of_the_protocol_in_a_post_are_not_played(path: str, lines: bytes) -> None:
    class Watched(GymnasiumBridge):
        played = 0

        def update_rl(self) -> Any:
            type(self).played += 1
            return super().update_rl()

    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Length: {len(lines)}\r\n"
    with run_in_thread(Watched("CartPole-v1", 1), port=0) as running:
        answer = spoken(running.port, head.encode() + b"Content-Type: text/plain\r\n\r\n" + lines)
        assert not Watched.played
        assert "OBS" not in answer.partition("\n")[2], "a handshake at most"


async def test_lines_of_the_protocol_in_a_post_ask_no_policy(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export_onnx(make(), path)
    with ReloadingInference(path, interval=None) as policy:
        async with PolicyServer(policy, port=0) as server:
            seen = ",".join("0" * policy.current.obs_size)
            lines = f"CONFIG:OBS={policy.current.obs_size};ACT={policy.current.act_size}\nOBS={seen}\n".encode()
            head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(lines)}\r\n\r\n".encode()
            answer = await asyncio.to_thread(spoken, server.port, head + lines)
            assert answer.startswith("ERROR=")
            assert not server.requests


@pytest.mark.parametrize("name", ["http://pages.example", "pages.example:80", "", "two words"])
def test_what_is_no_name_of_a_host_is_said(name: str) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a host"):
        Visitors(True, [name])


def test_on_another_address_any_host_may_stand_and_only_its_own_pages() -> None:
    visitors = Visitors(local=False)
    right = [("Host", "game.lan:80"), ("Content-Type", "application/json")]
    assert visitors.refusal("POST", right) is None
    assert visitors.refusal("POST", [*right, ("Origin", "http://game.lan")]) is None
    refused = visitors.refusal("POST", [*right, ("Origin", "http://evil.example")])
    assert refused is not None
    assert refused.status == 403


def test_a_page_may_end_its_session_and_says_no_type_with_that() -> None:
    visitors = Visitors(True)
    headers = [("Host", "localhost"), ("Origin", "http://localhost:3000")]
    assert visitors.refusal("DELETE", headers) is None
    refusal = visitors.refusal("POST", headers)
    assert refusal is not None
    assert refusal.status == 415, "a form, before which no browser asks"


def test_two_hosts_and_a_host_that_is_none() -> None:
    visitors = Visitors(local=True)
    for hosts in ([], ["127.0.0.1", "127.0.0.1"], ["127.0.0.1@evil.example"], ["127.0.0.1:80:80"], ["0.0.0.0"], [""]):
        refused = visitors.refusal("GET", [("Host", host) for host in hosts])
        assert refused is not None, hosts
        assert refused.status == 421
