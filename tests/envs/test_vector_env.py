"""UnrealVectorEnv against Gymnasium's SyncVectorEnv: every autoreset mode, infos, attributes."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import PassiveEnvChecker

import ue_rl
from tests.envs.conftest import Sampled
from tests.harness.several import MaskedWalk
from tests.support.games import Sum
from tests.support.same import assert_same
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.infos import stacked
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors

N = 3


class Walk(gym.Env[Any, Any]):
    """Ends in both ways, and says so in infos of every kind."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.total, self.steps = float(self.np_random.normal()), 0
        return self._obs(), {"start": self.total, "place": np.array([self.total, 1.0])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.total += float(action.sum()) / 7 + float(self.np_random.normal()) / 3
        info: dict[str, Any] = {
            "steps": self.steps,
            "place": np.array([self.total, self.steps]),
            "inner": {"grid": np.arange(4, dtype=np.int64).reshape(2, 2) + self.steps, "name": "walk"},
        }
        if self.steps % 2:
            info["odd"] = np.array([True, False])
        return self._obs(), self.total / 3, abs(self.total) > 1.5, self.steps >= 5, info

    def _obs(self) -> Any:
        return np.array([self.total, self.steps, 1 / (1 + self.steps)], np.float32)


def pair(mode: AutoresetMode) -> tuple[ue_rl.UnrealVectorEnv, SyncVectorEnv]:
    transport = MemoryTransport(GymnasiumBridge(Walk, N, send_info=True))
    return ue_rl.UnrealVectorEnv(transport, autoreset_mode=mode), SyncVectorEnv([Walk] * N, autoreset_mode=mode)


def assert_same_infos(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert set(got) == set(want)
    for key, value in want.items():
        if isinstance(value, dict):
            assert_same_infos(got[key], value)
        elif key == "final_obs":
            for mine, theirs in zip(got[key], value, strict=True):
                np.testing.assert_array_equal(mine, theirs)
        else:
            assert got[key].dtype == value.dtype, key
            np.testing.assert_array_equal(got[key], value, err_msg=key)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_step_equals_gymnasiums(mode: AutoresetMode) -> None:
    env, reference = pair(mode)
    assert env.single_observation_space == reference.single_observation_space
    assert env.observation_space == reference.observation_space
    assert env.action_space == reference.action_space
    assert env.metadata["autoreset_mode"] == reference.metadata["autoreset_mode"]
    rng = np.random.default_rng(1)
    got, want = env.reset(seed=3), reference.reset(seed=3)
    np.testing.assert_array_equal(got[0], want[0])
    assert_same_infos(got[1], want[1])
    ended = 0
    for _ in range(80):
        actions = rng.uniform(-1, 1, (N, 2)).astype(np.float32)
        mine, theirs = env.step(actions), reference.step(actions)
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1].astype(np.float32))
        np.testing.assert_array_equal(mine[2], theirs[2])
        np.testing.assert_array_equal(mine[3], theirs[3] & ~theirs[2])  # terminal wins: docs/protocol.md, section 5
        assert [part.dtype for part in mine[:4]] == [part.dtype for part in theirs[:4]]
        assert_same_infos(mine[4], theirs[4])
        over = theirs[2] | theirs[3]
        ended += int(over.sum())
        if mode is AutoresetMode.DISABLED and over.any():
            with pytest.raises(errors.ConfigurationError, match=r"episode is over.*reset_mask"):
                env.step(actions)
            got, want = (one.reset(options={"reset_mask": over.copy()}) for one in (env, reference))
            np.testing.assert_array_equal(got[0], want[0])
            assert_same_infos(got[1], want[1])
    assert ended > 20
    env.close()


def test_next_step_takes_one_round_trip() -> None:
    """The step after an episode's end begins the next one beside the other envs' steps: one request."""
    env, _ = pair(AutoresetMode.NEXT_STEP)
    assert isinstance(env.transport, MemoryTransport)
    env.reset(seed=1)
    action = np.zeros((N, 2), np.float32)
    begun = 0
    for _ in range(30):
        over = env.step(action)
        before = len(env.transport.lines)
        finished = (over[2] | over[3]).sum()
        obs, rewards, terminated, truncated, _ = env.step(action)
        assert len(env.transport.lines) == before + 2  # one request, one answer
        if finished:
            request = env.transport.lines[before][1]
            assert request.count(b"RESET") == finished
            first = (over[2] | over[3]) & True
            assert (obs[first, 1] == 0).all()
            assert not rewards[first].any()
            assert not (terminated | truncated)[first].any()
            begun += 1
    assert begun > 3


