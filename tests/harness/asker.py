"""Asks the games of tests/harness/telling.py at random, and compares each row with what they told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.harness.telling import CHOICES, told
from ue_rl.protocol.text.calls import write_time_scale
from ue_rl.protocol.transport import Transport

REQUESTS = 60
REQUESTS_WITH_LOSSES = 120


class Asker:
    """Asks for steps and resets at random, and compares each answer with what the game told.

    Args:
        transport: to games of tests.harness.telling. strike: loses an engine in its next step; None: nothing is lost.

    Attributes:
        rows: how many were compared. silent: how many of them came without INFO. losses: of envs.
    """

    def __init__(self, transport: Any, seed: int, strike: Callable[[], object] | None = None) -> None:
        self.transport, self.random, self._strike = transport, np.random.default_rng(seed), strike
        count = transport.connect().num_envs
        self.spec, self.envs = transport.spec, list(range(count))
        self.at: list[tuple[int, int]] = [(-1, 0)] * count  # seed and step of each
        self.masks = np.ones((count, CHOICES), np.uint8)
        self.over: set[int] = set()
        self.ahead: dict[int, int] = {}
        self.next_seed = 0
        self.rows = self.silent = self.losses = 0

    def play(self, requests: int) -> None:
        """Begins all, then makes so many requests."""
        self.begin(None)
        for _ in range(requests):
            if self.random.random() < 0.05 and "TIME_SCALE" in self.spec.features:
                self.transport.call(write_time_scale(1.0))
            self.ask_ahead()
            if self._strike is not None and self.random.random() < 0.03:
                self._strike()
            ended = sorted(self.over)
            dice = self.random.random()
            if dice < 0.1:
                self.begin(None)
            elif dice < 0.2 or (ended and dice < 0.6):
                others = [env for env in self.envs if env not in ended and self.random.random() < 0.3]
                self.begin(sorted({*ended, *others}) or [int(self.random.choice(self.envs))])
            elif ended or dice < 0.3:
                self.step(ended or [int(self.random.choice(self.envs))])
            else:
                self.step([])

    def ask_ahead(self) -> None:
        """Sometimes, where the carrier can: the next episodes of some envs begin by themselves, with these seeds."""
        if not getattr(self.transport, "asks_ahead", False) or self.random.random() < 0.5:
            return
        chosen = [env for env in self.envs if env not in self.over and self.random.random() < 0.5]
        if chosen:
            seeds = self.seeds(len(chosen))
            self.transport.ask_ahead(chosen, seeds)
            self.ahead.update(zip(chosen, seeds, strict=True))

    def seeds(self, count: int) -> list[int]:
        """Fresh ones."""
        self.next_seed += count
        return list(range(self.next_seed - count, self.next_seed))

    def begin(self, envs: list[int] | None) -> None:
        """Resets these, None: all; as often as not with the seed that was asked ahead."""
        chosen = self.envs if envs is None else envs
        fresh = self.seeds(len(chosen))
        seeds = [self.ahead.get(env, new) if self.random.random() < 0.7 else new
                 for env, new in zip(chosen, fresh, strict=True)]  # fmt: skip
        self.transport.reset(envs, seeds=seeds)
        for env, seed in zip(chosen, seeds, strict=True):
            self.at[env] = seed, 0
            self.ahead.pop(env, None)
        self.compare(chosen, {})

    def step(self, begin: list[int]) -> None:
        """A step of all; those in `begin` begin an episode in the same request."""
        count = len(self.envs)
        actions = np.zeros((count, 1), np.float32)
        for env in self.envs:
            actions[env] = self.random.choice(np.flatnonzero(self.masks[env]))
        rest: list[int] = []
        if count > 2 and self.random.random() < 0.1:
            rest = [env for env in self.envs if env not in begin][:1]
        self.transport.send_actions(actions, begin or None, resting=rest)
        for env in self.envs:
            if env not in rest:
                seed, step = self.at[env]
                self.at[env] = (-1, 0) if env in begin else (seed, step + 1)
        for env in begin:
            self.ahead.pop(env, None)
        taken = {env: float(actions[env, 0]) for env in self.envs if env not in begin}
        self.compare([env for env in self.envs if env not in rest], taken)

    def compare(self, asked: list[int], actions: dict[int, float]) -> None:
        """The answer to a request of the envs `asked`; `actions`: of those that took a step."""
        buffers = self.transport.receive()
        infos = dict(buffers.infos)
        for env in sorted({*asked, *buffers.lost}):
            self.rows += 1
            if env in buffers.lost:
                self.losses += 1
                assert "engine_lost" in infos.pop(env)
                assert (buffers.rewards[env], buffers.dones[env], buffers.truncated[env]) == (0, 1, 1)
                self.over.add(env)
                self.ahead.pop(env, None)
                continue
            seed, step = self.at[env]
            want = told(seed, step, actions.get(env, 0.0))
            assert buffers.obs[env].tolist() == want.obs.tolist()
            assert buffers.rewards[env] == np.float32(want.reward)
            assert (buffers.dones[env], buffers.truncated[env]) == (want.done, want.truncated)
            if buffers.masks.size:
                assert buffers.masks[env].tolist() == want.mask.tolist()
                self.masks[env] = want.mask
            assert infos.pop(env, None) == want.info, f"env {env}: seed {seed}, step {step}"
            self.silent += want.info is None
            (self.over.add if want.done else self.over.discard)(env)
        assert not infos, "infos of envs that were not asked"


def judge(transport: Transport, seed: int, strike: Callable[[], object] | None = None) -> Any:
    requests = REQUESTS if strike is None else REQUESTS_WITH_LOSSES
    asker = Asker(transport, seed, strike)
    asker.play(requests)
    assert asker.rows >= requests
    assert 0.3 < asker.silent / asker.rows < 0.7
    return asker
