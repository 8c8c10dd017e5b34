"""The comparison of an exported file with predict(): what is equal, what is rounding, and what is a wrong file."""

from __future__ import annotations

import itertools
import os

import numpy as np
import onnx
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.torch_layers import FlattenExtractor

from tests.inference.converting import edited_by, export_by
from tests.support.models import BOX, export_briefly, extractor, make, rows, with_extractor
from ue_rl.inference import OnnxInference, check_exportable, export_onnx
from ue_rl.inference.export.graph import to_onnx
from ue_rl.system.errors import ExportError


def answering(monkeypatch, model: BaseAlgorithm, change):
    """predict() gives what `change` makes of its actions, the number of the call, from 1, and what was given."""
    real, calls = model.predict, itertools.count(1)

    def predict(*args, **kwargs):
        actions, state = real(*args, **kwargs)
        return change(actions.copy(), next(calls), kwargs), state

    monkeypatch.setattr(model, "predict", predict)


def test_a_difference_above_the_tolerance_leaves_what_was_there(path, monkeypatch):
    """Shift predict() by a thousandth of the range: the least that a wrong export would do."""
    model = make()
    path.write_bytes(b"an older model")
    answering(monkeypatch, model, lambda actions, *_: actions + 0.004)
    with pytest.raises(ExportError, match=r"0\.00\d+ of the action range"):
        export_onnx(model, path)
    assert path.read_bytes() == b"an older model"
    assert os.listdir(path.parent) == [path.name]
    export_briefly(model, path, tolerance=0.01)


def test_one_wrong_discrete_action_is_refused(path, monkeypatch):
    model = make(action=spaces.Discrete(3))

    def change(actions, call, _):
        actions[7] = (actions[7] + (call == 5)) % 3
        return actions

    answering(monkeypatch, model, change)
    with pytest.raises(ExportError, match="any difference of a discrete action"):
        export_onnx(model, path)
    assert not path.exists()


def test_a_tie_in_float32_is_not_the_files_fault(path, monkeypatch):
    """Two choices with the same weights: which one comes out is rounding, and predict() may say either."""
    model = make(DQN, spaces.Discrete(3))
    last = model.q_net.q_net[-1]
    last.weight.data[1] = last.weight.data[0]
    last.bias.data[1] = last.bias.data[0]

    def change(actions, call, _):
        if call == 3:
            actions[np.flatnonzero(actions == 0)[0]] = 1
        return actions

    answering(monkeypatch, model, change)
    assert export_briefly(model, path).ties == 1


def test_a_wrong_choice_under_masks_is_no_tie(path, monkeypatch):
    """The score of a masked choice, -1e8, says nothing about how exact the others are."""
    model = make(MaskablePPO, spaces.Discrete(3))

    def change(actions, _, given):
        masks = given["action_masks"]
        row = int(np.flatnonzero(masks.sum(axis=1) == 2)[0])
        actions[row] = next(n for n in np.flatnonzero(masks[row]) if n != actions[row])
        return actions

    answering(monkeypatch, model, change)
    with pytest.raises(ExportError, match="any difference of a discrete action"):
        export_onnx(model, path, action_masks=True)


def test_twenty_units_in_the_last_place_are_not_rounding(path, monkeypatch):
    model = make(action=spaces.Box(50, 60, (1,), np.float32))
    answering(monkeypatch, model, lambda actions, *_: actions * np.float32(1 + 20 * 2.0**-23))
    with pytest.raises(ExportError, match="which is not rounding"):
        export_onnx(model, path)


def test_the_tolerance_is_no_wider_than_documented(path, monkeypatch):
    span = (make().action_space.high - make().action_space.low)[None]
    for by, refused in ((0.9e-5, False), (1.2e-5, True)):
        model = make()
        answering(monkeypatch, model, lambda actions, *_, by=by: actions + by * span)
        if not refused:
            assert export_briefly(model, path).reason == "equal"
            continue
        with pytest.raises(ExportError, match=r"a difference of 1\.\d+e-05 of the action range"):
            export_onnx(model, path)


