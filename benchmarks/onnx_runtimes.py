"""Which runtime runs which exported file, and how far its actions are from predict()'s: the table of docs/deploy.md.

    python benchmarks/onnx_runtimes.py --python VENV/bin/python --node FOLDER --json benchmarks/onnx_runtimes.json
    python benchmarks/onnx_runtimes.py --python VENV/bin/python --only SAC --runtimes openvino   # single cells

VENV has openvino, opencv-python-headless, ncnn, pnnx, onnx and numpy, by `pip install -c constraints.txt`, since pnnx
brings torch; FOLDER is a copy of tests/inference/node after `npm ci`. The samples of C++ and C# need g++, and mcs and
mono. A runtime that is not there is left out, by name. Each file is run by a process of its own, so that one that
crashes is a row of the table. Single cells leave a JSON that is there alone: it holds a whole table.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import json
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tables import refuse_a_part

PYTHON_RUNTIMES = ("openvino f32", "openvino", "opencv", "onnx reference", "ncnn")
SECONDS = 120  # for one file
PACKAGES = {"openvino f32": "openvino", "opencv": "opencv-python-headless", "onnx reference": "onnx"}


# -- in the other Python: nothing of ue_rl


def openvino(file: str, feeds: dict[str, Any], **how: str) -> Any:
    """Of OpenVINO on the CPU."""
    from openvino import Core

    core = Core()
    compiled = core.compile_model(core.read_model(file), "CPU", how)
    return compiled(feeds)[compiled.output("actions")]


def opencv(file: str, feeds: dict[str, Any]) -> Any:
    """Of OpenCV's dnn module."""
    import cv2

    net = cv2.dnn.readNetFromONNX(file)
    for name, array in feeds.items():
        net.setInput(array, name)
    return net.forward("actions")


