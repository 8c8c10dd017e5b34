"""BatchedStep: what several connections of one kind do in one go, where each of their engines takes a whole step."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class BatchedStep(Protocol):
    """Several engines asked in one go, and their answers taken in one; see Carrier.join.

    It is for the usual step alone. Whatever else happens is left to the connections, one after the other, as if this
    were not there.
    """

    def ask(self, actions: NDArray[np.float32], again: bool) -> list[bytes] | None:
        """Asks every engine for a step with its rows of `actions`.

        Args:
            again: the request before was made here, too, and so was its answer taken.

        Returns:
            None: nobody was asked, one of them may not be, or not with these. Otherwise what is still to be sent to
            each; [] in the usual case: nothing to any.
        """

    def collect(self) -> tuple[float, ...] | None:
        """Waits for a slice, and takes all answers into the arrays of all engines (`join`).

        Returns:
            seconds from `ask` to each answer; None: nothing was taken, and each connection is to go on by itself.
        """
