"""Which numbers arrive to the bit: through each engine's side, and each format by which people send or keep them.

    python benchmarks/numbers_on_the_way.py --json benchmarks/numbers_on_the_way.json
    python benchmarks/numbers_on_the_way.py --only "engine, C++"       # rows whose name begins so

A million float32 and a million float64 values: every bit pattern is as likely as another, beside decimals of one to
six digits, whole numbers and the values that people stumble over (SPECIAL). Engines show their action as their
observation (float32), and take parameters (float64, a tenth as many), through ue_rl.connect; a row "options and infos"
sends a reset's options, which the game shows as a step's info. Godot has fewer values (SLOW), and so have stores that
take a transaction a value. A row says how many came back to the bit, which of SPECIAL did not, and as what; and what
became of infinities and NaN: how they were written, and what came back or who refused them.

What is not installed becomes a row that says so, in the file too: run such rows by --only. They need g++, mcs and mono,
Node and godot3-server; `pip install -c constraints.txt msgpack flatbuffers protobuf h5py pyarrow tensorboard
mlflow-skinny wandb`; for Node's msgpack --node-modules FOLDER, where `npm install @msgpack/msgpack` was run; for JSON
Debian's nlohmann-json3-dev, rapidjson-dev, libnewtonsoft-json5.0-cil, libmono-system-runtime-serialization4.0-cil and
libmono-system-web-extensions4.0-cil.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ue_rl
from ue_rl.bridges import ShmUpgrader, VectorBridge, run_in_thread
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.compiled import load, name_of
from ue_rl.system.errors import UeRlError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SPECIAL = {
    "-0.0": -0.0, "5e-324": 5e-324, "1e-310": 1e-310, "1.4e-45": 2.0**-149, "1e-7": 1e-7, "0.1": 0.1,
    "0.1+0.2": 0.1 + 0.2, "2^24+1": 2.0**24 + 1, "2^53-1": 2.0**53 - 1, "2^53+2": 2.0**53 + 2, "1e300": 1e300,
    "max": 1.7976931348623157e308,
}  # fmt: skip
NONFINITE = {"NaN": np.nan, "inf": np.inf, "-inf": -np.inf}
PACKAGES = (
    "numpy", "msgpack", "flatbuffers", "protobuf", "h5py", "pyarrow", "tensorboard", "mlflow-skinny", "wandb", "grpcio"
)  # fmt: skip
DEBIAN = ("nlohmann-json3-dev", "rapidjson-dev", "libnewtonsoft-json5.0-cil")
NEWTONSOFT = "/usr/lib/cli/Newtonsoft.Json-5.0/Newtonsoft.Json.dll"
SLOW = 20_000
ROW = 1000  # numbers of a step
PARAMETERS = 200
ASKED = 1e30  # an action that begins so asks for what is not finite; its second number says where, as an index from 1
PLACES = ("observation", "reward", "info")  # of each NONFINITE: 1 to 3, 4 to 6, 7 to 9; 10: the options as an info


def values_of(count: int) -> NDArray[np.float64]:
    """float64 [count], finite."""
    rng = np.random.default_rng(41)
    bits = rng.integers(0, 1 << 64, count, np.uint64).view(np.float64)
    digits = rng.integers(1, 7, count)
    decimals = np.array([round(x, int(n)) for x, n in zip(rng.normal(0, 100, count // 4), digits, strict=False)])
    bits[: len(decimals)] = decimals
    whole = bits[len(decimals) :][:1000]
    whole[:] = rng.integers(-(2**53), 2**53, len(whole))
    bits[: len(SPECIAL)] = list(SPECIAL.values())
    bits[~np.isfinite(bits)] = 0.5
    return bits


def singles_of(count: int) -> NDArray[np.float32]:
    """float32 [count], finite."""
    rng = np.random.default_rng(41)
    bits = rng.integers(0, 1 << 32, count, np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        some = values_of(count)[: count // 4].astype(np.float32)
    bits[: len(some)] = some
    bits[~np.isfinite(bits)] = 0.5
    return bits


def cell(sent: NDArray[Any], came: NDArray[Any]) -> dict[str, Any]:
    """How many are the same to the bit."""
    word = np.uint32 if sent.dtype == np.float32 else np.uint64
    came = np.asarray(came, sent.dtype)
    differ = sent.view(word) != came.view(word)
    names = list(SPECIAL)
    specials = {names[i]: float(came[i]) for i in np.flatnonzero(differ[: len(names)])}
    specials = {name: repr(x) for name, x in specials.items()}
    with np.errstate(all="ignore"):
        off = np.abs((came.astype(np.float64) - sent) / np.where(sent == 0, 1, sent))[differ]
    found: dict[str, Any] = {"values": len(sent), "differ": int(differ.sum()), "specials": specials}
    if differ.any():
        found["refused"] = int(np.isnan(off).sum())
        found["off"] = float(np.nanmedian(off)) if not np.isnan(off).all() else None
    return found


def back(x: float, came: Any) -> str:
    """What came instead of `x`."""
    came = np.float64(came)
    return "kept" if came == x or (np.isnan(came) and np.isnan(x)) else f"is {came}"


def fates(through: Callable[[float], Any], written: Callable[[float], str] = lambda x: "") -> dict[str, str]:
    """NONFINITE -> how it was written, and what came back or who refused it."""
    found = {}
    for name, x in NONFINITE.items():
        text = "writer"
        try:
            text = written(x)
            with np.errstate(all="ignore"):
                said = back(x, through(x))
        except Exception as error:  # noqa: BLE001 who refuses it is what the table says
            said = f"{'reader' if text not in ('', 'writer') else text} refuses: {type(error).__name__}".strip()
            text = "" if text == "writer" else text
        found[name] = f"`{text}`, {said}" if text else said
    return found


# -- the engines' sides


class Echo(VectorBridge):
    """Shows its action."""

    def __init__(self, num_envs: int = 1) -> None:
        from ue_rl.protocol.spaces.actions import ActionSpec

        offered = frozenset({"INFO", "OPTIONS"})
        super().__init__(
            EnvSpec(ROW, ROW, num_envs=num_envs, action=ActionSpec.box(ROW, -np.inf, np.inf), features=offered)
        )
        self.options: dict[str, Any] = {}
        self.held = dict.fromkeys((f"p{i}" for i in range(PARAMETERS)), 0.0)

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        """Unbounded."""
        return {name: (value, -np.inf, np.inf) for name, value in self.held.items()}

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        """Keeps it."""
        self.held[name] = value

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        """Keeps the options."""
        self.outbox.obs[env_ids] = 0
        self.options = options[0] or {}

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        """The same numbers, or what is asked."""
        out = self.outbox
        out.obs[env_ids] = actions[env_ids]
        out.rewards[env_ids] = 0
        if actions[0, 0] != np.float32(ASKED):
            return
        what = int(actions[0, 1]) - 1
        special = [*NONFINITE.values()][what % 3]
        if what < 3:
            out.obs[0, 0] = special
        elif what < 6:
            out.rewards[0] = special
        elif what < 9:
            out.infos[0] = {"x": special}
        else:
            out.infos[0] = self.options


@contextlib.contextmanager
def engine(language: str, carrier: str, folder: Path) -> Iterator[str]:
    """Its address."""
    with contextlib.ExitStack() as stack:
        if language == "Python" and carrier == "gRPC":
            from ue_rl.plugins.sessions import grpc
            from ue_rl.plugins.sessions.realtime import SessionPool

            pool = stack.enter_context(SessionPool(Echo, max_sessions=1, workers=1))
            url = stack.enter_context(grpc.serve(pool)).url
            yield f"grpc://{url.split('://')[-1]}?num-envs=1"
            return
        if language == "Python":
            upgrader = ShmUpgrader() if carrier == "shared memory" else None
            url = stack.enter_context(run_in_thread(Echo(), upgrader=upgrader)).url
        else:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            url = f"{'page' if carrier == 'page' else 'tcp'}://127.0.0.1:{port}"
            words = [*program(language, folder), str(port)]
            if language == "Godot 3":
                words[-1] = f"--port={port}"
            elif carrier == "page":
                words[-1] = f"ws://127.0.0.1:{port}"
            elif language == "C#" and carrier == "shared memory":
                words.append("plain")
            silent = subprocess.DEVNULL
            process = subprocess.Popen(words, stdout=silent, stderr=silent, env=surroundings(folder))
            stack.callback(process.wait)
            stack.callback(process.kill)
        transport = {"text": "?transport=tcp", "shared memory": "?transport=shm"}.get(carrier, "?")
        yield url + transport


def surroundings(folder: Path) -> dict[str, str]:
    """Godot writes into HOME."""
    return {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


def program(language: str, folder: Path) -> list[str]:
    """Its command, built where it must be."""
    here = HERE / "numbers"
    if language == "C++":
        built = folder / "echo"
        if not built.exists():
            include = str(ROOT / "samples" / "cpp")
            command = ["g++", "-std=c++17", "-O1", "-pthread", "-I", include, "-o", str(built), str(here / "echo.cpp")]
            subprocess.run([*command, "-lrt"], check=True)
        return [str(built)]
    if language == "C#":
        built = folder / "Echo.exe"
        if not built.exists():
            bridge = [
                str(ROOT / "samples" / "unity" / f"UeRl{part}.cs") for part in ("Bridge", "SharedMemory", "Heuristic")
            ]
            command = ["mcs", f"-out:{built}", *bridge, str(here / "Echo.cs")]
            subprocess.run(command, check=True, capture_output=True)
        return ["mono", str(built)]
    if language == "Godot 3":
        project = str(ROOT / "samples" / "godot")
        return ["godot3-server", "--path", project, "-s", str(here / "echo.gd"), "--fixed-fps", "60"]
    if language == "C++, JSON":
        built = folder / "json"
        if not built.exists():
            subprocess.run(["g++", "-std=c++17", "-O1", "-o", str(built), str(here / "json.cpp")], check=True)
        return [str(built)]
    if language == "C#, JSON":
        built = folder / "Json.exe"
        if not built.exists():
            shutil.copy(NEWTONSOFT, folder)
            used = ["System.Runtime.Serialization", "System.Web.Extensions", str(folder / "Newtonsoft.Json.dll")]
            command = ["mcs", f"-out:{built}", *(f"-r:{one}" for one in used), str(here / "Json.cs")]
            subprocess.run(command, check=True, capture_output=True)
        return ["mono", str(built)]
    return ["node", "--no-warnings", "--experimental-websocket", str(here / "echo.mjs")]


def through_engine(language: str, carrier: str, count: int, folder: Path) -> dict[str, Any]:
    """Actions and observations as float32, parameters as float64."""
    if language == "Godot 3":
        count = min(count, SLOW * 10)
    singles = singles_of(count)
    doubles = values_of(max(count // 10, 1000))  # a call checks each parameter that there is
    found: dict[str, Any] = {}
    with engine(language, carrier, folder) as url:
        with opened(url) as env:
            env.reset()
            rows = [env.step(row.reshape(1, ROW))[0][0].copy() for row in singles.reshape(-1, ROW)]
            found["float32"] = cell(singles, np.concatenate(rows))
            held: list[float] = []
            names = [f"p{i}" for i in range(PARAMETERS)]
            if env.transport.spec.parameters:
                for part in doubles.reshape(-1, PARAMETERS):
                    set_to = EngineCalls(env.transport).set_parameters(dict(zip(names, part.tolist(), strict=True)))
                    held += [set_to[name] for name in names]
                found["float64"] = cell(doubles, np.array(held))
            has_infos = "INFO" in env.transport.spec.features
        asked = PLACES if has_infos else PLACES[:2]
        found["nonfinite"] = {
            f"{place} {name}": shown_nonfinite(url, 1 + 3 * i + k, [*NONFINITE.values()][k])
            for i, place in enumerate(asked)
            for k, name in enumerate(NONFINITE)
        }
    return found


def opened(url: str) -> contextlib.closing[Any]:
    """A trainer of it."""
    return contextlib.closing(ue_rl.connect(f"{url}&wait=60&timeout=2min"))


def asking(what: int) -> NDArray[np.float32]:
    """An action that asks."""
    action = np.zeros((1, ROW), np.float32)
    action[0, :2] = ASKED, what
    return action


def shown_nonfinite(url: str, what: int, x: float) -> str:
    """What a trainer gets where a game shows it."""
    with opened(url) as env:
        env.reset()
        try:
            obs, rewards, _, infos = env.step(asking(what))
        except UeRlError as error:
            return f"{type(error).__name__} [{error.fault}]: {error}"[:300]
        if what < 7:
            return back(x, obs[0, 0] if what < 4 else rewards[0])
        return back(x, infos[0]["x"]) if infos[0].get("x") is not None else f"left out: {infos[0]}"[:200]


def options_and_infos(language: str, count: int, folder: Path) -> dict[str, Any]:
    """A reset's options, which the game shows as a step's info."""
    doubles = values_of(max(count // 10, 1000) if language != "Godot 3" else 2000)
    came: list[float] = []
    with engine(language, "text", folder) as url, opened(url) as env:
        for part in doubles.reshape(-1, PARAMETERS):
            env.set_options({"p": part.tolist()})
            env.reset()
            came.extend(env.step(asking(10))[3][0]["p"])
        found: dict[str, Any] = {"float64": cell(doubles, np.array(came, np.float64)), "nonfinite": {}}
        for name, x in NONFINITE.items():
            env.set_options({"p": x})
            try:
                env.reset()
            except UeRlError as error:
                found["nonfinite"][f"option {name}"] = f"{type(error).__name__} [{error.fault}]: {error}"[:300]
            else:
                found["nonfinite"][f"option {name}"] = back(x, env.step(asking(10))[3][0]["p"])
    return found


def asked_of_trainers(count: int, folder: Path) -> dict[str, Any]:
    """An action and a parameter that are not finite, over text."""
    found: dict[str, str] = {}
    for name, x in NONFINITE.items():
        with engine("Python", "text", folder) as url, opened(url) as env:
            env.reset()
            tries: dict[str, Callable[[], object]] = {
                "action": lambda env=env, x=x: env.step(np.full((1, ROW), x, np.float32)),
                "parameter": lambda env=env, x=x: EngineCalls(env.transport).set_parameters({"p0": x}),
            }
            for place, attempt in tries.items():
                try:
                    attempt()
                    found[f"{place} {name}"] = "sent"
                except UeRlError as error:
                    found[f"{place} {name}"] = f"{type(error).__name__} [{error.fault}]: {error}"[:300]
    return {"nonfinite": found}


def through_pure(count: int, folder: Path) -> dict[str, Any]:
    """Both sides without the compiled kernels: the same row in a process that has none."""
    words = [
        sys.executable,
        str(HERE / "numbers_on_the_way.py"),
        "--values",
        str(count),
        "--only",
        "engine, Python, text",
    ]
    told = folder / "pure.json"
    subprocess.run(
        [*words, "--json", str(told)], check=True, capture_output=True, env={**os.environ, "UE_RL_PURE": "1"}
    )
    held = json.loads(told.read_text())
    assert held["kernels"] == "pure", held["kernels"]
    return dict(held["rows"]["engine, Python, text"])


def through_language(language: str, way: str, count: int, folder: Path, *more: str) -> dict[str, Any]:
    """What a language's own functions make of a double."""
    doubles = values_of(min(count, SLOW * 5) if language == "Godot 3" else count)
    came, _ = converted(language, way, doubles, folder, *more)
    found: dict[str, Any] = {"float64": cell(doubles, came), "nonfinite": {}}
    for name, x in NONFINITE.items():
        came, said = converted(language, way, np.array([x]), folder, *more)
        texts = [line[6:] for line in said if line.startswith("fate: ") and line != "fate: "]
        refused = [line[9:] for line in said if line.startswith("refused: ")]
        outcome = back(x, came[0])
        if refused:
            outcome = f"{'reader' if texts else 'writer'} refuses: {refused[0]}"
        found["nonfinite"][name] = f"`{texts[0]}`, {outcome}" if texts else outcome
    return found


