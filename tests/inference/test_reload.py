"""Hot reload, and the component that acts by a policy."""

from __future__ import annotations

import logging
import os
import threading

import numpy as np
import pytest

from tests.support.onnx_files import OBS_PORT, box_of, described, gun, parts, scaled
from tests.support.waiting import eventually
from ue_rl.inference import InferenceComponent, InferenceInterface, OnnxInference, ReloadingInference
from ue_rl.inference.metadata import UNSEALED, TensorInfo, seal
from ue_rl.system.errors import ConfigurationError, ModelLoadError, ModelMismatch

OBS = np.array([[1, 2, 3]], np.float32)


NOISE_PORT = TensorInfo("noise", (3,), "noise", distribution="normal")
# what a newer file changes -> (what is said, how)
OTHERS = {
    "a part's lowest choice": (
        "field action_space.gun); expected DISCRETE(4); got DISCRETE(2:5)",
        {"acted": parts(aim=box_of(2, -1, 1), gun=gun(4, 2))},
    ),
    "a count": ("the action space is another one", {"acted": parts(aim=box_of(2, -1, 1), gun=gun(5))}),
    "a name": ("field action_space)", {"acted": parts(aim=box_of(2, -1, 1), fire=gun(4))}),
    "the actions' order": ("field action_space)", {"acted": parts(gun=gun(4), aim=box_of(2, -1, 1))}),
    "the actions' bounds": ("field action_space.aim)", {"acted": parts(aim=box_of(2, -2, 2), gun=gun(4))}),
    "the kind": ("field action_space)", {"acted": {"type": "MultiDiscrete", "nvec": [2, 2, 4]}}),
    "the parts' sizes": ("field observation_space.a)", {"observed": parts(a=box_of(1), b=box_of(2))}),
    "the parts' order": ("the observation space is another one", {"observed": parts(b=box_of(1), a=box_of(2))}),
    "a part's name": ("field observation_space)", {"observed": parts(a=box_of(2), c=box_of(1))}),
    "a part's kind": ("field observation_space.b)", {"observed": parts(a=box_of(2), b=gun(9))}),
    "no parts": ("field observation_space)", {"observed": box_of(3)}),
    "an input's name": ("the input is another one", {"inputs": (TensorInfo("state", (3,), "observation"),)}),
    "a number's name": (
        "the obs name is another one (field obs_name.1); expected speed; got height",
        {"obs_names": ("x", "height", "z")},
    ),
    "an action's name": ("field act_name.0); expected turn; got lift", {"act_names": ("lift", "run", "gun")}),
    "determinism": ("the input is another one", {"inputs": (OBS_PORT, NOISE_PORT), "stochastic": True}),
}


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

    def test_a_file_whose_numbers_mean_something_else_is_refused(self, path, caplog):
        """No size shows it."""
        put(path, described(2, obs_names=("x", "speed", "z"), act_names=("turn", "run", "gun")))
        follower = ReloadingInference(path, interval=None)
        loaded = follower.loaded_at
        for change, (said, more) in OTHERS.items():
            caplog.clear()
            put(path, described(3, **more))
            assert not follower.poll(), change
            assert said in caplog.text, change
        put(path, scaled(3))
        assert not follower.poll()
        assert "the file says nothing of its observations and actions" in caplog.text
        assert (factor(follower), follower.loaded_at) == (2, loaded)
        put(path, described(4, observed=parts(a=box_of(2, high=9), b=box_of(1, dtype="float64"))))
        assert follower.poll(), "bounds and dtypes of observations say nothing of where a number stands"
        assert factor(follower) == 4
        assert follower.loaded_at > loaded

    def test_a_file_without_a_digest_does_not_take_over_from_one_with_it(self, path, caplog):
        put(path, seal(described(2, sha256=UNSEALED))[0])
        follower = ReloadingInference(path, interval=None)
        put(path, described(3))
        assert not follower.poll()
        assert "it has no sha256, and the one in use does" in caplog.text
        put(path, seal(described(4, sha256=UNSEALED))[0])
        assert follower.poll()
        assert factor(follower) == 4
        assert ReloadingInference(path, interval=None).current.metadata.sha256

    def test_a_file_that_says_what_its_numbers_mean_may_take_over_from_one_that_does_not(self, path):
        follower = ReloadingInference(path, interval=None)
        put(path, described(3))
        assert follower.poll()

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
            before = calls[0]
            eventually(lambda before=before: calls[0] > before)
        stop.set()
        thread.join()
        assert not wrong

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
        begun = []

        class Slow(InferenceComponent):
            left = 0

            def create_state(self):
                return [1.0, 2.0]

            def handle_actions(self, action):
                begun.append(action.tolist())
                self.left = 2

            def is_action_running(self):
                self.left -= 1
                return self.left >= 0

        component = Slow(Recorder())
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
        class Busy(InferenceComponent):
            def is_action_running(self):
                return True

        policy = Recorder()
        component = Busy(policy)
        component.start_inference()
        assert component.tick([1]) is not None
        assert component.tick([1]) is None
        before = policy.resets
        component.reset()
        assert policy.resets == before + 1
        assert component.tick([1]) is not None