def reference(file: str, feeds: dict[str, Any]) -> Any:
    """Of onnx's own evaluator, in NumPy."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(file).run(["actions"], feeds)[0]


def ncnn(file: str, feeds: dict[str, Any]) -> Any:
    """Of ncnn, after pnnx has converted the file for one row; row by row."""
    from importlib.util import find_spec

    import ncnn as library

    shapes = ",".join(f"[{','.join(map(str, (1, *array.shape[1:])))}]f32" for array in feeds.values())
    folder = Path(file).parent
    found = find_spec("pnnx")
    assert found is not None
    assert found.origin is not None
    # The program itself: the package around it needs torch.
    command = [str(Path(found.origin).with_name("pnnx")), Path(file).name, f"inputshape={shapes}"]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    stem = str(folder / Path(file).stem)
    if not Path(f"{stem}.ncnn.param").exists():
        raise RuntimeError(f"pnnx: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    rows = []
    net = library.Net()
    if net.load_param(f"{stem}.ncnn.param") or net.load_model(f"{stem}.ncnn.bin"):
        raise RuntimeError("ncnn cannot load what pnnx wrote")
    names, outs = net.input_names(), net.output_names()
    for row in range(len(next(iter(feeds.values())))):
        extractor = net.create_extractor()
        for name, array in zip(names, feeds.values(), strict=True):
            extractor.input(name, library.Mat(np.ascontiguousarray(array[row])))
        code, out = extractor.extract(outs[0])
        if code:
            raise RuntimeError(f"ncnn's extract: {code}")
        rows.append(np.array(out).ravel())
    return np.array(rows)


ACT: dict[str, Callable[[str, dict[str, Any]], Any]] = {
    "openvino": openvino,
    "openvino f32": lambda file, feeds: openvino(file, feeds, INFERENCE_PRECISION_HINT="f32"),
    "opencv": opencv,
    "onnx reference": reference,
    "ncnn": ncnn,
}


def work(runtime: str, file: str, held: str, out: str) -> None:
    """What `runtime` makes of a file: an array in `out`."""
    with np.load(held) as arrays:
        feeds = dict(arrays)
    np.save(out, np.asarray(ACT[runtime](file, feeds), np.float32))


# -- here


def in_python(python: str, runtime: str, case: Any, folder: Path) -> Any:
    """The actions, or the text of what went wrong."""
    held, out = folder / "feeds.npz", folder / "actions.npy"
    out.unlink(missing_ok=True)
    np.savez(held, **case.feeds)
    command = [python, __file__, "--work", runtime, str(case.file), str(held), str(out)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=2 * SECONDS)
    if out.exists():
        return np.load(out)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"ended with exit code {done.returncode}"


def in_node(folder: str, which: str, case: Any, work_in: Path) -> Any:
    """As in_python."""
    feeds = {
        name: {"shape": array.shape, "data": base64.b64encode(array.tobytes()).decode()}
        for name, array in case.feeds.items()
    }
    (work_in / "cases.json").write_text(json.dumps([{"file": str(case.file), "feeds": feeds}]))
    command = ["node", f"{folder}/act.mjs", which, str(work_in / "cases.json")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    (result,) = json.loads(done.stdout)
    if "error" in result:
        return result["error"][:300]
    given = result["outputs"]["actions"]
    return np.frombuffer(base64.b64decode(given["data"]), np.float32).reshape(given["shape"])


def in_sample(language: str, case: Any) -> Any:
    """Of the samples of samples/deploy, which take the row `obs` and masks."""
    from tests.samples.deploy_demos import programs, text

    if set(case.feeds) - {"obs", "action_masks"}:
        return "the sample takes the input obs alone, and masks: export with flat_input=True, or ask the policy server"
    rows = case.feeds["obs"].reshape(len(case.feeds["obs"]), -1)
    masks = case.feeds.get("action_masks", np.zeros((len(rows), 0), np.float32))
    act = case.of_python.shape[1]
    command = [*programs()[language, "onnx"], str(case.file), str(rows.shape[1]), str(act)]
    if masks.shape[1]:
        command += ["1", str(masks.shape[1])]
    done = subprocess.run(
        command, check=False, input=text(np.hstack([rows, masks])), capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        return done.stderr.strip()[:300]
    return np.array(done.stdout.replace(",", ".").split(), np.float32).reshape(len(rows), act)


def processor() -> str:
    """Its kind, and on Linux its name: the last digits depend on it, and whether OpenVINO computes in bfloat16."""
    names: list[str] = []
    if Path("/proc/cpuinfo").exists():
        names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    return ", ".join([platform.machine(), *names[:1]])


def version_of(python: str, package: str) -> str:
    """The installed version; "" where it is not."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], check=False, capture_output=True, text=True)
    return done.stdout.strip()


def runtimes_of(given: Any, folder: Path) -> tuple[dict[str, Callable[[Any], Any]], dict[str, str]]:
    """What runs a case, by name, and the versions."""
    import onnxruntime

    run: dict[str, Callable[[Any], Any]] = {"onnxruntime, Python": lambda case: case.of_python}
    versions = {"onnxruntime, Python": onnxruntime.__version__}
    for language in () if given.quick else ("C++", "C#"):
        name = f"onnxruntime, {language}"
        if not wanted(given, name):
            continue
        if not compiled(language):
            print(f"NOT RUN: {name}, whose compiler is not there")
            continue
        run[name] = lambda case, language=language: in_sample(language, case)
        versions[name] = onnxruntime.__version__
    if given.node:
        lock = json.loads((Path(given.node) / "package-lock.json").read_text())["packages"]
        for which in ("node", "web"):
            name = f"onnxruntime-{which}"
            if not wanted(given, name):
                continue
            run[name] = lambda case, which=which: in_node(given.node, which, case, folder)
            versions[name] = lock[f"node_modules/{name}"]["version"]
    for name in PYTHON_RUNTIMES if given.python else ():
        if not wanted(given, name):
            continue
        found = version_of(given.python, PACKAGES.get(name, name))
        if not found:
            print(f"NOT RUN: {name}, which {given.python} has not")
            continue
        run[name] = lambda case, name=name: in_python(given.python, name, case, folder)
        versions[name] = found
    return run, versions


def wanted(given: Any, name: str) -> bool:
    """Whether it is among --runtimes."""
    return given.runtimes is None or name.startswith(tuple(given.runtimes))


