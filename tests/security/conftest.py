"""What the tests of files share: a key of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ue_rl.system.trust import origin


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", str(tmp_path / "config"))
    return origin.key_file()
