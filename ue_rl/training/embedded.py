"""The command that hosts a Gymnasium env in a process of its own, as an engine like any other."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from ue_rl.errors import ConfigurationError, nearest


def serve_command(env: str, kwargs: dict[str, Any]) -> list[str]:
    """What hosts a Gymnasium env in a process of its own, as LaunchedEngine takes it.

    Raises:
        ConfigurationError: Gymnasium does not know the env.
    """
    import gymnasium

    try:
        gymnasium.spec(env)
    except (gymnasium.error.Error, ImportError) as error:
        name = env.rpartition(":")[2]
        raise ConfigurationError(
            f"Gymnasium cannot make {env!r}", field="env", got=str(error),
            cure=nearest(name, gymnasium.registry) or "MODULE:ID imports the module that registers it",
        ) from error  # fmt: skip
    words = [sys.executable, "-m", "ue_rl", "serve", "--env", _as_text(env), "--num-envs", "{num_envs}"]
    given = ["--kwargs", _as_text(json.dumps(kwargs))] if kwargs else []
    return [*words, "--port", "{port}", "--shm", *given]


def _as_text(word: str) -> str:
    """`word` for a command in which {name} is a placeholder."""
    return re.sub(r"\{([A-Za-z_]\w*)\}", r"{{\1}}", word)
