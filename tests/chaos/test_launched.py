"""Engines that `ue-rl train --engine` has started, and what becomes of the run when they fail."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.chaos.conftest import over_shm, over_tcp

# `stage` is the Stage of conftest.py, over text and over shared memory.


@dataclass(frozen=True)
class Case:
    """One way to fail.

    Attributes:
        engine: options of each chaos engine. words: of `ue-rl train`. blow: struck once the trainer runs.
        code: the exit code. sees: regular expressions that the terminal's output must have.
        lives: how often each engine was started; None: not counted.
        logged: what the file with engine 0's output must have.
        saved: the model of the end is there, and the run can be resumed.
        carriers: over which it is tried; one where the carrier plays no part. seldom: those that are exhaustive.
    """

    name: str
    sees: tuple[str, ...]
    code: int = 0
    engine: dict[str, Any] = field(default_factory=dict)
    words: tuple[Any, ...] = ()
    blow: Callable[[Any], object] | None = None
    lives: tuple[int, ...] | None = None
    logged: str = ""
    saved: bool = True
    carriers: tuple[str, ...] = ("tcp", "shm")
    seldom: tuple[str, ...] = ()


def kill_the_first(stage: Any) -> None:
    stage.wait_for_steps(60)
    stage.signal_engine(signal.SIGKILL)


def freeze_the_first(stage: Any) -> None:
    stage.wait_for_steps(60)
    stage.signal_engine(signal.SIGSTOP)


# Where a blow is struck the engines take 10 ms a step: else a run of 512 steps could be over before.
GOES_ON = [
    Case("killed", (r"engine 0.*SIGKILL",), blow=kill_the_first, lives=(2, 1),
         engine={"children": 1, "step_seconds": 0.01}, seldom=("tcp",)),
    Case("frozen past the deadline", (r"engine 0.*(within|no answer)",), words=("--timeout", "3"), lives=(2, 1),
         blow=freeze_the_first, seldom=("tcp", "shm"), engine={"step_seconds": 0.01}),
    Case("ends with 0 in mid-run", (r"engine 0.*exit code 0", r"engine 1.*exit code 0"), lives=(2, 2),
         logged="GameError", engine={"fault": "exit", "after": 100, "lives": 1}, seldom=("tcp",)),
    Case("crashes twice", (r"engine \d.*SIGKILL",), lives=(3, 3), engine={"fault": "crash", "after": 60, "lives": 2},
         carriers=("shm",), seldom=("shm",)),
    Case("starts slowly", (r"1,?024|512",), lives=(1, 1), engine={"listen_after": 1.0}, carriers=("shm",),
         seldom=("shm",)),
    Case("ignores SIGTERM at the end", (r"512",), lives=(1, 1), engine={"ignore_sigterm": True, "children": 1},
         carriers=("shm",), seldom=("shm",)),
]  # fmt: skip
GIVES_UP = [
    Case("crashes in a loop", (r"engine \d.*SIGKILL", r"--resume"), code=1, words=("--restarts", "1"),
         engine={"fault": "crash", "after": 60}, carriers=("tcp",)),
    Case("cannot start", (r"engine \d.*exit code 5", r"GameError"), code=1, saved=False,
         engine={"fault": "exit", "exit_code": 5}, carriers=("tcp",)),
    Case("never listens", (r"engine \d.*did not listen",), code=1, saved=False, words=("--start-timeout", "1"),
         engine={"fault": "hang"}, carriers=("tcp",)),
]  # fmt: skip


def tried(cases: list[Case]) -> pytest.MarkDecorator:
    """Each case over its carriers."""
    each = [
        pytest.param(
            carrier, case, id=f"{carrier}-{case.name}", marks=pytest.mark.exhaustive if carrier in case.seldom else ()
        )
        for case in cases
        for carrier in case.carriers
    ]
    return pytest.mark.parametrize(("stage", "case"), each, indirect=["stage"])


def check(stage: Any, case: Case) -> None:
    run = stage.launch(*case.words, **case.engine)
    if case.blow is not None:
        case.blow(stage)
    assert run.wait(60) == case.code, run.text
    for pattern in case.sees:
        run.wait_for(pattern, 0)
    assert "Traceback" not in run.text
    if case.lives is not None:
        assert tuple(int(stage.record(n).lives[0]) for n in range(len(case.lives))) == case.lives
    if case.logged:
        assert case.logged in (stage.run / "engines" / "engine-0.log").read_text("utf-8")
    if case.saved:
        assert stage.newest_checkpoint().env_steps >= stage.saved_steps()
    else:
        assert not stage.run.exists()


@pytest.mark.slow
@tried(GOES_ON)
def test_the_run_goes_on_and_ends(stage: Any, case: Case) -> None:
    check(stage, case)
    assert stage.saved_steps() == 512


@pytest.mark.slow
@tried(GIVES_UP)
def test_the_run_stops_and_says_why(stage: Any, case: Case) -> None:
    check(stage, case)
    if case.saved:
        stage.resume()


@over_tcp
def test_a_first_start_that_fails_is_not_tried_again(stage: Any) -> None:
    """It is a wrong command as a rule; an engine that has run once is started again."""
    run = stage.launch(fault="exit", exit_code=5, lives=1)
    assert run.wait(60) == 1, run.text
    assert stage.record(0).lives[0] <= 1


@pytest.mark.exhaustive
@over_shm
def test_ten_engines_of_which_three_die_together(stage: Any) -> None:
    run = stage.launch("--timesteps", 1280, engines=10, num_envs=1, step_seconds=0.01)
    stage.wait_for_steps(40, 9, num_envs=1)
    for number in (2, 5, 9):
        stage.signal_engine(signal.SIGKILL, number, num_envs=1)
    assert run.wait(90) == 0, run.text
    assert [int(stage.record(n, 1).lives[0]) for n in range(10)] == [1 + (n in (2, 5, 9)) for n in range(10)]
    for number in (2, 5, 9):
        run.wait_for(rf"engine {number}\b.*SIGKILL", 0)
    assert stage.saved_steps() >= 1280


@over_tcp
def test_a_port_that_is_taken(stage: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = {"port": taken.getsockname()[1], "record": stage.folder / "record-{port}"}  # without {port} it is 7777
        run = stage.launch("--start-timeout", 5, engines=1, **own)
        assert run.wait(60) == 1
    run.wait_for(r"engine 0", 0)
    assert "Traceback" not in run.text


@pytest.mark.exhaustive
@over_shm
def test_embedded_engines_of_which_one_is_killed(stage: Any, ue_rl_leftovers: Any) -> None:
    run = stage.start("--env", "CartPole-v1", "--num-engines", 2, "--num-envs", 2, "--timesteps", 4096)
    run.wait_for("envs in 2 engines")
    served = [process for process in ue_rl_leftovers.processes() if "serve" in process.cmdline()[-20:]]
    engines = [process for process in served if "keeper.py" not in " ".join(process.cmdline())]
    assert len(engines) == 2, [process.cmdline() for process in served]
    engines[0].kill()
    assert run.wait(60) == 0, run.text
    run.wait_for(r"engine \d.*SIGKILL", 0)
    assert stage.saved_steps() >= 4096
