"""The spaces of the handshake hold: observations are inside, and every action that is inside is taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.resets import numbers, shown
from ue_rl.devtools.check.history import HistoryArrays
from ue_rl.devtools.check.peer import Skip, Wrong
from ue_rl.devtools.check.sampling import one_specs
from ue_rl.devtools.check.spelling import numbers as text_of
from ue_rl.devtools.check.statistics import all_of, effect, rounding
from ue_rl.protocol.spaces.actions import ActionKind

_MOST_CHOICES = 256  # steps
_HELD = 3  # steps with one action
_STILL = 100  # exchanges after which an observation that never changed is worth a word
_WITHOUT_REWARD = 3000  # steps of all envs together, likewise
_MOST_STEPS = 4000
_BLOCK = 20  # steps
_VALUES = 300  # that are needed to say something about their decimals
_DISTINCT = 30
_SHOWN = 4
_MOST_TRIED = 16
_NOTHING = 4.5  # standard deviations
_ENDED = ("ends-session", "no-answer", "env-never-answered")


def inside(bench: Bench) -> str:
    """All observations so far were in OBS_SPACE."""
    numbers(bench)
    spec = bench.peer().spec
    watcher = bench.tape.watcher
    ones = one_specs(spec)
    if not any(np.isfinite(side).any() for one in ones for side in one.obs_bounds):
        raise Skip("OBS_SPACE has no bounds")
    if watcher.outside:
        first = list(watcher.outside.items())[:_SHOWN]
        parts = [ones[agent].out_of_bounds(number, value) for (agent, number), (_, value) in first]
        bench.fail("outside-obs-space", "; ".join(parts), env_id=first[0][1][0] // spec.agents_per_env)
    elif watcher.broken:
        (agent, number), (row, value) = next(iter(watcher.broken.items()))
        text = f"{ones[agent].obs_name(number)} is a choice and was {value:g}"
        bench.fail("outside-obs-space", text, env_id=row // spec.agents_per_env)
    return f"{len(bench.tape)} observations of each env"


def own_actions(bench: Bench) -> str:
    """A game that acts itself says with each step what it did."""
    spec = bench.peer().spec
    if "DEMO" not in spec.features:
        raise Skip("the engine does not announce DEMO")
    if bench.states is None:
        bench.reset()
    bench.step()
    states = bench.states
    assert states is not None
    for env in range(spec.num_envs):
        given = states.infos.get(env, {}).get("demo_action")
        numbers_given = []
        if isinstance(given, list):
            numbers_given = given
        wrong = any(not isinstance(number, (int, float)) for number in numbers_given)
        if wrong or len(numbers_given) != spec.act_size:
            bench.fail("no-demo-action", f"INFO had {given!r:.60}, not {spec.act_size} numbers", env_id=env)
            break
    return f"each of {spec.num_envs} envs said what it did"


def changing(bench: Bench) -> str:
    """Observations change."""
    numbers(bench)
    if len(bench.tape) < _STILL:
        raise Skip(f"only {len(bench.tape)} observations were seen")
    reel = bench.tape.reel()
    obs = reel.obs
    if (obs == obs[0]).all():
        if _is_bandit(reel):
            return "it never changes, and rewards do not follow what came before: a bandit's is right so"
        bench.warn("constant-observation", f"{len(obs)} times it was {shown(obs[0, :1])}")
    elif not bench.peer().spec.groups:
        _of_one_env(bench, reel)
    return f"{int((obs != obs[0]).any(axis=(0, 1)).sum())} of {obs.shape[2]} numbers change"


def _of_one_env(bench: Bench, reel: HistoryArrays) -> None:
    """An env that shows one thing, while another one shows something else in most steps."""
    moved = (reel.obs[1:] != reel.obs[:-1]).any(axis=2) & reel.steps[1:]
    often = moved.sum(axis=0)
    steps = reel.steps[1:].sum(axis=0)
    lively = int(np.argmax(often / np.maximum(steps, 1)))
    for env in np.flatnonzero((often == 0) & (steps >= _STILL / 2)).tolist():
        if often[lively] > steps[lively] / 2:
            text = f"env {env}: in {steps[env]} steps nothing, of env {lively} in {often[lively]} of {steps[lively]}; "
            bench.warn("constant-observation", f"{text}is each env's row written at its own place?", env_id=env)
            return


def _is_bandit(reel: HistoryArrays) -> bool:
    """Is there nothing to show: is each episode one step, or do rewards follow nothing that was done or came before?"""
    if not reel.ordinary.any():
        return True
    t, env = np.argwhere(reel.steps & (reel.ages > 1)).T
    rewards = reel.rewards[t, env][:, None]
    nothing = np.zeros((len(t), 1), np.float32)
    before = np.column_stack([reel.actions[t - 1, env], reel.rewards[t - 1, env]])
    return bool(np.ptp(rewards) > 0 and effect(rewards, nothing, before).max(initial=0.0) < _NOTHING)


def rewards(bench: Bench) -> str:
    """Some reward is not 0."""
    spec = bench.peer().spec
    reel = bench.tape.reel()
    steps = int(reel.steps.sum())
    if not reel.rewards.any() and not bench.failed:
        bench.anew()
        held = None  # in turns: random actions lead nowhere in some games, and one that is held for a while does
        for n in bench.while_there_is_time(bench.options.patience, max(0, _MOST_STEPS - steps // bench.tape.envs)):
            if n % _BLOCK == 0:
                if spec.mask_size or n // _BLOCK % 2:
                    held = None
                else:
                    held = bench.sampler.random(bench.states)
            states = bench.step(held)
            steps += spec.num_envs
            if states.rewards.any():
                return "some are not 0"
        if steps >= _WITHOUT_REWARD:
            return bench.warn("zero-reward", f"in {steps:,} steps; a game whose rewards are rare may be right")
        raise Skip(f"all {steps:,} were 0, which may be right: too few to say anything")
    if not reel.rewards.any():
        raise Skip(f"all {steps:,} were 0; what failed above comes first")
    return f"{reel.rewards.min():g} to {reel.rewards.max():g}"


def decimals(bench: Bench) -> str:
    """Numbers are not rounded."""
    numbers(bench)
    obs = bench.tape.reel().obs.astype(np.float64)
    several = [len(np.unique(obs[:, :, d])) >= _DISTINCT for d in range(obs.shape[2])]
    values = np.unique(obs[:, :, several])
    if obs.size < _VALUES or not any(several):
        raise Skip("too few different numbers were seen")
    if all_of(values, 0.01) and not all_of(values, 0.02) and not all_of(values, 0.05):
        text = f"all {len(values)} different numbers are whole hundredths"
        bench.warn("two-decimals", text, ", ".join(f"{x:g}" for x in values[:8]))
    elif not bench.options.base and (how := rounding(values)):
        text = f"all {len(values)} different numbers have {how}; a game that computes in such is right"
        bench.warn("rounded", text, text_of(values[:: len(values) // 8].astype(np.float32)))
    return f"{len(values)} different numbers, with more than six digits"


def actions_taken(bench: Bench) -> str:
    """Every choice of each number, and the bounds of each BOX, are taken."""
    spec = bench.peer().spec
    bench.needs_right("bound-refused", "choice-refused")
    bench.anew()
    taken = 0
    masked = spec.mask_size > 0
    corners = _corners(bench)
    for n in bench.while_there_is_time(bench.options.patience, len(corners)):
        name, rows = corners[n]
        if masked:
            actions = bench.sampler.random(bench.states)
        else:
            actions = rows
        times = 1
        if name != "choice-refused":
            times = _HELD
        for _ in range(times):
            if masked:
                actions = bench.sampler.random(bench.states)
            try:
                bench.step(actions)
            except Wrong as wrong:
                raise _named(bench, wrong, [(name, actions)]) from wrong
        taken += 1
    if masked:
        return f"{taken} legal actions"
    choices = most_choices(bench)
    which = "; the lowest and the highest"
    if choices:
        which = f"; {choices} choices"
    return f"{taken} of {len(corners)} corners" + which


def most_choices(bench: Bench) -> int:
    """That a number of an action has; 0: there are none."""
    return max(max(one.action_spec.counts, default=0) for one in one_specs(bench.peer().spec))


def refused(bench: Bench, wrong: Wrong) -> Wrong:
    """What is wrong where random steps ended a session: maybe the engine does not take some action.

    Args:
        wrong: what it looked like.
    """
    corners = _corners(bench)
    return _named(bench, wrong, [*corners[:2], *corners[2:][:_MOST_TRIED]])


def _corners(bench: Bench) -> list[tuple[str, NDArray[np.float32]]]:
    """(the mistake where it is not taken, actions of all rows): at the bounds, and with every choice."""
    spec = bench.peer().spec
    ones = [one.action_spec for one in one_specs(spec)]
    low = bench.sampler.low
    made: list[tuple[str, NDArray[np.float32]]] = []
    if not bench.sampler.whole.all():
        made = [("bound-refused", bench.sampler.at(0)), ("bound-refused", bench.sampler.at(1))]
    # All envs share the work; so two agents of a kind do not try the same.
    turns = min(-(-most_choices(bench) // spec.num_envs), _MOST_CHOICES)
    for turn in range(turns):
        rows = bench.sampler.at(0.5)
        for row in range(len(rows)):
            for number, count in enumerate(ones[row % len(ones)].counts):
                if count:
                    rows[row, number] = low[row, number] + (turn * spec.num_envs + row // len(ones)) % count
        made.append(("choice-refused", rows))
    return made


def _named(bench: Bench, wrong: Wrong, tried: list[tuple[str, NDArray[np.float32]]]) -> Wrong:
    """`wrong`, or the action to blame: it ends a new session with its first step, and another one does not."""
    if wrong.mistake not in _ENDED:
        return wrong
    guilty = None
    innocent = False
    for n, (name, actions) in enumerate([("bound-refused", bench.sampler.at(0.5)), *tried]):
        if not _ends(bench, actions):
            innocent = True
        elif guilty is None:
            guilty = (name, actions)
        if guilty is not None and (innocent or (n and wrong.mistake != "ends-session")):
            break
    if guilty is None and innocent and wrong.mistake == "ends-session" and (part := _fraction(bench)) is not None:
        return Wrong("numbers-not-read", f"{part}: {wrong.text}", wrong.seen)
    if guilty is None or not innocent:
        return wrong
    name, actions = guilty
    if name == "bound-refused" and bench.peer().spec.action_spec.kind is not ActionKind.BOX:
        name = "choice-refused"
    rows = sorted({shown(actions[row : row + 1]) for row in range(min(len(actions), _SHOWN))})
    return Wrong(name, f"after ACT={' or ACT='.join(rows)}: {wrong.text}", wrong.seen)


def _fraction(bench: Bench) -> str | None:
    """Whole numbers do not end a session: do others?"""
    actions = bench.sampler.at(0.3)
    if (actions == np.round(actions)).all() or not _ends(bench, actions):
        return None
    return f"after ACT={shown(actions[:1])}, and not after ACT={shown(bench.sampler.at(1)[:1])}"


def _ends(bench: Bench, actions: NDArray[np.float32]) -> bool:
    """Does a new session end with this first step, or can there be none?"""
    bench.drop()
    try:
        bench.reset()
        bench.play(actions)
    except Wrong:
        bench.drop()
        return True
    return False
