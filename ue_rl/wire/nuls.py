"""The NUL bytes that the deployed Unreal plugin needs behind a line."""

from __future__ import annotations

from ue_rl.spec import EnvSpec, EnvType

_PLUGIN_READ = 1024  # bytes that it reads at once


def needs_nuls(spec: EnvSpec, asked: bool | None) -> bool:
    """Whether requests go out `nul_terminated`.

    Args:
        asked: True: to an engine of version 0 that is SINGLE or RLBASE. None: to such an engine, where it names no
            CHANNEL and so may be the deployed plugin.
    """
    wanted = spec.channel is None if asked is None else asked
    return wanted and spec.version == 0 and spec.env_type is not EnvType.MULTI


def nul_terminated(line: bytes) -> bytes:
    """A line with a NUL byte behind it, and behind each 1023 bytes of it.

    The deployed plugin reads 1024 bytes at most and takes what lies behind them in memory for text too, up to a NUL.
    """
    return b"".join(line[at : at + _PLUGIN_READ - 1] + b"\0" for at in range(0, len(line), _PLUGIN_READ - 1))
