"""A checkpoint that other versions wrote, and that does not load."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.trust.origin import MANIFEST, SIGNATURE, signed
from ue_rl.training.saving.checkpoints import Checkpoint, CheckpointStore


def test_versions_that_differ_are_said_where_nothing_loads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`No module named 'numpy._core'` alone says nothing."""

    def load(_: Checkpoint) -> None:
        raise ModuleNotFoundError("No module named 'numpy._core'")

    store = CheckpointStore(tmp_path)
    store.save(1, lambda folder: {})
    with pytest.raises(ConfigurationError) as caught:
        store.newest_that_loads(load)
    assert "saved with" not in str(caught.value).partition("saved with: ")[2], "nothing differs"
    assert store.last is not None
    path = store.last.path / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["versions"]["numpy"] = "1.26.4"
    del manifest[SIGNATURE]
    path.write_text(json.dumps(signed(manifest)))
    with pytest.raises(ConfigurationError) as caught:
        store.newest_that_loads(load)
    differs = f"it was saved with numpy 1.26.4, and is read with numpy {np.__version__}"
    assert differs in str(caught.value)
    assert "numpy._core" in str(caught.value)
    assert differs in caplog.text
