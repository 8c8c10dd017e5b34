"""Builds the optional compiled modules; everything else about the package is in setup.cfg.

`optional=True`: without a C compiler the package installs all the same; text then runs on the pure Python twin of the
kernels, more slowly and with the same results. UE_RL_NO_EXTENSIONS=1 leaves them out on purpose: docs/building.md.
"""

import os
import sys
from glob import glob

from setuptools import Extension, setup

_FLAGS = ["/O2"] if sys.platform == "win32" else ["-O3", "-std=c11"]

_HEADERS = glob("ue_rl/**/*.h", recursive=True)
_PURE = os.environ.get("UE_RL_NO_EXTENSIONS", "0") not in ("", "0")

setup(
    ext_modules=[
        Extension(
            "ue_rl.wire._kernels",
            sources=["ue_rl/wire/_kernels.c"],
            depends=_HEADERS,
            extra_compile_args=_FLAGS,
            optional=True,
        ),
        Extension(
            "ue_rl.shm._sync",
            sources=["ue_rl/shm/_sync.c"],
            depends=_HEADERS,
            extra_compile_args=_FLAGS,
            optional=True,
        ),
    ]
    if not _PURE
    else []
)
