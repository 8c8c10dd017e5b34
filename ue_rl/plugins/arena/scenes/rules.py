"""Rules that play the scenes: what a policy or a language model is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from ue_rl.bridges.tools import ToolSchema
from ue_rl.plugins.arena.behaviors import AgentBehavior, RulesBehavior
from ue_rl.plugins.arena.scenes.crafting import BENCH_REACH, GOAL, RAW, RECIPES, nearest_of, needed
from ue_rl.plugins.arena.scenes.scene import REACH, walk_to
from ue_rl.plugins.arena.types import AgentDecision, AgentObservation


class CraftingRules(AgentBehavior):
    """Gathers what is missing, nearest first, then makes the parts and the pickaxe at the workbench."""

    inline: ClassVar[bool] = True

    def decide(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        have = {item.name: item.quantity for item in observation.inventory}
        missing = needed(have)
        for kind in RAW:
            thing = None
            if missing[kind]:
                thing = nearest_of(kind, observation)
            if thing is not None and thing.distance <= REACH:
                return AgentDecision("collect", {"item_name": kind}, f"{missing[kind]} {kind} missing")
            if thing is not None:
                return walk_to(thing)
        bench = nearest_of("workbench", observation)
        if bench is not None and bench.distance > BENCH_REACH - 0.5:
            return walk_to(bench)
        for item, parts in RECIPES.items():
            if (missing[item] or item == GOAL) and all(have.get(part, 0) >= count for part, count in parts.items()):
                return AgentDecision("craft_item", {"recipe": item}, f"{item} is next")
        return AgentDecision()


class CaptureRules(AgentBehavior):
    """Each holds a place of its own, and helps to take another while its own is held."""

    inline: ClassVar[bool] = True

    def decide(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        owners = observation.custom["owners"]
        own = int(observation.agent_id[-1])
        free = [place for place in (own, 0, 1, 2) if owners[place] != "red"]
        if free:
            goal = free[0]
        else:
            goal = own
        why = "holding it"
        if free:
            why = "not ours yet"
        return AgentDecision("go_to_place", {"place": goal}, why)


RULES: dict[str, Callable[[], AgentBehavior]] = {
    "foraging": RulesBehavior,
    "crafting": CraftingRules,
    "capture": CaptureRules,
}
