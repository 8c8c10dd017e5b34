"""Hot reload, and the component that acts by a policy."""

from __future__ import annotations

import logging
import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ue_rl.errors import ConfigurationError, ModelLoadError, ModelMismatch
from ue_rl.inference import InferenceComponent, InferenceInterface, OnnxInference, ReloadingInference

OBS = np.array([[1, 2, 3]], np.float32)


def scaled(factor, size=3):
    """A policy that gives `factor` times the observation."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Mul", ["obs", "factor"], ["actions"])],
            "policy",
            [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["b", size])],
            [helper.make_tensor_value_info("actions", TensorProto.FLOAT, ["b", size])],
            [numpy_helper.from_array(np.float32([factor]), "factor")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return model.SerializeToString()


def put(path, content):
    """Replace in one step, as the exporter does."""
    beside = path.with_suffix(".tmp")
    beside.write_bytes(content)
    os.replace(beside, path)


@pytest.fixture
def path(tmp_path):
    put(tmp_path / "policy.onnx", scaled(2))
    return tmp_path / "policy.onnx"


def factor(runtime):
    return float(runtime.run_inference(OBS)[0, 0])


class TestReload:
    def test_a_newer_file_takes_over(self, path):
        follower = ReloadingInference(path, interval=None)
        assert factor(follower) == 2
        assert not follower.poll()
        put(path, scaled(3))
        assert factor(follower) == 2, "not before poll"
        assert follower.poll()
        assert factor(follower) == 3
        assert follower.reloads == 1
        assert not follower.poll()

    def test_the_same_content_is_not_loaded_again(self, path):
        follower = ReloadingInference(path, interval=None)
        before = follower.current
        put(path, scaled(2))
        assert not follower.poll()
        assert follower.current is before

    def test_a_file_of_another_action_space_is_refused(self, path, monkeypatch, caplog):
        """Its numbers would mean something else, and no size shows it."""
        spaces = {2: {"type": "Discrete", "n": 2}, 3: {"type": "Discrete", "n": 3}, 4: {"type": "Discrete", "n": 2}}
        described = property(lambda self: SimpleNamespace(action_space=spaces[factor(self)]))
        monkeypatch.setattr(OnnxInference, "metadata", described)
        follower = ReloadingInference(path, interval=None)
        loaded = follower.loaded_at
        put(path, scaled(3))
        assert not follower.poll()
        assert "the action space is another one" in caplog.text
        assert (factor(follower), follower.loaded_at) == (2, loaded)
        put(path, scaled(4))
        assert follower.poll()
        assert factor(follower) == 4
        assert follower.loaded_at > loaded

    @pytest.mark.parametrize("broken", ["half", "empty", "text", "other sizes", "nan", "gone", "a folder"])
    def test_a_broken_file_is_reported_once_and_the_old_model_stays(self, path, broken, caplog):
        follower = ReloadingInference(path, interval=None)
        path.unlink()
        if broken == "a folder":
            path.mkdir()
        elif broken != "gone":
            content = {
                "half": scaled(3)[:60],
                "empty": b"",
                "text": b"no model",
                "other sizes": scaled(3, size=4),
                "nan": scaled(np.nan),
            }[broken]
            put(path, content)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert not follower.poll()
        assert factor(follower) == 2
        assert len(caplog.records) == 1
        assert "stays in use" in caplog.text
        if broken == "a folder":
            path.rmdir()
        put(path, scaled(4))
        assert follower.poll(), "a good file after a bad one is taken"
        assert factor(follower) == 4

    def test_a_file_written_in_place_byte_by_byte(self, path):
        follower = ReloadingInference(path, interval=None)
        content = scaled(5)
        with path.open("wb") as file:
            for at in range(0, len(content), 16):
                file.write(content[at : at + 16])
                file.flush()
                follower.poll()
                assert factor(follower) in (2, 5), "never anything in between"
        follower.poll()
        assert factor(follower) == 5

    def test_half_a_file_with_the_size_and_time_of_the_whole(self, path):
        follower = ReloadingInference(path, interval=None)
        content = scaled(5)
        path.write_bytes(content[:60] + bytes(len(content) - 60))
        os.utime(path, ns=(1, 1))
        assert not follower.poll()
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        assert follower.poll(), "after a bad file the content decides"
        assert factor(follower) == 5

    def test_a_background_thread(self, path):
        taken = threading.Event()

        class Told(ReloadingInference):
            def poll(self):
                done = super().poll()
                if done:
                    taken.set()
                return done

        with Told(path, interval=0.01) as follower:
            put(path, scaled(7))
            assert taken.wait(20)
            assert factor(follower) == 7
        assert not [t for t in threading.enumerate() if t.name == "ue_rl model reload"]
        assert factor(follower) == 7, "usable after close"
        follower.close()

    def test_calls_while_models_are_swapped(self, path):
        follower = ReloadingInference(path, interval=None)
        stop, wrong, calls = threading.Event(), [], [0]

        def call():
            while not stop.is_set():
                row = follower.run_inference(OBS)[0]
                calls[0] += 1
                if row.tolist() not in ([2.0, 4.0, 6.0], [3.0, 6.0, 9.0]):
                    wrong.append(row)

        thread = threading.Thread(target=call)
        thread.start()
        for i in range(20):
            put(path, scaled(3 - i % 2))
            follower.poll()
        stop.set()
        thread.join()
        assert not wrong
        assert calls[0] > 0

    def test_the_first_model_must_be_good(self, tmp_path):
        (tmp_path / "bad.onnx").write_bytes(b"no model")
        with pytest.raises(ModelLoadError):
            ReloadingInference(tmp_path / "bad.onnx", interval=None)
        with pytest.raises(ModelLoadError, match="no model is loaded"):
            ReloadingInference(interval=None).run_inference(OBS)
        with pytest.raises(ConfigurationError):
            ReloadingInference(interval=0)

    def test_is_an_interface(self, path):
        follower = ReloadingInference(path, interval=None)
        assert isinstance(follower, InferenceInterface)
        assert (follower.obs_size, follower.act_size) == (3, 3)
        follower.require(3, 3)
        with pytest.raises(ModelMismatch):
            follower.require(3, 2)
        follower.reset()
        follower.reset([0])


class Recorder(InferenceInterface):
    """Counts what it is asked."""

    def __init__(self, loaded=True):
        self.loaded, self.resets, self.seen = loaded, 0, []

    def load_model(self, path):
        self.loaded = True

    def is_model_loaded(self):
        return self.loaded

    def run_inference(self, observations):
        self.seen.append(observations)
        return -observations

    def reset(self, rows=None):
        self.resets += 1


class TestComponent:
    def test_waits_until_the_action_has_ended(self):
        left, begun = [0], []

        def begin(action):
            begun.append(action.tolist())
            left[0] = 2

        def running():
            left[0] -= 1
            return left[0] >= 0

        component = InferenceComponent(
            Recorder(), create_state=lambda: [1.0, 2.0], handle_actions=begin, is_action_running=running
        )
        assert component.tick() is None, "not started"
        component.start_inference()
        acted = [component.tick() is not None for _ in range(7)]
        assert acted == [True, False, False, True, False, False, True]
        assert begun == [[-1.0, -2.0]] * 3

    def test_any_loop(self):
        component = InferenceComponent(Recorder())
        component.start_inference()
        for i in range(3):
            np.testing.assert_array_equal(component.tick([i, 1]), [-i, -1])
        component.stop_inference()
        component.stop_inference()
        assert not component.is_running
        assert component.tick([0, 1]) is None
        component.start_inference()
        assert component.tick([0, 1]) is not None

    def test_a_dict_observation(self):
        class Keyed(Recorder):
            def run_inference(self, observations):
                assert {key: value.shape for key, value in observations.items()} == {"a": (1, 2), "b": (1, 1)}
                return observations["a"]

        component = InferenceComponent(Keyed())
        component.start_inference()
        np.testing.assert_array_equal(component.tick({"a": [1, 2], "b": [3]}), [1, 2])

    def test_a_subclass(self):
        class Guard(InferenceComponent):
            def create_state(self):
                return np.ones(2)

            def handle_actions(self, action):
                self.action = action

        guard = Guard(Recorder())
        guard.start_inference()
        guard.tick()
        np.testing.assert_array_equal(guard.action, [-1, -1])

    def test_the_policy_can_be_changed_while_running(self):
        first, second = Recorder(), Recorder()
        component = InferenceComponent(first)
        component.start_inference()
        component.tick([1])
        component.set_inference_interface(second)
        component.tick([2])
        assert (len(first.seen), len(second.seen)) == (1, 1)
        assert second.resets == 1

    def test_an_empty_interface_is_refused_and_the_old_one_stays(self):
        component = InferenceComponent(Recorder())
        with pytest.raises(ModelLoadError, match="no model"):
            component.set_inference_interface(OnnxInference())
        component.start_inference()
        assert component.tick([1]) is not None
        with pytest.raises(ModelLoadError, match="no policy"):
            InferenceComponent().start_inference()

    def test_no_observation(self):
        component = InferenceComponent(Recorder())
        component.start_inference()
        with pytest.raises(ConfigurationError, match="no observation"):
            component.tick()
        assert component.tick([1]) is not None, "an error does not stop it"

    def test_reset_forgets_the_action_and_the_state(self):
        policy = Recorder()
        component = InferenceComponent(policy, is_action_running=lambda: True)
        component.start_inference()
        assert component.tick([1]) is not None
        assert component.tick([1]) is None
        before = policy.resets
        component.reset()
        assert policy.resets == before + 1
        assert component.tick([1]) is not None
