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
    line("wrong-separator", "trailing", "|| at the end", lambda data: data.replace(b"\n", b"||\n")),
    line(
        "wrong-separator", "semicolon", "a semicolon", lambda data: data.replace(b"||", b";"), also=("repeated-field",)
    ),
    line("wrong-separator", "comma", "a comma", lambda data: data.replace(b"||", b","), also=("malformed-row",)),
    # fields
    row("missing-field", "rew", "REW", lambda t, a: t.replace(field_of(t, "REW") + ";", "")),
    row("missing-field", "done", "DONE", lambda t, a: t.replace(field_of(t, "DONE") + ";", "")),
    row(
        "missing-field",
        "reset",
        "REW and DONE, after a reset",
        sometimes(lambda t, a: t.replace(";REW=0;DONE=0", ""), lambda a: a.reset),
    ),
    row("missing-field", "obs", "OBS", lambda t, a: t[t.index("REW") :], also=("malformed-row",)),
    row("missing-field", "reward", "REWARD for REW", lambda t, a: t.replace("REW", "REWARD")),
    row("missing-env", "all", "in all rows", lambda t, a: t.replace(f";ENV={a.env}", "")),
    row(
        "missing-env",
        "reset",
        "after a reset",
        sometimes(lambda t, a: t.replace(f";ENV={a.env}", ""), lambda a: a.reset),
    ),
    row(
        "missing-env",
        "last",
        "in the last env",
        sometimes(lambda t, a: t.replace(f";ENV={a.env}", ""), lambda a: a.env == 2),
    ),
    row("missing-env", "id", "ID for ENV", lambda t, a: t.replace("ENV", "ID"), also=("unknown-field",)),
    number("env-off-by-one", "all", "in all rows", lambda a: {"env": a.env + 1}),
    number("env-off-by-one", "steps", "in steps alone", lambda a: {"env": a.env + (not a.reset)}),
    number("unknown-env", "99", "a far one", lambda a: {"env": 99 if a.env == 1 else a.env}),
    row(
        "unknown-env",
        "negative",
        "-1",
        lambda t, a: t.replace(f"ENV={a.env}", "ENV=-1"),
        also=("malformed-row", "missing-env"),
    ),
    row(
        "unknown-env",
        "name",
        "a name",
        lambda t, a: t.replace("ENV=", "ENV=env"),
        also=("malformed-row", "missing-env"),
    ),
    number(
        "wrong-socket", "swapped", "envs 0 and 1 are swapped", lambda a: {"env": (1, 0, 2)[a.env]}, channel="PER_ENV"
    ),
    number("two-answers", "ids", "all rows say ENV=0", lambda a: {"env": 0}, also=("unasked-env",)),
    row("repeated-field", "done", "DONE", lambda t, a: t.replace(";DONE", f";{field_of(t, 'DONE')};DONE")),
    row("repeated-field", "env", "ENV", lambda t, a: f"{t};ENV={a.env}"),
    row("repeated-field", "obs", "OBS", lambda t, a: f"OBS={numbers_of(t)};{t}"),
    row(
        "bad-flag", "word", "true and false", lambda t, a: t.replace(field_of(t, "DONE"), f"DONE={str(a.done).lower()}")
    ),
    row("bad-flag", "real", "1.0", lambda t, a: t.replace(field_of(t, "DONE"), f"DONE={float(a.done)}")),
    row("bad-flag", "two", "2 at the end", sometimes(lambda t, a: t.replace("DONE=1", "DONE=2"), lambda a: a.done)),
    row("bad-flag", "trunc", "TRUNC=False", lambda t, a: t if a.truncated else f"{t};TRUNC=False"),
    row("bad-flag", "minus", "-1", lambda t, a: t.replace("DONE=0", "DONE=-1")),
    row("unknown-field", "truncated", "TRUNCATED=1", lambda t, a: t.replace("TRUNC=", "TRUNCATED="), certain=False),
    row("unknown-field", "infos", "INFOS=..", lambda t, a: f"{t};INFOS=%7B%7D", certain=False),
    row(
        "trunc-without-done",
        "limit",
        "at the limit",
        sometimes(lambda t, a: t.replace("DONE=1", "DONE=0"), lambda a: a.truncated),
    ),
    row("trunc-without-done", "always", "always", lambda t, a: t if a.done else f"{t};TRUNC=1"),
    row("bad-info", "json", "bare JSON", lambda t, a: re.sub("INFO=.*", 'INFO={"steps":3}', t), parameters=True),
    row("bad-info", "list", "a list", lambda t, a: re.sub("INFO=.*", "INFO=%5B1%5D", t), parameters=True),
    row("bad-info", "nan", "NaN in it", lambda t, a: re.sub("INFO=.*", "INFO=%7B%22a%22%3ANaN%7D", t), parameters=True),
    row(
        "malformed-row",
        "json",
        "as JSON",
        lambda t, a: f'{{"obs": [{numbers_of(t)}], "reward": 0}}',
        also=("missing-field",),
    ),
    row(
        "malformed-row",
        "bare",
        "without keys",
        lambda t, a: f"{numbers_of(t)};{a.reward};0;{a.env}",
        also=("missing-field",),
    ),
    row("bad-mask", "short", "a flag is missing", lambda t, a: t[:-1], choices=True),
    row("bad-mask", "none", "nothing is legal", lambda t, a: re.sub("MASK=.*", "MASK=0000", t), choices=True),
    row(
        "bad-mask",
        "commas",
        "commas between the flags",
        lambda t, a: re.sub("MASK=.*", "MASK=1,1,0,1", t),
        choices=True,
    ),
    row(
        "bad-mask",
        "late",
        "nothing is legal, after 5 steps",
        sometimes(lambda t, a: re.sub("MASK=.*", "MASK=0000", t), lambda a: a.steps > 5 and not a.done),
        choices=True,
    ),
]
