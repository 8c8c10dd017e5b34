"""The named errors for what the kernels refuse: which env, agent and field, what was expected and what came. No I/O."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import kernel_forms as k
from ue_rl.protocol.text.kernels_writing import end_line
from ue_rl.protocol.text.notices import ended_by
from ue_rl.system.errors import (
    ActionError,
    MalformedMessage,
    NonFiniteValue,
    ProtocolError,
    RepeatedEnv,
    UeRlError,
    UnknownEnv,
    WrongCount,
    shorten,
)

_ENV = re.compile(rb"(?:^|[;|])\s*ENV\s*=\s*(\d{1,9})\s*(?:;|$|\|)", re.IGNORECASE)
_AGENT = re.compile(rb"(?:^|[;|])\s*AGENT\s*=\s*(\d{1,9})\s*(?:;|$|\|)", re.IGNORECASE)
NUMBER_FIELD = re.compile(rb";[ \t\r]*SEQ[ \t\r]*=", re.IGNORECASE)
_COMMA = re.compile(rb"REW\s*=\s*[+-]?\d+,\d", re.IGNORECASE)
_DECIMAL_COMMA = "decimal comma? set the C locale where the engine formats its numbers"
_NAN_CURE = "look for a division by zero or an unset value in the {who}"
_KIND: dict[int, tuple[type[ProtocolError], str]] = {
    k.BAD_NUMBER: (MalformedMessage, "a number was expected"),
    k.WRONG_COUNT: (WrongCount, "a vector has the wrong number of numbers"),
    k.NON_FINITE: (NonFiniteValue, "a value is NaN, infinite or beyond float32"),
    k.UNKNOWN_ENV: (UnknownEnv, "the env id does not exist"),
    k.REPEATED_ENV: (RepeatedEnv, "an env answered that was not asked, or answered twice"),
    k.MISSING_FIELD: (MalformedMessage, "a required field is missing"),
    k.REPEATED_FIELD: (MalformedMessage, "a field comes twice in one row"),
    k.BAD_FLAG: (MalformedMessage, "a flag is neither 0 nor 1"),
    k.NOT_A_FIELD: (MalformedMessage, "the text is not a field of the protocol"),
    k.TRUNC_WITHOUT_DONE: (MalformedMessage, "TRUNC=1 came with DONE=0"),
    k.RUN_TOGETHER: (MalformedMessage, "the last observation and the reward run together and cannot be told apart"),
    k.BAD_INTEGER: (MalformedMessage, "a non-negative integer was expected"),
    k.OTHER_ENV: (UnknownEnv, "the line came on another env's socket"),
    k.UNKNOWN_AGENT: (UnknownEnv, "the env has no such agent"),
    k.RESET_OF_AGENT: (MalformedMessage, "an agent cannot be reset alone"),
    k.NO_CHOICE: (MalformedMessage, "an action mask leaves a number without a choice"),
    k.NUMBER_IN_ROW: (MalformedMessage, "the number of a request stands once, at the end of the line"),
}


def refusal(spec: EnvSpec, failure: k.Failure, data: Any, start: int, end: int, fault: str) -> UeRlError:
    """The error for a decoder's failure in the line data[start:end]."""
    code, env, field_id, at, got = failure
    kind, message = _KIND[code]
    field = k.FIELDS[field_id]
    line = bytes(data[start:end])
    if fault == "engine" and (ended := ended_by(line, env if env >= 0 else None)):
        return ended
    if env < 0 and spec.env_type is EnvType.MULTI:
        env = _named(_ENV, line, at - start, spec.num_envs)
    if spec.groups:
        agent = _named(_AGENT, line, at - start, spec.agents_per_env)
    else:
        agent = -1
    expected: str | None = None
    cure: str | None = None
    if code == k.WRONG_COUNT:
        expected, cure = _wanted(_one(spec, max(agent, 0)), field)
        if got >= 0:
            message += f": {got} came"
        if got == 2 * _size(_one(spec, max(agent, 0)), field) and b"." not in _row(line, at - start):
            cure = _DECIMAL_COMMA
    elif code in (k.BAD_NUMBER, k.NOT_A_FIELD) and field == "REW" and _COMMA.search(_row(line, at - start)):
        cure = _DECIMAL_COMMA
    elif code == k.NON_FINITE:
        who = "policy"
        if fault == "engine":
            who = "game's state or reward"
        cure = _NAN_CURE.format(who=who)
    elif code == k.UNKNOWN_ENV:
        expected = f"0 to {spec.num_envs - 1}"
        env, message = -1, f"{message}: {env}"
    elif code == k.OTHER_ENV:
        expected = f"ENV={env} or no ENV"
        message = f"{message}: it names env {got}"
        cure = "an env socket's id is the order in which it was accepted"
    elif code == k.RUN_TOGETHER:
        cure = "end the game's state string with ';'"
    elif code == k.UNKNOWN_AGENT:
        expected = f"0 to {spec.agents_per_env - 1}"
        message = f"{message}: {got}"
    elif code == k.RESET_OF_AGENT:
        expected = "ACT=RESET without AGENT: it is for the whole env"
    elif code == k.NO_CHOICE:
        expected = "a choice at least for each number, unless DONE=1"
        message = f"{message}: number {got}"
    if code == k.REPEATED_ENV and fault == "trainer":
        message = "an env was asked again before it had answered"
    elif code == k.REPEATED_ENV and spec.groups:
        message = "an agent answered whose answer was not awaited, or answered twice"
    if agent >= 0:
        message += f" (agent {spec.agent_names[agent]})"
    env_id = None
    if env >= 0:
        env_id = env
    return kind(
        message,
        fault=fault,
        env_id=env_id,
        field=field,
        expected=expected,
        got=_around(line, at - start),
        cure=cure,
    )


