"""The envs as libraries that know nothing of engines use them: their infos, spaces, pictures, pickles and errors."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeAwareObservation
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

import ue_rl
from ue_rl.bridges import GymnasiumBridge, run_in_thread, run_shm_in_thread
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.agents import AgentsEnv
from ue_rl.protocol.spaces.tree import LeafKind, box
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.protocol.text.calls import write_picture
from ue_rl.system import errors

BEYOND = 2**24 + 1


class Said(gym.Env[Any, Any]):
    """Gives the observation and the info that it was made with; its episodes have three steps."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, space: Any = None, info: Any = None, obs: Any = None, render_mode: str | None = None) -> None:
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32) if space is None else space
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        self.info, self.obs, self.render_mode = info or {}, obs, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), dict(self.info)

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._seen(), 0.0, self.steps == 3, False, dict(self.info)

    def render(self) -> Any:
        return np.full((4, 6, 3), 7, np.uint8)

    def _seen(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32) if self.obs is None else self.obs


def vec_env(**said: Any) -> ue_rl.UnrealVecEnv:
    return ue_rl.UnrealVecEnv(MemoryTransport(GymnasiumBridge(lambda: Said(**said), 2, send_info=True)))


def one_env(**said: Any) -> ue_rl.UnrealEnv:
    return ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(lambda: Said(**said), 1, send_info=True)))


@pytest.fixture(params=[run_in_thread, run_shm_in_thread], ids=["tcp", "shm"])
def hosted(request: pytest.FixtureRequest) -> Iterator[Callable[..., str]]:
    """Hosts `n` envs of a kind; the url."""
    running: list[Any] = []

    def host(n: int = 1, **said: Any) -> str:
        bridge = GymnasiumBridge(Said if said else "CartPole-v1", n, **said)
        running.append(request.param(bridge))
        return str(running[-1].url)

    yield host
    for one in running:
        one.close()


# -- infos


INFO = {"rollout": {"obs": np.arange(6.0).reshape(3, 2), "acts": np.array([1, 0])}, "names": ["a", "b"], "n": 3}


def test_arrays_in_infos_are_arrays_in_every_env() -> None:
    vec, env = vec_env(info=INFO), one_env(info=INFO)
    vec.reset()
    _, first = env.reset()
    for info in (*vec.reset_infos, first, *vec.step(np.zeros(2, int))[3], env.step(0)[4]):
        assert isinstance(info["rollout"]["obs"], np.ndarray)
        assert info["rollout"]["obs"].tolist() == INFO["rollout"]["obs"].tolist()  # type: ignore[index]
        assert info["rollout"]["acts"].dtype == np.int64
        assert (info["names"], info["n"]) == (["a", "b"], 3)


@pytest.mark.parametrize("value", [np.nan, -np.inf, np.array([0, np.nan]), {"deep": [np.inf]}])
def test_an_info_that_json_cannot_carry_is_named(value: Any) -> None:
    env = one_env(info={"speed": value, "height": 1.5})
    with pytest.warns(UserWarning, match=r"'speed' is left out.*NaN or infinity"):
        assert env.reset()[1] == {"height": 1.5}


def test_every_step_says_whether_it_was_truncated_as_with_a_dummy_vec_env() -> None:
    env, theirs = vec_env(), DummyVecEnv([Said, Said])
    env.reset()
    theirs.reset()
    for _ in range(4):
        ours, expected = env.step(np.zeros(2, int))[3], theirs.step(np.zeros(2, int))[3]
        assert [info["TimeLimit.truncated"] for info in ours] == [info["TimeLimit.truncated"] for info in expected]


# -- spaces


@pytest.mark.parametrize("high", [np.inf, 0.1])
def test_a_row_of_float64_keeps_its_space(high: float, tmp_path: Any) -> None:
    space = spaces.Box(-high, high, (3,), np.float64)
    seen = np.array([-0.1, 0.1, 0.05])
    env = vec_env(space=space, obs=seen)
    assert env.observation_space == space
    obs = env.reset()
    assert obs.dtype == np.float64
    assert all(space.contains(row) for row in obs)
    assert np.array_equal(obs[0].astype(np.float32), seen.astype(np.float32))
    theirs = DummyVecEnv([lambda: Said(space, obs=seen)] * 2)
    PPO("MlpPolicy", theirs, n_steps=4, batch_size=4, device="cpu").save(tmp_path / "model")
    PPO.load(tmp_path / "model", env=env, device="cpu").learn(8)


