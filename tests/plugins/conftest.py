"""What the tests of all plug-ins have."""

from __future__ import annotations

import importlib
import importlib.util
import ssl
from typing import Any

import pytest

# Each client of httpx reads the certificates of the whole world, and no test asks anyone whom they are for.
WORLD = {ssl.get_default_verify_paths().openssl_cafile}
if importlib.util.find_spec("certifi"):
    WORLD.add(importlib.import_module("certifi").where())


@pytest.fixture(autouse=True)
def _no_certificates_of_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ssl.SSLContext.load_verify_locations

    def read_others(context: ssl.SSLContext, cafile: Any = None, *others: Any, **named: Any) -> None:
        if cafile not in WORLD:
            read(context, cafile, *others, **named)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", read_others)
