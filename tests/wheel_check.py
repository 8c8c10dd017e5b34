"""Reads a built wheel's RECORD: every room once, under ue_rl, and nothing at the top level beside it.

Run by the CI script: python tests/wheel_check.py dist/ue_rl-*.whl
"""

from __future__ import annotations

import sys
import zipfile

REQUIRED = (
    "ue_rl/__init__.py",
    "ue_rl/py.typed",
    "ue_rl/protocol/text/_kernels.pyi",
    "ue_rl/cli/__init__.py",
    "ue_rl/cli/optuna_search.txt",
    "ue_rl/devtools/testing/plugin.py",
    "ue_rl/connections/tcp/connection.py",
    "ue_rl/connections/shm/connection.py",
    "ue_rl/bridges/multi_env.py",
    "ue_rl/inference/runtime/onnx.py",
    "ue_rl/protocol/commands/generated.py",
    "ue_rl/protocol/commands/generated_physics.py",
    "ue_rl/protocol/commands/command.fbs",
    "ue_rl/protocol/commands/physics.fbs",
)


def main(path: str) -> None:
    """Exits with a sentence where the wheel is not as it should be."""
    with zipfile.ZipFile(path) as wheel:
        (record,) = (name for name in wheel.namelist() if name.endswith(".dist-info/RECORD"))
        files = [line.split(",")[0] for line in wheel.read(record).decode().splitlines() if line]
    missing = [name for name in REQUIRED if name not in files]
    strays = {name.split("/")[0] for name in files} - {"ue_rl", record.split("/")[0]}
    doubles = {name for name in files if files.count(name) > 1}
    modules = ("ue_rl/protocol/text/_kernels.", "ue_rl/protocol/memory/_sync.")
    compiled = [name for name in files if name.startswith(modules) and name.endswith((".so", ".pyd"))]
    if missing or strays or doubles or len(compiled) != len(modules):
        sys.exit(f"{path}: missing {missing}, strays {strays}, doubles {doubles}, compiled {compiled}")
    print(f"{path}: {len(files)} files, {', '.join(compiled)}")


if __name__ == "__main__":
    main(sys.argv[1])
