"""A client of RLlink that is right, written without ue_rl's own, and the mistakes that one can make."""

from __future__ import annotations

import json
import math
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack
import numpy as np

from ue_rl.rllink.networks import ACTIVATIONS

OBS = 3


def walk(obs: Any, actions: Any) -> tuple[Any, Any, Any]:
    """The equations of the env that is played: what SessionChecks takes."""
    pushed = obs * 0.9 + np.asarray(actions).reshape(len(obs), -1).sum(axis=1, keepdims=True) / 10
    return pushed, pushed.sum(axis=1), pushed[:, 0] > 1.25


def codec(value: Any) -> Any:
    """An array as msgpack-numpy has it."""
    if isinstance(value, np.ndarray):
        head = {b"nd": True, b"type": value.dtype.str, b"kind": b"", b"shape": list(value.shape)}
        return head | {b"data": np.ascontiguousarray(value).tobytes()}
    raise TypeError(type(value))


def decoded(value: dict[Any, Any]) -> Any:
    if b"nd" in value:
        return np.frombuffer(value[b"data"], value[b"type"]).reshape(value[b"shape"])
    return value


@dataclass
class Episode:
    """What was played of one episode."""

    id_: str
    started: int
    obs: list[Any]
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    logits: list[Any] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)


@dataclass
class HandWrittenClient:
    """Plays `walk` in num_envs envs for a few messages.

    Args:
        box: the action is a Box of two numbers within -2 to 2; else a choice of three.
        message, episode: change the message and each episode's map before it is sent. asks: what is asked for first.
    """

    port: int
    dialect: str = "msgpack"
    box: bool = False
    num_envs: int = 2
    steps: int = 40
    length: int = 7
    activation: str = "tanh"
    asks: tuple[str, ...] = ("PING", "GET_CONFIG", "GET_STATE")
    message: Callable[[dict[str, Any]], Any] = lambda message: message
    episode: Callable[[dict[str, Any]], Any] = lambda episode: episode
    frames: Callable[[bytes], bytes] = lambda body: b"%08d" % len(body) + body
    stale: bool = False
    new_ids: bool = False
    never_ends: bool = False
    shifted_chunks: bool = False

    def play(self, messages: int = 3) -> None:
        """Everything; returns early where the server hangs up."""
        self._rng = np.random.default_rng(0)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as self._socket:
            try:
                for ask in self.asks:
                    self._answer(self._ask({"type": ask}))
                envs = [self._fresh() for _ in range(self.num_envs)]
                for _ in range(messages):
                    self._ask(self._message(envs))
                    self._answer(None)
            except (ConnectionError, TimeoutError):
                return

    # -- the wire

    def _ask(self, message: Any) -> str:
        packed = json.dumps(message, default=np.ndarray.tolist).encode() if self.dialect == "json" else None
        body = packed or msgpack.packb(message, use_bin_type=True, default=codec)
        self._socket.sendall(self.frames(body))
        return "an answer"

    def _answer(self, asked: str | None) -> None:
        body = self._read(int(self._read(8)))
        if self.dialect == "json":
            return
        message = msgpack.unpackb(body, raw=False, object_hook=decoded, strict_map_key=False)
        if message["type"] == "SET_STATE" and not (self.stale and asked is None):
            self._weights = message["state"]["rl_module"]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data

    # -- the play

    def _fresh(self) -> Episode:
        return Episode(uuid.uuid4().hex, 0, [self._rng.normal(size=OBS).astype(np.float32)])

    def _logits(self, obs: Any) -> Any:
        layers = sorted(name for name in self._weights if name.endswith("weight") and "encoder" in name)
        for name in layers:
            weight, bias = self._weights[name], self._weights[name.replace("weight", "bias")]
            obs = ACTIVATIONS[self.activation](obs @ weight.T + bias)
        return obs @ self._weights["pi.net.mlp.0.weight"].T + self._weights["pi.net.mlp.0.bias"]

    def _act(self, logits: Any) -> tuple[Any, float, Any]:
        if self.box:
            noise = self._rng.normal(size=2).astype(np.float32)
            action = (logits[:2] + np.exp(logits[2:]) * noise).astype(np.float32)
            logp = -0.5 * noise**2 - logits[2:] - 0.5 * math.log(2 * math.pi)
            return action, float(logp.sum()), np.clip(2 * action, -2, 2)
        odds = np.exp(logits - logits.max())
        odds = odds / odds.sum()
        action = int(self._rng.choice(3, p=odds / odds.sum()))
        return action, float(np.log(odds[action])), action

    def _message(self, envs: list[Episode]) -> Any:
        episodes, taken = [], 0
        while taken < self.steps:
            for at, env in enumerate(envs):
                logits = self._logits(env.obs[-1])
                action, logp, pushed = self._act(logits)
                obs, rewards, terminated = walk(env.obs[-1][None], np.asarray(pushed)[None])
                env.obs.append(obs[0].astype(np.float32))
                env.actions.append(action)
                env.rewards.append(float(rewards[0]))
                env.logits.append(logits)
                env.logp.append(logp)
                taken += 1
                if terminated[0] or env.started + len(env.actions) >= self.length:
                    episodes.append(self._map(env, bool(terminated[0]), not terminated[0]))
                    envs[at] = self._fresh()
        for at, env in enumerate(envs):
            if env.actions:
                episodes.append(self._map(env, False, False))
                id_ = uuid.uuid4().hex if self.new_ids else env.id_
                first = env.obs[-1] + 1 if self.shifted_chunks else env.obs[-1]
                envs[at] = Episode(id_, env.started + len(env.actions), [first])
        kept = [made for made in map(self.episode, episodes) if made is not None]
        return self.message({"type": "EPISODES_AND_GET_STATE", "episodes": kept, "timesteps": taken})

    def _map(self, env: Episode, terminated: bool, truncated: bool) -> dict[str, Any]:
        arrays = {
            "obs": np.stack(env.obs), "actions": np.array(env.actions), "rewards": np.float32(env.rewards),
            "action_dist_inputs": np.stack(env.logits), "action_logp": np.float32(env.logp),
        }  # fmt: skip
        ends = {"is_terminated": terminated, "is_truncated": truncated}
        if self.never_ends:
            ends = dict.fromkeys(ends, False)
        if self.dialect == "json":
            return {**arrays, **ends}

        def buffer(data: Any, finalized: bool = True) -> dict[str, Any]:
            return {"data": data, "lookback": 0, "finalized": finalized, "space": None}

        steps = len(env.rewards)
        return {
            "id_": env.id_, "agent_id": None, "module_id": None, "multi_agent_episode_id": None,
            "observations": buffer(arrays["obs"]), "actions": buffer(arrays["actions"]),
            "rewards": buffer(arrays["rewards"]), "infos": buffer([{}] * (steps + 1), finalized=False),
            "extra_model_outputs": {key: buffer(arrays[key]) for key in ("action_dist_inputs", "action_logp")},
            "t_started": env.started, "t": env.started + steps, **ends, "_observation_space": None,
            "_action_space": None, "_start_time": None, "_last_step_time": None,
        }  # fmt: skip