@pytest.mark.parametrize(("off", "refused"), [(1.05e-2, False), (0.95e-2, True)])
def test_the_file_may_be_off_by_four_times_what_predict_is(off, refused, path, monkeypatch):
    """In float64 the policy is made to be elsewhere: 4e-2 of the range from the file, and `off` from predict().

    A thousand times what float32 loses on the way, so that its share is none of the figures'.
    """
    model: BaseAlgorithm = make()
    span = np.array([4.0, 6.5])
    real = model.predict

    def predict(obs, **kwargs):
        actions, state = real(obs.astype(np.float32), **kwargs)
        return actions + span * (4e-2 if obs.dtype == np.float64 else 4e-2 - off), state

    monkeypatch.setattr(model, "predict", predict)
    if not refused:
        report = export_briefly(model, path)
        assert report.reason == "rounding"
        assert report.file_error == pytest.approx(4e-2, rel=1e-2)
        assert report.predict_error == pytest.approx(off, rel=1e-2)
        return
    with pytest.raises(ExportError, match=r"which is not rounding.*\(allowed: 4 times that, or 1e-05\)"):
        export_onnx(model, path)


@pytest.mark.parametrize("action", [BOX, spaces.Discrete(3)], ids=str)
def test_a_file_that_is_equal_says_so(action, path):
    report = export_briefly(make(action=action), path)
    assert (report.reason, report.rounded) == ("equal", 0)
    assert "rounding" not in str(report)
    assert {"typical", "extreme"} <= set(report.max_relative_difference)


def reordered(content):
    """The hidden units of the first layer in another order: the same function, added up in another order."""
    proto = onnx.load_from_string(content)
    first, second = [node for node in proto.graph.node if node.op_type == "Gemm"][:2]
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    order = np.random.default_rng(0).permutation(weights[first.input[1]].dims[0])
    for name, axis in ((first.input[1], 0), (first.input[2], 0), (second.input[1], 1)):
        array = onnx.numpy_helper.to_array(weights[name]).take(order, axis)
        weights[name].CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    return proto.SerializeToString()


def edited(change):
    """A change of the named weights and constants of a file."""

    def edit(content):
        proto = onnx.load_from_string(content)
        tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        arrays = {name: onnx.numpy_helper.to_array(tensor).copy() for name, tensor in tensors.items()}
        change(arrays)
        for name, array in arrays.items():
            tensors[name].CopyFrom(onnx.numpy_helper.from_array(array, name))
        return proto.SerializeToString()

    return edit


def saturated(algorithm=SAC, activation=th.nn.ReLU, limit=5000, **kwargs):
    """A policy on raw observations of thousands: float32 keeps three digits where its terms cancel out."""
    space = spaces.Box(-limit, limit, (12,), np.float32)
    options = {"net_arch": [256, 256], "activation_fn": activation}
    model = make(algorithm, observation=space, policy_kwargs=options, **kwargs)
    generator = th.Generator().manual_seed(1)
    for parameter in model.policy.parameters():  # biases differ, so that no two share a place in the file
        parameter.data += 0.01 * th.randn(parameter.shape, generator=generator)
    if algorithm is PPO:  # which clips what the others squash
        model.policy.action_net.weight.data *= 1e-3
    return model


