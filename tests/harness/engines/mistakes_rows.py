"""Mistakes in the rows of states: separators and fields."""

from __future__ import annotations

import re

from tests.harness.engines.right import Answer
from tests.harness.engines.ways import field_of, line, number, numbers_of, row, sometimes


def _without(place: str) -> None:
    """No semicolon before a field."""
    row("missing-separator", place.lower(), f"before {place}", lambda t, a: t.replace(f";{place}", place))


def _as_json(text: str, answer: Answer) -> str:
    return f'{{"obs": [{numbers_of(text)}], "reward": 0}}'


# separators
_without("REW")
_without("DONE")
_without("ENV")
_OF_ENV_1 = sometimes(lambda t, a: t.replace(";REW", "REW"), lambda a: a.env == 1)
row("missing-separator", "rew-of-env-1", "before REW, in env 1", _OF_ENV_1)
row("missing-separator", "blank", "a blank instead of it", lambda t, a: t.replace(";", " "))
_without("TRUNC")
row("missing-separator", "comma", "commas between the fields", lambda t, a: t.replace(";", ","))
line("wrong-separator", "bar", "one bar", lambda data: data.replace(b"||", b"|"))
# fields
row("missing-field", "rew", "REW", lambda t, a: t.replace(field_of(t, "REW") + ";", ""))
row("missing-env", "all", "in all rows", lambda t, a: t.replace(f";ENV={a.env}", ""))
number("env-off-by-one", "all", "in all rows", lambda a: {"env": a.env + 1})
number("unknown-env", "99", "a far one", lambda a: {"env": 99 if a.env == 1 else a.env})
number("wrong-socket", "swapped", "envs 0 and 1 are swapped", lambda a: {"env": (1, 0, 2)[a.env]}, channel="PER_ENV")
number("two-answers", "ids", "all rows say ENV=0", lambda a: {"env": 0}, also=("unasked-env",))
row("repeated-field", "done", "DONE", lambda t, a: t.replace(";DONE", f";{field_of(t, 'DONE')};DONE"))
row("bad-flag", "word", "true and false", lambda t, a: t.replace(field_of(t, "DONE"), f"DONE={str(a.done).lower()}"))
row("unknown-field", "truncated", "TRUNCATED=1", lambda t, a: t.replace("TRUNC=", "TRUNCATED="), certain=False)
_NOT_DONE = sometimes(lambda t, a: t.replace("DONE=1", "DONE=0"), lambda a: a.truncated)
row("trunc-without-done", "limit", "at the limit", _NOT_DONE)
row("bad-info", "json", "bare JSON", lambda t, a: re.sub("INFO=.*", 'INFO={"steps":3}', t), parameters=True)
row("malformed-row", "json", "as JSON", _as_json, also=("missing-field",))
row("bad-mask", "short", "a flag is missing", lambda t, a: t[:-1], choices=True)
