"""Files of strangers run nothing; those of Stable-Baselines3 load all the same, and so does all that was made here."""

from __future__ import annotations

import base64
import copy
import datetime
import decimal
import enum
import functools
import json
import logging
import os
import pickle
import shutil
import zipfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import TrainFrequencyUnit
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

from tests.harness.warm_cli import WarmCli
from tests.support.models import make, vector
from ue_rl import AutoSave
from ue_rl.cli.export import export
from ue_rl.inference.export.models import load_sb3_model
from ue_rl.protocol.spaces.actions import ActionKind
from ue_rl.protocol.spaces.tree import LeafKind
from ue_rl.system.errors import ConfigurationError, UntrustedFile
from ue_rl.system.trust import files as trust
from ue_rl.system.trust import origin
from ue_rl.system.trust.files import load_model, load_pickle, made_here, trusting
from ue_rl.system.trust.pickles import load_data
from ue_rl.system.trust.schedules import LinearSchedule, known_schedule
from ue_rl.training.saving.checkpoints import Checkpoint, CheckpointStore
from ue_rl.training.saving.resuming import resume, write_replay_buffer

GOAL = spaces.Dict({name: vector(3) for name in ("observation", "achieved_goal", "desired_goal")})


class Mine(FlattenExtractor):
    """A class that no table has."""


