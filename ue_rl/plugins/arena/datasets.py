"""What was played as data to learn from: demonstrations for behaviour cloning, Minari datasets, preference pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.arena.arena import AgentArena
from ue_rl.plugins.arena.behaviors import AgentBehavior
from ue_rl.plugins.arena.player import require_willing
from ue_rl.plugins.arena.scenes.scene import Scene
from ue_rl.plugins.arena.seats import Decision
from ue_rl.plugins.arena.types import AgentDecision, AgentObservation
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.lazy import named_if_missing


@dataclass
class Trajectory:
    """One agent's episode as numbers.

    Attributes:
        observations: float32 [ticks + 1, obs_size]. actions: int64 [ticks], the choice nearest to each call.
        rewards: float32 [ticks]. terminated: it ended by itself, not because its time was up.
    """

    agent: str
    seed: int
    observations: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    terminated: bool


def nearest_choice(scene: type[Scene], decision: AgentDecision, seen: AgentObservation) -> int:
    """The choice of a policy that comes nearest to a call: the same call; the same tool; for a walk to the
    same point, or else in the most like direction.

    A call that no choice has is idle.
    """
    calls = [scene.choose(n, seen) for n in range(len(scene.choices))]
    same = [n for n, call in enumerate(calls) if call.tool == decision.tool]
    if not same:
        return scene.choices.index("idle")
    target = decision.params.get("target_position")
    if target is None:
        return next((n for n in same if calls[n].params == decision.params), same[0])
    target = [float(part) for part in target]  # a tool takes "1" for 1, as language models write it
    exact = [n for n in same if calls[n].params["target_position"] == target]
    if exact:
        return exact[0]
    return max(same, key=lambda n: _likeness(calls[n], target, seen))


def _likeness(call: AgentDecision, target: Any, seen: AgentObservation) -> float:
    one = [a - b for a, b in zip(call.params["target_position"], seen.position, strict=True)]
    other = [a - b for a, b in zip(target, seen.position, strict=True)]
    return float(np.dot(one, other)) / (math.hypot(*one) * math.hypot(*other) or 1.0)


def record(
    scene: type[Scene], behaviors: Mapping[str, AgentBehavior], episodes: int = 50, seed: int = 0
) -> list[Trajectory]:
    """Plays episodes and keeps them as numbers, one trajectory for each agent and episode."""
    found: list[Trajectory] = []
    for n in range(episodes):
        world = scene()
        rows: dict[str, list[tuple[list[float], int, float]]] = {agent: [] for agent in scene.agents}

        def on_tick(game: Any, outcomes: list[Decision], rows: Any = rows) -> None:
            for outcome in outcomes:
                seen = outcome.observation
                agent = outcome.agent_id
                choice = nearest_choice(scene, outcome.decision, seen)
                rows[agent].append((scene.encode(seen), choice, game.reward(agent)))

        AgentArena.play(world, behaviors, seed=seed + n, on_tick=on_tick)
        for agent, row in rows.items():
            seen, choices, rewards = zip(*row, strict=True)
            found.append(
                Trajectory(
                    agent,
                    seed + n,
                    np.array([*seen, scene.encode(world.observe(agent))], np.float32),
                    np.array(choices, np.int64),
                    np.array(rewards, np.float32),
                    not world.truncated,
                )
            )
    return found


def demonstrations(trajectories: list[Trajectory]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(observations float32 [n, obs_size], actions int64 [n]) of all of them, for behaviour cloning."""
    seen = np.concatenate([each.observations[:-1] for each in trajectories])
    return seen, np.concatenate([each.actions for each in trajectories])


def to_minari(trajectories: list[Trajectory], dataset_id: str, scene: type[Scene], **about: Any) -> Any:
    """A Minari dataset of them, stored where Minari keeps its own.

    Args:
        dataset_id: such as "foraging/rules-v0". about: further arguments of minari.create_dataset_from_buffers.

    Raises:
        MissingPackage: minari is not installed.
    """
    with named_if_missing("a Minari dataset"):
        minari: Any = import_module("minari")
        buffer: Any = import_module("minari.data_collector").EpisodeBuffer
        from gymnasium import spaces

    buffers = []
    for n, each in enumerate(trajectories):
        ends = np.arange(len(each.actions)) == len(each.actions) - 1
        buffers.append(
            buffer(
                id=n,
                seed=each.seed,
                observations=each.observations,
                actions=each.actions,
                rewards=each.rewards,
                terminations=ends & each.terminated,
                truncations=ends & (not each.terminated),
            )
        )
    return minari.create_dataset_from_buffers(
        dataset_id,
        buffers,
        observation_space=spaces.Box(-np.inf, np.inf, (len(scene.obs_names),), np.float32),
        action_space=spaces.Discrete(len(scene.choices)),
        **about,
    )


def preference_pairs(
    scene: type[Scene],
    better: Mapping[str, AgentBehavior],
    worse: Mapping[str, AgentBehavior],
    path: Path | str,
    episodes: int = 10,
    seed: int = 0,
) -> int:
    """Writes {"prompt", "chosen", "rejected"} as JSON lines, for DPO: what both would do where `better` came to.

    Returns:
        how many pairs: of the ticks in which the two differ.

    Raises:
        ConfigurationError: `better` did not earn more in these episodes.
    """
    other = AgentArena(dict(worse), deadline=None, tools=scene().tools)
    pairs: list[str] = []

    def on_tick(_: Any, outcomes: list[Decision]) -> None:
        instead = other.tick([outcome.observation for outcome in outcomes])
        require_willing(instead)
        for mine, others in zip(outcomes, instead, strict=True):
            chosen, rejected = (
                json.dumps({"tool": each.decision.tool, "params": each.decision.params}) for each in (mine, others)
            )
            if chosen != rejected and mine.code is None:
                row = {"prompt": mine.observation.text(), "chosen": chosen, "rejected": rejected}
                pairs.append(json.dumps(row) + "\n")

    more = AgentArena.play(scene(), better, episodes=episodes, seed=seed, on_tick=on_tick)
    other.close()
    less = AgentArena.play(scene(), worse, episodes=episodes, seed=seed)
    if sum(each.score for each in more) <= sum(each.score for each in less):
        raise ConfigurationError("the behaviour that is to be preferred earns no more", field="better")
    Path(path).write_text("".join(pairs), "utf-8")
    return len(pairs)
