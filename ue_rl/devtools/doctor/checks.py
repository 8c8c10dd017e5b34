"""The checks of an installation, one after the other; each looks, and changes nothing."""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ue_rl.devtools.doctor.rows import DoctorRow, fail, ok, warn
from ue_rl.system.compiled import what_is_lacking
from ue_rl.system.durable import amount
from ue_rl.system.plugins import missing_packages
from ue_rl.system.room import SHM_DIR

_FOR_DEVELOPERS = {"all", "dev", "docs", "recipes", "samples", "test", "test-core"}  # extras that no command needs
_LITTLE = 32 << 20  # bytes of shared memory; one engine that sends pictures may need as much


def diagnose(url: str | None = None, timeout: float = 5.0) -> Iterator[DoctorRow]:
    """Every check.

    Args:
        url: of a running engine; None: none is looked for. timeout: seconds of a try.
    """
    yield _versions()
    yield ok("extras", _extras())
    yield _compiled()
    yield _shared_memory(SHM_DIR)
    if url is not None:
        from ue_rl.devtools.doctor.engine import engine

        yield from engine(url, timeout)


def _versions() -> DoctorRow:
    """As Stable-Baselines3 has them for its own bug reports, where it is installed."""
    check = "versions"
    facts = {"OS": platform.platform(), "Python": platform.python_version(), "Numpy": metadata.version("numpy")}
    broken = ""
    try:
        from stable_baselines3.common.utils import get_system_info

        facts, _ = get_system_info(print_info=False)
    except ModuleNotFoundError:  # not installed
        pass
    except Exception as error:  # noqa: BLE001  a library that does not fit another one raises what it likes
        broken = f"Stable-Baselines3 cannot be imported: {type(error).__name__}: {error}"
    said = ", ".join([f"ue_rl {metadata.version('ue_rl')}", *(f"{name} {version}" for name, version in facts.items())])
    if broken:
        return fail(check, "wrong-version", f"{said}\n{broken}")
    return ok(check, said)


def _extras() -> str:
    """Which are there, and what the others lack."""
    whole = []
    lacking = []
    for extra in metadata.metadata("ue_rl").get_all("Provides-Extra") or ():
        missing = missing_packages("ue_rl", extra)
        if extra in _FOR_DEVELOPERS:
            continue
        if missing:
            lacking.append(f"{extra} (lacks {', '.join(missing)})")
        else:
            whole.append(extra)
    said = f"installed: {', '.join(whole) or 'none'}"
    if lacking:
        said += f"; not installed: {', '.join(lacking)}"
    return said


def _compiled() -> DoctorRow:
    check = "compiled modules"
    said = what_is_lacking()
    if not said:
        return ok(check, "kernels, sync")
    if os.environ.get("UE_RL_PURE", "0") not in ("", "0"):
        return warn(check, "kernels-off", said)
    return warn(check, "no-kernels", said)


def _shared_memory(folder: Path) -> DoctorRow:
    check = "shared memory"
    if sys.platform != "linux":
        return ok(check, "of the system")
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        return fail(check, "shm-missing", f"{folder}: {error.strerror}")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
    except OSError as error:
        fault = "shm-denied"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fault = "shm-full"
        return fail(check, fault, f"no file of 1 MB in {folder}: {error.strerror}")
    free = facts.f_bavail * facts.f_frsize
    text = f"{amount(free)} free in {folder}"
    if free < _LITTLE:
        return warn(check, "shm-full", f"only {text}")
    return ok(check, text)
