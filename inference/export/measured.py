"""What is measured while a file is compared with its policy: rows, what was given for them, and how far it was off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import ExportError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = list[Floats]

_SENSITIVE = 16  # rows of a kind that get neighbours
_TINY = float(np.finfo(np.float32).tiny)


@dataclass
class Outputs:
    """What a policy gives for some rows.

    Attributes:
        numbers: the actions without choices, the new states, the scores before the head; each [N, columns].
        chosen: the choices, counted from 0, [N, choices]. scores: between which they are, one [N, count] for each.
    """

    numbers: list[NDArray[Any]]
    chosen: NDArray[Any]
    scores: list[NDArray[Any]]


@dataclass
class ObservationBatch:
    """Some rows: the parts of their observations, and what each input of the graph is given."""

    rows: Rows
    arrays: list[Floats]

    def take(self, at: NDArray[np.intp]) -> ObservationBatch:
        """Some of the rows."""
        return ObservationBatch([part[at] for part in self.rows], [array[at] for array in self.arrays])

    def joined(self, other: ObservationBatch) -> ObservationBatch:
        """Its rows, then the other's."""
        rows = [np.concatenate(pair) for pair in zip(self.rows, other.rows, strict=True)]
        arrays = [np.concatenate(pair) for pair in zip(self.arrays, other.arrays, strict=True)]
        return ObservationBatch(rows, arrays)


@dataclass
class Spread:
    """How far one output of file and predict() was off, at most, on one kind of observation.

    Attributes:
        largest: the greatest number in float64; 1 where the errors are shares already.
    """

    largest: float = _TINY
    of_file: float = 0.0
    of_predict: float = 0.0

    def shares(self) -> tuple[float, float]:
        """Of file and predict(), as a share of the greatest number."""
        return self.of_file / self.largest, self.of_predict / self.largest


@dataclass
class ObservationKind:
    """What was found on one kind of observation."""

    spreads: dict[int, Spread] = field(default_factory=dict)
    largest_score: float = 0.0
    score_error: float = 0.0  # of predict()'s scores
    behind: float = 0.0  # how far the score of a choice was behind the best one
    example: tuple[Any, Any] = (None, None)  # what the file and predict() gave where they were furthest apart
    apart: float = -1.0
    wrong_choice: tuple[Any, Any] = (None, None)  # where the choice was furthest behind
    sensitive: ObservationBatch | None = None
    errors: Doubles = field(default_factory=lambda: np.zeros(0))  # of the sensitive rows

    def keep_sensitive(self, batch: ObservationBatch, errors: Doubles) -> None:
        """Keep the rows on which either was off most, of those that are kept and these; `errors`: [rows]."""
        all_errors = np.concatenate([self.errors, errors])
        if self.sensitive is None:
            joined = batch
        else:
            joined = self.sensitive.joined(batch)
        most = np.argsort(-all_errors, kind="stable")[:_SENSITIVE]
        self.sensitive = joined.take(most)
        self.errors = all_errors[most]


def check_outputs(got: list[NDArray[Any]], want: list[NDArray[Any]], reference: str) -> None:
    """Raises ExportError for other shapes, NaN and infinity in what the file gives, or the `reference`."""
    if [array.shape for array in got] != [array.shape for array in want]:
        raise ExportError(
            f"the exported file gives another shape than {reference}",
            fault="model",
            expected=[array.shape for array in want],
            got=[array.shape for array in got],
        )
    for who, outputs, cure in (
        (f"{reference} itself", want, "the weights may hold NaN: export an earlier checkpoint"),
        ("the exported file", got, "the policy does something that the graph does not hold"),
    ):
        for array in outputs:
            if not np.isfinite(array).all():
                bad = array[~np.isfinite(array.reshape(len(array), -1)).all(axis=1)][:1]
                raise ExportError(f"{who} gives NaN or infinity", fault="policy", got=bad, cure=cure)
