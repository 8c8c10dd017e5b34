"""Leftovers sees each kind of thing that a test may leave, and nothing else."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from ue_rl.devtools.testing import ChaosEngine, Leftovers
from ue_rl.devtools.testing.leftovers import MARK
from ue_rl.protocol.memory.segment import Segment

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def test_nothing_is_left_of_a_test_that_cleans_up(tmp_path: Path) -> None:
    before = tempfile.gettempdir()
    with Leftovers(tmp_path / "tmp") as leftovers:
        assert tempfile.gettempdir() == str(tmp_path / "tmp")
        assert os.environ[MARK] == leftovers.mark == leftovers.environment[MARK]
        with ChaosEngine(shm=True, children=1), Segment.create(4096), tempfile.TemporaryDirectory():
            assert len(leftovers.found()) == 4  # the engine, its child, our segment, the folder
    assert MARK not in os.environ
    assert tempfile.gettempdir() == before


@pytest.mark.slow
def test_a_process_and_its_child_with_their_ports() -> None:
    with Leftovers(within=0) as leftovers:
        engine = ChaosEngine(children=1)
        with pytest.raises(AssertionError, match=rf"process {engine.pid} .*chaos.*listening on \[{engine.port}\]") as e:
            leftovers.check()
        assert str(e.value).count("process") == 2
        engine.kill()
        assert len(leftovers.found()) == 1  # its child
        leftovers.end()
        assert leftovers.found() == []
        engine.close()


def test_a_zombie() -> None:
    with Leftovers(within=0) as leftovers:
        process = subprocess.Popen([sys.executable, "-S", "-c", ""])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert leftovers.found() == [f"zombie {process.pid}"]
        process.wait()


def test_a_port_of_this_process() -> None:
    with Leftovers(within=0) as leftovers, socket.create_server(("127.0.0.1", 0)) as listener:
        assert leftovers.found() == [f"this process listens on port {listener.getsockname()[1]}"]


def test_a_segment_of_a_process_that_has_died(tmp_path: Path) -> None:
    # In a folder of its own: engines of other tests that run now delete what dead ones have left in /dev/shm.
    with Leftovers(within=0, segments=tmp_path) as leftovers:
        code = (
            "import os, pathlib, sys; from ue_rl.protocol.memory import segment; "
            "segment.SHM_DIR = pathlib.Path(sys.argv[1]); "
            "made = segment.Segment.create(4096); sys.stdin.read(); os._exit(1)"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE)
        eventually(lambda: any(leftovers._of_us.values()))  # a port lock of a neighbour may stand there, too
        process.communicate()
        (name,) = (path.name for path in tmp_path.iterdir())
        assert leftovers.found() == [f"segment {tmp_path / name}"]
        leftovers.end()
        assert leftovers.found() == []
        assert not list(tmp_path.iterdir())


def test_a_segment_of_a_dead_process_of_another_test(tmp_path: Path) -> None:
    other = subprocess.Popen(SLEEP)  # started before: without our mark
    with Leftovers(within=0, segments=tmp_path) as leftovers:
        segment = tmp_path / f"ue_rl_{other.pid}_0123abcd"
        segment.touch()
        eventually(lambda: str(segment) in leftovers._of_us)
        other.kill()
        other.wait()
        assert leftovers.found() == []
    assert segment.exists()  # it is the other test's to delete


def test_a_segment_whose_maker_nobody_has_seen(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-S", "-c", ""])
    dead.wait()
    with Leftovers(within=0, segments=tmp_path) as leftovers:
        (tmp_path / f"ue_rl_{dead.pid}_0123abcd").touch()
        assert leftovers.found() == []


def test_a_port_lock_is_left_by_whoever_took_it(tmp_path: Path) -> None:
    (tmp_path / "ports").mkdir()
    code = (
        "import os, pathlib, sys; from ue_rl.connections.launching import ports; "
        "ports.folder = lambda: pathlib.Path(sys.argv[1]); "
        "taken = ports.take(int(sys.argv[2])); print('taken', flush=True); sys.stdin.read(); os._exit(1)"
    )

    def take(number: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", code, str(tmp_path / "ports"), str(number)]
        taker = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert taker.stdout is not None
        taker.stdout.readline()
        return taker

    neighbour = subprocess.Popen(SLEEP)  # started before: without our mark
    with Leftovers(within=0, segments=tmp_path, locks=tmp_path / "ports") as leftovers:
        (tmp_path / "ports" / "21001.lock").write_text(str(neighbour.pid))
        ours = take(21002)
        eventually(lambda: len(leftovers._of_us) == 2)
        neighbour.kill()
        neighbour.wait()
        ours.communicate()
        assert leftovers.found() == [f"port lock {tmp_path / 'ports' / '21002.lock'}"]
        leftovers.end()
    assert [path.name for path in (tmp_path / "ports").iterdir()] == ["21001.lock"]


def test_a_temporary_file_fails_the_block(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"temporary file .*half"):
        with Leftovers(tmp_path, within=0):
            Path(tempfile.gettempdir(), "half").touch()


def test_others_do_not_count() -> None:
    other = subprocess.Popen(SLEEP)
    with Leftovers(within=0) as leftovers:
        assert leftovers.found() == []
    other.kill()
    other.wait()
