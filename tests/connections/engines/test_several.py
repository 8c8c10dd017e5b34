"""Several engines as one: the same numbers, bit by bit, as one engine with all the envs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness.scripted_agents import World, lives, spec_of
from tests.harness.several import FragileSource, MaskedWalk, Walk
from tests.support.same import assert_same
from tests.support.steps import advance
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.agents import GroupVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.spec import EnvSpec, ImageSpec
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors

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
    seen: list[Any] = [env.reset()]
    random = np.random.default_rng(1)
    for step in range(steps):
        if step % 9 == 5:
            env.seed(step)
        seen += [*env.step(random.integers(0, 3, env.num_envs))]
        seen.append([dict(info) for info in env.reset_infos])
    env.close()
    return seen


@pytest.mark.parametrize("codec", [True, False])
@pytest.mark.parametrize("kind", [Walk, MaskedWalk])
def test_a_rollout_of_several_engines_is_that_of_one(kind: Any, codec: bool) -> None:
    assert_same(played(several(kind, codec=codec)), played(one(kind)))


def test_images_and_agents_are_those_of_one_engine() -> None:
    image = ImageSpec(2, 3, 3)
    assert_same(played(several(Walk, image=image)), played(one(Walk, image=image)))

    def group_rollout(transport: Transport) -> list[Any]:
        env = GroupVecEnv(transport, monitor=False)
        seen: list[Any] = [env.reset()]
        random = np.random.default_rng(1)
        for _ in range(20):
            seen += [*env.step(random.random((env.num_envs, 2), np.float32)), [dict(i) for i in env.reset_infos]]
        return seen

    def world(count: int, first: int) -> World:
        script = lives(2, 4)
        made = World(spec_of(count, {"a": 2}), lambda env, n, t: script(env + first, n, t + (env + first) % 2))
        made.first = first  # type: ignore[attr-defined]
        return made

    parts = EnginesTransport([FragileSource(lambda life, n=n, at=at: world(n, at)) for n, at in ((2, 0), (3, 2))])  # type: ignore[misc]
    seen, expected = group_rollout(parts), group_rollout(world(5, 0))
    for mine, its in zip(seen, expected, strict=True):
        if isinstance(mine, np.ndarray) and mine.ndim == 2:
            assert_same(mine[:, 1:], its[:, 1:])  # the first number is the env, which each engine counts itself
            continue
        if isinstance(mine, list):
            for info in (*mine, *its):
                info.pop("place", None)
                info.pop("terminal_observation", None)
        assert_same(mine, its)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_gymnasium_rollout_of_several_engines_is_that_of_one(mode: str) -> None:
    def rollout(transport: Transport) -> list[Any]:
        env = UnrealVectorEnv(transport, autoreset_mode=mode)
        seen: list[Any] = [*env.reset(seed=5)]
        random = np.random.default_rng(1)
        for _ in range(20):
            seen += env.step(random.integers(0, 3, env.num_envs))
        mask = np.arange(env.num_envs) % 2 == 0
        if mode == "NextStep":
            seen += env.reset(seed=9, options={"reset_mask": mask})
        return seen

    for mine, its in zip(rollout(several()), rollout(one()), strict=True):
        if isinstance(mine, dict):
            assert repr(mine) == repr(its)
        else:
            assert_same(mine, its)


def test_parameters_drawn_for_each_episode_are_the_same() -> None:
    logs = []
    for transport in (several(), one()):
        env = UnrealVecEnv(transport, monitor=False)
        env.randomize({"gravity": (1, 2)}, seed=3)
        env.reset()
        for _ in range(12):
            env.step(np.zeros(env.num_envs, np.int64))
        parts = (
            [p.source.bridges[0] for p in transport._parts]
            if isinstance(transport, EnginesTransport)
            else [transport.bridge]
        )
        logs.append(sorted(e for part in parts for e in part.log if e[0] == "reset"))
    assert logs[0] == logs[1]


def test_calls_go_to_the_engine_of_their_env_or_to_all() -> None:
    transport = several(features=("RENDER", "TIME_SCALE", "GOAL_REWARD"))
    transport.connect()
    walks = [part.source.bridges[0] for part in transport._parts]  # type: ignore[attr-defined]
    calls = EngineCalls(transport)
    assert calls.set_parameters({"gravity": 3.5}) == {"gravity": 3.5}
    assert [walk.gravity for walk in walks] == [[3.5] * 3, [3.5], [3.5] * 2]
    assert calls.set_parameters({"gravity": 4.5}, 4) == {"gravity": 4.5}
    assert walks[2].gravity == [4.5, 3.5]
    assert calls.get_parameters(env_id=4) == {"gravity": 4.5}
    assert calls.get_parameters() == {"gravity": 3.5}
    assert [calls.render(env)[0, 0, 0] for env in range(6)] == [0, 1, 2, 3, 4, 5]
    calls.set_time_scale(4)
    assert [walk.scale for walk in walks] == [4, 4, 4]
    assert calls.compute_reward([[1.0]], [[3.0]]).tolist() == [-2]
    with pytest.raises(errors.ConfigurationError):
        transport.call("RENDER;ENV=6")


def test_engines_that_differ_are_refused_by_name() -> None:
    sources = [
        FragileSource(lambda life, n=n: Walk(2, obs_low=(0.0,) * 4, obs_high=(n,) * 4), f"engine{n}")
        for n in (5.0, 6.0)
    ]  # type: ignore[misc]
    with pytest.raises(errors.HandshakeError, match=r"engine6.0 is another game than engine 0 \(engine5.0\)") as caught:
        EnginesTransport(sources).connect()
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("OBS_HIGH", "5.0 at 0", "6.0 at 0")
    assert all(source.closed for source in sources)


def test_features_of_all_engines_count() -> None:
    sources = [
        FragileSource(lambda life: Walk(2, features=("RENDER",))),
        FragileSource(lambda life: World(EnvSpec(4, 1), lives(3))),
    ]
    with pytest.raises(errors.HandshakeError, match="ACT_SPACE"):
        EnginesTransport(sources).connect()


def test_what_one_engine_would_refuse_is_refused_before_any_is_asked() -> None:
    transport = several()
    env = UnrealVecEnv(transport)
    env.reset()
    actions = np.zeros((6, 1), np.float32)
    actions[4] = np.nan
    with pytest.raises(errors.ActionError, match="env 4"):
        transport.send_actions(actions)
    with pytest.raises(errors.ConfigurationError, match="OPTIONS"):
        transport.reset([4, 0], options=[{"a": object()}, None])
    advance(transport, np.nan_to_num(actions))
    with pytest.raises(errors.ActionError):
        transport.send_actions(actions, [0])
    advance(transport, actions, [4, 0])


def test_no_engines() -> None:
    with pytest.raises(errors.ConfigurationError):
        EnginesTransport([])
