"""A checkpoint that other versions wrote, and that does not load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.saving import checkpoints
from ue_rl.training.saving.checkpoints import Checkpoint, CheckpointStore


def test_versions_that_differ_are_said_where_nothing_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where NumPy 2 wrote a run that is resumed under 1.26: `No module named 'numpy._core'` alone says nothing."""

    def load(_: Checkpoint) -> None:
        raise ModuleNotFoundError("No module named 'numpy._core'")

    store = CheckpointStore(tmp_path)
    store.save(1, lambda folder: {})
    with pytest.raises(ConfigurationError) as caught:
        store.newest_that_loads(load)
    assert "saved with" not in str(caught.value).partition("saved with: ")[2], "nothing differs"
    here = checkpoints.installed
    old = {"numpy": "1.26.4", "torch": here("torch")["torch"]}
    monkeypatch.setattr(checkpoints, "installed", lambda *names: {**here(*names), **old})
    with pytest.raises(ConfigurationError) as caught:
        store.newest_that_loads(load)
    differs = f"it was saved with numpy {np.__version__}, and is read with numpy 1.26.4"
    assert differs in str(caught.value)
    assert "numpy._core" in str(caught.value)
    assert differs in caplog.text
