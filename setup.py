"""Builds the optional compiled kernels; everything else about the package is in setup.cfg.

`optional=True`: without a C compiler the package installs all the same and runs on the pure
Python twins, which give the same results more slowly.
"""

import sys

from setuptools import Extension, setup

_FLAGS = ["/O2"] if sys.platform == "win32" else ["-O3", "-std=c11"]

setup(
    ext_modules=[
        Extension(
            "ue_rl.wire._kernels",
            sources=["ue_rl/wire/_kernels.c"],
            extra_compile_args=_FLAGS,
            optional=True,
        ),
        Extension(
            "ue_rl.shm._sync",
            sources=["ue_rl/shm/_sync.c"],
            extra_compile_args=_FLAGS,
            optional=True,
        ),
    ]
)
