"""What several engines are as one: the sum of their envs, and everything else that all of them have.

Their spaces, agents, images, parameters and protocol versions must agree. How an engine is reached (wirings, shared
memory) is its own business, and of FEATURES only those count that all of them offer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.system.errors import HandshakeError

_log = logging.getLogger("ue_rl.connections.engines")

_KEYS = {
    "version": "VERSION", "obs_size": "OBS", "act_size": "ACT", "obs_space": "OBS_SPACE", "action": "ACT_SPACE",
    "obs_low": "OBS_LOW", "obs_high": "OBS_HIGH", "image": "IMAGE",
}  # fmt: skip


def merged(specs: Sequence[EnvSpec], names: Sequence[str]) -> EnvSpec:
    """The spec of all engines together.

    Args:
        specs: of each engine. names: of each engine, for messages.

    Raises:
        HandshakeError: two of them differ, with the field, both values and both engines' names.
        ConfigurationError: together they have more envs or numbers than a session may have.
    """
    first = specs[0]
    for spec, name in zip(specs[1:], names[1:], strict=True):
        check_alike(first, spec, f"engine 0 ({names[0]})", name)
    features = first.features.intersection(*(spec.features for spec in specs))
    for number, (spec, name) in enumerate(zip(specs, names, strict=True)):
        if spec.features - features:
            more = ", ".join(sorted(spec.features - features))
            _log.info("engine %d (%s) offers %s, which not all engines do: not used", number, name, more)
    if len(specs) == 1:
        return first
    return replace(
        first,
        num_envs=sum(spec.num_envs for spec in specs),
        env_type=EnvType.MULTI,
        channel=None,
        shm=None,
        features=features,
        groups=tuple(replace(group, spec=replace(group.spec, features=features)) for group in first.groups),
        unknown=tuple(dict.fromkeys(word for spec in specs for word in spec.unknown)),
        text="\n".join(dict.fromkeys(spec.text for spec in specs if spec.text)),
    )


def merged_facts(descriptions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What Transport.describe() says of all engines; where they differ, all values in one text."""
    facts: dict[str, dict[str, None]] = {}
    for description in descriptions:
        for key, value in description.items():
            facts.setdefault(key, {})[value] = None
    number = {}
    if len(descriptions) > 1:
        number = {"engines": str(len(descriptions))}
    return {**number, **{key: ", ".join(values) for key, values in facts.items()}}


def check_alike(one: EnvSpec, other: EnvSpec, its_name: str, name: str) -> None:
    """Raises HandshakeError where a policy for the one engine is none for `other`; their numbers of envs may differ."""
    for field, key in _KEYS.items():
        _same(key, getattr(one, field), getattr(other, field), its_name, name)
    _same("AGENTS", _kinds(one), _kinds(other), its_name, name)
    _same("PARAMS", _ranges(one), _ranges(other), its_name, name)


def _same(key: str, value: Any, others: Any, its_name: str, name: str) -> None:
    if value != others:
        if isinstance(value, (tuple, list)) and len(value) == len(others):  # of long ones, the first that differs
            at = next(i for i, (its, another) in enumerate(zip(value, others, strict=True)) if its != another)
            value = f"{value[at]} at {at}"
            others = f"{others[at]} at {at}"
        raise HandshakeError(
            f"{name} is another game than {its_name}",
            field=key,
            expected=_text(value),
            got=_text(others),
            cure="engines that train one policy have the same spaces: start the same build of each",
        )


def _kinds(spec: EnvSpec) -> list[tuple[Any, ...]]:
    keys = ("obs_size", "act_size", "action", "obs_low", "obs_high", "obs_space")
    return [(group.name, group.count, *(getattr(group.spec, key) for key in keys)) for group in spec.groups]


def _ranges(spec: EnvSpec) -> dict[str, tuple[float, float]]:
    return {parameter.name: (parameter.low, parameter.high) for parameter in spec.parameters}


def _text(value: Any) -> str:
    if value is None or value in ((), [], {}):
        return "none"
    return str(value)
