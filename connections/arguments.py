"""What the transports check of their callers' arguments, in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from ue_rl.errors import ConfigurationError, UnsupportedByEngine
from ue_rl.spec import EnvSpec


def check_deadlines(timeout: float, connect_timeout: float | None) -> None:
    """Raises ConfigurationError where one of them, in seconds, is not positive and finite; None is left alone."""
    for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise ConfigurationError("a deadline must be positive and finite", fault="caller", field=name, got=seconds)


def check_offered(spec: EnvSpec, feature: str, values: Sequence[object] | None) -> None:
    """Raises UnsupportedByEngine where `values` of a reset are given and the engine does not offer to take them."""
    if values and feature not in spec.features and any(v is not None for v in values):
        raise UnsupportedByEngine(
            f"the engine does not take {feature} on a reset", fault="caller", field=feature,
            expected=f"FEATURES={feature} in the handshake", got=sorted(spec.features),
            cure="leave it out, or teach the engine to read it",
        )  # fmt: skip