EXHAUSTIVE = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("algorithm", "activation"),
    [
        (SAC, th.nn.ReLU),
        (TD3, th.nn.ELU),
        (PPO, th.nn.ELU),
        *(pytest.param(*each, marks=EXHAUSTIVE) for each in ((SAC, th.nn.ELU), (TD3, th.nn.ReLU), (PPO, th.nn.ReLU))),
    ],
    ids=lambda each: each.__name__,
)
def test_a_difference_that_is_rounding_is_accepted_and_reported(algorithm, activation, path):
    report = export_by(edited_by(reordered), saturated(algorithm, activation), path, tolerance=1e-7)
    assert report.reason == "rounding"
    assert report.rounded > 0
    assert report.max_relative_difference["typical"] > 1e-7
    found = report.metadata.verification
    assert found["rounded"] == report.rounded
    assert 0 < found["file_error"] < 1e-2 > found["predict_error"] > 0
    assert "equal but for the rounding of float32" in str(report)


def test_rounding_beyond_the_default_tolerance_is_accepted(path):
    """With 1e-4 of the range, so that it is beyond 1e-5 whatever order a processor's kernels add in."""
    report = export_by(edited_by(reordered), saturated(limit=3000), path)
    assert report.reason == "rounding"
    assert report.max_relative_difference["typical"] > 1e-5
    assert OnnxInference(path).metadata.verification["tolerance"] == 1e-5


def of_weight(arrays):
    arrays["head.net.weight"].flat[np.abs(arrays["head.net.weight"]).argmax()] *= 1.05


def of_bounds(arrays):
    arrays["head.low"][:] = arrays["head.low"][::-1].copy()


def of_statistics(arrays):
    """Those of a little earlier in the training."""
    name = next(name for name in arrays if name.endswith("mean") and arrays[name].dtype == np.float64)
    arrays[name] += 0.1


@pytest.mark.parametrize("change", [of_weight, of_bounds], ids=lambda c: c.__name__)
@pytest.mark.parametrize("algorithm", [SAC, TD3, PPO], ids=lambda a: a.__name__)
def test_a_wrong_file_is_not_taken_for_rounding(algorithm, change, path):
    model = saturated(algorithm)
    if algorithm is TD3 and change is of_weight:
        change = lambda arrays: arrays["head.net.4.weight"].__imul__(1.01)  # noqa: E731
    with pytest.raises(ExportError, match=r"which is not rounding: from exact arithmetic the file is .* away and"):
        export_by(edited_by(reordered, edited(change)), model, path)
    assert not path.exists()


@pytest.mark.parametrize("algorithm", [SAC, TD3], ids=lambda a: a.__name__)
def test_a_graph_without_unscaling_is_not_taken_for_rounding(algorithm, path):
    """Here the exact result is wrong as well, and predict() is what is far from it."""

    def without_unscaling(plan, opset, exporter):
        plan.net.head.unscale = False  # and so it stays for the comparison in float64
        return to_onnx(plan, opset, exporter)

    with pytest.raises(ExportError, match="which is not rounding"):
        export_by(without_unscaling, saturated(algorithm), path)


def test_a_wrong_weight_that_changes_no_choice_is_found(path):
    """One choice is always the best one: the actions alone would not show it."""
    model = make(DQN, spaces.Discrete(3))
    model.q_net.q_net[-1].bias.data += th.tensor([0.0, 1000.0, 0.0])

    def of_weight(arrays):
        arrays["head.net.2.weight"][0] *= 1.05

    export_briefly(model, path)
    assert [output.name for output in onnx.load(path).graph.output] == ["actions"]
    with pytest.raises(ExportError, match=r"in the net's scores or state.* which is not rounding"):
        export_by(edited_by(edited(of_weight)), model, path)


def test_a_normalisation_of_earlier_is_not_taken_for_rounding(path):
    with pytest.raises(ExportError, match="which is not rounding"):
        export_by(edited_by(edited(of_statistics)), make(SAC, normalize={}), path)


def test_custom_code_is_judged_by_the_same_arithmetic(path):
    matrix = th.randn(4, 4, generator=th.Generator().manual_seed(3))  # no parameter: stays float32 if a net is not
    constant = extractor("Constant", lambda self, obs: obs @ matrix)
    model = make(policy_kwargs={"net_arch": [16], "features_extractor_class": constant})
    report = export_briefly(model, path, tolerance=1e-12, allow_custom=True)
    assert report.reason == "rounding"
    with pytest.raises(ExportError, match="which is not rounding"):
        export_by(edited_by(edited(of_weight)), model, path, allow_custom=True)


