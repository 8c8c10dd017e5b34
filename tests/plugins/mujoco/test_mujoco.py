"""MujocoBridge: the same numbers as Gymnasium's envs, seeds, parameters, own models and tasks, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

os.environ.setdefault("MUJOCO_GL", "egl")  # read when mujoco is imported
pytest.importorskip("mujoco", reason="the extra `mujoco` is not installed")
pytest.importorskip("mujoco.batch", reason="MujocoBridge needs mujoco 4.0")

import gymnasium as gym
import mujoco
from click.testing import CliRunner

import ue_rl
from tests.harness.warm_cli import WarmCli
from tests.support.steps import begin
from tests.support.waiting import eventually
from ue_rl.bridges import run_shm_in_thread
from ue_rl.cli import cli
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.plugins.mujoco import MujocoBridge, MujocoTask
from ue_rl.plugins.mujoco.physics import Physics
from ue_rl.protocol.memory.header import CLIENT_PID
from ue_rl.system.errors import ConfigurationError, MalformedMessage, UeRlError

ANT = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0}

# A ball above a floor and a cart on a rail, which has a sensor and a camera.
CART = """
<mujoco model="cart">
  <option timestep="0.01"/>
  <worldbody>
    <camera name="side" pos="0 -2 0.5" xyaxes="1 0 0 0 0 1"/>
    <geom type="plane" size="5 5 .1"/>
    <body name="cart" pos="0 0 .2">
      <joint name="rail" type="slide" axis="1 0 0" damping="0.5"/>
      <geom type="box" size=".1 .1 .05" mass="1" contype="0" conaffinity="0"/>
      <site name="tip"/>
    </body>
    <body name="ball" pos="1 0 1">
      <freejoint name="loose"/>
      <geom type="sphere" size=".1" mass=".2"/>
    </body>
  </worldbody>
  <actuator><motor name="engine" joint="rail" ctrlrange="-2 3" ctrllimited="true"/></actuator>
  <sensor><velocimeter name="speed" site="tip"/></sensor>
</mujoco>
"""


@pytest.fixture(autouse=True)
def _log_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MuJoCo writes its warnings into a file of the current folder."""
    monkeypatch.chdir(tmp_path)


def cart(num_envs: int = 3, task: Any = None, **options: Any) -> MujocoBridge:
    given = MujocoTask(observed=("qpos", "qvel", "sensordata"), reset_noise=0.1) if task is None else task
    return MujocoBridge(CART, given, num_envs, **options)


def begun(bridge: MujocoBridge, seed: int = 0) -> MujocoBridge:
    """Reset in all envs."""
    ids = np.arange(bridge.num_envs)
    bridge.reset_envs(ids, [seed + env for env in ids.tolist()], [None] * len(ids))
    return bridge


def pushed(bridge: MujocoBridge, force: float = 1.0, steps: int = 20) -> np.ndarray[Any, Any]:
    """The observations after so many steps in all envs."""
    ids = np.arange(bridge.num_envs)
    for _ in range(steps):
        bridge.step_envs(np.full((len(ids), bridge.spec.act_size), force, np.float32), ids)
    return bridge.outbox.obs.copy()


@pytest.fixture
def env() -> Iterator[UnrealVecEnv]:
    """The cart, in memory, through the codec."""
    made = UnrealVecEnv(MemoryTransport(cart(task=MujocoTask(max_episode_steps=5, reset_noise=0.1))))
    yield made
    made.close()


# -- the same numbers


