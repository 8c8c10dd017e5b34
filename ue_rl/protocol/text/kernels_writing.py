"""The encoders of kernels_pure.py: rows of arrays -> lines of text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.text.kernel_forms import (
    F_ACT,
    F_OBS,
    F_REW,
    FORM_MULTI,
    FORM_RLBASE,
    NON_FINITE,
    Failure,
    Layout,
    Refused,
)


def float32_text(value: np.float32) -> str:
    """The shortest text that reads back to the same finite float32: `0.1`, `1`, `-0`, `1.5e-07`."""
    text = str(value)
    if "e" not in text:
        return text[:-2] if text.endswith(".0") else text
    # NumPy's switch to exponents differs between its versions: lay the digits out ourselves.
    sign = "-" if text.startswith("-") else ""
    head, power = text.lstrip("-").split("e")
    whole, _, fraction = head.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = int(power) + 1  # value = 0.digits * 10**point
    if point > 16 or point < -3:
        e = point - 1
        return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{'-' if e < 0 else '+'}{abs(e):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits.ljust(point, '0')}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _finite_row(values: NDArray[np.float32], env: int, field: int) -> str:
    finite = np.isfinite(values)
    if not finite.all():
        raise Refused(NON_FINITE, env, field, 0, int(finite.argmin()))
    return ",".join(map(float32_text, values))


def encode_actions(
    env_ids: NDArray[np.int32],
    actions: NDArray[np.float32],
    layout: NDArray[np.int32] | None,
    form: int,
    separate: bool,
    number: int | NDArray[np.int64] = 0,
) -> bytes | list[bytes] | Failure:
    """One line asking the rows `env_ids` for a step; where `separate`, a list of one line per row, without ENV.

    Args:
        env_ids: int32 [n]. actions: float32 [rows, act_size].
        number: of the request (FEATURES=SEQ), where `separate` int64 [n], of each line; 0: it has none.
    """
    _check_ids(env_ids, len(actions))
    of = Layout(len(actions), actions.shape[1], form, layout)
    form &= 3
    key = "" if form == FORM_RLBASE else "ACT="
    try:
        rows = [key + _finite_row(actions[i, : of.numbers(i % of.per_env)], i, F_ACT) for i in env_ids.tolist()]
    except Refused as refused:
        return refused.failure
    if separate:
        numbers = [0] * len(rows) if isinstance(number, int) else number.tolist()
        if len(numbers) != len(rows):
            raise ValueError("one number for each line")
        return [end_line(row.encode(), one) for row, one in zip(rows, numbers, strict=True)]
    if form == FORM_MULTI:
        rows = [row + _env_text(i, of) for row, i in zip(rows, env_ids.tolist(), strict=True)]
    assert isinstance(number, int)
    return end_line("||".join(rows).encode(), number)


def encode_states(
    env_ids: NDArray[np.int32],
    obs: NDArray[np.float32],
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    truncated: NDArray[np.uint8],
    masks: NDArray[np.uint8] | None,
    layout: NDArray[np.int32] | None,
    form: int,
    number: int = 0,
) -> bytes | Failure:
    """One line with the states of the rows `env_ids`, int32 [n]; the arrays as for `decode_states`.

    Args:
        number: of the request that they answer; 0: it has none.
    """
    _check_ids(env_ids, len(rewards))
    of = Layout(len(obs), obs.shape[1], form, layout, masks)
    form &= 3
    rows = []
    try:
        for i in env_ids.tolist():
            agent = i % of.per_env
            numbers = _finite_row(obs[i, : of.numbers(agent)], i, F_OBS)
            reward = _finite_row(rewards[i : i + 1], i, F_REW)
            done = int(bool(dones[i]))
            if form == FORM_RLBASE:
                rows.append(f"{numbers};{reward};{done}")
                continue
            env = _env_text(i, of) if form == FORM_MULTI else ""
            trunc = ";TRUNC=1" if truncated[i] and done else ""
            flags = None if masks is None else masks[i, : of.flags(agent)]
            mask = "" if flags is None or flags.all() else f";MASK={''.join(map(str, (flags != 0).astype(int)))}"
            rows.append(f"OBS={numbers};REW={reward};DONE={done}{env}{trunc}{mask}")
    except Refused as refused:
        return refused.failure
    return end_line("||".join(rows).encode(), number)


def end_line(line: bytes, number: int) -> bytes:
    """`line` with its number (FEATURES=SEQ), unless that is 0, and its line ending."""
    return b"%b;SEQ=%d\n" % (line, number) if number > 0 else line + b"\n"


def copy_parts(
    rows: NDArray[np.float32], parts: tuple[tuple[str, int, tuple[int, ...]], ...]
) -> dict[str, NDArray[np.float32]]:
    """{name: its part of a copy of `rows`}, float32 [n, *shape], views of one array.

    Args:
        rows: float32 [n, size]. parts: (name, index of the first number, shape) each.

    Raises:
        ValueError: a row has no such numbers.
    """
    copy, found = rows.copy(), {}
    for name, first, shape in parts:
        end = first + math.prod(shape)
        if not 0 <= first < end <= rows.shape[1]:
            raise ValueError(f"a row of {rows.shape[1]} numbers has no such part: {(name, first, shape)}")
        found[name] = copy[:, first:end].reshape(len(copy), *shape)
    return found


def write_choices(actions: NDArray[np.int64], choices: NDArray[np.int64]) -> NDArray[np.float32] | int:
    """Choices as the wire's rows, float32 [n, size]; or the index of the first number that is no choice.

    Args:
        actions: int64, n * size numbers. choices: int64 [3, size], of each number its first choice, the end of its
            choices, and what is added to it.
    """
    first, end, add = choices
    rows = actions.reshape(-1, choices.shape[1])
    fits = ((rows >= first) & (rows < end)).ravel()
    return (rows + add).astype(np.float32) if fits.all() else int(fits.argmin())


def find_no_choice(actions: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]) -> int:
    """The index of the first number that is not an integer from `low` to `high`; -1: there is none.

    Args:
        actions: float32, n rows. low, high: float32, one row or n; where low is -inf the number is no choice.
    """
    rows = actions.reshape(-1, low.size)
    low, high = low.ravel(), high.ravel()
    fits = ((rows >= low) & (rows <= high) & (rows == np.rint(rows)) | (low == -np.inf)).ravel()
    return -1 if fits.all() else int(fits.argmin())


def take_step(
    obs: NDArray[np.float32] | None,
    rewards: NDArray[np.float32],
    dones: NDArray[np.uint8],
    returns: NDArray[np.float64],
    started: NDArray[np.int64],
    of: NDArray[np.bool_] | None,
    now: int,
    limit: int,
) -> tuple[NDArray[np.float32] | None, NDArray[np.float32], NDArray[np.bool_], NDArray[np.float64], list[int]]:
    """What a transport has received, as it is given out: copies of `obs` and `rewards`, bool [n] of who is done, the
    returns with these rewards, and the rows that are done.

    Args:
        obs: float32 [n, size]; None stays None. rewards, dones, returns: [n], of this step, and before it.
        started: int64 [n], the step at which each episode began; `now`: this one. of: bool [n], the rows that were
            asked; the others' rewards are 0, and none of them is done. None: all. limit: where so many steps have been
            taken an episode is over, too; -1: nowhere.
    """
    rewards, over = rewards.copy(), dones.astype(np.bool_)
    if limit >= 0:
        over |= now - started >= limit
    if of is not None:
        rewards[~of], over[~of] = 0, False
    return None if obs is None else obs.copy(), rewards, over, returns + rewards, over.nonzero()[0].tolist()


def own_dicts(kept: list[dict[str, Any]], key: str, value: Any) -> list[dict[str, Any]]:
    """{key: value} for each of `kept`, no two of them the same dict.

    The compiled one gives those of `kept` out again that nobody else holds and that are so still, and puts what it has
    made in the place of the others: for thousands of envs that takes a fifth of the time.
    """
    return [{key: value} for _ in kept]


def _env_text(row: int, of: Layout) -> str:
    return f";ENV={row // of.per_env};AGENT={row % of.per_env}" if of.agents else f";ENV={row}"


def _check_ids(env_ids: NDArray[np.int32], num_rows: int) -> None:
    if len(env_ids) and (env_ids.min() < 0 or env_ids.max() >= num_rows):
        raise IndexError("row out of range")
