"""Bridges hosted in a thread, in a process, and until Ctrl-C: how they end, and what they say that went wrong."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.games import bridge
from tests.support.waiting import eventually
from ue_rl import errors
from ue_rl.bridges import GymnasiumBridge, run_in_process, run_in_thread
from ue_rl.shm.segment import SHM_DIR
from ue_rl.system.processes import alive


def run(*script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *script], capture_output=True, text=True, check=False, timeout=60)


def test_runners_hand_on_what_went_wrong() -> None:
    with run_in_thread(bridge()) as handle:
        assert handle.url == f"tcp://127.0.0.1:{handle.port}"
        with pytest.raises(OSError, match="in use"):
            run_in_thread(bridge(), port=handle.port)
        handle.close()
        handle.close()
    with pytest.raises(errors.ConfigurationError, match="cannot be hosted"):
        run_in_process(functools.partial(GymnasiumBridge, "NoSuchEnv-v0"))
    with pytest.raises(errors.ConfigurationError, match="exit code 3"):
        run_in_process(functools.partial(os._exit, 3))
    with run_in_thread(bridge(), host="localhost") as handle:
        assert handle.url.startswith("tcp://localhost")


HEAD = """
import functools, os
from ue_rl.bridges import run_in_process, run_shm_in_thread
from ue_rl.cli.do_nothing import DoNothingBridge
make = functools.partial(DoNothingBridge, 1)
"""


@pytest.mark.skipif(os.name != "posix", reason="the script ends without any clean-up")
def test_an_engines_process_ends_with_its_parent() -> None:
    starts = "if __name__ == '__main__': print(run_in_process(make).process.pid, flush=True), os._exit(9)"
    pid = int(run("-c", HEAD + starts).stdout)
    eventually(lambda: not alive(pid), said="the engine outlived its parent")


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(f"{HEAD}run_in_process(make)\n")
    out = run(str(script))
    assert out.returncode == 1
    assert "an engine's process was started by an import" in out.stderr  # said by the child
    last = out.stderr.splitlines()[-1]  # and by the script itself
    assert 'an engine\'s process was started outside of `if __name__ == "__main__":`' in last
    assert "exit code" not in out.stderr
    assert out.stderr.lower().count('call it under `if __name__ == "__main__":`') == 2


@pytest.mark.skipif(not SHM_DIR.is_dir(), reason="no /dev/shm")
def test_a_program_that_ends_without_close_leaves_no_segment() -> None:
    name = run("-c", f"{HEAD}print(run_shm_in_thread(make()).name)").stdout.strip()
    assert name.startswith("ue_rl_")
    assert not (SHM_DIR / name).exists()


INTERRUPTED = """
import contextlib
import io
from ue_rl.bridges import VectorBridge, serve
from ue_rl.spec import EnvSpec

def interrupt(*_):
    raise KeyboardInterrupt

class Game(VectorBridge):
    reset_envs = step_envs = None

class Stubborn(Game):
    start_training = interrupt

for game, ready in ((Game(EnvSpec(1, 1)), interrupt), (Stubborn(EnvSpec(1, 1)), print)):
    serve(game, port=0, ready=ready)
    print("returned", game.host)

class Said(io.StringIO):
    flush = interrupt

with contextlib.redirect_stderr(Said()) as said:
    serve(Game(EnvSpec(1, 1)), port=0)
print(said.getvalue(), end="")
"""


def test_ctrl_c_ends_serve_also_while_its_own_task_runs() -> None:
    out = run("-c", INTERRUPTED)
    *returned, said = out.stdout.splitlines()
    assert (returned, out.stderr) == (["returned None"] * 2, "")
    assert re.fullmatch(r"listening on tcp://127\.0\.0\.1:\d+ \(Ctrl-C stops\)", said)  # without a `ready`
