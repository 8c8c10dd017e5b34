"""What reading and writing in Python share (kernels_pure.py): forms, failure codes, fields, and how wide rows are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FORM_MULTI = 0
FORM_SINGLE = 1
FORM_RLBASE = 2
OBSERVATIONS = 4  # added to the form of decode_states: see there
SETTINGS = 8  # added to the form of decode_requests: SET is read
AGENTS = 16  # rows are an agent's, and say so with AGENT
NUMBERED = 32  # lines end in a number (FEATURES=SEQ): SEQ stands nowhere else. RLBASE has no keys, and never has it
(
    BAD_NUMBER,
    WRONG_COUNT,
    NON_FINITE,
    UNKNOWN_ENV,
    REPEATED_ENV,
    MISSING_FIELD,
    REPEATED_FIELD,
    BAD_FLAG,
    NOT_A_FIELD,
    TRUNC_WITHOUT_DONE,
    RUN_TOGETHER,
    BAD_INTEGER,
    OTHER_ENV,
    UNKNOWN_AGENT,
    RESET_OF_AGENT,
    NO_CHOICE,
    NUMBER_IN_ROW,
) = range(1, 18)
FIELDS = (
    "OBS", "REW", "DONE", "ENV", "TRUNC", "INFO", "ACT", "SEED", "OPTIONS", "RESET", "MASK", "AGENT", "SET", "SEQ",
    "message",
)  # fmt: skip
(
    F_OBS,
    F_REW,
    F_DONE,
    F_ENV,
    F_TRUNC,
    F_INFO,
    F_ACT,
    F_SEED,
    F_OPTIONS,
    F_RESET,
    F_MASK,
    F_AGENT,
    F_SET,
    F_SEQ,
    F_OTHER,
) = range(15)

Failure = tuple[int, int, int, int, int]


class Refused(Exception):
    """What stands in a line cannot be taken, or what is to be written cannot be written."""

    def __init__(self, code: int, env: int, field: int, at: int, got: int = 0) -> None:
        self.failure: Failure = (code, env, field, at, got)


class Layout:
    """What decode_* and encode_* are told of rows: see the module's docstring.

    Raises:
        ValueError: masks, layout and the number of rows disagree.
    """

    def __init__(
        self, rows: int, size: int, form: int, layout: NDArray[np.int32] | None, masks: NDArray[np.uint8] | None = None
    ) -> None:
        self.agents = form & AGENTS != 0
        self.layout = layout
        if masks is None:
            self.mask_size = 0
        else:
            self.mask_size = masks.size // max(rows, 1)
        if self.agents and layout is not None:
            self.per_env = len(layout)
        else:
            self.per_env = 1
        if (self.agents or self.mask_size) and (layout is None or layout.shape[1] < 2 or len(layout) != self.per_env):
            raise ValueError("masks, layout and the number of rows disagree")
        if self.per_env < 1 or rows % self.per_env:
            raise ValueError("masks, layout and the number of rows disagree")
        self.envs = rows // self.per_env
        self.size = size

    def numbers(self, agent: int) -> int:
        """How many a row of this agent has."""
        if self.agents and self.layout is not None:
            return int(self.layout[agent, 0])
        return self.size

    def flags(self, agent: int) -> int:
        """How many mask flags a row of this agent has."""
        if self.mask_size and self.layout is not None:
            return int(self.layout[agent, 1])
        return 0

    def without_choice(self, agent: int, mask: bytes) -> int:
        """The first number that `mask` leaves without a choice, or -1."""
        assert self.layout is not None
        at = 0
        for number, count in enumerate(self.layout[agent, 2:].tolist()):
            if count and b"1" not in mask[at : at + count]:
                return number
            at += count
        return -1
