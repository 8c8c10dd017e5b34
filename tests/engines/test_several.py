"""Several engines as one: the same numbers, bit by bit, as one engine with all the envs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ue_rl.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.testing import MemoryTransport
from ue_rl.testing.several import FragileSource, MaskedWalk, Walk
from ue_rl.transport import Transport

SIZES = (3, 1, 2)


def several(kind: Any = Walk, sizes: tuple[int, ...] = SIZES, codec: bool = True, **spec: Any) -> EnginesTransport:
    starts = np.cumsum((0, *sizes))
    return EnginesTransport(
        [
            FragileSource(lambda life, n=n, at=int(at): kind(n, at, **spec), through_codec=codec)  # type: ignore[misc]
            for n, at in zip(sizes, starts, strict=False)
        ]
    )


def one(kind: Any = Walk, **spec: Any) -> MemoryTransport:
    return MemoryTransport(kind(sum(SIZES), **spec))


def played(transport: Transport, steps: int = 30) -> list[Any]:
    """Everything that an SB3 user sees."""
    env = UnrealVecEnv(transport, monitor=False)
    env.seed(7)
    seen: list[Any] = [env.reset().copy() if isinstance(env.observation_space, object) else None]
    random = np.random.default_rng(1)
    for step in range(steps):
        if step % 9 == 5:
            env.seed(step)
        seen += [*env.step(random.integers(0, 3, env.num_envs))]
        seen.append([dict(info) for info in env.reset_infos])
    env.close()
    return seen


def same(one: Any, other: Any) -> None:
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            same(mine, its)
    else:
        assert one == other


@pytest.mark.parametrize("codec", [True, False])
@pytest.mark.parametrize("kind", [Walk, MaskedWalk])
def test_a_rollout_of_several_engines_is_that_of_one(kind: Any, codec: bool) -> None:
    same(played(several(kind, codec=codec)), played(one(kind)))
