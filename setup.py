"""Builds the optional compiled modules; everything else about the package is in setup.cfg.

`optional=True`: without a C compiler the package installs all the same; text then runs on the pure Python twin of the
kernels, more slowly and with the same results. UE_RL_NO_EXTENSIONS=1 leaves them out on purpose: see CONTRIBUTING.md.

UE_RL_REPOSITORY=https://.. is where this is published: README's links then lead there also from a package index.
"""

import os
import re
import sys
from glob import glob
from pathlib import Path

from setuptools import Extension, setup

_FLAGS = ["/O2"] if sys.platform == "win32" else ["-O3", "-std=c11"]

_HEADERS = glob("ue_rl/**/*.h", recursive=True)
_PURE = os.environ.get("UE_RL_NO_EXTENSIONS", "0") not in ("", "0")

_REPOSITORY = os.environ.get("UE_RL_REPOSITORY", "").rstrip("/")
_README = Path("README.md").read_text("utf-8")
if _REPOSITORY:
    _README = re.sub(r"(!?\[[^]]*\])\((?=docs/|samples/)", rf"\1({_REPOSITORY}/raw/HEAD/", _README)
    _README = re.sub(r"(?<!!)(\[[^]]*\]\([^)]*)/raw/HEAD/", r"\1/blob/HEAD/", _README)

setup(
    long_description=_README,
    long_description_content_type="text/markdown",
    project_urls={
        "Documentation": f"{_REPOSITORY}/blob/HEAD/docs/pages.md",
        "Changelog": f"{_REPOSITORY}/blob/HEAD/CHANGELOG.md",
        "Source": _REPOSITORY,
        "Issues": f"{_REPOSITORY}/issues",
    }
    if _REPOSITORY
    else {},
    ext_modules=[
        Extension(
            "ue_rl.protocol.text._kernels",
            sources=["ue_rl/protocol/text/_kernels.c"],
            depends=_HEADERS,
            extra_compile_args=_FLAGS,
            optional=True,
        ),
        Extension(
            "ue_rl.protocol.memory._sync",
            sources=["ue_rl/protocol/memory/_sync.c"],
            depends=_HEADERS,
            extra_compile_args=_FLAGS,
            optional=True,
        ),
    ]
    if not _PURE
    else [],
)
