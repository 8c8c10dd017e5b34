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
from ue_rl.bridges import GymnasiumBridge, run_in_process, run_in_thread, serve
from ue_rl.protocol.memory.segment import SHM_DIR
from ue_rl.system import errors
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
from ue_rl.protocol.spec import EnvSpec

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


def test_serve_says_in_one_sentence_that_its_port_is_taken() -> None:
    with run_in_thread(bridge()) as handle:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{handle.port}.*already in use.*another port="):
            serve(bridge(), port=handle.port)
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0.*an address of this machine"):
        serve(bridge(), host="192.0.2.1", port=0)


def test_an_error_of_the_game_is_none_of_the_port() -> None:
    def fails(server: object) -> None:
        raise OSError("the game's own")

    with pytest.raises(OSError, match=r"^the game's own$"):
        serve(bridge(), port=0, ready=fails)


def test_ctrl_c_ends_serve_also_while_its_own_task_runs() -> None:
    out = run("-c", INTERRUPTED)
    *returned, said = out.stdout.splitlines()
    assert (returned, out.stderr) == (["returned None"] * 2, "")
    assert re.fullmatch(r"listening on tcp://127\.0\.0\.1:\d+ \(Ctrl-C stops\)", said)  # without a `ready`


NOTEBOOK = """
import threading
import numpy as np
from ue_rl.bridges import VectorBridge, run_in_process, run_shm_in_process
from ue_rl.connections.dialling import open_transport
from ue_rl.protocol.spec import EnvSpec

SIZE = 3
LOCK = threading.Lock()

class Cell(VectorBridge):
    # A game that a notebook's cell defines.
    def __init__(self, size=SIZE):
        super().__init__(EnvSpec(obs_size=size, act_size=1))

    def reset_envs(self, env_ids, seeds, options):
        self.outbox.obs[env_ids] = np.pi

    def step_envs(self, actions, env_ids):
        pass

def make():
    return Cell(5)

for factory in (Cell, lambda: Cell(4), make):
    with run_in_process(factory) as engine:
        transport = open_transport(engine.url)
        print(transport.connect().obs_size)
        transport.close()
try:
    run_in_process(lambda: (LOCK, Cell()))
except Exception as error:
    print(error)
"""


def test_a_notebooks_cell_and_a_lambda_are_hosted_in_a_process() -> None:
    """As it is in a notebook, `-c` has no main module that another process could import."""
    pytest.importorskip("cloudpickle", reason="Gymnasium brings it")
    out = run("-c", NOTEBOOK)
    *sizes, refused = out.stdout.splitlines()
    assert (sizes, out.stderr) == (["3", "4", "5"], "")
    assert refused.startswith("the factory cannot be sent to a process of its own (field factory)")
    assert "run_in_thread(factory())" in refused


def test_without_cloudpickle_the_error_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(errors.ConfigurationError, match=r"run_in_thread\(factory\(\)\), or install .*cloudpickle"):
        run_in_process(lambda: bridge(2))
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1")) as engine:
        assert engine.url.startswith("tcp://")
    hidden = type("Hidden", (GymnasiumBridge,), {"__module__": "nowhere_to_be_found"})
    monkeypatch.setitem(sys.modules, "nowhere_to_be_found", type(sys)("nowhere_to_be_found"))
    sys.modules["nowhere_to_be_found"].Hidden = hidden  # type: ignore[attr-defined]
    with pytest.raises(errors.ConfigurationError, match=r"(?s)ModuleNotFoundError.*host it in this process"):
        run_in_process(functools.partial(hidden, "CartPole-v1"))
