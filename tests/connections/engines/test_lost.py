"""An engine is lost: its episodes end as truncated with the last good observation, and it comes back."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO

from tests.connections.engines.conftest import A, played, steps_of, two
from tests.harness.several import FragileSource, FragileTransport, MaskedWalk, Walk
from tests.support.steps import advance, begin
from ue_rl.connections.engines.lifecycle import Change, Life, LifeState
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.system import errors


@pytest.mark.parametrize("moment", ["ask", "collect"])
@pytest.mark.parametrize("kind", [Walk, MaskedWalk])
def test_lost_in_a_step(moment: str, kind: Any) -> None:
    env, fragile = played(kind)
    env.step(A)
    fragile.breaks = [moment]
    obs, rewards, dones, infos = env.step(A)
    assert dones.tolist() == [False, False, True, True]
    assert rewards.tolist() == [2, 2, 0, 0]
    assert steps_of(obs) == [2, 2, 0, 0]  # the new episodes' first
    for info in infos[2:]:
        assert info["TimeLimit.truncated"] is True
        assert info["terminal_observation"][2] == 1  # the last that came
        assert "went away" in info["engine_lost"]
        assert "engine 1 (m2)" in info["engine_lost"]
        assert "episode" not in info
    assert not any("engine_lost" in info for info in infos[:2])
    if kind is MaskedWalk:
        assert [info["action_mask"].tolist() for info in infos] == [[1, 1, 0]] * 4
    obs, rewards, dones, infos = env.step(A)
    assert steps_of(obs) == [3, 3, 1, 1]
    assert len(fragile.bridges) == 2
    obs, rewards, dones, infos = env.step(A)
    assert [info.get("episode", {}).get("l") for info in infos] == [4, 4, None, None]
    env.close()


@pytest.mark.parametrize("moment", ["ask_resets", "collect_resets", "open"])
def test_lost_in_the_first_reset(moment: str) -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    fragile.breaks = [moment] if moment != "open" else ["collect_resets", "open", "open"]
    env.seed(10)
    env.set_options({"a": 1})
    obs = env.reset()
    assert obs[:, 1].tolist() == [10, 11, 12, 13]  # the same seeds
    resets = [entry for entry in fragile.bridges[-1].log if entry[0] == "reset"]
    assert [(entry[2], entry[3]) for entry in resets] == [(12, {"a": 1}), (13, {"a": 1})]
    assert env.reset_infos == [{"step": 0}] * 4


class ShortAndLong(Walk):
    """Its envs' first episodes take 3 and 6 steps in turn."""

    def handle_reset_for_env(self, env_id: int, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            seed = 4 + 3 * (env_id % 2)
        super().handle_reset_for_env(env_id, seed, options)


@pytest.mark.parametrize("moment", ["ask_resets", "collect_resets"])
def test_lost_in_the_second_round_trip(moment: str) -> None:
    """Env 2 ends; as it is reset its engine is lost, and env 3 was in mid-episode."""
    transport, fragile = two(ShortAndLong)
    env = UnrealVecEnv(transport)
    env.seed(0)
    env.reset()
    env.step(A)
    env.step(A)
    fragile.breaks = [moment]
    obs, rewards, dones, infos = env.step(A)
    assert dones.tolist() == [True, False, True, True]
    assert rewards.tolist() == [3, 3, 3, 3]  # the rewards of this step are good
    assert [info.get("TimeLimit.truncated") for info in infos] == [False, False, False, True]
    assert infos[3]["terminal_observation"].tolist() == [3, 7, 3, 0]
    assert "engine_lost" in infos[3]
    assert infos[3]["step"] == 3  # what the engine said of this step
    assert "engine_lost" not in infos[2]  # its episode had ended by itself
    assert infos[2]["episode"]["r"] == 6
    assert "episode" not in infos[3]
    assert steps_of(obs) == [0, 3, 0, 0]
    obs, rewards, dones, infos = env.step(A)
    assert steps_of(obs) == [1, 4, 1, 1]


def test_lost_between_steps_in_a_call() -> None:
    env, fragile = played(features=("TIME_SCALE",))
    env.set_params({"gravity": 5.0})
    fragile.breaks = ["call"]
    with pytest.raises(errors.CommandFailed, match="was lost"):
        env.get_params(env_id=3)
    env.set_time_scale(3)  # the other one takes it at once
    with pytest.raises(errors.CommandFailed, match="not come back yet"):
        env.get_params(env_id=3)
    assert env.get_params(env_id=1) == {"gravity": 5}
    _, _, dones, infos = env.step(A)
    assert dones.tolist() == [False, False, True, True]
    assert "engine_lost" in infos[3]
    again = fragile.bridges[1]
    assert (again.gravity, again.scale) == ([5.0, 5.0], 3)  # as it was set
    assert env.get_params(env_id=3) == {"gravity": 5}
    fragile.breaks = ["call"]
    with pytest.raises(errors.CommandFailed):
        env.get_params(env_id=3)
    assert steps_of(env.reset()) == [0] * 4  # a reset instead of a step
    assert steps_of(env.step(A)[0]) == [1] * 4


def test_parameters_of_an_episode_whose_reset_was_lost_are_not_drawn_again() -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    randomizer = env.randomize({"gravity": (1, 2)}, seed=1)
    assert randomizer is not None
    fragile.breaks = ["collect_resets"]
    env.reset()
    expected = type(randomizer)(env.engine_spec, {"gravity": (1, 2)}, 1)
    assert [randomizer.values[e] for e in range(4)] == [expected(e) for e in range(4)]
    assert [entry[4] for entry in fragile.bridges[1].log] == pytest.approx(
        [randomizer.values[e]["gravity"] for e in (2, 3)]
    )


def test_an_engine_that_comes_back_as_another_game_is_refused() -> None:
    source = FragileSource(lambda life: Walk(2 + life))
    env = UnrealVecEnv(EnginesTransport([source], restarts=Restarts()))
    env.reset()
    source.breaks = ["collect"]
    with pytest.raises(errors.ConnectionUnusable, match=r"not the one that was lost.*ENV_COUNT.*expected 2; got 3"):
        env.step(A[:2])


@pytest.mark.parametrize("resets", [None, [1]])
def test_once_an_engine_was_waited_for_in_vain_the_others_are_given_less(
    resets: list[int] | None,
) -> None:
    """They have had as much time as it: engines that all hang must not cost a timeout each."""
    sources = [FragileSource(lambda life, at=at: Walk(2, at), f"m{at}") for at in (0, 2, 4, 6)]  # type: ignore[misc]
    transport = EnginesTransport(sources, restarts=Restarts())
    begin(transport)
    for part, source in zip(transport._parts, sources, strict=True):
        assert isinstance(part.transport, FragileTransport)
        part.transport.timeout = 60.0
        source.waited.clear()
    for source in (sources[1], sources[3]):
        source.breaks, source.error = ["collect"], lambda: errors.EngineTimeout("too late", fault="engine")
    assert advance(transport, 0, resets).lost == {2, 3, 6, 7}
    assert [source.waited for source in sources] == [[60], [60], [0.5], [0.5]]
    advance(transport, 0, [2, 3, 6, 7])
    assert [source.waited[1:] for source in sources] == [[60], [30], [60], [30]]  # and as long as ever the next time


def test_ctrl_c_is_no_loss() -> None:
    env, fragile = played()
    fragile.error = KeyboardInterrupt  # type: ignore[assignment]
    fragile.breaks = ["collect"]
    with pytest.raises(KeyboardInterrupt):
        env.step(A)
    assert not fragile.losses
    with pytest.raises(errors.ConnectionUnusable):
        env.reset()


@pytest.mark.parametrize(
    "which", [errors.EngineTimeout, errors.MalformedMessage, errors.RingFull, errors.NonFiniteValue]
)
def test_whatever_an_engine_does_wrong_is_survived(which: type[errors.UeRlError]) -> None:
    transport, fragile = two()
    changes: list[Change] = []
    transport = EnginesTransport([p.source for p in transport._parts], restarts=Restarts(), on_change=changes.append)
    env = UnrealVecEnv(transport)
    env.reset()
    fragile.error = lambda: which("wrong", fault="engine", env_id=1)
    fragile.breaks = ["collect"]
    _, _, dones, infos = env.step(A)
    assert dones.tolist() == [False, False, True, True]
    assert "env 3" in infos[2]["engine_lost"]  # counted over all engines
    states = [change.after for change in changes if change.engine == 1]
    failed = LifeState.TIMEOUT if issubclass(which, TimeoutError) else LifeState.CONNECTION_LOST
    begin = [LifeState.CONNECTING, LifeState.STREAMING, LifeState.PLAYING]
    assert states == [*begin, failed, LifeState.CLEANUP, *begin]
    env.close()
    assert [change.after for change in changes[-2:]] == [LifeState.CLEANUP, LifeState.IDLE]


def test_all_engines_at_once() -> None:
    sources = [FragileSource(lambda life, at=at: Walk(1, at)) for at in range(10)]  # type: ignore[misc]
    env = UnrealVecEnv(EnginesTransport(sources, restarts=Restarts()))
    env.reset()
    for n in (1, 5, 8):
        sources[n].breaks = ["collect"]
    _, _, dones, _ = env.step(np.zeros(10, np.int64))
    assert np.flatnonzero(dones).tolist() == [1, 5, 8]
    for source in sources:
        source.breaks = ["ask"]
    obs, _, dones, _ = env.step(np.zeros(10, np.int64))
    assert dones.all()
    assert steps_of(obs) == [0] * 10


def test_what_algorithms_store() -> None:
    """Truncated transitions whose next observation is the last good one; no return of a lost episode is counted."""
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    model = DQN("MlpPolicy", env, learning_starts=1000, buffer_size=50)

    def break_at(local: Any, _: Any) -> bool:
        if local["self"].num_timesteps == 8:
            fragile.breaks = ["collect"]
        return True

    model.learn(24, callback=break_at)
    buffer = model.replay_buffer
    assert buffer is not None
    dones, cut = buffer.dones[:6], buffer.timeouts[:6]
    assert cut[2].tolist() == [0, 0, 1, 1]
    assert dones[2].tolist() == [0, 0, 1, 1]
    assert buffer.next_observations[2, 2:, 2].tolist() == [2, 2]
    assert buffer.observations[3, 2:, 2].tolist() == [0, 0]
    assert buffer.rewards[2].tolist()[2:] == [0, 0]
    # 8 steps of each env: two episodes of the first two, one whole one of the others; the lost ones are not counted
    assert [info["l"] for info in model.ep_info_buffer or ()] == [4] * 6
    env.close()


def test_ppo_learns_on() -> None:
    transport, fragile = two()
    env = UnrealVecEnv(transport)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1)
    fragile.breaks = ["collect", "collect_resets", "open"]
    model.learn(64)
    assert model.num_timesteps == 64


