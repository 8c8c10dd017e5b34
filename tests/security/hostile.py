"""Opens files of every kind that a stranger has made, under an audit hook; prints what each gave, and what was tried.

python tests/security/hostile.py FOLDER [--trust]
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from click.testing import CliRunner
from onnx import TensorProto, helper
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.support.strangers import Calls, tried_with
from ue_rl.cli.play import play as play_command
from ue_rl.cli.train import train as train_command
from ue_rl.envs.agents.pool import Past, Pool
from ue_rl.inference import OnnxInference, Sb3Inference
from ue_rl.inference.export.models import load_vec_normalize
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.text import Codec, decode_handshake
from ue_rl.training.config import read_config
from ue_rl.training.loading import find_start, load_model
from ue_rl.training.options import TrainOptions
from ue_rl.training.saving.checkpoints import CheckpointStore
from ue_rl.training.saving.resuming import resume

FOLDER = Path(sys.argv[1])
PWNED = FOLDER / "pwned"
SHELL = Calls(os.system, f"touch {PWNED}")
RUNS = Calls(exec, f"open({str(PWNED)!r}, 'w')")
SET = b"cstable_baselines3.common.policies\nActorCriticPolicy\n(N}X\x07\x00\x00\x00forwardNstb."  # changes a class


def env() -> Any:
    return DummyVecEnv([lambda: gym.make("Pendulum-v1")])


def spoilt(source: Path, to: Path, key: str, pickled: bytes) -> Path:
    """A model.zip with another pickle as `key`."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(to, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                data = json.loads(content)
                data[key] = {":type:": "x", ":serialized:": base64.b64encode(pickled).decode()}
                content = json.dumps(data).encode()
            new.writestr(name, content)
    return to


def archive(source: Path, to: Path, add: Callable[[zipfile.ZipFile], object]) -> Path:
    """The same with something more in it."""
    to.write_bytes(source.read_bytes())
    with zipfile.ZipFile(to, "a") as file:
        add(file)
    return to


def checkpoint(name: str, **files: bytes) -> CheckpointStore:
    """A run's checkpoints, sums and all, as a stranger can write them."""
    at = FOLDER / name / "checkpoints" / "0001_10_steps"
    at.mkdir(parents=True)
    listed = {}
    for file, content in {
        "model.zip": GOOD.read_bytes(),
        **{k.replace("_DOT_", "."): v for k, v in files.items()},
    }.items():
        (at / file).write_bytes(content)
        listed[file] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"env_steps": 10, "number": 1, "algorithm": "SAC", "files": listed, "origin": "0" * 64}
    (at / "manifest.json").write_text(json.dumps(manifest))
    return CheckpointStore(at.parent)


def onnx_file(path: Path, outside: str) -> Path:
    """An ONNX file whose numbers are in another file, somewhere else."""
    weights = TensorProto(name="w", dims=[3, 1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=outside)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", s]) for n, s in (("obs", 3), ("actions", 1))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "w"], ["actions"])], "g", ports[:1], ports[1:], [weights]
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())
    return path


def play(folder: Path) -> Any:
    """`ue-rl play` of a run."""
    result = CliRunner().invoke(play_command, [str(folder)])
    if result.exception is not None:
        raise result.exception
    return result


def trains(path: Path) -> Any:
    """`ue-rl train --config`."""
    result = CliRunner().invoke(
        train_command, ["--config", str(path), "--log-dir", str(FOLDER), "--start-timeout", "0.5"]
    )
    if result.exception is not None:
        raise result.exception
    return result


def bomb(size: int) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("policy/data.pkl", bytes(size))
    return sink.getvalue()


def link(name: str) -> zipfile.ZipInfo:
    found = zipfile.ZipInfo(name)
    found.external_attr = 0o120777 << 16
    return found


FOLDER.mkdir(exist_ok=True)
GOOD = FOLDER / "good.zip"
model = SAC("MlpPolicy", env(), buffer_size=10, policy_kwargs={"net_arch": [4]}, device="cpu")
model.save(GOOD)
evil = pickle.dumps(SHELL)
statistics = VecNormalize(env())
statistics.obs_rms.mean = SHELL
statistics.save(str(FOLDER / "statistics.pkl"))
(FOLDER / "opponents").mkdir()
torch.save({"state_dict": {}, "data": SHELL}, FOLDER / "opponents" / "000000000001.zip")
(FOLDER / "run").mkdir()
(FOLDER / "run" / "config.yaml").write_text(f"engine: touch {PWNED} {PWNED}-{{port}}\nformat: 1\n")
(FOLDER / "imports").mkdir()
(FOLDER / "imports" / "config.yaml").write_text("env: stranger:Env-v0\nformat: 1\n")
for folder in ("run", "imports"):
    (FOLDER / folder / "model.zip").write_bytes(GOOD.read_bytes())
