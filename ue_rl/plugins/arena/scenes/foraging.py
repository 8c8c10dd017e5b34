"""Foraging: berries lie about, fires burn; collect all, take little damage, be quick."""

from __future__ import annotations

from typing import ClassVar

from ue_rl.bridges.tools import tool
from ue_rl.plugins.arena.scenes.scene import COMPASS, MAX_SPEED, Scene, in_reach, named, relative, walk_to
from ue_rl.plugins.arena.types import IDLE, AgentDecision, AgentObservation, away_from, nearest

# so near a fire burns
BERRIES = 10
FIRES = 6
BURNS = 2.5
DAMAGE = 5.0  # a tick


class Foraging(Scene):
    """One agent. Reward: 1 a berry, -0.02 a point of damage, -0.01 a tick. Over when all is taken, or it is dead."""

    name: ClassVar[str] = "foraging"
    agents = ("forager",)
    choices: ClassVar[tuple[str, ...]] = (*COMPASS, "nearest berry", "away from fire", "collect", IDLE)
    obs_names: ClassVar[tuple[str, ...]] = (
        "x", "z", "health", "ticks left", "in reach", *named("berry", 4), *named("fire", 3)
    )  # fmt: skip

    def begin(self) -> None:
        """See Scene."""
        self.collected = 0
        self.damage = 0.0
        self.place("berry", BERRIES)
        self.place("fire", FIRES, DAMAGE, apart=BURNS + 1)

    def advance(self) -> None:
        """Fires burn; the episode may end."""
        body = self.bodies["forager"]
        for thing in self.things:
            if thing.damage and body.away(thing) < BURNS:
                hurt = min(thing.damage, body.health)
                body.health -= hurt
                self.damage += hurt
                body.reward -= 0.02 * hurt
        body.reward -= 0.01
        self.success = self.collected == BERRIES
        self.over = self.success or body.health <= 0

    @tool
    def collect(self, agent: str, item_name: str | None = None) -> str:
        """Take the nearest berry, or the one that is named, within 1.5 units."""
        body = self.bodies[agent]
        thing = self.taken(body, item_name, "berry")
        body.items[thing.kind] = body.items.get(thing.kind, 0) + 1
        self.collected += 1
        body.reward += 1.0
        return f"took {thing.name}"

    def metrics(self) -> dict[str, float]:
        """See Scene."""
        moved = self.bodies["forager"].moved
        return {"resources": float(self.collected), "damage": self.damage, "distance": moved, "time": float(self.tick)}

    def state(self) -> list[float]:
        """See Scene."""
        return [self.collected, self.damage]

    @classmethod
    def encode(cls, seen: AgentObservation) -> list[float]:
        """See Scene."""
        x, _, z = seen.position
        return [
            x / cls.size,
            z / cls.size,
            seen.health / 100,
            1 - seen.tick / cls.max_ticks,
            in_reach(seen.nearby_resources),
            *relative(seen.nearby_resources, seen, 4, cls.sight),
            *relative(seen.nearby_hazards, seen, 3, cls.sight),
        ]

    @classmethod
    def call(cls, word: str, seen: AgentObservation) -> AgentDecision:
        """See Scene."""
        if word == "nearest berry":
            return walk_to(nearest(seen.nearby_resources))
        hazard = nearest(seen.nearby_hazards)
        if hazard is None:
            return AgentDecision(IDLE)
        away = away_from(seen.position, hazard.position)
        return AgentDecision("move_to", {"target_position": away, "speed": MAX_SPEED})
