"""Each fault is planted, and named, with its cure."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.devtools.recording.test_traces import SPEC, Counter, steps
from tests.support.command_line import ok, refused
from tests.support.command_line import run as run_cli
from ue_rl.bridges import run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.doctor import FAULTS, Outcome, diagnose
from ue_rl.devtools.doctor import checks as machine
from ue_rl.devtools.recording import RecordingTransport, Trace
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.protocol.access.doors import Doorway
from ue_rl.protocol.spec import Channel
from ue_rl.system.errors import ConfigurationError

CERTS = Path(__file__).parents[2] / "security" / "certs"

Plant = Callable[[pytest.MonkeyPatch, Path], Any]


def raising(number: int, *, within: str) -> Any:
    """A `tempfile` in which nothing can be written in one folder."""

    def make(*args: Any, dir: Any = None, **more: Any) -> Any:
        if str(dir).startswith(within):
            raise OSError(number, os.strerror(number))
        return tempfile.NamedTemporaryFile(*args, dir=dir, **more)

    return SimpleNamespace(TemporaryFile=make, NamedTemporaryFile=make)


def no_module(patch: pytest.MonkeyPatch, _: Path) -> None:
    def load(name: str) -> Any:
        raise ConfigurationError(f"no {name}")

    patch.setattr(machine, "load", load)


def no_compiler(patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setenv("PATH", "/nonexistent")


def statvfs(patch: pytest.MonkeyPatch, **other: Any) -> None:
    real = os.statvfs("/dev/shm")
    facts = {"f_bavail": real.f_bavail, "f_frsize": real.f_frsize, "f_flag": 0, **other}
    patch.setattr(machine, "os", _Os(statvfs=lambda _: SimpleNamespace(**facts)))


class _Os:
    """The module os, with something else in it."""

    def __init__(self, **other: Any) -> None:
        vars(self).update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def limited(patch: pytest.MonkeyPatch, what: int, value: int) -> None:
    import resource

    def getrlimit(which: int) -> tuple[int, int]:
        return (value, value) if which == what else resource.getrlimit(which)

    others = {name: getattr(resource, name) for name in ("RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIM_INFINITY")}
    patch.setattr(machine, "limits", SimpleNamespace(getrlimit=getrlimit, **others))


def from_the_future(patch: pytest.MonkeyPatch, runs: Path) -> None:
    runs.mkdir()
    (runs / "model.zip").touch()
    os.utime(runs / "model.zip", (time.time() + 9000,) * 2)


def taken(patch: pytest.MonkeyPatch, _: Path) -> Any:
    server = socket.create_server(("127.0.0.1", 0))
    patch.setattr(machine, "PORTS", {server.getsockname()[1]: "engines"})
    return server


def torch_of(patch: pytest.MonkeyPatch, version: str) -> None:
    real = metadata.version
    patch.setattr(metadata, "version", lambda name: version if name == "torch" else real(name))


def used_disk(patch: pytest.MonkeyPatch, free: int) -> None:
    patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


PLANTED: dict[str, tuple[str, Outcome, Plant]] = {
    "an old torch": ("wrong-version", Outcome.FAIL, lambda patch, _: torch_of(patch, "1.13.1+cu117")),
    "no compiled modules": ("no-kernels", Outcome.WARN, no_module),
    "UE_RL_PURE": ("kernels-off", Outcome.WARN, lambda patch, _: patch.setenv("UE_RL_PURE", "1")),
    "no compiler": ("no-compiler", Outcome.WARN, no_compiler),
    "neither module nor compiler": ("no-compiler", Outcome.FAIL, lambda p, r: (no_module(p, r), no_compiler(p, r))),
    "no /dev/shm": ("shm-missing", Outcome.FAIL, lambda p, r: p.setattr(machine, "SHM_DIR", r / "none")),
    "/dev/shm of somebody else": (
        "shm-denied", Outcome.FAIL,
        lambda patch, _: patch.setattr(machine, "tempfile", raising(errno.EACCES, within="/dev/shm")),
    ),
    "a full /dev/shm": (
        "shm-full", Outcome.FAIL,
        lambda patch, _: patch.setattr(machine, "tempfile", raising(errno.ENOSPC, within="/dev/shm")),
    ),
    "a small /dev/shm": ("shm-full", Outcome.WARN, lambda patch, _: statvfs(patch, f_bavail=2000, f_frsize=4096)),
    "noexec": ("shm-noexec", Outcome.WARN, lambda patch, _: statvfs(patch, f_flag=os.ST_NOEXEC)),
    "a taken port": ("port-taken", Outcome.WARN, taken),
    "one core": (
        "few-cores", Outcome.WARN, lambda p, _: p.setattr(machine, "os", _Os(sched_getaffinity=lambda _: {0})),
    ),
    "99 threads": ("too-many-threads", Outcome.WARN, lambda patch, _: patch.setenv("OMP_NUM_THREADS", "99")),
    "no memory": (
        "low-memory", Outcome.WARN,
        lambda patch, _: patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 28)),
    ),
    "few files": ("file-limit", Outcome.FAIL, lambda patch, _: limited(patch, 7, 64)),
    "512 files": ("file-limit", Outcome.WARN, lambda patch, _: limited(patch, 7, 512)),
    "short files": ("file-size-limit", Outcome.WARN, lambda patch, _: limited(patch, 1, 1 << 20)),
    "a file from the future": ("clock-skew", Outcome.WARN, from_the_future),
    "a full disk": ("disk-full", Outcome.FAIL, lambda patch, _: used_disk(patch, 10_000_000)),
    "a nearly full disk": ("disk-full", Outcome.WARN, lambda patch, _: used_disk(patch, 500_000_000)),
    "runs that are read-only": (
        "read-only-runs", Outcome.FAIL,
        lambda patch, runs: patch.setattr(machine, "tempfile", raising(errno.EROFS, within=str(runs.parent))),
    ),
}  # fmt: skip


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/shm and limits of Linux")
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_named(planted: str, tmp_path: Path) -> None:
    fault, outcome, plant = PLANTED[planted]
    with pytest.MonkeyPatch.context() as patch:
        kept = plant(patch, tmp_path / "runs")
        rows = list(diagnose(None, tmp_path / "runs"))
        del kept
    found = [row for row in rows if row.fault == fault]
    assert [row.outcome for row in found] == [outcome]
    assert found[0].cure == FAULTS[fault]
    assert {row.fault for row in rows if row.outcome is Outcome.FAIL} <= {fault}


def of_engine(url: str, seconds: float = 5.0) -> tuple[str, str]:
    """What is said of an engine that has so long to answer: fault, text."""
    rows = [row for row in diagnose(url, Path("."), seconds) if row.check in ("engine", "first episode")]
    return rows[-1].fault, rows[-1].text


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """Somebody else, who listens and says this; None: nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            try:
                while True:
                    kept.append(server.accept()[0])
                    if answer is not None:
                        kept[-1].sendall(answer)
            except OSError:
                return

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for sock in kept:
            sock.close()