(FOLDER / "tags.yaml").write_text(f"algo: !!python/object/apply:os.system ['touch {PWNED}']\n")
(FOLDER / "lessons.yaml").write_text(f"curriculum: [!!python/object/apply:os.system ['touch {PWNED}']]\n")
linked = checkpoint("linked")
(FOLDER / "elsewhere").write_bytes(GOOD.read_bytes())
(linked.folder / "0001_10_steps" / "model.zip").unlink()
(linked.folder / "0001_10_steps" / "model.zip").symlink_to(FOLDER / "elsewhere")
outside = checkpoint("outside")
text = (outside.folder / "0001_10_steps" / "manifest.json").read_text().replace('"model.zip"', '"../../../elsewhere"')
(outside.folder / "0001_10_steps" / "manifest.json").write_text(text)


SPEC = decode_handshake(b"CONFIG:OBS=1;ACT=1;VERSION=1;FEATURES=INFO")


def goes_on(store: CheckpointStore) -> Any:
    found = resume(store, SAC, env(), {"device": "cpu"})
    if found is None:
        raise LookupError("every checkpoint was passed over")
    return found


def begins(path: Path) -> Any:
    options = TrainOptions(algo="sac", init_from=str(path), device="cpu")
    start = find_start(options)
    return load_model(SAC, start.model, env(), options)


KINDS: dict[str, Callable[[], Any]] = {
    **{
        f"model.zip, {key}": lambda key=key: Sb3Inference(spoilt(GOOD, FOLDER / f"{key}.zip", key, evil))
        for key in ("policy_class", "policy_kwargs", "observation_space", "lr_schedule", "new")
    },
    "model.zip, exec": lambda: Sb3Inference(spoilt(GOOD, FOLDER / "e.zip", "new", pickle.dumps(RUNS))),
    "model.zip, a class is changed": lambda: Sb3Inference(spoilt(GOOD, FOLDER / "c.zip", "new", SET)),
    "model.zip, trained on": lambda: begins(spoilt(GOOD, FOLDER / "on.zip", "policy_kwargs", evil)),
    "model.zip, a path in it": lambda: Sb3Inference(
        archive(GOOD, FOLDER / "p.zip", lambda f: f.writestr("../x.pth", "x"))
    ),
    "model.zip, a link in it": lambda: Sb3Inference(
        archive(GOOD, FOLDER / "l.zip", lambda f: f.writestr(link("a"), "/"))
    ),
    "model.zip, a bomb": lambda: Sb3Inference(
        archive(GOOD, FOLDER / "b.zip", lambda f: f.writestr("x.pth", bytes(80 << 20), zipfile.ZIP_DEFLATED))
    ),
    "model.zip, a bomb in it": lambda: Sb3Inference(
        archive(GOOD, FOLDER / "i.zip", lambda f: f.writestr("x.pth", bomb(80 << 20)))
    ),
    "statistics": lambda: load_vec_normalize(FOLDER / "statistics.pkl"),
    "checkpoint, model": lambda: goes_on(checkpoint("a", model_DOT_zip=(FOLDER / "new.zip").read_bytes())),
    "checkpoint, statistics": lambda: goes_on(
        checkpoint("b", vecnormalize_DOT_pkl=(FOLDER / "statistics.pkl").read_bytes())
    ),
    "checkpoint, state": lambda: goes_on(checkpoint("c", state_DOT_pkl=evil)),
    "checkpoint, replay buffer": lambda: goes_on(checkpoint("d", replay_buffer_DOT_pkl=evil)),
    "checkpoint, a link in it": lambda: goes_on(linked),
    "checkpoint, a path in it": lambda: goes_on(outside),
    "opponents": lambda: Pool(FOLDER / "opponents", 1000).policy(Past(1, 1000), PPO.policy_aliases["MlpPolicy"]),
    "run, its program": lambda: play(FOLDER / "run"),
    "run, its module": lambda: play(FOLDER / "imports"),
    "--config, its program": lambda: trains(FOLDER / "run" / "config.yaml"),
    "--config, its module": lambda: trains(FOLDER / "imports" / "config.yaml"),
    "config": lambda: read_config(FOLDER / "tags.yaml"),
    "curriculum": lambda: read_config(FOLDER / "lessons.yaml"),
    "ONNX": lambda: OnnxInference(onnx_file(FOLDER / "outside.onnx", "../../etc/hostname")),
    "handshake": lambda: decode_handshake(b"CONFIG:OBS=1;ACT=1;ACT_SPACE=BOX(__import__('os'))"),
    "message of an engine": lambda: Codec(SPEC).decode_states(
        bytearray(b"OBS=__import__('os');REW=0;DONE=0;INFO=!!python"), StepBuffers.of(SPEC)
    ),
}  # fmt: skip

print(json.dumps(tried_with(KINDS, FOLDER, "--trust" in sys.argv)))
