"""`ue-rl serve --shm`, `ue-rl serve shm://NAME` and ?transport=.., as a user meets them."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ue_rl
from tests.cli.conftest import rest_of
from tests.support.command_line import ok, refused
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.memory import segment
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal would")
CART_POLE = ["--env", "CartPole-v1", "--num-envs", "2"]


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    output = rest_of(process)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    assert not list(segment.SHM_DIR.glob(f"{segment.PREFIX}{process.pid}_*"))
    return output


@pytest.mark.parametrize("served", [[*CART_POLE, "--shm", "--port", "0"]], indirect=True)
def test_serve_shm_offers_the_upgrade(served: tuple[subprocess.Popen[str], str]) -> None:
    process, url = served
    for transport in ("auto", "shm", "tcp"):
        env = ue_rl.connect(url, transport, timeout=10)
        assert isinstance(env.transport, SharedMemoryConnection) == (transport != "tcp")
        env.reset()
        env.close()
    assert "shared memory, socket doorbell" in ok("inspect --steps 20", url).replace("\n", "")
    assert "shared channel" in ok("inspect --steps 20", f"{url}?transport=tcp").replace("\n", "")
    output = stop(process)
    assert "attached to ue_rl_" in output
    assert "the trainer has gone" in output


@pytest.mark.parametrize("served", [[*CART_POLE, "shm://TMP/engine.shm"]], indirect=True)
def test_serve_by_name_and_train_there(served: tuple[subprocess.Popen[str], str], tmp_path: Path) -> None:
    process, url = served
    words = "train --timesteps 128 --n-steps 32 --batch-size 32 --no-export --log-dir"
    assert "shared memory, doorbell in memory" in " ".join(ok(words, tmp_path / "runs", url).split())
    assert list((tmp_path / "runs").glob("ppo-*engine.shm-1"))
    stop(process)
    assert not Path(url.removeprefix("shm://")).exists()


@pytest.mark.parametrize("served", [[*CART_POLE, "--tick-rate", "1000", "--port", "0"]], indirect=True)
def test_without_an_offer_shm_is_refused_by_name(served: tuple[subprocess.Popen[str], str]) -> None:
    assert "serve --shm" in str(refused("inspect", f"{served[1]}?transport=shm", by=UnsupportedByEngine))


def test_where_shared_memory_is_impossible_serve_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UE_RL_PURE", "1")
    words = [sys.executable, "-m", "ue_rl", "serve", *CART_POLE, "--shm", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            output = "".join(itertools.takewhile(lambda line: not line.startswith("CONFIG:"), process.stdout))
            output += stop(process)
        finally:
            process.kill()
    assert "trainers are served text only" in output
    assert "UE_RL_PURE is set" in output
    assert "on offer" not in output
    for more in (["shm://x"], ["--shm", "--images"]):
        with monkeypatch.context() as patch:
            patch.setattr("ue_rl.bridges.GymnasiumBridge", None)  # is not made first
            error = refused("serve", *CART_POLE, *more, by=ConfigurationError)
        assert "needs ue_rl's compiled module" in str(error)
