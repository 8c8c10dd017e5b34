"""The verdict on an exported file, by itself: what counts as equal, as rounding, as a tie, and what is refused.

The nets are stand-ins, so that each side of each limit can be tried; test_export_refusals.py has real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray

from ue_rl.errors import ExportError
from ue_rl.inference.export import verify
from ue_rl.inference.export.verify import Verifier

EPS = 2.0**-23
BOX = spaces.Box(np.float32([-1, 0]), np.float32([3, 10]))  # ranges of 4 and 10
WIDE, ENDLESS = (spaces.Box(-np.inf, np.inf, (n,)) for n in (2, 1))


class Judge(Verifier):
    """The verdict, with `exact` as the net's outputs in float64 and `errors` as those that float32 makes."""

    exact: NDArray[Any]
    errors: Sequence[Any] = ()

    def __init__(self, space: Any, size: int = 2, head: Any = None, stochastic: bool = False) -> None:
        plan: Any = SimpleNamespace(
            net=SimpleNamespace(head=head), outputs=[SimpleNamespace(size=size)], stochastic=stochastic
        )
        super().__init__(SimpleNamespace(action_space=space), plan, None, None)  # type: ignore[arg-type]

    def _rounding(self, compute: Any) -> tuple[NDArray[Any], Iterator[NDArray[Any]]]:
        return self.exact, iter([np.broadcast_to(np.float64(error), self.exact.shape) for error in self.errors])

    def judge(self, got: Any, want: Any, tolerance: float = 1e-5) -> None:
        """Of actions alone."""
        self._judge("typical", [np.array(got)], [np.array(want)], (), tolerance)


def test_numbers_are_compared_relative_to_the_range_of_the_action() -> None:
    judge = Judge(BOX)
    judge.judge([[0.5 + 3.9e-5, 5.0], [1.0, 2.0]], [[0.5, 5.0], [1.0, 2.0]])
    assert judge.found.max_abs_difference == pytest.approx(3.9e-5)
    assert judge.found.max_relative_difference == {"typical": pytest.approx(3.9e-5 / 4)}
    judge.judge([[0.5, 5.0]], [[0.5, 5.0]])  # the worst stays
    assert judge.found.max_relative_difference == {"typical": pytest.approx(3.9e-5 / 4)}
    assert judge.found.rounded == 0
    judge.exact, judge.errors = np.zeros((1, 2)), [0.0]
    with pytest.raises(ExportError, match=r"1\.02e-05 of the action range \(tolerance 1e-05\), which is not rounding"):
        judge.judge([[1.0, 2.0], [0.5 + 4.1e-5, 5.0]], [[1.0, 2.0], [0.5, 5.0]])


def test_without_a_range_numbers_are_compared_relative_to_themselves_and_below_1_absolutely() -> None:
    judge = Judge(WIDE)
    judge.judge([[200.001, 0.1 + 9e-6]], [[200.0, 0.1]])
    assert judge.found.max_relative_difference["typical"] == pytest.approx(9e-6, rel=1e-6)
    judge.exact, judge.errors = np.zeros((1, 2)), [0.0]
    for got in ([200.003, 0.1], [200.0, 0.1 + 1.1e-5]):
        with pytest.raises(ExportError, match="not rounding"):
            judge.judge([got], [[200.0, 0.1]])


def test_what_is_as_near_to_exact_as_float32_gets_is_rounding() -> None:
    limit = 4 * 1e-3 + 4 * EPS * 0.5  # ROUNDING_FACTOR and ROUNDING_ULPS of a result of 0.5

    def judged(file: float, predict: float, *errors: float) -> Any:
        judge = Judge(ENDLESS, size=1)
        judge.exact, judge.errors = np.array([[0.5]]), errors
        judge.judge([[7.0], [0.5 + file]], [[7.0], [0.5 + predict]])
        return judge.found

    found = judged(0.99999 * limit, -0.5 * limit, 1e-3)
    assert found.rounded == 1
    assert found.file_error == pytest.approx(0.99999 * limit)
    assert found.predict_error == pytest.approx(0.5 * limit)
    assert judged(0.99999 * limit, 0, 1e-5, 1e-3, 1e-6).rounded == 1  # the largest of what was measured so far
    for file, predict in ((1.00001 * limit, 0), (0, -1.00001 * limit)):
        with pytest.raises(ExportError, match=r"float32 accounts for 0\.004"):
            judged(file, predict, 1e-3, 1e-4)


