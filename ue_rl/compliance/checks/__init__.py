"""The checks, in the order in which they run: what everything else needs first, what may end a session last.

To add one: write `def name(bench) -> str` in the module that it belongs to. It returns what a PASS says, calls
`bench.warn` or `bench.fail`, raises Wrong where the session is over, or Skip. Then give it a line in the table below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ue_rl.compliance.bench import Bench
from ue_rl.compliance.checks import basics, carriers, envs, episodes, resets, seeds, spaces

__all__ = ["CHECKS", "Check"]


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: for people and scripts.
        run: see above.
        every_carrier: it runs over each carrier that the engine offers, not over the first one alone.
        fundamental: where it fails, those behind it are skipped unless they stand alone.
    """

    name: str
    run: Callable[[Bench], str]
    every_carrier: bool = False
    fundamental: bool = False
    stands_alone: bool = False


CHECKS: list[Check] = [
    Check("handshake keys", basics.keys),
    Check("reset of all envs", basics.reset_all, every_carrier=True, fundamental=True),
    Check("resets in a row", resets.in_a_row),
    Check("steps of all envs", basics.steps_of_all, every_carrier=True, fundamental=True),
    Check("silence between requests", basics.silence, every_carrier=True),
    Check("reset of one env", resets.of_one, every_carrier=True),
    Check("ends of episodes", episodes.ends),
    Check("lengths of episodes", episodes.lengths),
    Check("last observations", episodes.last_observations),
    Check("envs of their own", envs.own_states),
    Check("a seed twice", seeds.repeat, every_carrier=True),
    Check("other seeds", seeds.other_seeds),
    Check("a seed for one env", seeds.one_alone),
    Check("large seeds", seeds.large, every_carrier=True),
    Check("empty options", seeds.options, every_carrier=True),
    Check("actions of the right env", envs.own_actions, every_carrier=True),
    Check("what actions do", envs.actions_arrive),
    Check("bounds and choices of actions", spaces.actions_taken, every_carrier=True),
    Check("observations in their space", spaces.inside, every_carrier=True),
    Check("observations change", spaces.changing),
    Check("decimals of numbers", spaces.decimals),
    Check("rewards", spaces.rewards),
    Check("the same over each carrier", carriers.same, every_carrier=True),
]