def test_integers_that_would_be_rounded_are_refused_by_name() -> None:
    space = spaces.Box(0, 2**31 - 1, (2,), np.int32)
    env = one_env(space=space, obs=np.array([2**24, 7], np.int32))
    assert env.reset()[0].tolist() == [2**24, 7]
    wide = one_env(space=spaces.Dict(score=space), obs={"score": np.array([7, BEYOND], np.int32)})
    with pytest.raises(errors.UeRlError, match=r"not exact in float32.*OBS.score.*16777217"):
        wide.reset()
    with pytest.raises(errors.UeRlError, match=r"not exact in float32.*16777217"):
        one_env(space=space, obs=np.array([BEYOND, 7], np.int32)).reset()


def test_integers_of_an_action_or_from_another_engine_are_refused_too() -> None:
    from ue_rl.envs.actions import ActionWriter
    from ue_rl.envs.observations import Observations
    from ue_rl.protocol.buffers import StepBuffers
    from ue_rl.protocol.spec import ActionSpec

    tree = box((2,), 0, 2**40, "int64")
    assert tree.wide
    assert not box((2,), 0, 2**24, "int64").wide
    spec = EnvSpec(2, 2, action=ActionSpec.of(tree), obs_space=tree)
    writer = ActionWriter(spec)
    assert writer(np.array([[1, 2**24]])).tolist() == [[1, 2**24]]
    with pytest.raises(errors.ActionError, match=r"not exact in float32.*16777217"):
        writer(np.array([[1, BEYOND]]))
    buffers = StepBuffers.of(spec)
    buffers.obs[:] = 2**25
    with pytest.raises(errors.MalformedMessage, match="not exact in float32"):
        Observations(spec).read(buffers)
    assert tree.kind is LeafKind.BOX


@pytest.mark.parametrize("space", [spaces.Text(4), spaces.OneOf([spaces.Discrete(2)])])
def test_a_space_that_cannot_be_carried_is_named(space: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match=rf"cannot carry a {type(space).__name__} space.*at: hint"):
        GymnasiumBridge(lambda: Said(spaces.Dict(hint=space)))


# -- pictures


def test_connect_gives_pictures_where_the_engine_sends_them(hosted: Callable[..., str]) -> None:
    env = ue_rl.connect(hosted(2, render_mode="rgb_array"))
    assert env.render_mode == "rgb_array"
    assert env.metadata["render_fps"] == env.engine_spec.render_fps == 50
    assert env.get_images()[1].shape == (4, 6, 3)  # type: ignore[union-attr]
    env.close()
    env = ue_rl.connect(hosted(2, render_mode=None))
    assert (env.render_mode, env.metadata["render_modes"]) == (None, [])
    env.close()


def test_an_env_of_agents_gives_pictures() -> None:
    pytest.importorskip("pettingzoo")
    group = AgentGroup("cart", 2, EnvSpec(2, 1))
    picture = np.zeros((4, 6, 3), np.uint8)
    said = write_picture(picture)
    for feature, seen in (("RENDER", True), ("SEED", False)):
        spec = EnvSpec(2, 1, groups=(group,), features=frozenset((feature,)))
        transport = SimpleNamespace(connect=lambda spec=spec: spec, spec=spec, call=lambda line: said)
        env = ue_rl.UnrealParallelEnv(cast(Any, transport))
        shown = env.render()
        assert np.array_equal(shown, picture) if seen else shown is None
        assert env.metadata["render_modes"] == (["rgb_array"] if seen else [])