def converted(
    language: str, way: str, values: NDArray[np.float64], folder: Path, *more: str
) -> tuple[NDArray[np.float64], list[str]]:
    """What came back, and what was printed."""
    sent = folder / "sent.bin"
    sent.write_bytes(values.tobytes())
    came = folder / "came.bin"
    came.unlink(missing_ok=True)
    words = [way, str(sent), str(came), *more]
    if language == "Godot 3":
        words = [f"--way={way}", f"--in={sent}", f"--out={came}"]
    command = [*program(language, folder), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=surroundings(folder))
    return np.fromfile(came, np.float64), done.stdout.splitlines()


# -- formats, from Python


def both(
    through: Callable[[NDArray[Any]], Any], written: Callable[[float], str] = lambda x: ""
) -> Callable[[int, Path], dict[str, Any]]:
    """A row of float32 and float64."""

    def run(count: int, folder: Path) -> dict[str, Any]:
        return {
            "float32": cell(singles_of(count), through(singles_of(count))),
            "float64": cell(values_of(count), through(values_of(count))),
            "nonfinite": fates(lambda x: through(np.array([x]))[0], written),
        }

    return run


def as_text(spell: str) -> Callable[[NDArray[Any]], Any]:
    """By a format."""
    return lambda values: np.array([float(spell % x) for x in values.tolist()])


