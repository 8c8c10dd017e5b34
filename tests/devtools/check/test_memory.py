"""Engines that serve shared memory alone: the page's engine in C, right and with a mistake in one line."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from pathlib import Path

import pytest

from tests.devtools.check.reports import check
from tests.docs.test_shared_memory_engine import COMPILER, ENGINE, linux_only, needs_compiler, needs_sync
from ue_rl.devtools.check import CheckReport, Options

ONLY = ("handshake keys", "a seed twice", "steps and resets in one frame", "waking a trainer", "next trainer")
pytestmark = [needs_compiler, needs_sync, linux_only]


def made(segment: Path) -> bool:
    """Whether the engine has written its magic, which it does last."""
    return segment.exists() and segment.read_bytes()[:4] not in (b"", bytes(4))


def report_of(folder: Path, *edits: tuple[str, str]) -> CheckReport:
    """Of the page's engine with these changes."""
    source, name = ENGINE.read_text("utf-8"), f"memory_{os.getpid()}_{secrets.token_hex(3)}"
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    (folder / "engine.c").write_text(source, "utf-8")
    subprocess.run([str(COMPILER), "-std=gnu11", "-o", "engine", "engine.c", "-lrt"], cwd=folder, check=True)
    with subprocess.Popen([str(folder / "engine"), name]) as process:
        try:
            while not made(Path("/dev/shm", name)) and process.poll() is None:
                time.sleep(0.005)
            return check(f"shm://{name}", Options(timeout=1.5, patience=0.5), only=ONLY)
        finally:
            process.terminate()
            process.wait(10)
            Path("/dev/shm", name).unlink(missing_ok=True)  # of an engine that has died


def test_the_pages_engine_is_right(tmp_path: Path) -> None:
    assert report_of(tmp_path).mistakes == []


def test_a_futex_that_is_never_woken(tmp_path: Path) -> None:
    report = report_of(tmp_path, ("    if (LOAD(H->client_flag) != 1) return;", "    return;"))
    assert report.mistakes == ["not-woken"]


@pytest.mark.exhaustive
def test_a_segment_that_is_never_free_again(tmp_path: Path) -> None:
    report = report_of(tmp_path, ("            if (trainer_has_gone()) end_session(NULL);", ""))
    assert report.mistakes == ["serves-once"]


@pytest.mark.exhaustive
def test_a_reset_that_makes_resets_of_all_that_are_asked(tmp_path: Path) -> None:
    report = report_of(tmp_path, ("        if (ask[env] == 2) {\n", "        if (memchr(ask, 2, ENVS)) {\n"))
    assert report.mistakes == ["mixed-batch"]


def test_an_engine_that_has_died_is_not_blamed_again_and_again(tmp_path: Path) -> None:
    dies = ("static int answer(void)\n{", "static int answer(void)\n{ static int n; if (++n == 30) abort();")
    assert report_of(tmp_path, dies).mistakes == ["ends-session", "serves-once"]


def test_a_feature_that_nobody_knows(tmp_path: Path) -> None:
    assert report_of(tmp_path, ("FEATURES=SEED", "FEATURES=SEEDS")).mistakes == ["unknown-key"]


def test_frames_that_do_not_say_what_they_answer(tmp_path: Path) -> None:
    report = report_of(tmp_path, ("H->answered_seq = seen;", ";"))
    assert report.mistakes == ["two-answers"]
    assert any("answered_seq must be" in finding.text for finding in report.findings)
