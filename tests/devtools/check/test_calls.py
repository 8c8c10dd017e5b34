"""Calls: what is asked is put back. Wrong answers: test_mistakes.py."""

from __future__ import annotations

from tests.devtools.check.reports import CALLS, check
from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.lab import Lab
from ue_rl.bridges import MultiEnvBridge
from ue_rl.bridges.runners import run_in_thread
from ue_rl.devtools.check import CheckReport, Options, Verdict
from ue_rl.protocol.spaces.tree import Branch, box
from ue_rl.protocol.spec import EnvSpec


def checked(url: str) -> CheckReport:
    return check(url, Options(timeout=1.5), only=CALLS)


def texts(report: CheckReport) -> dict[str, str]:
    return {found.check: found.text for found in report.findings if found.check in CALLS}


def test_a_name_that_is_taken_although_nobody_knows_it() -> None:
    with MistakenEngine(parameters=True, channel="SHARED") as engine:
        call = engine.call
        engine.call = lambda line: "VALUES=push:1" if b"no_such" in line else call(line)
        report = checked(engine.url)
    assert report.mistakes == ["bad-call"]
    assert any("should be REFUSED" in found.text for found in report.findings)


def test_everything_is_refused() -> None:
    with MistakenEngine(parameters=True, channel="SHARED") as engine:
        engine.call = lambda line: "REFUSED=not%20now"
        report = checked(engine.url)
    assert report.mistakes == [], report
    assert "not now" in texts(report)["parameters"]


def test_what_is_set_is_put_back() -> None:
    with MistakenEngine(parameters=True, channel="SHARED") as engine:
        report = checked(engine.url)
        assert report.mistakes == [], report
        assert [point.push for point in engine.points] == [1, 1, 1]
    assert report.count(Verdict.SKIP) == 4  # PAUSE, TIME_SCALE, RENDER and GOAL_REWARD are not announced
    assert "read, set and put back" in texts(report)["parameters"]


class Field(Lab):
    """With goals, and with the one parameter that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        space = Branch(tuple((name, box((1,))) for name in ("observation", "achieved_goal", "desired_goal")))
        MultiEnvBridge.__init__(self, EnvSpec(3, 1, num_envs=2, obs_space=space))

    def create_state_string_for_env(self, env_id: int) -> list[float]:
        return [self.gravity[env_id], 0.0, 1.0]

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"gravity": (self.gravity[0], 0.0, 20.0)}


def test_a_bridge_with_everything() -> None:
    field = Field()
    with run_in_thread(field) as server:
        report = checked(server.url)
    said = texts(report)
    assert report.mistakes == [], report
    assert report.count(Verdict.SKIP) == 0, said
    assert "two rewards" in said["rewards of goals"]
    assert "refused" in said["pictures"]  # env 1 has none
    assert field.pauses[0] is True
    assert field.pauses[-1] is False
    assert field.scales == [1.0]


def test_nothing_is_announced() -> None:
    with MistakenEngine(channel="SHARED") as engine:
        assert checked(engine.url).count(Verdict.SKIP) == len(CALLS)