def test_the_worst_row_is_shown() -> None:
    judge = Judge(ENDLESS, size=1)
    judge.exact, judge.errors = np.array([[1.0], [1.0]]), [1e-3]
    with pytest.raises(ExportError, match=r"on a typical observation: a difference of 0\.5 of.*got array\(\[1\.5"):
        judge.judge([[1.1], [0.0], [1.5]], [[1.0], [0.0], [1.0]])


def test_states_and_scores_are_compared_too() -> None:
    judge = Judge(BOX)
    judge.exact, judge.errors = np.zeros((1, 3)), [0.0]
    same = np.zeros((2, 2))
    judge._judge("typical", [same, np.full((2, 3), 9e-6)], [same, np.zeros((2, 3))], (), 1e-5)
    assert judge.found.max_abs_difference == 0  # of actions alone
    with pytest.raises(ExportError, match="in the net's scores or state"):
        judge._judge("typical", [same, np.array([[0, 0, 0], [0, 1, 0]])], [same, np.zeros((2, 3))], (), 1e-5)


def test_other_shapes_and_numbers_that_are_none_are_refused() -> None:
    judge = Judge(BOX)
    with pytest.raises(ExportError, match="another shape"):
        judge.judge(np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ExportError, match=r"predict\(\) itself gives NaN"):
        judge.judge(np.zeros((2, 2)), [[0, 0], [np.inf, 0]])


def test_choices_are_equal_or_a_tie() -> None:
    def judged(got: Any, want: Any, scores: Any, error: Any, head: Any = None, stochastic: bool = False) -> Any:
        judge = Judge(spaces.Discrete(3), size=len(got[0]), head=head, stochastic=stochastic)
        judge.exact, judge.errors = np.array([scores], float), [error]
        judge.judge(got, want)
        return judge.found

    found = judged([[1], [2]], [[1], [2]], [0, 0, 0], 0)
    assert (found.ties, found.max_relative_difference) == (0, {"typical": 0.0})
    limit = 4 * 0.01 + 4 * EPS * 2.0
    assert judged([[0], [1]], [[0], [2]], [0, 2.0, 2.0 - 0.999999 * limit], 0.01).ties == 1
    for got, want in ((1, 2), (2, 1)):
        with pytest.raises(ExportError, match="any difference of a discrete action"):
            judged([[got]], [[want]], [0, 2.0, 2.0 - 1.000001 * limit], 0.01)
    with pytest.raises(ExportError, match="any difference"):  # both are as good, and the third is the best
        judged([[0]], [[1]], [1.0, 1.0, 2.0], 0.01)
    with pytest.raises(ExportError, match="any difference"):  # where noise decides, equal scores are no tie
        judged([[0]], [[1]], [2.0, 2.0, 0.0], 0.01, stochastic=True)
    # near 0 some units of 1, not of the scores
    assert judged([[0]], [[1]], [0.0, 3.9 * EPS, -1.0], 0.0).ties == 1
    with pytest.raises(ExportError, match="any difference"):
        judged([[0]], [[1]], [0.0, 4.1 * EPS, -1.0], 0.0)
    # what float32 does to a score that is masked does not count, but to one that is not, it does
    masked = np.array([[0.0, 0.0, 9.0]])
    with pytest.raises(ExportError, match="any difference"):
        judged([[0]], [[1]], [2.0, 2.1, -1e8], masked)
    assert judged([[0]], [[1]], [2.0, 2.1, -9e6], masked).ties == 1


