"""Tokens: both sides of a connection prove that they know the same secret, which itself is never sent. No I/O.

    engine -> trainer   AUTH=NONCE             the first line on each connection
    trainer -> engine   AUTH=NONCE,PROOF       its own nonce
    engine -> trainer   AUTH=PROOF             then everything is as without a token

Nonces and proofs are 64 hexadecimal digits. Source: docs/protocol.md, section 3.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
from os import PathLike
from pathlib import Path

from ue_rl.system.errors import ConfigurationError, words_of
from ue_rl.system.files import require_file

LONGEST = 160  # bytes of any of these lines
# bytes of a token
_SHORTEST = 16
_MOST = 4096
_HEX = "[0-9a-f]{64}"
_ASKED = re.compile(f"AUTH=({_HEX})")
_ANSWERED = re.compile(f"AUTH=({_HEX}),({_HEX})")
_log = logging.getLogger(__name__)


def read_token(path: str | PathLike[str]) -> bytes:
    """The token in a file, without blanks and line ends around it.

    Raises:
        ConfigurationError: it cannot be read, or is too short to be a secret.
    """
    try:
        require_file(path)
        with Path(path).open("rb") as file:
            token = file.read(_MOST + 1).strip()
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        got = words_of(error)
        raise ConfigurationError(f"the token in {path} cannot be read", field="token_file", got=got) from error
    if not _SHORTEST <= len(token) <= _MOST:
        raise ConfigurationError(
            f"the token in {path} is no secret",
            field="token_file",
            expected=f"{_SHORTEST} to {_MOST} bytes",
            got=len(token),
            cure=f"make one: openssl rand -hex 32 > {path}",
        )
    if os.name != "nt" and mode & 0o077:
        _log.warning("others on this machine can read the token in %s: chmod 600 it", path)
    return token


def challenge() -> tuple[bytes, str]:
    """The engine's first line, and its nonce."""
    nonce = secrets.token_hex(32)
    return f"AUTH={nonce}\n".encode(), nonce


def answer(token: bytes, line: str) -> tuple[bytes, str] | None:
    """The trainer's line, and what the engine's next one must be; None: `line` is no challenge."""
    asked = _ASKED.fullmatch(line)
    if asked is None:
        return None
    nonce = secrets.token_hex(32)
    mine, theirs = (_proof(token, who, asked[1], nonce) for who in ("trainer", "engine"))
    return f"AUTH={nonce},{mine}\n".encode(), f"AUTH={theirs}"


def accept(token: bytes, nonce: str, line: str) -> bytes | None:
    """The engine's proof for a trainer that answers its challenge rightly; None: it does not know the token."""
    found = _ANSWERED.fullmatch(line)
    if found is None or not same(_proof(token, "trainer", nonce, found[1]), found[2]):
        return None
    return f"AUTH={_proof(token, 'engine', nonce, found[1])}\n".encode()


def same(expected: str, got: str) -> bool:
    """In a time that says nothing of where they differ."""
    return hmac.compare_digest(expected.encode(), got.encode())


def _proof(token: bytes, who: str, asked: str, answered: str) -> str:
    return hmac.digest(token, f"{who}:{asked}:{answered}".encode(), "sha256").hex()