def test_the_default_is_gymnasiums() -> None:
    env = ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge(Walk, N)))
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    named = ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge(Walk, N)), autoreset_mode="SameStep")
    assert named.autoreset_mode is AutoresetMode.SAME_STEP


WIDE = 2**63


@pytest.mark.parametrize(
    ("sent", "want", "dtype"),
    [
        ([[1], [1, 2]], [[1], [1, 2], None], object),
        ([1, 0.5], [1, 0.5, 0], np.float64),
        ([[1, 2], [0.5, 1]], [[1, 2], [0.5, 1], [0, 0]], np.float64),
        ([["x"]], [["x"], None, None], object),
        ([1, "one"], [1, "one", None], object),
        (["one", 1], ["one", 1, None], object),
        ([[1], "one"], [[1], "one", None], object),
        ([{"b": 1}, 2], [{"b": 1}, 2, None], object),
        ([2, {"b": 1}], [2, {"b": 1}, None], object),
        ([None, 2], [None, 2, None], object),
        ([True, False], [True, False, False], np.bool_),
        ([True, 5], [1, 5, 0], np.int64),
        ([0.5, True], [0.5, 1, 0], np.float64),
        ([WIDE, WIDE + 1], [WIDE, WIDE + 1, 0], np.uint64),
        ([WIDE, 1], [WIDE, 1, None], object),
        ([WIDE, -1], [WIDE, -1, None], object),
        ([10**400, 0.5], [10**400, 0.5, None], object),
        ([[WIDE + 1, -1]], [[WIDE + 1, -1], None, None], object),
        ([1e300, -1.0], [1e300, -1, 0], np.float64),
    ],
)
def test_an_info_is_what_was_sent_whatever_the_envs_sent_under_one_key(
    sent: list[Any], want: list[Any], dtype: type[Any]
) -> None:
    for inner in (False, True):
        told = {i: {"in": {"a": value}} if inner else {"a": value} for i, value in enumerate(sent)}
        infos = stacked(told, N)
        infos = infos["in"] if inner else infos
        assert infos["a"].dtype == dtype
        assert infos["a"].tolist() == want
        assert infos["_a"].tolist() == [i < len(sent) for i in range(N)]


@pytest.mark.parametrize("sent", [{"a": 1, "_a": 5}, {"_a": 5, "a": 1}])
def test_an_info_with_the_name_of_a_mask_is_refused_by_name(sent: dict[str, int]) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"env 2, field _a.*fault: engine.*[Rr]ename"):
        stacked({1: {"a": 1}, 2: sent}, N)


def test_what_the_game_calls_final_info_is_no_ended_episode() -> None:
    class Final(Walk):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"final_info": {"a": 1}}

    bridge = GymnasiumBridge([Walk, Final, Walk], send_info=True)
    env = ue_rl.UnrealVectorEnv(MemoryTransport(bridge), autoreset_mode="SameStep")
    env.reset(seed=1)
    with pytest.raises(errors.ConfigurationError, match=r"env 1, field final_info"):
        for _ in range(5):
            env.step(np.zeros((N, 2), np.float32))


def discrete(mode: AutoresetMode) -> tuple[ue_rl.UnrealVectorEnv, SyncVectorEnv]:
    transport = MemoryTransport(GymnasiumBridge("CartPole-v1", N))
    makers = [lambda: gym.make("CartPole-v1")] * N
    return ue_rl.UnrealVectorEnv(transport, autoreset_mode=mode), SyncVectorEnv(makers, autoreset_mode=mode)


def test_the_action_of_an_env_that_begins_an_episode_may_be_anything() -> None:
    env, reference = discrete(AutoresetMode.NEXT_STEP)
    env.reset(seed=1)
    reference.reset(seed=1)
    done = np.zeros(N, np.bool_)
    ignored = 0
    for _ in range(60):
        actions = np.where(done, 99, 1)
        ignored += int(done.sum())
        got, want = env.step(actions), reference.step(actions)
        np.testing.assert_array_equal(got[0], want[0])
        done = want[2]
    assert ignored > N
    with pytest.raises(errors.ActionError):
        env.step(np.full(N, 99))


