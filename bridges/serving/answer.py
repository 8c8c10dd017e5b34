"""JSON as the answer to a request over HTTP."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """Half a character, which UTF-8 has no bytes for, goes out as JSON's escape of it: errors repeat what came."""

    def render(self, content: Any) -> bytes:
        """See JSONResponse."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")
