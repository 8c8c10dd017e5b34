"""What a run tells its caller: a Report while it goes on, an Outcome at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ue_rl.training.directory import RunDirectory


class Report:
    """Called by `train`, in its thread. Does nothing: a subclass overrides what it wants to show."""

    def started(self, run: RunDirectory) -> None:
        """The directory exists; nothing is connected yet."""

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
        """The engine answers; `facts` are those of Transport.describe()."""

    def said(self, text: str) -> None:
        """A sentence worth showing: a lesson of the curriculum begins, or the engine cannot do what was asked for."""

    def warned(self, text: str) -> None:
        """A sentence about something that learning suffers from, see ue_rl.training.watching; it is in the log too."""

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        """At the first step, about five times a second, and once more at the end of learning.

        Args:
            env_steps: done so far, those of a resumed run included.
            total: at which learning ends.
            mean_return: of the last 100 episodes, None without any.
        """

    def ended(self) -> None:
        """Learning is over, whatever ended it; saving and evaluation follow."""


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        run: its directory.
        env_steps: of the whole run. before: those that a resumed run had already.
        seconds: of learning, without what was before.
        mean_return: of the last 100 training episodes, None without any.
        evaluation: (mean, standard deviation) of the returns without exploration, None where it was not evaluated.
        exported: the ONNX file and its difference from predict(), or why there is none; None where none was wanted.
        stopped_by: None when it ran to its end; KeyboardInterrupt or what broke it otherwise.
    """

    run: RunDirectory
    env_steps: int
    episodes: int
    seconds: float
    mean_return: float | None
    evaluation: tuple[float, float] | None = None
    exported: str | None = None
    stopped_by: BaseException | None = None
    before: int = 0
