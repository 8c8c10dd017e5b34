"""Plays episodes of a scene, or of any bridge, without HTTP; and replays what was logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ue_rl.bridges.base import BaseBridge
from ue_rl.plugins.arena.behaviors import AgentBehavior
from ue_rl.plugins.arena.bridge_scene import BridgeScene
from ue_rl.plugins.arena.log import RunLog
from ue_rl.plugins.arena.replaylog import ReplayLog, ReplayWriter
from ue_rl.plugins.arena.scenes.bridge import SceneBridge, TeamBridge
from ue_rl.plugins.arena.scenes.scene import Scene
from ue_rl.plugins.arena.seats import Decision
from ue_rl.plugins.arena.types import AgentDecision
from ue_rl.protocol.traces.file import MessageKind
from ue_rl.system.errors import ConfigurationError, ReplayInvalid
from ue_rl.system.json_values import readable

if TYPE_CHECKING:
    from ue_rl.plugins.arena.arena import AgentArena


@dataclass
class ArenaEpisode:
    """One episode that was played.

    Attributes:
        returns: each agent's sum of rewards. metrics: the game's. codes: what went wrong in decisions, how often.
        seconds: that decisions took, in all. tokens: of the models that were asked.
    """

    seed: int | None
    ticks: int = 0
    success: bool = False
    returns: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    decisions: int = 0
    seconds: float = 0.0
    tokens: int = 0

    @property
    def score(self) -> float:
        """The mean return of the agents."""
        return sum(self.returns.values()) / max(1, len(self.returns))

    def add(self, outcome: Decision) -> None:
        """Counts one decision."""
        self.decisions += 1
        self.seconds += outcome.seconds
        tokens = outcome.trace.get("tokens")
        if isinstance(tokens, int):
            self.tokens += tokens
        if outcome.code is not None:
            self.codes[outcome.code] = self.codes.get(outcome.code, 0) + 1


Playable = Scene | BridgeScene
OnTick = Callable[[Playable, list[Decision]], None]


def play(
    arena_class: type[AgentArena],
    game: Playable | BaseBridge,
    behaviors: Mapping[str, AgentBehavior] | AgentBehavior | None = None,
    *,
    episodes: int = 1,
    seed: int | None = 0,
    deadline: float | None = None,
    log: RunLog | None = None,
    replay: Path | str | None = None,
    on_tick: OnTick | None = None,
) -> list[ArenaEpisode]:
    """Episodes of `game`, one after the other.

    Args:
        game: a scene; or a bridge: of a SceneBridge the first world, any other is a BridgeScene.
        behaviors: by agent; one alone plays the game's only agent. Who has none gets the rule of thumb.
        episodes: how many. seed: of the first; the next ones have seed + 1, seed + 2, .. None: the game draws them.
        deadline: seconds that each decision may take; None: no limit, and the same seeds give the same episodes.
        log: where decisions go. replay: a file to write the replay log into.
        on_tick: called after each tick with the game and what was decided.

    Raises:
        ConfigurationError: a behaviour for an agent that the game does not have. BackendRefused: a model refuses for
            good what it is asked: at the first decision, and not after an episode of doing nothing.
    """
    if isinstance(game, (SceneBridge, TeamBridge)):
        game = game.worlds[0]
    elif isinstance(game, BaseBridge):
        game = BridgeScene(game)
    if isinstance(behaviors, AgentBehavior):
        given = dict.fromkeys(game.agents[:1], behaviors)
    else:
        chosen = behaviors or {}
        given = dict(chosen)
    if strangers := set(given) - set(game.agents):
        raise ConfigurationError(
            "the game has no such agent", field="behaviors", expected=", ".join(game.agents), got=sorted(strangers)
        )
    arena = arena_class(deadline=deadline, tools=game.tools, log=log)
    writer = None
    if replay is not None:
        writer = ReplayWriter(replay, seed, getattr(game, "tick_rate", 60.0), game.name)
    try:
        for agent_id, behavior in given.items():
            arena.register(agent_id, behavior)
        seeds = [None if seed is None else seed + n for n in range(episodes)]
        return [_episode(arena, game, each, writer, on_tick) for each in seeds]
    finally:
        arena.close()
        if writer is not None:
            writer.close()


def require_willing(outcomes: Sequence[Decision]) -> None:
    """Raises the first refusal of a model that can never succeed."""
    for outcome in outcomes:
        if outcome.refusal is not None:
            raise outcome.refusal


def _episode(
    arena: AgentArena, game: Playable, seed: int | None, writer: ReplayWriter | None, on_tick: OnTick | None
) -> ArenaEpisode:
    game.reset(seed)
    episode = ArenaEpisode(seed, returns=dict.fromkeys(game.agents, 0.0))
    if writer is not None:
        writer.began(seed, game.digest())
    while not game.over:
        outcomes = arena.tick([game.observe(agent) for agent in game.agents])
        require_willing(outcomes)
        game.step({outcome.agent_id: outcome.decision for outcome in outcomes})
        for outcome in outcomes:
            episode.add(outcome)
            episode.returns[outcome.agent_id] += float(game.reward(outcome.agent_id))
            if writer is not None:
                said = outcome.decision
                data = {"tool": said.tool, "params": said.params, "reasoning": said.reasoning}
                writer.decided(game.tick, outcome.agent_id, data)
        if writer is not None:
            writer.ticked(game.tick, game.digest(), readable(game.metrics()))
        if on_tick is not None:
            on_tick(game, outcomes)
    episode.ticks, episode.success, episode.metrics = int(game.tick), bool(game.success), readable(game.metrics())
    for agent in game.agents:
        arena.end_episode(agent, game.success, episode.metrics, inline=arena.deadline is None)
    return episode


def replay(log: Path | str | ReplayLog, game: Playable, on_tick: OnTick | None = None) -> int:
    """Plays a replay log in `game` again, and compares the world's hash after each tick.

    Args:
        log: it or its file; one that was cut off is played to its last whole message, and its `end` says so.

    Returns:
        how many ticks were the same.

    Raises:
        ReplayInvalid: not a replay log, or the world differs: it names the tick.
    """
    if not isinstance(log, ReplayLog):
        log = ReplayLog(log)
    same = 0
    decisions = dict[str, AgentDecision]()
    for message in log:
        facts = message.facts
        if message.kind is MessageKind.ACTION:
            decisions[facts["agent_id"]] = AgentDecision(facts["tool"], facts["params"], facts["reasoning"])
            continue
        if message.kind is MessageKind.EPISODE:
            game.reset(facts["seed"])
        else:
            game.step(decisions)
            decisions = {}
            same += 1
            if on_tick is not None:
                on_tick(game, [])
        if facts["hash"] != game.digest():
            raise ReplayInvalid(
                f"the world differs at tick {facts.get('tick', 0)}",
                field="hash",
                expected=facts["hash"],
                got=game.digest(),
                cure="replay it with the version of the game that wrote it",
            )
    return same
