"""The trainer's side of the upgrade from text (docs/shared-memory.md, section 3): may the offer be taken, and is it?"""

from __future__ import annotations

import ipaddress
from dataclasses import fields
from typing import Any

from ue_rl.connections.shm.attach import spec_of
from ue_rl.connections.tcp.link import Link
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.memory.offer import accept_line, refusal
from ue_rl.protocol.memory.segment import is_path
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.protocol.text.notices import ended_by
from ue_rl.system.errors import SegmentInvalid, UeRlError, UnsupportedByEngine
from ue_rl.system.processes import in_wsl

# Where a key of the handshake has another name than the field.
_KEYS = {
    "obs_size": "OBS", "act_size": "ACT", "num_envs": "ENV_COUNT", "action": "ACT_SPACE", "obs_low": "OBS_SPACE",
    "obs_high": "OBS_SPACE", "parameters": "PARAMS", "groups": "AGENTS",
}  # fmt: skip


class UpgradeRefused(Exception):
    """Why a session cannot move to shared memory; it goes on in text.

    Args:
        why: the reason, as text or as the error that it is.
    """

    def __init__(self, why: str | UeRlError) -> None:
        text = str(why)
        if in_wsl():
            text += ". This is WSL: shared memory does not cross from a game on Windows; over text it plays"
        super().__init__(text)
        self._why = why

    def as_error(self) -> UnsupportedByEngine:
        """For a caller who wanted shared memory and nothing else."""
        facts: dict[str, Any] = {"message": str(self), "field": "transport", "fault": "caller"}
        if isinstance(self._why, UeRlError):
            facts = {name: getattr(self._why, name) for name in ("message", "field", "fault", "expected", "got")}
        return UnsupportedByEngine(
            f"no shared memory with this engine: {facts.pop('message')}",
            **facts,
            cure="start the engine on this machine with shared memory on offer (`ue-rl serve --shm`, ShmUpgrader), or "
            "connect with transport='auto'",
        )


def check_name(name: str, host: str) -> None:
    """Raises SegmentInvalid where an engine on another machine (`host`: its address) names a file by its path.

    A path may be that of any file of this user, and opening it read-write is not harmless for every file. Names are
    harmless: they are of shared memory, and nothing is written before the token has been found there.
    """
    if not is_path(name):
        return
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = None
    mapped = getattr(address, "ipv4_mapped", None)
    if address is None or not (address.is_loopback or (mapped is not None and mapped.is_loopback)):
        raise SegmentInvalid(
            "an engine on another machine names a file of this one",
            field="SHM",
            expected="a name of shared memory, or the path of a file from an engine at 127.0.0.1 or ::1",
            got=name,
            cure="connect to the engine by a loopback address, or let it offer a segment with a name",
        )


def check_offered(memory: StepMemory, token: bytes, spec: EnvSpec) -> None:
    """Raises SegmentInvalid where this is not the segment that was offered, or its CONFIG line not the handshake's."""
    if not (memory.header.extended and memory.header.token == token):
        raise SegmentInvalid(
            "another segment has the offered name",
            field="token",
            cure="is the engine on another machine, or in another container?",
        )
    different = difference(spec, spec_of(memory))
    if different is not None:
        key, offered, written = different
        raise SegmentInvalid(
            "the segment's CONFIG line differs from the handshake",
            field=key,
            expected=offered,
            got=written,
            cure="write the same line into both, without SHM=",
        )


def difference(one: EnvSpec, other: EnvSpec) -> tuple[str, str, str] | None:
    """(key of the handshake, what it is in `one`, what it is in `other`) of the first that differs; None: none does.

    The offer itself, and keys that this version does not know, are not compared.
    """
    for field in fields(EnvSpec):
        if field.name == "shm" or not field.compare:
            continue
        first = getattr(one, field.name)
        second = getattr(other, field.name)
        if first == second:
            continue
        key = _KEYS.get(field.name, field.name.upper())
        if field.name == "features":
            return key, ",".join(sorted(first)) or "none", ",".join(sorted(second)) or "none"
        if isinstance(first, tuple) and len(first) == len(second):
            at = next(i for i, (mine, its) in enumerate(zip(first, second, strict=True)) if mine != its)
            first = first[at]
            second = second[at]
            if isinstance(first, AgentGroup) and (first.name, first.count) == (second.name, second.count):
                inner, *values = difference(first.spec, second.spec) or (key, repr(first), repr(second))
                return f"{inner}.{first.name}", values[0], values[1]
            return key, f"{first!r} at {at}", f"{second!r} at {at}"
        return key, repr(first), repr(second)
    return None


def propose(link: Link, memory: StepMemory, seconds: float) -> None:
    """Tells the engine that its segment was mapped, and reads its answer.

    Raises:
        UpgradeRefused: it refuses. EngineDisconnected, EngineTimeout, HandshakeError.
    """
    deadline = link.timing.now() + seconds
    link.send(accept_line(memory.header.proof), deadline)
    start, end = link.next_span(deadline)
    line = bytes(link.lines.data[start:end])
    instead = ended_by(line)
    if instead is not None:
        raise instead
    why = refusal(line)
    if why is not None:
        raise UpgradeRefused(why)
