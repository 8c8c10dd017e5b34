"""WarmCli: processes that are what `ue-rl` is, and start at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import execnet
import psutil
import pytest

from tests.harness.warm_cli import WarmCli, WarmRoot
from tests.support.waiting import eventually
from ue_rl.devtools.testing import Leftovers

if sys.platform == "win32":
    pytest.skip("WarmCli forks", allow_module_level=True)

SERVE = ["serve", "--bridge", "ue_rl.cli.do_nothing:DoNothingBridge", "--port", "0"]


@pytest.fixture(scope="module")
def cli() -> Iterator[WarmCli]:
    with WarmCli(modules=["ue_rl.cli.serve"]) as warm:
        yield warm


def test_exit_codes_and_output_are_those_of_the_command(cli: WarmCli, tmp_path: Path) -> None:
    run = cli.start(["--version"], output=tmp_path / "a")
    assert run.wait() == 0
    assert "version" in run.text
    assert cli.start(["serve", "--no-such-flag"], output=tmp_path / "b").wait() == 2
    run = cli.start(["serve", "--bridge", "nothing:Here"], output=tmp_path / "c", cwd=tmp_path)
    assert run.wait() == 2
    assert "nothing" in run.text
    run = cli.start(["inspect", "--port", "1"], output=tmp_path / "d")
    assert run.wait() == 1
    assert "EngineUnreachable" in run.text


def test_a_process_is_killed_and_another_one_goes_on(cli: WarmCli, tmp_path: Path) -> None:
    runs = [cli.start(SERVE, output=tmp_path / f"{n}") for n in range(2)]
    for run in runs:
        assert run.wait_for(r"tcp://\S+")
        assert os.getpgid(run.pid) == os.getsid(run.pid) == run.pid
    runs[0].signal(signal.SIGKILL)
    assert runs[0].wait() == -9
    assert psutil.Process(runs[1].pid).is_running()
    runs[1].signal(signal.SIGINT, group=True)
    assert runs[1].wait() == 0
    assert "stopped" in runs[1].text
    runs[1].signal(signal.SIGKILL)  # gone already


def test_waiting_has_an_end(cli: WarmCli, tmp_path: Path) -> None:
    run = cli.start(SERVE, output=tmp_path / "out")
    with pytest.raises(AssertionError, match="no 'never said'"):
        run.wait_for("never said", 0.05)
    with pytest.raises(AssertionError, match="still running"):
        run.wait(0.05)
    run.signal(signal.SIGKILL)
    with pytest.raises(AssertionError, match="exit code -9"):
        run.wait_for("never said", 10)


def test_environment_folder_and_limits(cli: WarmCli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, pathlib\nprint(dict(os.environ), flush=True)\npathlib.Path('big').write_bytes(bytes(5000))\n"
    )
    run = cli.start(
        ["serve", "--bridge", "mine:Mine"],
        output=tmp_path / "out",
        cwd=tmp_path,
        environment={"A": "b"},
        file_limit=4096,
    )
    assert run.wait() == 1
    assert "'A': 'b'" in run.text
    assert "PATH" not in run.text
    assert "File too large" in run.text
    assert (tmp_path / "big").stat().st_size == 4096


def test_close_kills_what_runs(tmp_path: Path) -> None:
    with Leftovers():
        warm = WarmCli(modules=[])
        run = warm.start(SERVE, output=tmp_path / "out")
        warm.close()
        assert run.wait(1) == -9
        warm.close()


def test_it_is_hung_up_on_though_who_starts_it_is_not(tmp_path: Path) -> None:
    """As where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with WarmCli(modules=[]) as warm:
            run = warm.start(SERVE, output=tmp_path / "out")
            assert run.wait_for(r"tcp://\S+")
            run.signal(signal.SIGHUP)
            assert run.wait() == 128 + signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


def test_several_share_one_import_and_outlive_it(tmp_path: Path) -> None:
    with Leftovers():
        root = WarmRoot(modules=["ue_rl.cli.serve"])
        with WarmCli(root=root.path) as first, WarmCli(root=root.path) as second:
            runs = [cli.start(SERVE, output=tmp_path / f"{n}") for n, cli in enumerate((first, second))]
            for run in runs:
                assert run.wait_for(r"tcp://\S+")
                assert os.getsid(run.pid) == run.pid
            root.close()
            root.close()
            assert not Path(root.path).exists()
            first.close()
            assert runs[0].wait(1) == -9
            assert second.start(["--version"], output=tmp_path / "last").wait() == 0
            runs[1].signal(signal.SIGINT)
            assert runs[1].wait() == 0


def test_a_root_ends_with_who_started_it(tmp_path: Path) -> None:
    text = "import os; from tests.harness.warm_cli import WarmRoot; print(WarmRoot([]).pid, flush=True); os._exit(1)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    eventually(lambda: not psutil.pid_exists(int(done.stdout)))


WORKER = """
import os
import signal
import sys

state = "decimal" in sys.modules, os.getppid(), os.getcwd(), os.environ["WARM_TEST"], sys.argv, os.read(0, 1)
ctrl_c = os.getsid(0), signal.getsignal(signal.SIGINT) is signal.default_int_handler
channel.send((os.getpid(), *state, *ctrl_c))
print("on stdout")
print("on stderr", file=sys.stderr)
os.close(2)
channel.receive()
"""


def test_a_worker_of_xdist_has_its_own_streams_and_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Leftovers(), contextlib.closing(WarmRoot(modules=[], libraries=["decimal"])) as root:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("WARM_TEST", "of this test")
        group = execnet.Group()
        gateways = [group.makegateway(f"popen//python={root.python}") for _ in range(2)]
        channels = [gateway.remote_exec(WORKER) for gateway in gateways]
        told = [channel.receive(30) for channel in channels]
        assert len({pid for pid, *_ in told}) == 2
        for _, *state in told:
            assert state == [True, root.pid, str(tmp_path), "of this test", ["-c"], b"", os.getsid(0), True]
        for channel in channels:
            channel.send("go on")
            channel.waitclose(30)
        group.terminate(10)
        output = capfd.readouterr()
        assert output.out == ""  # what a worker prints would mix with what it tells xdist
        assert output.err == "on stderr\n" * 2


def test_workers_end_with_their_root_whatever_they_do() -> None:
    with contextlib.closing(WarmRoot(modules=[])) as root:
        group = execnet.Group()
        channel = group.makegateway(f"popen//python={root.python}").remote_exec(
            "import os, time\nchannel.send(os.getpid())\ntime.sleep(600)"
        )
        pid = channel.receive(30)
        assert psutil.Process(pid).is_running()
        root.close()
        with pytest.raises(EOFError):
            channel.receive(30)
        eventually(lambda: not psutil.pid_exists(pid))
        group.terminate(10)
