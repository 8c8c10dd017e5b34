"""Zip archives of unknown origin: bombs, links and paths that lead out of them are refused by name."""

from __future__ import annotations

import stat
import zipfile
from pathlib import PurePosixPath
from typing import IO

from ue_rl.system.durable import amount
from ue_rl.system.errors import UntrustedFile, shorten

MOST_TIMES = 100  # as large as what is stored; Stable-Baselines3 and torch do not compress at all
SMALL = 64 << 20  # bytes that are no bomb, however little was stored
MOST_ENTRIES = 10_000


def check_zip(file: IO[bytes], name: str) -> None:
    """Looks at all that a zip archive says of itself, and at the archives of torch in it.

    Raises:
        UntrustedFile: says what of it is wrong. zipfile.BadZipFile: it is none.
    """
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if len(entries) > MOST_ENTRIES or len({entry.filename for entry in entries}) != len(entries):
            raise _wrong(name, "too many files in it, or one twice", f"{len(entries)} files")
        for entry in entries:
            path = PurePosixPath(entry.filename.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or ":" in entry.filename:
                raise _wrong(name, "a name in it leads out of it", entry.filename)
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise _wrong(name, "a link in it", entry.filename)
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > max(MOST_TIMES * size, SMALL):
            raise _wrong(name, "it would unpack into far more than it is", f"{amount(unpacked)} from {amount(size)}")
        for entry in entries:
            if entry.filename.endswith(".pth"):
                with archive.open(entry) as inner:
                    if inner.read(2) == b"PK":
                        inner.seek(0)
                        check_zip(inner, f"{entry.filename} in {name}")
    file.seek(0)


def _wrong(name: str, what: str, got: str) -> UntrustedFile:
    cure = "neither ue_rl nor Stable-Baselines3 writes this: take it for an attack"
    return UntrustedFile(f"{name} is refused: {what}", got=shorten(got), cure=cure)
