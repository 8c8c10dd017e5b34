"""What options of onnxruntime, and smaller files, make of a policy's answers: the second table of docs/deploy.md.

    python benchmarks/onnx_options.py --json benchmarks/onnx_options.json   # --only ROW: some rows again

A policy for numbers (PPO, Box) and one for choices (PPO, Discrete) of 2 x 64, with weights as large as training makes
them: 10,000 rows at once with one thread, against the same with the option. A cell: the greatest difference of an
action, as a share of its range, or the share of rows with another choice; "bits" is none at all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

ROWS = 10_000


def run(file: Path, rows: Any, at_once: int = ROWS, **options: Any) -> Any:
    """float32 [ROWS, n] of a session with these options."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    for name, value in options.items():
        if name == "entry":
            settings.add_session_config_entry(*value)
        else:
            setattr(settings, name, value)
    session = ort.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    parts = [session.run(["actions"], {"obs": rows[at : at + at_once]})[0] for at in range(0, len(rows), at_once)]
    return np.concatenate(parts)


def half_weights(file: Path) -> Path:
    """A copy whose weights were rounded to float16."""
    model = onnx.load(str(file))
    for weights in model.graph.initializer:
        array = numpy_helper.to_array(weights)
        if array.dtype == np.float32:
            weights.CopyFrom(numpy_helper.from_array(array.astype(np.float16).astype(np.float32), weights.name))
    out = file.with_suffix(".half.onnx")
    onnx.save(model, str(out))
    return out


def half_file(file: Path) -> Path:
    """A copy that computes in float16."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    out = file.with_suffix(".float16.onnx")
    onnx.save(convert_float_to_float16(onnx.load(str(file)), keep_io_types=True), str(out))
    return out


def int8_file(file: Path) -> Path:
    """A copy by quantize_dynamic."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    out = file.with_suffix(".int8.onnx")
    quantize_dynamic(str(file), str(out), weight_type=QuantType.QInt8)
    return out


WAYS: dict[str, Callable[[Path, Any], Any]] = {
    "one row at a time": lambda file, rows: run(file, rows, 1),
    "64 rows at a time": lambda file, rows: run(file, rows, 64),
    "four threads": lambda file, rows: run(file, rows, intra_op_num_threads=4),
    "no graph optimization": lambda file, rows: run(
        file, rows, graph_optimization_level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    ),
    "no memory arena, no memory pattern": lambda file, rows: run(
        file, rows, enable_cpu_mem_arena=False, enable_mem_pattern=False
    ),
    "no prepacked weights": lambda file, rows: run(file, rows, entry=("session.disable_prepacking", "1")),
    "denormals as zero": lambda file, rows: run(file, rows, entry=("session.set_denormal_as_zero", "1")),
    "gemm in bfloat16 (Arm)": lambda file, rows: run(
        file, rows, entry=("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
    ),
    "weights rounded to float16": lambda file, rows: run(half_weights(file), rows),
    "float16": lambda file, rows: run(half_file(file), rows),
    "int8 (quantize_dynamic)": lambda file, rows: run(int8_file(file), rows),
}


def exported(folder: Path) -> dict[str, Path]:
    """The two policies."""
    import torch
    from gymnasium import spaces

    from tests.support.models import make
    from ue_rl.inference import export_onnx

    files = {}
    for name, more in (("numbers", {}), ("choices", {"action": spaces.Discrete(5)})):
        torch.manual_seed(41)
        model = make(**more)
        with torch.no_grad():
            model.policy.action_net.weight.mul_(30)  # untrained ones are 100 times smaller than others
        files[name] = folder / f"{name}.onnx"
        export_onnx(model, str(files[name]))
    return files


def cell(name: str, right: Any, found: Any) -> dict[str, Any]:
    """How far they are apart."""
    if name == "choices":
        return {"others": float((right != found).any(axis=1).mean())}
    return {"off": float(np.abs(right - found).max() / 2), "same_bits": bool((right == found).all())}


def shown(one: dict[str, Any]) -> str:
    """A cell as text."""
    if "error" in one:
        return f"refused: {one['error']}"
    if "others" in one:
        return f"{one['others']:.2%} others" if one["others"] else "the same"
    return "bits" if one["same_bits"] else f"{one['off']:.1g}"


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="ROW", help="rows that begin with this")
    parser.add_argument("--json", type=Path, help="the file to write; rows that it holds already are kept")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    held: dict[str, Any] = {"rows": {}}
    if given.json and given.json.exists():
        held = json.loads(given.json.read_text())
    held["date"] = datetime.date.today().isoformat()
    held["machine"] = platform.machine()
    held["versions"] = {"onnxruntime": ort.__version__, "onnx": onnx.__version__}
    rng = np.random.default_rng(41)
    with tempfile.TemporaryDirectory() as folder:
        for name, file in exported(Path(folder)).items():
            size = ort.InferenceSession(str(file)).get_inputs()[0].shape[1]
            rows = rng.normal(0, 1, (ROWS, size)).astype(np.float32)
            right = run(file, rows)
            for way, act in WAYS.items():
                if way.startswith(given.only):
                    try:
                        found = cell(name, right, act(file, rows))
                    except Exception as error:  # noqa: BLE001 a refusal is a cell of the table
                        found = {"error": f"{type(error).__name__}: {error}"[:120].replace("|", "/").replace("\n", " ")}
                    held["rows"].setdefault(way, {})[name] = found
    print("| onnxruntime with | numbers | choices |", "|---|---|---|", sep="\n")
    for way, row in held["rows"].items():
        print(f"| {way} | {' | '.join(shown(one) for one in row.values())} |")
    if given.json:
        given.json.write_text(json.dumps(held, indent=1) + "\n")


if __name__ == "__main__":
    main()