def test_episodes_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    transport, _ = two()
    env = UnrealVecEnv(transport)
    env.reset()
    with caplog.at_level(logging.INFO, "ue_rl.connections.engines"):
        for _ in range(10):
            env.step(A)
    assert not caplog.records
    vector = UnrealVectorEnv(two()[0])
    vector.reset()
    states = []
    for _ in range(6):
        vector.step(A)
        states.append(vector.transport.lives[0].state)  # type: ignore[attr-defined]
    assert states == [LifeState.PLAYING] * 3 + [LifeState.EPISODE_OVER] + [LifeState.PLAYING] * 2


def test_a_step_before_any_reset() -> None:
    life = Life(0)
    for state in (LifeState.CONNECTING, LifeState.STREAMING):
        life.to(state)
    life.episode(over=True)
    assert life.state is LifeState.EPISODE_OVER


def test_names_of_what_train_shows() -> None:
    env, fragile = played()
    fragile.breaks = ["collect"]
    env.step(A)
    env.step(A)
    assert [(e.name, e.state, e.num_envs, e.restarts) for e in env.transport.engines] == [
        ("m0", LifeState.PLAYING, 2, 0),
        ("m2", LifeState.PLAYING, 2, 1),
    ]
    assert env.transport.engine_envs == [range(2), range(2, 4)]
    assert [len(env.transport.latencies(n)) for n in (0, 1)] == [2, 1]
    assert (env.transport.latencies(0) > 0).all()
    assert env.transport.describe()["engines"] == "2"
    assert isinstance(env.transport._parts[0].transport, FragileTransport)
