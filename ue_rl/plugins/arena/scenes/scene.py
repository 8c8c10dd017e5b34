"""Scene: a small deterministic game for agents: a fixed tick, one seeded generator, agents in the order of their names.

Its tools are its methods marked `@tool`; the first parameter is the agent that calls. A call says what the agent does
in the tick; `step` makes all calls and then moves the world on once. `choices` are the same calls as numbers, and
`encode` the same observation as a row: so a policy plays what behaviours play, and behaviours what a policy plays.
"""

from __future__ import annotations

import abc
import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import FiniteFloat

from ue_rl.bridges.tools import ToolError, ToolRegistry, tool
from ue_rl.plugins.arena.types import IDLE, AgentDecision, AgentObservation, Item, ToolResult, VisibleObject

Point = tuple[FiniteFloat, FiniteFloat, FiniteFloat]  # x, height, z, as Godot has them; the height is 0 here
COMPASS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
DIRECTIONS = tuple((x / math.hypot(x, z), z / math.hypot(x, z)) for x, z in
                   ((0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)))  # fmt: skip
REACH = 1.5  # how near something must be to be taken
MAX_SPEED = 2.0  # units a tick


@dataclass
class Thing:
    """Something that stands on the ground."""

    name: str
    kind: str
    x: float
    z: float
    damage: float = 0.0


@dataclass
class Body:
    """An agent in the world."""

    name: str
    x: float = 0.0
    z: float = 0.0
    health: float = 100.0
    moved: float = 0.0
    reward: float = 0.0
    items: dict[str, int] = field(default_factory=dict)
    goal: tuple[float, float] | None = None
    speed: float = 0.0
    result: ToolResult | None = None

    def away(self, thing: Thing | Body) -> float:
        """The distance."""
        return math.sqrt((self.x - thing.x) ** 2 + (self.z - thing.z) ** 2)

    def walk(self, size: float) -> None:
        """Towards the goal, at most `speed` units, within the field of `size` each way from the middle."""
        if self.goal is None:
            return
        dx = self.goal[0] - self.x
        dz = self.goal[1] - self.z
        far = math.sqrt(dx * dx + dz * dz)
        if far <= self.speed:
            part = 1.0
        else:
            part = self.speed / far
        x, z = (min(max(at + d * part, -size), size) for at, d in ((self.x, dx), (self.z, dz)))
        self.moved += math.sqrt((x - self.x) ** 2 + (z - self.z) ** 2)
        self.x = x
        self.z = z
        self.goal = None


