"""SceneBridge: scenes as an engine, so that a policy trains in them over any carrier; TeamBridge where a team plays.

And their films: discs on the ground, drawn with NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.game import EnvIds
from ue_rl.bridges.vector import VectorAgentsBridge, VectorBridge
from ue_rl.plugins.arena.scenes.scene import Scene
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.system.errors import ConfigurationError

SIDE = 160  # pixels
_GROUND = (236, 231, 218)
_COLOURS = {
    "berry": (176, 32, 72), "fire": (240, 120, 24), "wood": (120, 84, 48), "stone": (128, 128, 136),
    "workbench": (60, 60, 60), "place": (190, 180, 120), "red": (206, 48, 48), "blue": (44, 88, 190),
}  # fmt: skip
_AGENT = (32, 120, 64)
_FEATURES = frozenset({"SEED", "TRUNC", "INFO"})


def one_agent(scene: type[Scene], num_envs: int = 1) -> EnvSpec:
    """The spec of `num_envs` envs with one agent: float32 rows of `obs_names`, and one choice of `choices`."""
    return EnvSpec(
        len(scene.obs_names),
        1,
        num_envs=num_envs,
        action=ActionSpec.discrete(len(scene.choices)),
        features=_FEATURES,
        obs_names=scene.obs_names,
        act_names=("choice",),
    )


class _Scenes:
    """What both bridges have: a world for each env."""

    scene: type[Scene]
    worlds: list[Scene]

    def reset_envs(self, env_ids: EnvIds, seeds: Sequence[int | None], options: Any) -> None:
        """See VectorBridge."""
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            self.worlds[env].reset(seed)
            self._see(env)

    def _see(self, env: int) -> None:
        raise NotImplementedError

    def _step(self, env: int, choices: NDArray[np.float32]) -> Scene:
        """One tick of an env; `choices`: one for each agent."""
        world = self.worlds[env]
        world.step(
            {
                agent: world.choose(int(choice), world.observe(agent))
                for agent, choice in zip(world.agents, choices, strict=True)
            }
        )
        self._see(env)
        return world

    def _seen(self, env: int) -> list[list[float]]:
        world = self.worlds[env]
        return [world.encode(world.observe(agent)) for agent in world.agents]

    def render(self, env_id: int) -> NDArray[np.uint8]:
        """See Renders."""
        return picture(self.worlds[env_id])


class SceneBridge(_Scenes, VectorBridge):
    """N worlds of a scene with one agent each.

    Args:
        scene: Foraging, Crafting, or a Scene of yours with one agent. num_envs: how many.

    Attributes:
        worlds: one for each env. Each env's `metrics` are the info of the last step of an episode.

    Raises:
        ConfigurationError: the scene has several agents.
    """

    def __init__(self, scene: type[Scene], num_envs: int = 1) -> None:
        if len(scene.agents) != 1:
            raise ConfigurationError("this scene has several agents", field="scene", cure="host it with TeamBridge")
        self.scene = scene
        self.worlds = [scene() for _ in range(num_envs)]
        super().__init__(one_agent(scene, num_envs))
        self.observation_names = scene.obs_names
        self.action_names = ("choice",)

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorBridge."""
        out = self.outbox
        for env in env_ids.tolist():
            world = self._step(env, actions[env])
            out.rewards[env] = world.reward(world.agents[0])
            out.dones[env], out.truncated[env] = world.over, world.truncated
            if world.over:
                self.write_info(env, world.metrics())

    def _see(self, env: int) -> None:
        (self.outbox.obs[env],) = self._seen(env)


class TeamBridge(_Scenes, VectorAgentsBridge):
    """N worlds of a scene whose agents are one team: a group `team`, in the order of the scene's `agents`.

    Args:
        scene: Capture, or a Scene of yours with several agents. num_envs: how many.
    """

    def __init__(self, scene: type[Scene], num_envs: int = 1) -> None:
        self.scene = scene
        self.worlds = [scene() for _ in range(num_envs)]
        super().__init__([AgentGroup("team", len(scene.agents), one_agent(scene))], num_envs, {"INFO"})

    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """See VectorAgentsBridge."""
        states = self.states
        for env in env_ids.tolist():
            world = self._step(env, actions[env, :, 0])
            states.rewards[env] = [world.reward(agent) for agent in world.agents]
            states.dones[env], states.truncated[env] = world.over, world.truncated
            if world.over:
                self.write_info(env * len(world.agents), world.metrics())

    def _see(self, env: int) -> None:
        self.states.obs[env] = self._seen(env)


def picture(world: Scene) -> NDArray[np.uint8]:
    """uint8 [160, 160, 3]: the field from above, things as discs, agents on top of them."""
    image = np.full((SIDE, SIDE, 3), _GROUND, np.uint8)
    scale = SIDE / (2 * world.size)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    discs = [
        (t.x, t.z, 1.5 if t.damage or t.kind == "place" else 0.7, _COLOURS.get(t.kind, _AGENT)) for t in world.things
    ]
    discs += [(b.x, b.z, 0.8, _COLOURS.get(b.name.partition("_")[0], _AGENT)) for b in world.bodies.values()]
    for x, z, radius, colour in discs:
        column = (x + world.size) * scale
        row = (world.size - z) * scale
        image[(rows - row) ** 2 + (columns - column) ** 2 <= (radius * scale) ** 2] = colour
    return image
