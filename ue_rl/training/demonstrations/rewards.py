"""Rewards that are learnt: GAIL's, of acting as demonstrations do, and RND's, of seeing what was never seen.

Both change the rewards of an on-policy rollout when it is complete, before the policy learns from it. So nothing of
theirs changes while a rollout is collected, and a checkpoint holds them as they were when it began.
"""

from __future__ import annotations

import base64
import io
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.preprocessing import preprocess_obs
from torch import nn
from torch.nn import functional

from ue_rl.protocol.spaces.walks import map_leaves
from ue_rl.training.demonstrations.dataset import Demonstrations


class LearntRewards(BaseCallback):
    """Changes the rewards of each rollout; also a part of a checkpoint (saving.resuming.CheckpointPart)."""

    def _init_callback(self) -> None:
        self._earned: list[Any] = []
        self._made()

    @abstractmethod
    def _made(self) -> None:
        """Makes the networks, for `self.model`."""

    @abstractmethod
    def _rewards(self, buffer: Any, earned: Any, rest: Any) -> Any:
        """Learns from a rollout; float32 [steps, envs], instead of earned + rest.

        Args:
            earned: what the env gave. rest: what SB3 has added for the value of what was cut off; 0 elsewhere.
        """

    @abstractmethod
    def _parts(self) -> dict[str, Any]:
        """What has a state_dict."""

    def state(self) -> Mapping[str, Any]:
        """See CheckpointPart."""
        file = io.BytesIO()
        torch.save({name: part.state_dict() for name, part in self._parts().items()}, file)
        return {"torch": base64.b64encode(file.getvalue()).decode()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See CheckpointPart; nothing in it is run."""
        kept = torch.load(io.BytesIO(base64.b64decode(state["torch"])), self.model.device, weights_only=True)
        for name, part in self._parts().items():
            part.load_state_dict(kept[name])

    def _on_rollout_start(self) -> None:
        self._earned.clear()

    def _on_step(self) -> bool:
        self._earned.append(np.array(self.locals["rewards"], np.float32))
        return True

    def _on_rollout_end(self) -> None:
        buffer: Any = self.locals["rollout_buffer"]
        earned = np.stack(self._earned)
        buffer.rewards[:] = self._rewards(buffer, earned, buffer.rewards - earned)
        buffer.compute_returns_and_advantage(last_values=self.locals["values"], dones=self.locals["dones"])

    def _flat(self, observations: Any) -> torch.Tensor:
        """Observations as the policy gets them, float32 [n, numbers]; a leaf's leading dimensions become one."""
        space: Any = self.model.observation_space
        if isinstance(observations, Mapping):
            parts = {name: (space[name], observations[name]) for name in observations}
        else:
            parts = {"": (space, observations)}
        return torch.cat([self._numbers(*part) for part in parts.values()], 1)

    def _numbers(self, space: Any, values: Any) -> torch.Tensor:
        rows = torch.as_tensor(np.asarray(values), device=self.model.device).reshape(-1, *space.shape)
        return preprocess_obs(rows, space).reshape(len(rows), -1).float()  # type: ignore[union-attr]


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class Gail(LearntRewards):
    """GAIL (Ho and Ermon 2016): the policy earns -log(1 - D), D the chance that a discriminator takes it for the demos.

    Args:
        demonstrations: of the env's spaces. updates: of the discriminator after each rollout.
    """

    def __init__(self, demonstrations: Demonstrations, updates: int = 16, batch_size: int = 512) -> None:
        super().__init__()
        self._demonstrations = demonstrations
        self._updates = updates
        self._batch = batch_size

    def _made(self) -> None:
        seen, acted = self._demonstrations.pairs()
        self._seen, self._acted = seen, self._numbers(self.model.action_space, acted)
        inputs = self._flat(self._normal(seen)).shape[1] + self._acted.shape[1]
        self._judge = _network(inputs, 1).to(self.model.device)
        self._optimizer = torch.optim.Adam(self._judge.parameters(), lr=1e-3)

    def _normal(self, seen: Any) -> Any:
        statistics = self.model.get_vec_normalize_env()
        if statistics is None:
            return seen
        return statistics.normalize_obs(seen)

    def _parts(self) -> dict[str, Any]:
        return {"judge": self._judge, "optimizer": self._optimizer}

    def _rewards(self, buffer: Any, earned: Any, rest: Any) -> Any:
        mine = torch.cat([self._flat(buffer.observations), self._numbers(self.model.action_space, buffer.actions)], 1)
        theirs = torch.cat([self._flat(self._normal(self._seen)), self._acted], 1)
        centre = theirs.mean(0)
        spread = theirs.std(0) + 1e-3
        mine = (mine - centre) / spread
        theirs = (theirs - centre) / spread
        loss = torch.zeros(())
        for _ in range(self._updates):
            true, made = (
                self._judge(rows[torch.randint(len(rows), (self._batch,), device=rows.device)])
                for rows in (theirs, mine)
            )
            loss = functional.softplus(-true).mean() + functional.softplus(made).mean()
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        self.logger.record("gail/loss", float(loss.detach()))
        with torch.no_grad():
            given = functional.softplus(self._judge(mine)).reshape(earned.shape).cpu().numpy()
        return given + rest


class Rnd(LearntRewards):
    """RND (Burda et al. 2018): what a network cannot yet predict of another, fixed one is new, and earns a reward.

    Args:
        weight: of that reward, which is about 1 at first, and falls as less is new.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self._weight = weight

    def _made(self) -> None:
        space: Any = self.model.observation_space
        inputs = self._flat(map_leaves(_nothing, space)).shape[1]
        self._target, self._guess = (_network(inputs, 32).to(self.model.device) for _ in range(2))
        self._optimizer = torch.optim.Adam(self._guess.parameters(), lr=1e-3)
        self._scale = _Scale(inputs).to(self.model.device)

    def _parts(self) -> dict[str, Any]:
        return {"target": self._target, "guess": self._guess, "optimizer": self._optimizer, "scale": self._scale}

    def _rewards(self, buffer: Any, earned: Any, rest: Any) -> Any:
        rows = self._flat(buffer.observations)
        self._scale.take(rows)
        rows = self._scale(rows)
        with torch.no_grad():
            aim = self._target(rows)
            errors = (self._guess(rows) - aim).square().mean(1)
            self._scale.note(errors)
            new = (errors / self._scale.error).reshape(earned.shape).cpu().numpy()
        order = torch.randperm(len(rows), device=rows.device)
        for start in range(0, len(rows), 256):
            part = order[start : start + 256]
            loss = functional.mse_loss(self._guess(rows[part]), aim[part])
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        self.logger.record("rnd/reward", self._weight * float(new.mean()))
        # of the state that an action led to; the last one of an episode or rollout is like the one before
        last = np.concatenate([buffer.episode_starts[1:], np.ones_like(new[:1])])
        reached = np.where(last, new, np.roll(new, -1, 0))
        return earned + rest + self._weight * reached


def _nothing(space: Any) -> Any:
    return np.zeros((1, *space.shape), space.dtype)


class _Scale(nn.Module):
    """Running statistics: of the observations, and of the errors."""

    count: torch.Tensor
    mean: torch.Tensor
    var: torch.Tensor
    error: torch.Tensor
    seen: torch.Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        for name, value in (
            ("count", 1e-4),
            ("mean", torch.zeros(inputs)),
            ("var", torch.ones(inputs)),
            ("error", 1.0),
            ("seen", 0.0),
        ):
            self.register_buffer(name, torch.as_tensor(value, dtype=torch.float32))

    def take(self, rows: torch.Tensor) -> None:
        mean = rows.mean(0)
        var = rows.var(0)
        count = len(rows)
        total = self.count + count
        apart = mean - self.mean
        self.var = (self.var * self.count + var * count + apart**2 * self.count * count / total) / total
        self.mean = self.mean + apart * count / total
        self.count = total

    def note(self, errors: torch.Tensor) -> None:
        spread = errors.square().mean().sqrt()
        self.seen = self.seen + 1
        self.error = self.error + (spread - self.error) / self.seen.clamp(max=100)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        scaled: torch.Tensor = (rows - self.mean) / (self.var + 1e-8).sqrt()
        return scaled.clamp(-5, 5)