def check_call_number(line: bytes, fault: str) -> None:
    """For a call or its answer, without the number at its end: raises MalformedMessage where there is another one."""
    if found := NUMBER_FIELD.search(line):
        kind, message = _KIND[k.NUMBER_IN_ROW]
        raise kind(message, fault=fault, field="SEQ", got=_around(line, found.start()))


def _row(line: bytes, at: int) -> bytes:
    """The row around `at`."""
    end = line.find(b"||", at)
    return line[line.rfind(b"||", 0, at) + 1 : len(line) if end < 0 else end]


def _named(key: re.Pattern[bytes], line: bytes, at: int, count: int) -> int:
    """The env or agent that the row around `at` names, -1 for none: in a row, it stands behind what was refused."""
    found = key.search(_row(line, at))
    if found:
        number = int(found.group(1))
    else:
        number = -1
    if number < count:
        return number
    return -1


def _one(spec: EnvSpec, agent: int) -> EnvSpec:
    """The sizes of one agent; of an env that is one, the session's own."""
    for group in spec.groups:
        if agent < group.count:
            return group.spec
        agent -= group.count
    return spec


def _size(one: EnvSpec, field: str) -> int:
    if field == "OBS":
        return one.obs_size
    return one.act_size


def _wanted(one: EnvSpec, field: str) -> tuple[str, str]:
    """How many numbers a field should have had, and what to do about it."""
    if field == "MASK":
        flags = one.action_spec.mask_size
        return f"{flags} flags", "MASK has one flag for each choice of each number of ACT_SPACE"
    return f"{_size(one, field)} numbers", "the handshake's OBS and ACT must be what the game sends and takes"


def _around(line: bytes, at: int, before: int = 40) -> str:
    """The line cut to the part that matters, with where it stands."""
    if at <= before:
        return shorten(line)
    return f"...{shorten(line[at - before :])} (from byte {at - before} of {len(line)})"


def agent_text(spec: EnvSpec, row: int) -> str:
    """Which agent a row is, for an error; "" without agents."""
    if spec.groups:
        return f" (agent {spec.agent_names[row % spec.agents_per_env]})"
    return ""


def nonfinite_action(actions: NDArray[np.float32], row: int, index: int, spec: EnvSpec | None = None) -> ActionError:
    """The error for number `index` of a row of actions float32 [num_rows, act_size]. `spec`: None without agents."""
    of = ""
    if spec is not None:
        of = agent_text(spec, row)
    if spec is None:
        env_id = row
    else:
        env_id = row // spec.agents_per_env
    return ActionError(
        f"the policy gave an action that is not a finite number{of}",
        env_id=env_id,
        field="ACT",
        expected="finite float32",
        got=f"{actions[row, index]} at index {index}",
        cure="training has diverged, or an observation was not normalised: lower the learning rate, "
        "wrap the env in VecNormalize, look for huge observations",
    )


def nonfinite_state(
    obs: NDArray[np.float32], rewards: NDArray[np.float32], failure: k.Failure, spec: EnvSpec
) -> NonFiniteValue:
    """The error for what an encoder refused, float32 [num_rows, obs_size] and [num_rows]."""
    _, row, field, _, index = failure
    return NonFiniteValue(
        f"the game produced a value that is not a finite number{agent_text(spec, row)}",
        fault="engine",
        env_id=row // spec.agents_per_env,
        field=k.FIELDS[field],
        expected="finite float32",
        got=f"{obs[row, index] if field == k.F_OBS else rewards[row]} at index {index}",
        cure=_NAN_CURE.format(who="game's state or reward"),
    )


def nonfinite_line(
    spec: EnvSpec,
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    row: int,
    number: int,
) -> bytes:
    """A line with one row that an encoder refuses: a trainer refuses it, too, and names what is not finite.

    Args:
        number: of the request that it answers; 0: it has none.
    """
    env, agent = divmod(row, spec.agents_per_env)
    numbers = ",".join(map(str, obs[row, : _one(spec, agent).obs_size].tolist()))
    if spec.env_type is EnvType.RLBASE:
        return f"{numbers};{rewards[row]};{dones[row]}\n".encode()
    before = ""
    if spec.groups:
        before = f"AGENT={agent};"
    behind = ""
    if spec.env_type is EnvType.MULTI:
        behind = f";ENV={env}"
    return end_line(f"{before}OBS={numbers};REW={rewards[row]};DONE={dones[row]}{behind}".encode(), number)
