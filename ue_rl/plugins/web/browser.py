"""The browser that shows a page: the user's own, or a headless Chromium that ends with the connection."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from html import escape
from pathlib import Path
from urllib.parse import quote

from ue_rl.connections.launching.process import EngineProcess, Output
from ue_rl.system.errors import ConfigurationError, EngineNotStarted

_log = logging.getLogger("ue_rl.connections")

_VARIABLE = "CHROMIUM"
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
_FLAGS = (
    "--headless",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-dev-shm-usage",  # small in containers
    "--disable-gpu",
    # nothing but the page is fetched
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # the timers of a page that nobody sees go on
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)
_GRACE = 2.0  # seconds for it to end by itself
_shown: set[str] = set()  # pages that the user's browser was shown


@contextmanager
def opened(how: str | None, url: str, token: bytes | None = None) -> Iterator[Callable[[], None]]:
    """A page is shown while the block runs; the function it gives raises where the browser has ended.

    Args:
        how: "headless": by a Chromium that ends with the block, "open": by the user's browser, once in this process: a
            page that is open dials again by itself; None: by nobody. url: of the page. token: what it will prove.

    Raises:
        ConfigurationError, EngineNotStarted: as HeadlessBrowser.
    """
    if how is None or (how == "open" and url in _shown):
        yield lambda: None
        return
    # Other users of this machine may read how a program was called: what it opens leads to the address with the token.
    with tempfile.TemporaryDirectory(prefix="ue_rl-page-", ignore_cleanup_errors=True) as folder:
        address = url
        if token is not None:
            address = _leading(Path(folder) / "open.html", f"{url}{_behind(url)}token={quote(token, safe='')}")
        if how == "headless":
            with closing(HeadlessBrowser(address)) as browser:
                yield browser.require_running
        else:
            _shown.add(url)
            show(url, address)
            yield lambda: None


def _behind(url: str) -> str:
    if "#" in url:
        return "&"
    return "#"


def _leading(file: Path, url: str) -> str:
    """A page of this user's alone that leads to `url`; its own address."""
    file.touch(0o600)
    file.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">\n', "ascii")
    return file.as_uri()


class HeadlessBrowser:
    """A headless Chromium with one page, and a profile of its own that goes with it; it ends when this process does.

    Args:
        url: of the page.

    Raises:
        ConfigurationError: there is none. EngineNotStarted: it cannot be run.
    """

    def __init__(self, url: str) -> None:
        program = _installed()
        self._home = tempfile.TemporaryDirectory(prefix="ue_rl-browser-", ignore_cleanup_errors=True)
        self._output = Output(None)
        flags: list[str] = list(_FLAGS)
        if sys.platform != "win32" and os.geteuid() == 0:
            flags.append("--no-sandbox")  # as root it refuses to run with one
        try:
            self._process = EngineProcess(
                [program, *flags, f"--user-data-dir={self._home.name}", url], self._output.file, None
            )
        except BaseException:
            self._clean_up()
            raise

    def require_running(self) -> None:
        """Raises EngineNotStarted: it has ended."""
        if self._process.ended.is_set():
            raise EngineNotStarted(
                "the browser has ended before its page dialled",
                fault="engine",
                got=self._output.last_lines(),
                cure=f"does it run by itself? {_VARIABLE} names another one",
            )

    def close(self) -> None:
        """Ends it; idempotent."""
        self._process.end(_GRACE)
        self._clean_up()

    def _clean_up(self) -> None:
        self._output.close()
        self._home.cleanup()


def show(url: str, address: str) -> None:
    """Opens a page in the user's browser, where there is a display; who waits for the page has said its address.

    Args:
        url: of the page. address: what leads to it.
    """
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        _log.warning("there is no display: open %s yourself, or let it be headless", url)
        return
    with contextlib.suppress(webbrowser.Error):
        webbrowser.open(address)


def _installed() -> str:
    given = os.environ.get(_VARIABLE)
    if given:
        found = shutil.which(given)
    else:
        found = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if found is None:
        raise ConfigurationError(
            "Chromium was not found",
            field="browser",
            got=given,
            expected=f"a program in {_VARIABLE}, a variable of the environment, or one of {', '.join(_PROGRAMS)}",
            cure=f"install it, set {_VARIABLE} to the program, or open the page in a browser of yours",
        )
    return found
