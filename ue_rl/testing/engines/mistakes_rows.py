"""Mistakes in the text: the handshake, the rows of states, and what stands between them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ue_rl.testing.engines.ways import Change, Way, config, line, made, number, row, sometimes

if TYPE_CHECKING:
    import socket

    from ue_rl.testing.engines.mistaken import Answer, MistakenEngine

_REAL = re.compile(r"(?<=[=,])-?\d[\d.e+-]*")


def _commas(text: str) -> str:
    return text.replace(".", ",")


def _numbers(text: str) -> str:
    """The observation's numbers in a row's text."""
    return text[4 : text.index(";REW")]


def _obs(text: str, numbers: str) -> str:
    return f"OBS={numbers}{text[text.index(';REW') :]}"


def _field(text: str, key: str) -> str:
    return next(part for part in text.split(";") if part.startswith(f"{key}="))


def _first(answer: Answer) -> bool:
    return answer.env == 0


def _second(answer: Answer) -> bool:
    return answer.env == 1


def _late(answer: Answer) -> bool:
    return answer.steps >= 15


@made("no-handshake", "never", "nothing comes")
def _no_handshake(engine: MistakenEngine) -> None:
    engine.greet = lambda sock: None


@made("no-handshake", "closes", "the connection is closed at once")
def _closes(engine: MistakenEngine) -> None:
    engine.greet = lambda sock: engine._close_clients()


@made("no-handshake", "state-first", "the first line is a state")
def _state_first(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Ask

    engine.greet = lambda sock: engine.deliver(sock, engine.join([engine.write(engine.observe(Ask(0, None)))]))


@made("late-handshake", "after-request", "it comes after the first request, with its answer")
def _late_handshake(engine: MistakenEngine) -> None:
    greet, cut = engine.greet, engine.cut
    engine.greet = lambda sock: None
    greeted: set[socket.socket] = set()

    def cut_late(sock: socket.socket, data: bytes) -> list[bytes]:
        if sock not in greeted:
            greeted.add(sock)
            greet(sock)
        return cut(sock, data)

    engine.cut = cut_late


@made("unasked", "at-once", "a state comes right behind the handshake")
def _answer_before_asked(engine: MistakenEngine) -> None:
    from ue_rl.testing.engines.mistaken import Ask

    greet = engine.greet

    def and_a_state(sock: socket.socket) -> None:
        greet(sock)
        asks = [Ask(env, None) for env in range(engine.num_envs)]
        engine.deliver(sock, engine.join([engine.write(engine.observe(ask)) for ask in asks]))

    engine.greet = and_a_state


def _only_greeting(edit: bytes) -> Change:
    def change(engine: MistakenEngine) -> None:
        engine.greet = lambda sock: engine.deliver(sock, engine.config.encode() + edit)

    return change


_no_newline_greeting = made("no-newline", "handshake", "the handshake alone")(_only_greeting(b""))
_return_greeting = made("carriage-return-only", "handshake", "the handshake alone")(_only_greeting(b"\r"))
_nul_greeting = made("no-newline", "nul", "a NUL ends each message")(_only_greeting(b"\0"))


@made("handshake-again", "each-reset", "before the answer to each reset")
def _again(engine: MistakenEngine) -> None:
    join = engine.join
    resets: list[bool] = []
    write = engine.write

    def noting(answer: Answer) -> str:
        resets.append(answer.reset)
        return write(answer)

    def joined(rows: list[str]) -> bytes:
        text = join(rows)
        if any(resets):
            text = f"{engine.config}\n".encode() + text
        resets.clear()
        return text

    engine.write, engine.join = noting, joined


WAYS: list[Way] = [
    _no_handshake, _closes, _state_first, _late_handshake, _answer_before_asked, _again,
    config("bad-handshake", "no-obs", "without OBS", lambda c: c.replace("OBS=6;", "")),
    config("bad-handshake", "text", "OBS is a word", lambda c: c.replace("OBS=6;", "OBS=six;")),
    config("bad-handshake", "json", "as JSON", lambda c: '{"obs": 6, "act": 2, "envs": 3}'),
    config("bad-handshake", "no-count", "MULTI without ENV_COUNT", lambda c: c.replace("ENV_COUNT=3;", "")),
    config("bad-handshake", "commas", "commas between the keys", lambda c: c.replace(";", ",")),
    config("bad-handshake", "space", "ACT_SPACE has another size", lambda c: c.replace("(-1:1,-2:2)", "(-1:1,-1:1,-1:1)")),
    config("bad-handshake", "bounds", "a bound as 1..2", lambda c: c.replace("-5:5", "-5..5")),
    config("wrong-version", "2", "VERSION=2", lambda c: c.replace("VERSION=1", "VERSION=2")),
    config("wrong-version", "game", "the game's version", lambda c: c.replace("VERSION=1", "VERSION=5.3.2")),
    config("wrong-version", "1.1", "VERSION=1.1", lambda c: c.replace("VERSION=1", "VERSION=1.1")),
    config("not-version-1", "absent", "no VERSION", lambda c: c.replace("VERSION=1;", ""), certain=False),
    config("not-version-1", "0", "VERSION=0", lambda c: c.replace("VERSION=1;", "VERSION=0;"), certain=False),
    config("unknown-key", "actspace", "ACTSPACE=", lambda c: c.replace("ACT_SPACE=", "ACTSPACE="), certain=False),
    config("unknown-key", "feature", "FEATURES=SEEDS", lambda c: c.replace("SEED", "SEEDS"), certain=False),
    config("unknown-key", "features", "FEATURE=", lambda c: c.replace("FEATURES=", "FEATURE="), certain=False),
    config("channel-not-said", "absent", "no CHANNEL", lambda c: c.replace("CHANNEL=ANY;", ""), certain=False),
    # how messages end
    _no_newline_greeting,
    line("no-newline", "rows", "no row ends", lambda data: data.rstrip(b"\n")),
    line("no-newline", "before", "a line feed before each message", lambda data: b"\n" + data.rstrip(b"\n")),
    line("no-newline", "backslash", "a backslash and an n", lambda data: data.replace(b"\n", b"\\n")),
    _nul_greeting, _return_greeting,
    line("carriage-return-only", "rows", "rows", lambda data: data.replace(b"\n", b"\r")),
    # separators
    row("missing-separator", "rew", "before REW", lambda t, a: t.replace(";REW", "REW")),
    row("missing-separator", "done", "before DONE", lambda t, a: t.replace(";DONE", "DONE")),
    row("missing-separator", "env", "before ENV", lambda t, a: t.replace(";ENV", "ENV")),
    row("missing-separator", "rew-of-env-1", "before REW, in env 1", lambda t, a: t.replace(";REW", "REW" if a.env == 1 else ";REW")),
    row("missing-separator", "blank", "a blank instead of it", lambda t, a: t.replace(";", " ")),
    row("missing-separator", "trunc", "before TRUNC", lambda t, a: t.replace(";TRUNC", "TRUNC")),
    line("wrong-separator", "bar", "one bar", lambda data: data.replace(b"||", b"|")),
    line("wrong-separator", "trailing", "|| at the end", lambda data: data.replace(b"\n", b"||\n")),
    line("wrong-separator", "semicolon", "a semicolon", lambda data: data.replace(b"||", b";"), also=("repeated-field",)),
    line("wrong-separator", "comma", "a comma", lambda data: data.replace(b"||", b","), also=("malformed-row",)),
    # counts
    row("wrong-count", "one-less", "the last number is missing", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0])),
    row("wrong-count", "one-more", "a number too many", lambda t, a: _obs(t, _numbers(t) + ",0.5")),
    row("wrong-count", "env-1", "in env 1 alone", sometimes(lambda t, a: _obs(t, _numbers(t) + ",0.5"), _second)),
    row("wrong-count", "reset", "in answers to resets", sometimes(lambda t, a: _obs(t, "0,0"), lambda a: a.reset)),
    row("wrong-count", "done", "in the last state", sometimes(lambda t, a: _obs(t, "0,0"), lambda a: a.done)),
    row("wrong-count", "late", "after 15 steps", sometimes(lambda t, a: _obs(t, _numbers(t) + ",1"), _late)),
    row("wrong-count", "comma", "a comma behind the last", lambda t, a: _obs(t, _numbers(t) + ","), also=("not-a-number",)),
    row("wrong-count", "doubled", "each observation twice", lambda t, a: _obs(t, f"{_numbers(t)},{_numbers(t)}")),
    config("wrong-count", "announced", "OBS is wrong", lambda c: c.replace("OBS=6", "OBS=5")),
    row("wrong-count", "none", "OBS is empty", lambda t, a: _obs(t, ""), also=("not-a-number",)),
    # numbers
    row("decimal-comma", "all", "all numbers", lambda t, a: _commas(t)),
    row("decimal-comma", "reward", "the reward", lambda t, a: t.replace(_field(t, "REW"), _commas(_field(t, "REW")))),
    row("decimal-comma", "obs", "the observation", lambda t, a: _obs(t, _commas(_numbers(t)))),
    row("decimal-comma", "env-1", "in env 1", sometimes(lambda t, a: _commas(t), _second)),
    row("decimal-comma", "semicolons", "numbers separated by semicolons", lambda t, a: _obs(t, _commas(_numbers(t).replace(",", ";")))),
    row("decimal-comma", "two-decimals", "with two decimals", lambda t, a: _commas(_REAL.sub(lambda n: f"{float(n[0]):.2f}" if "." in n[0] else n[0], t))),
    row("not-a-number", "none", "None", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",None")),
    row("not-a-number", "suffix", "0.5f", lambda t, a: _obs(t, _numbers(t) + "f")),
    row("not-a-number", "brackets", "[1, 2]", lambda t, a: _obs(t, f"[{_numbers(t)}]")),
    row("not-a-number", "vector", "X=1 Y=2", lambda t, a: _obs(t, "X=1 Y=2 Z=3"), also=("malformed-row", "repeated-field")),
    row("not-a-number", "hole", "a hole", lambda t, a: _obs(t, _numbers(t).replace(",", ",,", 1)), also=("wrong-count",)),
    row("not-a-number", "bool", "true", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",true")),
    row("not-a-number", "blanks", "blanks between them", lambda t, a: _obs(t, _numbers(t).replace(",", " "))),
    row("not-a-number", "hex", "0x1p-3", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",0x1p-3")),
    row("reward-not-a-number", "text", "good", lambda t, a: t.replace(_field(t, "REW"), "REW=good")),
    row("reward-not-a-number", "empty", "nothing", lambda t, a: t.replace(_field(t, "REW"), "REW=")),
    row("reward-not-a-number", "none", "None, after a reset", sometimes(lambda t, a: t.replace(_field(t, "REW"), "REW=None"), lambda a: a.reset)),
    row("reward-not-a-number", "suffix", "0.5f", lambda t, a: t.replace(_field(t, "REW"), _field(t, "REW") + "f")),
    row("reward-not-a-number", "done", "win, at the end", sometimes(lambda t, a: t.replace(_field(t, "REW"), "REW=win"), lambda a: a.done)),
    row("reward-not-a-number", "two", "two rewards", lambda t, a: t.replace(";DONE", ",1;DONE"), also=("decimal-comma", "wrong-count")),
    row("nan", "obs", "in the observation", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",nan")),
    row("nan", "late", "after 15 steps", sometimes(lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",nan"), _late)),
    row("nan", "reward", "an infinite reward", lambda t, a: t.replace(_field(t, "REW"), "REW=-inf")),
    row("nan", "done", "in the last state", sometimes(lambda t, a: _obs(t, "nan,nan,nan,nan,nan,nan"), lambda a: a.done)),
    row("nan", "windows", "as Windows writes it", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",-nan(ind)"), also=("not-a-number",)),
    row("nan", "huge", "1e39", lambda t, a: _obs(t, _numbers(t).rpartition(",")[0] + ",1e39")),
    row("nan", "env-1", "in env 1", sometimes(lambda t, a: t.replace(_field(t, "REW"), "REW=NaN"), _second)),
    number("two-decimals", "all", "observation and reward", lambda a: {"obs": [round(x, 2) for x in a.obs], "reward": round(a.reward, 2)}, certain=False),
    # fields
    row("missing-field", "rew", "REW", lambda t, a: t.replace(_field(t, "REW") + ";", "")),
    row("missing-field", "done", "DONE", lambda t, a: t.replace(_field(t, "DONE") + ";", "")),
    row("missing-field", "reset", "REW and DONE, after a reset", sometimes(lambda t, a: t.replace(";REW=0;DONE=0", ""), lambda a: a.reset)),
    row("missing-field", "obs", "OBS", lambda t, a: t[t.index("REW") :], also=("malformed-row",)),
    row("missing-field", "reward", "REWARD for REW", lambda t, a: t.replace("REW", "REWARD")),
    row("missing-env", "all", "in all rows", lambda t, a: t.replace(f";ENV={a.env}", "")),
    row("missing-env", "reset", "after a reset", sometimes(lambda t, a: t.replace(f";ENV={a.env}", ""), lambda a: a.reset)),
    row("missing-env", "last", "in the last env", sometimes(lambda t, a: t.replace(f";ENV={a.env}", ""), lambda a: a.env == 2)),
    row("missing-env", "id", "ID for ENV", lambda t, a: t.replace("ENV", "ID"), also=("unknown-field",)),
    number("env-off-by-one", "all", "in all rows", lambda a: {"env": a.env + 1}),
    number("env-off-by-one", "steps", "in steps alone", lambda a: {"env": a.env + (not a.reset)}),
    number("unknown-env", "99", "a far one", lambda a: {"env": 99 if a.env == 1 else a.env}),
    row("unknown-env", "negative", "-1", lambda t, a: t.replace(f"ENV={a.env}", "ENV=-1"), also=("malformed-row", "missing-env")),
    row("unknown-env", "name", "a name", lambda t, a: t.replace("ENV=", "ENV=env"), also=("malformed-row", "missing-env")),
    number("wrong-socket", "swapped", "envs 0 and 1 are swapped", lambda a: {"env": (1, 0, 2)[a.env]}, channel="PER_ENV"),
    number("two-answers", "ids", "all rows say ENV=0", lambda a: {"env": 0}, also=("unasked-env",)),
    row("repeated-field", "done", "DONE", lambda t, a: t.replace(";DONE", f";{_field(t, 'DONE')};DONE")),
    row("repeated-field", "env", "ENV", lambda t, a: f"{t};ENV={a.env}"),
    row("repeated-field", "obs", "OBS", lambda t, a: f"OBS={_numbers(t)};{t}"),
    row("bad-flag", "word", "true and false", lambda t, a: t.replace(_field(t, "DONE"), f"DONE={str(a.done).lower()}")),
    row("bad-flag", "real", "1.0", lambda t, a: t.replace(_field(t, "DONE"), f"DONE={float(a.done)}")),
    row("bad-flag", "two", "2 at the end", sometimes(lambda t, a: t.replace("DONE=1", "DONE=2"), lambda a: a.done)),
    row("bad-flag", "trunc", "TRUNC=False", lambda t, a: t if a.truncated else f"{t};TRUNC=False"),
    row("bad-flag", "minus", "-1", lambda t, a: t.replace("DONE=0", "DONE=-1")),
    row("unknown-field", "truncated", "TRUNCATED=1", lambda t, a: t.replace("TRUNC=", "TRUNCATED="), certain=False),
    row("unknown-field", "infos", "INFOS=..", lambda t, a: f"{t};INFOS=%7B%7D", certain=False),
    row("trunc-without-done", "limit", "at the limit", sometimes(lambda t, a: t.replace("DONE=1", "DONE=0"), lambda a: a.truncated)),
    row("trunc-without-done", "always", "always", lambda t, a: t if a.done else f"{t};TRUNC=1"),
    row("bad-info", "json", "bare JSON", lambda t, a: re.sub("INFO=.*", 'INFO={"steps":3}', t), parameters=True),
    row("bad-info", "list", "a list", lambda t, a: re.sub("INFO=.*", "INFO=%5B1%5D", t), parameters=True),
    row("bad-info", "nan", "NaN in it", lambda t, a: re.sub("INFO=.*", "INFO=%7B%22a%22%3ANaN%7D", t), parameters=True),
    row("malformed-row", "json", "as JSON", lambda t, a: f'{{"obs": [{_numbers(t)}], "reward": 0}}', also=("missing-field",)),
    row("malformed-row", "bare", "without keys", lambda t, a: f"{_numbers(t)};{a.reward};0;{a.env}", also=("missing-field",)),
    row("bad-mask", "short", "a flag is missing", lambda t, a: t[:-1], choices=True),
    row("bad-mask", "none", "nothing is legal", lambda t, a: re.sub("MASK=.*", "MASK=0000", t), choices=True),
    row("bad-mask", "commas", "commas between the flags", lambda t, a: re.sub("MASK=.*", "MASK=1,1,0,1", t), choices=True),
    row("bad-mask", "late", "nothing is legal, after 5 steps", sometimes(lambda t, a: re.sub("MASK=.*", "MASK=0000", t), lambda a: a.steps > 5 and not a.done), choices=True),
]  # fmt: skip
