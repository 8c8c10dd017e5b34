"""The checks of a machine, one after the other; each looks, and changes nothing."""

from __future__ import annotations

import errno
import itertools
import operator
import os
import platform
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import psutil

from ue_rl.devtools.doctor.rows import Row, fail, ok, warn
from ue_rl.system.compiled import load, name_of
from ue_rl.system.durable import amount
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.room import SHM_DIR

limits: ModuleType | None
try:
    import resource as limits
except ImportError:  # Windows
    limits = None

PORTS = {7777: "engines", 7778: "policy-server"}
_LOOK_AT = 2000  # files whose times are compared with the clock
_SKEW = 60.0  # seconds
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_PART = re.compile(r"(>=|<=|==|!=|<|>)\s*([\d.]+)")


def diagnose(url: str | None = None, runs: Path = Path("runs"), timeout: float = 5.0) -> Iterator[Row]:
    """Every check.

    Args:
        url: of a running engine; None: none is looked for. runs: the folder of the runs. timeout: seconds of a try.
    """
    yield from _versions()
    yield from _compiled()
    yield from _shared_memory(SHM_DIR)
    yield from _ports(url)
    yield _loopback()
    yield from _processor()
    yield from _gpu()
    yield from _limits()
    yield from _folder(runs)
    if url is not None:
        from ue_rl.devtools.doctor.engine import engine

        yield from engine(url, timeout)


def _versions() -> Iterator[Row]:
    """What is installed, against what the installed ue_rl says that it needs."""
    wrong, seen = [], 0
    python = str(dict(metadata.metadata("ue_rl").json).get("requires_python") or "")
    if not _satisfies(platform.python_version(), python):
        wrong.append(f"Python {platform.python_version()} ({python})")
    for text in metadata.requires("ue_rl") or ():
        requirement, _, marker = text.partition(";")
        name = re.match(r"[\w.-]+", requirement)
        older = re.search(r"python_version\s*>=\s*[\"']([\d.]+)", marker)
        if name is None or name[0] == "ue_rl" or (older and not _satisfies(platform.python_version(), f">={older[1]}")):
            continue
        try:
            version = metadata.version(name[0])
        except metadata.PackageNotFoundError:
            if "extra" not in marker:
                wrong.append(f"{name[0]} is missing")
            continue
        seen += 1
        if not _satisfies(version, requirement):
            wrong.append(f"{name[0]} {version} ({requirement[len(name[0]) :].strip()})")
    said = "; ".join(dict.fromkeys(wrong))
    yield fail("versions", "wrong-version", said) if wrong else ok("versions", f"{seen} requirements are met")


def _satisfies(version: str, requirement: str) -> bool:
    def numbers(text: str) -> tuple[int, ...]:
        found = re.match(r"\d+(\.\d+)*", text)
        return tuple(map(int, found[0].split("."))) if found else ()

    def alike(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        longest = max(len(a), len(b))
        return a + (0,) * (longest - len(a)), b + (0,) * (longest - len(b))

    return all(_COMPARE[sign](*alike(numbers(version), numbers(than))) for sign, than in _PART.findall(requirement))


def _compiled() -> Iterator[Row]:
    off = os.environ.get("UE_RL_PURE", "0") not in ("", "0")
    missing = []
    for name in ("kernels", "sync"):
        try:
            missing += [name] if name_of(load(name)) == "pure" else []
        except ConfigurationError:
            missing.append(name)
    if missing:
        text = f"{' and '.join(missing)} not compiled: text is slow" + (", no shared memory" * ("sync" in missing))
        yield warn("compiled modules", "kernels-off" if off else "no-kernels", text)
    else:
        yield ok("compiled modules", "kernels, sync")
    words = (sysconfig.get_config_var("CC") or "cc").split()
    found = next(filter(None, map(shutil.which, (words[0], "cc", "gcc", "clang", "cl"))), None)
    if found is not None:
        yield ok("compiler", found)
    elif missing and not off:
        yield fail("compiler", "no-compiler", "none was found, and the compiled modules are missing")
    else:
        yield warn("compiler", "no-compiler", "none was found; it is needed to build ue_rl and C++ games")


def _shared_memory(folder: Path) -> Iterator[Row]:
    if not sys.platform.startswith("linux"):
        yield ok("shared memory", "of the system")
        return
    check = "shared memory"
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        yield fail(check, "shm-missing", f"{folder}: {error.strerror}")
        return
    free = facts.f_bavail * facts.f_frsize
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 20)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        yield fail(check, "shm-full" if full else "shm-denied", f"no file of 1 MB in {folder}: {error.strerror}")
        return
    text = f"{amount(free)} free in {folder}"
    noexec = facts.f_flag & getattr(os, "ST_NOEXEC", 8)
    yield warn(check, "shm-full", f"only {text}") if free < 32 << 20 else ok(check, text)
    if noexec:
        yield warn(check, "shm-noexec", f"{folder} is mounted noexec")