@pytest.mark.parametrize(
    ("name", "options"),
    [("HalfCheetah", {}), ("InvertedPendulum", {}), ("Hopper", {}), ("Reacher", {}), ("Ant", ANT)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_env_is_gymnasiums_to_the_bit(name: str, options: dict[str, Any]) -> None:
    bridge, rng = begun(MujocoBridge(name, num_envs=3, threads=2), seed=7), np.random.default_rng(0)
    physics, every = bridge.physics, np.arange(3)
    env = gym.make(f"{name}-v5", max_episode_steps=60, **options)
    bridge.task.max_episode_steps = 60
    obs, _ = env.reset(seed=8)
    ended = {"terminated": 0, "truncated": 0}
    for _ in range(150):
        assert (bridge.task.observe(physics.now)[1] == obs).all()
        actions = rng.uniform(-1, 1, (3, bridge.spec.act_size)).astype(np.float32)
        bridge.step_envs(actions, every)
        obs, reward, terminated, truncated, _ = env.step(actions[1])
        data = env.unwrapped.data
        assert (physics.now.qpos[1] == data.qpos).all()
        assert (physics.now.qvel[1] == data.qvel).all()
        out = bridge.outbox
        if np.lib.NumpyVersion(np.__version__) < "2.0.0":  # there Gymnasium weighs the control cost in float64
            assert out.rewards[1] == pytest.approx(reward, abs=1e-6)
            reward = out.rewards[1]
        assert (out.rewards[1], out.dones[1], out.truncated[1]) == (
            np.float32(reward),
            terminated,
            truncated and not terminated,
        )
        ended["terminated"] += terminated
        ended["truncated"] += truncated
        if terminated or truncated:
            bridge.reset_envs(np.array([1]), [None], [None])  # the same generator goes on
            obs, _ = env.reset()
    assert sum(ended.values()) >= 2
    env.close()


def test_an_episode_is_the_same_alone_and_among_others() -> None:
    alone = pushed(begun(MujocoBridge("HalfCheetah", num_envs=1, threads=1), seed=40))
    among = pushed(begun(MujocoBridge("HalfCheetah", num_envs=48, threads=2), seed=0))
    assert (alone[0] == among[40]).all()


def test_envs_that_are_not_asked_stand_still() -> None:
    bridge = begun(cart())
    before = bridge.physics.now.rows(None)
    bridge.step_envs(np.ones((3, 1), np.float32), np.array([0, 2]))
    assert (before.qpos[1] == bridge.physics.now.qpos[1]).all()
    assert (before.qpos[[0, 2]] != bridge.physics.now.qpos[[0, 2]]).any(axis=1).all()
    assert bridge.physics.now.time.tolist() == [0.01, 0, 0.01]


# -- over the wire


def test_seeds_options_and_truncation(env: UnrealVecEnv) -> None:
    env.seed(3)
    first = env.reset()
    assert len(np.unique(first, axis=0)) == 3
    ends = [env.step(np.zeros((3, 1), np.float32)) for _ in range(5)]
    assert [dones.tolist() for _, _, dones, _ in ends] == [[False] * 3] * 4 + [[True] * 3]
    assert all(info["TimeLimit.truncated"] for info in ends[-1][3])
    env.seed(3)
    assert (env.reset() == first).all()
    env.seed(4)
    assert (env.reset() != first).any()
    state = {"qpos": [0.5, 1, 0, 2, 1, 0, 0, 0], "qvel": [1, 0, 0, 0, 0, 0, 0]}
    env.set_options([state, {}, {"qvel": [2, 0, 0, 0, 0, 0, 0]}])
    obs = env.reset()
    assert obs[0].tolist() == [*state["qpos"], *state["qvel"]]
    assert obs[2, 8] == 2
    env.set_options({"position": 1})
    with pytest.raises(MalformedMessage, match="'position' is none of qpos, qvel"):
        env.reset()


def test_the_handshake_says_what_the_model_says() -> None:
    spec = cart().announce()
    assert (spec.obs_size, spec.act_size, spec.num_envs) == (18, 1, 3)
    assert [bound.tolist() for bound in spec.action_spec.bounds] == [[-2], [3]]
    assert [p.name for p in spec.parameters] == ["gravity", "friction", "mass", "damping"]
    assert spec.features >= {"SEED", "TRUNC", "OPTIONS", "INFO"}
    assert "RENDER" not in spec.features


@pytest.mark.learning
@pytest.mark.exhaustive
def test_learns_to_balance_over_shared_memory() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    with run_shm_in_thread(MujocoBridge("InvertedPendulum", num_envs=32)) as engine:
        env = ue_rl.connect(engine.url)
        model = sb3.PPO(
            "MlpPolicy",
            env,
            n_steps=32,
            batch_size=256,
            learning_rate=3e-3,
            gae_lambda=0.9,
            gamma=0.95,
            device="cpu",
            seed=0,
        )
        model.learn(8192)
        mean, _ = evaluate_policy(model, env, n_eval_episodes=5, warn=False)
        env.close()
    assert mean >= 60  # docs/mujoco.md has a run to the end


# -- parameters


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [("gravity", 1.6, "qvel"), ("damping", 3.0, "qvel"), ("mass", 2.0, "qvel"), ("geom_size", 0.7, "qpos")],
)
def test_a_parameter_changes_the_physics_of_one_env_alone(name: str, value: float, changes: str) -> None:
    own = {"geom_size": (0.5, 1.0)} if name == "geom_size" else None
    same, changed = (begun(cart(task=MujocoTask(), parameters=own)) for _ in range(2))
    changed.set_parameter(name, value, 1)
    assert [changed.get_parameter(name, env) for env in range(3)].count(value) == 1
    expected, got = pushed(same, steps=80), pushed(changed, steps=80)
    assert (expected[[0, 2]] == got[[0, 2]]).all()
    assert (expected[1] != got[1]).any()
    changed.set_parameter(name, same.get_parameter(name, 1), -1)
    assert (pushed(begun(changed)) == pushed(begun(same))).all()


def test_mass_and_gravity_are_what_they_say() -> None:
    bridge = begun(cart(task=MujocoTask()))
    bridge.set_parameter("gravity", 1.5, 0)
    bridge.set_parameter("mass", 2.0, 1)
    models = [bridge.physics.batch.get_model(env) for env in range(3)]
    assert models[0].opt.gravity.tolist() == [0, 0, -1.5]
    assert models[1].body("cart").mass.tolist() == [2]
    assert models[1].body("cart").subtreemass.tolist() == [2]  # derived again
    assert models[2].body("cart").mass.tolist() == [1]
    velocity = pushed(bridge, steps=1)[:, 8]
    assert velocity[1] == pytest.approx(velocity[2] / 2, rel=0.02)


def test_two_parameters_may_scale_one_field() -> None:
    bridge = cart(parameters={"friction": (0.1, 2), "geom_friction": (0.1, 2)})
    bridge.set_parameter("friction", 0.5, -1)
    bridge.set_parameter("geom_friction", 0.5, 2)
    original = bridge.model.geom_friction
    for env, scale in enumerate((0.5, 0.5, 0.25)):
        assert np.allclose(bridge.physics.batch.get_model(env).geom_friction, scale * original)


def test_a_contract_holds_from_the_next_reset_on() -> None:
    bridge = begun(cart())
    bridge.begin_contract(5, {"gravity": 2.0}, {"mass": (0.5, 0.6)}, [0, 1])
    assert bridge.get_parameter("gravity", 0) == pytest.approx(9.81)
    states = []
    for _ in range(2):
        bridge.reset_envs(np.arange(3), [None] * 3, [None] * 3)
        states.append((bridge.outbox.obs.copy(), [bridge.get_parameter("mass", env) for env in range(3)]))
        assert [bridge.get_parameter("gravity", env) for env in range(3)] == [2.0, 2.0, pytest.approx(9.81)]
    masses = [mass for _, row in states for mass in row[:2]]
    assert len(set(masses)) == 4  # drawn anew in each env and episode
    assert all(0.5 <= mass <= 0.6 for mass in masses)
    assert states[0][1][2] == 1
    bridge.begin_contract(5, {}, {"mass": (0.5, 0.6)}, [])
    bridge.reset_envs(np.arange(3), [None] * 3, [None] * 3)
    assert (bridge.outbox.obs[:2] == states[0][0][:2]).all()  # the same seed


@pytest.mark.parametrize("ends", ["closes", "evicted"])
def test_a_contract_ends_with_its_trainers_session(ends: str) -> None:
    names, own = ("gravity", "mass", "friction"), [pytest.approx(9.81), 1.0, 1.0]
    bridge = cart()
    with run_shm_in_thread(bridge) as engine:
        env = ue_rl.connect(engine.url, timeout=20)
        env.reset()
        env.set_params({"friction": 0.5}, 2)  # holds on: nobody drew it
        commands = env.transport.commands  # type: ignore[attr-defined]
        commands.set_contract(seed=5, parameters={"gravity": 2.0}, randomization={"mass": (0.5, 0.6)}, env_ids=[0, 1])
        env.reset()
        commands.set_contract(seed=6, randomization={"mass": (0.6, 0.7)}, env_ids=[1])
        env.reset()
        held = [[bridge.get_parameter(name, at) for name in names] for at in range(3)]
        assert held[0][0] == held[1][0] == 2
        assert 0.5 <= held[0][1] <= 0.6 <= held[1][1] <= 0.7
        if ends == "evicted":
            bridge.disconnect()
            eventually(lambda: engine.host.memory.load_u32(CLIENT_PID) == 0)
        env.close()
        with open_transport(engine.url, timeout=20, wait=20) as following:
            for _ in range(2):
                begin(following)
                held = [[bridge.get_parameter(name, at) for name in names] for at in range(3)]
                assert held == [own, own, [*own[:2], 0.5]]


# -- tasks


def test_a_task_of_functions() -> None:
    task = MujocoTask(
        frame_skip=4,
        fields=("xpos",),
        observe=lambda now: now.xpos[:, 1],
        reward=lambda before, actions, now: now.qpos[:, 0] - before.qpos[:, 0] - actions[:, 0],
        terminated=lambda now: now.xpos[:, 1, 0] > 0.01,
        begin=lambda rng, qpos, qvel: qvel.__setitem__(0, rng.uniform(0, 1)),
    )
    bridge = begun(cart(task=task))
    assert bridge.task.dt == pytest.approx(0.04)
    assert (bridge.physics.now.qvel[:, 0] == [np.random.default_rng(seed).uniform(0, 1) for seed in range(3)]).all()
    before = bridge.physics.now.rows(None)
    bridge.step_envs(np.ones((3, 1), np.float32), np.arange(3))
    now, out = bridge.physics.now, bridge.outbox
    assert np.allclose(out.rewards, now.qpos[:, 0] - before.qpos[:, 0] - 1)
    assert (out.dones.astype(bool) == (now.xpos[:, 1, 0] > 0.01)).all()
    assert out.dones.any()
    with pytest.raises(AttributeError, match="name it in the task's `fields`"):
        _ = now.xquat


def test_an_env_that_gets_out_of_hand_ends_its_episode() -> None:
    task = MujocoTask(reward=lambda before, actions, now: np.ones(len(now.time)))
    with run_shm_in_thread(cart(task=task)) as engine:
        env = ue_rl.connect(engine.url)
        env.reset()
        env.set_options([{}, {"qvel": [0, 0, 0, 1e11, 0, 0, 0]}, {}])
        start = env.reset()
        obs, rewards, dones, infos = env.step(np.zeros((3, 1), np.float32))
        assert dones.tolist() == [False, True, False]
        assert rewards.tolist() == [1, 0, 1]
        assert infos[1]["unstable"]
        assert not infos[1].get("TimeLimit.truncated")
        assert (infos[1]["terminal_observation"] == start[1]).all()
        assert np.isfinite(obs).all()
        assert not env.step(np.zeros((3, 1), np.float32))[2].any()
        env.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: MujocoBridge("nowhere.xml"), "^there is no such model.*HalfCheetah, .*Reacher; got nowhere.xml"),
        (lambda: cart(task=dict), "the task is no MujocoTask.*got dict"),
        (lambda: MujocoBridge("<mujoco><oops/></mujoco>"), "MuJoCo cannot read the model.*oops"),
        (lambda: MujocoBridge("<mujoco/>"), "no actuators"),
        (lambda: cart(num_envs=0), "size out of range"),
        (lambda: cart(parameters={"luck": (0, 1)}), "no such parameter.*luck"),
        (lambda: cart(parameters={"mass": (2, 3)}), "mass"),
        (lambda: cart(camera="nowhere"), "no such camera.*side"),
        (lambda: cart(picture=(0, 5)), "one pixel or more"),
        (lambda: cart(task=MujocoTask(fields=("efc_J",))), "cannot be observed.*efc_J"),
        (lambda: cart(task=MujocoTask(reward=lambda *_: np.zeros(7))), "wrong shape.*reward"),
        (lambda: cart(task=MujocoTask(observe=lambda now: now.time)), "wrong shape.*observe"),
    ],
)
def test_what_it_refuses(make: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"(?s){text}"):
        make()