def msgpack_single(values: NDArray[Any]) -> Any:
    """With use_single_float."""
    import msgpack

    with np.errstate(over="ignore"):
        return np.array([msgpack.unpackb(msgpack.packb(x, use_single_float=True)) for x in values.tolist()])


def msgpack_plain(values: NDArray[Any]) -> Any:
    """As it comes."""
    import msgpack

    return np.array(msgpack.unpackb(msgpack.packb(values.tolist())))


def flatbuffers_vector(values: NDArray[Any]) -> Any:
    """A vector of this type."""
    import flatbuffers
    from flatbuffers import encode, packer

    builder = flatbuffers.Builder(1024)
    builder.Finish(builder.CreateNumpyVector(values))
    buffer = builder.Output()
    where = encode.Get(packer.uoffset, buffer, 0)
    return np.frombuffer(buffer, values.dtype, len(values), where + 4)


def protobuf_value(values: NDArray[Any]) -> Any:
    """google.protobuf's FloatValue and DoubleValue."""
    from google.protobuf.wrappers_pb2 import DoubleValue, FloatValue

    kind = FloatValue if values.dtype == np.float32 else DoubleValue
    return np.array([kind.FromString(kind(value=x).SerializeToString()).value for x in values.tolist()])


def protobuf_text(x: float) -> str:
    """DoubleValue as JSON."""
    from google.protobuf.json_format import MessageToJson
    from google.protobuf.wrappers_pb2 import DoubleValue

    return str(MessageToJson(DoubleValue(value=x)))


