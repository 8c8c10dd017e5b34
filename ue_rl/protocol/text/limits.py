"""How long the lines of a session may be, and behind which of them a NUL byte stands."""

from __future__ import annotations

from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.system.errors import HandshakeError

MAX_LINE = 2**29  # bytes, whatever a session's sizes are: places in a line are int32
_PLUGIN_READ = 1024  # bytes that it reads at once


def line_limit(spec: EnvSpec, rows: int | None = None) -> int:
    """The longest line, in bytes, that a reader must take (docs/protocol.md, section 9); `rows`: in it, None: all."""
    if rows is None:
        rows = spec.num_rows
    numbers = rows * max(spec.obs_size + 1, spec.act_size)
    room = 64
    if spec.features & {"INFO", "OPTIONS"} or spec.parameters:
        room = 65_536
    return min(1024 + 48 * numbers + (room + spec.mask_size) * rows, MAX_LINE)


def require_lines(spec: EnvSpec) -> None:
    """Raises HandshakeError where a step of all envs may not fit into a line that a reader takes."""
    numbers = spec.num_rows * max(spec.obs_size + 1, spec.act_size)
    need = 1024 + 48 * numbers + (64 + spec.mask_size) * spec.num_rows
    if need > MAX_LINE:
        raise HandshakeError(
            "a line of this session could be too long for text",
            field="ENV_COUNT",
            expected=f"at most {MAX_LINE} bytes a step, at 48 for each number",
            got=f"{need} bytes",
            cure="use fewer envs an engine, or shared memory",
        )


def needs_nuls(spec: EnvSpec, asked: bool | None) -> bool:
    """Whether requests go out `nul_terminated`.

    Args:
        asked: True: to an engine of version 0 that is SINGLE or RLBASE. None: to such an engine, where it names no
            CHANNEL and so may be the deployed plugin.
    """
    if asked is None:
        wanted = spec.channel is None
    else:
        wanted = asked
    return wanted and spec.version == 0 and spec.env_type is not EnvType.MULTI


def nul_terminated(line: bytes) -> bytes:
    """A line with a NUL byte behind it, and behind each 1023 bytes of it.

    The deployed plugin reads 1024 bytes at most and takes what lies behind them in memory for text too, up to a NUL.
    """
    return b"".join(line[at : at + _PLUGIN_READ - 1] + b"\0" for at in range(0, len(line), _PLUGIN_READ - 1))
