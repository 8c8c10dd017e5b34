"""A run that is stopped and goes on ends with the weights, bit by bit, of a run that was never stopped."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import ue_rl
from tests.harness.exactness import CASES, At, bridge, broken, differ, learn, whole
from tests.harness.several import FragileSource
from ue_rl.bridges import run_in_thread, run_shm_in_thread
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system import errors

MUST = ("ppo", "a2c", "sac", "dqn")
# Of what else a run may have, each once: statistics, noise that lasts longer than a rollout, stacked parts, hindsight,
# states, masks, and who learns.
EACH = (
    "ppo_normalized", "sac_sde", "ppo_dict_stacked", "sac_ou", "her", "recurrent", "masked", "ppo_overlapped",
    "ppo_numpy",
)  # fmt: skip
TOTAL = 96  # env-steps: two rollouts of PPO, so that the second one is collected by what has learnt


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def fresh() -> Iterator[Callable[[str, str], UnrealVecEnv]]:
    """An env of an engine that has just started, over a carrier; as in a new process no generator is as it was."""
    closers: list[Callable[[], None]] = []

    def start(name: str, carrier: str) -> UnrealVecEnv:
        random.seed()
        np.random.seed()
        torch.seed()
        host = bridge(CASES[name][1])
        if carrier == "memory":
            return UnrealVecEnv(MemoryTransport(host))
        engine = run_in_thread(host) if carrier == "text" else run_shm_in_thread(host)
        env = ue_rl.connect(engine.url, timeout=20)
        closers.extend((engine.close, env.close))
        return env

    yield start
    for close in reversed(closers):
        close()


@pytest.mark.parametrize(
    ("name", "carrier", "often"),
    [
        pytest.param(name, carrier, True, marks=() if (name, carrier) == ("ppo", "shm") else pytest.mark.exhaustive)
        for name in MUST
        for carrier in ("text", "shm")
    ]
    + [
        pytest.param(name, "memory", often, marks=() if name in EACH and not often else pytest.mark.exhaustive)
        for name in CASES
        if name not in MUST
        for often in (False, True)
    ],
)
def test_interrupted_equals_uninterrupted(
    tmp_path: Path, fresh: Callable[[str, str], UnrealVecEnv], name: str, carrier: str, often: bool
) -> None:
    anywhere = int(np.random.default_rng().integers(51, TOTAL))
    stops = [50, anywhere] if often else [anywhere]
    if name == "ppo":  # the first step, twice at the same one, a rollout's end
        stops = [1, 50, 50, anywhere, TOTAL]
    for stop in stops:
        learn(name, fresh(name, carrier), tmp_path / "parts", TOTAL, callbacks=[At(stop, broken)])
    last = learn(name, fresh(name, carrier), tmp_path / "parts", TOTAL)
    assert last.num_timesteps == whole(name, TOTAL).num_timesteps
    assert differ(last, whole(name, TOTAL)) == [], stops


@pytest.mark.parametrize("name", ["ppo_normalized", pytest.param("sac", marks=pytest.mark.exhaustive)])
def test_several_engines_of_which_one_is_lost(tmp_path: Path, name: str) -> None:
    """A run that has survived a loss is stopped and goes on; then the engine is lost for good."""

    def start(restarts: Restarts | None = None) -> tuple[UnrealVecEnv, FragileSource]:
        sources = [FragileSource(lambda life, count=count: bridge(CASES[name][1], num_envs=count)) for count in (1, 2)]
        return UnrealVecEnv(EnginesTransport(sources, restarts=restarts or Restarts(10, 60.0))), sources[1]

    def lose(source: FragileSource) -> At:
        return At(30, lambda: source.breaks.append("collect"))

    env, source = start()
    whole = learn(name, env, tmp_path / "whole", callbacks=[lose(source)])
    env, source = start()
    learn(name, env, tmp_path / "parts", callbacks=[lose(source), At(37, broken)])
    env, source = start(restarts=Restarts(0, 60.0))
    with pytest.raises(errors.RestartsSpent):
        learn(name, env, tmp_path / "parts", callbacks=[lose(source)])
    assert differ(learn(name, start()[0], tmp_path / "parts"), whole) == []
