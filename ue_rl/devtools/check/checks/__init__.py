"""The checks, in the order in which they run: what everything else needs first, what may end a session last.

To add one: write `def name(bench) -> str` in the module that it belongs to. It returns what a PASS says, calls
`bench.warn` or `bench.fail` (or ends with one), or raises Skip, or Wrong where the session is over. Then give it a line
in the table below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks import (
    basics,
    calls,
    carriers,
    delivery,
    envs,
    episodes,
    reach,
    resets,
    seeds,
    sessions,
    spaces,
    timing,
)

__all__ = ["CHECKS", "Check"]


@dataclass(frozen=True)
class Check:
    """One check.

    Args:
        name: for people and scripts.
        run: see above.
        every_carrier: it runs over each carrier that the engine offers, not over the first one alone.
        text_only: it is about text, and left out over shared memory.
        fundamental: where it fails, those behind it are skipped.
    """

    name: str
    run: Callable[[Bench], str]
    every_carrier: bool = False
    fundamental: bool = False
    text_only: bool = False


CHECKS: list[Check] = [
    Check("handshake keys", basics.keys),
    Check("reset of all envs", basics.reset_all, every_carrier=True, fundamental=True),
    Check("resets in a row", resets.in_a_row),
    Check("steps of all envs", basics.steps_of_all, every_carrier=True, fundamental=True),
    Check("silence between requests", basics.silence, every_carrier=True),
    # who is asked
    Check("partial batches", delivery.partial, every_carrier=True, text_only=True),
    Check("steps and resets together", delivery.mixed, every_carrier=True, text_only=True),
    Check("rows in another order", delivery.backwards, text_only=True),
    Check("envs of their own", envs.own_states),
    # how long steps take
    Check("speed", timing.speed, every_carrier=True),
    Check("delayed pieces", timing.delays, every_carrier=True, text_only=True),
    # resets, episodes, seeds and actions
    Check("bounds and choices of actions", spaces.actions_taken, every_carrier=True),
    Check("reset of one env", resets.of_one, every_carrier=True),
    Check("ends of episodes", episodes.ends),
    Check("lengths of episodes", episodes.lengths),
    Check("last observations", episodes.last_observations),
    Check("a seed twice", seeds.repeat, every_carrier=True),
    Check("a seed in a new engine", seeds.in_a_new_engine, text_only=True),
    Check("other seeds", seeds.other_seeds),
    Check("large seeds", seeds.large, every_carrier=True),
    Check("empty options", seeds.options, every_carrier=True),
    Check("actions of the right env", envs.own_actions, every_carrier=True),
    Check("what actions do", envs.actions_arrive),
    Check("the whole range of actions", reach.whole_range),
    Check("observations in their space", spaces.inside, every_carrier=True),
    Check("observations change", spaces.changing),
    Check("decimals of numbers", spaces.decimals),
    Check("rewards", spaces.rewards),
    Check("fields of rows", basics.fields, text_only=True),
    Check("steps behind an end", episodes.behind_the_end),
    Check("resets asked ahead", resets.asked_ahead, every_carrier=True, text_only=True),
    Check("the same over each carrier", carriers.same, every_carrier=True),
    Check("steps and resets in one frame", carriers.mixed, every_carrier=True),
    Check("waking a trainer", carriers.wakes, every_carrier=True),
    # how requests arrive
    Check("what partial batches do", delivery.partial_effect, every_carrier=True, text_only=True),
    Check("what steps and resets together do", delivery.mixed_effect, every_carrier=True, text_only=True),
    Check("a seed for one env", seeds.one_alone),
    Check("requests in two pieces", delivery.in_two_pieces, every_carrier=True, text_only=True),
    Check("requests byte by byte", delivery.byte_by_byte, every_carrier=True, text_only=True),
    Check("several lines in one write", delivery.joined, text_only=True),
    Check("pipelined requests", delivery.pipelined, text_only=True),
    Check("what rows in another order do", delivery.backwards_effect, text_only=True),
    Check("carriage returns", delivery.crlf, every_carrier=True, text_only=True),
    Check("empty lines", delivery.empty_lines, every_carrier=True, text_only=True),
    Check("spaces", delivery.spaces, text_only=True),
    Check("lower case", delivery.lower_case, text_only=True),
    Check("unknown fields", delivery.unknown_keys, text_only=True),
    Check("spellings of numbers", delivery.numbers, text_only=True),
    Check("long lines", delivery.long_lines, every_carrier=True, text_only=True),
    Check("speed later", timing.slower),
    # beside the steps
    Check("parameters", calls.parameters, text_only=True),
    Check("parameters of a reset", calls.parameters_of_a_reset, text_only=True),
    Check("pause", calls.pause, text_only=True),
    Check("time scale", calls.time_scale, text_only=True),
    Check("pictures", calls.render, text_only=True),
    Check("actions of its own", spaces.own_actions, every_carrier=True),
    Check("rewards of goals", calls.goals, text_only=True),
    # the ends of sessions
    Check("next trainer", sessions.next_trainer),
    Check("trainers that break off", sessions.breaks_off, text_only=True),
    Check("connections that say nothing", sessions.probes, text_only=True),
    Check("a second trainer", sessions.second_trainer, text_only=True),
    Check("garbage", sessions.garbage, text_only=True),
]
