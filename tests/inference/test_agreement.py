"""Which engines a file may act in: where a bridge takes it, and where `ue-rl play` does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Discrete

from tests.support.models import export_briefly, make
from tests.support.onnx_files import box_of, described, gun, parts
from ue_rl.bridges import GymnasiumBridge, VectorBridge, run_in_thread
from ue_rl.cli import cli
from ue_rl.inference import OnnxInference, Sb3Inference
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system import errors

OBS, ACT = "DICT(a:BOX(0:1)[2],b:BOX(-inf:inf)[1]FLOAT64)", "DICT(aim:BOX(-1:1)[2],gun:DISCRETE(4))"
# what an engine says of three numbers each way -> the field that refuses the file of SEEN and DONE
ENGINES = {
    (OBS, ACT): None,
    ("", ACT): None,
    (OBS, ""): None,
    ("", ""): None,
    ("DICT(a:BOX(0:1)[1],b:BOX(0:1)[2])", ACT): "OBS_SPACE.a",
    ("DICT(a:BOX(0:1)[2],c:BOX(0:1)[1])", ACT): "OBS_SPACE",
    ("DICT(a:BOX(0:1)[2],b:DISCRETE(3))", ACT): "OBS_SPACE.b",
    (OBS, "DICT(aim:BOX(-1:1)[2],gun:DISCRETE(2:5))"): "ACT_SPACE.gun",
    (OBS, "DICT(aim:BOX(-1:1)[2],gun:DISCRETE(5))"): "ACT_SPACE.gun",
    (OBS, "DICT(aim:BOX(-1:2)[2],gun:DISCRETE(4))"): "ACT_SPACE.aim",
    (OBS, "DICT(gun:DISCRETE(4),aim:BOX(-1:1)[2])"): "ACT_SPACE",
    (OBS, "TUPLE(BOX(-1:1)[2],DISCRETE(4))"): "ACT_SPACE",
    (OBS, "MULTI_DISCRETE(3,3,4)"): "ACT_SPACE",
    (OBS, "BOX(-2:2)"): "ACT_SPACE",
    (OBS, "DICT(aim:BOX(-1:1)[1,2],gun:DISCRETE(4))"): "ACT_SPACE.aim",
    (OBS, "DICT(aim:BOX(-1:1)[2],weapon:DISCRETE(4))"): "ACT_SPACE",
}


class Still(VectorBridge):
    """Ends every episode at once."""

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.dones[env_ids] = 1


def engine(observed: str, acted: str, version: int = 1) -> EnvSpec:
    line = f"CONFIG:OBS=3;ACT=3;VERSION={version}"
    line += f";OBS_SPACE={observed}" if observed else ""
    return decode_handshake((line + (f";ACT_SPACE={acted}" if acted else "") + "\n").encode())


def file(path: Path, **changes: Any) -> OnnxInference:
    path.write_bytes(described(1, **changes))
    return OnnxInference(path)


@pytest.mark.parametrize("spaces", ENGINES)
def test_a_bridge_takes_a_file_of_its_own_spaces_alone(tmp_path: Path, spaces: tuple[str, str]) -> None:
    policy, bridge = file(tmp_path / "p.onnx"), Still(engine(*spaces))
    if ENGINES[spaces] is None:
        bridge.set_inference_interface(policy)
        return
    bridge.set_inference_interface(SimpleNamespace(run_inference=np.copy))  # type: ignore[arg-type]
    before = bridge.lockstep.policy
    with pytest.raises(errors.ModelMismatch, match="made for another engine") as caught:
        bridge.set_inference_interface(policy)
    assert caught.value.field == ENGINES[spaces]
    assert bridge.lockstep.policy is before


@pytest.mark.parametrize(
    ("spaces", "field"),
    [((OBS, ACT), None), ((OBS, ""), "ACT_SPACE"), ((OBS, "DICT(aim:BOX(-1:1)[2],gun:DISCRETE(5))"), "ACT_SPACE.gun")],
    ids=["its own", "silence, which a trainer takes for a Box", "another count"],
)
def test_play_takes_a_file_of_the_engines_spaces_alone(
    tmp_path: Path, spaces: tuple[str, str], field: str | None
) -> None:
    file(tmp_path / "p.onnx")
    with run_in_thread(Still(engine(*spaces))) as server:
        result = CliRunner().invoke(cli, ["play", str(tmp_path / "p.onnx"), "--port", str(server.port)])
    assert (result.exit_code == 0) == (field is None), (result.output, result.exception)
    assert field is None or isinstance(result.exception, errors.ModelMismatch)
    assert getattr(result.exception, "field", None) == field


def test_play_gives_parts_by_name_and_a_bridge_by_place(tmp_path: Path) -> None:
    policy = file(tmp_path / "p.onnx", observed=parts(b=box_of(1), a=box_of(2)))
    policy.require_spaces(engine(OBS, ACT), as_trainer=True)
    with pytest.raises(errors.ModelMismatch, match=r"OBS_SPACE.*expected DICT of a, b; got DICT of b, a"):
        policy.require_spaces(engine(OBS, ACT))


def test_a_file_of_one_plain_row_fits_every_observation(tmp_path: Path) -> None:
    """As one that was trained behind a wrapper that flattens."""
    Still(engine(OBS, ACT)).set_inference_interface(file(tmp_path / "p.onnx", observed=box_of(3)))


def test_named_numbers_stand_in_the_files_order(tmp_path: Path) -> None:
    policy = file(tmp_path / "p.onnx", obs_names=("x", "y", "fuel"))
    for names in (("x", "y", "fuel"), ("x", "z", "fuel"), ()):
        policy.require_spaces(replace(engine(OBS, ACT), obs_names=names))
    moved = replace(engine(OBS, ACT), obs_names=("x", "fuel", "y"))
    with pytest.raises(errors.ModelMismatch, match=r"OBS_NAMES.*expected fuel at 1; got y at 1"):
        policy.require_spaces(moved)
    policy.require_spaces(moved, as_trainer=True)  # parts go by name there, and their numbers with them


def test_agents_of_one_group_are_compared(tmp_path: Path) -> None:
    right, wrong = engine(OBS, ACT), engine(OBS, "DICT(aim:BOX(-1:1)[2],gun:DISCRETE(3))")
    policy = file(tmp_path / "p.onnx")
    for one in (right, wrong):
        spec = EnvSpec(3, 3, groups=(AgentGroup("crew", 2, one),))
        if one is right:
            policy.require_spaces(spec)
        else:
            with pytest.raises(errors.ModelMismatch, match=r"ACT_SPACE\.gun"):
                policy.require_spaces(spec)


def test_the_deployed_plugin_cannot_say_what_it_takes(tmp_path: Path) -> None:
    file(tmp_path / "p.onnx").require_spaces(engine("", "", version=0), as_trainer=True)


def test_a_choice_of_another_game_is_refused_though_the_sizes_fit(tmp_path: Path) -> None:
    """Mountain cars: 2 numbers seen, 1 done, as a choice of three or as a force."""
    from stable_baselines3 import PPO

    path = tmp_path / "p.zip"
    PPO("MlpPolicy", "MountainCar-v0", n_steps=8, batch_size=8, device="cpu").save(path)
    for env, fits in (("MountainCar-v0", True), ("MountainCarContinuous-v0", False)):
        words = ["play", str(path), "--env", env, "--episodes", "1", "--max-episode-steps", "3"]
        result = CliRunner().invoke(cli, words)
        assert (result.exit_code == 0) == fits, (result.output, result.exception)
        assert fits or isinstance(result.exception, errors.ModelMismatch)
    GymnasiumBridge("MountainCar-v0").set_inference_interface(Sb3Inference(path))


CHOICES = parts(gear=gun(3, -1), legs={"type": "MultiBinary", "shape": [1]}, at=box_of(1))


@pytest.mark.parametrize("wrong", [(2, 0, 0), (-2, 0, 0), (0.5, 0, 0), (0, 2, 0), (0, -1, 0), (0, 0.1, 0)])
def test_an_observed_choice_that_does_not_exist_is_refused(tmp_path: Path, wrong: tuple[float, ...]) -> None:
    policy = file(tmp_path / "p.onnx", observed=CHOICES)
    right = np.array([[-1, 1, 0.3], [1, 0, -7]], np.float32)
    np.testing.assert_array_equal(policy.run_inference(right), right)
    bad = np.concatenate([right, [np.float32(wrong)]])
    named = {"gear": bad[:, :1], "legs": bad[:, 1:2], "at": bad[:, 2:]}
    for given in (bad, bad.astype(np.float64), named):
        with pytest.raises(errors.ConfigurationError, match="not of the model's space") as caught:
            policy.run_inference(given)
        assert caught.value.env_id == 2
        assert "an integer from" in str(caught.value)
    np.testing.assert_array_equal(policy.run_inference(right), right)


def test_a_discrete_observation_outside_its_space_is_refused(path: Path) -> None:
    export_briefly(make(action=Discrete(2), observation=Discrete(6)), path)
    policy = OnnxInference(path)
    assert policy.run_inference(np.arange(6, dtype=np.float32)[:, None]).shape == (6, 1)
    for value in (6, -1, 2.7):
        with pytest.raises(errors.ConfigurationError, match=r"an integer from 0 to 5 as number 0; got"):
            policy.run_inference(np.array([[value]], np.float32))
