"""Our RLlink client against Ray's dummy client; prints a markdown table. Needs Ray, msgpack and msgpack-numpy.

    python benchmarks/bench_rllink.py [--envs 1 8 32 128] [--rounds 9] [--steps 2000]

Clients are processes of their own, each with a server in this process that learns nothing: it sends the weights of
PPO's default module (256-256) again and again. What is measured is the wall time between a SET_STATE and the next whole
message of 2000 env-steps, in turn. Ray's client has one CartPole in its process, ours has Gymnasium's CartPole behind
an engine in a third process, over text or shared memory.
"""

from __future__ import annotations

import argparse
import os
import pickle
import socket
import statistics
import subprocess
import sys
import time
import warnings
from contextlib import ExitStack
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

from bench_tcp import table

from ue_rl.plugins.rllib.rllink.frames import FrameReader, frame
from ue_rl.plugins.rllib.rllink.msgpack_dialect import pack, unpack

DUMMY = "from ray.rllib.examples.envs.classes.utils import dummy_external_client as d; d._dummy_external_client({port})"
_DEADLINE = 120.0


class Server:
    """For one client: answers what it asks, and times its messages."""

    def __init__(self, config: bytes, weights: dict[str, Any]) -> None:
        self._config, self._weights, self._seq = config, weights, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_DEADLINE)
        self.port = self._listener.getsockname()[1]
        self._frames = FrameReader()
        self.bytes = 0

    def meet(self) -> None:
        """Until the first message of episodes is here."""
        self._client = self._listener.accept()[0]
        self._client.settimeout(_DEADLINE)
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while (kind := (message := unpack(self._body()))["type"]) != "EPISODES_AND_GET_STATE":
            if kind == "GET_STATE":
                self._send_state()
            elif kind == "GET_CONFIG":
                self._send({"type": "SET_CONFIG", "config": self._config})
            else:
                self._send({"type": "PONG"})
        assert message["timesteps"] > 0

    def round(self) -> float:
        """Env-steps a second of the next message."""
        began = time.perf_counter()
        self._send_state()
        body = self._body()
        took = time.perf_counter() - began
        self.bytes = len(body)
        steps: int = unpack(body)["timesteps"]
        return steps / took

    def close(self) -> None:
        """Hangs up."""
        self._client.close()
        self._listener.close()

    def _send_state(self) -> None:
        self._send({"type": "SET_STATE", "state": {"rl_module": self._weights, "weights_seq_no": self._seq}})
        self._seq += 1

    def _send(self, message: dict[str, Any]) -> None:
        self._client.sendall(frame(pack(message)))

    def _body(self) -> bytes:
        while (body := self._frames.next_body()) is None:
            data = self._client.recv(1 << 20)
            if not data:
                raise SystemExit("a client has hung up")
            self._frames.feed(data)
        return body


def play(port: int, num_envs: int, transport: str) -> None:
    """Our client, in its process."""
    from ue_rl.connections.engines.transport import EnginesTransport
    from ue_rl.connections.launching.starting import launched
    from ue_rl.plugins.rllib.rllink.client import RLlinkClient
    from ue_rl.system.errors import LearnerDisconnected

    serve = "-m ue_rl serve --env CartPole-v1 --shm --num-envs {num_envs} --port {port}"
    command = [sys.executable, *serve.split()]
    engines = EnginesTransport(launched(command, num_envs=num_envs, transport=transport))
    try:
        with RLlinkClient(engines, port=port, timeout=600, dialect="msgpack") as client:
            client.run()
    except LearnerDisconnected:
        pass
    finally:
        engines.close()


def main() -> None:
    """See the module's docstring."""
    warnings.simplefilter("ignore")  # Gymnasium's and RLlib's, of what is old in them
    parser = argparse.ArgumentParser()
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=2000, help="of a message")
    parser.add_argument("--client", nargs=3, metavar=("PORT", "ENVS", "TRANSPORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        port, num_envs, transport = options.client
        play(int(port), int(num_envs), transport)
        return
    import gymnasium as gym
    from ray.rllib.algorithms.ppo import PPOConfig

    env = gym.make("CartPole-v1")
    config: Any = PPOConfig().environment(
        observation_space=env.observation_space, action_space=env.action_space, env_config={}
    )
    config.env_runners(num_env_runners=0).training(train_batch_size_per_learner=options.steps)
    weights = config.get_rl_module_spec().build().get_state()
    commands = {"Ray's dummy client, 1 env in its process": [sys.executable, "-c", DUMMY]}
    for n in options.envs:
        for transport, name in (("tcp", "text"), ("shm", "shared memory")):
            words = [sys.executable, __file__, "--client", "{port}", str(n), transport]
            commands[f"ours, {n} env{'s'[: n > 1]}, {name}"] = words
    speeds: dict[str, list[float]] = {name: [] for name in commands}
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name, words in commands.items():
            servers[name] = server = Server(pickle.dumps(config), weights)
            filled = [word.replace("{port}", str(server.port)) for word in words]
            client = subprocess.Popen(filled, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(client.wait)
            stack.callback(client.terminate)
            server.meet()
            server.round()
        for _ in range(options.rounds):
            for name, server in servers.items():
                speeds[name].append(server.round())
        for server in servers.values():
            server.close()
    first = next(iter(commands))
    rows = []
    for name, found in speeds.items():
        ratio = statistics.median(ours / rays for ours, rays in zip(found, speeds[first], strict=True))
        kilobytes = servers[name].bytes / 1024
        rows.append(
            (name, f"{statistics.median(found):,.0f}", f"{max(found):,.0f}", f"{ratio:.1f}x", f"{kilobytes:.0f}")
        )
    table("RLlink clients, a server that learns nothing", "env-steps/s|median|best|vs Ray's|KB a message", rows)


if __name__ == "__main__":
    main()
