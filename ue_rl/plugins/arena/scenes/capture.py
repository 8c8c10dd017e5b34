"""Team capture: three places to hold, three agents of the red team against three scripted ones of the blue team."""

from __future__ import annotations

from typing import Any, ClassVar

from ue_rl.bridges.tools import tool
from ue_rl.plugins.arena.scenes.scene import COMPASS, Body, Scene, named, relative
from ue_rl.plugins.arena.types import IDLE, AgentDecision, AgentObservation

RED = ("red_0", "red_1", "red_2")
BLUE = ("blue_0", "blue_1", "blue_2")
RADIUS = 3.0  # who is so near a place counts there
TAKES = 5  # ticks of being more, until a place changes hands
BLUE_SPEED = 1.0


class Capture(Scene):
    """Agents of one team. Reward of each: 0.1 a tick for each place that is held, 1 for its part in taking one, 5 at
    the end if the team has won. A place belongs to who was more there for five ticks.
    """

    name: ClassVar[str] = "capture"
    agents = RED
    size: ClassVar[float] = 15.0
    sight: ClassVar[float] = 45.0  # the whole field
    choices: ClassVar[tuple[str, ...]] = (*COMPASS, "place 0", "place 1", "place 2", IDLE)
    obs_names: ClassVar[tuple[str, ...]] = (
        "x", "z", "ticks left", *(f"is {name}" for name in RED), *(f"owner of place {n}" for n in range(3)),
        *(f"place {n}.{part}" for n in range(3) for part in "xz"), *named("other", 5),
    )  # fmt: skip

    def begin(self) -> None:
        """See Scene."""
        self.score = {"red": 0, "blue": 0}
        self.owner = ["", "", ""]
        self.progress = [0, 0, 0]
        self.shares: dict[str, int] = dict.fromkeys(RED, 0)
        self.spread = 0
        self.place("place", 3, apart=4.0)
        for n, name in enumerate((*RED, *BLUE)):
            side = 1
            if name in RED:
                side = -1
            self.bodies[name] = Body(name, side * (self.size - 1), 4.0 * (n % 3) - 4.0 + self.random.uniform(-1, 1))
        self.plan = [self.random.randrange(3) for _ in BLUE]

    def step(self, decisions: Any) -> None:
        """See Scene; the blue team walks to a place that is not its own, the nearest or the one of its plan."""
        for n, name in enumerate(BLUE):
            body = self.bodies[name]
            free = [thing for at, thing in enumerate(self.things) if self.owner[at] != "blue"]
            planned = self.things[self.plan[n]]
            if planned in free or not free:
                goal = planned
            else:
                goal = min(free, key=body.away)
            body.goal = (goal.x, goal.z)
            body.speed = BLUE_SPEED
        super().step(decisions)

    def advance(self) -> None:
        """Places change hands; the holders score."""
        held = set()
        for n, place in enumerate(self.things):
            there = {
                side: [name for name in team if self.bodies[name].away(place) <= RADIUS]
                for side, team in (("red", RED), ("blue", BLUE))
            }
            if there["red"]:
                held.add(n)
            more = len(there["red"]) - len(there["blue"])
            side = "blue"
            if more > 0:
                side = "red"
            if more == 0 or self.owner[n] == side:
                self.progress[n] = 0
                continue
            if self.progress[n] * more >= 0:
                if more > 0:
                    change = 1
                else:
                    change = -1
                self.progress[n] = self.progress[n] + change
            else:
                self.progress[n] = 0
            if abs(self.progress[n]) >= TAKES:
                self.owner[n] = side
                self.progress[n] = 0
                for name in there["red"] if side == "red" else ():
                    self.shares[name] += 1
                    self.bodies[name].reward += 1.0
        self.spread += len(held)
        for side in self.score:
            self.score[side] += self.owner.count(side)
        for name in RED:
            self.bodies[name].reward += 0.1 * self.owner.count("red")
        if self.tick >= self.max_ticks:
            self.over = True
            self.success = self.score["red"] > self.score["blue"]
            for name in RED:
                self.bodies[name].reward += 5.0 * self.success

    @property
    def truncated(self) -> bool:
        """A game has a fixed length: its end is not a cut."""
        return False

    @tool
    def go_to_place(self, agent: str, place: int) -> str:
        """Walk towards place 0, 1 or 2 for one tick, at full speed."""
        if not 0 <= place < len(self.things):
            raise ValueError("there are the places 0, 1 and 2")
        thing = self.things[place]
        return self.move_to(agent, (thing.x, 0.0, thing.z), 2.0)

    def told(self, body: Body) -> dict[str, Any]:
        """See Scene."""
        return {**super().told(body), "owners": list(self.owner), "score": dict(self.score)}

    def metrics(self) -> dict[str, float]:
        """Objectives: places taken by the team. Coordination: places with someone of the team there, of three, by the
        mean. Share: the part of the busiest agent in what was taken (a third is even). Win: 1 or 0.
        """
        parts = list(self.shares.values())
        return {
            "objectives": float(sum(parts)),
            "coordination": self.spread / (3 * max(self.tick, 1)),
            "share": max(parts) / max(sum(parts), 1),
            "win": float(self.success),
        }

    def state(self) -> list[Any]:
        """See Scene."""
        scores = sorted(self.score.items())
        return [scores, self.owner, self.progress, sorted(self.shares.items()), self.spread, self.plan]

    @classmethod
    def encode(cls, seen: AgentObservation) -> list[float]:
        """See Scene."""
        x, _, z = seen.position
        worth = {"red": 1.0, "blue": -1.0, "": 0.0}
        places = sorted(seen.nearby_resources, key=lambda place: place.name)
        return [
            x / cls.size,
            z / cls.size,
            1 - seen.tick / cls.max_ticks,
            *(float(seen.agent_id == name) for name in RED),
            *(worth[owner] for owner in seen.custom["owners"]),
            *(d / cls.size for place in places for d in (place.position[0] - x, place.position[2] - z)),
            *relative(seen.visible_entities, seen, 5, cls.size),
        ]

    @classmethod
    def call(cls, word: str, seen: AgentObservation) -> AgentDecision:
        """See Scene."""
        return AgentDecision("go_to_place", {"place": int(word[-1])})