def protobuf_json(values: NDArray[Any]) -> Any:
    """The same as JSON."""
    from google.protobuf.json_format import MessageToJson, Parse
    from google.protobuf.wrappers_pb2 import DoubleValue, FloatValue

    kind = FloatValue if values.dtype == np.float32 else DoubleValue
    return np.array([Parse(MessageToJson(kind(value=x)), kind()).value for x in values[:SLOW].tolist()])


def hdf5(values: NDArray[Any]) -> Any:
    """A dataset of this type."""
    import h5py

    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file["x"] = values
    with h5py.File(memory, "r") as file:
        return file["x"][:]


def parquet(values: NDArray[Any]) -> Any:
    """A column of this type."""
    import pyarrow
    from pyarrow import parquet as files

    memory = io.BytesIO()
    files.write_table(pyarrow.table({"x": values}), memory)
    return files.read_table(memory)["x"].to_numpy()


def npz(values: NDArray[Any]) -> Any:
    """savez_compressed."""
    memory = io.BytesIO()
    np.savez_compressed(memory, x=values)
    memory.seek(0)
    return np.load(memory)["x"]


def tensorboard_scalar(count: int, folder: Path) -> dict[str, Any]:
    """SummaryWriter.add_scalar, and the events as they stand in the file."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from torch.utils.tensorboard import SummaryWriter

    doubles = values_of(min(count, SLOW))
    with SummaryWriter(str(folder / "board")) as writer:
        for step, x in enumerate([*doubles.tolist(), *NONFINITE.values()]):
            writer.add_scalar("x", x, step)
    came = []
    for file in (folder / "board").iterdir():
        for event in EventFileLoader(str(file)).Load():
            came += [value.tensor.float_val[0] for value in event.summary.value]
    return cells_of(doubles, came)


def cells_of(doubles: NDArray[np.float64], came: list[float]) -> dict[str, Any]:
    """Of a store into which NONFINITE went behind the others."""
    rest = came[len(doubles) :]
    kept = {name: back(x, rest[i]) for i, (name, x) in enumerate(NONFINITE.items())}
    return {"float64": cell(doubles, np.array(came[: len(doubles)])), "nonfinite": kept}


def mlflow_metric(count: int, folder: Path) -> dict[str, Any]:
    """log_batch into SQLite, where that is installed."""
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    doubles = values_of(min(count, 1000))
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    run = client.create_run(client.create_experiment("x")).info.run_id
    values = [*doubles.tolist(), *NONFINITE.values()]
    for begin in range(0, len(values), 1000):  # as many as a batch takes
        batch = [Metric("x", x, 0, begin + step) for step, x in enumerate(values[begin : begin + 1000])]
        client.log_batch(run, metrics=batch)
    came = sorted((one.step, one.value) for one in client.get_metric_history(run, "x"))
    return cells_of(doubles, [x for _, x in came])


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """Of a log in LevelDB's format, whose first block lacks W&B's own 7 bytes."""
    at = 0
    held = b""
    while at + 7 <= len(data):
        left = 32768 - (at + 7) % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield held
            held = b""


def wandb_offline(count: int, folder: Path) -> dict[str, Any]:
    """log() offline, and the JSON of the run's own file."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    doubles = values_of(min(count, 1000))
    with wandb.init(mode="offline", dir=str(folder), project="x", settings=wandb.Settings(silent=True)) as run:
        for x in [*doubles.tolist(), *NONFINITE.values()]:
            run.log({"x": x})
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    came: list[float] = []
    texts = []
    for data in leveldb_records(file.read_bytes()[7:]):
        record = Record.FromString(data)
        for item in record.history.item:
            if "x" in (item.key, *item.nested_key):
                texts.append(item.value_json)
                came.append(float(json.loads(item.value_json)))
    found = cells_of(doubles, came)
    for name, text in zip(NONFINITE, texts[len(doubles) :], strict=True):
        found["nonfinite"][name] = f"`{text}`, {found['nonfinite'][name]}"
    return found


