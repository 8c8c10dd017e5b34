"""samples/deploy and docs/deploy.md: models run by onnxruntime from C++ and C#, against Python."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from gymnasium import spaces
from sb3_contrib import MaskablePPO

from tests.samples.deploy_demos import (
    HEADERS,
    LIBRARY,
    MODELS,
    OBS,
    Game,
    exported,
    floats,
    not_on_windows,
    observations,
    programs,
    run,
    same_bits,
    skip_without_tools,
    text,
)
from ue_rl.inference import OnnxInference

pytestmark = not_on_windows


OTHERS = ["C#", *(["C++, official header"] if HEADERS else [])]


@pytest.fixture(params=["C++", *(pytest.param(language, marks=pytest.mark.exhaustive) for language in OTHERS)])
def onnx_demo(request: pytest.FixtureRequest) -> list[str]:
    """In each run C++'s; they say what they refuse in the same words."""
    return demo(request.param, "onnx")


@pytest.fixture(params=["C++", *OTHERS])
def each_demo(request: pytest.FixtureRequest) -> list[str]:
    return demo(request.param, "onnx")


def demo(language: str, name: str) -> list[str]:
    skip_without_tools(language)
    if LIBRARY is None:
        pytest.skip("this onnxruntime wheel has no libonnxruntime.so of its own")
    return programs()[language, name]


@pytest.mark.parametrize(("kind", "normalised"), MODELS)
def test_actions_are_those_of_python_to_the_bit(
    each_demo: list[str], models: dict[tuple[str, bool], Path], kind: str, normalised: bool
) -> None:
    policy = OnnxInference(models[kind, normalised])
    rows = observations(64)
    actions = policy.run_inference(rows)
    assert len(np.unique(actions, axis=0)) > 3
    done = run([*each_demo, models[kind, normalised], str(OBS), str(policy.act_size)], text(rows))
    assert same_bits(floats(done.stdout), actions)


