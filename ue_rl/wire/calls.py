"""Calls: requests beside the steps, as one line each way. Source: docs/protocol.md, section "Calls". No I/O.

GET=gravity,wind;ENV=3     VALUES=gravity:9.8,wind:0        parameters; GET alone: all of them
SET=gravity:3.7            VALUES=gravity:3.7               of all envs where ENV is missing
TIME_SCALE=4, PAUSE=1      OK
RENDER;ENV=0               PICTURE=240,320,3;DATA=<base64>  uint8, rows of pixels
GOALS=1,2/3,4||5,6/7,8     REW=-1,0                         achieved/desired -> rewards, for HER
                           REFUSED=<percent-encoded reason> to any of them
"""

from __future__ import annotations

from urllib.parse import unquote

from ue_rl.errors import CommandFailed, MalformedMessage

CALLS = ("GET", "SET", "TIME_SCALE", "PAUSE", "RENDER", "GOALS")


def understood(line: str, answer: bytes) -> str:
    """The answer to `line` as text.

    Raises:
        CommandFailed: the engine refused. MalformedMessage: not ASCII.
    """
    name = line.partition("=")[0].partition(";")[0]
    try:
        text = answer.decode("ascii").strip()
    except UnicodeDecodeError:
        raise MalformedMessage("an answer that is not ASCII", fault="engine", field=name, got=answer) from None
    if text[:8].upper() == "REFUSED=":
        raise CommandFailed("the engine refused a request", fault="engine", field=name, got=unquote(text[8:]))
    return text