SIDES = [("Python", carrier) for carrier in ("text", "shared memory", "gRPC")]
SIDES += [("C++", "text"), ("C++", "shared memory"), ("C#", "text"), ("C#", "shared memory")]
SIDES += [("Godot 3", "text"), ("Node", "text"), ("Node", "page")]


Row = Callable[[int, Path], dict[str, Any]]


def rows(node_modules: str) -> dict[str, Row]:
    """All of them, by name."""
    found: dict[str, Row] = {}
    for language, carrier in SIDES:
        found[f"engine, {language}, {carrier}"] = lambda count, folder, side=(language, carrier): through_engine(
            *side, count, folder
        )
    found["engine, Python, pure codec"] = through_pure
    found["trainer"] = asked_of_trainers
    for language in ("Python", "Godot 3", "Node"):
        found[f"options and infos, {language}"] = lambda count, folder, language=language: options_and_infos(
            language, count, folder
        )
    ways = [("C++", way) for way in ("<<", "<< precision 17", "to_string")]
    ways += [("C++, JSON", way) for way in ("nlohmann", "RapidJSON", "RapidJSON, full precision")]
    ways += [("C#", way) for way in ("ToString()", "ToString(R)", "ToString(G17)", "ToString(G9)")]
    ways += [("C#, JSON", way) for way in ("DataContractJsonSerializer", "JavaScriptSerializer", "Newtonsoft.Json")]
    ways += [("Godot 3", way) for way in ("to_json, parse_json", "str, float", "var2str, str2var", "var2bytes")]
    ways += [("Node", way) for way in ("JSON", "toString", "msgpack")]
    for language, way in ways:
        more = [node_modules] if way == "msgpack" else []
        found[f"{language}, {way}"] = lambda count, folder, language=language, way=way, more=more: through_language(
            language, way, count, folder, *more
        )
    found["Python, repr"] = both(lambda values: np.array([float(repr(x)) for x in values.tolist()]), repr)
    found["Python, %.9g"] = both(as_text("%.9g"), lambda x: f"{x:.9g}")
    found["Python, %f"] = both(as_text("%f"), lambda x: f"{x:f}")
    found["Python, json"] = both(lambda values: np.array(json.loads(json.dumps(values.tolist()))), json.dumps)
    found["MessagePack"] = both(msgpack_plain)
    found["MessagePack, use_single_float"] = lambda count, folder: {
        "float32": cell(singles_of(count), msgpack_single(singles_of(count))),
        "nonfinite": fates(lambda x: msgpack_single(np.array([x]))[0]),
    }
    found["FlatBuffers"] = both(flatbuffers_vector)
    found["protobuf"] = both(protobuf_value)
    found["protobuf as JSON"] = lambda count, folder: both(protobuf_json, protobuf_text)(min(count, SLOW), folder)
    found["HDF5"] = both(hdf5)
    found["Parquet"] = both(parquet)
    found["npz"] = both(npz)
    found["TensorBoard"] = tensorboard_scalar
    found["MLflow, SQLite"] = mlflow_metric
    found["W&B offline"] = wandb_offline
    return found


