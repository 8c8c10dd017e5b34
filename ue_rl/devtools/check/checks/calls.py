"""What a trainer may ask beside the steps (docs/protocol.md, section 8), as far as the engine announces it.

What is changed is put back: parameters to what they were, the game to running. The time scale cannot be asked for, so
it is 1 afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.peer import Skip, Wrong
from ue_rl.devtools.check.text_peer import TextPeer
from ue_rl.protocol.spaces.tree import Branch
from ue_rl.protocol.spec import EnvSpec, Parameter
from ue_rl.protocol.text import calls
from ue_rl.system.errors import CommandFailed, UeRlError

T = TypeVar("T")

_NOBODY = "no_such_parameter_x"
_MOST_SET = 8  # parameters that are set; more are only read


def parameters(bench: Bench) -> str:
    """GET and SET, and what the engine says to a name that it does not know."""
    peer = _announced(bench, bool(bench.peer().spec.parameters), "PARAMS")
    known = {each.name: each for each in peer.spec.parameters}
    now = _ask(peer, calls.write_get(), calls.read_values)
    if isinstance(now, str):
        return f"GET is refused: {now}"
    if set(now) != set(known):
        raise Wrong("bad-call", f"GET answers {sorted(now)}, PARAMS names {sorted(known)}", peer.seen)
    env = peer.spec.num_envs - 1
    refused = [name for name in list(known)[:_MOST_SET] if not _set_and_back(bench, peer, known[name], env)]
    _refuses(bench, peer, calls.write_get((_NOBODY,)))
    _refuses(bench, peer, calls.write_set({next(iter(known)): now[next(iter(known))], _NOBODY: 1.0}))
    bench.reset()
    bench.step()
    said = f"{len(known)} parameters: read, set and put back; a name that nobody knows is refused"
    if refused:
        return f"{said}; refused were {', '.join(refused)}"
    return said


def parameters_of_a_reset(bench: Bench) -> str:
    """SET beside a reset."""
    peer = _announced(bench, bool(bench.peer().spec.parameters), "PARAMS")
    parameter = peer.spec.parameters[0]
    env = peer.spec.num_envs - 1
    before = _ask(peer, calls.write_get((parameter.name,), env), calls.read_values)
    if isinstance(before, str):
        raise Skip(f"GET is refused: {before}")
    wanted = _another(parameter, before[parameter.name])
    bench.reset()
    (row,) = peer.reset_rows([env])[env]
    peer.exchange({env: [f"{row};{calls.write_set({parameter.name: wanted})}"]})
    now = _ask(peer, calls.write_get((parameter.name,), env), calls.read_values)
    if isinstance(now, dict) and now == before and wanted != before[parameter.name]:
        bench.fail("bad-call", f"ACT=RESET;SET={parameter.name}:{wanted:g} does not set it", peer.seen, env)
    _ask(peer, calls.write_set(before, env), calls.read_values)
    bench.reset()
    return f"{parameter.name} is set by a reset"


def pause(bench: Bench) -> str:
    """PAUSE=1 and 0; a request is answered all the same."""
    peer = _announced(bench, "PAUSE" in bench.peer().spec.features, "PAUSE")
    paused = _ask(peer, calls.write_pause(True), calls.read_ok)
    if isinstance(paused, str):
        return f"it is refused: {paused}"
    with bench.provoking("bad-call", "while the game is paused a request is not answered"):
        bench.step()
    _ask(peer, calls.write_pause(False), calls.read_ok)
    bench.step()
    return "a step was answered while the game was paused, and after it"


def time_scale(bench: Bench) -> str:
    """TIME_SCALE=1."""
    peer = _announced(bench, "TIME_SCALE" in bench.peer().spec.features, "TIME_SCALE")
    said = _ask(peer, calls.write_time_scale(1.0), calls.read_ok)
    bench.step()
    if isinstance(said, str):
        return f"it is refused: {said}"
    return "the time scale is 1 now"


def render(bench: Bench) -> str:
    """A picture."""
    peer = _announced(bench, "RENDER" in bench.peer().spec.features, "RENDER")
    picture = _ask(peer, calls.write_render(peer.spec.num_envs - 1), calls.read_picture)
    bench.step()
    if isinstance(picture, str):
        return f"it is refused: {picture}"
    return f"a picture of {picture.shape}"


def goals(bench: Bench) -> str:
    """The rewards of two pairs of goals."""
    peer = _announced(bench, "GOAL_REWARD" in bench.peer().spec.features, "GOAL_REWARD")
    size = _goal_size(peer.spec)
    if not size:
        raise Skip("OBS_SPACE has no achieved_goal and desired_goal of one size")
    pairs = np.zeros((2, size), np.float32)
    rewards = _ask(peer, calls.write_goals(pairs, pairs + 1), lambda text: calls.read_rewards(text, 2))
    bench.step()
    if isinstance(rewards, str):
        return f"they are refused: {rewards}"
    return f"two rewards: {rewards.tolist()}"


# -- helpers


def _announced(bench: Bench, announced: bool, key: str) -> TextPeer:
    """The session, between two requests."""
    peer = bench.text()
    if not announced or not peer.spec.version:
        raise Skip(f"the engine does not announce {key}")
    if bench.states is None:
        bench.reset()
    return peer


def _ask(peer: TextPeer, line: str, read: Callable[[str], T]) -> T | str:
    """What a call brought; a refusal as its sentence; raises Wrong: the answer is none."""
    answer = peer.call(line)
    try:
        found = read(calls.understood(line, answer))
    except CommandFailed as error:
        return str(error.got)
    except UeRlError as error:
        raise Wrong("bad-call", error.plain(), peer.seen) from error
    return found


def _set_and_back(bench: Bench, peer: TextPeer, parameter: Parameter, env: int) -> bool:
    """Sets one parameter of one env, looks, and puts it back; False: the engine refuses."""
    name = parameter.name
    before = _ask(peer, calls.write_get((name,), env), lambda text: calls.read_values(text, [name]))
    if isinstance(before, str):
        return False
    wanted = _another(parameter, before[name])
    said = _ask(peer, calls.write_set({name: wanted}, env), lambda text: calls.read_values(text, [name]))
    if isinstance(said, str):
        return False
    now = _ask(peer, calls.write_get((name,), env), lambda text: calls.read_values(text, [name]))
    if said != now:
        bench.fail("bad-call", f"SET answers {said}, and GET then {now}", peer.seen, env)
    elif wanted != before[name] and now == before:
        bench.fail("bad-call", f"SET={name}:{wanted:g} changes nothing", peer.seen, env)
    _ask(peer, calls.write_set(before, env), lambda text: calls.read_values(text, [name]))
    return True


def _another(parameter: Parameter, value: float) -> float:
    """Another value of its range; the same where there is none."""
    low = parameter.low
    high = parameter.high
    if np.isfinite(low) and np.isfinite(high):
        middle = (low + high) / 2
        if middle != value:
            return middle
        return (low + middle) / 2
    wished = 1.0
    if value:
        wished = value * 1.25
    return float(np.clip(wished, low, high))


def _refuses(bench: Bench, peer: TextPeer, line: str) -> None:
    try:
        said = _ask(peer, line, calls.read_values)
    except Wrong as wrong:
        if wrong.mistake != "bad-call":
            raise
        raise Wrong("bad-call", f"{line} should be REFUSED: {wrong.text}", wrong.seen) from wrong
    if not isinstance(said, str):
        bench.fail("bad-call", f"{line} should be REFUSED", peer.seen)


def _goal_size(spec: EnvSpec) -> int:
    """Numbers of a goal; 0: they are not there, or have different sizes."""
    if not isinstance(spec.obs_space, Branch):
        return 0
    sizes = {name: part.size for name, part in spec.obs_space.parts}
    achieved = sizes.get("achieved_goal", 0)
    desired = sizes.get("desired_goal", 0)
    if achieved == desired:
        return achieved
    return 0
