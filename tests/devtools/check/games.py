"""Small games: Game and Walk, to be made wrong, and right ones that look like a mistake at first sight (GAMES)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges import VectorBridge
from ue_rl.protocol.spec import ActionSpec, Channel, EnvSpec

SEEDED = frozenset(("SEED", "OPTIONS"))


class Game(VectorBridge):
    """One number is shown and one choice of two, or a number in -1..1, is taken; a game fills in `begin` and `play`.

    Args:
        seeded: it takes seeds.

    Attributes:
        rng: of each env. t: steps of the episode, [num_envs]. at: what is shown, float64 [num_envs, obs_size].
    """

    obs_size, act_size, choices = 1, 1, True

    def __init__(self, num_envs: int = 3, seeded: bool = False, **spec: Any) -> None:
        spec = {"channel": Channel.SHARED, **spec}
        if self.choices:
            spec.setdefault("action", ActionSpec.discrete(2))
        if seeded:
            spec["features"] = SEEDED | spec.get("features", frozenset())
        super().__init__(EnvSpec(self.obs_size, self.act_size, num_envs=num_envs, **spec))
        self.rng = [np.random.default_rng(env) for env in range(num_envs)]
        self.t, self.at = np.zeros(num_envs, np.intp), np.zeros((num_envs, self.obs_size))

    def seed(self, env: int, seed: int) -> None:
        """Before an episode that has a seed begins."""
        self.rng[env] = np.random.default_rng(seed)

    def begin(self, env: int) -> None:
        """Puts `at` back."""
        self.at[env] = 0

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        """One step: (reward, is the episode over)."""
        raise NotImplementedError

    def show(self, env: int) -> Any:
        """The observation."""
        return self.at[env]

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            if seed is not None:
                self.seed(env, seed)
            self.t[env] = 0
            self.begin(env)
            self.outbox.obs[env] = self.show(env)

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        for env in env_ids.tolist():
            self.t[env] += 1
            self.outbox.rewards[env], self.outbox.dones[env] = self.play(env, actions[env])
            self.outbox.obs[env] = self.show(env)


class Walk(Game):
    """Two positions, moved by two numbers; an episode takes 12 to 20 steps.

    Attributes:
        left: steps until the end, [num_envs].
    """

    obs_size, act_size, choices = 2, 2, False

    def __init__(self, num_envs: int = 3, seeded: bool = False, **spec: Any) -> None:
        super().__init__(num_envs, seeded, **spec)
        self.at, self.left = np.zeros((num_envs, 2)), np.ones(num_envs, np.intp)

    def begin(self, env: int) -> None:
        self.at[env], self.left[env] = self.rng[env].uniform(-1, 1, 2), self.rng[env].integers(12, 20)

    def move(self, env: int, action: NDArray[np.float32]) -> None:
        """One step."""
        self.at[env] += 0.1 * np.clip(action[:2], -1, 1)

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.left[env] -= 1
        self.move(env, action)
        return -float(np.abs(self.at[env]).sum()), bool(self.left[env] <= 0)


class WalkHome(Game):
    """A walk of whole steps from home; it ends where it began."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] += 2 * action[0] - 1
        return -0.25, bool(self.at[env, 0] == 0)


class ManyHomes(WalkHome):
    """The same, and each env has a home of its own."""

    def begin(self, env: int) -> None:
        self.at[env] = 20 * env

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] += 2 * action[0] - 1
        return -0.25, bool(self.at[env, 0] == 20 * env)


class Fork(Game):
    """The first two steps choose a way: where they differ it ends with the third one, else it has no end."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] += 2 * action[0] - 1
        if self.t[env] == 2:
            self.ends = getattr(self, "ends", {}) | {env: bool(self.at[env, 0] == 0)}
        return 1.0, bool(self.t[env] == 3 and self.ends[env])


class RoundTrip(Game):
    """Four places in a circle; home again is the end."""

    obs_size = 4

    def begin(self, env: int) -> None:
        self.at[env] = np.eye(4)[0]

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] = np.roll(self.at[env], int(2 * action[0] - 1))
        return float(action[0]), bool(self.at[env, 0] == 1)


class Catch(Game):
    """A number in -1..1 moves the place; it ends as soon as it comes back through home, where it is put."""

    choices = False

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        before = self.at[env, 0]
        self.at[env] += 0.3 * np.clip(action[0], -1, 1)
        home = self.t[env] > 1 and before * self.at[env, 0] <= 0
        if home:
            self.at[env] = 0
        return 1.0 if home else -0.125, bool(home)


class Lap(Game):
    """Ten places in a ring, one or two at a time; the line is the end, and the start of the next."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] += 1 + action[0]
        home = bool(self.at[env, 0] >= 10)
        if home:
            self.at[env] = 0
        return 1.0 if home else 0.0, home