def hostile(cli: WarmCli, folder: Path, *words: str) -> dict[str, Any]:
    done = cli.run_script(Path(__file__).with_name("hostile.py"), str(folder / "files"), *words, folder=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_no_file_of_a_stranger_runs_anything(tmp_path: Path, warm_cli: WarmCli) -> None:
    found = hostile(warm_cli, tmp_path)
    assert len(found) > 25
    for kind, said in found.items():
        assert (said["tried"], said["pwned"]) == ([], False), kind
        assert said["gave"] != "opened", kind
        if kind.startswith(("model.zip", "statistics", "opponents", "run", "--config")) or kind.endswith(
            ("model", "statistics", "state", "buffer")
        ):
            assert said["gave"].startswith("UntrustedFile: "), (kind, said)


def test_the_same_files_run_what_they_hold_where_they_are_trusted(tmp_path: Path, warm_cli: WarmCli) -> None:
    found = hostile(warm_cli, tmp_path, "--trust")
    ran = [kind for kind, said in found.items() if said["pwned"] and said["tried"]]
    assert len(ran) > 10
    assert {"statistics", "checkpoint, state", "opponents", "run, its program", "--config, its program"} <= set(ran)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PPO, {}),
        (PPO, {"learning_rate": LinearSchedule(1e-3)}),  # as `ue-rl train` saves it
        (A2C, {"use_sde": True}),
        (SAC, {"action_noise": NormalActionNoise(np.zeros(2), np.ones(2))}),
        (TD3, {}),
        (TQC, {}),
        (DQN, {"action": spaces.Discrete(3)}),
        (QRDQN, {"action": spaces.Discrete(3)}),
        (RecurrentPPO, {"policy": "MlpLstmPolicy"}),
        (MaskablePPO, {"action": spaces.MultiDiscrete([2, 3])}),
        (SAC, {"observation": GOAL, "policy": "MultiInputPolicy"}),
        (PPO, {"policy_kwargs": {"net_arch": [8], "activation_fn": torch.nn.SiLU, "optimizer_class": torch.optim.SGD}}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_stable_baselines3_writes_loads_as_data(tmp_path: Path, kind: Any, options: dict[str, Any]) -> None:
    model = make(kind, **copy.deepcopy(options))
    model.save(tmp_path / "model.zip")
    seen = model.observation_space.sample()
    loaded = load_model(kind, tmp_path / "model.zip", device="cpu")
    np.testing.assert_array_equal(
        loaded.predict(seen, deterministic=True)[0], model.predict(seen, deterministic=True)[0]
    )
    assert loaded.observation_space == model.observation_space


def test_its_statistics_and_replay_buffers_load_as_data(tmp_path: Path) -> None:
    model = make(SAC, action=spaces.Box(-1, 1, (2,)), normalize={})
    model.learn(20)
    model.get_vec_normalize_env().save(str(tmp_path / "statistics.pkl"))
    write_replay_buffer(model.replay_buffer, tmp_path / "replay.pkl")
    statistics, buffer = load_pickle(tmp_path / "statistics.pkl"), load_pickle(tmp_path / "replay.pkl")
    assert isinstance(statistics, VecNormalize)
    np.testing.assert_array_equal(statistics.obs_rms.mean, model.get_vec_normalize_env().obs_rms.mean)  # type: ignore[union-attr]
    np.testing.assert_array_equal(buffer.observations, model.replay_buffer.observations)


def test_a_function_or_a_class_of_ones_own_is_named_and_loads_where_it_is_trusted(tmp_path: Path) -> None:
    by_code = {"optimizer_class": lambda weights, lr, **_: torch.optim.SGD(weights, lr)}
    make(PPO, policy_kwargs=by_code).save(tmp_path / "function.zip")
    make(PPO, policy_kwargs={"features_extractor_class": Mine}).save(tmp_path / "class.zip")
    for name, what in (("function", "cloudpickle.cloudpickle._make_function"), ("class", "Mine")):
        path = tmp_path / f"{name}.zip"
        with pytest.raises(UntrustedFile, match=f"{name}.zip.*{what}.*--trust"):
            load_sb3_model(path)
        refused = CliRunner().invoke(export, [str(path)])
        assert isinstance(refused.exception, UntrustedFile)
        with trusting():
            assert type(load_sb3_model(path)) is PPO
    taken = CliRunner().invoke(export, [str(tmp_path / "function.zip"), "--trust"], catch_exceptions=False)
    assert taken.exit_code == 0
    with pytest.raises(UntrustedFile):  # it held for that command
        load_sb3_model(tmp_path / "function.zip")


def linear_schedule(initial_value: float) -> Callable[[float], float]:
    """As Stable-Baselines3's documentation writes it."""

    def func(progress_remaining: float) -> float:
        return progress_remaining * initial_value

    return func


def test_the_schedule_of_the_documentation_is_no_code_to_be_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "model.zip"
    make(PPO, learning_rate=linear_schedule(1e-3), clip_range=linear_schedule(0.1)).save(path)
    assert CliRunner().invoke(export, [str(path)], catch_exceptions=False).exit_code == 0
    assert "schedule" not in caplog.text  # what only exports asks for none
    model = load_model(PPO, path, device="cpu")
    assert model.learning_rate == LinearSchedule(1e-3)
    assert (model.lr_schedule(0.5), model.clip_range(0.5)) == (5e-4, 0.05)
    model.save(tmp_path / "again.zip")
    assert load_model(PPO, tmp_path / "again.zip", device="cpu").lr_schedule(0.5) == 5e-4
    with trusting():
        assert load_model(PPO, path, device="cpu").lr_schedule(0.5) == 5e-4
    assert load_model(PPO, path, device="cpu", learning_rate=1e-4).lr_schedule(0.5) == 1e-4
    assert "is a function" not in caplog.text


def test_another_schedule_with_code_is_the_default(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "model.zip"
    start, end = 1e-3, 1e-4
    for other in (
        lambda left: left * 1e-3,
        lambda left: end + left * (start - end),
        lambda left: left**start,
        lambda left: os.getpid() * left * start,
    ):
        assert known_schedule(cloudpickle.dumps(other)) is None
    make(PPO, learning_rate=lambda left: left * 1e-3, clip_range=lambda left: left * 0.1).save(path)
    model = load_model(PPO, path, device="cpu")
    assert (model.learning_rate, model.lr_schedule(0.5), model.clip_range(0.5)) == (3e-4, 3e-4, 0.2)
    assert "learning_rate is a function, which is not run: it is 0.0003, the default" in caplog.text
    assert "clip_range is a function, which is not run: it is 0.2, the default" in caplog.text


@pytest.mark.parametrize("code", ["7c00880014005300", "950197007c0089017a0500005300", "3e019500550054012d0500002400"])
def test_the_schedule_of_the_documentation_is_known_from_every_python(code: str) -> None:
    """As CPython 3.9 and 3.10, 3.11 and 3.12, and 3.13 compile it."""
    with_frames = cloudpickle.dumps(linear_schedule(2e-3), protocol=4)
    unframed = with_frames[:2] + with_frames[11:]  # a frame says its length
    written, wanted = (
        pickle.SHORT_BINBYTES + bytes([len(text)]) + text
        for text in (linear_schedule(1.0).__code__.co_code, bytes.fromhex(code))
    )
    assert unframed.count(written) == 1
    # As SB3 before 2.7 keeps it: inside of another function.
    value_schedule = linear_schedule(2e-3)
    inside = cloudpickle.dumps(lambda left: float(value_schedule(left)))
    assert known_schedule(inside) == LinearSchedule(2e-3)
    value_schedule = LinearSchedule(1e-3)
    assert known_schedule(cloudpickle.dumps(lambda left: float(value_schedule(left)))) == LinearSchedule(1e-3)
    assert known_schedule(unframed.replace(written, wanted)) == LinearSchedule(2e-3)
    assert known_schedule(unframed.replace(written, wanted[:-1] + b"\x01")) is None


class ByName:
    """An enum's member as CPython 3.11.2, Debian 12's, pickles it."""

    def __init__(self, kind: Any, name: str) -> None:
        self.made = getattr, (kind, name)

    def __reduce__(self) -> Any:
        return self.made


def test_members_of_known_enums_are_data_as_every_python_pickles_them() -> None:
    for member in (GoalSelectionStrategy.FUTURE, TrainFrequencyUnit.EPISODE, LeafKind.BOX, ActionKind.DISCRETE):
        for protocol in range(2, 6):
            assert load_data(pickle.dumps(member, protocol)) is member
            assert load_data(pickle.dumps(ByName(type(member), member.name), protocol)) is member
    for kind, name in (
        (GoalSelectionStrategy, "__class__"), (GoalSelectionStrategy, "mro"), (Mine, "forward"), (Where, "HERE"),
    ):  # fmt: skip
        with pytest.raises(UntrustedFile):
            load_data(pickle.dumps(ByName(kind, name)))


class Where(enum.Enum):
    """One that no table has."""

    HERE = 1


def test_what_is_loaded_is_what_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that takes the place of one's own after it was compared with the manifest is not what is loaded."""
    at = run_of_ones_own(tmp_path / "run")
    ours, reads = at / "model.zip", []
    make(PPO, policy_kwargs={"features_extractor_class": Mine, "net_arch": [5]}).save(tmp_path / "theirs.zip")
    theirs = (tmp_path / "theirs.zip").read_bytes()
    really = Path.read_bytes

    def read_and_swap(path: Path) -> bytes:
        content = really(path)
        if path == ours:
            reads.append(path)
            ours.write_bytes(theirs)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_swap)
    loaded = load_model(PPO, ours, device="cpu")
    assert reads == [ours]
    assert "net_arch" not in loaded.policy_kwargs
    with pytest.raises(UntrustedFile, match="Mine"):
        load_model(PPO, ours, device="cpu")


@pytest.mark.parametrize("trust", [True, False])
def test_what_names_a_part_that_has_moved_is_of_another_version(tmp_path: Path, trust: bool) -> None:
    """As a pickle of the days when ue_rl.protocol.spaces.tree was ue_rl.spaces.tree."""
    file = tmp_path / "state.pkl"
    file.write_bytes(b"cue_rl.spaces.tree\nLeafKind\n.")
    with trusting(trust), pytest.raises(ConfigurationError, match=r"another version of ue_rl.*got ue_rl\.spaces"):
        load_pickle(file)


def test_a_folder_is_read_from_a_copy_of_what_was_judged(tmp_path: Path) -> None:
    def write(at: Path) -> dict[str, object]:
        (at / "algorithm" / "deep").mkdir(parents=True)
        (at / "algorithm" / "deep" / "made").write_text("here")
        return {}

    folder = CheckpointStore(tmp_path / "checkpoints").save(10, write).path / "algorithm"
    with trust.judged(folder, "it") as copied:
        (folder / "deep" / "made").write_text("elsewhere")
        assert copied != folder
        assert (copied / "deep" / "made").read_text() == "here"
    assert not copied.exists()
    with pytest.raises(UntrustedFile, match="got it"), trust.judged(folder, "it"):
        pass
    with trusting(), trust.judged(folder, "it") as trusted:
        assert trusted == folder


def test_a_checkpoint_is_not_trusted_for_what_it_was(tmp_path: Path) -> None:
    at = run_of_ones_own(tmp_path / "run")
    store = CheckpointStore(at.parent)
    made, passed = make(PPO, n_steps=8, batch_size=8), []

    def replaced(checkpoint: Checkpoint, *_: Any) -> None:
        """Somebody is quicker than who resumes."""
        passed.append(checkpoint.ours)
        make(PPO, policy_kwargs={"features_extractor_class": Mine}).save(at / "model.zip")

    with pytest.raises(UntrustedFile, match="Mine"):
        resume(store, PPO, made.get_env(), {"device": "cpu"}, replaced)
    assert passed == [True]


def test_schedules_that_older_versions_saved_as_functions_are_defaults(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(PPO, clip_range=0.1).save(tmp_path / "new.zip")
    code = base64.b64encode(cloudpickle.dumps(lambda _: os.getpid())).decode()
    with zipfile.ZipFile(tmp_path / "new.zip") as new, zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        for name in new.namelist():
            content = new.read(name)
            if name == "data":
                data = json.loads(content)
                data |= {name: {":type:": "function", ":serialized:": code} for name in ("clip_range", "lr_schedule")}
                content = json.dumps(data).encode()
            old.writestr(name, content)
    model = load_model(PPO, tmp_path / "old.zip", device="cpu")
    assert model.clip_range(1.0) == 0.2
    assert model.lr_schedule(1.0) == model.learning_rate
    assert "clip_range is a function, which is not run: it is 0.2, the default" in caplog.text


def run_of_ones_own(folder: Path) -> Path:
    """A run whose model has a class that no table has; its checkpoint."""
    model = make(PPO, policy_kwargs={"features_extractor_class": Mine}, n_steps=8, batch_size=8)
    saving = AutoSave(folder, signals=False, tell=lambda text: None)
    model.learn(8, callback=saving)
    assert saving.last is not None
    return saving.last.path


def with_attributes(source: Path, to: Path, attributes: dict[str, Any]) -> Path:
    """A model.zip that holds other attributes, pickled as Stable-Baselines3 pickles them."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                data = json.loads(content)
                for key, value in attributes.items():
                    data[key] = {":type:": "x", ":serialized:": base64.b64encode(cloudpickle.dumps(value)).decode()}
                content = json.dumps(data).encode()
            new.writestr(name, content)
    return to


def test_constants_that_older_versions_saved_as_functions_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def constant_fn(val: float) -> Callable[[float], float]:
        """As Stable-Baselines3 before 2.7 writes it."""

        def func(_: float) -> float:
            return val

        return func

    value_schedule = constant_fn(0.1)
    make(PPO).save(tmp_path / "new.zip")
    old = {"clip_range": lambda left: float(value_schedule(left)), "clip_range_vf": constant_fn(0.3)}
    model = load_model(PPO, with_attributes(tmp_path / "new.zip", tmp_path / "old.zip", old), device="cpu")
    assert (model.clip_range(0.5), model.clip_range_vf(0.5)) == (0.1, 0.3)
    assert "is a function" not in caplog.text


@pytest.mark.parametrize("code", ["88005300", "9501970089015300", "3e01950054012400"])
def test_a_constant_is_known_from_every_python(code: str) -> None:
    """As CPython 3.9 and 3.10, 3.11 and 3.12, and 3.13 compile it."""
    value = 0.1
    with_frames = cloudpickle.dumps(lambda _: value, protocol=4)
    unframed = with_frames[:2] + with_frames[11:]  # a frame says its length
    written, wanted = (
        pickle.SHORT_BINBYTES + bytes([len(text)]) + text
        for text in ((lambda _: value).__code__.co_code, bytes.fromhex(code))
    )
    assert unframed.count(written) == 1
    assert known_schedule(unframed.replace(written, wanted)) == value


def test_values_of_pythons_own_are_no_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder to log into, what an env told of its episodes, a schedule that is a function with arguments."""
    make(PPO).save(tmp_path / "plain.zip")
    told = {"r": 1.0, "at": datetime.datetime(2020, 1, 1), "map": Path("level"), "price": decimal.Decimal("0.1")}
    held = {
        "tensorboard_log": tmp_path / "logs",
        "ep_info_buffer": deque([told]),
        "learning_rate": functools.partial(linear_schedule, 1e-3),
        "clip_range": linear_schedule,
    }
    path = with_attributes(tmp_path / "plain.zip", tmp_path / "model.zip", held)
    assert type(load_sb3_model(path)) is PPO
    model = load_model(PPO, path, device="cpu")
    assert model.tensorboard_log is None
    assert model.ep_info_buffer[0] == told
    assert (model.learning_rate, model.clip_range(0.5)) == (3e-4, 0.2)
    assert "learning_rate is a function, which is not run" in caplog.text


def test_what_is_refused_names_its_attribute(tmp_path: Path) -> None:
    make(PPO).save(tmp_path / "plain.zip")
    for name in ("learning_rate", "tensorboard_log", "replay_buffer_class", "policy_kwargs"):
        calls = {name: functools.partial(os.getcwd)}
        path = with_attributes(tmp_path / "plain.zip", tmp_path / "model.zip", calls)
        for load in (load_sb3_model, functools.partial(load_model, PPO)):
            with pytest.raises(UntrustedFile, match=f"field {name} in {path}"):
                load(path)


def test_what_was_made_here_is_known_again(tmp_path: Path, key: Path) -> None:
    at = run_of_ones_own(tmp_path / "run")
    env = make(PPO).get_env()
    assert made_here(at / "model.zip")
    assert type(load_sb3_model(at / "model.zip")) is PPO
    assert AutoSave(tmp_path / "run", tell=lambda text: None, lock=False).resume(PPO, env) is not None
    key.rename(key.with_name("away"))  # the same files on another machine
    assert not made_here(at / "model.zip")
    with pytest.raises(UntrustedFile, match=r"Mine.*in Python: with ue_rl\.system\.trust\.files\.trusting\(\):"):
        AutoSave(tmp_path / "run", tell=lambda text: None, lock=False).resume(PPO, env)
    with trusting():
        assert AutoSave(tmp_path / "run", tell=lambda text: None, lock=False).resume(PPO, env) is not None


def test_what_was_changed_since_is_not(tmp_path: Path) -> None:
    at = run_of_ones_own(tmp_path / "run")
    shutil.copyfile(at / "model.zip", tmp_path / "before.zip")
    with zipfile.ZipFile(at / "model.zip", "a") as file:
        file.writestr("more", "x")
    assert not made_here(at / "model.zip")
    shutil.copyfile(tmp_path / "before.zip", at / "model.zip")
    assert made_here(at / "model.zip")
    manifest = json.loads((at / "manifest.json").read_text())
    (at / "manifest.json").write_text(json.dumps({**manifest, "reason": "another"}))
    assert not made_here(at / "model.zip")


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_the_key_is_its_owners_alone(tmp_path: Path, key: Path, caplog: pytest.LogCaptureFixture) -> None:
    signature = origin.sign(b"x")
    assert (key.stat().st_mode & 0o777, len(key.read_bytes())) == (0o600, 32)
    assert origin.is_signed(b"x", signature)
    assert not origin.is_signed(b"y", signature)
    assert not any(origin.is_signed(b"x", wrong) for wrong in (None, "", "ä", 3, signature.upper()))
    key.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        assert not origin.is_signed(b"x", signature)
    assert "can be used by others" in caplog.text
    key.unlink()
    key.parent.rmdir()
    key.parent.write_text("no folder can be made here")
    assert origin.sign(b"x") == ""


def test_what_was_trusted_is_known_though_its_file_was_cut_off(key: Path) -> None:
    origin.remember(b"one")
    (key.parent / "trusted").write_bytes(b"\xff\0cut")
    origin.remember(b"two")
    assert (origin.is_remembered(b"one"), origin.is_remembered(b"two")) == (False, True)


def test_a_pickle_takes_no_more_memory_than_it_has_bytes() -> None:
    for pickled in (
        pickle.BYTEARRAY8 + (1 << 40).to_bytes(8, "little"),
        pickle.NONE + pickle.LONG_BINPUT + b"\xff\xff\xff\xff",
        pickle.BINBYTES8 + (1 << 40).to_bytes(8, "little"),
    ):
        with pytest.raises((EOFError, pickle.UnpicklingError)):
            load_data(b"\x80\x05" + pickled)


def test_log_folders_in_a_model_are_left_out(tmp_path: Path) -> None:
    make(PPO, tensorboard_log=str(tmp_path / "logs")).save(tmp_path / "model.zip")
    assert trust.load_model(PPO, tmp_path / "model.zip").tensorboard_log is None


def test_weights_alone(tmp_path: Path) -> None:
    model = make(PPO, normalize={"clip_obs": 5.0})
    model.save(tmp_path / "model.zip")
    model.get_vec_normalize_env().save(str(tmp_path / "model_vecnormalize.pkl"))
    words = [str(tmp_path / "model.zip"), "--format", "safetensors"]
    CliRunner().invoke(export, words, catch_exceptions=False)
    content = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")  # read here as the format's description says
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    assert size % 8 == 0
    assert header.pop("__metadata__")["clip_obs"] == "5.0"
    kinds = {"F32": np.float32, "F64": np.float64}
    read = {
        name: np.frombuffer(data[slice(*one["data_offsets"])], kinds[one["dtype"]]).reshape(one["shape"])
        for name, one in header.items()
    }
    np.testing.assert_array_equal(read.pop("normalize.mean"), model.get_vec_normalize_env().obs_rms.mean)  # type: ignore[union-attr]
    read.pop("normalize.var")
    other = make(PPO)
    other.policy.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in read.items()})
    seen = model.observation_space.sample()
    np.testing.assert_array_equal(
        other.predict(seen, deterministic=True)[0], model.predict(seen, deterministic=True)[0]
    )
    refused = CliRunner().invoke(export, [*words, "--flat"])
    assert "not for safetensors" in str(refused.exception)