def test_an_engine_that_is_well_and_those_that_are_not(slack: float) -> None:
    late = 0.3 * slack
    with run_in_thread(Counter()) as engine:
        assert of_engine(engine.url)[0] == ""
        transport = open_transport(engine.url)
        assert of_engine(engine.url)[0] == "busy"
        transport.close()
        free = engine.url
    assert of_engine(free)[0] == "not-listening"
    assert of_engine("tcp://no-such-host.invalid:7777")[0] == "unknown-host"
    with listener(None) as url:
        assert of_engine(url, late)[0] == "no-handshake"
    with listener(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        assert of_engine(url)[0] == "wrong-handshake"
    with listener(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED\n") as url:
        assert of_engine(f"{url}?channel=per-env", late)[0] == "other-wiring"
        assert of_engine(url, late)[0] == "no-answer"
    for served, asked in ((Channel.SHARED, "per-env"), (Channel.PER_ENV, "shared")):
        with run_in_thread(Counter(spec=replace(SPEC, channel=served))) as engine:
            assert of_engine(engine.url)[0] == ""
            assert of_engine(f"{engine.url}?channel={asked}", late)[0] == "other-wiring"


def test_an_engine_that_asks_for_a_token_or_for_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ue_rl.protocol.access.doors.PATIENCE", 0.2)
    secrets = [tmp_path / "token", tmp_path / "another"]
    for place, secret in enumerate(secrets):
        secret.write_text(f"{place}" * 40 + "\n")
        secret.chmod(0o600)
    with run_in_thread(Counter(), doorway=Doorway(token_file=secrets[0])) as engine:
        assert of_engine(f"{engine.url}?token-file={secrets[0]}")[0] == ""
        for options in ("", f"?token-file={secrets[1]}"):
            fault, row = of_engine(engine.url + options)
            assert fault == "not-let-in"
            assert "token-file" in FAULTS[fault]
            assert "token" in row
    with run_in_thread(Counter(), doorway=Doorway(tls_cert=CERTS / "engine.pem")) as engine:
        for options in ("", f"?token-file={secrets[0]}"):
            assert of_engine(f"tcp://127.0.0.1:{engine.port}{options}")[0] == "not-let-in"
        assert of_engine(f"tls://127.0.0.1:{engine.port}")[0] == "not-let-in"


def in_a_namespace(script: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a network namespace of its own, where this user may."""
    words = ["unshare", "--net", "sh", "-c", script]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def may(*tools: str, script: str = "true") -> bool:
    return all(map(shutil.which, tools)) and in_a_namespace(script).returncode == 0


DROP = "ip link set lo up && iptables -A OUTPUT -p tcp --dport 7999 -j DROP"


# torch plays no part in these, and is most of what they would import
CODE = "import sys; sys.modules['torch'] = None; from ue_rl.cli import main; main()"
DOCTOR = f'UE_RL_PURE=0 {sys.executable} -c "{CODE}" doctor --timeout 1 --json'


@pytest.mark.skipif(not may("unshare"), reason="no right to make a network namespace")
def test_a_loopback_that_is_down() -> None:
    said = json.loads(in_a_namespace(DOCTOR).stdout)
    assert "loopback-blocked" in [row.get("fault") for row in said["rows"]]
    assert said["exit_code"] == 1


@pytest.mark.skipif(not may("unshare", "ip", "iptables", script=DROP), reason="no namespace, or no rule can be set")
def test_a_firewall_that_drops() -> None:
    said = json.loads(in_a_namespace(f"{DROP} && {DOCTOR} --port 7999").stdout)
    assert said["rows"][-1]["fault"] == "firewall"


@pytest.mark.skipif(not may("unshare", "ip"), reason="no namespace, or no ip")
def test_a_route_that_swallows() -> None:
    """As a firewall that drops, without one: an address on a link at which nobody answers."""
    link = "ip link set lo up && ip link add b0 type bridge && ip addr add 10.9.9.1/24 dev b0 && ip link set b0 up"
    said = json.loads(in_a_namespace(f"{link} && {DOCTOR} tcp://10.9.9.2:7777").stdout)
    assert said["rows"][-1]["fault"] == "firewall"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: str) -> Any:
        return run_cli("doctor --log-dir", tmp_path, *words, standalone_mode=False)

    monkeypatch.setattr(machine, "PORTS", {})
    well = run()
    assert (well.return_value, "0 FAIL" in well.output) == (0, True)
    used_disk(monkeypatch, 1)
    ill = run()
    assert (ill.return_value, "[disk-full]" in ill.output, "1 FAIL" in ill.output) == (1, True, True)
    said = json.loads(run("--json").output)
    assert [row["fault"] for row in said["rows"] if row["outcome"] == "FAIL"] == ["disk-full"]
    assert said["exit_code"] == 1


def test_a_report_lists_what_is_inside_and_leaves_models_out(tmp_path: Path) -> None:
    run, trace = tmp_path / "runs" / "first", tmp_path / "a.trace"
    (run / "checkpoints" / "100").mkdir(parents=True)
    for name, text in {"run.log": "lines\n", "model.zip": "weights", "checkpoints/100/model.zip": "weights"}.items():
        (run / name).write_text(text)
    (run / "config.yaml").write_text(f"algo: ppo\ntrace: {trace}\n")
    (run / "secrets").symlink_to("/etc/hostname")
    steps(RecordingTransport(MemoryTransport(Counter()), trace))

    def packed(*words: str) -> zipfile.ZipFile:
        out = tmp_path / "report.zip"
        ok("report", run, "-o", out, *words)
        return zipfile.ZipFile(out)

    with packed() as archive:
        names = {"doctor.json", "run/config.yaml", "run/run.log", "trace", "contents.txt"}
        assert set(archive.namelist()) == names
        contents = archive.read("contents.txt").decode()
        assert all(name in contents for name in names - {"contents.txt"})
        assert "checkpoints/100/model.zip  a model, left out" in contents
        (tmp_path / "end").write_bytes(archive.read("trace"))
        assert sum(message.kind.name == "STEP" for message in Trace(tmp_path / "end")) == 30
        assert {row["check"] for row in json.loads(archive.read("doctor.json"))} >= {"versions", "disk"}
    with packed("--models") as archive:
        assert archive.read("run/checkpoints/100/model.zip") == b"weights"
    assert "not a run's folder" in str(refused("report", tmp_path))
