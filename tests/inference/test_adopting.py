"""Files that other tools made of an exported one: compared with the model again, and sealed, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO, SAC

from tests.support.command_line import ok, refused
from tests.support.models import export_briefly, make, rows
from ue_rl.inference import OnnxInference
from ue_rl.inference.export.onnx import adopt_onnx
from ue_rl.inference.metadata import METADATA_KEY
from ue_rl.system.errors import ExportError, ModelLoadError


def optimised(source: Path, target: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(source, options)


def converted(source: Path, target: Path) -> None:
    """To onnxruntime's own format."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(source, options)


def changed(change: Callable[[Any], None]) -> Callable[[Path, Path], None]:
    def tool(source: Path, target: Path) -> None:
        proto = onnx.load(source)
        change(proto)
        onnx.save(proto, target)

    return tool


def with_notes(proto: Any) -> None:
    for key in ("framework", "licence"):
        proto.metadata_props.add(key=key, value="of somebody else")


def with_four_rows(proto: Any) -> None:
    for port in (*proto.graph.input, *proto.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = 4


def without_description(proto: Any) -> None:
    del proto.metadata_props[:]


def coarse(proto: Any) -> None:
    """Weights of eight bits, as a quantised file has them."""
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim == 2:
            step = np.abs(array).max() / 127
            rounded = (np.round(array / step) * step).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(rounded, tensor.name))


TOOLS = {
    "optimised": (optimised, "tool.onnx"),
    "ort": (converted, "tool.ort"),
    "notes": (changed(with_notes), "tool.onnx"),
    "four rows": (changed(with_four_rows), "tool.onnx"),
    "no description": (changed(without_description), "tool.onnx"),
}


@pytest.fixture(scope="module")
def model() -> Any:
    return make(SAC)


@pytest.fixture(scope="module")
def content(model: Any, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of the model's file."""
    path = tmp_path_factory.mktemp("model") / "policy.onnx"
    export_briefly(model, path)
    return path.read_bytes()


@pytest.fixture
def exported(content: bytes, path: Path) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", TOOLS)
def test_what_another_tool_made_is_sealed_again(name: str, model: Any, exported: Path, tmp_path: Path) -> None:
    tool, file = TOOLS[name]
    made = tmp_path / file
    tool(exported, made)
    if name != "no description":
        with pytest.raises(ModelLoadError, match=r"not as it was exported.*--adopt FILE"):
            OnnxInference(made)
    report = adopt_onnx(model, made, n_verify=1000)
    assert (report.path, report.exporter) == (made, "adopted")
    policy = OnnxInference(made)
    assert policy.metadata is not None
    assert policy.metadata.sha256 == report.metadata.sha256
    np.testing.assert_allclose(policy.run_inference(rows()), model.predict(rows(), deterministic=True)[0], atol=1e-4)
    if name == "notes":
        kept = {prop.key: prop.value for prop in onnx.load(made).metadata_props}
        assert kept.keys() == {"framework", "licence", METADATA_KEY}
    if name == "four rows":
        assert policy.fixed_batch == 4


def test_a_coarser_file_needs_a_tolerance(model: Any, exported: Path, tmp_path: Path) -> None:
    made, target = tmp_path / "int8.onnx", tmp_path / "sealed.onnx"
    changed(coarse)(exported, made)
    before = made.read_bytes()
    with pytest.raises(ExportError, match=r"acts differently.*--tolerance"):
        adopt_onnx(model, made, target)
    assert made.read_bytes() == before
    assert not target.exists()
    report = adopt_onnx(model, made, target, tolerance=0.1, n_verify=1000)
    assert 1e-3 < report.file_error < 0.1
    assert OnnxInference(target).metadata.verification["tolerance"] == 0.1  # type: ignore[union-attr]
    assert made.read_bytes() == before


def test_a_file_of_another_model_is_refused(exported: Path) -> None:
    with pytest.raises(ExportError, match="acts differently"):
        adopt_onnx(make(SAC, gain=0.5), exported)
    with pytest.raises(ExportError, match=r"not of this model.*action_space"):
        adopt_onnx(make(PPO, spaces.Discrete(3)), exported)


def test_what_onnxruntime_cannot_read_is_refused(model: Any, tmp_path: Path, exported: Path) -> None:
    (tmp_path / "text.onnx").write_text("no file of ONNX")
    with pytest.raises(ExportError, match="onnxruntime cannot read this file"):
        adopt_onnx(model, tmp_path / "text.onnx")
    with pytest.raises(ExportError, match="cannot be read"):
        adopt_onnx(model, tmp_path / "none.onnx")
    changed(without_description)(exported, tmp_path / "bare.onnx")
    converted(tmp_path / "bare.onnx", tmp_path / "bare.ort")
    with pytest.raises(ExportError, match=r"adopt the \.onnx file first|Adopt the \.onnx file first"):
        adopt_onnx(model, tmp_path / "bare.ort")


def test_masks_noise_and_dicts_are_as_the_file_says(tmp_path: Path) -> None:
    parts = spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Discrete(3)})
    for number, (model, options) in enumerate([
        (make(MaskablePPO, spaces.Discrete(3)), {}),
        (make(MaskablePPO, spaces.Discrete(3)), {"action_masks": False}),
        (make(SAC), {"stochastic": True}),
        (make(PPO, observation=parts, policy="MultiInputPolicy"), {"flat_input": True}),
    ]):  # fmt: skip
        path = tmp_path / f"{number}.onnx"
        first = export_briefly(model, path, **options)
        changed(with_notes)(path, path)
        again = adopt_onnx(model, path, n_verify=1000)
        assert again.metadata.inputs == first.metadata.inputs
        assert OnnxInference(path).is_model_loaded()


def test_the_command_line_adopts(model: Any, exported: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "model.zip")
    changed(with_notes)(exported, exported)
    said = ok("export", tmp_path / "model.zip", "--adopt", exported)
    assert "10" in said
    assert OnnxInference(exported).metadata is not None
    converted(exported, tmp_path / "policy.ort")
    ok("export", tmp_path / "model.zip", "--adopt", tmp_path / "policy.ort", "-o", tmp_path / "sealed.ort")
    assert OnnxInference(tmp_path / "sealed.ort").run_inference(rows()).shape == (64, 2)
    for option in (["--flat"], ["--opset", "17"], ["--masks", "none"], ["--stochastic"]):
        wrong = refused("export", tmp_path / "model.zip", "--adopt", exported, *option)
        assert "not for --adopt" in str(wrong)
