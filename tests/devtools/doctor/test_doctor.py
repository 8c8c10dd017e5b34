"""Each fault is planted, and named, with its cure."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.devtools.recording.test_traces import SPEC, Counter
from tests.support.command_line import run as run_cli
from tests.support.missing import take_away_compiled
from tests.support.slack import patient
from ue_rl.bridges import run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.doctor import FAULTS, DoctorVerdict, diagnose
from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.protocol.spec import Channel

CERTS = Path(__file__).parents[2] / "security" / "certs"

Plant = Callable[[pytest.MonkeyPatch], Any]


def unwritable(patch: pytest.MonkeyPatch, number: int) -> None:
    """No temporary file can be made, for this reason."""

    def make(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    patch.setattr(tempfile, "TemporaryFile", make)


def broken_torch(patch: pytest.MonkeyPatch) -> None:
    """One that does not fit the other libraries, as far as an import knows."""

    def find_spec(name: str, path: Any, target: Any = None) -> None:
        if name.startswith("stable_baselines3"):
            raise AttributeError("module 'torch' has no attribute 'compiler'")

    for name in [each for each in sys.modules if each.partition(".")[0] == "stable_baselines3"]:
        patch.delitem(sys.modules, name)
    patch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=find_spec), *sys.meta_path])


def statvfs(patch: pytest.MonkeyPatch, **other: Any) -> None:
    real = os.statvfs("/dev/shm")
    facts = {"f_bavail": real.f_bavail, "f_frsize": real.f_frsize, "f_flag": 0, **other}
    patch.setattr(os, "statvfs", lambda _: SimpleNamespace(**facts))


def no_folder(patch: pytest.MonkeyPatch) -> None:
    def statvfs(_: Any) -> Any:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    patch.setattr(os, "statvfs", statvfs)


PLANTED: dict[str, tuple[str, DoctorVerdict, Plant]] = {
    "a torch that does not fit": ("wrong-version", DoctorVerdict.FAIL, broken_torch),
    "no compiled modules": ("no-kernels", DoctorVerdict.WARN, take_away_compiled),
    "UE_RL_PURE": ("kernels-off", DoctorVerdict.WARN, lambda patch: patch.setenv("UE_RL_PURE", "1")),
    "no /dev/shm": ("shm-missing", DoctorVerdict.FAIL, no_folder),
    "/dev/shm of somebody else": (
        "shm-denied", DoctorVerdict.FAIL,
        lambda patch: unwritable(patch, errno.EACCES),
    ),
    "a full /dev/shm": (
        "shm-full", DoctorVerdict.FAIL,
        lambda patch: unwritable(patch, errno.ENOSPC),
    ),
    "a small /dev/shm": ("shm-full", DoctorVerdict.WARN, lambda patch: statvfs(patch, f_bavail=2000, f_frsize=4096)),
}  # fmt: skip


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/dev/shm")
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_named(planted: str) -> None:
    fault, outcome, plant = PLANTED[planted]
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        rows = list(diagnose())
    found = [row for row in rows if row.fault == fault]
    assert [row.outcome for row in found] == [outcome]
    assert found[0].cure == FAULTS[fault]
    assert {row.fault for row in rows if row.outcome is DoctorVerdict.FAIL} <= {fault}


def test_versions_and_extras_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row.check: row.text for row in diagnose()}
    assert all(name in rows["versions"] for name in ("ue_rl 0.", "Python 3.", "Stable-Baselines3 2.", "PyTorch "))
    assert re.search(r"^installed: .*\bengine\b.*\btrain\b", rows["extras"])
    assert not re.search(r"\b(dev|docs|test)\b", rows["extras"])
    for name in ("stable_baselines3", "stable_baselines3.common.utils"):
        monkeypatch.setitem(sys.modules, name, None)
    facts = tmp_path / f"ue_rl-{version('ue_rl')}.dist-info" / "METADATA"  # of an installation that lacks a package
    facts.parent.mkdir()
    extras = "Provides-Extra: train\nProvides-Extra: rllib\nRequires-Dist: never-there>=1; extra == 'rllib'\n"
    facts.write_text(f"Metadata-Version: 2.1\nName: ue_rl\nVersion: {version('ue_rl')}\n{extras}")
    monkeypatch.syspath_prepend(tmp_path)
    rows = {row.check: row.text for row in diagnose()}
    assert "Numpy " in rows["versions"]
    assert "PyTorch" not in rows["versions"]
    assert rows["extras"].endswith("; not installed: rllib (lacks never-there)")


def of_engine(url: str, seconds: float = 5.0) -> tuple[str, str]:
    """What is said of an engine that has so long to answer: fault, text."""
    rows = [row for row in diagnose(url, seconds) if row.check in ("engine", "first episode")]
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


@pytest.mark.slow
def test_an_engine_that_is_well_and_those_that_are_not() -> None:
    with run_in_thread(Counter()) as engine:
        assert of_engine(engine.url)[0] == ""
        transport = open_transport(engine.url)
        assert of_engine(engine.url)[0] == "busy"
        transport.close()
        free = engine.url
    assert of_engine(free)[0] == "not-listening"
    assert of_engine("tcp://no-such-host.invalid:7777")[0] == "unknown-host"
    with listener(None) as url:
        assert of_engine(url, 0.2)[0] == "no-handshake"
    with listener(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        assert of_engine(url)[0] == "wrong-handshake"
    with listener(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED\n") as url:
        assert of_engine(f"{url}?channel=per-env")[0] == "other-wiring"
        assert of_engine(url, patient(1.0))[0] == "no-answer"
    for served, asked in ((Channel.SHARED, "per-env"), (Channel.PER_ENV, "shared")):
        with run_in_thread(Counter(spec=replace(SPEC, channel=served))) as engine:
            assert of_engine(engine.url)[0] == ""
            assert of_engine(f"{engine.url}?channel={asked}")[0] == "other-wiring"


def test_an_engine_that_asks_for_a_token_or_for_tls(tmp_path: Path) -> None:
    secrets = [tmp_path / "token", tmp_path / "another"]
    for place, secret in enumerate(secrets):
        secret.write_text(f"{place}" * 40 + "\n")
        secret.chmod(0o600)
    with run_in_thread(Counter(), access=ServerAccess(token_file=secrets[0])) as engine:
        assert of_engine(f"{engine.url}?token-file={secrets[0]}")[0] == ""
        for options in ("", f"?token-file={secrets[1]}"):
            fault, row = of_engine(engine.url + options)
            assert fault == "not-let-in"
            assert "token-file" in FAULTS[fault]
            assert "token" in row
    with run_in_thread(Counter(), access=ServerAccess(tls_cert=CERTS / "engine.pem", patience=0.2)) as engine:
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
    said = json.loads(in_a_namespace(f"{DOCTOR} --port 7999").stdout)
    assert said["rows"][-1]["fault"] == "firewall"
    assert said["exit_code"] == 1


@pytest.mark.exhaustive
@pytest.mark.skipif(not may("unshare", "ip", "iptables", script=DROP), reason="no namespace, or no rule can be set")
def test_a_firewall_that_drops() -> None:
    said = json.loads(in_a_namespace(f"{DROP} && {DOCTOR} --port 7999").stdout)
    assert said["rows"][-1]["fault"] == "firewall"


@pytest.mark.exhaustive
@pytest.mark.skipif(not may("unshare", "ip"), reason="no namespace, or no ip")
def test_a_route_that_swallows() -> None:
    """As a firewall that drops, without one: an address on a link at which nobody answers."""
    link = "ip link set lo up && ip link add b0 type bridge && ip addr add 10.9.9.1/24 dev b0 && ip link set b0 up"
    said = json.loads(in_a_namespace(f"{link} && {DOCTOR} tcp://10.9.9.2:7777").stdout)
    assert said["rows"][-1]["fault"] == "firewall"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*words: str) -> Any:
        return run_cli("doctor", *words, standalone_mode=False)

    text = tmp_path / "doctor.txt"
    well = run("--output", str(text))
    assert (well.return_value, "0 FAIL" in well.output) == (0, True)
    assert all(word in text.read_text("utf-8") for word in ("Python 3.", "installed:", "0 FAIL"))
    no_folder(monkeypatch)
    ill = run()
    assert (ill.return_value, "[shm-missing]" in ill.output, "1 FAIL" in ill.output) == (1, True, True)
    said = json.loads(run("--json").output)
    assert [row["fault"] for row in said["rows"] if row["outcome"] == "FAIL"] == ["shm-missing"]
    assert said["exit_code"] == 1
    assert "doctor.txt" in run_cli("doctor --output", tmp_path / "no" / "doctor.txt").output
