"""Demonstrations: recorded, cut off, read, refused, and learnt from."""

from __future__ import annotations

import csv
import inspect
import os
import pickle
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

import ue_rl
from tests.harness.warm_cli import WarmCli
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.cli import cli
from ue_rl.protocol.spaces.walks import zip_leaves
from ue_rl.system.errors import ConfigurationError, UntrustedFile
from ue_rl.training import RunDirectory, TrainOptions, teaching, train
from ue_rl.training.demonstrations.dataset import EPISODES, DemoEpisode, DemoRecorder, read
from ue_rl.training.demonstrations.trees import stacked

minari = pytest.importorskip("minari", reason="minari is not installed")
minari_storage = pytest.importorskip("minari.dataset.minari_storage", reason="minari is not installed")
hdf5_storage = pytest.importorskip("minari.dataset._storages.hdf5_storage", reason="minari[hdf5] is not installed")

SEEN = spaces.Dict({"where": spaces.Box(-1, 1, (2,), np.float32), "camera": spaces.Box(0, 255, (3, 40, 40), np.uint8)})
DONE = spaces.Discrete(3)


def episode(steps: int, number: int = 0, terminated: bool = True) -> DemoEpisode:
    draw = np.random.default_rng(number)
    seen = {
        "where": draw.uniform(-1, 1, (steps + 1, 2)).astype(np.float32),
        "camera": draw.integers(0, 256, (steps + 1, 3, 40, 40), dtype=np.uint8),
    }
    return DemoEpisode(seen, draw.integers(0, 3, steps), draw.normal(size=steps), terminated)


def written(folder: Path, *episodes: DemoEpisode, seen: Any = SEEN, done: Any = DONE) -> Path:
    recorder = DemoRecorder(folder, seen, done, author={"Ada"})
    for each in episodes:
        recorder.add(each)
    recorder.close()
    return folder


def balance(seen: np.ndarray) -> np.ndarray:
    """Keeps CartPole's pole up."""
    return (seen[:, 2] + 0.5 * seen[:, 3] + 0.05 * seen[:, 0] + 0.1 * seen[:, 1] > 0).astype(np.int64)


