"""A request for several engines: what each of them is asked, and what must be found before the first is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from ue_rl.connections.engines.part import EnginePart
from ue_rl.protocol.buffers import Resets
from ue_rl.protocol.transport import Draw, Options, Params, Seeds
from ue_rl.system.errors import ConfigurationError, ConnectionUnusable, UeRlError

# An engine, its own env ids (None: all), the seeds and options that align with them, and its envs' parameters.
ResetOf: TypeAlias = "tuple[EnginePart, list[int] | None, Seeds, Options, Params]"


class Drawn:
    """Values of parameters that were drawn for resets not answered yet: one that is asked again has the same."""

    def __init__(self) -> None:
        self._values: dict[int, Mapping[str, float] | None] = {}
        self._by: Draw | None = None

    def draw(self, envs: Sequence[int], draw: Draw) -> dict[int, Mapping[str, float] | None]:
        """For each of these envs."""
        if draw is not self._by:
            self._by = draw
            self._values.clear()
        return {env: self._values[env] if env in self._values else draw(int(env)) for env in envs}

    def note(self, envs: Sequence[int], values: Sequence[Mapping[str, float] | None]) -> None:
        """They are asked with these."""
        self._values.update(zip(map(int, envs), values, strict=True))

    def answered(self, envs: Sequence[int]) -> None:
        """Their episodes have begun."""
        if self._values:
            for env in envs:
                self._values.pop(env, None)


def check_owed(owed: AbstractSet[int], begin: Sequence[int], parts: Sequence[EnginePart]) -> None:
    """Raises ConfigurationError where an env is to take a step although the caller knows that its engine was lost.

    Args:
        owed: envs that were lost and have not begun an episode since. begin: envs that are reset with this step.
    """
    missing = set(owed).difference(begin)
    for part in parts:
        if part.news is not None:  # the caller has not been told yet
            missing.difference_update(part.envs)
    if missing:
        raise ConfigurationError(
            "the engine of this env was lost: its episode is over",
            env_id=min(missing),
            cure="reset it: send_actions(actions, resets=[..]) or reset([..]); receive() named it in lost",
        )


def too_late(error: UeRlError) -> ConnectionUnusable:
    """A caller's mistake that one engine's connection found after others had been asked."""
    return ConnectionUnusable(f"{error.message}; other engines had been asked already", **error.facts())


def split_resets(resets: Resets, parts: Sequence[EnginePart]) -> list[ResetOf]:
    """What each engine is asked; those without an env among them are left out."""
    wanted: list[ResetOf] = []
    for part in parts:
        start = part.envs.start
        stop = part.envs.stop
        mine: list[int] | None = None
        places: Sequence[int] = range(start, stop)
        if resets.env_ids is not None:
            chosen = [(place, int(env) - start) for place, env in enumerate(resets.env_ids) if start <= env < stop]
            if not chosen:
                continue
            places = [place for place, _ in chosen]
            mine = [env for _, env in chosen]
        seeds = None
        if resets.seeds is not None:
            seeds = [resets.seeds[place] for place in places]
        options = None
        if resets.options is not None:
            options = [resets.options[place] for place in places]
        parameters = None
        if resets.parameters is not None:
            parameters = dict(zip(mine or range(stop - start), (resets.parameters[at] for at in places), strict=True))
        wanted.append((part, mine, seeds, options, parameters))
    return wanted