def test_several_choices_have_scores_of_their_own() -> None:
    for head in (SimpleNamespace(counts=(2, 3)), None):  # without counts: as many for each
        size = 5 if head else 6
        judge = Judge(spaces.MultiDiscrete([2, 3]), head=head)
        scores = [5.0, 5.0, *([9.0] if size == 6 else []), 1.0, 2.0, 2.0]
        judge.exact, judge.errors = np.array([scores]), [0.1]
        if head is None:  # three choices: 5, 5, 9, of which the third is the best
            with pytest.raises(ExportError, match="any difference"):
                judge.judge([[0, 1]], [[1, 2]])
            judge.judge([[2, 1]], [[2, 2]])
        else:
            judge.judge([[0, 1]], [[1, 2]])
        assert judge.found.ties == 1
        with pytest.raises(ExportError, match="any difference"):
            judge.judge([[0, 0]], [[0, 1]])


class Running(Judge):
    """`compare`, with the file's and predict()'s outputs from lists of chunks."""

    def __init__(self, space: Any, file: Sequence[Any], predict: Sequence[Any]) -> None:
        super().__init__(space, size=1)
        self.file, self.predicted = iter(file), iter(predict)
        self.given: list[Any] = []
        self.model.policy = SimpleNamespace(device="cpu")
        self.plan.net = lambda rows: [rows, th.zeros(len(rows), 1)]  # type: ignore[assignment]
        self.plan.net.head = None  # type: ignore[attr-defined]

    def _arrays(self, rows: Any, starts: Any, state: Any) -> Any:
        self.given.append((len(rows[0]), starts[:, 0].copy(), [array.copy() for array in state]))
        return [rows[0]]

    def _run_file(self, arrays: Any) -> Any:
        return next(self.file)

    def _predict(self, rows: Any, starts: Any, arrays: Any) -> Any:
        return next(self.predicted)


def test_rows_go_in_chunks_with_states_and_new_episodes() -> None:
    chunks = [100, 100, 30]
    outputs = [[np.zeros((n, 1)), np.full((n, 2), 0.5 * k), np.zeros((n, 1))] for k, n in enumerate(chunks)]
    running = Running(ENDLESS, outputs, [out[:-1] for out in outputs])
    running.compare("typical", [np.zeros((230, 3), np.float32)], 1e-5, chunk=100)
    assert [size for size, _, _ in running.given] == chunks
    assert (running.given[0][1] == 1).all()  # all episodes begin
    later = np.concatenate([starts for _, starts, _ in running.given[1:]])
    assert 0.03 < later.mean() < 0.25  # one of ten
    assert running.given[0][2] == []
    assert [array.shape for _, _, state in running.given[1:] for array in state] == [(100, 2), (30, 2)]
    assert running.given[2][2][0].tolist() == [[0.5, 0.5]] * 30  # what came of the chunk before
    assert running.found.observations == 230


@pytest.mark.parametrize(("ties", "accepted"), [(1, True), (2, False)])
def test_more_ties_than_one_in_a_hundred_are_refused(ties: int, accepted: bool) -> None:
    want = np.zeros((100, 1))
    got = np.array([[1.0]] * ties + [[0.0]] * (100 - ties))
    running = Running(spaces.Discrete(2), [[got, want]], [[want]])
    running.exact, running.errors = np.zeros((ties, 2)), [0.1]
    if accepted:
        running.compare("typical", [np.zeros((100, 3), np.float32)], 0.0, chunk=100)
    else:
        with pytest.raises(ExportError, match="too many observations") as caught:
            running.compare("typical", [np.zeros((100, 3), np.float32)], 0.0, chunk=100)
        assert caught.value.got == "2 of 100"
    assert running.found.ties == ties