@pytest.fixture(scope="session")
def cart_pole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve episodes of CartPole, of 60 steps each, by a script."""
    from ue_rl.training.demonstrations.recording import RecordingVecEnv

    folder = tmp_path_factory.mktemp("demos") / "cart"
    with run_in_thread(GymnasiumBridge("CartPole-v1", 4)) as engine:
        env = ue_rl.connect(engine.url, max_episode_steps=60)  # type: ignore[attr-defined]
        env.seed(0)
        with RecordingVecEnv(env, folder, 12) as recording:
            seen = recording.reset()
            while not recording.done:
                seen, *_ = recording.step(balance(seen))
        env.close()
    return folder


def test_minari_reads_what_was_recorded_and_read_gives_it_back_bit_by_bit(tmp_path: Path) -> None:
    played = [episode(4, 1), episode(7, 2, terminated=False)]
    folder = written(tmp_path / "demos", *played)
    theirs = minari.MinariDataset(str(folder / "data"))
    assert (theirs.total_episodes, theirs.total_steps, theirs.action_space) == (2, 11, DONE)
    assert theirs[1].truncations[-1]
    assert not theirs[1].terminations.any()
    assert theirs[0].terminations[-1]
    found = read(folder)
    assert found.observation_space == SEEN
    assert found.about["author"] == ["Ada"]
    for mine, again in zip(played, found.episodes, strict=True):
        for name in SEEN.spaces:
            np.testing.assert_array_equal(mine.observations[name], again.observations[name])
        np.testing.assert_array_equal(mine.actions, again.actions)
        np.testing.assert_array_equal(mine.rewards, again.rewards)
        assert mine.terminated == again.terminated
    assert sorted(path.name for path in folder.iterdir()) == ["data"]


def test_an_episode_with_an_action_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    from ue_rl.training.demonstrations.recording import RecordingVecEnv

    known = iter([1, None, 1, 0, 1, 0])
    env = DummyVecEnv([lambda: gym.make("CartPole-v1", max_episode_steps=3)])
    with RecordingVecEnv(env, tmp_path / "demos", 1, lambda asked, info: next(known)) as recording:
        recording.reset()
        for _ in range(6):
            recording.step(np.zeros(1, np.int64))
    assert recording.done
    (only,) = read(tmp_path / "demos").episodes
    assert only.actions.tolist() == [0, 1, 0]


PIXELS = spaces.Box(0, 255, (36, 36, 1), np.uint8)
ODD_KEYS = ["arm", "arm/left", "a%2Fb", "a/b", "%", "100%", ".", "..", "ä ü", "_index_0"]


def test_keys_of_any_name_are_read_back(tmp_path: Path) -> None:
    """In HDF5 a name with a slash is a path, and a single point the group itself."""
    inner = spaces.Dict({"x/y": spaces.Box(-1, 1, (2,), np.float32), "/": spaces.Discrete(3)})
    parts: dict[str, Any] = {key: spaces.Box(-1, 1, (1,), np.float32) for key in ODD_KEYS}
    seen = spaces.Dict({**parts, "in/side": spaces.Tuple([inner, spaces.MultiBinary(2)])})
    done = spaces.Dict({"left/right": spaces.Discrete(2), "left": spaces.Box(-1, 1, (1,), np.float32)})
    seen.seed(0)
    done.seed(0)
    observations = stacked([seen.sample() for _ in range(4)])
    actions = stacked([done.sample() for _ in range(3)])
    folder = written(tmp_path / "d", DemoEpisode(observations, actions, np.zeros(3), True), seen=seen, done=done)
    found = read(folder)
    assert (found.observation_space, found.action_space) == (seen, done)
    for space, tree, wanted in (
        (seen, found.episodes[0].observations, observations),
        (done, found.episodes[0].actions, actions),
    ):
        for (_, leaf), (_, expected) in zip(zip_leaves(space, tree), zip_leaves(space, wanted), strict=True):
            np.testing.assert_array_equal(leaf, expected)
    assert minari.MinariDataset(folder / "data").total_steps == 3


def test_parts_are_found_by_their_names(tmp_path: Path) -> None:
    """A file need not have them in the engine's order: two of one shape would change places."""
    part = spaces.Box(-1, 1, (2,), np.float32)
    seen = spaces.Dict([("goal", part), ("arm", part)])
    observations = {"goal": np.ones((3, 2), np.float32), "arm": np.zeros((3, 2), np.float32)}
    one = DemoEpisode(observations, np.zeros(2, np.int64), np.zeros(2), True)
    found = read(written(tmp_path / "d", one, seen=seen))
    for order in (("goal", "arm"), ("arm", "goal")):
        wanted = spaces.Dict()
        for name in order:  # one by one: the constructor may sort them
            wanted.spaces[name] = part
        moved = found.of(wanted, DONE).episodes[0].observations
        np.testing.assert_array_equal(moved["goal"], observations["goal"])
        np.testing.assert_array_equal(moved["arm"], observations["arm"])


def test_pictures_stay_what_they_were(tmp_path: Path) -> None:
    """Minari takes height x width x channels of 32 and more for a picture; JPEG would change it."""
    pictures = np.random.default_rng(0).integers(0, 256, (4, 36, 36, 1), np.uint8)
    one = DemoEpisode(pictures, np.zeros((3,), np.int64), np.zeros(3), True)
    exact = "jpeg_encoding" in inspect.signature(minari_storage.MinariStorage.new).parameters
    if not exact:
        with pytest.raises(ConfigurationError, match=r"stores pictures as JPEG.*minari\[hdf5\]>=0.5.4"):
            written(tmp_path / "d", one, seen=PIXELS, done=spaces.Discrete(2))
        return
    folder = written(tmp_path / "d", one, seen=PIXELS, done=spaces.Discrete(2))
    np.testing.assert_array_equal(read(folder).episodes[0].observations, pictures)


