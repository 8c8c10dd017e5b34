"""require_known: names that people write, each of which must be one of those that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ue_rl.system.errors import ConfigurationError, nearest


def require_known(
    given: Iterable[object], known: Collection[str], what: str, under: str = "", cures: Mapping[str, str] | None = None
) -> None:
    """Raises ConfigurationError with the message `what` for the first of `given` that is not in `known`.

    Args:
        under: where they stand, for the field. cures: of names that people write; of others the nearest known one.
    """
    for name in given:
        if name not in known:
            if under:
                field = f"{under}.{name}"
            else:
                field = str(name)
            cure = nearest(str(name), known)
            if cures is not None:
                cure = cures.get(str(name), cure)
            raise ConfigurationError(what, field=field, expected=", ".join(known), cure=cure)
