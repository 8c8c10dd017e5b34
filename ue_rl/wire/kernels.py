"""The parse and format loops behind ue_rl/wire/codec.py: compiled where possible, pure Python otherwise.

Both forms have the same four functions with the same results (docs/protocol.md is the grammar):

    decode_states(data, obs, rewards, dones, truncated, pending, spans, start, end, form, only_env)
        one line of state rows, data[start:end] without its newline, into the arrays of StepBuffers;
        spans int32 [num_envs, 2] receives where INFO stands; only_env is the env of a per-env socket or -1
    decode_requests(data, actions, command, seeds, spans, start, end, form, only_env)
        one line of asks into the arrays of ActionBatch; spans receives where OPTIONS stands
    encode_actions(env_ids, actions, form, separate) -> bytes, or one bytes per env where `separate`
    encode_states(env_ids, obs, rewards, dones, truncated, form) -> bytes

The decoders return the number of rows (negated where a row carries INFO or OPTIONS), or a failure (code, env, field,
position, got) of the first bad row;
rows before it have been written, the bad one and those behind it have not. The encoders return a failure
instead of text where a number is not finite.

`load(compiled=None)` gives the module to use; True insists on the compiled one, False on the pure one. The
environment variable UE_RL_PURE=1 turns the compiled one off.
"""

from __future__ import annotations

import logging
import os
from types import ModuleType

from ue_rl.errors import ConfigurationError
from ue_rl.wire import kernels_pure

_log = logging.getLogger("ue_rl.wire.kernels")

try:
    from ue_rl.wire import _kernels as _compiled_module
except ImportError:
    _compiled: ModuleType | None = None
else:
    _compiled = _compiled_module

_told = False


def load(compiled: bool | None = None) -> ModuleType:
    """The kernels to use.

    Raises:
        ConfigurationError: compiled=True, but this installation has no compiled kernels.
    """
    global _told  # noqa: PLW0603 - one log line per process, not one per connection
    if compiled is False or (compiled is None and os.environ.get("UE_RL_PURE", "0") not in ("", "0")):
        return kernels_pure
    if _compiled is not None:
        return _compiled
    cure = "reinstall ue_rl where a C compiler is present (`pip install --force-reinstall --no-deps .`)"
    if compiled:
        raise ConfigurationError("this installation has no compiled kernels", fault="caller", cure=cure)
    if not _told:
        _told = True
        _log.warning("no compiled kernels in this installation: text is parsed in pure Python, slower; %s", cure)
    return kernels_pure


def name_of(module: ModuleType) -> str:
    """ "compiled" or "pure"."""
    return "pure" if module is kernels_pure else "compiled"
