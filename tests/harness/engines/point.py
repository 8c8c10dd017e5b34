"""Point: a small continuous task for engines of the harness: a point that should come to a goal. Standard library only.

Observation: position (2), velocity (2), goal (2), all within -5..5. Action: a push (2), from -1 to 1 and from -2 to 2;
or one of four directions. An episode begins somewhere in -1..1, ends at the goal or far away, and is truncated after
20 to 60 steps, as was drawn at its start.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

OBS, FAR = 6, 4.0
DIRECTIONS = ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))


class Point:
    """One env.

    Args:
        seed: of its random numbers, until a reset gives another one.

    Attributes:
        steps: of this episode. reward: of the last step. done, truncated: is it over, and only by its length?
        push: a parameter, how strong actions are.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.push = 1.0
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        if seed is not None:
            self.rng = random.Random(seed)
        draw = self.rng.uniform
        self.position, self.velocity, self.goal = [draw(-1, 1), draw(-1, 1)], [0.0, 0.0], [draw(-1, 1), draw(-1, 1)]
        self.steps, self.length, self.reward = 0, self.rng.randint(20, 60), 0.0
        self.done = self.truncated = False

    def step(self, action: Sequence[float]) -> None:
        """A step; nothing happens once the episode is over."""
        if self.done:
            return
        self.steps += 1
        for axis, force in enumerate(action[:2]):
            self.velocity[axis] = 0.8 * self.velocity[axis] + 0.1 * self.push * min(max(force, -2.0), 2.0)
            self.position[axis] = min(max(self.position[axis] + self.velocity[axis], -FAR), FAR)
        distance = sum((a - b) ** 2 for a, b in zip(self.position, self.goal, strict=True)) ** 0.5
        self.reward = -distance
        over = distance < 0.15 or max(map(abs, self.position)) >= FAR
        self.truncated = not over and self.steps >= self.length
        self.done = over or self.truncated

    @property
    def observation(self) -> list[float]:
        return [*self.position, *self.velocity, *self.goal]