def test_another_number_of_envs() -> None:
    bridge = begun(cart())
    bridge.initialize_environments(5)
    assert pushed(begun(bridge)).shape == (5, 18)


def test_serve(tmp_path: Path, warm_cli: WarmCli) -> None:
    (tmp_path / "cart.xml").write_text(CART)
    (tmp_path / "my_cart.py").write_text(
        "from ue_rl.plugins.mujoco import MujocoTask\nclass Mine(MujocoTask):\n    observed = ('qvel',)\n"
    )
    words = ["serve", "--mujoco", "cart.xml", "--task", "my_cart:Mine", "--num-envs", "2", "--port", "0"]
    serving = warm_cli.start([*words, "--kwargs", '{"threads": 1}'], output=tmp_path / "task.txt", cwd=tmp_path)
    with open_transport(serving.wait_for(r"tcp://127.0.0.1:\d+")) as transport:
        spec = transport.connect()
    assert (spec.obs_size, spec.num_envs) == (7, 2)
    assert "every reward is 0" not in (tmp_path / "task.txt").read_text()
    without = warm_cli.start([*words[:3], "--port", "0"], output=tmp_path / "model.txt", cwd=tmp_path)
    without.wait_for("  without --task every reward is 0, and no episode ends")
    for each in (serving, without):
        each.signal(signal.SIGINT)
    result = CliRunner().invoke(cli, [*words, "--kwargs", '{"thread": 1}'])
    assert result.exit_code != 0
    assert isinstance(result.exception, UeRlError) or "thread" in result.output
    assert CliRunner().invoke(cli, ["serve", "--env", "CartPole-v1", "--task", "a:B"]).exit_code == 2