def test_seeds_are_told_as_gymnasium_tells_them() -> None:
    env, reference = discrete(AutoresetMode.NEXT_STEP)
    for seed in (42, None, [3, 4, 5]):
        env.reset(seed=seed)
        reference.reset(seed=seed)
        assert env.np_random_seed == reference.np_random_seed


def test_parameters_are_read_and_set_as_attributes_of_the_envs() -> None:
    bridge = GymnasiumBridge("CartPole-v1", N, parameters={"gravity": (9.8, 1, 20)})
    with run_in_thread(bridge) as engine:
        env = ue_rl.UnrealVectorEnv(open_transport(engine.url, transport="tcp"))
        assert env.call("gravity") == env.get_attr("gravity") == pytest.approx((9.8,) * N)
        env.set_attr("gravity", [5.0, 6.0, 7.0])
        assert env.get_attr("gravity") == (5, 6, 7)
        env.set_attr("gravity", 2)
        assert [inner.unwrapped.gravity for inner in bridge.envs] == [2, 2, 2]
        with pytest.raises(errors.ConfigurationError, match="one value per env"):
            env.set_attr("gravity", [1.0])
        for ask in (lambda: env.set_attr("length", 2), lambda: env.get_attr("length"), lambda: env.call("render")):
            with pytest.raises(AttributeError, match="inside the engine"):
                ask()
        env.close()


@pytest.mark.parametrize(
    "mask", [np.array([True]), np.ones((1, N), np.bool_), np.zeros(N, np.bool_), np.array([1, 1, 0]), np.zeros(N)]
)
def test_a_wrong_reset_mask_is_refused_as_gymnasium_does(mask: Any) -> None:
    env, reference = discrete(AutoresetMode.DISABLED)
    env.reset()
    reference.reset()
    with pytest.raises((ValueError, TypeError, AssertionError)) as theirs:
        reference.reset(options={"reset_mask": mask})
    with pytest.raises(errors.ConfigurationError) as ours:
        env.reset(options={"reset_mask": mask})
    if not isinstance(theirs.value, AssertionError):  # before Gymnasium 1.3
        assert isinstance(ours.value, type(theirs.value))
        assert str(theirs.value) in str(ours.value)


# -- spaces and masks

PARTS: dict[str, spaces.Space[Any]] = {
    "bytes": spaces.Box(0, 200, (2, 2), np.uint8),
    "flags": spaces.MultiBinary(3),
    "inner": spaces.Dict({"pair": spaces.Tuple((spaces.Discrete(3, start=2), spaces.Box(-1, 1, (), np.float32)))}),
    "matrix": spaces.Box(-10, 10, (2, 3), np.float32),
    "weapon": spaces.MultiDiscrete([2, 3], start=[1, -1]),
}


class Anything(Sampled):
    """Takes hybrid actions and checks them."""

    def __init__(self) -> None:
        aim, pick = spaces.Box(-2, 2, (2, 2), np.float32), spaces.Tuple((spaces.Discrete(3, start=-1),))
        super().__init__(spaces.Dict(PARTS), spaces.Dict({"aim": aim, "pick": pick}))

    def worth(self, action: Any) -> float:
        assert self.action_space.contains(action), action
        return float(action["aim"].sum()) + action["pick"][0]


