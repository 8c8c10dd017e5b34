"""The scheme of web pages, for the entry points of setup.cfg: the trainer listens at such an address, a page dials it.

page://HOST:PORT        the page that dials there
page://HOST:PORT/NAME   the one that dials there under this name: several pages at one port are several engines

Options of their own: origin=http://localhost:5173 names pages of another server that may be the engine, several with
commas between them; serve=PATH serves a folder, or a page and what lies beside it, at the same port; browser=headless
shows that page in a headless Chromium, browser=open in the user's browser; with cert=FILE and key=FILE it speaks TLS.
"""

from __future__ import annotations

import re
from pathlib import Path

from ue_rl.connections.base.address import Scheme, WrongPart, host_and_port
from ue_rl.connections.dialling import DEADLINES, SchemeHandler

BROWSERS = ("open", "headless")  # the user's own; a headless Chromium
_NAME = re.compile(r"[A-Za-z0-9._-]*")
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^\s/?#,@]+")


def read_place(place: str) -> str:
    """HOST:PORT or HOST:PORT/NAME; raises WrongPart."""
    where, slash, name = place.partition("/")
    if not _NAME.fullmatch(name):
        raise WrongPart(f"the name of its page has letters, digits, '.', '_' and '-', and is not {name!r}")
    return host_and_port(where) + (slash + name if name else "")


def read_origins(text: str) -> str:
    """Origins of pages, with commas between them; raises WrongPart."""
    for origin in text.split(","):
        if not _ORIGIN.fullmatch(origin):
            raise WrongPart("an origin such as http://localhost:5173, without a path")
    return text


def read_path(text: str) -> Path:
    """A folder or a file that is there; raises WrongPart."""
    path = Path(text)
    if not text or not path.exists():
        raise WrongPart("a folder or a page that is there")
    return path


def read_browser(text: str) -> str:
    """How the page is shown; raises WrongPart."""
    if text not in BROWSERS:
        raise WrongPart(" or ".join(BROWSERS))
    return text


PAGE = SchemeHandler(
    Scheme(
        "page://HOST:PORT",
        "page://127.0.0.1:7780",
        read_place,
        ("origin", "serve", "browser", "token_file", "ca", "cert", "key", *DEADLINES),
        {"origin": read_origins, "serve": read_path, "browser": read_browser},
    ),
    "ue_rl.plugins.web.dialling:dial",
    text_through="ue_rl.plugins.web.plain_text:plain_text",
    kept="ue_rl.plugins.web.dialling:keep",
)
