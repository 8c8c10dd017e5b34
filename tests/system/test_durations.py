"""Durations as people write them."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.connections.engines.restarts import Restarts, read_restarts, restarts_text
from ue_rl.system.durations import duration_text, read_duration
from ue_rl.system.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("500ms", 0.5), ("5min", 300), ("5m", 300), ("2h", 7200), ("1.5 min", 90), (" 0 ", 0),
     (".5s", 0.5), ("1e3", 1000), ("1e-3s", 0.001), (30, 30), (0.25, 0.25), ("2H", 7200)],
)  # fmt: skip
def test_a_duration(text: Any, seconds: float) -> None:
    assert read_duration(text) == pytest.approx(seconds, rel=1e-12)
    assert read_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "soon", "-1s", "1d", "nan", "inf", "1e9", "1 2", "5minutes", True, None, [5], float("inf"), "٣s"]
)
def test_what_is_none(text: Any) -> None:
    with pytest.raises(ValueError, match=r"not a duration such as|more than"):
        read_duration(text)


@pytest.mark.parametrize(
    ("text", "read", "canonical"),
    [("10/60s", (10, 60), "10/60s"), ("3/5min", (3, 300), "3/5min"), ("7", (7, 60), "7/60s"), (7, (7, 60), "7/60s"),
     ("0", (0, 60), "0"), ("0/5s", (0, 5), "0")],
)  # fmt: skip
def test_a_quota_of_restarts(text: Any, read: tuple[int, float], canonical: str) -> None:
    assert read_restarts(text) == read
    assert restarts_text(text) == canonical
    quota = Restarts.of(text)
    assert (quota is None) == (read[0] == 0)
    assert quota is None or (quota.max_restarts, quota.window) == read


@pytest.mark.parametrize("text", ["", "/", "10/", "/60s", "-1", "ten/60s", "10/0s", "10/60s/1", True, None, 1.5])
def test_what_is_no_quota(text: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"field restarts\); expected TIMES/WINDOW such as 10/60s"):
        Restarts.of(text)
