"""Opens what a stranger has made, under an audit hook."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ue_rl.system.trust.files import trusting

_FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "socket.connect",
              "os.remove", "os.rename", "os.symlink", "shutil.rmtree", "ctypes.dlopen")  # fmt: skip


class Calls:
    """Pickled, it calls a function."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.made = call, args

    def __reduce__(self) -> Any:
        return self.made


class _Watch:
    """An audit hook: what was tried while it looks. It stays in this process to its end."""

    def __init__(self, folder: Path) -> None:
        self.tried: list[str] = []
        self.looks = False
        self._folder = folder
        # What Python itself writes beside a module that is imported for the first time is no fault of a file.
        sys.dont_write_bytecode = True
        sys.addaudithook(self._see)

    def _see(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.looks:
            return
        writes = event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        theirs = event == "compile" and "pwned" in str(given[0])
        named = event == "import" and "stranger" in str(given[0])
        outside = writes and not str(given[0]).startswith((str(self._folder), os.devnull))
        if event in _FORBIDDEN or theirs or named or outside:
            self.tried.append(f"{event} {given[0]!r}"[:200])


def tried_with(kinds: Mapping[str, Callable[[], Any]], folder: Path, trust: bool) -> dict[str, Any]:
    """Opens each of these in a folder that they may write into, where a file "pwned" says that one has run something.

    Returns:
        for each kind what it gave ("opened" or the error), what it tried, and whether there is such a file.
    """
    pwned = folder / "pwned"
    watch = _Watch(folder)
    report = {}
    for kind, opens in kinds.items():
        watch.tried.clear()
        gave = "opened"
        watch.looks = True
        try:
            with trusting(trust):
                opens()
        except Exception as error:  # noqa: BLE001 - whatever a file brings about is told
            gave = f"{type(error).__name__}: {error}"
        watch.looks = False
        report[kind] = {"gave": gave, "tried": [*watch.tried], "pwned": pwned.exists()}
        pwned.unlink(missing_ok=True)
    return report
