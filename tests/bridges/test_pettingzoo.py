"""PettingZooBridge: what a trainer is given is what the hosted envs gave, agent by agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.carriers import over
from tests.support.steps import advance, begin
from ue_rl.connections.base.checks import live_agents
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.spaces.tree import leaves
from ue_rl.protocol.text import decode_handshake, encode_handshake
from ue_rl.system import errors

pytest.importorskip("pettingzoo", reason="the extra `agents` is not installed")
from tests.support.field import Field
from ue_rl.bridges import PettingZooBridge
from ue_rl.envs.agents import UnrealParallelEnv

Open = Callable[[Any], MemoryTransport]


def numbers(value: Any) -> list[float]:
    parts = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else None
    if parts is not None:
        return [number for part in parts for number in numbers(part)]
    return [float(np.float32(number)) for number in np.ravel(value).tolist()]


def seen(obs: Any) -> Any:
    return obs["observation"] if isinstance(obs, dict) and "action_mask" in obs else obs


def compare(open_agents: Open, make: Callable[[], Any], steps: int, **options: Any) -> int:
    """Steps a bridge and two envs of the same seeds with the same actions, up to the first end of an episode.

    Returns:
        in how many steps of the envs agents ended and others went on.
    """
    bridge = PettingZooBridge(make, 2, **options)
    assert decode_handshake(encode_handshake(bridge.spec)) == bridge.spec
    transport, envs = open_agents(bridge), [PettingZooBridge(make, 1, **options).envs[0] for _ in range(2)]
    names, per_env = bridge.agent_names, bridge.spec.agents_per_env
    buffers = begin(transport, seeds=[5, 6])
    answers: list[Any] = [(env.reset(seed=5 + i)[0], {}, {}, {}) for i, env in enumerate(envs)]
    rng, alone = np.random.default_rng(1), 0
    for number in range(steps):
        for i, (observations, rewards, terminated, truncated) in enumerate(answers):
            there = {*rewards, *envs[i].agents}
            for k, name in enumerate(names):
                row = i * per_env + k
                assert bool(buffers.present[row]) == (name in there), (number, name)
                if name not in there:
                    continue
                want = numbers(seen(observations[name]))
                assert buffers.obs[row, : len(want)].tolist() == want
                assert buffers.rewards[row] == np.float32(rewards.get(name, 0))
                assert bool(buffers.dones[row]) == bool(terminated.get(name) or truncated.get(name))
                assert bool(buffers.truncated[row]) == bool(truncated.get(name) and not terminated.get(name))
                assert live_agents(buffers)[row] == (name in envs[i].agents)
        actions = np.zeros((bridge.spec.num_rows, bridge.spec.act_size), np.float32)
        if not all(env.agents for env in envs):  # an episode after a reset without a seed is another one
            break
        given = []
        for i, env in enumerate(envs):
            told = {}
            for agent in env.agents:
                row = i * per_env + names.index(agent)
                mask = None
                if transport.spec.mask_size and isinstance(env.action_space(agent), spaces.Discrete):
                    mask = buffers.masks[row, : env.action_space(agent).n].astype(np.int8)
                env.action_space(agent).seed(int(rng.integers(1000)))
                told[agent] = env.action_space(agent).sample(mask)
                flat = numbers(told[agent])
                actions[row, : len(flat)] = flat
            given.append(told)
        buffers = advance(transport, actions)
        for i, env in enumerate(envs):
            answers[i] = env.step(given[i])[:4]
            over = [agent for agent in answers[i][1] if agent not in env.agents]
            alone += bool(over) and bool(env.agents)
    bridge.close()
    return alone


def test_agents_come_and_go_as_in_the_hosted_envs(open_agents: Open) -> None:
    bridge = PettingZooBridge(Field, 2)
    assert [(group.name, group.count) for group in bridge.spec.groups] == [("wolf", 2), ("sheep", 1)]
    wolf = bridge.spec.groups[0].spec.obs_space
    assert [path for path, _, _ in leaves(wolf)] == [("at",), ("mode",)]  # type: ignore[arg-type]
    bridge = PettingZooBridge(Field, 2)
    transport = open_agents(bridge)
    begin(transport, seeds=[5, None], options=[{"wind": 1}, None])
    assert bridge.envs[0].options == {"wind": 1}
    actions = np.zeros((6, 3), np.float32)
    actions[[0, 1, 3, 4], 0] = 2
    there, live = [], []
    for _ in range(6):
        buffers = advance(transport, actions)
        there.append(buffers.present[:3].tolist())
        live.append(live_agents(buffers)[:3].tolist())
    assert there == [[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert [row[1] for row in live] == [True, False, False, True, True, False]
    assert buffers.truncated[:3].tolist() == [1, 1, 1]
    assert buffers.rewards[:3].tolist() == [6, 7, 8]


def test_rollouts_equal_those_of_the_envs(open_agents: Open) -> None:
    assert compare(open_agents, Field, 7) == 2


@pytest.mark.parametrize(
    ("module", "steps"),
    [
        ("pettingzoo.classic.rps_v2", 20),
        ("pettingzoo.classic.tictactoe_v3", 20),
        ("pettingzoo.classic.connect_four_v3", 30),
        ("pettingzoo.butterfly.knights_archers_zombies_v11", 40),
    ],
)
def test_envs_of_pettingzoo_are_hosted(open_agents: Open, module: str, steps: int) -> None:
    """In parallel, in turns with masks, and with agents that die one by one."""
    pytest.importorskip(module)
    compare(open_agents, module, steps)  # type: ignore[arg-type]


@pytest.mark.parametrize("carrier", ["shared", "upgraded", "shm"])
def test_over_every_carrier_it_is_the_hosted_env(carrier: str) -> None:
    """Spaces, agents, observations, rewards and ends; actions of every kind."""
    with over(carrier, PettingZooBridge(Field)) as transport:
        env, hosted = UnrealParallelEnv(transport), Field()
        for episode in range(2):
            got, want = env.reset(seed=episode)[0], hosted.reset(seed=episode)[0]
            while hosted.agents:
                assert env.agents == hosted.agents
                assert {name: numbers(got[name]) for name in hosted.agents} == {
                    name: numbers(want[name]) for name in hosted.agents
                }
                actions = {}
                for i, name in enumerate(hosted.agents):
                    assert env.observation_space(name).contains(got[name])
                    hosted.action_space(name).seed(10 * hosted.steps + i)
                    actions[name] = hosted.action_space(name).sample()
                got, *results, _ = env.step(actions)
                want, *wanted, _ = hosted.step(actions)
                for mine, theirs in zip(results, wanted, strict=True):
                    assert {name: mine[name] for name in actions} == theirs
            assert env.agents == []


def test_masks_stand_beside_the_observation_in_classic_envs(open_agents: Open) -> None:
    pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    bridge = PettingZooBridge("pettingzoo.classic.tictactoe_v3")
    assert (bridge.spec.obs_size, bridge.spec.mask_size) == (18, 9)
    assert bridge.agent_names == ("player_1", "player_2")
    transport = open_agents(bridge)
    begin(transport)
    transport.send_actions(np.array([[4], [0]], np.float32))  # it is player_1's turn
    masks = transport.receive().masks
    assert masks.tolist() == [[1] * 9, [1, 1, 1, 1, 0, 1, 1, 1, 1]]


def test_masks_and_infos_of_infos(open_agents: Open) -> None:
    assert not PettingZooBridge(Field).spec.features & {"MASK", "INFO"}
    bridge = PettingZooBridge(Field, masks=True, send_info=True)
    assert bridge.spec.features >= {"MASK", "INFO", "SEED", "OPTIONS", "TRUNC"}
    transport = open_agents(bridge)
    assert begin(transport).masks[2].all()
    actions = np.zeros((3, 3), np.float32)
    actions[:2, 0] = 2
    buffers = advance(transport, actions)
    assert buffers.masks[2, :5].tolist() == [0, 1, 1, 1, 0]
    assert buffers.infos[2]["n"] == 1


def test_pictures_and_parameters_are_offered() -> None:
    bridge = PettingZooBridge(Field, 2, parameters={"speed": (2, 1, 3)}, render_mode="rgb_array")
    assert "RENDER" in bridge.spec.features
    assert [env.speed for env in bridge.envs] == [2, 2]
    bridge.set_parameter("speed", 3.0, 1)
    assert (bridge.get_parameter("speed", 0), bridge.get_parameter("speed", 1)) == (2, 3)
    bridge.envs[1].reset()
    assert bridge.render(1).shape == (2, 3, 3)
    envs = list(bridge.envs)
    bridge.initialize_environments(1)
    assert [env.closed for env in envs] == [False, True]
    assert not hasattr(PettingZooBridge(Field), "render")


def test_groups_may_be_chosen() -> None:
    bridge = PettingZooBridge(Field, groups={"prey": ["sheep"], "pack": ["wolf_1", "wolf_0"]})
    assert bridge.agent_names == ("prey", "pack_0", "pack_1")
    for groups, message in (
        ({"prey": ["sheep"]}, "each agent stands in one group"),
        ({"all": ["sheep", "wolf_0", "wolf_1"]}, "same spaces, those of all have not"),
    ):
        with pytest.raises(errors.ConfigurationError, match=message):
            PettingZooBridge(Field, groups=groups)


class Uneven(Field):
    """Agents that look like a family and are none."""

    possible_agents = ["cat_0", "cat_2", "dog_0", "dog_1", "7"]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        sizes = {"cat_0": 2, "cat_2": 2, "dog_0": 2, "dog_1": 3, "7": 1}
        self.all = {name: (spaces.Box(-1, 1, (n,), np.float32), spaces.Discrete(2)) for name, n in sizes.items()}


def test_agents_that_are_no_group_keep_their_names() -> None:
    assert PettingZooBridge(Uneven).agent_names == ("cat_0", "cat_2", "dog_0", "dog_1", "7")


def test_what_cannot_be_hosted_is_refused() -> None:
    class Nameless(Field):
        possible_agents = ()  # type: ignore[assignment]

    class Talks(Field):
        def observation_space(self, agent: Any) -> Any:
            return spaces.Text(3)

    env = Field()
    kinds = iter((Field, Uneven))
    for make, message in (
        (Nameless, "does not say which agents"),
        (Talks, "cannot carry a Text"),
        (lambda: env, "same env object"),
        (lambda: next(kinds)(), "same agents with the same spaces"),  # noqa: PLW0108 - another class each time
        ("no.such.module", "cannot be loaded"),
        ("json", "no module of a PettingZoo env"),
    ):
        with pytest.raises(errors.ConfigurationError, match=message):
            PettingZooBridge(make, 2)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigurationError, match="no env is given"):
        PettingZooBridge([])


@pytest.mark.parametrize(
    ("module", "cure"),
    [
        ("pettingzoo.toys.lacks_v0", "pip install 'pettingzoo[toys]' has the packages"),
        ("pettingzoo.toys.no_such_v1", "install it: pip install 'ue_rl[agents]'"),
        ("no.such.module", "is no right"),
    ],
)
def test_a_module_that_cannot_be_loaded_names_what_helps(
    module: str, cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys = tmp_path / "toys"
    toys.mkdir()
    imports = "from importlib import import_module\ndef __getattr__(name): return import_module(f'{__name__}.{name}')"
    (toys / "__init__.py").write_text(imports)  # as PettingZoo's own folders do
    (toys / "lacks_v0.py").write_text("import no_such_package")
    where = sys.modules["pettingzoo"].__path__
    monkeypatch.setattr("pettingzoo.__path__", [*where, str(tmp_path)])
    with pytest.raises(errors.ConfigurationError, match="cannot be loaded") as refused:
        PettingZooBridge(module)
    for name in [name for name in sys.modules if name.startswith("pettingzoo.toys")]:
        del sys.modules[name]
    assert str(refused.value.cure).startswith(cure)
