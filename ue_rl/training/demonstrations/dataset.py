"""Demonstrations on the disk: a folder that holds a Minari dataset, `FOLDER/data`.

    recorder = DemoRecorder("demos/ball", env.observation_space, env.action_space)
    recorder.add(DemoEpisode(observations, actions, rewards, terminated=True))
    recorder.close()
    read("demos/ball").episodes

While it is recorded each episode is a file of its own, FOLDER/episodes/N.npz, and the dataset is made of them at the
end: by `close`, or, where the recorder was killed, by who reads the folder next. Nothing in these files is run: HDF5,
JSON and npz (read without pickles) are data, and no env is made of a dataset's env_spec.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.protocol.spaces.walks import flatten, map_leaves, unflatten, zip_leaves
from ue_rl.system.durable import HALF, amount, sync_folder, write_whole
from ue_rl.system.errors import ConfigurationError, UeRlError, UntrustedFile
from ue_rl.system.files import require_file
from ue_rl.system.lazy import named_if_missing
from ue_rl.system.trust.archives import MOST_TIMES, SMALL, check_zip
from ue_rl.training.demonstrations.names import (
    ENCODING,
    PERCENT,
    in_order,
    original_key,
    stored_key,
    tree_with_keys,
    with_keys,
)
from ue_rl.training.demonstrations.trees import fits, joined, moved
from ue_rl.training.saving.lock import LOCK, RunLock

DATA = "data"
EPISODES = "episodes"
ABOUT = "recording.json"


@dataclass
class DemoEpisode:
    """What was seen and done.

    Attributes:
        observations: of the space, with a dimension more in front: [steps + 1, ..]. actions: likewise, [steps, ..].
        rewards: float [steps]. terminated: it ended by itself; False: it was cut off.
    """

    observations: Any
    actions: Any
    rewards: NDArray[Any]
    terminated: bool

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def returned(self) -> float:
        """The sum of its rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))


