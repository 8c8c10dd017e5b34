"""`ue-rl check page://..`: a page and a Node process are found right, and what pages do wrong is named."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.plugins.web.pages import CHROMIUM, WEB, chromium, in_chromium, in_node, needs_node, node
from tests.support.descriptors import many_are_open
from tests.support.listening import free_port
from tests.support.slack import patient
from ue_rl.cli.init import init
from ue_rl.devtools import check as compliance
from ue_rl.devtools.check import CheckReport, Options, Verdict
from ue_rl.plugins.web.page_port import PagePort
from ue_rl.system import errors

CARTS = WEB / "carts"
HERE = Path(__file__).parent
FAST = Options(timeout=20.0, patience=1.0)
OF_A_PAGE = ("a seed twice", "what actions do", "next trainer")
OF_MISTAKES = (*OF_A_PAGE, "ends of episodes", "last observations")  # the checks that name those which are planted


def wrong(report: CheckReport) -> list[str]:
    """What did not pass, and was no matter of the engine's lacking it."""
    return [str(found) for found in report.findings if found.outcome in (Verdict.FAIL, Verdict.WARN)]


def no_port_is_left() -> bool:
    """Of pages, and no thread."""
    return not PagePort._all and not [each for each in threading.enumerate() if each.name.startswith("ue_rl-page")]


@pytest.mark.exhaustive
@pytest.mark.timeout(180)
@pytest.mark.parametrize("where", [in_node("node"), in_chromium("chromium")])
def test_the_carts_are_right(where: str) -> None:
    port = free_port()
    if where == "node":
        with node(CARTS / "node.js", f"ws://127.0.0.1:{port}"):
            report = compliance.check(f"page://127.0.0.1:{port}?wait=30s", Options(timeout=20.0))
    else:
        report = compliance.check(f"page://127.0.0.1:{port}?serve={CARTS}&browser=headless&wait=60s")
    assert not wrong(report), "\n".join(wrong(report))
    assert report.count(Verdict.PASS) >= 51
    assert no_port_is_left()


@needs_node
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["everything", "agents"])
def test_all_that_ue_rl_js_offers_is_right(name: str) -> None:
    port = free_port()
    with node(HERE / "games.mjs", name, f"ws://127.0.0.1:{port}"):
        report = compliance.check(f"page://127.0.0.1:{port}?wait=30s", Options(timeout=20.0))
    assert not wrong(report), "\n".join(wrong(report))


@needs_node
@pytest.mark.parametrize("only", [OF_MISTAKES, pytest.param((), marks=pytest.mark.exhaustive)])
def test_a_page_that_speaks_the_protocol_by_itself_is_right(only: tuple[str, ...]) -> None:
    port = free_port()
    with node(HERE / "mistakes.mjs", "none", f"ws://127.0.0.1:{port}"):
        report = compliance.check(f"page://127.0.0.1:{port}?wait=30s", FAST, only=only)
    assert report.count(Verdict.PASS) >= len(only)
    assert not wrong(report), "\n".join(wrong(report))
    assert no_port_is_left()


@needs_node
def test_a_page_is_checked_by_a_process_that_has_many_files_open() -> None:
    """Its text goes through a gate in that process."""
    port = free_port()
    with many_are_open(), node(HERE / "mistakes.mjs", "none", f"ws://127.0.0.1:{port}"):
        report = compliance.check(f"page://127.0.0.1:{port}?wait=30s", FAST, only=("ends of episodes",))
    assert report.count(Verdict.PASS)
    assert not wrong(report), "\n".join(wrong(report))
    assert no_port_is_left()


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize(
    ("planted", "mistake", "words", "only"),
    [
        ("twice", "two-answers", "", ()),
        pytest.param("no SEQ", "number-missing", "", (), marks=pytest.mark.exhaustive),
        ("from one", "env-off-by-one", "", ()),
        pytest.param("NaN", "nan", "NaN", (), marks=pytest.mark.exhaustive),
        pytest.param("true", "bad-flag", "DONE", (), marks=pytest.mark.exhaustive),
        pytest.param("decimal comma", "decimal-comma", "", (), marks=pytest.mark.exhaustive),
        pytest.param("too many numbers", "wrong-count", "", (), marks=pytest.mark.exhaustive),
        ("begins by itself", "resets-itself", "", ("ends of episodes", "last observations")),
        ("ignores actions", "action-ignored", "", ("a seed twice", "what actions do")),
        ("Math.random", "seed-ignored", "", ("a seed twice",)),
        ("late handshake", "late-handshake", "", ()),
        ("JSON", "bad-handshake", "", ()),
        ("binary", "ends-session", "the page has sent a binary message", ()),
        ("dials once", "serves-once", "", ("next trainer",)),
    ],
)
def test_planted_mistakes_of_a_page_are_named(planted: str, mistake: str, words: str, only: tuple[str, ...]) -> None:
    """By the checks of its kind, where it takes long until all checks come to them."""
    port = free_port()
    if only:
        # The few of them end by their steps, also on a machine that is busy.
        options = Options(timeout=patient(2.0), patience=6.0)
    else:
        options = replace(FAST, timeout=patient(2.0))
    with node(HERE / "mistakes.mjs", planted, f"ws://127.0.0.1:{port}"):
        report = compliance.check(f"page://127.0.0.1:{port}?wait=30s", options, only=only)
    named = [found for found in report.findings if found.mistake is not None and found.mistake.name == mistake]
    assert named, "\n".join(wrong(report))
    assert words in f"{named[0].text} {named[0].seen}"


def test_nobody_dials() -> None:
    with pytest.raises(errors.EngineUnreachable, match="no page has dialled"):
        compliance.check(f"page://127.0.0.1:{free_port()}?wait=200ms")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_the_page_that_init_writes_is_right(tmp_path: Path) -> None:
    folder = tmp_path / "game"
    done = CliRunner().invoke(init, ["--page", str(folder)])
    assert done.output.splitlines()[-1] == f"then: ue-rl train --page {folder}"
    assert sorted(path.name for path in folder.iterdir()) == ["game.js", "index.html", "ue_rl.d.ts", "ue_rl.js"]
    assert (folder / "ue_rl.js").read_text("utf-8") == (WEB / "ue_rl.js").read_text("utf-8")
    port = free_port()
    with chromium(f"http://127.0.0.1:{port}/"):  # one for all checks, whose page dials again
        report = compliance.check(f"page://127.0.0.1:{port}?serve={folder}&wait=60s", FAST, only=OF_A_PAGE)
    assert report.count(Verdict.PASS) >= len(OF_A_PAGE)
    assert not wrong(report), "\n".join(wrong(report))
    assert "there is such a file" in str(CliRunner().invoke(init, ["--page", str(folder)]).exception)


def test_init_of_a_page_looks_at_no_engine() -> None:
    assert "looks at no engine" in CliRunner().invoke(init, ["--page", "x", "tcp://127.0.0.1:1"]).output