def test_the_parts_stay_until_the_dataset_was_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a version of Minari does to the numbers, what was recorded is not lost."""
    write = hdf5_storage.HDF5Storage.update_episodes

    def rounded(self: Any, episodes: Any) -> None:
        write(self, [replace(each, rewards=np.round(each.rewards)) for each in episodes])

    monkeypatch.setattr(hdf5_storage.HDF5Storage, "update_episodes", rounded)
    with pytest.raises(ConfigurationError, match="Minari does not read back what was recorded"):
        written(tmp_path / "d", episode(3))
    assert [path.name for path in (tmp_path / "d" / "episodes").iterdir()] == ["0.npz"]
    monkeypatch.undo()
    assert len(read(tmp_path / "d").episodes) == 1


def test_a_recorder_that_is_killed_leaves_its_whole_episodes(tmp_path: Path, warm_cli: WarmCli) -> None:
    folder = tmp_path / "demos"
    script = (
        "import os, sys, time; from tests.training.demonstrations.test_demonstrations import *\n"
        f"recorder = DemoRecorder({str(folder)!r}, SEEN, DONE)\n"
        "for n in range(3): recorder.add(episode(5, n))\n"
        f"open({str(folder / EPISODES / '.half-3.npz')!r}, 'wb').write(b'PK')\n"
        "print('now', flush=True); time.sleep(60)\n"
    )
    process = warm_cli.start([], output=tmp_path / "output.txt", script=script)
    process.wait_for("now")
    with pytest.raises(ConfigurationError, match=f"{process.pid}"):
        read(folder)  # it is at work
    process.signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    shown = CliRunner().invoke(cli, ["demos", "show", str(folder)])
    assert shown.exit_code == 0
    assert "3: 3 ended by themselves" in shown.output
    assert minari.MinariDataset(str(folder / "data")).total_episodes == 3


@pytest.mark.parametrize("wrong", ["nothing", "a file", "an empty folder", "a model", "half a file", "no episode"])
def test_what_is_no_dataset_is_refused_by_name(tmp_path: Path, wrong: str) -> None:
    folder = tmp_path / "demos"
    if wrong == "a file":
        folder.write_text("x")
    elif wrong == "an empty folder":
        folder.mkdir()
    elif wrong == "a model":
        folder.mkdir()
        (folder / "model.zip").write_bytes(b"PK")
    elif wrong in ("half a file", "no episode"):
        main = written(folder, episode(3)) / "data" / "main_data.hdf5"
        if wrong == "half a file":
            main.write_bytes(main.read_bytes()[: main.stat().st_size // 2])
        else:
            about = main.with_name("metadata.json")
            about.write_text(about.read_text().replace('"total_episodes": 1', '"total_episodes": 0'))
    with pytest.raises(ConfigurationError, match="holds no demonstrations") as error:
        read(folder, "bc")
    assert error.value.field == "bc"
    assert error.value.fault == "caller"


def test_no_env_is_made_and_no_pickle_is_loaded_from_a_hostile_dataset(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    folder = written(tmp_path / "demos", episode(3))
    about = folder / "data" / "metadata.json"
    text = about.read_text().replace('"action_space"', '"env_spec": "{}", "other"')
    about.write_text(text)  # Minari would ask the env that it names
    with pytest.raises(ConfigurationError, match="names no action_space"):
        read(folder)
    recorder = DemoRecorder(tmp_path / "cut", SEEN, DONE)
    recorder.add(episode(3))
    bad = np.empty(1, object)
    bad[0] = Trap()
    np.savez(tmp_path / "cut" / EPISODES / "1.npz", rewards=bad)
    recorder._lock.__exit__(None, None, None)
    with pytest.raises(ConfigurationError, match="holds no demonstrations"):
        read(tmp_path / "cut")
    assert not (tmp_path / "sprung").exists()
    assert pickle.dumps(Trap())


@pytest.mark.parametrize("kind", ["numbers elsewhere", "a link", "a bomb", "a bomb of a recorder"])
def test_a_hostile_file_of_numbers_is_refused_before_it_is_read(kind: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py, which minari needs, is not installed")
    folder, secret, name = tmp_path / "demos", tmp_path / "secret", "episode_0/rewards"
    secret.write_bytes(bytes(1 << 10))
    if kind == "a bomb of a recorder":
        recorder = DemoRecorder(folder, SEEN, DONE)
        np.savez_compressed(folder / EPISODES / "0.npz", rewards=np.zeros(10 << 20))
        recorder._lock.__exit__(None, None, None)
    else:
        with h5py.File(written(folder, episode(3)) / "data" / "main_data.hdf5", "a") as file:
            del file[name]
            if kind == "a link":
                file[name] = h5py.ExternalLink(str(secret), "/rewards")
            elif kind == "a bomb":
                file.create_dataset(name, (1 << 40,), np.float64, chunks=(1 << 20,), compression="gzip")
            else:
                file.create_dataset(name, (3,), np.float64, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
    with pytest.raises(UntrustedFile, match="is refused"):
        read(folder)


def test_demonstrations_that_would_be_read_for_ever_are_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py, which minari needs, is not installed")
    folder = written(tmp_path / "circle", episode(3))
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_0/again"] = file["episode_0"]
    with pytest.raises(UntrustedFile, match="in it twice"):
        read(folder)
    if hasattr(os, "mkfifo"):
        folder = written(tmp_path / "pipe", episode(3))
        (folder / "data" / "metadata.json").unlink()
        os.mkfifo(folder / "data" / "metadata.json")
        with pytest.raises(ConfigurationError, match="not an ordinary file"):
            read(folder)


def test_demonstrations_of_another_game_are_refused(cart_pole: Path, cartpole: str, tmp_path: Path) -> None:
    with (
        run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine,
        pytest.raises(ConfigurationError, match="another game") as error,
    ):
        train(TrainOptions(url=engine.url, bc=str(cart_pole), timesteps=64, log_dir=str(tmp_path)))
    assert error.value.field == "observation_space"
    with pytest.raises(ConfigurationError, match="does not go with this run"):
        train(TrainOptions(url=cartpole, prefill=str(cart_pole), timesteps=64, log_dir=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_policy_is_cloned_before_it_learns_and_a_resumed_run_clones_no_more(
    cart_pole: Path, cartpole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ue_rl.training.demonstrations.cloning import clone

    monkeypatch.setattr(teaching, "clone", partial(clone, epochs=20, learning_rate=4e-3))  # of 1000 slow ones
    options = TrainOptions(
        bc=str(cart_pole), timesteps=64, url=cartpole, seed=1, log_dir=str(tmp_path), run_id="run", export=False,
        eval_episodes=2, max_episode_steps=200,
        hyperparameters={"n_steps": 32, "batch_size": 64, "n_epochs": 1, "learning_rate": 1e-5},
    )  # fmt: skip
    outcome = train(options)
    rows = list(csv.DictReader((tmp_path / "run" / "cloning.csv").open()))
    losses = [float(row["held_out_loss"]) for row in rows]
    assert min(losses) < 0.5 * 0.69
    assert outcome.evaluation is not None
    assert outcome.evaluation[0] > 150
    before = (tmp_path / "run" / "cloning.csv").stat().st_mtime_ns
    options.timesteps, options.eval_episodes = 128, 0
    train(options, resume=RunDirectory.existing(tmp_path, "run", "run"))
    assert (tmp_path / "run" / "cloning.csv").stat().st_mtime_ns == before


@pytest.mark.parametrize("algo", ["dqn", pytest.param("a2c", marks=pytest.mark.exhaustive)])
def test_other_algorithms_clone(cart_pole: Path, algo: str) -> None:
    from stable_baselines3 import A2C, DQN

    from ue_rl.training.demonstrations.cloning import clone

    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        env = ue_rl.connect(engine.url)  # type: ignore[attr-defined]
        model = {"dqn": DQN, "a2c": A2C}[algo]("MlpPolicy", env, seed=0, device="cpu")
        found = read(cart_pole).of(env.observation_space, env.action_space)
        cloned = clone(model, found, epochs=8, batch_size=32, learning_rate=8e-3, seed=0)
        seen, acted = found.pairs()
        assert cloned.last < cloned.first
        assert np.mean(model.predict(seen, deterministic=True)[0] == acted) > 0.9
        env.close()


def test_a_replay_buffer_begins_with_the_demonstrations(cart_pole: Path) -> None:
    from stable_baselines3 import DQN

    from ue_rl.training.demonstrations.prefill import prefill

    with run_in_thread(GymnasiumBridge("CartPole-v1", 4)) as engine:
        env = ue_rl.connect(engine.url)  # type: ignore[attr-defined]
        model = DQN("MlpPolicy", env, seed=0, device="cpu", buffer_size=4000)
        found = read(cart_pole).of(env.observation_space, env.action_space)
        count = prefill(model, found)
        buffer: Any = model.replay_buffer
        assert count == found.steps // 4 * 4 == buffer.pos * 4
        seen, acted = found.pairs()
        assert {tuple(row) for row in buffer.observations[: buffer.pos].reshape(-1, 4)} <= {tuple(row) for row in seen}
        np.testing.assert_array_equal(buffer.actions[: buffer.pos, 3, 0], acted[-buffer.pos :])
        inside = ~buffer.dones[: buffer.pos].astype(bool)
        np.testing.assert_array_equal(  # within an episode the next observation is the next row's
            buffer.next_observations[: buffer.pos][inside][0], buffer.observations[1, 0]
        )
        env.close()


@pytest.mark.parametrize("rewards", ["gail", "rnd"])
def test_a_run_with_learnt_rewards_is_resumed_bit_by_bit(
    cart_pole: Path, cartpole: str, tmp_path: Path, rewards: str
) -> None:
    import torch
    from stable_baselines3 import PPO

    def run(name: str, timesteps: int, **more: Any) -> Any:
        options = TrainOptions(
            timesteps=timesteps, url=cartpole, seed=1, log_dir=str(tmp_path), run_id=name, export=False,
            hyperparameters={"n_steps": 16, "batch_size": 32, "n_epochs": 1, "learning_rate": 1e-3, "clip_range": 0.2},
            device="cpu",
            **{rewards: str(cart_pole) if rewards == "gail" else 0.5},
        )  # fmt: skip
        train(options, **more)
        return PPO.load(tmp_path / name / "model.zip", device="cpu").policy.state_dict()

    whole = run("whole", 96)
    run("parts", 64)
    again = run("parts", 96, resume=RunDirectory.existing(tmp_path, "parts", "parts"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_step_earns_what_is_new_in_the_state_it_led_to_and_none_of_the_next_episode_s() -> None:
    from types import SimpleNamespace

    from stable_baselines3 import PPO

    from ue_rl.training.demonstrations.rewards import Rnd

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, seed=0, device="cpu")
    model._setup_learn(1)
    rnd = Rnd(1.0)
    rnd.init_callback(model)
    seen = np.repeat(np.float32([[0] * 4, [0] * 4, [1] * 4, [1] * 4, [0] * 4]), 2, 0).reshape(10, 1, 4)
    starts = np.zeros((10, 1), np.float32)
    starts[[0, 4]] = 1
    nothing = np.zeros((10, 1), np.float32)
    earned = rnd._rewards(SimpleNamespace(observations=seen, episode_starts=starts), nothing, nothing)[:, 0]
    old, new = earned[0], earned[5]
    assert old != new
    assert earned.tolist() == [old, old, old, old, new, new, new, old, old, old]


class Keys:
    """A person's keys, of a script: right while the pole leans so."""

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        return balance(seen)[:, None].astype(np.float32)


