"""One game, in Node over TCP, in Node over a WebSocket, and in a page of Chromium: the same rows, to the bit.

The pages take steps in binary, but for "node, page of text".
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

import torch
from stable_baselines3 import PPO

from tests.plugins.web.pages import CHROMIUM, NODE, WEB, chromium, node, process
from tests.support.listening import free_port
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.text.calls import read_picture

CARTS = WEB / "carts"
GAMES = Path(__file__).with_name("games.mjs")
IN_TEXT = ("node, tcp", "node, page of text")
STEPS = 150


@contextmanager
def carts(where: str) -> Iterator[BaseTransport]:
    """Sixteen of them."""
    port = free_port()
    if where == "node, tcp":
        with node(CARTS / "node.js", str(port)), open_transport(f"tcp://127.0.0.1:{port}", wait=30.0) as transport:
            yield transport
    elif where in ("deno", "bun"):
        words = {"deno": ["deno", "run", "--allow-all"], "bun": ["bun", "run"]}[where]
        with process([*words, str(CARTS / "node.js"), f"ws://127.0.0.1:{port}"]):
            with open_transport(f"page://127.0.0.1:{port}", wait=30.0) as transport:
                yield transport
    elif where == "node, page of text":
        with node(GAMES, "carts", f"ws://127.0.0.1:{port}", "text"):
            with open_transport(f"page://127.0.0.1:{port}", wait=30.0) as transport:
                yield transport
    elif where == "node, page":
        with node(CARTS / "node.js", f"ws://127.0.0.1:{port}"):
            with open_transport(f"page://127.0.0.1:{port}", wait=30.0) as transport:
                yield transport
    else:
        with chromium(f"http://127.0.0.1:{port}/"):
            with open_transport(f"page://127.0.0.1:{port}?serve={CARTS}", wait=60.0) as transport:
                yield transport


def rollout(transport: BaseTransport, in_binary: bool) -> str:
    """All bits of a seeded rollout, in which episodes end and begin, and steps are binary or not."""
    digest = hashlib.sha256()
    assert ("binary" in transport.describe()["wiring"]) is in_binary
    actions = np.random.default_rng(5)
    transport.reset(seeds=list(range(2**62, 2**62 + 16)))
    buffers = transport.receive()
    first = buffers.obs.copy()
    assert len(np.unique(first[:, 0])) == 16
    ended = 0
    for _ in range(STEPS):
        digest.update(b"".join(part.tobytes() for part in (buffers.obs, buffers.rewards, buffers.dones)))
        over = np.flatnonzero(buffers.dones).tolist()
        ended += len(over)
        transport.send_actions(actions.uniform(-1, 1, (16, 1)).astype(np.float32), resets=over or None)
        buffers = transport.receive()
    assert ended > 16
    return digest.hexdigest()


def draws(transport: BaseTransport) -> None:
    """Its canvas is a picture of the page as it is: its rails, and the carts where they are."""
    transport.reset()
    transport.receive()
    picture = read_picture(transport.call("RENDER"))
    height, width, channels = picture.shape
    assert (channels, height > 300, width > 300) == (3, True, True)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
    transport.send_actions(np.ones((16, 1), np.float32))
    transport.receive()
    assert not np.array_equal(read_picture(transport.call("RENDER;ENV=3")), picture)


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="there is no Node here")
@pytest.mark.timeout(240)
def test_the_same_seeds_and_actions_give_the_same_rows() -> None:
    with carts("node, tcp") as transport:
        over_tcp = rollout(transport, False)
    for where in ("node, page", "node, page of text"):
        with carts(where) as transport:
            assert rollout(transport, where not in IN_TEXT) == over_tcp, where
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed: Node's rows are the same over both carriers")
    with carts("chromium") as transport:
        assert rollout(transport, True) == over_tcp
        draws(transport)


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="there is no Node here")
@pytest.mark.parametrize("runtime", ["deno", "bun"])
def test_other_runtimes_give_the_same_rows(runtime: str) -> None:
    if shutil.which(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    with carts("node, tcp") as transport:
        over_tcp = rollout(transport, False)
    with carts(runtime) as transport:
        assert rollout(transport, True) == over_tcp


def weights(transport: BaseTransport) -> dict[str, Any]:
    """Of PPO after two updates."""
    torch.set_num_threads(1)
    env = UnrealVecEnv(transport)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=128, n_epochs=2, seed=1, device="cpu")
    model.learn(2 * 32 * 16)
    return {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}


@pytest.mark.exhaustive  # that the rows are the same is tried in each run
@pytest.mark.skipif(NODE is None or CHROMIUM is None, reason="there is no Node here, or no Chromium")
@pytest.mark.timeout(240)
def test_ppo_has_the_same_weights() -> None:
    with carts("node, tcp") as transport:
        over_tcp = weights(transport)
    for where in ("node, page", "node, page of text", "chromium"):
        with carts(where) as transport:
            found = weights(transport)
        assert all(torch.equal(found[name], tensor) for name, tensor in over_tcp.items()), where