def test_some_choice_of_each_number_is_allowed_and_some_are_not() -> None:
    judge = Judge(spaces.MultiDiscrete([2, 4]), head=SimpleNamespace(counts=(2, 4)))
    masks = judge._masks((400, 6))
    assert masks[:, :2].any(axis=1).all()
    assert masks[:, 2:].any(axis=1).all()
    assert (masks.mean(axis=0) > 0.5).all()
    assert (masks.mean(axis=0) < 0.85).all()


class Line(th.nn.Module):
    """One weight, as a net of the exporter's kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = th.nn.Parameter(th.tensor([0.1, 0.7, -3.0]))

    def as_reference(self) -> Line:
        return self.double()

    def forward(self) -> Any:
        return (self.weight * (1.1 if self.weight.dtype == th.float32 else th.tensor(1.1, dtype=th.float64))).detach()


def test_the_errors_of_float32_are_measured_with_the_weights_as_they_are_and_moved_a_little() -> None:
    judge = Judge(BOX)
    net = Line()
    judge.plan.net = net  # type: ignore[assignment]
    seen: list[NDArray[Any]] = []

    def compute(one: Any) -> NDArray[Any]:
        out: NDArray[Any] = one().double().numpy()
        seen.append(out)
        return out

    exact, errors = Verifier._rounding(judge, compute)  # type: ignore[arg-type]
    assert exact.tolist() == (np.float32([0.1, 0.7, -3.0]).astype(float) * 1.1).tolist()
    del seen[:]
    measured = list(errors)
    assert len(measured) == verify._SAMPLES == 32
    single, double = seen[0::2], seen[1::2]
    assert all((error == abs(a - b)).all() for error, a, b in zip(measured, single, double, strict=True))
    assert double[0].tolist() == exact.tolist()
    moved = np.array([one / exact - 1 for one in double[1:]])
    assert (abs(moved) <= 2.0**-20 * 1.1).all()
    assert abs(moved).max() > 2.0**-21
    assert (moved.min(axis=0) < 0).all()
    assert (moved.max(axis=0) > 0).all()
    assert net.weight.tolist() == pytest.approx([0.1, 0.7, -3.0])
    assert net.weight.dtype == th.float32


def test_a_net_that_is_no_function_of_its_inputs_is_refused() -> None:
    judge = Judge(BOX)
    judge.plan.net = Line()  # type: ignore[assignment]
    calls: list[int] = []

    def counting(_: Any) -> NDArray[Any]:
        calls.append(0)
        return np.array([float(len(calls))])

    with pytest.raises(ExportError, match="acts differently on the same observation"):
        Verifier._rounding(judge, counting)  # type: ignore[arg-type]

    def broken(_: Any) -> NDArray[Any]:
        raise RuntimeError("expected Float but found Double")

    with pytest.raises(ExportError, match="does not run in float64"):
        Verifier._rounding(judge, broken)  # type: ignore[arg-type]


def test_a_predict_that_fails_is_told() -> None:
    judge = Judge(BOX)
    judge.plan.leaves = [SimpleNamespace(key=None, to_python=lambda array: array)]  # type: ignore[assignment]
    judge.plan.inputs = []  # type: ignore[misc]

    def predict(obs: Any, **_: Any) -> Any:
        raise ValueError(f"no {len(obs)} rows")

    judge.model.predict = predict
    with pytest.raises(ExportError, match=r"predict\(\) itself fails on observations of its own space.*no 2 rows"):
        judge._predict([np.zeros((2, 3), np.float32)], np.zeros((2, 1), np.float32), [])


def test_actions_are_compared_as_an_engine_gets_them() -> None:
    judge = Judge(SimpleNamespace(decode=lambda actions: actions * 2, low=BOX.low, high=BOX.high))
    assert judge._sent(np.ones((1, 2))).tolist() == [[2, 2]]
    judge = Judge(BOX)
    judge.starts = np.array([3.0, 0.0])
    assert judge._sent(np.ones((1, 2))).tolist() == [[4, 1]]
