"""OnnxInference: what it accepts, what it refuses and how it says so. Needs onnx to build files, but no torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.onnx_files import floats, graph, of_one_node
from ue_rl.inference import OnnxInference
from ue_rl.inference.metadata import PolicyMetadata, TensorInfo
from ue_rl.system.errors import ConfigurationError, InferenceError, ModelLoadError, ModelMismatch, ModelOutputError

REPOSITORY = Path(__file__).resolve().parents[2]


def linear(weight=((1, 0), (0, 2), (0, 0)), obs="obs", actions="actions", batch="batch", metadata=None):
    """actions = obs @ weight: by default 3 numbers in, 2 out, the second doubled."""
    w = np.asarray(weight, np.float32)
    nodes = [helper.make_node("MatMul", [obs, "w"], [actions])]
    return graph(nodes, [floats(obs, batch, w.shape[0])], [floats(actions, batch, w.shape[1])], [("w", w)], metadata)


def describe(**changes):
    fields = {
        "algorithm": "PPO",
        "policy": "ActorCriticPolicy",
        "observation_space": {"type": "Box", "shape": [3], "dtype": "float32", "low": "-inf", "high": "inf"},
        "action_space": {"type": "Box", "shape": [2], "dtype": "float32", "low": -1.0, "high": 1.0},
        "inputs": (TensorInfo("obs", (3,), "observation"),),
        "outputs": (TensorInfo("actions", (2,), "actions"),),
        **changes,
    }
    return PolicyMetadata(**fields)


def loaded(content, **options):
    runtime = OnnxInference(**options)
    runtime.load_bytes(content)
    return runtime


OBS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
WANT = np.array([[1, 4], [4, 10]], np.float32)
SHAPE = r"wrong shape \(field obs\); expected \[N, 3\]; got"


class TestRuns:
    def test_a_file_without_a_description(self, tmp_path):
        (tmp_path / "m.onnx").write_bytes(linear())
        runtime = OnnxInference(tmp_path / "m.onnx")
        assert runtime.is_model_loaded()
        assert (runtime.obs_size, runtime.act_size, runtime.metadata) == (3, 2, None)
        actions = runtime.run_inference(OBS)
        assert actions.dtype == np.float32
        np.testing.assert_array_equal(actions, WANT)

    def test_sizes_that_the_graph_leaves_open(self):
        runtime = loaded(of_one_node("Identity", "batch", "n"))
        assert (runtime.obs_size, runtime.act_size) == (None, None)
        np.testing.assert_array_equal(runtime.run_inference(OBS), OBS)
        runtime.require(3, 3)

    @pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, np.float16])
    def test_any_real_dtype(self, dtype):
        np.testing.assert_array_equal(loaded(linear()).run_inference(OBS.astype(dtype)), WANT)

    def test_lists_and_strided_arrays(self):
        runtime = loaded(linear())
        np.testing.assert_array_equal(runtime.run_inference(OBS.tolist()), WANT)
        np.testing.assert_array_equal(runtime.run_inference(np.repeat(OBS, 2, axis=1)[:, ::2]), WANT)

    def test_no_rows(self):
        assert loaded(linear()).run_inference(np.zeros((0, 3), np.float32)).shape == (0, 2)

    @pytest.mark.parametrize("n", [1, 4, 5, 9])
    def test_batches_in_pieces(self, n):
        obs = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
        whole = loaded(linear()).run_inference(obs)
        np.testing.assert_array_equal(loaded(linear(), batch_size=4).run_inference(obs), whole)

    def test_a_file_with_a_fixed_batch_of_one_takes_any(self):
        runtime = loaded(linear(batch=1))
        np.testing.assert_array_equal(runtime.run_inference(OBS), WANT)

    def test_a_file_with_a_fixed_batch_says_so(self):
        with pytest.raises(ModelMismatch, match=r"fixed batch.*multiple of 2 rows.*3 rows"):
            loaded(linear(batch=2)).run_inference(OBS[[0, 1, 0]])
        np.testing.assert_array_equal(loaded(linear(batch=2)).run_inference(OBS[[0, 1, 0, 1]]), WANT[[0, 1, 0, 1]])

    @pytest.mark.parametrize("n", [1, 3, 1000])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_one_bad_number_anywhere_is_seen(self, n, value):
        runtime = loaded(linear())
        for place in {0, n * 3 // 2, n * 3 - 1}:
            obs = np.full((n, 3), 3e38, np.float32)  # as large as can be, yet finite
            obs[:, :] *= np.sign(np.arange(3) - 1)
            runtime.run_inference(obs / 4)
            obs.ravel()[place] = value
            with pytest.raises(ConfigurationError, match="NaN or infinity"):
                runtime.run_inference(obs)

    def test_the_caller_owns_the_actions(self):
        runtime = loaded(linear())
        first = runtime.run_inference(OBS)
        runtime.run_inference(OBS * 0)
        np.testing.assert_array_equal(first, WANT)

    def test_batches_of_every_size_in_turn(self):
        runtime = loaded(linear())
        for _ in range(2):
            for n in [*range(1, 100), 5000]:
                obs = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
                np.testing.assert_array_equal(runtime.run_inference(obs), obs[:, :2] * [1, 2])

    def test_calls_from_several_threads(self):
        """One object, four threads, each with observations of its own: nobody gets another's actions."""
        runtime = loaded(linear())
        wrong = []

        def call(value):
            obs = np.full((2, 3), value, np.float32)
            for _ in range(300):
                actions = runtime.run_inference(obs)
                if not (actions == [[value, 2 * value]] * 2).all():
                    wrong.append(actions)

        threads = [threading.Thread(target=call, args=(value,)) for value in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_the_provider_in_use(self, caplog):
        wanted = ["NoSuchExecutionProvider", "CPUExecutionProvider"]
        assert loaded(linear(), providers=wanted).provider == "CPUExecutionProvider"
        assert "lacks NoSuchExecutionProvider" in caplog.text
        assert loaded(linear()).provider == "CPUExecutionProvider"
        with pytest.raises(ConfigurationError, match="none of the providers"):
            loaded(linear(), providers=["NoSuchExecutionProvider"])

    @pytest.mark.parametrize("name", ["intra_op_threads", "batch_size"])
    def test_impossible_options(self, name):
        with pytest.raises(ConfigurationError, match=name):
            OnnxInference(**{name: 0})


class TestRefusesTheCall:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            *((np.zeros(shape), SHAPE) for shape in [(2, 4), (2, 3, 1), ()]),
            (np.zeros(3), SHAPE + ".*[Aa]dd a batch axis"),
            *((np.array([[value] * 3]), "real numbers") for value in ("text", 1j, None)),
        ],
        ids=str,
    )
    def test_a_wrong_shape_or_dtype(self, given, said):
        with pytest.raises(ModelMismatch, match=said):
            loaded(linear()).run_inference(given)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
    def test_an_observation_that_is_not_finite(self, value):
        obs = OBS.astype(np.float64)
        obs[1, 2] = value
        with pytest.raises(ConfigurationError, match=r"NaN or infinity \(env 1, field obs\)"):
            loaded(linear()).run_inference(obs)

    def test_no_model(self):
        runtime = OnnxInference()
        assert not runtime.is_model_loaded()
        for call in (lambda: runtime.run_inference(OBS), lambda: runtime.require(3, 2), lambda: runtime.metadata):
            with pytest.raises(ModelLoadError, match="no model is loaded"):
                call()

    def test_sizes_of_another_env(self):
        runtime = loaded(linear())
        runtime.require(3, 2)
        with pytest.raises(ModelMismatch) as caught:
            runtime.require(8, 2)
        assert "8 observation numbers and 2 action numbers" in str(caught.value)
        assert "3 observation numbers and 2 action numbers" in str(caught.value)

    def test_action_masks_that_the_policy_does_not_take(self):
        with pytest.raises(ModelMismatch, match="no action masks"):
            loaded(linear()).run_inference(OBS, action_masks=np.ones((2, 2)))


