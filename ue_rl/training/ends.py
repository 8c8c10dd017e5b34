"""A warning while SB3 learns: episodes that a limit of time seems to end are sent as ended by the game itself."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

_ENOUGH = 20  # episodes one after the other; chance does not make them equally long
_SHORTEST = 10  # steps; shorter episodes of one length are the game's own: a hand of cards, one throw

_log = logging.getLogger(__name__)


class EpisodeEnds(BaseCallback):
    """One line of the log and one call of `tell`, once: the last episodes all ended with DONE at one same length.

    A limit that is sent as DONE teaches that nothing comes after it. Early in a run episodes end sooner; what stays is
    looked at as long as the run learns.

    Args:
        tell: shows a sentence.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__()
        self._tell = tell
        self._lengths: deque[int] = deque(maxlen=_ENOUGH)
        self._is_said = False

    def _on_step(self) -> bool:
        if not self._is_said:
            for info in self.locals["infos"]:
                if "episode" in info:
                    self._look_at(info)
        return True

    def _look_at(self, info: dict[str, Any]) -> None:
        if info.get("TimeLimit.truncated"):
            self._lengths.clear()  # the game knows TRUNC
            return
        self._lengths.append(int(info["episode"]["l"]))
        length = self._lengths[-1]
        if len(self._lengths) < _ENOUGH or length < _SHORTEST or set(self._lengths) != {length}:
            return
        self._is_said = True
        text = (
            f"the last {_ENOUGH} episodes ended with DONE after exactly {length} steps each. If that is a limit of "
            "time, send TRUNC=1 instead of DONE=1, so that the last state keeps its value; if the game is over then, "
            "all is well"
        )
        _log.warning("%s", text)
        self._tell(text)