class Choosing(Anything):
    """With masks."""

    def action_masks(self) -> np.ndarray:
        """The step's number decides."""
        return np.array([True, self.steps % 2 == 0, self.steps % 3 == 0])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_nested_spaces_and_hybrid_actions_equal_gymnasiums(mode: AutoresetMode) -> None:
    env = ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge(Anything, N)), autoreset_mode=mode)
    reference = SyncVectorEnv([Anything] * N, autoreset_mode=mode)
    assert env.observation_space == reference.observation_space
    assert env.action_space == reference.action_space
    reference.action_space.seed(1)
    assert_same(env.reset(seed=4)[0], reference.reset(seed=4)[0])
    ended = 0
    for _ in range(40):
        actions = reference.action_space.sample()
        mine, theirs = env.step(actions), reference.step(actions)
        assert_same(mine[0], theirs[0])
        np.testing.assert_allclose(mine[1], theirs[1], rtol=1e-6)
        ended += int(mine[2].sum() + mine[3].sum())
        if "final_obs" in theirs[4]:
            for got, want in zip(mine[4]["final_obs"], theirs[4]["final_obs"], strict=True):
                if want is not None:
                    assert_same(got, want)
    assert ended > 10


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_masks_stand_beside_their_observations(mode: AutoresetMode) -> None:
    env = ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge(Choosing, N)), autoreset_mode=mode)
    _, infos = env.reset(seed=1)
    steps = np.zeros(N, np.int64)
    env.single_action_space.seed(0)
    begins = np.zeros(N, np.bool_)
    for _ in range(30):
        assert infos["action_mask"].dtype == np.int8
        expected = np.stack([np.ones(N, np.bool_), steps % 2 == 0, steps % 3 == 0], axis=1)
        np.testing.assert_array_equal(infos["action_mask"], expected)
        assert infos["_action_mask"].all()
        actions = {"aim": np.zeros((N, 2, 2), np.float32), "pick": (np.full(N, -1),)}  # always legal
        _, _, terminated, truncated, infos = env.step(actions)
        over = terminated | truncated
        steps += 1
        steps[begins] = 0
        if mode is AutoresetMode.SAME_STEP:
            steps[over] = 0
            continue
        begins = over
        # after a terminal state no action follows: the bridge calls everything legal
        infos["action_mask"][terminated] = np.stack([np.ones(N), steps % 2 == 0, steps % 3 == 0], axis=1)[terminated]


def test_a_single_env_passes_the_checkers_with_these_spaces() -> None:
    env = ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(Choosing, 1)))
    assert env.observation_space == spaces.Dict(PARTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*ignores the engine's action masks")
        check_env(env, skip_render_check=True, skip_close_check=True)
        checked = PassiveEnvChecker(env)
        obs, info = checked.reset(seed=1)
        for _ in range(20):
            assert env.observation_space.contains(obs)
            assert info["action_mask"].tolist() == env.action_masks().tolist()
            obs, _, terminated, truncated, info = checked.step(env.action_space.sample())
            if terminated or truncated:
                obs, info = checked.reset()


def test_masks_of_a_single_env_are_those_of_its_last_observation() -> None:
    env = ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(Choosing, 1)))
    _, info = env.reset(seed=2)
    action = {"aim": np.zeros((2, 2), np.float32), "pick": (-1,)}
    for step in range(3):
        assert info["action_mask"].tolist() == [1, step % 2 == 0, step % 3 == 0]
        assert env.action_masks().dtype == np.bool_
        _, _, over, _, info = env.step(action)
        if over:
            break
    assert not hasattr(ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(Anything, 1))), "action_masks")


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_masks_of_envs_that_begin_an_episode_are_not_judged(mode: str) -> None:
    """Its action is ignored, so it breaks no mask; choice 2 is legal at odd steps alone."""
    env = UnrealVectorEnv(MemoryTransport(MaskedWalk(2)), autoreset_mode=mode)
    env.reset(seed=[4, 7])  # episodes of 3 and 6 steps
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            env.step(np.zeros(2, np.int64))
        if mode == "NextStep":
            _, _, _, _, infos = env.step(np.array([1, 0]))  # its last observation was of step 3
            assert infos["action_mask"].tolist() == [[1, 1, 0], [1, 1, 0]]
    with pytest.warns(UserWarning, match="masks: env 1"):
        env.step(np.array([0, 2 if mode == "NextStep" else 1]))


def given(game: Sum) -> dict[int, Any]:
    """The options of each env in the last reset."""
    envs, _, options = game.told[-1]
    return dict(zip(envs, options, strict=True))


def test_options_go_to_each_env_that_is_reset() -> None:
    game = Sum(EnvSpec(1, 1, num_envs=N, features=frozenset({"OPTIONS"})))
    env = UnrealVectorEnv(MemoryTransport(game))
    env.reset(options={"level": 2})
    assert given(game) == {env_id: {"level": 2} for env_id in range(N)}
    env.reset(options={"level": 3, "reset_mask": np.array([True, False, True])})
    assert given(game) == {env_id: {"level": 3} for env_id in (0, 2)}
