"""`ue-rl serve --shm`, `ue-rl serve shm://NAME` and ?transport=.., as a user meets them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import ue_rl
from tests.harness.warm_cli import WarmCli, WarmProcess
from tests.support.command_line import ok, refused
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.memory import segment
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends SIGINT as a terminal would")
CART_POLE = ["--env", "CartPole-v1", "--num-envs", "2"]


def stop(process: WarmProcess) -> str:
    process.signal(signal.SIGINT)
    assert process.wait() == 0, process.text
    output = process.text
    assert "Traceback" not in output
    assert not list(segment.SHM_DIR.glob(f"{segment.PREFIX}{process.pid}_*"))
    return output


@pytest.mark.parametrize("served", [[*CART_POLE, "--shm", "--port", "0"]], indirect=True)
def test_serve_shm_offers_the_upgrade(served: tuple[WarmProcess, str]) -> None:
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
def test_serve_by_name_and_train_there(served: tuple[WarmProcess, str], tmp_path: Path) -> None:
    process, url = served
    words = "train --timesteps 128 --n-steps 32 --batch-size 32 --no-export --log-dir"
    assert "shared memory, doorbell in memory" in " ".join(ok(words, tmp_path / "runs", url).split())
    assert list((tmp_path / "runs").glob("ppo-*engine.shm-1"))
    stop(process)
    assert not Path(url.removeprefix("shm://")).exists()


@pytest.mark.parametrize("served", [[*CART_POLE, "--tick-rate", "1000", "--port", "0"]], indirect=True)
def test_without_an_offer_shm_is_refused_by_name(served: tuple[WarmProcess, str]) -> None:
    assert "serve --shm" in str(refused("inspect", f"{served[1]}?transport=shm", by=UnsupportedByEngine))


def test_where_shared_memory_is_impossible_serve_says_so(
    monkeypatch: pytest.MonkeyPatch, light_cli: WarmCli, tmp_path: Path
) -> None:
    monkeypatch.setenv("UE_RL_PURE", "1")
    process = light_cli.start(["serve", *CART_POLE, "--shm", "--port", "0"], output=tmp_path / "served.txt")
    process.wait_for("CONFIG:")
    output = stop(process)
    assert "trainers are served text only" in output
    assert "UE_RL_PURE is set" in output
    assert "on offer" not in output
    for more in (["shm://x"], ["--shm", "--images"]):
        error = refused("serve", "--env", "no such env, which is not made first", *more, by=ConfigurationError)
        assert "needs ue_rl's compiled module" in str(error)