def test_where_the_policy_cannot_be_computed_in_float64_the_tolerance_alone_decides(path):
    def forward(self, obs):
        if obs.dtype != th.float32:
            raise TypeError("float32 only")
        return obs * 0.3

    model = make(policy_kwargs={"net_arch": [16], "features_extractor_class": extractor("Picky", forward)})
    export_briefly(model, path, allow_custom=True)  # the file is right
    path.unlink()
    with pytest.raises(ExportError, match=r"predict\(\) 0 \(allowed: 4 times that, or 1e-12\)") as caught:
        export_onnx(model, path, tolerance=1e-12, allow_custom=True)
    assert "--tolerance" in str(caught.value)
    assert not path.exists()


def test_recorded_observations(path):
    model = make()
    report = export_onnx(model, path, recorded=rows(100))
    assert report.observations >= 10_000 + 100
    assert "recorded" in report.max_relative_difference
    with pytest.raises(ExportError, match="recorded observations do not fit"):
        export_onnx(model, path, recorded=rows(100, 5))
    with pytest.raises(ExportError, match="no recorded observations"):
        export_onnx(model, path, recorded=rows(0))


@pytest.mark.parametrize(
    ("algorithm", "normalize"),
    [
        (PPO, {}),
        (SAC, {}),
        (RecurrentPPO, False),
        *(pytest.param(*each, marks=EXHAUSTIVE) for each in ((PPO, False), (SAC, False), (RecurrentPPO, {}))),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_observations_of_the_training_are_compared_as_well(algorithm, normalize, path):
    more = {"learning_starts": 100} if algorithm is SAC else {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    model = make(algorithm, policy=policy, normalize=normalize, **more)
    model.learn(32)
    report = export_briefly(model, path)
    assert report.observations >= 1000 + 32
    assert report.max_relative_difference["recorded"] <= 1e-5


def test_exporting_does_not_disturb_the_training(path):
    """Two trainings with the same seed, one exporting in between: the same weights."""

    def train(export):
        model = make(A2C, n_steps=8, policy_kwargs={"net_arch": [16]})
        model.get_env().seed(0)
        model.get_env().envs[0].observation_space.seed(0)
        model.policy.set_training_mode(True)
        th.manual_seed(0)
        for _ in range(2):
            model.learn(8, reset_num_timesteps=False)
            if export:
                before = [module.training for module in model.policy.modules()]
                check_exportable(model)
                export_briefly(model, path)
                assert [module.training for module in model.policy.modules()] == before
        return th.cat([p.detach().ravel() for p in model.policy.parameters()])

    assert th.equal(train(False), train(True))


def test_dropout_is_off_in_the_file_and_on_again_in_the_model(path):
    class Dropping(FlattenExtractor):
        def __init__(self, space):
            super().__init__(space)
            self.drop = th.nn.Dropout(0.5)

        def forward(self, obs):
            return self.drop(super().forward(obs))

    model = with_extractor(Dropping)
    model.policy.set_training_mode(True)
    report = export_briefly(model, path, allow_custom=True)
    assert report.max_relative_difference["typical"] <= 1e-5
    assert model.policy.features_extractor.drop.training


def test_a_policy_that_draws_numbers_of_its_own_is_named(path, monkeypatch):
    """Neither float32 nor the file is to blame."""
    model: BaseAlgorithm = make()
    forward = model.policy.action_net.forward
    monkeypatch.setattr(model.policy.action_net, "forward", lambda latent: forward(latent) + th.rand(1))
    with pytest.raises(ExportError, match="acts differently each time that it is given the same typical observation"):
        export_onnx(model, path)
