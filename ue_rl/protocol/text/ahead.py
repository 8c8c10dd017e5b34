"""Resets that are asked ahead of the end of an episode, as text (FEATURES=AUTORESET)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from ue_rl.protocol.buffers import ActionBatch, Next
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.codec import Codec
from ue_rl.protocol.text.resets import reset_row
from ue_rl.system.errors import MalformedMessage

AHEAD = re.compile(rb"(\A|\|\|)[ \t]*NEXT[ \t]*=", re.IGNORECASE)  # before a reset that is asked ahead
_AHEAD_OF_ONE = re.compile(rb"NEXT=RESET;ENV=([0-9]{1,9})(?:;SEED=([0-9]{1,18}))?")


def encode_ahead(spec: EnvSpec, following: Mapping[int, Next]) -> bytes:
    """One line that asks ahead (FEATURES=AUTORESET) for these envs' resets, with these seeds and parameters.

    Raises:
        ConfigurationError, UnsupportedByEngine: as Codec.encode_resets.
    """
    rows = [reset_row(spec, env, seed, None, given) for env, (seed, given) in following.items()]
    return b"||".join(rows).replace(b"ACT=RESET", b"NEXT=RESET") + b"\n"


def decode_ahead(codec: Codec, line: bytes, into: dict[int, Next]) -> None:
    """Reads a line for which `AHEAD` matches: env -> seed and parameters of the reset that is asked ahead.

    Raises:
        ProtocolError: the subclass says what is wrong.
    """
    usual = _AHEAD_OF_ONE.fullmatch(line)
    if usual is not None and (env := int(usual[1])) < codec.spec.num_envs:
        into[env] = None if usual[2] is None else int(usual[2]), None
        return
    batch = ActionBatch.of(codec.spec)
    codec.decode_requests(AHEAD.sub(rb"\1ACT=", line), batch)
    envs = np.flatnonzero(batch.command == batch.RESET).tolist()
    if not envs or len(envs) != np.count_nonzero(batch.command):
        raise MalformedMessage(
            "only a reset can be asked ahead", fault="trainer", field="NEXT", expected="RESET", got=line[:80]
        )
    for env in envs:
        seed = int(batch.seeds[env])
        into[env] = None if seed < 0 else seed, batch.parameters.get(env)
