"""Cells of a notebook are run, interrupted and run again, in one process that lives on."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ue_rl
from tests.harness.exactness import PPO, At, begun, env_of
from tests.harness.warm_cli import WarmCli
from tests.support.waiting import eventually
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.saving.autosave import AutoSave

pytestmark = pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent by kill")

SETUP = """
import os, signal, sys, torch
from stable_baselines3.common.callbacks import BaseCallback
from tests.harness.exactness import *

torch.set_num_threads(1)
FOLDER = {folder!r}

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
"""
CELL = """
env = env_of()
autosave = AutoSave(FOLDER)
model = autosave.resume(PPO, env) or new("ppo", env)
model.learn(144, callback=[autosave, *more])
"""
SAME_ENV = CELL.partition("\n")[2].partition("\n")[2]

# Everything that a Ctrl-C may hit: a step, an update (twice, so that it does not wait), the beginning.
PLAIN = (
    SETUP
    + """
CELL, SAME_ENV = {cell!r}, {same_env!r}

def run(cell, more):
    try:
        exec(cell, globals(), globals().update(more=more))
    except KeyboardInterrupt:
        return "interrupted"
    return "done"

class InUpdate(BaseCallback):
    def _on_step(self):
        return True

    def _on_rollout_end(self):
        interrupt()
        interrupt()

def ctrl_c_works():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    try:
        interrupt()
        for _ in range(1000): pass
    except KeyboardInterrupt as error:
        return not str(error)
    return False

assert run(CELL, [At(25, interrupt)]) == "interrupted"
assert ctrl_c_works()
assert run(CELL, [At(100, interrupt)]) == "interrupted"
assert run(SAME_ENV, [At(65, interrupt)]) == "interrupted"
assert run("model.learn(144, callback=autosave, reset_num_timesteps=False)", []) == "done", "learn on"
assert model.num_timesteps > 144
assert ctrl_c_works()
"""
)
IN_UPDATE = """
assert run(CELL, [InUpdate()]) == "interrupted"
assert run(CELL, [InUpdate()]) == "interrupted"
assert run(SAME_ENV, []) == "done"
assert model.num_timesteps == 144
assert ctrl_c_works()
"""
AGAIN = """
for cell in (CELL, SAME_ENV):
    try:
        run(cell, [At(75 if cell == CELL else 100, broken)])
    except Broken:
        pass
autosave = AutoSave(FOLDER)
env = env_of()
assert autosave.resume(PPO, env).num_timesteps == 96, "what learn() had left unsaved was saved"
assert run(CELL, []) == "done", "nobody learns with the one before"
assert model.num_timesteps == 144
assert ctrl_c_works()
whole = learn("ppo", env_of(), FOLDER + "/whole")
assert differ(model, whole) == []
"""


SLOW = """
import time
TOTAL = 100_000

def running():
    with open({started!r}, "w") as file:
        file.write(str(os.getpid()))

class Slow(BaseCallback):
    def _on_step(self):
        time.sleep(0.01)
        return True
"""


HEAD = PLAIN.partition("assert run(")[0]


@pytest.mark.parametrize("what", [PLAIN, HEAD + IN_UPDATE, HEAD + AGAIN], ids=["ctrl_c", "in_update", "exception"])
def test_a_cell_is_run_again(tmp_path: Path, what: str, warm_cli: WarmCli) -> None:
    text = what.replace("{folder!r}", repr(str(tmp_path)))
    text = text.replace("{cell!r}", repr(CELL)).replace("{same_env!r}", repr(SAME_ENV))
    ended = warm_cli.run_script(text, folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.exhaustive
def test_a_kernel_is_interrupted_twice_and_learns_on(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: the plain process above is the test")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: the plain process above is the test")
    nbformat = pytest.importorskip("nbformat")
    started = tmp_path / "started"
    once = CELL.replace("\nautosave", "\nautosave = None if 'autosave' not in globals() else autosave\nautosave")
    cell = (
        once.replace("= AutoSave(FOLDER)", "= autosave or AutoSave(FOLDER)")
        .replace("144", "TOTAL")
        .replace("*more", "At(0, running), Slow()")
    )
    head = SETUP.replace("{folder!r}", repr(str(tmp_path / "run"))) + SLOW.replace("{started!r}", repr(str(started)))
    cells = [head, cell, cell, "TOTAL = model.num_timesteps + 100", cell]
    cells.append("model.learn(100, callback=autosave, reset_num_timesteps=False); print(model.num_timesteps - TOTAL)")
    cells.append("running()\nwhile True: pass")  # Ctrl-C works after it
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    client = nbclient.NotebookClient(notebook, timeout=120, iopub_timeout=60, kernel_name="python3", allow_errors=True)
    variables = {"PYTHONPATH": str(Path(ue_rl.__file__).parents[1])}

    def interrupt() -> None:
        """As soon as the cell runs."""
        eventually(lambda: started.exists() and started.read_text(), 60)
        time.sleep(0.3)
        os.kill(int(started.read_text()), signal.SIGINT)

    seen: list[Any] = []
    with client.setup_kernel(env={**os.environ, **variables}):
        for index, each in enumerate(notebook.cells):
            started.unlink(missing_ok=True)
            thread = None
            if index in (1, 2, 6):
                thread = threading.Thread(target=interrupt)
                thread.start()
            client.execute_cell(each, index)
            if thread is not None:
                thread.join()
            seen.append([(one.output_type, one.get("ename", one.get("text"))) for one in each.outputs])
    errors = [[name for kind, name in outputs if kind == "error"] for outputs in seen]
    assert errors == [[], ["KeyboardInterrupt"], ["KeyboardInterrupt"], [], [], [], ["KeyboardInterrupt"]], seen
    assert any(kind == "stream" and int(text) >= 100 for kind, text in seen[5]), seen[5]


def test_two_that_learn_at_the_same_time_are_refused(tmp_path: Path) -> None:
    """One that is learning, in another thread, does not give its lock up."""
    learning, over = threading.Event(), threading.Event()

    def learn() -> None:
        autosave, model = begun("ppo", env_of(), tmp_path)

        def wait() -> None:
            learning.set()
            over.wait(60)

        model.learn(48, callback=[autosave, At(9, wait)])

    thread = threading.Thread(target=learn)
    thread.start()
    assert learning.wait(60)
    with pytest.raises(ConfigurationError, match=f"is being written by pid {os.getpid()}"):
        AutoSave(tmp_path).resume(PPO, env_of())
    over.set()
    thread.join()
    with_more = AutoSave(tmp_path, signals=False)
    assert with_more.resume(PPO, env_of()) is not None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