def test_nothing_is_reported(each_demo: list[str], models: dict[tuple[str, bool], Path], tmp_path: Path) -> None:
    """By onnxruntime, which leaves an id of the machine and events in the home of whoever has not opted out."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MONO_DISABLE_SHARED_AREA": "1"}
    environ |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    command = [*each_demo, str(models["discrete", False]), str(OBS), "1"]
    subprocess.run(command, env=environ, input=text(observations(2)), check=True, capture_output=True, text=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_dict_observation_as_one_row(onnx_demo: list[str], tmp_path: Path) -> None:
    parts = {"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (3,))}
    env = Game(spaces.Box(-1, 1, (2,)), spaces.Dict(parts))
    flat = exported(tmp_path / "flat.onnx", env, flat_input=True)
    rows = observations(8)
    done = run([*onnx_demo, flat, "5", "2"], text(rows))
    assert same_bits(floats(done.stdout), OnnxInference(flat).run_inference(rows))
    keyed = exported(tmp_path / "keyed.onnx", env)
    said = run([*onnx_demo, keyed, "5", "2"], text(rows), 1).stderr
    assert "the model's inputs are a, b, not obs alone: export a Dict observation with flat_input=True" in said


def test_an_image_as_the_engine_has_it(onnx_demo: list[str], tmp_path: Path) -> None:
    pixels = spaces.Box(0, 255, (8, 6, 3), np.uint8)
    file = exported(tmp_path / "image.onnx", Game(spaces.Box(-1, 1, (2,)), pixels))
    rows = np.random.default_rng(0).integers(0, 256, (4, 8 * 6 * 3)).astype(np.float32)
    done = run([*onnx_demo, file, "144", "2"], text(rows))
    assert same_bits(floats(done.stdout), OnnxInference(file).run_inference(rows.reshape(4, 8, 6, 3)))


@pytest.mark.parametrize("optional", [False, True])
def test_masks_are_heeded_and_forgotten_ones_refused(onnx_demo: list[str], tmp_path: Path, optional: bool) -> None:
    file = tmp_path / "masked.onnx"
    exported(file, Game(spaces.MultiDiscrete([3, 4])), algorithm=MaskablePPO, optional_masks=optional)
    policy = OnnxInference(file)
    rows = observations(8)
    masks = np.random.default_rng(0).random((8, 7)) < 0.4
    masks[:, [1, 5]] = True
    masked = policy.run_inference(rows, action_masks=masks)
    done = run([*onnx_demo, file, str(OBS), "2", "1", "7"], text(np.hstack([rows, masks])))
    assert same_bits(floats(done.stdout), masked)
    without = [*onnx_demo, file, str(OBS), "2"]
    if not optional:
        assert "give masks of 7 flags a row, 1 = legal" in run(without, text(rows), 1).stderr
        return
    free = policy.run_inference(rows)
    assert (free != masked).any()
    assert same_bits(floats(run(without, text(rows)).stdout), free)


def test_masks_for_a_model_that_takes_none_are_refused(
    onnx_demo: list[str], models: dict[tuple[str, bool], Path]
) -> None:
    command = [*onnx_demo, models["discrete", False], str(OBS), "1", "1", "7"]
    said = run(command, text(np.hstack([observations(2), np.ones((2, 7), np.float32)])), 1).stderr
    assert "the model takes no action masks: leave them out" in said


def test_files_that_do_not_fit_are_refused_in_a_sentence(
    each_demo: list[str], models: dict[tuple[str, bool], Path], recurrent: Path, tmp_path: Path
) -> None:
    good = models["box", False]
    model = onnx.load(good)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "foreign.onnx")
    model = onnx.load(good)
    model.metadata_props[0].value = model.metadata_props[0].value.replace('"format": 1', '"format": 2')
    onnx.save(model, tmp_path / "later.onnx")
    (tmp_path / "broken.onnx").write_bytes(good.read_bytes()[:1000])
    for file, obs, act, said in [
        (good, 6, 2, "the model has 5 observation and 2 action numbers, the game 6 and 2"),
        (good, 5, 1, "the model has 5 observation and 2 action numbers, the game 5 and 1"),
        (recurrent, 5, 2, "the model's inputs are obs, "),
        (tmp_path / "foreign.onnx", 5, 2, "the model has no description: export it with ue_rl"),
        (tmp_path / "later.onnx", 5, 2, "has another format than 1"),
        (tmp_path / "broken.onnx", 5, 2, "broken.onnx failed"),
        (tmp_path / "none.onnx", 5, 2, "File doesn't exist"),
    ]:
        done = run([*each_demo, file, str(obs), str(act)], text(observations(2)), 1)
        assert said in done.stderr
        assert done.stdout == ""


def test_an_observation_that_is_no_number_is_named(onnx_demo: list[str], models: dict[Any, Path]) -> None:
    done = run([*onnx_demo, models["discrete", True], str(OBS), "1"], "1 2 3 4 5\n1 2 3 NaN 5\n", 1)
    assert "the observation of row 1 holds NaN or infinity" in done.stderr


def test_a_call_is_timed(onnx_demo: list[str], models: dict[Any, Path]) -> None:
    done = run([*onnx_demo, models["discrete", True], str(OBS), "1", "11"], text(observations(3)))
    assert len(done.stdout.splitlines()) == 3
    assert float(done.stderr) > 0


# -- docs/deploy.md


@pytest.fixture(scope="module")
def page_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = spaces.Box(-2, 2, (1,)), spaces.Box(-9, 9, (3,))
    return exported(tmp_path_factory.mktemp("page") / "policy.onnx", Game(*sizes))


def shown(model: Path, lines: str) -> None:
    rows = np.array([[1, 0, 0.5], [0, 1, -0.5]], np.float32)
    assert [float(word) for word in lines.split()] == pytest.approx(
        OnnxInference(model).run_inference(rows)[:, 0], 1e-5
    )


@pytest.mark.parametrize("language", ["C++", "C#"])
def test_the_page_s_onnxruntime(language: str, page_model: Path) -> None:
    command = ["env", "-C", str(page_model.parent), *demo(language, "page's onnx")]
    shown(page_model, run(command, "").stdout.replace(",", "."))
