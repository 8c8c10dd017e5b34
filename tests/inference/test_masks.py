"""A policy that was trained with action masks is told which choices are legal, or it does not act: whoever runs it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib import MaskablePPO

from tests.inference.serving import ask, numbers, serving
from tests.support.command_line import ok, refused
from tests.support.models import export_briefly, make, rows
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.bridges.policy import Policy
from ue_rl.envs.agents import NormalizedPolicy
from ue_rl.envs.agents.players import as_player
from ue_rl.inference import OnnxInference, ReloadingInference
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system.errors import ModelMismatch

HELLO = "CONFIG:OBS=4;ACT=1;VERSION=1;ACT_SPACE=DISCRETE(3){}\n"


@pytest.fixture(scope="module")
def model() -> Any:
    return make(MaskablePPO, spaces.Discrete(3))


@pytest.fixture(scope="module")
def needy(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("masks") / "needy.onnx"
    export_briefly(model, path)
    return path


@pytest.fixture(scope="module")
def easy(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("masks") / "easy.onnx"
    export_briefly(model, path, optional_masks=True)
    return path


def spec_of(masks: bool) -> EnvSpec:
    return decode_handshake(HELLO.format(";FEATURES=MASK" if masks else "").strip().encode())


async def test_the_policy_server_refuses_an_engine_that_sends_none(needy: Path, easy: Path) -> None:
    async with serving(needy) as server:
        said = await ask(await server.dial(HELLO.format("")), "")
        assert "must be told which choices are legal" in said
        assert "--masks optional" in said
        masked = await server.dial(HELLO.format(";FEATURES=MASK"))
        assert numbers(await ask(masked, "OBS=0,0,0,0;MASK=010\n")) == [1.0]
    async with serving(easy) as server:
        assert len(numbers(await ask(await server.dial(HELLO.format("")), "OBS=0,0,0,0\n"))) == 1


def test_a_game_without_masks_does_not_act_by_such_a_policy(needy: Path, easy: Path) -> None:
    with pytest.raises(ModelMismatch, match="the engine does not say it"):
        Policy(OnnxInference(needy), spec_of(masks=False))
    observations, masks = rows(2), np.array([[0, 1, 0], [0, 0, 1]], np.uint8)
    decide = Policy(OnnxInference(needy), spec_of(masks=True)).decide
    assert np.ravel(decide([0, 1], observations, masks)).tolist() == [1.0, 2.0]
    assert Policy(OnnxInference(easy), spec_of(masks=False)).decide([0], observations[:1], masks).shape == (1, 1)


@pytest.mark.parametrize("exported", [False, True], ids=["model.zip", "model.onnx"])
def test_play_refuses_an_engine_without_masks(exported: bool, tmp_path: Path) -> None:
    model = make(MaskablePPO, spaces.Discrete(2))  # sizes of CartPole
    path = tmp_path / ("model.onnx" if exported else "model.zip")
    if exported:
        export_briefly(model, path)
    else:
        model.save(path)
    with run_in_thread(GymnasiumBridge("CartPole-v1", num_envs=1)) as engine:
        said = refused("play", path, engine.url, "--episodes", "1", by=ModelMismatch)
    assert "which choices are legal" in str(said)


def test_the_players_of_other_agents_are_given_the_masks(needy: Path, model: Any) -> None:
    buffers: Any = SimpleNamespace(obs=rows(2), masks=np.array([[0, 1, 0], [0, 0, 1]], np.uint8), image=None)
    statistics = SimpleNamespace(normalize_obs=lambda observations: observations)
    spec = decode_handshake(HELLO.format(";ENV_TYPE=MULTI;ENV_COUNT=2;FEATURES=MASK").strip().encode())
    for policy in (OnnxInference(needy), model, NormalizedPolicy(model, statistics)):
        assert as_player(policy, spec, deterministic=True).act(buffers).ravel().tolist() == [1.0, 2.0]
    unmasked = make(action=spaces.Discrete(3))  # PPO, which takes none
    assert as_player(NormalizedPolicy(unmasked, statistics), spec).act(buffers).shape == (2, 1)


def test_a_newer_file_that_needs_masks_does_not_take_over_from_one_that_does_not(
    needy: Path, easy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(easy.read_bytes())
    with ReloadingInference(path, interval=None) as policy:
        path.write_bytes(needy.read_bytes())
        with caplog.at_level(logging.WARNING):
            assert not policy.poll()
        assert "must be told which choices are legal" in caplog.text
        assert not policy.needs_masks
        assert len(policy.run_inference(rows())) == 64


@pytest.mark.parametrize(("masks", "takes", "needs"), [
    (None, True, True), ("optional", True, False), ("none", False, False),
    pytest.param("required", True, True, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_the_command_line_says_whether_masks_are_optional(
    masks: str | None, takes: bool, needs: bool, model: Any, tmp_path: Path
) -> None:
    model.save(tmp_path / "model.zip")
    ok("export", str(tmp_path / "model.zip"), *([] if masks is None else ["--masks", masks]))
    policy = OnnxInference(tmp_path / "model.onnx")
    assert (policy.takes_masks, policy.needs_masks) == (takes, needs)


def test_masks_of_a_policy_that_has_none_are_refused_on_the_command_line(tmp_path: Path) -> None:
    make(action=spaces.Discrete(3)).save(tmp_path / "model.zip")
    said = refused("export", tmp_path / "model.zip", "--masks", "optional")
    assert "PPO takes no action masks" in str(said)
    said = refused("export", tmp_path / "model.zip", "--masks", "none", "--format", "safetensors")
    assert said.field == "masks"