def test_the_example_of_the_page_runs() -> None:
    pytest.importorskip("stable_baselines3")
    page = (Path(__file__).resolve().parents[3] / "docs" / "mujoco.md").read_text("utf-8")
    (example,) = re.findall(r"```python cart\n(.*?)```", page, re.S)
    names: dict[str, Any] = {}
    exec(compile(example.replace("learn(1024)", "learn(64)"), "docs/mujoco.md", "exec"), names)
    assert names["bridge"].physics.now.time.any()


PENDULUM = """
<mujoco>
  <option timestep="0.01"><flag sleep="SLEEP"/></option>
  <worldbody>
    <body name="upper">
      <joint name="shoulder" type="hinge" axis="0 1 0"/>
      <geom size=".1" pos=".3 0 0" mass="1"/>
      <site name="middle"/>
      <body pos=".5 0 0">
        <joint type="hinge" axis="0 1 0"/>
        <geom size=".1" pos=".3 0 0" mass="1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="shoulder"/></actuator>
  <sensor>SENSOR</sensor>
</mujoco>
"""


@pytest.mark.parametrize(
    ("field", "sensor", "sleep"),
    [
        ("subtree_linvel", '<subtreelinvel body="upper" nsample="2" interval="0.05"/>', False),
        ("subtree_angmom", '<subtreeangmom body="upper" nsample="2" interval="0.05"/>', False),
        ("cacc", '<accelerometer site="middle" nsample="2" interval="0.05"/>', False),
        ("cfrc_int", '<force site="middle" nsample="2" interval="0.05"/>', False),
        ("sensordata", '<force site="middle" nsample="2" interval="0.05"/>', False),
        ("xpos", "", True),
    ],
)
def test_what_a_step_does_not_compute_is_never_another_env_s(field: str, sensor: str, sleep: bool) -> None:
    """As a loop over MjData has it, also where some envs are stepped more often than others."""
    text = PENDULUM.replace("SENSOR", sensor).replace("SLEEP", "enable" if sleep else "disable")
    model = mujoco.MjModel.from_xml_string(text)
    physics = Physics(model, MujocoTask(frame_skip=1, fields=(field,)), 4, 1)
    loop = [mujoco.MjData(model) for _ in range(4)]
    for env, data in enumerate(loop):
        data.qvel[:] = env
        physics.now.qvel[env] = env
    for step in range(20):
        stepped = [env for env in range(4) if (step + env) % 3]
        physics.step(np.array(stepped))
        for env in stepped:
            mujoco.mj_step(model, loop[env])
            np.testing.assert_array_equal(getattr(physics.now, field)[env], getattr(loop[env], field))


def test_a_model_with_sleep_trains() -> None:
    text = PENDULUM.replace("SENSOR", "").replace("SLEEP", "enable")
    env = UnrealVecEnv(MemoryTransport(MujocoBridge(text, num_envs=2)))
    env.seed(1)
    assert np.isfinite(env.reset()).all()
    assert np.isfinite(env.step(np.ones((2, 1), np.float32))[0]).all()
    env.close()