@pytest.mark.parametrize("carrier", ["tcp", pytest.param("shm", marks=pytest.mark.exhaustive)])
def test_a_game_in_python_that_acts_itself_is_recorded_and_checked(tmp_path: Path, carrier: str) -> None:
    from ue_rl.bridges import ShmUpgrader
    from ue_rl.devtools import check as compliance
    from ue_rl.training.demonstrations.recording import record_played

    bridge = GymnasiumBridge("CartPole-v1", 2)
    bridge.demonstrate(Keys())
    with run_in_thread(bridge, upgrader=ShmUpgrader() if carrier == "shm" else None) as engine:
        env = ue_rl.connect(engine.url, max_episode_steps=40)  # type: ignore[attr-defined]
        assert record_played(env, tmp_path / "demos", 4, tell=lambda text: None) == 4
        env.close()
        if carrier == "tcp":
            report = compliance.check(
                engine.url,
                compliance.Options(timeout=20.0),
                only=["reset of all envs", "steps of all envs", "actions of its own"],
            )
            assert report.mistakes == []
            assert "each of 2 envs said what it did" in str(report.findings)
    seen, acted = read(tmp_path / "demos").pairs()
    assert len(acted) == 160
    np.testing.assert_array_equal(acted, balance(seen))


def test_a_step_without_the_action_taken_names_the_engine(tmp_path: Path) -> None:
    from ue_rl.protocol.spec import EnvSpec
    from ue_rl.system.errors import MalformedMessage
    from ue_rl.training.demonstrations.recording import action_of

    for info in ({}, {"demo_action": [1.0]}, {"demo_action": ["a", "b"]}, {"demo_action": None}):
        with pytest.raises(MalformedMessage, match="demo_action") as error:
            action_of(EnvSpec(4, 2), info)
        assert error.value.fault == "engine"


