"""Which files were made by this user on this machine: their manifest is signed with a key that only this user reads.

The key is 32 random bytes in the user's configuration folder ($XDG_CONFIG_HOME/ue_rl/origin.key, ~/.config where that
is not set, %APPDATA% on Windows), made when something is signed for the first time. Where it cannot be kept, nothing is
signed, and nothing of one's own is known again. Beside it, in the file `trusted`, are the signatures of what the user
has trusted by word.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ue_rl.system.files import require_file, sha256

MANIFEST = "manifest.json"
MOST_BYTES = 16 << 20  # of a manifest
SIGNATURE = "origin"  # its key there
_SIZE = 32
_log = logging.getLogger(__name__)


def key_file() -> Path:
    """Where this user's key is, or will be."""
    variable = "XDG_CONFIG_HOME"
    if os.name == "nt":
        variable = "APPDATA"
    told = os.environ.get(variable)
    if told:
        settings = Path(told)
    else:
        settings = Path.home() / ".config"
    return settings / "ue_rl" / "origin.key"


def sign(said: bytes) -> str:
    """The signature of these bytes; "" where no key can be kept."""
    try:
        key = _key(key_file(), make=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        _log.info("nothing is signed as made here: %s", error)
        return ""
    if key is None:
        return ""
    return hmac.digest(key, said, "sha256").hex()


def is_signed(said: bytes, signature: object) -> bool:
    """Did this user sign these bytes on this machine?"""
    with suppress(OSError, RuntimeError):
        key = _key(key_file(), make=False)
        if key is not None and isinstance(signature, str):
            return hmac.compare_digest(hmac.digest(key, said, "sha256").hex().encode(), signature.encode())
    return False


def remember(said: bytes) -> None:
    """The user trusts these bytes; without effect where no key can be kept."""
    signature = sign(said)
    if signature and not is_remembered(said):
        with suppress(OSError), _trusted().open("a", encoding="ascii") as file:
            file.write(f"\n{signature}\n")  # a line of its own, whatever the one before was cut to


def is_remembered(said: bytes) -> bool:
    """Were these bytes given to `remember`?"""
    with suppress(OSError, RuntimeError):
        remembered = _trusted().read_text("ascii", errors="replace").split()
        return sign(said) in remembered
    return False


def _trusted() -> Path:
    return key_file().with_name("trusted")


def signed(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest with its signature."""
    signature = sign(_said(manifest))
    if signature:
        return {**manifest, SIGNATURE: signature}
    return dict(manifest)


def is_ours(manifest: Mapping[str, Any]) -> bool:
    """Was this manifest written here? That its files are what it says is checked by who reads them."""
    return is_signed(_said(manifest), manifest.get(SIGNATURE))


def made_here(path: Path, content: bytes | None = None) -> bool:
    """Is it a file or a folder of a checkpoint that was written here, and has nothing of it changed since?

    Args:
        content: what the file at `path` held when it was read; None: what is there now is read for it.
    """
    manifest = path.parent / MANIFEST
    try:
        require_file(manifest)
        if manifest.stat().st_size > MOST_BYTES:
            return False
        said = json.loads(manifest.read_text("utf-8"))
        if not is_ours(said):
            return False
        if content is not None:
            told: object = said["files"][path.name]["sha256"]
            return not path.is_symlink() and told == hashlib.sha256(content).hexdigest()
        inside = path.rglob("*")
        if path.is_file():
            found = [path]
        else:
            found = [each for each in inside if not each.is_dir() or each.is_symlink()]
        names = {each: each.relative_to(path.parent).as_posix() for each in found}
        return all(not each.is_symlink() and said["files"][names[each]]["sha256"] == sha256(each) for each in found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _said(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps({key: manifest[key] for key in manifest if key != SIGNATURE}, sort_keys=True).encode()


def _key(path: Path, make: bool) -> bytes | None:
    if make and not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_SIZE))
        try:
            os.link(fresh, path)  # of several processes one makes it, whole
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    elif not path.exists():
        return None
    require_file(path)
    about = path.stat()
    if sys.platform != "win32" and (about.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or about.st_uid != os.getuid()):
        _log.warning("%s can be used by others, so it is not: delete it, and a new one is made", path)
        return None
    key = path.read_bytes()
    if len(key) == _SIZE:
        return key
    return None
