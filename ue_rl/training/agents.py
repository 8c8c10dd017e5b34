"""A run with agents: the group that learns, who plays the others, self-play, and buffers without inactive rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.envs.agents.buffers import (
    ActiveDictReplayBuffer,
    ActiveDictRolloutBuffer,
    ActiveReplayBuffer,
    ActiveRolloutBuffer,
    ActiveRows,
)
from ue_rl.envs.agents.group import GroupTransport
from ue_rl.envs.agents.selfplay import SelfPlay
from ue_rl.envs.agents.selfplay_options import SelfPlayOptions
from ue_rl.envs.agents.sides import SidesTransport
from ue_rl.envs.agents.vec_env import GroupVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.algorithms import OFF_POLICY
from ue_rl.training.options import TrainOptions


def env_of(options: TrainOptions, transport: Transport) -> UnrealVecEnv:
    """The VecEnv of a run over its connection.

    Raises:
        ConfigurationError: `group`, `others` and `self_play` do not fit the engine.
    """
    o = options
    spec = transport.connect()
    if not spec.groups:
        for name in ("group", "others", "self_play"):
            if getattr(o, name):
                what = f"{name} is for an engine with agents"
                raise ConfigurationError(what, field=name, expected="AGENTS in its handshake", cure="leave it out")
        return UnrealVecEnv(transport, max_episode_steps=o.max_episode_steps)
    if o.max_episode_steps is not None:
        what = "episodes of envs with agents are cut by the engine alone"
        cure = "leave it out, and set the limit in the game"
        raise ConfigurationError(what, field="max_episode_steps", got=o.max_episode_steps, cure=cure)
    others = {name: _player(name, policy) for name, policy in o.others.items()}
    if o.self_play is None:
        return GroupVecEnv(GroupTransport(transport, o.group, others))
    if o.group is not None:
        cure = "name the two groups that play each other: self_play: {sides: [red, blue]}"
        raise ConfigurationError("with self_play a side learns, not a group", field="group", got=o.group, cure=cure)
    return GroupVecEnv(SidesTransport(transport, SelfPlayOptions.of(o.self_play).sides, others=others))


def buffers(options: TrainOptions, env: VecEnv) -> dict[str, Any]:
    """The model's arguments for an env with agents: buffers that leave out inactive rows; {} for others.

    Raises:
        ConfigurationError: the algorithm cannot leave them out.
    """
    if not isinstance(env.unwrapped, GroupVecEnv):
        return {}
    named = isinstance(env.observation_space, spaces.Dict)
    if options.algo in OFF_POLICY and options.her is None:
        return {"replay_buffer_class": ActiveDictReplayBuffer if named else ActiveReplayBuffer}
    if options.algo in ("ppo", "a2c", "trpo"):
        return {"rollout_buffer_class": ActiveDictRolloutBuffer if named else ActiveRolloutBuffer}
    if options.algo == "maskable_ppo":
        from ue_rl.envs.agents.masked import ActiveMaskableDictRolloutBuffer, ActiveMaskableRolloutBuffer

        return {"rollout_buffer_class": ActiveMaskableDictRolloutBuffer if named else ActiveMaskableRolloutBuffer}
    what = "her"
    if options.her is None:
        what = options.algo
    raise ConfigurationError(
        f"{what} cannot leave out the steps of agents that are away",
        field="algo",
        got=what,
        cure="with agents use ppo, a2c, trpo, maskable_ppo, sac, td3, ddpg, dqn, tqc or qrdqn",
    )


def callbacks(options: TrainOptions, folder: Path, env: VecEnv) -> list[BaseCallback]:
    """What learning from agents needs beside the usual; [] for other envs.

    Self-play keeps its pool in the run's `folder`, and goes on with one that is there.
    """
    engine = env.unwrapped
    if not isinstance(engine, GroupVecEnv):
        return []
    if options.self_play is None:
        return [ActiveRows()]
    return [ActiveRows(), SelfPlay(engine, folder, SelfPlayOptions.of(options.self_play), options.seed)]


def _player(group: str, policy: Any) -> Any:
    """A policy of the YAML file: "random", or the path of an ONNX file."""
    if policy == "random":
        return policy
    if not isinstance(policy, str) or not policy.endswith(".onnx"):
        raise ConfigurationError(
            "not a policy", field=f"others.{group}", expected="random, or the path of an ONNX file", got=policy
        )
    from ue_rl.inference import OnnxInference

    model = OnnxInference()
    model.load_model(policy)
    return model