class Bandit(Game):
    """Two arms, one pull, nothing to see."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        return float(self.rng[env].normal(action[0])), True


class FixedBandit(Bandit):
    """Arms that always pay the same."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        return float(action[0]), True


class ContextBandit(Game):
    """One pull: what each arm pays stands in the observation."""

    obs_size = 3

    def begin(self, env: int) -> None:
        self.at[env] = self.rng[env].uniform(-1, 1, 3)

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        reward = float(self.at[env, int(action[0])])
        return reward, True


class FreshBandit(ContextBandit):
    """Another context stands in the last observation."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        reward, over = super().play(env, action)
        self.begin(env)
        return reward, over


class ManyPulls(Bandit):
    """Twenty pulls, nothing to see."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        return super().play(env, action)[0], bool(self.t[env] == 20)


class Countdown(Game):
    """120 steps are counted down; what is done in the last one is what counts."""

    def begin(self, env: int) -> None:
        self.at[env] = 120

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] -= 1
        over = bool(self.at[env, 0] == 0)
        return float(action[0]) if over else 0.0, over


class Clock(Countdown):
    """The same, shown as the hand of a clock beside a number that nobody can foresee."""

    obs_size = 3

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        angle = 2 * np.pi * self.t[env] / 120
        self.at[env] = np.cos(angle / 2), np.sin(angle / 2), self.rng[env].uniform()
        over = bool(self.t[env] == 120)
        return float(action[0]) if over else 0.0, over


class Fall(Game):
    """A thing falls for 30 steps, wherever it is pushed."""

    obs_size, choices = 3, False

    def begin(self, env: int) -> None:
        self.at[env] = 0, 45, 0

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env, 0] += action[0]
        self.at[env, 2] -= 0.1
        self.at[env, 1] += self.at[env, 2]
        return -abs(float(self.at[env, 0])), bool(self.at[env, 1] <= 0)


class Board(Game):
    """Nine cells, filled one by one by either of two stones: full after nine, often the longest game."""

    obs_size = 9

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        free = np.flatnonzero(self.at[env] == 0)
        if not len(free):
            return 0.0, True
        self.at[env, free[int(self.rng[env].integers(len(free)))]] = 2 * action[0] - 1
        rows = self.at[env].reshape(3, 3)
        won = 3 in rows.sum(axis=1) or 3 in rows.sum(axis=0)
        return float(won), bool(won or self.t[env] == 9)


class Corridor(Game):
    """Nothing is random: one start, and whole steps to either end of eight cells."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env] += 2 * action[0] - 1
        return float(self.at[env, 0]) / 8, bool(abs(self.at[env, 0]) == 4)


class Thrust(Game):
    """A force that moves something with friction, from random places."""

    obs_size, choices = 2, False

    def begin(self, env: int) -> None:
        self.at[env] = self.rng[env].uniform(-1, 1, 2)

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        self.at[env, 1] = 0.9 * self.at[env, 1] + 0.1 * action[0]
        self.at[env, 0] += self.at[env, 1]
        return -float(np.abs(self.at[env]).sum()), bool(abs(self.at[env, 0]) > 2)


class Switch(Thrust):
    """Only the sign of the action counts."""

    def play(self, env: int, action: NDArray[np.float32]) -> tuple[float, bool]:
        return super().play(env, np.sign(action))


GAMES = (
    Fork,
    WalkHome, ManyHomes, RoundTrip, Catch, Lap, Bandit, FixedBandit, ContextBandit, FreshBandit, ManyPulls, Countdown,
    Clock, Fall, Board, Corridor, Thrust, Switch,
)  # fmt: skip
