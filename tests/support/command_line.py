"""`ue-rl` in this process: the first argument is cut at its blanks, as a shell would; the others are words."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from click.testing import CliRunner, Result

from ue_rl.cli import cli
from ue_rl.system.errors import UeRlError

# Modules of the extra `train` that `engine` has not.
NOT_IN_ENGINE = ("PIL", "gymnasium", "onnxruntime", "portalocker", "stable_baselines3", "torch", "yaml")


def run(command: str, *words: object, **how: Any) -> Result:
    """What came of it; `how` as CliRunner.invoke has it."""
    return CliRunner().invoke(cli, [*shlex.split(command), *map(str, words)], **how)


def ok(command: str, *words: object, **how: Any) -> str:
    """What was printed; an AssertionError where the exit code is not 0."""
    result = run(command, *words, **how)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(command: str, *words: object, by: type[UeRlError] = UeRlError) -> UeRlError:
    """The error that it ended with; an AssertionError where that is no `by`."""
    result = run(command, *words)
    assert isinstance(result.exception, by), (result.output, result.exception)
    return result.exception


def without(packages: Sequence[str], words: list[str]) -> subprocess.CompletedProcess[str]:
    """`ue-rl WORDS` as a process in which these are not installed."""
    code = f"import sys; sys.modules.update(dict.fromkeys({packages})); from ue_rl.cli import main; main({words})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