def compiled(language: str) -> bool:
    """Whether its sample could be built here."""
    from tests.samples.deploy_demos import programs

    return (language, "onnx") in programs()


def cell(case: Any, found: Any) -> dict[str, Any]:
    """One cell: an error, or how far the actions are from predict()'s, and whether they are Python's to the bit."""
    if isinstance(found, str):
        return {"error": found}
    if found.shape != case.of_python.shape:
        return {"error": f"actions of shape {list(found.shape)}, not {list(case.of_python.shape)}"}
    return {"off": case.off(found), "discrete": case.discrete, "same_bits": bool((found == case.of_python).all())}


def shown(one: dict[str, Any]) -> str:
    """A cell as text."""
    if "error" in one:
        return "no"
    if one["discrete"]:
        return "yes" if not one["off"] else f"{one['off']:.0%} other choices"
    return "bits" if one["same_bits"] else f"{one['off']:.1g}"


def summary(held: dict[str, Any]) -> list[str]:
    """The rows of docs/deploy.md, one for each runtime, of what the JSON file holds."""
    rows = []
    for name, version in held["versions"].items():
        cells = {case: row[name] for case, row in held["cases"].items()}
        images = {case: one for case, one in cells.items() if "images" in case}
        apart = ("images", "VecNormalize", "Dict", "Maskable", "Recurrent")
        plain = {case: one for case, one in cells.items() if not any(word in case for word in apart)}
        numbers = [one for one in plain.values() if not one.get("discrete")]
        found = [_worst([one for one in numbers if "off" in one]), _worst(list(images.values()))]
        found.append(_all(plain[case] for case in ("PPO, Discrete", "PPO, MultiDiscrete", "DQN", "QRDQN")))
        found += [_all(one for case, one in cells.items() if word in case) for word in apart[1:]]
        rows.append(f"| {name} {version} | {' | '.join(found)} |")
    return rows


def _worst(cells: list[dict[str, Any]]) -> str:
    offs = [one.get("off") for one in cells]
    if not offs or None in offs:
        return "no"
    return f"{max(offs):.1g}"


def _all(cells: Any) -> str:
    """Whether all ran, with the choices of predict()."""
    found = list(cells)
    fine = all("off" in one and not (one["discrete"] and one["off"]) for one in found)
    return "yes" if fine else "no"


def main() -> None:
    """Runs all, prints the table, and writes the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help="a Python with the other runtimes")
    parser.add_argument("--node", help="a folder with act.mjs and node_modules")
    parser.add_argument("--json", type=Path, help="the file to write")
    parser.add_argument("--quick", action="store_true", help="two kinds of policy, and no compiled samples")
    parser.add_argument("--only", action="append", metavar="CASE", help="a part of a policy's name; may be given again")
    parser.add_argument("--runtimes", nargs="+", metavar="NAME", help="Python's, and those that begin so")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(*given.work)
        return
    part = given.quick or given.only or given.runtimes
    refuse_a_part(part, given.json)
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.support.exported_cases import MODELS, cases

    names = tuple(MODELS)[:2] if given.quick else tuple(MODELS)
    if given.only:
        names = tuple(name for name in names if any(part in name for part in given.only))
    with tempfile.TemporaryDirectory() as folder:
        run, versions = runtimes_of(given, Path(folder))
        table: dict[str, dict[str, Any]] = {}
        for case in cases(Path(folder), names):
            table[case.name] = {name: cell(case, act(case)) for name, act in run.items()}
            print(case.name, {name: shown(one) for name, one in table[case.name].items()}, file=sys.stderr, flush=True)
    about = {"date": datetime.date.today().isoformat(), "machine": processor(), "versions": versions}
    held = {**about, "cases": table}
    print(f"| | {' | '.join(f'{name} {versions[name]}' for name in run)} |")
    print(f"|---|{'---|' * len(run)}")
    for name, row in table.items():
        print(f"| {name} | {' | '.join(shown(one) for one in row.values())} |")
    if given.json:
        given.json.write_text(json.dumps(held, indent=1) + "\n")
    if given.json and not part:
        print("\nFor docs/deploy.md:\n", *summary(held), sep="\n")


if __name__ == "__main__":
    main()