@dataclass
class Demonstrations:
    """The episodes of a dataset, and the spaces that it says.

    Attributes:
        about: the dataset's metadata.
    """

    path: Path
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    episodes: list[DemoEpisode]
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Of all episodes."""
        return sum(map(len, self.episodes))

    def of(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Demonstrations:
        """The same for an env with these spaces: its dtypes, its first choices.

        Raises:
            ConfigurationError: the dataset is of another game.
        """
        for name, given, wanted in (
            ("observation_space", self.observation_space, observation_space),
            ("action_space", self.action_space, action_space),
        ):
            if not fits(given, wanted, bounds=name == "action_space"):
                raise ConfigurationError(
                    f"{self.path} was recorded in another game than the engine's: its {name} differs",
                    fault="trainer",
                    field=name,
                    expected=wanted,
                    got=given,
                    cure="give demonstrations of this game, and the --frame-stack and --env-wrapper that they have",
                )
        episodes = [
            DemoEpisode(
                moved(self.observation_space, observation_space, one.observations),
                moved(self.action_space, action_space, one.actions),
                one.rewards,
                one.terminated,
            )
            for one in self.episodes
        ]
        return Demonstrations(self.path, observation_space, action_space, episodes, self.about)

    def pairs(self, episodes: list[DemoEpisode] | None = None) -> tuple[Any, Any]:
        """(observations, actions) of all steps, or those of some episodes, one behind the other."""
        if episodes is None:
            chosen = self.episodes
        else:
            chosen = episodes
        seen = joined([map_leaves(lambda leaf: leaf[:-1], one.observations) for one in chosen])
        return seen, joined([one.actions for one in chosen])


class DemoRecorder:
    """Writes a new dataset. Killed at any moment, it leaves the episodes that were added.

    Args:
        about: what else its metadata says: algorithm_name, author (a set) ..

    Attributes:
        count: episodes so far.

    Raises:
        ConfigurationError: there is something at `folder` already; this version of Minari would change pictures.
        MissingPackage: minari is not installed.
    """

    def __init__(
        self,
        folder: Path | str,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        **about: Any,
    ) -> None:
        self.folder = Path(folder)
        self.count = 0
        self._spaces = observation_space, action_space
        serialize = _minari("serialization").serialize_space
        _refuse_jpeg(observation_space)
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            cure = "name another one, or delete it"
            raise ConfigurationError("something is there already", field="demos", got=str(self.folder), cure=cure)
        (self.folder / EPISODES).mkdir(parents=True)
        self._lock = RunLock(self.folder)
        self._lock.__enter__()
        known = {"observation_space": serialize(observation_space), "action_space": serialize(action_space)}
        text = json.dumps({**known, "about": about}, default=list)
        write_whole(self.folder / ABOUT, lambda path: path.write_text(text, "utf-8"))

    def add(self, episode: DemoEpisode) -> None:
        """Keeps an episode; it is on the disk when this returns.

        Raises:
            ConfigurationError: its parts have not as many rows as belong together.
        """
        _check(episode, self._spaces, self.folder, self.count)
        arrays: dict[str, Any] = {
            f"{name}{at}": np.asarray(leaf)
            for name, space, tree in (
                ("observations", self._spaces[0], episode.observations),
                ("actions", self._spaces[1], episode.actions),
            )
            for at, (_, leaf) in enumerate(zip_leaves(space, tree))
        }

        arrays |= {"rewards": np.asarray(episode.rewards, np.float64), "terminated": np.array(episode.terminated)}

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez(file, **arrays)

        write_whole(self.folder / EPISODES / f"{self.count}.npz", write)
        self.count += 1

    def close(self) -> None:
        """Makes the dataset; nothing is left where no episode was added."""
        try:
            if self.count:
                finish(self.folder)
        finally:
            self._lock.__exit__(None, None, None)
            (self.folder / LOCK).unlink(missing_ok=True)
        if not self.count:
            shutil.rmtree(self.folder)


def finish(folder: Path) -> int:
    """Makes the dataset of the episodes that lie in a recorded folder, whose lock is held; how many they are.

    The episodes' own files go only after the dataset was read back and equals them bit by bit.

    Raises:
        ConfigurationError: it does not; the files are kept.
    """
    about = json.loads((folder / ABOUT).read_text("utf-8"))
    deserialize = _minari("serialization").deserialize_space
    seen_in, acted_in = (
        in_order(deserialize(about[name]), json.loads(about[name])) for name in ("observation_space", "action_space")
    )
    files = sorted((folder / EPISODES).glob("[0-9]*.npz"), key=lambda path: int(path.stem))
    if not (folder / DATA).exists():
        half = folder.resolve() / f"{HALF}{DATA}"  # Minari adds up sizes wrongly under a relative path
        shutil.rmtree(half, ignore_errors=True)
        name = re.sub(r"[^-\w]+", "-", folder.resolve().name).strip("-")
        if not name:
            name = "demonstrations"
        more = {key: set(value) if isinstance(value, list) else value for key, value in about["about"].items()}
        if re.search(r"-v\d+$", name):
            more["dataset_id"] = name
        else:
            more["dataset_id"] = f"{name}-v0"
        _write(half, files, seen_in, acted_in, more)
        _compare(half, files, seen_in, acted_in)
        half.rename(folder / DATA)
        sync_folder(folder)
    (folder / ABOUT).unlink()
    shutil.rmtree(folder / EPISODES)
    return len(files)


def _write(half: Path, files: list[Path], seen_in: Any, acted_in: Any, about: dict[str, Any]) -> None:
    """A dataset of recorded episodes."""
    stored_seen_in = with_keys(seen_in, stored_key)
    stored_acted_in = with_keys(acted_in, stored_key)
    new = _minari("dataset.minari_storage").MinariStorage.new
    # Minari 0.5.3 has no such argument, and compresses what it takes for pictures: see _refuse_jpeg
    exact = {}
    if "jpeg_encoding" in inspect.signature(new).parameters:
        exact = {"jpeg_encoding": False}
    storage = new(half, stored_seen_in, stored_acted_in, **exact)
    buffer = _minari("data_collector.episode_buffer").EpisodeBuffer
    for number, path in enumerate(files):
        columns = _columns(path, seen_in, acted_in)
        for name in ("observations", "actions"):
            columns[name] = tree_with_keys(columns[name], stored_key)
        storage.update_episodes([buffer(id=number, **columns)])
    if (stored_seen_in, stored_acted_in) != (seen_in, acted_in):
        about[ENCODING] = PERCENT
    storage.update_metadata({"minari_version": _minari().__version__, **about})


def _compare(half: Path, files: list[Path], seen_in: Any, acted_in: Any) -> None:
    """Reads a dataset back.

    Raises:
        ConfigurationError: it has not what the files have.
    """
    about = json.loads((half / "metadata.json").read_text("utf-8"))
    try:
        _, _, found = _opened(half, about)
        for number, (path, episode) in enumerate(zip(files, found, strict=True)):
            columns = _columns(path, seen_in, acted_in)
            expected = DemoEpisode(
                columns["observations"], columns["actions"], columns["rewards"], bool(columns["terminations"][-1])
            )
            if not _equal(episode, expected, seen_in, acted_in):
                raise ValueError(f"episode {number} is another one")
    except Exception as error:  # what a broken HDF5 file raises is anything
        kept = half.parent / EPISODES
        raise ConfigurationError(
            "Minari does not read back what was recorded",
            fault="trainer",
            field="demos",
            expected="the recorded episodes, bit by bit",
            got=f"{type(error).__name__}: {error}",
            cure=f"every recorded episode is kept in {kept}: tell us, with these spaces: {seen_in}, {acted_in}",
        ) from error


def _equal(episode: DemoEpisode, expected: DemoEpisode, seen_in: Any, acted_in: Any) -> bool:
    """Have both the same numbers, bit by bit?"""
    if episode.terminated != expected.terminated:
        return False
    pairs = [(episode.rewards, expected.rewards)]
    for space, found, wanted in (
        (seen_in, episode.observations, expected.observations),
        (acted_in, episode.actions, expected.actions),
    ):
        found_leaves = [leaf for _, leaf in zip_leaves(space, found)]
        wanted_leaves = [leaf for _, leaf in zip_leaves(space, wanted)]
        pairs += zip(found_leaves, wanted_leaves, strict=True)
    for found_leaf, wanted_leaf in pairs:
        one = np.asarray(found_leaf)
        other = np.asarray(wanted_leaf)
        if one.shape != other.shape or one.dtype != other.dtype or one.tobytes() != other.tobytes():
            return False
    return True


def _opened(data: Path, about: dict[str, Any]) -> tuple[Any, Any, Iterator[DemoEpisode]]:
    """(observation space, action space, episodes) of a dataset, under the keys that were recorded."""
    with named_if_missing(f"a dataset in the format {about.get('data_format')}"):
        storage = _minari("dataset.minari_storage").MinariStorage.read(data)
    encoded = about.get(ENCODING) == PERCENT

    def original(tree: Any) -> Any:
        if encoded:
            return tree_with_keys(tree, original_key)
        return tree

    def episodes() -> Iterator[DemoEpisode]:
        for one in storage.get_episodes(range(int(about["total_episodes"]))):
            terminated = bool(len(one["terminations"]) and one["terminations"][-1])
            rewards = np.asarray(one["rewards"])
            yield DemoEpisode(original(one["observations"]), original(one["actions"]), rewards, terminated)

    seen_in = storage.observation_space
    acted_in = storage.action_space
    if encoded:
        seen_in = with_keys(seen_in, original_key)
        acted_in = with_keys(acted_in, original_key)
    return seen_in, acted_in, episodes()


def read(folder: Path | str, field: str = "demos") -> Demonstrations:
    """A dataset: a folder with `data`, that folder itself, or the id of one that Minari has on this machine.

    Raises:
        ConfigurationError: it is none, is empty, is being recorded, or its parts do not belong together.
        MissingPackage: minari, or what reads the dataset's format, is not installed.
    """
    path = Path(folder)
    root = _minari("storage.datasets_root_dir").get_dataset_path
    if not path.exists() and re.fullmatch(r"[-\w/]+", str(folder)) and root(str(folder)).exists():
        path = root(str(folder))
    if (path / ABOUT).exists():  # its recorder was killed, or is at work: then the lock is taken
        with RunLock(path):
            if (path / ABOUT).exists():
                if not any((path / EPISODES).glob("*.npz")):
                    raise _unreadable(path, field, "a recording that was cut off before its first episode ended")
                try:
                    finish(path)
                except UeRlError:
                    raise
                except (OSError, ValueError, LookupError, BadZipFile) as error:  # not what a recorder writes
                    raise _unreadable(path, field, f"{type(error).__name__}: {error}") from error
    if (path / DATA).is_dir():
        data = path / DATA
    else:
        data = path
    try:
        for part in data.rglob("*"):
            if not part.is_dir():
                require_file(part)
        about = json.loads((data / "metadata.json").read_text("utf-8"))
        if not isinstance(about, dict):
            raise TypeError("metadata.json holds no object")
        for name in ("observation_space", "action_space"):
            if not isinstance(about.get(name), str):  # Minari would make the env that the file names, to ask it
                raise ValueError(f"its metadata names no {name}")
        for part in data.glob("*.hdf5"):
            _check_hdf5(part)
        seen_in, acted_in, found = _opened(data, about)
        episodes = []
        for number, episode in enumerate(found):
            _check(episode, (seen_in, acted_in), path, number)
            episodes.append(episode)
    except UeRlError:
        raise
    except Exception as error:  # what a broken HDF5 file raises is anything
        raise _unreadable(path, field, f"{type(error).__name__}: {error}") from error
    if not episodes:
        raise _unreadable(path, field, "a dataset without an episode")
    return Demonstrations(path, seen_in, acted_in, episodes, about)


def _check_hdf5(path: Path) -> None:
    """Looks at a file of HDF5 before anything of it is read.

    Raises:
        UntrustedFile: it would read another file, or would unpack into far more than it is.
    """
    h5py = import_module("h5py")
    unpacked = 0
    waiting = []
    seen = set()

    def refuse(what: str, name: str) -> UntrustedFile:
        return UntrustedFile(
            f"{path} is refused: {what}", got=name, cure="no recorder writes this: take it for an attack"
        )

    with h5py.File(path) as file:
        waiting.append(file)
        while waiting:
            group = waiting.pop()
            address = h5py.h5o.get_info(group.id).addr
            if address in seen:
                raise refuse("a group that is in it twice", str(group.name))
            seen.add(address)
            for name in group:
                if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                    raise refuse("a link in it", f"{group.name}/{name}")
                one = group[name]
                if isinstance(one, h5py.Group):
                    waiting.append(one)
                elif isinstance(one, h5py.Dataset):
                    if one.external or one.is_virtual:
                        raise refuse("its numbers are in another file", one.name)
                    unpacked += one.nbytes
    size = path.stat().st_size
    if unpacked > max(MOST_TIMES * size, SMALL):
        raise refuse("it would unpack into far more than it is", f"{amount(unpacked)} from {amount(size)}")


def _refuse_jpeg(space: spaces.Space[Any]) -> None:
    """Refuses pictures where Minari would store them as JPEG, which changes them: up to 0.5.3 it always does."""
    storages = _minari("dataset.minari_storage")
    if "jpeg_encoding" in inspect.signature(storages.MinariStorage.new).parameters:
        return
    for _, part in flatten(space):
        if storages.is_image_space(part):
            version = _minari().__version__
            raise ConfigurationError(
                f"Minari {version} stores pictures as JPEG, so they would not be those that were seen",
                fault="trainer",
                field="demos",
                got=part,
                cure='pip install "minari[hdf5]>=0.5.4" (which needs Python 3.11 and NumPy 2)',
            )


def _unreadable(path: Path, field: str, got: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} holds no demonstrations",
        field=field,
        got=got if path.exists() else "nothing",
        expected="the folder of a Minari dataset (data/metadata.json, data/main_data.hdf5)",
        cure="record some: ue-rl play MODEL --record-demos FOLDER, or ue-rl demos record FOLDER URL",
    )


def _check(episode: DemoEpisode, of: tuple[spaces.Space[Any], spaces.Space[Any]], path: Path, number: int) -> None:
    steps = len(episode)
    for name, space, tree, wanted in (
        ("observations", of[0], episode.observations, steps + 1),
        ("actions", of[1], episode.actions, steps),
    ):
        for part, leaf in zip_leaves(space, tree):
            got = np.shape(leaf)
            expected = (wanted, *(part.shape or ()))
            if got != expected or not steps:
                what = f"{path}, episode {number}: its {name} do not fit its rewards and its space"
                raise ConfigurationError(what, fault="trainer", field=name, expected=expected, got=got)
    if not np.all(np.isfinite(episode.rewards)):
        raise ConfigurationError(f"{path}, episode {number}: a reward is not finite", fault="trainer", field="rewards")


def _columns(path: Path, seen_in: Any, acted_in: Any) -> dict[str, Any]:
    """A recorded episode as Minari's EpisodeBuffer has it."""
    with path.open("rb") as packed:
        check_zip(packed, path.name)
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    columns = {
        name: unflatten(space, (arrays[f"{name}{at}"] for at in range(len(arrays))))
        for name, space in (("observations", seen_in), ("actions", acted_in))
    }
    ends = np.zeros(len(arrays["rewards"]), np.bool_)
    ends[-1] = True
    over = bool(arrays["terminated"])
    none = np.zeros_like(ends)
    if over:
        terminations = ends
        truncations = none
    else:
        terminations = none
        truncations = ends
    return {
        **columns,
        "rewards": arrays["rewards"],
        "terminations": terminations,
        "truncations": truncations,
    }


def _minari(module: str = "") -> Any:
    """A module of Minari's, which loads nothing else of other people's than it must.

    Raises:
        MissingPackage: minari is not installed.
    """
    with named_if_missing("a dataset of demonstrations"):
        import_module("h5py")
        module_name = "minari"
        if module:
            module_name = f"minari.{module}"
        return import_module(module_name)
