"""Options of a connection that its carrier has no use for are refused before anything is dialled."""

from __future__ import annotations

from typing import Any

import pytest

import ue_rl
from ue_rl.system.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "given", "words"),
    [
        ("shm://nobody", {"token_file": "secret"}, "the permissions of its file"),
        ("shm://nobody", {"nul_terminated": True}, "carries no text"),
        ("shm://nobody", {"compiled": True}, "carries no text"),
        ("tcp://127.0.0.1:1", {"restarts": "3/60s"}, "how often a lost engine is dialled again"),
        (["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], {"restarts": 0}, "how often a lost engine is dialled again"),
    ],
)
def test_what_would_have_no_effect_is_refused(url: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        ue_rl.connect(url, **given)
    assert caught.value.field == next(iter(given))
