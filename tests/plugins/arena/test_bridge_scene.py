"""Agents play any bridge with one env: here Gymnasium's CartPole, and one with tools of its own."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra train is not installed: a trainer plays here")

from ue_rl.bridges import GymnasiumBridge, SingleEnvBridge
from ue_rl.bridges.tools import tool
from ue_rl.plugins.arena import AgentArena, AgentBehavior, AgentDecision, RandomBehavior, replay
from ue_rl.plugins.arena.bridge_scene import BridgeScene
from ue_rl.plugins.arena.scenes import Foraging, SceneBridge
from ue_rl.plugins.arena.scenes.rules import RULES
from ue_rl.protocol.spec import ActionSpec, EnvSpec, EnvType
from ue_rl.system.errors import ConfigurationError


class Balances(AgentBehavior):
    """Pushes to the side that the pole falls to."""

    def decide(self, observation: Any, tools: Any) -> AgentDecision:
        _, _, angle, turn = observation.custom["observation"].values()
        return AgentDecision("act", {"action": [int(angle + turn > 0)]})


def test_cart_pole_is_played_and_replayed(tmp_path: Path) -> None:
    (good,) = AgentArena.play(GymnasiumBridge("CartPole-v1", 1), Balances(), seed=3, replay=tmp_path / "log")
    assert good.score > 100
    assert good.score == good.ticks == good.metrics["return"]
    assert replay(tmp_path / "log", BridgeScene(GymnasiumBridge("CartPole-v1", 1))) == good.ticks
    (chance,) = AgentArena.play(GymnasiumBridge("CartPole-v1", 1), RandomBehavior(), seed=3)
    assert chance.score < 100


def test_a_replay_s_file_is_closed_when_play_returns(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        AgentArena.play(GymnasiumBridge("CartPole-v1", 1), Balances(), seed=3, replay=tmp_path / "log")
        gc.collect()
    assert [str(each.message) for each in warned if "log" in str(each.message)] == []


class Lift(SingleEnvBridge):
    """Up and down; a bell."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(1, 1, EnvType.SINGLE, action=ActionSpec.discrete(3)))
        self.floor = self.rung = 0

    def describe(self, env_id: int) -> str:
        return f"You are on floor {self.floor}."

    @tool
    def ring(self, times: int = 1) -> str:
        """Ring the bell."""
        self.rung += times
        return "ding"

    def create_state_string(self) -> list[float]:
        return [self.floor]

    def calculate_reward(self) -> tuple[float, bool]:
        return float(self.floor), self.floor >= 3

    def handle_reset(self) -> None:
        self.floor = 0

    def handle_response_actions(self, actions: Any) -> None:
        self.floor += int(actions[0]) - 1


def test_a_bridge_with_tools_and_a_text() -> None:
    bridge = Lift()
    bridge.no_op = [1]  # type: ignore[attr-defined]
    world = BridgeScene(bridge)
    assert world.tools.names == ("ring", "act", "idle")
    world.reset(0)
    for decision, floor in ((AgentDecision("act", {"action": [2]}), 1), (AgentDecision("ring", {"times": 2}), 1),
                            (AgentDecision("act", {"action": [7]}), 1), (AgentDecision("act", {"action": []}), 1),
                            (AgentDecision("idle"), 1), (AgentDecision("act", {"action": [2]}), 2)):  # fmt: skip
        world.step({"player": decision})
        assert bridge.floor == floor, decision
        seen = world.observe("player")
        assert seen.tool_result is not None
        assert seen.tool_result.success == (decision.params.get("action") not in ([7], []))
    assert bridge.rung == 2
    assert seen.custom == {"observation": {"number_0": 2.0}, "text": "You are on floor 2."}
    world.step({"player": AgentDecision("act", {"action": [2]})})
    assert (world.over, world.success, world.reward("player"), world.tick) == (True, True, 3, 7)


def test_a_scene_that_is_hosted_is_played_as_the_scene() -> None:
    (hosted,) = AgentArena.play(SceneBridge(Foraging, 2), RULES["foraging"](), seed=4)
    (scene,) = AgentArena.play(Foraging(), RULES["foraging"](), seed=4)
    np.testing.assert_equal(hosted.returns, scene.returns)
    with pytest.raises(ConfigurationError, match="one env"):
        AgentArena.play(GymnasiumBridge("CartPole-v1", 2), Balances())