@pytest.mark.parametrize("render_mode", [None, "rgb_array"])
def test_the_checker_is_content_with_an_engine_of_one_connection(
    hosted: Callable[..., str], render_mode: str | None
) -> None:
    url = hosted(render_mode=render_mode)
    env = gym.make("ue_rl/Engine-v0", url=url, render_mode=render_mode)
    assert env.unwrapped.metadata["render_modes"] == ([] if render_mode is None else ["rgb_array"])
    assert env.spec is not None
    assert env.spec.id == env.unwrapped.spec.id == "ue_rl/Engine-v0"  # type: ignore[union-attr]
    assert type(copy.deepcopy(env.unwrapped.spec)) is type(pickle.loads(pickle.dumps(env.unwrapped.spec)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


# -- wrong uses


@pytest.mark.parametrize("kind", [ue_rl.UnrealEnv, ue_rl.UnrealVecEnv, ue_rl.UnrealVectorEnv, AgentsEnv])
@pytest.mark.parametrize("transport", ["tcp://127.0.0.1:7777", None])
@pytest.mark.filterwarnings("error")
def test_an_address_is_no_transport(kind: Any, transport: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"takes a connection, not an address.*ue_rl\.connect\(url\)"):
        kind(transport)


@pytest.mark.parametrize("kind", [ue_rl.UnrealEnv, ue_rl.UnrealVecEnv, ue_rl.UnrealVectorEnv])
@pytest.mark.parametrize("send", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_connection_is_not_pickled(kind: Any, send: Any) -> None:
    env = kind(MemoryTransport(GymnasiumBridge(Said, 1)))
    with pytest.raises(TypeError, match="in the process that uses it"):
        send(env)
    env.reset()


def test_make_vec_env_is_told_of_connect(hosted: Callable[..., str]) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"ue_rl\.connect\(url\)"):
        make_vec_env("ue_rl/Engine-v0", 2, env_kwargs={"url": hosted(2)})


def test_a_parameter_is_a_number_and_one_name_is_a_name() -> None:
    env = ue_rl.UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 2, parameters={"gravity": (9.8, 1, 20)})))
    for wrong in ("3", "high", None, [3]):
        with pytest.raises(errors.ConfigurationError, match=r"a parameter is a number.*gravity.*1 to 20"):
            env.env_method("set_params", {"gravity": wrong})
        with pytest.raises(errors.ConfigurationError, match="a parameter is a number"):
            env.set_attr("gravity", wrong)
    assert env.env_method("get_params", "gravity") == [{"gravity": pytest.approx(9.8)}] * 2
    env.reset()  # nothing of it harmed the connection


def test_a_step_of_a_vector_env_in_two_halves() -> None:
    envs = [ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 3))) for _ in range(2)]
    for env in envs:
        env.reset(seed=1)
    for step in range(60):
        actions = np.full(3, step % 2)
        envs[0].step_async(actions)
        np.testing.assert_equal(envs[0].step_wait(timeout=20), envs[1].step(actions))


def test_a_time_limit_lets_others_know_the_time(hosted: Callable[..., str]) -> None:
    env = TimeAwareObservation(gym.make("ue_rl/Engine-v0", url=hosted(), max_episode_steps=20))
    env.reset(seed=1)
    assert env.step(0)[0][-1] == 1
    env.close()


@pytest.fixture(scope="module")
def said_without_sb3() -> dict[str, str]:
    """What each of CALLS says where Stable-Baselines3 is not installed, in one process, since each takes the import."""
    code = "import json, sys, traceback; sys.modules['stable_baselines3'] = None; import ue_rl; said = {}\n"
    for call in CALLS:
        code += f"try:\n    ue_rl.{call}\nexcept Exception:\n    said[{call!r}] = traceback.format_exc()\n"
    code += "print(json.dumps(said))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


CALLS = ["connect('tcp://127.0.0.1:1')", "launch('x {port}')", "UnrealVecEnv", "AutoSave"]


@pytest.mark.parametrize("call", CALLS)
def test_a_plain_install_names_what_to_install(call: str, said_without_sb3: dict[str, str]) -> None:
    said = said_without_sb3[call]
    assert "ue_rl.system.errors.MissingPackage" in said.splitlines()[-1]
    assert "needs stable_baselines3, which is not installed" in said
    assert "pip install 'ue_rl[train]'" in said


def test_a_saved_model_names_what_to_install(tmp_path: Path) -> None:
    """Where the extra `inference` alone is installed a model.zip cannot act, and says so."""
    code = "import sys; sys.modules.update(dict.fromkeys(['torch', 'stable_baselines3']))\n"
    code += f"from ue_rl.inference import Sb3Inference; Sb3Inference({str(tmp_path / 'model.zip')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ue_rl.system.errors.MissingPackage: Sb3Inference needs torch" in done.stderr.splitlines()[-1]
    assert "pip install 'ue_rl[train]'" in done.stderr