def shown(one: dict[str, Any] | None) -> str:
    """A cell as text."""
    if one is None:
        return ""
    if not one["differ"]:
        return f"exact ({one['values']:,})"
    text = f"{one['differ']:,} of {one['values']:,} differ"
    if one.get("off"):
        text += f", half by more than {one['off']:.0e}"
    if one["refused"]:
        text += f", {one['refused']:,} refused"
    if one["specials"]:
        text += ": " + ", ".join(f"{name} is {came}" for name, came in list(one["specials"].items())[:4])
    return text


REFUSED = {"EngineDisconnected": "refused by the engine's side"}
REFUSED |= dict.fromkeys(
    ("NonFiniteValue", "MalformedMessage", "ActionError", "ConfigurationError"), "refused by the trainer's side"
)


def fate(nonfinite: dict[str, str]) -> str:
    """What became of infinities and NaN, as text: those with the same end together."""
    places: dict[str, dict[str, list[str]]] = {}
    for what, said in nonfinite.items():
        place, _, name = what.rpartition(" ")
        short = REFUSED.get(said.partition(" [")[0], said.partition(": {")[0])
        places.setdefault(place, {}).setdefault(short, []).append(name)
    texts = {}
    for place, ends in places.items():
        named = [end if len(ends) == 1 else f"{', '.join(names)} {end}" for end, names in ends.items()]
        texts[place] = "; ".join(named)
    together: dict[str, list[str]] = {}
    for place, text in texts.items():
        together.setdefault(text, []).append(place)
    return "; ".join(f"{', '.join(of)}: {text}" if any(of) else text for text, of in together.items())