def cast_to_int():
    nodes = [helper.make_node("ArgMax", ["obs"], ["actions"], axis=1)]
    return graph(
        nodes, [floats("obs", "b", 3)], [helper.make_tensor_value_info("actions", TensorProto.INT64, ["b", 1])]
    )


def rank_one():
    nodes = [helper.make_node("ReduceSum", ["obs"], ["actions"])]
    return graph(nodes, [floats("obs", "b", 3)], [floats("actions", 1, 1)])


def extra_input():
    nodes = [helper.make_node("Add", ["obs", "more"], ["actions"])]
    return graph(nodes, [floats("obs", "b", 3), floats("more", "b", 3)], [floats("actions", "b", 3)])


def batch_lost():
    nodes = [helper.make_node("ReduceSum", ["obs", "axes"], ["actions"], keepdims=1)]
    return graph(nodes, [floats("obs", "b", 3)], [floats("actions", "c", 3)], [("axes", np.array([0]))])


BAD = {
    "empty": (b"", ModelLoadError, "not a readable ONNX model"),
    "text": (b"this is no model", ModelLoadError, "not a readable ONNX model"),
    "zip": (b"PK\x03\x04" + bytes(100), ModelLoadError, "not a readable ONNX model"),
    "truncated": (linear(weight=np.ones((200, 2)))[:-900], ModelLoadError, "cut short"),
    "wrong input": (linear(obs="observations"), ModelMismatch, r"other inputs.*\['obs'\].*\['observations'\]"),
    "wrong output": (linear(actions="action"), ModelMismatch, r"lacks an output.*\['actions'\].*\['action'\]"),
    "extra input": (extra_input(), ModelMismatch, "other inputs"),
    "int output": (cast_to_int(), ModelOutputError, r"another type than float32 \(field actions\).*int64"),
    "no batch": (of_one_node("Identity", 3), ModelMismatch, "without a batch axis"),
    "flat output": (of_one_node("Identity", "b", 1, 3), ModelMismatch, "actions of a wrong shape"),
    "batch lost": (batch_lost(), ModelOutputError, "wrong shape"),
    "nan weights": (linear(weight=np.full((3, 2), np.nan)), ModelOutputError, "NaN or infinity"),
    "description is no json": (linear(metadata="{"), ModelLoadError, "description"),
    "description is no object": (linear(metadata="[1]"), ModelLoadError, "description"),
    "description from the future": (linear(metadata=describe(format=99)), ModelMismatch, "later version"),
    "description lies about the input": (
        linear(metadata=describe(inputs=(TensorInfo("obs", (1, 3), "observation"),))),
        ModelMismatch,
        "graph and its description disagree",
    ),
    "description lies about the action": (
        linear(
            metadata=describe(
                action_space={"type": "Discrete", "n": 3, "start": 0}, outputs=(TensorInfo("actions", (1,), "actions"),)
            )
        ),
        ModelMismatch,
        "graph and its description disagree",
    ),
    "description contradicts itself": (
        linear(metadata=describe(action_space={"type": "Discrete", "n": 3, "start": 0})),
        ModelLoadError,
        "description.*does not hold the action space",
    ),
    "description lies about the names": (
        linear(metadata=describe(inputs=(TensorInfo("camera", (3,), "observation"),))),
        ModelMismatch,
        "other inputs",
    ),
}


