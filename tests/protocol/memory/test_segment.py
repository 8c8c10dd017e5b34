"""Segments on every platform: names, rights, who deletes what, and the traps that others have fallen into."""

from __future__ import annotations

import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ue_rl.protocol.memory import segment
from ue_rl.protocol.memory.header import Header
from ue_rl.protocol.memory.memory import StepMemory, plan
from ue_rl.protocol.memory.segment import Segment, WindowsMappings, reclaim, reclaim_stale, unique_name
from ue_rl.system import errors, processes

CONFIG = b"CONFIG:OBS=3;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=4\n"
HERE = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport test_segment as t\n"
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no files under its mappings")
dev_shm = pytest.mark.skipif(not segment.SHM_DIR.is_dir(), reason="this system has no /dev/shm")


def engine(name: str | None = None, **fields: int) -> Segment:
    header, size = plan(4, 3, 2, ring_size=256, config=CONFIG, **{"server_pid": os.getpid(), **fields})
    made = Segment.create(size, name)
    StepMemory.create(made.memory, header, CONFIG)
    return made


def child(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A Python process that says READY when it has come to the point."""
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == b"READY"
    return process


@pytest.fixture
def killed_engine() -> Iterator[tuple[str, int]]:
    """(name, pid) of a segment whose engine was killed."""
    code = (
        "import time\nfrom ue_rl.system import processes\nmade = t.engine(server_start=processes.start_time())\n"
        "print(made.name, flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", HERE + code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    name = process.stdout.readline().decode().strip()
    assert (segment.SHM_DIR / name).exists()  # afterwards any engine that begins on this machine may delete it
    process.kill()
    process.wait()
    yield name, process.pid
    segment.unlink(name)


def test_names_are_unique_and_short_enough_for_macos() -> None:
    names = {unique_name() for _ in range(1000)}
    assert len(names) == 1000
    assert all(len(name) < segment.MAX_NAME for name in names)
    assert f"_{os.getpid()}_" in names.pop()


@posix
@dev_shm
def test_only_the_owner_may_open_it_and_only_the_maker_deletes_it() -> None:
    with engine() as made:
        path = segment.SHM_DIR / made.name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with Segment.open(made.name) as opened:
            assert opened.size == made.size
            opened.memory[5000] = 7
            assert made.memory[5000] == 7
        assert path.exists()  # the trainer has gone, the engine's segment stays
    assert not path.exists()
    made.close()


def test_no_such_segment() -> None:
    with pytest.raises(errors.EngineUnreachable, match=r"no shared memory named 'ue_rl_nobody'.*running"):
        Segment.open("ue_rl_nobody")


def test_the_name_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(segment.ENV_NAME, raising=False)
    with pytest.raises(errors.ConfigurationError, match="LUCKY_SHM_NAME"):
        Segment.open()
    with engine() as made:
        monkeypatch.setenv(segment.ENV_NAME, made.name)
        with Segment.open() as opened:
            assert opened.name == made.name


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a b", "a;b", "ü", "x" * 300, "a\0b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(errors.ConfigurationError):
        Segment.create(8192, name)
    with pytest.raises(errors.ConfigurationError):
        Segment.open(name)


def test_a_file_path_is_accepted(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.shm")
    with engine(path), Segment.open(path) as opened:
        assert StepMemory(opened.memory).header.num_envs == 4
        assert Path(path).exists()
    assert not Path(path).exists()


@posix
def test_files_that_are_no_segments_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x" * 100)
    with pytest.raises(errors.SegmentInvalid, match="smaller than its header"):
        Segment.open(str(small))
    with pytest.raises(errors.EngineUnreachable, match="cannot be mapped"):
        Segment.open(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.SegmentInvalid, match="is not a regular file"):
        Segment.open(str(tmp_path / "pipe"))
    with engine(str(tmp_path / "real")):
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with pytest.raises(errors.EngineUnreachable):
            Segment.open(str(tmp_path / "link"))
        monkeypatch.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(errors.SegmentInvalid, match="another user"):
            Segment.open(str(tmp_path / "real"))


def test_a_running_engines_name_is_not_taken_over() -> None:
    with engine() as made:
        with pytest.raises(errors.ConfigurationError, match="there is a segment named"):
            Segment.create(8192, made.name)
        with Segment.open(made.name) as opened:
            assert Header.unpack(opened.memory).num_envs == 4


@posix
def test_no_room_is_said_before_the_first_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Memory that is only promised ends a process with SIGBUS in the middle of a step."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate" if sys.platform == "linux" else "ftruncate", full)
    with pytest.raises(errors.ConfigurationError, match=r"No space left.*docker"):
        Segment.create(8192, str(tmp_path / "full"))
    assert list(tmp_path.iterdir()) == []


# -- stale segments


@posix
@dev_shm
def test_what_a_killed_engine_left_is_found_and_deleted(killed_engine: tuple[str, int]) -> None:
    name, pid = killed_engine
    with engine() as living:
        reclaim_stale()  # or a test beside this one has
        assert (segment.SHM_DIR / living.name).exists()
    assert not (segment.SHM_DIR / name).exists()
    assert not processes.alive(pid)


@posix
@dev_shm
def test_a_dead_engines_name_can_be_used_again(killed_engine: tuple[str, int]) -> None:
    name, _ = killed_engine
    with engine(name) as made:
        assert made.name == name


@posix
def test_a_reused_pid_is_somebody_else(tmp_path: Path) -> None:
    mine = processes.start_time()
    with engine(server_start=mine) as made:
        assert not reclaim(made.name)
    # Not in /dev/shm, where an engine beside this test would delete it, too.
    with engine(str(tmp_path / "old"), server_start=mine + 1) as old:
        assert reclaim(old.name)
        assert not (tmp_path / "old").exists()


@posix
@dev_shm
def test_a_file_that_is_no_segment_is_left_alone(tmp_path: Path) -> None:
    stranger = segment.SHM_DIR / f"{segment.PREFIX}notours"
    stranger.write_bytes(b"\1" * 9000)
    try:
        with pytest.raises(errors.ConfigurationError):
            Segment.create(8192, stranger.name)
    finally:
        stranger.unlink()


def test_processes() -> None:
    assert processes.alive(os.getpid())
    assert processes.alive(os.getpid(), processes.start_time())
    for nobody in (0, -1, 2**31, 2**40):
        assert not processes.alive(nobody)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not processes.alive(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="zombies are read from /proc")
def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read() == b""  # it has ended, nobody has waited for it
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.alive(process.pid)
    process.wait()


@posix
def test_where_proc_is_missing_a_signal_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert processes.start_time(proc=tmp_path) == 0
    assert processes.alive(os.getpid(), proc=tmp_path)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not processes.alive(process.pid, proc=tmp_path)

    def forbidden(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    assert processes.alive(1, proc=tmp_path)


# -- the traps


@posix
@dev_shm
@pytest.mark.parametrize("end", ["pass", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "1 / 0"])
def test_the_engines_segment_survives_the_trainers_end(end: str) -> None:
    """multiprocessing's resource tracker deletes it when the trainer exits (before Python 3.13)."""
    with engine() as made:
        code = (
            "import sys\nfrom ue_rl.connections.shm import connection as shared_memory\n"
            "from ue_rl.protocol.memory.segment import Segment\n"
            "from ue_rl.protocol.memory.memory import StepMemory\n"
            "memory = StepMemory(Segment.open(sys.argv[1]).memory)\n"
            "assert not any('resource_tracker' in name for name in sys.modules)\n"
            f"print('READY', flush=True)\n{end}"
        )
        process = child(code, made.name)
        process.wait()
        with Segment.open(made.name) as again:
            assert StepMemory(again.memory).header.num_envs == 4


def test_arrays_stay_readable_after_close() -> None:
    """np.ndarray(buffer=shm.buf) crashes the interpreter here."""
    code = (
        "made = t.engine()\nopened = t.Segment.open(made.name)\n"
        "here, there = t.StepMemory(made.memory), t.StepMemory(opened.memory)\n"
        "here.obs[:] = 7\n"
        "for memory, owner in ((there, opened), (here, made)):\n"
        "    obs, row = memory.obs, memory.obs[1, 1:]\n"
        "    memory.release(); owner.close(); owner.close(); del memory\n"
        "    assert obs.sum() == 84 and row.tolist() == [7, 7]\n"
        "    obs[:] = 7\n"
        "del here, there, obs, row\n"
        "print('READY', flush=True)"
    )
    assert child(HERE + code).wait() == 0


@posix
@dev_shm
def test_an_unlinked_segment_stays_mapped_for_those_who_have_it() -> None:
    made = engine()
    opened = Segment.open(made.name)
    memory = StepMemory(opened.memory)
    made.close()
    memory.obs[:] = 3
    assert memory.obs.sum() == 36
    opened.close()


# -- platforms that the tests do not run on, by their code path


class FakeWindows:
    """CreateFileMapping's names and the calls of _winapi that are used, over anonymous memory."""

    FILE_MAP_READ = 4

    def __init__(self) -> None:
        self.mappings: dict[str, tuple[mmap.mmap, int]] = {}
        self.handles: list[object] = []

    def mmap(self, fd: int, size: int, tagname: str) -> mmap.mmap:
        assert fd == -1
        if tagname not in self.mappings:
            self.mappings[tagname] = (mmap.mmap(-1, size), size)
        assert size <= self.mappings[tagname][1]
        return self.mappings[tagname][0]

    def OpenFileMapping(self, access: int, inherit: bool, name: str) -> str:
        if name not in self.mappings:
            raise FileNotFoundError(2, name)
        self.handles.append(name)
        return name

    def CloseHandle(self, handle: str) -> None:
        self.handles.remove(handle)

    def MapViewOfFile(self, handle: str, access: int, high: int, low: int, size: int) -> str:
        self.handles.append(f"view of {handle}")
        return handle

    def VirtualQuerySize(self, address: str) -> int:
        return self.mappings[address][1]

    def UnmapViewOfFile(self, address: str) -> None:
        self.handles.remove(f"view of {address}")


def test_windows_named_mappings() -> None:
    windows = FakeWindows()
    mappings = WindowsMappings(windows, windows.mmap)
    made = mappings.create("engine_1", 8192)
    opened, size = mappings.open("engine_1")
    assert size == 8192
    opened[100] = 5
    assert made[100] == 5
    with pytest.raises(FileExistsError):
        mappings.create("engine_1", 8192)
    with pytest.raises(FileNotFoundError):
        mappings.open("engine_2")
    assert windows.handles == []


def test_windows_processes() -> None:
    closed: list[int] = []

    class Kernel:
        def OpenProcess(self, access: int, inherit: bool, pid: int) -> int:
            return pid if pid < 3 else 0

        def GetExitCodeProcess(self, handle: int, code: object) -> int:
            code._obj.value = 259 if handle == 1 else 0  # type: ignore[attr-defined]
            return 1

        def CloseHandle(self, handle: int) -> None:
            closed.append(handle)

    assert [processes.alive_on_windows(pid, Kernel()) for pid in (1, 2, 3)] == [True, False, False]
    assert closed == [1, 2]


@posix
def test_where_there_is_no_dev_shm_shm_open_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """macOS: no directory to look into, so nothing is listed, but everything else works."""
    monkeypatch.setattr(segment, "SHM_DIR", tmp_path / "missing")
    with engine() as made, Segment.open(made.name) as opened:
        opened.memory[6000] = 1
        assert made.memory[6000] == 1
        assert reclaim_stale() == []
    with pytest.raises(errors.EngineUnreachable):
        Segment.open(made.name)


def test_an_engine_of_another_pid_namespace_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers that share /dev/shm do not see each other's processes: a pid that is dead here may live there."""
    nobody = 2**22 + 12345  # beyond the kernel's largest pid
    with engine(server_pid=nobody, server_namespace=processes.pid_namespace() + 1) as made:
        header = StepMemory(made.memory).header
        assert processes.engine_alive(header) is None
        assert not segment.reclaim(made.name)
        header.server_namespace = processes.pid_namespace()
        assert processes.engine_alive(header) is False
