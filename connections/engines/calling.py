"""Requests beside the steps (ue_rl/protocol/text/calls.py) for several engines: who is asked, and what is the answer
of all.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ue_rl.connections.engines.part import SURVIVABLE, EnginePart
from ue_rl.system.errors import CommandFailed, ConfigurationError, UeRlError, UnsupportedByEngine

_log = logging.getLogger("ue_rl.connections.engines")

REFUSALS = (CommandFailed, ConfigurationError, UnsupportedByEngine)
_SETTINGS = ("SET", "TIME_SCALE", "PAUSE")  # calls whose effect is to outlive an engine
_ENV = re.compile(r"(;\s*ENV\s*=\s*)(\d+)", re.IGNORECASE)
_NAMES = re.compile(r"[=,]([^:,;]+):")  # of SET=name:value,name:value


@dataclass(frozen=True)
class Asked:
    """A call: its line, its first word, and the env that it names, among those of all engines."""

    line: str
    name: str
    env: int | None

    @classmethod
    def of(cls, line: str, num_envs: int) -> Asked:
        """Reads a line.

        Raises:
            ConfigurationError: there is no such env.
        """
        name = line.partition("=")[0].partition(";")[0].strip().upper()
        found = None
        if name in ("GET", "SET", "RENDER"):
            found = _ENV.search(line)
        env = None
        if found is not None:
            env = int(found[2])
        if env is not None and env >= num_envs:
            raise ConfigurationError("no such env", field="ENV", expected=f"0 to {num_envs - 1}", got=env)
        return cls(line, name, env)


def answer_of(asked: Asked, parts: Sequence[EnginePart], lose: Callable[[EnginePart, UeRlError], None]) -> str:
    """Asks whom it concerns: the engine of the env, every engine for a setting, else the first that can know.

    A setting is remembered for an engine that is started again, also where that engine is away now. One that an engine
    refuses is taken back in those that were asked before it.

    Args:
        lose: told of an engine that is lost meanwhile; what it raises goes out.

    Raises:
        CommandFailed: an engine refused, or none of those that are asked is there.
    """
    line = asked.line
    setting = asked.name in _SETTINGS
    if asked.env is not None:
        chosen = [part for part in parts if asked.env in part.envs]
        line = _ENV.sub(rf"\g<1>{asked.env - chosen[0].envs.start}", line)
    elif setting:
        chosen = list(parts)
    elif asked.name == "GOALS":  # any engine knows
        chosen = [part for part in parts if part.transport is not None][:1]
        if not chosen:
            chosen = [parts[0]]
    else:  # of env 0
        chosen = [parts[0]]
    answers: list[str] = []
    away: CommandFailed | None = None
    back = []
    if setting:
        back = [(part, _present(part, asked, lose)) for part in chosen[:-1]]
    for at, part in enumerate(chosen):
        try:
            answers.append(_ask(part, line, lose))
        except REFUSALS as error:
            if not isinstance(error, CommandFailed) or part.transport is not None:  # it refused
                _take_back(back[:at], lose)
                raise
            away = error
    if setting:
        for part in chosen:
            part.remember((asked.name, asked.env, *sorted(_NAMES.findall(line))), line)
    if not answers:
        assert away is not None
        raise away
    if len(set(answers)) > 1:
        _log.warning("the engines answered %s differently: %s", asked.name, " and ".join(dict.fromkeys(answers)))
    return answers[0]


def _present(part: EnginePart, asked: Asked, lose: Callable[[EnginePart, UeRlError], None]) -> list[str]:
    """Calls that make the setting again which the engine has now; none where it is away.

    Raises:
        CommandFailed: it refuses to say.
    """
    if part.transport is None:
        return []
    if asked.name != "SET":  # nobody can ask for these: as they were set here, or as engines begin
        return [part.remembered((asked.name, None)) or ("PAUSE=0" if asked.name == "PAUSE" else "TIME_SCALE=1")]
    names = ",".join(name.strip() for name in _NAMES.findall(asked.line))
    lines = []
    for env in range(len(part.envs)):
        try:
            answer = _ask(part, f"GET={names};ENV={env}", lose)
        except CommandFailed:
            if part.transport is None:
                return []
            raise
        lines.append(f"SET={answer.partition('=')[2].partition(';')[0]};ENV={env}")
    return lines


def _take_back(back: Sequence[tuple[EnginePart, list[str]]], lose: Callable[[EnginePart, UeRlError], None]) -> None:
    for part, lines in back:
        for line in lines:
            with contextlib.suppress(CommandFailed):  # it was lost
                _ask(part, line, lose)


def _ask(part: EnginePart, line: str, lose: Callable[[EnginePart, UeRlError], None]) -> str:
    if part.transport is None:
        raise _away(f"{part.name} was lost and has not come back yet")
    try:
        return part.transport.call(line)
    except SURVIVABLE as error:
        lose(part, error)
        raise _away(f"{part.name} was lost", part.news) from error


def _away(message: str, got: str | None = None) -> CommandFailed:
    return CommandFailed(
        message, got=got, cure="it is started again when its envs are reset: step or reset, then ask again"
    )
