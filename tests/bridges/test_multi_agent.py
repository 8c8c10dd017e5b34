"""Bridges of envs with agents: rows, who is asked, who comes and goes, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.steps import advance, begin
from ue_rl.bridges import MultiAgentBridge, VectorAgentsBridge
from ue_rl.connections.base.checks import live_agents
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.buffers import ActionBatch
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.system import errors

GROUPS = (
    AgentGroup("striker", 2, EnvSpec(2, 1, action=ActionSpec.discrete(3))),
    AgentGroup("goalie", 1, EnvSpec(3, 2)),
)
NAMES = ("striker_0", "striker_1", "goalie")


class Pitch(MultiAgentBridge):
    """Who is there is scripted by step: after the first one striker_1 ends, after the third it comes back."""

    ticks_of_an_action = 1

    def __init__(self, num_envs: int = 2, groups: Sequence[AgentGroup] = GROUPS) -> None:
        super().__init__(groups, num_envs)
        self.steps = [0] * num_envs
        self.seen: list[Any] = []
        self.waited = [0] * num_envs

    def reset_env(self, env_id: int, seed: int | None, options: dict[str, Any] | None) -> None:
        self.steps[env_id] = 0
        self.acted: dict[int, set[str]] = {**getattr(self, "acted", {}), env_id: set()}
        self.seen.append((env_id, seed, options))

    def step_env(self, env_id: int, actions: dict[str, NDArray[np.float32]]) -> None:
        self.steps[env_id] += 1
        self.acted[env_id] = set(actions)
        self.waited[env_id] = 0
        self.seen.append((env_id, {name: action.tolist() for name, action in actions.items()}))

    def is_action_running(self, env_id: int) -> bool:
        self.waited[env_id] += 1
        return self.waited[env_id] < self.ticks_of_an_action

    def observe(self, env_id: int) -> Mapping[str, Any]:
        there = set(NAMES) if self.steps[env_id] in (0, 3) else self.acted[env_id]
        value = 10 * env_id + self.steps[env_id]
        return {name: [value] * (3 if name == "goalie" else 2) for name in NAMES if name in there}

    def results(self, env_id: int) -> Mapping[str, tuple[float, bool, bool]]:
        step = self.steps[env_id]
        ends = {"striker_1": (step == 1, False), "goalie": (False, step == 4), "striker_0": (step == 4, step == 4)}
        return {name: (step / 2, *ends[name]) for name in self.acted[env_id]}


class PitchWithMasks(Pitch):
    def action_masks(self, env_id: int) -> Mapping[str, Any]:
        return {"striker_0": [True, False, True]} if self.steps[env_id] else {"striker_1": [0, 0, 1]}

    def infos(self, env_id: int) -> Mapping[str, Mapping[str, Any]]:
        return {"goalie": {"saves": self.steps[env_id]}, "striker_0": {}}


def act(transport: MemoryTransport, resets: list[int] | None = None) -> Any:
    actions = np.zeros((transport.spec.num_rows, transport.spec.act_size), np.float32)
    actions[:, 0] = np.arange(len(actions)) % 3
    actions[:, 1] = 0.5
    return advance(transport, actions, resets=resets)


@pytest.fixture
def start(open_agents: Callable[[Any], MemoryTransport]) -> Callable[..., tuple[MemoryTransport, Any]]:
    """Connects, and begins the first episodes."""

    def started(bridge: Any, **given: Any) -> tuple[MemoryTransport, Any]:
        transport = open_agents(bridge)
        return transport, begin(transport, **given)

    return started


def test_agents_end_and_come_back(start: Any) -> None:
    bridge = Pitch()
    spec = bridge.spec
    assert (spec.obs_size, spec.act_size, spec.num_rows, bridge.agent_names) == (3, 2, 6, NAMES)
    assert spec.features >= {"SEED", "OPTIONS", "TRUNC"}
    assert not spec.features & {"MASK", "INFO"}
    transport, buffers = start(bridge, seeds=[3, None], options=[None, {"a": 1}])
    assert bridge.seen == [(0, 3, None), (1, None, {"a": 1})]
    assert buffers.present.tolist() == [1] * 6
    assert buffers.obs.tolist() == [[0, 0, 0]] * 3 + [[10, 10, 0]] * 2 + [[10] * 3]
    bridge.seen.clear()
    act(transport)
    assert bridge.seen == [
        (0, {"striker_0": [0], "striker_1": [1], "goalie": [2, 0.5]}),
        (1, {"striker_0": [0], "striker_1": [1], "goalie": [2, 0.5]}),
    ]
    assert buffers.rewards.tolist() == [0.5] * 6
    assert buffers.dones.tolist() == [0, 1, 0] * 2
    assert buffers.present.tolist() == [1] * 6
    act(transport)
    assert bridge.seen[-1] == (1, {"striker_0": [0], "goalie": [2, 0.5]})
    assert buffers.present.tolist() == [1, 0, 1] * 2
    assert not (buffers.dones & buffers.present).any()
    assert bridge.outbox.dones.tolist() == bridge.outbox.truncated.tolist() == [0] * 6
    act(transport)  # it has come back
    assert buffers.present.tolist() == [1] * 6
    assert buffers.rewards.tolist() == [1.5, 0, 1.5] * 2
    act(transport)
    assert bridge.seen[-1] == (1, {"striker_0": [0], "striker_1": [1], "goalie": [2, 0.5]})
    assert buffers.dones.tolist() == [1, 0, 1] * 2
    assert buffers.truncated.tolist() == [0, 0, 1] * 2  # terminal and at its limit is terminal
    assert live_agents(buffers).tolist() == [False, True, False] * 2


def test_envs_are_reset_beside_steps_of_others(start: Any) -> None:
    bridge = Pitch()
    transport, buffers = start(bridge)
    act(transport)
    act(transport, resets=[1])
    assert bridge.steps == [2, 0]
    assert buffers.present.tolist() == [1, 0, 1, 1, 1, 1]
    assert (buffers.rewards * buffers.present).tolist() == [1, 0, 1, 0, 0, 0]


def test_an_env_is_answered_when_its_actions_have_ended(start: Any) -> None:
    bridge = Pitch()
    bridge.ticks_of_an_action = 3
    transport, buffers = start(bridge)
    ticks = transport.ticks
    act(transport)
    assert transport.ticks - ticks == 3
    assert bridge.steps == [1, 1]
    assert buffers.obs[0, 0] == 1


def test_masks_and_infos_are_an_agents(start: Any) -> None:
    bridge = PitchWithMasks()
    assert bridge.spec.features >= {"MASK", "INFO"}
    transport, buffers = start(bridge)
    assert buffers.masks.tolist() == [[1, 1, 1], [0, 0, 1], [1, 1, 1]] * 2
    assert buffers.infos == {2: {"saves": 0}, 5: {"saves": 0}}
    act(transport)
    assert buffers.masks.tolist() == [[1, 0, 1], [1, 1, 1], [1, 1, 1]] * 2
    assert buffers.infos == {2: {"saves": 1}, 5: {"saves": 1}}


@pytest.mark.parametrize(
    ("callback", "gives", "message"),
    [
        ("observe", {"keeper": [1, 2]}, "no such agent.*striker_0, striker_1, goalie.*got keeper"),
        (
            "observe",
            {"goalie": [1, 2]},
            r"gave goalie a wrong number of numbers \(env 0, field OBS\); expected 3; got 2",
        ),
        ("observe", {}, "begins without any agent"),
        ("action_masks", {"striker_1": [1, 1]}, "gave striker_1 a wrong number.*MASK.*expected 3; got 2"),
        ("infos", {"nobody": {"a": 1}}, "no such agent"),
    ],
)
def test_what_a_game_gets_wrong_is_named(start: Any, callback: str, gives: Any, message: str) -> None:
    bridge = PitchWithMasks()
    setattr(bridge, callback, lambda env_id: gives)
    with pytest.raises(errors.UeRlError, match=message):
        start(bridge)


@pytest.mark.parametrize(("callback", "what"), [("results", "result"), ("observe", "observation")])
def test_who_acted_must_be_answered(start: Any, callback: str, what: str) -> None:
    bridge = Pitch()
    transport, _ = start(bridge)
    whole = getattr(bridge, callback)
    setattr(bridge, callback, lambda env: {name: given for name, given in whole(env).items() if name != "striker_1"})
    with pytest.raises(errors.ConfigurationError, match=f"striker_1 acted, but there is no {what} of it"):
        act(transport)


@pytest.mark.parametrize("kind", ["callbacks", "arrays"])
def test_a_trainer_asks_all_that_can_act(start: Any, kind: str) -> None:
    bridge = Pitch() if kind == "callbacks" else Swarm()
    start(bridge)
    bridge.inbox.command[:3] = ActionBatch.STEP, ActionBatch.NOTHING, ActionBatch.STEP
    with pytest.raises(errors.MalformedMessage, match=r"an agent that can act was not asked \(env 0, field AGENT"):
        bridge.update_rl(0)
    with pytest.raises(errors.ConfigurationError, match="AGENTS"):
        (Pitch if kind == "callbacks" else Swarm)(groups=())


def test_nobody_is_asked_after_the_end(start: Any) -> None:
    bridge = Swarm(1)
    start(bridge)
    bridge.ends = np.ones((1, 3), np.uint8)
    bridge.inbox.command[:] = ActionBatch.STEP
    bridge.update_rl(0)
    bridge.inbox.command[:] = ActionBatch.STEP
    with pytest.raises(errors.MalformedMessage, match=r"nobody in this env can act any more.*ACT=RESET"):
        bridge.update_rl(0)


# -- arrays


class Swarm(VectorAgentsBridge):
    """`ends` and `comes` say who ends in the next step, and who has come in it."""

    def __init__(self, num_envs: int = 2, groups: Sequence[AgentGroup] = GROUPS) -> None:
        super().__init__(groups, num_envs)
        self.ends = np.zeros((num_envs, 3), np.uint8)
        self.comes = np.zeros((num_envs, 3), np.uint8)
        self.cut = np.zeros((num_envs, 3), np.uint8)
        self.given: list[Any] = []

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.given.append((env_ids.tolist(), list(seeds), list(options)))
        self.states.obs[env_ids] = 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: Any) -> None:
        states = self.states
        self.given.append((env_ids.tolist(), actions[env_ids, :, 0].tolist(), states.present[env_ids].tolist()))
        states.obs[env_ids] += 1
        states.rewards[env_ids] = states.present[env_ids]
        states.dones[env_ids] = self.ends[env_ids]
        states.truncated[env_ids] = self.cut[env_ids]
        states.present[env_ids] |= self.comes[env_ids]


def test_agents_in_arrays_end_and_come_back(start: Any) -> None:
    bridge = Swarm()
    transport, buffers = start(bridge, seeds=[1, None])
    assert bridge.given == [([0, 1], [1, None], [None, None])]
    assert buffers.present.tolist() == [1] * 6
    act(transport)
    assert bridge.given[-1] == ([0, 1], [[0, 1, 2]] * 2, [[1, 1, 1]] * 2)
    bridge.ends[0, 1] = bridge.cut[1, 2] = 1
    act(transport)
    assert buffers.dones.tolist() == [0, 1, 0, 0, 0, 1]
    assert buffers.truncated.tolist() == [0, 0, 0, 0, 0, 1]
    assert buffers.present.tolist() == [1] * 6
    act(transport)  # what ends is away, whatever the game writes of it
    assert buffers.present.tolist() == [1, 0, 1, 1, 1, 0]
    assert not (buffers.dones & buffers.present).any()
    assert bridge.outbox.dones.tolist() == bridge.outbox.truncated.tolist() == [0] * 6
    assert buffers.rewards[buffers.present == 1].tolist() == [1] * 4
    bridge.ends[:], bridge.cut[:], bridge.comes[0, 1] = 0, 0, 1
    act(transport, resets=[1])
    assert bridge.given[-2:] == [([0], [[0, 1, 2]], [[1, 0, 1]]), ([1], [None], [None])]
    assert buffers.present.tolist() == [1] * 6
    assert (buffers.rewards * buffers.present).tolist() == [1, 0, 1, 0, 0, 0]
    act(transport)
    assert buffers.rewards.tolist() == [1] * 6


def test_steps_of_all_at_once_are_the_same() -> None:
    """`step_all`, as a host over shared memory calls it."""
    bridge = Swarm()
    bridge.start_training()
    bridge.inbox.command[:] = ActionBatch.RESET
    bridge.update_rl(0)
    bridge.answered[:] = 0
    assert bridge.lockstep.step_all(0)
    bridge.ends[0, 1] = 1
    assert bridge.lockstep.step_all(0)
    assert bridge.outbox.dones.tolist() == [0, 1, 0, 0, 0, 0]
    bridge.ends[:] = 0
    assert bridge.lockstep.step_all(0)
    assert bridge.outbox.present.tolist() == [1, 0, 1, 1, 1, 1]
    assert bridge.outbox.dones.tolist() == [0] * 6
    assert bridge.outbox.rewards.tolist() == [1, 0, 1, 1, 1, 1]
    assert not bridge.answered.any()


def test_arrays_may_not_lose_an_agent(start: Any) -> None:
    class Loses(Swarm):
        def step_envs(self, actions: NDArray[np.float32], env_ids: Any) -> None:
            self.states.present[1, 2] = 0

    transport, _ = start(Loses())
    with pytest.raises(errors.ConfigurationError, match=r"goalie acted, but is not there any more \(env 1"):
        act(transport)


# -- a policy in the trainer's place


class Policy:
    """Acts by the observation; notes how many it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def run_inference(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        self.given.append(len(observations))
        return np.zeros((len(observations), 1), np.float32)


TEAM = (AgentGroup("striker", 3, GROUPS[0].spec),)


class Team(Pitch):
    def __init__(self) -> None:
        super().__init__(2, TEAM)

    def observe(self, env_id: int) -> Mapping[str, Any]:
        there = self.acted[env_id] if self.steps[env_id] else set(self.agent_names)
        return {name: [self.steps[env_id], env_id] for name in self.agent_names if name in there}

    def results(self, env_id: int) -> Mapping[str, tuple[float, bool, bool]]:
        step = self.steps[env_id]
        return {name: (1.0, step == 2 or (step == 1 and name == "striker_1"), False) for name in self.acted[env_id]}


def test_one_policy_acts_for_all_agents_of_one_group() -> None:
    bridge, policy = Team(), Policy()
    bridge.set_inference_interface(policy)
    bridge.start_inference(seeds=[1, 2])
    for _ in range(5):
        bridge.update_rl(0)
    assert policy.given == [6, 4, 6, 4, 6]
    assert [given for given in bridge.seen if len(given) == 3][:2] == [(0, 1, None), (1, 2, None)]
    swarm = Swarm(2, TEAM)
    swarm.set_inference_interface(policy)
    swarm.start_inference()
    policy.given.clear()
    swarm.ends[0, 1] = 1
    for _ in range(2):
        swarm.update_rl(0)
    swarm.ends[:] = 1
    for _ in range(2):
        swarm.update_rl(0)
    assert policy.given == [6, 5, 5, 6]


@pytest.mark.parametrize("bridge", [Pitch(), Swarm()])
def test_several_kinds_of_agents_are_not_one_policys(bridge: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"groups of agents have different spaces.*striker, goalie"):
        bridge.set_inference_interface(Policy())


# -- the page


def test_the_engine_of_the_page_runs(start: Any) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/agents.md").read_text("utf-8")
    code = page.split("```python engine\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "docs/agents.md", "exec"), names)
    transport, buffers = start(names["Line"](2))
    actions = np.tile(np.array([[1], [0.5], [0]], np.float32), (2, 1))
    seen = []
    for _ in range(6):
        advance(transport, actions)
        seen.append((buffers.present[:3].tolist(), buffers.dones[:3].tolist(), buffers.rewards[:3].tolist()))
    assert seen[1] == ([1, 1, 1], [0, 0, 0], [0, 0, 0])
    assert seen[2] == ([1, 1, 1], [1, 0, 0], [1, 0, 0])
    assert seen[3][0] == [0, 1, 1]
    assert buffers.dones.tolist()[1:3] == [1, 1]
    assert buffers.obs[2].tolist() == [3, 3]
    begin(transport)
    assert buffers.present.all()


def test_a_step_of_all_agents_at_once_is_judged_too() -> None:
    """As over shared memory, where a host asks for it in one call."""
    bridge = Swarm(1, [AgentGroup("crawler", 3, EnvSpec(1, 1, action=ActionSpec.discrete(4)))])
    bridge.start_training()
    bridge.inbox.command[:] = ActionBatch.RESET
    bridge.update_rl(0.0)
    for bad in (0.5, 4.0):
        bridge.inbox.actions[:] = [[0], [bad], [0]]
        with pytest.raises(errors.MalformedMessage, match="not a choice"):
            bridge.lockstep.step_all(0.0)
        bridge.lockstep.forget_requests()
    bridge.inbox.actions[:] = 3
    assert bridge.lockstep.step_all(0.0)
    assert not bridge.lockstep.busy