def _ports(url: str | None) -> Iterator[Row]:
    for port, what in PORTS.items():
        if url is not None and re.search(rf"(127\.0\.0\.1|localhost|\]):{port}\b", url):
            continue  # the engine that is looked for
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name != "nt")
            try:
                sock.bind(("127.0.0.1", port))
                yield ok(f"port {port}", f"free ({what})")
            except OSError as error:
                yield warn(f"port {port}", "port-taken", f"{_holder(port) or error.strerror} ({what})")


def _holder(port: int) -> str:
    """Who listens there, where this user may know."""
    try:
        for each in psutil.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN and each.pid and each.laddr and each.laddr.port == port:
                return f"process {each.pid} ({psutil.Process(each.pid).name()}) listens"
    except (psutil.Error, OSError):
        return ""
    return ""


def _loopback() -> Row:
    """A firewall, or a namespace without one, may keep this machine from talking to itself."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(2.0)
            with socket.create_connection(server.getsockname(), 2.0):
                server.accept()[0].close()
    except OSError as error:
        return fail("loopback", "loopback-blocked", f"127.0.0.1 cannot be reached from here: {error.strerror or error}")
    return ok("loopback", "127.0.0.1 answers")


def _processor() -> Iterator[Row]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"{cores} cores"
    yield warn("cores", "few-cores", "1 core") if cores < 2 else ok("cores", text)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > cores:
        yield warn("threads", "too-many-threads", f"OMP_NUM_THREADS={asked}, {text}")
    else:
        yield ok("threads", f"OMP_NUM_THREADS={asked}" if asked else "as many as torch likes")
    free = psutil.virtual_memory().available
    said = f"{amount(free)} free"
    yield warn("memory", "low-memory", f"only {said}") if free < 1 << 30 else ok("memory", said)


def _gpu() -> Iterator[Row]:
    there = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None
    try:
        import torch
    except ImportError:
        yield ok("GPU", "torch is not installed")
        return
    if torch.cuda.is_available():
        yield ok("GPU", f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}")
    elif there:
        yield warn("GPU", "gpu-unused", f"there is one, and torch {torch.__version__} cannot use it")
    else:
        yield ok("GPU", "none: training runs on the cores")


def _limits() -> Iterator[Row]:
    if limits is None:
        return
    files, _ = limits.getrlimit(limits.RLIMIT_NOFILE)
    said = "no limit" if files == limits.RLIM_INFINITY else f"{files:,} open files"
    if 0 <= files < 256:
        yield fail("file limit", "file-limit", f"only {said}")
    else:
        yield warn("file limit", "file-limit", f"only {said}") if 0 <= files < 1024 else ok("file limit", said)
    size, _ = limits.getrlimit(limits.RLIMIT_FSIZE)
    if size != limits.RLIM_INFINITY and size < 1 << 30:
        yield warn("file size", "file-size-limit", f"a file may have {amount(size)} at most")


def _folder(runs: Path) -> Iterator[Row]:
    """The folder of the runs, or the one that it would be made in."""
    there = next(each for each in (runs.absolute(), *runs.absolute().parents) if each.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".ue-rl-doctor-") as file:
            skew = os.stat(file.name).st_mtime - time.time()
            file.write(b"\0" * 4096)
            file.flush()
        yield ok("runs folder", f"{runs} can be written")
    except OSError as error:
        skew = 0.0
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        yield fail("runs folder", "disk-full" if full else "read-only-runs", f"{there}: {error.strerror}")
    free = shutil.disk_usage(there).free
    said = f"{amount(free)} free at {there}"
    if free < 100_000_000:
        yield fail("disk", "disk-full", f"only {said}")
    else:
        yield warn("disk", "disk-full", f"only {said}") if free < 1_000_000_000 else ok("disk", said)
    ahead = max([skew, *(at - time.time() for at in _times(runs))])
    if ahead > _SKEW or time.time() < 1.7e9:
        yield warn("clock", "clock-skew", f"{time.strftime('%Y-%m-%d %H:%M')}; a file is {ahead:,.0f} s ahead of it")
    else:
        yield ok("clock", "no file is ahead of it")


def _times(runs: Path) -> Iterator[float]:
    """When files of the runs, and of this library, were changed."""
    yield Path(__file__).stat().st_mtime
    for each in itertools.islice(runs.rglob("*") if runs.is_dir() else (), _LOOK_AT):
        try:
            yield each.lstat().st_mtime
        except OSError:  # deleted meanwhile
            continue
