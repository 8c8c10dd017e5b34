"""Ray clusters: the samples' files, and a run on three nodes of this machine, with what may be killed in it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import jsonschema
import psutil
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start

from ue_rl.connections.launching.template import Template
from ue_rl.devtools.testing import Leftovers, chaos_command
from ue_rl.devtools.testing.leftovers import MARK

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "samples"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kills processes; Ray's cluster of several nodes")


@pytest.fixture(scope="module")
def faults(load_script: Callable[[Path], types.ModuleType]) -> types.ModuleType:
    return load_script(ROOT / "benchmarks" / "rllib_faults.py")


@pytest.fixture(scope="module")
def sample(load_script: Callable[[Path], types.ModuleType]) -> types.ModuleType:
    return load_script(SAMPLES / "train_on_ray.py")


class Left(Leftovers):
    """But for ports of this process: Ray's driver may keep one of its own until it ends."""

    def found(self) -> list[str]:
        return [line for line in super().found() if not line.startswith("this process listens")]


@pytest.fixture(scope="module")
def nodes(faults: types.ModuleType) -> Iterator[Any]:
    with Left(within=20.0), faults.Nodes() as nodes:
        yield nodes


def started(sample: types.ModuleType, command: str) -> Any:
    """The options that a command of a sample's file gives to train_on_ray.py."""
    words = shlex.split(command)
    options = sample.parser.parse_args(words[words.index(next(w for w in words if w.endswith(".py"))) + 1 :])
    template = Template(options.engine)
    assert all(template.uses(name) for name in ("port", "num_envs", "seed"))
    return options


def test_cluster_yaml(sample: types.ModuleType) -> None:
    text = (SAMPLES / "cluster.yaml").read_text("utf-8")
    config = yaml.safe_load(text)
    schema = Path(ray.autoscaler.__file__).with_name("ray-schema.json")
    jsonschema.validate(config, json.loads(schema.read_text("utf-8")))
    validate_config(prepare_config(config))
    for here in config["file_mounts"].values():
        assert here.startswith("~") or "yours" in text.split(here)[1].splitlines()[0] or (ROOT / here).exists(), here
    engines = 0
    for which in ("head", "worker"):
        line = config[f"{which}_start_ray_commands"][-1]
        words = shlex.split(line[line.index("ray start") :].replace("$RAY_HEAD_IP", config["provider"]["head_ip"]))
        with start.make_context("ray start", words[2:]) as parsed:  # refuses options that there are not
            assert parsed.params["head"] == (which == "head")
            said = yaml.safe_load(parsed.params["resources"] or "{}").get("engine", 0)
            assert bool(said) == (which == "worker")
            engines += said * len(config["provider"]["worker_ips"])
    command = re.search(r"ray exec \S+ '(.*?)'$", text.replace("\n#    ", ""), re.MULTILINE)
    assert command is not None
    assert started(sample, command[1]).num_env_runners == engines


def test_kuberay_yaml(sample: types.ModuleType) -> None:
    config = yaml.safe_load((SAMPLES / "kuberay.yaml").read_text("utf-8"))
    assert (config["apiVersion"], config["kind"]) == ("ray.io/v1", "RayJob")
    assert set(config) == {"apiVersion", "kind", "metadata", "spec"}
    cluster = config["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert cluster["rayVersion"] == ray.__version__
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    images = set()
    for group in (cluster["headGroupSpec"], workers):
        (container,) = group["template"]["spec"]["containers"]
        images.add(container["image"])
        assert container["resources"]["limits"] == container["resources"]["requests"]
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in group["template"]["spec"].get("volumes", ())}
    assert len(images) == 1
    resources = shlex.split(f"--resources={workers['rayStartParams']['resources']}")[0]  # as a shell has it
    each = yaml.safe_load(resources.removeprefix("--resources="))["engine"]
    assert int(container["resources"]["limits"]["cpu"]) >= each
    options = started(sample, config["spec"]["entrypoint"])
    assert options.num_env_runners == each * workers["replicas"]
    assert str(options.folder) in {mount["mountPath"] for mount in _head(cluster)["volumeMounts"]}
    assert "nvidia.com/gpu" in _head(cluster)["resources"]["limits"]


def _head(cluster: dict[str, Any]) -> Any:
    return cluster["headGroupSpec"]["template"]["spec"]["containers"][0]


@pytest.mark.exhaustive
def test_the_sample_spreads_saves_and_goes_on_and_its_death_ends_all(nodes: Any, tmp_path: Path) -> None:
    words = [sys.executable, str(SAMPLES / "train_on_ray.py"), "--address", nodes.address, "--num-envs", "2"]
    words += ["--batch-size", "160", "--folder", str(tmp_path), "--save-every", "2"]
    words += ["--engine", chaos_command(shm=True)]
    first = subprocess.run([*words, "--iterations", "2"], stdout=subprocess.PIPE, text=True, check=True, timeout=100)
    where = re.findall(r"env runner (\d) is on node (\w+)", first.stdout)
    assert {node for _, node in where} == {node.node_id for node in nodes.workers}, "one on each node with engines"
    (before,) = re.findall(r"iteration 2: (\d+) env-steps, return -?\d+\.\d, 2 env runners", first.stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["iteration-000002"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        lines = iter(second.stdout)
        line = next(line for line in lines if line.startswith("iteration"))
        at, steps = map(int, re.findall(r"iteration (\d+): (\d+)", line)[0])
        assert at == 3
        assert int(before) + 160 <= steps < int(before) + 400
        engines = engines_of_these_nodes()
        assert engines
        second.kill()
    _, alive = psutil.wait_procs(engines, timeout=15)
    assert alive == []


def engines_of_these_nodes() -> list[psutil.Process]:
    """Not those of other workers' tests: these have another mark."""
    seen = psutil.process_iter(["cmdline", "environ"], ad_value={})
    return [
        each
        for each in seen
        if "ue_rl.devtools.testing.engines.chaos" in each.info["cmdline"]
        and each.info["environ"].get(MARK) == os.environ[MARK]
    ]


@pytest.mark.exhaustive
def test_actors_take_their_engines_along(nodes: Any, faults: types.ModuleType) -> None:
    faults.end_actors(nodes, ways=("its last handle", "SIGTERM"))


@pytest.mark.exhaustive
def test_what_is_killed_in_a_run(nodes: Any, faults: types.ModuleType) -> None:
    algorithm = faults.ppo(env_config={"timeout": 2.0}).build_algo()
    try:
        for kind in ("engine", "runner", "node"):
            faults.KINDS[kind](nodes, algorithm)
    finally:
        algorithm.stop()
