"""Exported files in Node and in the web's runtime, against predict().

`.ci/run runtimes` installs both runtimes by npm, from tests/inference/node/package-lock.json, and names their folder in
UE_RL_NODE_RUNTIMES. Without it nothing is run here: the tests of a machine need no network and no Node.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sb3_contrib import MaskablePPO

from tests.support.exported_cases import Case, cases
from tests.support.models import make
from ue_rl.inference import export_onnx

FOLDER = os.environ.get("UE_RL_NODE_RUNTIMES")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="NOT RUN: onnxruntime-node and -web, which .ci/run runtimes has")
# One of each kind of graph; benchmarks/onnx_runtimes.py has all.
NAMES = ("PPO, Box, VecNormalize", "PPO, MultiDiscrete", "PPO, images", "PPO, Dict", "SAC", "DQN", "MaskablePPO",
         "RecurrentPPO")  # fmt: skip


def text_of(array: Any) -> dict[str, Any]:
    array = np.ascontiguousarray(array, np.float32)
    return {"shape": array.shape, "data": base64.b64encode(array.tobytes()).decode()}


def act(which: str, given: list[tuple[Path, dict[str, Any]]], folder: Path) -> list[Any]:
    """What the runtime makes of these files and inputs: the arrays by name, or the text of the error."""
    asked = [{"file": str(file), "feeds": {name: text_of(x) for name, x in feeds.items()}} for file, feeds in given]
    (folder / "cases.json").write_text(json.dumps(asked))
    command = ["node", f"{FOLDER}/act.mjs", which, str(folder / "cases.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found: list[Any] = []
    for result in json.loads(done.stdout):
        if "error" in result:
            found.append(result["error"])
            continue
        outputs = result["outputs"]
        found.append(
            {
                name: np.frombuffer(base64.b64decode(given["data"]), np.float32).reshape(given["shape"])
                for name, given in outputs.items()
            }
        )
    return found


@pytest.fixture(scope="module")
def all_cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return list(cases(tmp_path_factory.mktemp("files"), NAMES))


@pytest.mark.parametrize("which", ["node", "web"])
def test_actions_are_those_of_predict(which: str, all_cases: list[Case], tmp_path: Path) -> None:
    results = act(which, [(case.file, case.feeds) for case in all_cases], tmp_path)
    for case, found in zip(all_cases, results, strict=True):
        assert isinstance(found, dict), (case.name, found)
        assert case.off(found["actions"]) <= (0.0 if case.discrete else 1e-5), case.name


@pytest.mark.parametrize("which", ["node", "web"])
def test_a_forgotten_mask_is_an_error_and_a_given_one_is_heeded(which: str, tmp_path: Path) -> None:
    from gymnasium import spaces

    model = make(MaskablePPO, spaces.Discrete(3))
    export_onnx(model, tmp_path / "masked.onnx", n_verify=1000)
    obs = np.zeros((3, 4), np.float32)
    given = [(tmp_path / "masked.onnx", {"obs": obs}),
             (tmp_path / "masked.onnx", {"obs": obs, "action_masks": np.eye(3)})]  # fmt: skip
    forgotten, masked = act(which, given, tmp_path)
    assert "action_masks" in forgotten
    assert masked["actions"].ravel().tolist() == [0.0, 1.0, 2.0]
