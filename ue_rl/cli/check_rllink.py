"""`ue-rl check --rllink`: does a client of RLlink follow its protocol?"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ue_rl.cli.common import WrongCommandLine, command_line
from ue_rl.errors import UeRlError

if TYPE_CHECKING:
    from ue_rl.compliance.report import Report
    from ue_rl.compliance.rllink import RLlinkOptions

Progress = Callable[[Any], None]


def rllink_check(
    port: int, client: str | None, obs_size: int, act_space: str, dialect: str, wait: float, timeout: float
) -> tuple[str, Callable[[Progress], Report]]:
    """(what is checked, the check).

    Args:
        client: a command that starts the client for each session, with {port}; None: it runs already.

    Raises:
        WrongCommandLine: a space that cannot be read, a port that cannot be listened on.
    """
    with command_line():
        options = _options(port, obs_size, act_space, dialect, wait, timeout)
        start: Callable[[int], AbstractContextManager[object]] = lambda port: nullcontext()  # noqa: E731
        if client is not None:
            from ue_rl.launching.template import Template

            start = _starter(Template(client))

    def run(progress: Progress) -> Report:
        from ue_rl.compliance.rllink import check_rllink

        try:
            return check_rllink(options, progress=progress, client=start)
        except OSError as error:
            raise WrongCommandLine(
                "nobody can listen on this port", field="rllink", expected="a free port", got=f"{port}: {error}"
            ) from error

    where = f"127.0.0.1:{port}" if port else "a free port of 127.0.0.1"
    return f"clients of {where}", run


def _options(port: int, obs_size: int, act_space: str, dialect: str, wait: float, timeout: float) -> RLlinkOptions:
    from ue_rl.action_spec import ActionSpec
    from ue_rl.compliance.rllink import RLlinkOptions
    from ue_rl.wire.space_text import read_space

    try:
        action = ActionSpec.of(read_space(act_space))
    except UeRlError as error:
        raise WrongCommandLine(
            "this is no space of actions", field="act_space", expected="DISCRETE(2), MULTI_DISCRETE(2,3) or BOX(-1:1)",
            got=act_space,
        ) from error  # fmt: skip
    return RLlinkOptions(obs_size, action, port, dialect, wait=wait, timeout=timeout)


def _starter(template: Any) -> Callable[[int], AbstractContextManager[object]]:
    @contextmanager
    def start(port: int) -> Iterator[None]:
        from ue_rl.launching import ports
        from ue_rl.launching.output import Output
        from ue_rl.launching.process import EngineProcess

        lock, output = ports.find(), Output(None)  # a keeper holds some port's lock
        words = template.fill(port=port)
        try:
            output.begin(shlex.join(words))
            process = EngineProcess(words, output.file, lock)
            try:
                yield
            finally:
                process.end(1.0)
        finally:
            lock.release()
            output.close()

    return start