class Scene(abc.ABC):
    """One scene. Subclasses fill `begin`, `advance`, `metrics`, `choices`, `call` and `encode`.

    Attributes:
        agents: the names of those that behaviours or a policy play.
        bodies: everyone, by name. tick: of the episode. size: the field reaches this far each way from the middle.
        over, success: whether the episode has ended, and how; `truncated` where only its time was up.
        tools: what an agent may call. choices: what the numbers of a policy stand for. obs_names: of those of `encode`.
    """

    name: ClassVar[str]
    agents: tuple[str, ...]
    choices: ClassVar[tuple[str, ...]]
    obs_names: ClassVar[tuple[str, ...]]
    max_ticks: ClassVar[int] = 200
    tick_rate: ClassVar[float] = 10.0
    size: ClassVar[float] = 20.0
    sight: ClassVar[float] = 15.0

    def __init__(self) -> None:
        self.tools = ToolRegistry.of(self, hidden=("agent",))
        self.reset(0)

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode; with the same seed the same one. Without a seed the generator goes on."""
        if seed is not None:
            self.random = random.Random(seed)
        self.tick = 0
        self.over = False
        self.success = False
        self.bodies = {name: Body(name) for name in self.agents}
        self.things: list[Thing] = []
        self.begin()

    @property
    def truncated(self) -> bool:
        """Whether the episode ended because its time was up."""
        return self.over and not self.success and self.tick >= self.max_ticks

    @abc.abstractmethod
    def begin(self) -> None:
        """Puts bodies and things in their places, with `random`."""

    @abc.abstractmethod
    def advance(self) -> None:
        """One tick of what happens by itself, after everyone has walked; sets `over` and `success`."""

    @abc.abstractmethod
    def metrics(self) -> dict[str, float]:
        """Of the episode so far."""

    @classmethod
    @abc.abstractmethod
    def encode(cls, seen: AgentObservation) -> list[float]:
        """An observation as numbers, one for each of `obs_names`."""

    @classmethod
    @abc.abstractmethod
    def call(cls, word: str, seen: AgentObservation) -> AgentDecision:
        """The call that one of `choices` stands for, which is neither a direction nor a tool without parameters."""

    @classmethod
    def choose(cls, choice: int, seen: AgentObservation) -> AgentDecision:
        """The call that number `choice` of a policy stands for, for the agent that sees this."""
        word = cls.choices[choice]
        if word in COMPASS:  # a full step
            x, z = DIRECTIONS[COMPASS.index(word)]
            target = [seen.position[0] + MAX_SPEED * x, 0.0, seen.position[2] + MAX_SPEED * z]
            return AgentDecision("move_to", {"target_position": target, "speed": MAX_SPEED})
        if word in (IDLE, "collect"):
            return AgentDecision(word)
        return cls.call(word, seen)

    # -- a tick

    def step(self, decisions: Mapping[str, AgentDecision]) -> None:
        """All calls, in the order of `agents`, whoever was registered first; then one tick.

        Who has no decision is idle. A call that fails changes nothing; its body's `result` says why.
        """
        for body in self.bodies.values():
            body.reward = 0.0
        for name in self.agents:
            body = self.bodies[name]
            decision = decisions.get(name, AgentDecision())
            try:
                said = self.tools.answer(decision.tool, decision.params, agent=name)
                body.result = ToolResult(tool=decision.tool, success=True, result=said, duration_ticks=1)
            except ToolError as error:
                body.result = ToolResult(tool=decision.tool, success=False, error=error.message)
        for body in self.bodies.values():
            body.walk(self.size)
        self.tick += 1
        self.advance()
        self.over = self.over or self.tick >= self.max_ticks

    def observe(self, agent: str) -> AgentObservation:
        """What one agent sees now."""
        body = self.bodies[agent]
        near = list(self._seen_from(body))
        return AgentObservation(
            agent_id=agent,
            tick=self.tick,
            position=(body.x, 0.0, body.z),
            nearby_resources=[thing for thing in near if not thing.damage],
            nearby_hazards=[thing for thing in near if thing.damage],
            visible_entities=[
                self._seen(body, other, "agent")
                for other in self.bodies.values()
                if other is not body and body.away(other) <= self.sight
            ],
            inventory=[Item(name=name, quantity=count) for name, count in body.items.items()],
            health=body.health,
            perception_radius=self.sight,
            tool_result=body.result,
            custom=self.told(body),
        )

    def told(self, body: Body) -> dict[str, Any]:
        """What this game says beside the ordinary fields."""
        return {"ticks_left": self.max_ticks - self.tick}

    def _seen_from(self, body: Body) -> Iterator[VisibleObject]:
        near = sorted(((body.away(thing), n) for n, thing in enumerate(self.things)))
        for far, n in near:
            if far > self.sight:
                return
            yield self._seen(body, self.things[n], self.things[n].kind, self.things[n].damage)

    def _seen(self, body: Body, thing: Thing | Body, kind: str, damage: float = 0.0) -> VisibleObject:
        return VisibleObject(
            name=thing.name, type=kind, position=(thing.x, 0.0, thing.z), distance=body.away(thing), damage=damage
        )

    def reward(self, agent: str) -> float:
        """Of the last tick."""
        return self.bodies[agent].reward

    def digest(self) -> str:
        """SHA-256 of everything that the next ticks depend on."""
        state = [self.tick, self.over, self.success, self.state(), hash_of(self.random.getstate())]
        bodies = [[b.name, b.x, b.z, b.health, b.moved, sorted(b.items.items())] for b in self.bodies.values()]
        things = [[t.name, t.kind, t.x, t.z, t.damage] for t in self.things]
        return hashlib.sha256(json.dumps([state, bodies, things]).encode()).hexdigest()

    def state(self) -> list[Any]:
        """What a scene keeps beside its bodies and things; JSON-able."""
        return []

    # -- helpers

    def place(self, kind: str, count: int, damage: float = 0.0, apart: float = 0.0) -> None:
        """Puts `count` things of a kind at random places, at least `apart` from the middle."""
        for n in range(count):
            while True:
                x, z = (round(self.random.uniform(-self.size + 1, self.size - 1), 3) for _ in "xz")
                if math.sqrt(x * x + z * z) >= apart:
                    break
            self.things.append(Thing(f"{kind}_{n}", kind, x, z, damage))

    def taken(self, body: Body, name: str | None, *kinds: str) -> Thing:
        """Takes the nearest thing of these kinds that is in reach; of that name or kind, where one is given."""
        near = [thing for thing in self.things if thing.kind in kinds and name in (None, "", thing.name, thing.kind)]
        thing = min(near, key=body.away, default=None)
        if thing is None or body.away(thing) > REACH:
            raise ValueError("nothing of that name is within reach")
        self.things.remove(thing)
        return thing

    # -- tools that every scene has

    @tool
    def move_to(self, agent: str, target_position: Point, speed: FiniteFloat = 1.0) -> str:
        """Walk towards a point for one tick, at most `speed` units (2 at most)."""
        body = self.bodies[agent]
        body.goal = (target_position[0], target_position[2])
        body.speed = min(max(speed, 0.0), MAX_SPEED)
        return "walking"

    @tool
    def idle(self, agent: str) -> str:
        """Do nothing for one tick."""
        return "waiting"


def hash_of(value: object) -> str:
    """A short hash of a value's repr."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def relative(things: Sequence[VisibleObject], seen: AgentObservation, count: int, sight: float) -> list[float]:
    """Of the `count` nearest: x and z as seen from the agent, the distance, and 1; zeros where there are fewer."""
    row: list[float] = []
    for thing in sorted(things, key=lambda thing: thing.distance)[:count]:
        dx = thing.position[0] - seen.position[0]
        dz = thing.position[2] - seen.position[2]
        row += [dx / sight, dz / sight, thing.distance / sight, 1.0]
    return row + [0.0] * (4 * count - len(row))


def in_reach(things: Sequence[VisibleObject]) -> float:
    """1 where one of them is so near that it can be taken, else 0."""
    return float(any(thing.distance <= REACH for thing in things))


def named(what: str, count: int) -> tuple[str, ...]:
    """The names of the numbers of `relative`."""
    return tuple(f"{what}{n}.{part}" for n in range(count) for part in ("x", "z", "distance", "there"))


def walk_to(thing: VisibleObject | None) -> AgentDecision:
    """At full speed towards it; idle where it is None."""
    if thing is None:
        return AgentDecision(IDLE)
    return AgentDecision("move_to", {"target_position": list(thing.position), "speed": MAX_SPEED})
