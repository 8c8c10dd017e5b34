"""Programs of the tests, compiled once for each version of what they are made of, whichever worker needs them first."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import portalocker

ROOT = Path(__file__).resolve().parents[2]


def compiled(command: Sequence[str | Path]) -> None:
    """Runs a compiler, which must be content."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def sanitizes(compiler: str) -> bool:
    """Can it link AddressSanitizer? For Clang the libraries are a package of their own, such as libclang-rt-14-dev."""
    if shutil.which(compiler) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        (source := Path(folder, "empty.cpp")).write_text("int main() {}\n")
        command = [compiler, "-fsanitize=address,undefined", "-o", source.with_suffix(""), source]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def kept(reads: Iterable[Path], make: Callable[[Path], object], *words: object) -> Path:
    """A folder with what `make(folder)` writes; it stays, beside the temporary files, until any of `reads` is another.

    Args:
        reads: files. words: what else the contents depend on.
    """
    key = hashlib.sha256(repr(words).encode())
    for file in sorted(reads):
        key.update(file.name.encode() + file.read_bytes())
    root = Path(tempfile.gettempdir()) / f"ue_rl-built-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    assert root.stat().st_uid == os.getuid()
    folder = root / key.hexdigest()[:20]
    with open(f"{folder}.lock", "a") as lock:
        portalocker.lock(lock, portalocker.LockFlags.EXCLUSIVE)
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            (folder / "whole").touch()
    return folder


def built(name: str, command: Sequence[str | Path], reads: Iterable[Path]) -> Path:
    """The program of that name.

    Args:
        command: the compiler and its words; at the end of one of them, OUT stands for the program's path.
        reads: all files that are compiled or included. The compiler and the command count, too.
    """
    compiler = Path(shutil.which(str(command[0])) or command[0]).stat()

    def make(folder: Path) -> None:
        target = str(folder / name)
        compiled([word[:-3] + target if word.endswith("OUT") else word for word in map(str, command)])

    # Without its place: another checkout of the same sources has the same program.
    words = [word.replace(str(ROOT), "") for word in map(str, command)]
    return kept(reads, make, *words, compiler.st_size, compiler.st_mtime_ns) / name