class TestRefusesTheFile:
    @pytest.mark.parametrize("name", BAD)
    def test_and_keeps_the_model_before(self, name, tmp_path, capfd):
        content, error, words = BAD[name]
        (tmp_path / "bad.onnx").write_bytes(content)
        runtime = loaded(linear())
        with pytest.raises(error, match=words):
            runtime.load_model(tmp_path / "bad.onnx")
        np.testing.assert_array_equal(runtime.run_inference(OBS), WANT)
        assert capfd.readouterr().err == "", "onnxruntime reported the error a second time"

    def test_every_cut_of_a_file(self):
        content = linear(metadata=describe())
        whole = loaded(content).metadata
        for length in range(0, len(content), 7):
            # A cut between two fields can leave a whole graph and lose the description: that is a foreign model.
            runtime = OnnxInference()
            try:
                runtime.load_bytes(content[:length])
            except InferenceError:
                continue
            assert runtime.metadata in (None, whole)
            np.testing.assert_array_equal(runtime.run_inference(OBS), WANT)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(ModelLoadError, match="cannot be read"):
            OnnxInference(tmp_path / "no.onnx")
        with pytest.raises(ModelLoadError, match="cannot be read"):
            OnnxInference(tmp_path)

    def test_weights_in_a_second_file(self, tmp_path):
        model = onnx.load_from_string(linear(weight=np.ones((64, 64))))
        onnx.save_model(model, str(tmp_path / "m.onnx"), save_as_external_data=True, size_threshold=0)
        with pytest.raises(ModelLoadError, match="second file"):
            OnnxInference(tmp_path / "m.onnx")

    def test_nan_that_comes_only_with_some_observations(self):
        runtime = loaded(of_one_node("Sqrt", "b", 3))
        runtime.run_inference(OBS)
        with pytest.raises(ModelOutputError, match=r"NaN or infinity \(env 1, field actions\)"):
            runtime.run_inference(OBS * [[1], [-1]])


