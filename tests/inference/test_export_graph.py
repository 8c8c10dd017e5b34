"""An exported graph as other runtimes need it: its opset, its casts, and the clip behind what is squashed."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import TQC, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3

from tests.support.command_line import ok
from tests.support.models import export_briefly, make, vector
from tests.support.onnx_files import floats
from tests.support.onnx_files import graph as file_of
from ue_rl.inference import OnnxInference
from ue_rl.inference.export import graph


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        (SAC, {}),
        (TD3, {}),
        (PPO, {"use_sde": True}),
        *(
            pytest.param(*each, marks=pytest.mark.exhaustive)  # the heads of these
            for each in ((TQC, {}), (DDPG, {}), (A2C, {"use_sde": True}))
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_squashed_stays_in_the_action_space(algorithm, more, path):
    """onnxruntime's tanh exceeds 1 by a rounding or two, for inputs from 8.2 to 9."""
    kwargs = {"net_arch": [1], **({"squash_output": True} if more else {})}
    space = spaces.Box(np.float32([-1, 0.1]), np.float32([1, 0.7]))
    model = make(algorithm, space, vector(1), policy_kwargs=kwargs, **more)
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.fill_(0.0 if parameter.dim() == 1 else 1.0)
    activation = (lambda x: np.arctanh(x / 9.5)) if more else (lambda x: x)
    if more:  # the hidden unit is a tanh itself: the last layer makes it large again
        model.policy.action_net.weight.data.fill_(9.5)
    export_briefly(model, path)
    numbers = np.linspace(8.0, 9.2, 20_001)
    obs = np.concatenate([activation(numbers), activation(-numbers)]).astype(np.float32)[:, None]
    actions = OnnxInference(path).run_inference(obs)
    assert actions.max(axis=0) == pytest.approx(space.high)
    assert (actions <= space.high).all()
    assert (actions >= space.low).all()
    last = [node.op_type for node in onnx.load(path).graph.node][-2:]
    assert set(last) <= {"Clip", "Min", "Max"}, "whatever the runtime's tanh gives"


KINDS = {
    "ppo": make,
    "normalised": lambda: make(normalize={}),
    "sac": lambda: make(SAC),
    "choices": lambda: make(action=spaces.MultiDiscrete([3, 4])),
    "flags": lambda: make(action=spaces.MultiBinary(3)),
    "masked": lambda: make(MaskablePPO, spaces.Discrete(3)),
    "dqn": lambda: make(DQN, spaces.Discrete(3)),
    "recurrent": lambda: make(RecurrentPPO, policy="MlpLstmPolicy"),
    "image": lambda: make(observation=spaces.Box(0, 255, (36, 36, 3), np.uint8), policy="CnnPolicy"),
    "dict": lambda: make(
        observation=spaces.Dict({"level": spaces.Discrete(3), "speed": vector()}), policy="MultiInputPolicy"
    ),
}


SLOW = pytest.param("image", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind != "image"), SLOW])
def test_files_are_of_opset_15_and_cast_no_number_to_its_own_type(kind, path):
    model = KINDS[kind]()
    report = export_briefly(model, path)
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    if report.exporter == "torchscript":
        assert [entry.version for entry in proto.opset_import] == [15]
    graph = proto.graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    casts = [node for node in graph.node if node.op_type == "Cast"]
    assert [node.name for node in casts if types[node.input[0]] == node.attribute[0].i] == []


def test_the_command_line_says_the_opset(tmp_path):
    make().save(tmp_path / "model.zip")
    for opset in (12, 17):
        ok(f"export --opset {opset}", tmp_path / "model.zip")
        assert [entry.version for entry in onnx.load(tmp_path / "model.onnx").opset_import] == [opset]


def test_casts_in_a_row_and_of_promised_names_are_left_out():
    """A cast that gives an output hands on its name; one from an input to an output stays."""
    float32 = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node
    nodes = [
        node("Relu", ["obs"], ["a"]),
        node("Cast", ["a"], ["b"], to=float32),
        node("Cast", ["b"], ["actions"], to=float32),
        node("Neg", ["b"], ["negative"]),
        node("Cast", ["obs"], ["copy"], to=float32),
    ]
    content = file_of(
        nodes, [floats("obs", "n", 2)], [floats(name, "n", 2) for name in ("actions", "negative", "copy")]
    )
    cleaned = graph.without_idle_casts(content)
    proto = onnx.load_from_string(cleaned)
    assert [one.op_type for one in proto.graph.node] == ["Relu", "Neg", "Cast"]
    onnx.checker.check_model(proto)
    given = {"obs": np.float32([[-1, 2]])}
    ours, theirs = (onnxruntime.InferenceSession(file).run(None, given) for file in (cleaned, content))
    np.testing.assert_array_equal(ours, theirs)