def table(held: dict[str, Any]) -> list[str]:
    """In Markdown."""
    lines = ["| through | float32 | float64 | NaN and infinities |", "|---|---|---|---|"]
    for name, row in held["rows"].items():
        if "error" in row:
            lines.append(f"| {name} | not run: {row['error']} | | |")
        else:
            cells = [shown(row.get("float32")), shown(row.get("float64")), fate(row.get("nonfinite", {}))]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="ROW", help="rows that begin with one of these")
    parser.add_argument("--table", type=Path, help="print the table of this file, and run nothing")
    parser.add_argument("--values", type=int, default=1_000_000, help="a multiple of 1000")
    parser.add_argument("--node-modules", default="", help="a folder in which @msgpack/msgpack is installed")
    parser.add_argument("--json", type=Path, help="the file to write; rows that it holds already are kept")
    given = parser.parse_args()
    if given.table:
        print(*table(json.loads(given.table.read_text())), sep="\n")
        return
    held: dict[str, Any] = {"rows": {}}
    if given.json and given.json.exists():
        held = json.loads(given.json.read_text())
    held["date"] = datetime.date.today().isoformat()
    held["machine"] = f"{platform.system()} {platform.machine()}"
    held["versions"] = {"Python": platform.python_version(), "ue_rl": ue_rl.__version__}
    held["kernels"] = name_of(load("kernels"))
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            held["versions"][package] = version(package)
    for name, command in (
        ("g++", "-dumpfullversion"),
        ("mono", "--version"),
        ("node", "--version"),
        ("godot3-server", "--version"),
    ):
        if shutil.which(name):
            said = subprocess.run([name, command], check=False, capture_output=True, text=True).stdout
            held["versions"][name] = (said.splitlines() or [""])[0][:60]
    for package in DEBIAN:
        words = ["dpkg-query", "--show", "--showformat=${Version}", package]
        if shutil.which("dpkg-query"):
            said = subprocess.run(words, check=False, capture_output=True, text=True).stdout
            held["versions"][package] = said or "not installed"
    folder = Path(tempfile.mkdtemp())
    every = rows(given.node_modules)
    for name, row in every.items():
        if not name.startswith(tuple(given.only)):
            continue
        begun = time.monotonic()
        try:
            found = row(given.values, folder)
        except Exception as error:  # noqa: BLE001 what could not be run is said in the table
            found = {"error": f"{type(error).__name__}: {error}"[:200].replace("|", "/").replace("\n", " ")}
        held["rows"][name] = found
        print(name, found, f"{time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        held["rows"] = {one: held["rows"][one] for one in every if one in held["rows"]}
        if given.json:
            given.json.write_text(json.dumps(held, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    print(*table(held), sep="\n")


if __name__ == "__main__":
    main()