def test_pictures_are_filmed_and_a_dataset_without_any_says_so(tmp_path: Path) -> None:
    folder, film = written(tmp_path / "demos", episode(4)), tmp_path / "film.gif"
    assert CliRunner().invoke(cli, ["demos", "show", str(folder), "--gif", str(film)]).exit_code == 0
    assert film.read_bytes()[:3] == b"GIF"
    plain = spaces.Box(-1, 1, (2,), np.float32)
    blind = DemoEpisode(np.zeros((3, 2), np.float32), np.zeros(2, np.int64), np.zeros(2), True)
    shown = CliRunner().invoke(
        cli, ["demos", "show", str(written(tmp_path / "b", blind, seen=plain)), "--gif", "x.gif"]
    )
    assert shown.exit_code != 0
    assert "no pictures were recorded" in str(shown.exception)


def test_demonstrations_of_a_tuple_are_those_of_the_same_parts_alone(tmp_path: Path) -> None:
    seen = spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)])
    observations = (np.zeros((3, 2), np.float32), np.zeros(3, np.int64))
    folder = written(tmp_path / "d", DemoEpisode(observations, np.zeros(2, np.int64), np.zeros(2), True), seen=seen)
    found = read(folder)
    assert len(found.of(seen, DONE).episodes) == 1
    for other in (
        spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(4)]),
        spaces.Tuple([spaces.Box(-1, 1, (2,), np.float32)]),
        spaces.Tuple([*seen.spaces, spaces.Discrete(2)]),
    ):
        with pytest.raises(ConfigurationError, match="another game"):
            found.of(other, DONE)