class TestDescription:
    def test_round_trip(self):
        text = describe(normalization={"clip_obs": 10.0}, versions={"torch": "2"}, num_timesteps=7)
        assert PolicyMetadata.from_json(text.to_json()) == text
        json.loads(text.to_json(), parse_constant=pytest.fail)  # infinite bounds are texts

    def test_unknown_keys_are_skipped(self):
        text = describe().to_json()
        assert PolicyMetadata.from_json(text[:-1] + ', "colour": "blue"}') == describe()

    @pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.exhaustive) for turn in (1, 2, 3))])
    def test_a_description_with_any_part_spoilt(self, turn):
        """Each value in turn replaced by others: the file loads or is refused by name, nothing else.

        Each run takes a quarter of the others for each value, in turns.
        """
        port = {"name": "h", "shape": [2], "role": "state", "key": None, "distribution": None}
        spoilt = [None, 0, -1, 1e300, "x", [], {}, [[]], [1], [-1], [10**30], True, [port], [port, port]]

        def places(value, path=()):
            yield path
            items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            for key, inner in items:
                yield from places(inner, (*path, key))

        whole = json.loads(describe().to_json())
        refused = 0
        for number, path in enumerate(list(places(whole))[1:]):
            for value in spoilt[(number + turn) % 4 :: 4]:
                changed = json.loads(json.dumps(whole))
                at = changed
                for key in path[:-1]:
                    at = at[key]
                at[path[-1]] = value
                try:
                    loaded(linear(metadata=json.dumps(changed)))
                except InferenceError:
                    refused += 1
        assert refused > 50


class TestWithoutTheTrainer:
    def test_torch_sb3_and_gymnasium_are_never_imported(self, tmp_path):
        """The whole runtime, in a process where importing them fails."""
        (tmp_path / "m.onnx").write_bytes(linear(metadata=describe()))
        program = textwrap.dedent(
            """
            import sys
            BANNED = {"torch", "stable_baselines3", "sb3_contrib", "gymnasium", "gym", "onnx", "pandas", "scipy"}
            class Ban:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] in BANNED:
                        raise ImportError(f"{name} is banned here")
            sys.meta_path.insert(0, Ban())
            import numpy as np
            import ue_rl.inference
            assert "onnxruntime" not in sys.modules, "the package itself loads nothing"
            from ue_rl.inference import InferenceComponent, InferenceInterface, OnnxInference, ReloadingInference
            model = OnnxInference(sys.argv[1])
            assert isinstance(model, InferenceInterface)
            print(model.run_inference(np.array([[1, 2, 3]], np.float32)).tolist())
            with ReloadingInference(sys.argv[1], interval=None) as follower:
                component = InferenceComponent(follower)
                component.start_inference()
                print(component.tick([4, 5, 6]).tolist())
            assert not BANNED & {name.partition(".")[0] for name in sys.modules}
            """
        )
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "m.onnx")],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[:2] == ["[[1.0, 4.0]]", "[4.0, 10.0]"]
