"""Site: the files of a page, from a folder."""

from __future__ import annotations

import mimetypes
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from ue_rl.system.errors import ConfigurationError

# What mimetypes may not know, or may know otherwise by a registry of the system: browsers run modules and WebAssembly
# under these types alone.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
}


class SiteAnswer(NamedTuple):
    """What is said to a GET: its status, its type, and its bytes; `elsewhere`: where to look instead."""

    status: HTTPStatus
    kind: str
    body: bytes
    elsewhere: str = ""


class Site:
    """The files under a folder.

    Args:
        path: the folder, whose first page is index.html; or another first page, in its folder.

    Raises:
        ConfigurationError: there is no such folder or page.
    """

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            self.folder = path
            self.first = "index.html"
        else:
            self.folder = path.parent
            self.first = path.name
        if not (self.folder / self.first).is_file():
            raise ConfigurationError(
                "there is no page to serve",
                field="serve",
                expected="a folder with an index.html, or a page",
                got=str(path),
            )

    def answer(self, target: str) -> SiteAnswer:
        """The file that a GET of `target`, such as "/game.js?1", is for. Nothing outside of the folder is read."""
        path = unquote(target.partition("?")[0].partition("#")[0])
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if any(part == ".." or "\\" in part or ":" in part or "\0" in part for part in parts):
            return _missing(path)
        if not parts and self.first != "index.html":
            return SiteAnswer(HTTPStatus.FOUND, "text/plain", b"", "/" + self.first)
        file = self.folder.joinpath(*parts)
        if file.is_dir():
            if not path.endswith("/"):
                return SiteAnswer(HTTPStatus.FOUND, "text/plain", b"", "/" + "/".join(parts) + "/")
            file = file / "index.html"
        try:
            body = file.read_bytes()
        except OSError:
            return _missing(path)
        guessed, _ = mimetypes.guess_type(file.name)
        kind = _TYPES.get(file.suffix.lower()) or guessed
        if not kind:
            kind = "application/octet-stream"
        return SiteAnswer(HTTPStatus.OK, kind, body)


def _missing(path: str) -> SiteAnswer:
    return SiteAnswer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"There is no {path} here.\n".encode())
