"""onnxruntime without its reports about this machine and its models."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

# Read once, while onnxruntime is imported. Its own disable_telemetry_events() comes too late for the first report.
OPT_OUT = "ORT_DISABLE_TELEMETRY"


def import_onnxruntime() -> Any:
    """The module onnxruntime, which reports nothing unless `ORT_DISABLE_TELEMETRY` was set to another value than 1.

    From 1.29 on its packages for Linux, macOS and Windows write an id of the machine and a database of events into the
    user's cache folder, and send what they hold to their maker: processor, system, program, names and hashes of models.
    Who trains or plays has not been asked. Where somebody else has imported it before, it is as they left it.

    Raises:
        ImportError: it is not installed.
    """
    os.environ.setdefault(OPT_OUT, "1")
    return import_module("onnxruntime")
