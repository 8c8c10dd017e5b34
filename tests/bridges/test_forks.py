"""A forked child of a game, or of a trainer, holds none of its parent's sockets: when that is killed, all notice."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.support.forking import FORKS, is_free, notices_over_http
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.bridges import run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors
from ue_rl.system.forks import leave_to_parent

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# argv: what it serves, the port.
GAME = """
import os, sys, time
from tests.support.games import Sum
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.protocol.spec import EnvSpec

how, port = sys.argv[1], int(sys.argv[2])
if how == "metrics":
    from types import SimpleNamespace
    from ue_rl.devtools.metrics import Metrics
    from ue_rl.devtools.metrics.serving import serve_metrics
    numbers = serve_metrics(str(port), Metrics((), lambda metrics: None))
    server = SimpleNamespace(url=numbers.__enter__())
else:
    upgrader = ShmUpgrader() if how == "shm" else None
    server = run_in_thread(Sum(EnvSpec(1, 1, num_envs=2)), port=port, upgrader=upgrader)
"""
TRAINER = """
import os, sys, time
import numpy as np
from ue_rl.connections.dialling import open_transport

transport = open_transport(sys.argv[1])
transport.reset()
transport.receive()
child = os.fork()
if not child:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    time.sleep(600)
    os._exit(0)
print(child, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["text", "shm"])
def test_a_game_that_is_killed_is_lost_at_once_and_its_port_is_free(how: str, forking: Any, slack: float) -> None:
    game = forking(GAME + FORKS, how, "0")
    url = game.line()
    with open_transport(url, timeout=5 * slack) as transport:
        begin(transport)
        game.fork()
        assert advance(transport).obs[:, 0].tolist() == [1, 1]
        game.kill()
        began = time.monotonic()
        with pytest.raises((errors.EngineDisconnected, errors.ConnectionUnusable)):
            advance(transport)
        assert time.monotonic() - began < 3 * slack
    # A child closes what it holds of the game once it has time to.
    eventually(lambda: is_free(int(url.rpartition(":")[2])), 3 * slack)


def test_what_a_child_does_not_hold_its_parent_still_has(forking: Any) -> None:
    game = forking(GAME + FORKS, "text", "0")
    with open_transport(game.line()) as transport:
        begin(transport)
        game.fork()
        for n in range(1, 4):
            assert advance(transport).obs[:, 0].tolist() == [n, n]


def test_clients_over_http_notice_too(forking: Any, slack: float) -> None:
    game = forking(GAME + FORKS, "metrics", "0")
    notices_over_http(game, "metrics", slack)


def test_a_trainer_that_is_killed_leaves_its_engine_to_the_next(forking: Any) -> None:
    from tests.support.games import Sum

    with run_in_thread(Sum(EnvSpec(1, 1))) as server:
        trainer = forking(TRAINER, server.url)
        trainer.forked()
        trainer.kill()

        with open_transport(server.url, wait=10.0) as transport:
            assert begin(transport).obs.tolist() == [[0]]


def test_a_number_that_means_something_else_by_now_is_left_alone() -> None:
    with socket.socket() as sock:
        leave_to_parent(sock)
        number = sock.fileno()
    with socket.socket() as another:
        assert another.fileno() == number
        child = os.fork()
        if not child:
            os._exit(stat.S_ISSOCK(os.fstat(number).st_mode))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_socket_may_have_the_number_of_standard_input() -> None:
    """As in a daemon, which has closed that."""
    text = (
        "import os, socket, stat\n"
        "from ue_rl.system.forks import leave_to_parent\n"
        "os.close(0)\n"
        "sock = socket.socket()\n"
        "assert sock.fileno() == 0\n"
        "leave_to_parent(sock)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(stat.S_ISSOCK(os.fstat(0).st_mode))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "0\n", done.stderr
