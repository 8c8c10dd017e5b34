"""How long the lines of a session may be."""

from __future__ import annotations

from ue_rl.errors import HandshakeError
from ue_rl.spec import EnvSpec

MAX_LINE = 2**29  # bytes, whatever a session's sizes are: places in a line are int32


def line_limit(spec: EnvSpec, rows: int | None = None) -> int:
    """The longest line, in bytes, that a reader must take (docs/protocol.md, section 9); `rows`: in it, None: all."""
    rows = spec.num_rows if rows is None else rows
    numbers = rows * max(spec.obs_size + 1, spec.act_size)
    room = 65_536 if spec.features & {"INFO", "OPTIONS"} or spec.parameters else 64
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
