"""Free ports, and that two who look for one at once never find the same."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import psutil
import pytest

from ue_rl.connections.launching import ports
from ue_rl.system.errors import ConfigurationError, EngineNotStarted


@pytest.fixture
def few() -> Iterator[list[int]]:
    """The only three ports that are looked at; they are free."""
    numbers = []
    for _ in range(3):
        port = ports.find()
        numbers.append(port.number)
        port.release()
    yield numbers
    for number in numbers:
        assert not (ports.folder() / f"{number}.lock").exists()


def test_a_port_is_kept_until_it_is_released(few: list[int]) -> None:
    held = [ports.find(few) for _ in few]
    assert [port.number for port in held] == few
    with pytest.raises(EngineNotStarted, match="no free port"):
        ports.find(few)
    with pytest.raises(EngineNotStarted, match="another run has started"):
        ports.take(few[1])
    held[1].release()
    held[1].release()
    again = ports.find(few)
    assert again.number == few[1]
    for port in (*held, again):
        port.release()


def test_one_that_is_in_use_is_passed_over(few: list[int]) -> None:
    with socket.create_server(("127.0.0.1", few[0])):
        port = ports.find(few)
        assert port.number == few[1]
        port.release()
        with pytest.raises(EngineNotStarted, match=f"port {few[0]} is in use"):
            ports.take(few[0])


def test_they_are_outside_of_the_range_of_outgoing_connections(tmp_path: Path) -> None:
    table = tmp_path / "range"
    for text, expected in (("20000\t31999\n", range(32_000, 32_768)), ("1024\t65535\n", range(20_000, 32_768))):
        table.write_text(text)
        assert sorted(ports.candidates(table)) == list(expected)
    table.unlink()
    assert sorted(ports.candidates(table)) == list(range(20_000, 32_768))


def test_threads_that_look_at_once(few: list[int]) -> None:
    for _ in range(20):
        with ThreadPoolExecutor(3) as pool:
            held = list(pool.map(lambda _: ports.find(few), range(3)))
        assert sorted(port.number for port in held) == sorted(few)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda port: port.release(), held))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_holder_that_is_killed_gives_it_back(few: list[int]) -> None:
    code = f"""
        import signal
        from ue_rl.connections.launching import ports
        port = ports.take({few[0]})
        print("held", flush=True)
        signal.pause()
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(EngineNotStarted, match="another run"):
        ports.take(few[0])
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    ports.take(few[0]).release()


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted there")
def test_a_lock_file_that_was_deleted_or_replaced_holds_nothing(few: list[int]) -> None:
    path, times = ports.folder() / f"{few[0]}.lock", 0

    def late(file: IO[bytes]) -> None:
        nonlocal times
        times += 1
        if times <= 2:  # whoever had it released it between our opening and our locking, and somebody took it anew
            path.unlink()
        if times == 2:
            path.touch()
        ports.lock_file(file)

    port = ports.take(few[0], late)
    assert times == 3
    assert os.path.samestat(os.fstat(port.fd), path.stat())
    with pytest.raises(EngineNotStarted, match="another run"):
        ports.take(few[0])
    path.unlink()
    path.touch()
    port.release()
    assert path.exists()  # it is somebody else's now
    path.unlink()


def test_a_port_of_ipv6_is_in_use_too(few: list[int]) -> None:
    try:
        listener = socket.create_server(("::1", few[0]), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6")
    with listener:
        assert not ports.bindable(few[0])
        port = ports.find(few)
        assert port.number == few[1]
        port.release()
        with pytest.raises(EngineNotStarted, match="in use"):
            ports.take(few[0])


@pytest.mark.skipif(sys.platform == "win32", reason="users")
def test_somebody_elses_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ports.folder()
    user = 2**30 + os.getpid()  # another run of the tests has another one
    monkeypatch.setattr(os, "getuid", lambda: user)
    other = Path(f"/tmp/ue_rl_ports_{user}")
    other.symlink_to(real)
    try:
        with pytest.raises(ConfigurationError, match="belongs to another user"):
            ports.folder()
    finally:
        other.unlink()


def test_who_holds_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert re.fullmatch(rf"process {os.getpid()} \(.+\) listens on port {number}", ports.holder(number))
    assert ports.holder(number) == ""


def test_one_whom_the_system_does_not_name_holds_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_connections", lambda kind: [])
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert ports.holder(number) == f"another program has taken port {number}"
