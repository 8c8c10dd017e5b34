"""Mistakes in the rows of states: separators and fields."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.harness.engines.ways import (
    Way,
    field_of,
    line,
    number,
    numbers_of,
    row,
    sometimes,
)

if TYPE_CHECKING:
    pass

WAYS: list[Way] = [
    # separators
    row("missing-separator", "rew", "before REW", lambda t, a: t.replace(";REW", "REW")),
    row("missing-separator", "done", "before DONE", lambda t, a: t.replace(";DONE", "DONE")),
    row("missing-separator", "env", "before ENV", lambda t, a: t.replace(";ENV", "ENV")),
    row(
        "missing-separator",
        "rew-of-env-1",
        "before REW, in env 1",
        lambda t, a: t.replace(";REW", "REW" if a.env == 1 else ";REW"),
    ),
    row("missing-separator", "blank", "a blank instead of it", lambda t, a: t.replace(";", " ")),
    row("missing-separator", "trunc", "before TRUNC", lambda t, a: t.replace(";TRUNC", "TRUNC")),
    row("missing-separator", "comma", "commas between the fields", lambda t, a: t.replace(";", ",")),
    line("wrong-separator", "bar", "one bar", lambda data: data.replace(b"||", b"|")),
    # fields
    row("missing-field", "rew", "REW", lambda t, a: t.replace(field_of(t, "REW") + ";", "")),
    row("missing-env", "all", "in all rows", lambda t, a: t.replace(f";ENV={a.env}", "")),
    number("env-off-by-one", "all", "in all rows", lambda a: {"env": a.env + 1}),
    number("unknown-env", "99", "a far one", lambda a: {"env": 99 if a.env == 1 else a.env}),
    number(
        "wrong-socket", "swapped", "envs 0 and 1 are swapped", lambda a: {"env": (1, 0, 2)[a.env]}, channel="PER_ENV"
    ),
    number("two-answers", "ids", "all rows say ENV=0", lambda a: {"env": 0}, also=("unasked-env",)),
    row("repeated-field", "done", "DONE", lambda t, a: t.replace(";DONE", f";{field_of(t, 'DONE')};DONE")),
    row(
        "bad-flag", "word", "true and false", lambda t, a: t.replace(field_of(t, "DONE"), f"DONE={str(a.done).lower()}")
    ),
    row("unknown-field", "truncated", "TRUNCATED=1", lambda t, a: t.replace("TRUNC=", "TRUNCATED="), certain=False),
    row(
        "trunc-without-done",
        "limit",
        "at the limit",
        sometimes(lambda t, a: t.replace("DONE=1", "DONE=0"), lambda a: a.truncated),
    ),
    row("bad-info", "json", "bare JSON", lambda t, a: re.sub("INFO=.*", 'INFO={"steps":3}', t), parameters=True),
    row(
        "malformed-row",
        "json",
        "as JSON",
        lambda t, a: f'{{"obs": [{numbers_of(t)}], "reward": 0}}',
        also=("missing-field",),
    ),
    row("bad-mask", "short", "a flag is missing", lambda t, a: t[:-1], choices=True),
]
