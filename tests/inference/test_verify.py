"""The verdict on an exported file, by itself: what counts as equal, as rounding, as a tie, and what is refused.

The nets are stand-ins, so that each side of each limit can be tried; test_export_comparison.py has real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

from ue_rl.errors import ExportError
from ue_rl.inference.export import sb3
from ue_rl.inference.export.bounds import Unbounded
from ue_rl.inference.export.verify import Verifier

UNIT = 2.0**-24
BOX = spaces.Box(np.float32([-1, 0]), np.float32([3, 10]))  # ranges of 4 and 10
WIDE, ENDLESS = (spaces.Box(-np.inf, np.inf, (n,)) for n in (2, 1))


class Judge(Verifier):
    """The verdict, with `exact` and `bound` as what the net gives exactly and how far off float32 may be."""

    exact: Any = None
    bound: Any = 0.0
    of_head = 0.0  # share of it

    def __init__(self, space: Any, size: int = 2, head: Any = None) -> None:
        plan: Any = SimpleNamespace(
            net=SimpleNamespace(head=head), outputs=[SimpleNamespace(size=size)], stochastic=False
        )
        super().__init__(SimpleNamespace(action_space=space), plan, None, None)  # type: ignore[arg-type]

    def _exactly(self, *_: Any) -> Any:
        """The same for each output, and for the scores of choices; what the head alone rounds is `of_head`."""
        if self.exact is None:
            raise Unbounded("aten.topk.default")
        exact = np.asarray(self.exact, np.float64)
        pair = (exact, np.broadcast_to(np.float64(self.bound), exact.shape))
        nothing = np.zeros((len(exact), 0))
        if not self.discrete:
            return [pair] * 3
        return [(nothing, nothing)] * 2 + [pair, (exact, pair[1] * self.of_head if self.of_head else 0.0 * exact)]

    def judge(self, got: Any, want: Any, tolerance: float = 1e-5, kind: str = "typical") -> None:
        """Of actions, or of lists of outputs."""
        got, want = (
            [np.array(x) for x in given] if isinstance(given, tuple) else [np.array(given)] for given in (got, want)
        )
        self._judge(kind, got, want, self._exactly, tolerance)


def test_numbers_are_compared_relative_to_the_range_of_the_action() -> None:
    judge = Judge(BOX)
    judge.judge([[0.5 + 3.9e-5, 5.0], [1.0, 2.0]], [[0.5, 5.0], [1.0, 2.0]])
    assert judge.found.max_abs_difference == pytest.approx(3.9e-5)
    assert judge.found.max_relative_difference == {"typical": pytest.approx(3.9e-5 / 4)}
    judge.judge([[0.5, 5.0]], [[0.5, 5.0]])  # the worst stays
    assert judge.found.max_relative_difference == {"typical": pytest.approx(3.9e-5 / 4)}
    assert judge.found.rounded == 0
    judge.exact = np.zeros((2, 2))
    with pytest.raises(ExportError, match=r"1\.02e-05 of the action range \(tolerance 1e-05\), which is not rounding"):
        judge.judge([[1.0, 2.0], [0.5 + 4.1e-5, 5.0]], [[1.0, 2.0], [0.5, 5.0]])


def test_without_a_range_numbers_are_compared_relative_to_themselves_and_below_1_absolutely() -> None:
    judge = Judge(WIDE)
    judge.judge([[200.001, 0.1 + 9e-6]], [[200.0, 0.1]])
    assert judge.found.max_relative_difference["typical"] == pytest.approx(9e-6, rel=1e-6)
    judge.exact = np.zeros((1, 2))
    for got in ([200.003, 0.1], [200.0, 0.1 + 1.1e-5]):
        with pytest.raises(ExportError, match="not rounding"):
            judge.judge([got], [[200.0, 0.1]])


def test_what_is_within_the_bound_of_float32_is_rounding() -> None:
    def judged(file: float, predict: float, bound: float) -> Any:
        judge = Judge(spaces.Box(-2, 2, (1,)), size=1)
        judge.exact, judge.bound = [[7.0], [0.5]], [[0.0], [bound]]
        judge.judge([[7.0], [0.5 + file]], [[7.0], [0.5 + predict]])
        return judge

    judge = judged(0.99999e-3, -0.5e-3, 1e-3)
    assert judge.found.rounded == 1
    assert judge.found.file_error == pytest.approx(0.99999e-3 / 4)
    assert judge.found.predict_error == pytest.approx(0.5e-3 / 4)
    assert (judge.tried, judge.needed) == ({"typical": 2}, {"typical": 1})
    for file, predict in ((1.00001e-3, 0), (0, -1.00001e-3)):  # each by itself
        with pytest.raises(ExportError, match=r"float32 accounts for 0\.00025"):
            judged(file, predict, 1e-3)
    with pytest.raises(ExportError, match=r"float32 accounts for 0;"):  # a bound of anything is none
        judged(1e-3, 0, np.inf)


def test_a_difference_beyond_a_hundredth_of_the_range_is_refused_whatever_the_bound() -> None:
    judge = Judge(spaces.Box(-2, 2, (1,)), size=1)
    judge.exact, judge.bound = [[0.5]], 1.0
    judge.judge([[0.5 + 0.0399]], [[0.5]])
    with pytest.raises(ExportError, match=r"too coarse.*differ by 0\.01.*Normalise your observations \(VecNormalize\)"):
        judge.judge([[0.5 + 0.0401]], [[0.5]])
    judge.judge([[0.5 + 0.0401]], [[0.5]], 0.05)  # but for one who asks for a tolerance of more


def test_the_worst_row_is_shown() -> None:
    judge = Judge(ENDLESS, size=1)
    judge.exact, judge.bound = [[1.0], [0.0], [1.0]], 1e-3
    with pytest.raises(ExportError, match=r"on a typical observation: a difference of 0\.5 of.*got array\(\[1\.5"):
        judge.judge([[1.1], [0.0], [1.5]], [[1.0], [0.0], [1.0]])


def test_what_cannot_be_bounded_is_held_to_the_tolerance() -> None:
    judge = Judge(ENDLESS, size=1)
    judge.judge([[1.0 + 9e-6]], [[1.0]])
    with pytest.raises(ExportError, match=r"whether it is rounding cannot be told.*aten\.topk.*a larger tolerance"):
        judge.judge([[1.0 + 2e-5]], [[1.0]])


def test_states_and_scores_are_compared_relative_to_the_greatest_of_their_kind() -> None:
    judge = Judge(BOX)
    judge.exact = np.zeros((2, 3))
    same, zeros = np.zeros((2, 2)), np.zeros((2, 3))
    judge.judge((same, np.full((2, 3), 9e-6)), (same, zeros))
    assert judge.found.max_abs_difference == 0  # of actions alone
    with pytest.raises(ExportError, match="in the net's scores or state"):
        judge.judge((same, [[0, 0, 0], [0, 1, 0]]), (same, zeros))
    with pytest.raises(ExportError, match="in the net's scores or state"):
        judge.judge((same, [[0, 0, 0], [0, 9e-4, 0]]), (same, zeros))
    judge.judge((same, [[0, 100, 0], [0, 9e-4, 0]]), (same, [[0, 100, 0], [0, 0, 0]]))
    judge.judge((same, [[0, 0, 0], [0, 9e-4, 0]]), (same, zeros))  # seen before
    for kind, wrong in (("typical", [0, 0, 9e-4]), ("extreme", [0, 9e-4, 0])):  # another number, another kind
        with pytest.raises(ExportError, match="in the net's scores or state"):
            judge.judge((same, [[0, 0, 0], wrong]), (same, zeros), kind=kind)


def test_other_shapes_and_numbers_that_are_none_are_refused() -> None:
    judge = Judge(BOX)
    with pytest.raises(ExportError, match="another shape"):
        judge.judge(np.zeros((2, 2)), np.zeros((2, 3)))
    good = (np.zeros((2, 2)), np.zeros((2, 1, 3)), np.zeros((2, 3)))
    for index in range(3):
        for value in (np.nan, np.inf):
            bad = tuple(array.copy() for array in good)
            bad[index][1] = value
            with pytest.raises(ExportError, match=r"^predict\(\) itself gives NaN or infinity"):
                judge.judge(good, bad)
            with pytest.raises(ExportError, match=r"^the exported file gives NaN or infinity"):
                judge.judge(bad, good)


def test_choices_are_equal_or_a_tie() -> None:
    def judged(got: Any, want: Any, scores: Any, bound: Any, head: Any = None) -> Any:
        judge = Judge(spaces.Discrete(3), size=len(got[0]), head=head)
        judge.exact, judge.bound = [scores] * len(got), bound
        judge.judge(got, want)
        return judge.found

    found = judged([[1], [2]], [[1], [2]], [0, 0, 0], 0)
    assert (found.ties, found.max_relative_difference) == (0, {"typical": 0.0})
    limit = 0.02 + 16 * UNIT * 2.0  # both may be off by the bound
    assert judged([[0], [1]], [[0], [2]], [0, 2.0, 2.0 - 0.999999 * limit], 0.01).ties == 1
    for got, want in ((1, 2), (2, 1)):
        with pytest.raises(ExportError, match="any difference of a discrete action"):
            judged([[got]], [[want]], [0, 2.0, 2.0 - 1.000001 * limit], 0.01)
    with pytest.raises(ExportError, match="any difference"):  # both are as good, and the third is the best
        judged([[0]], [[1]], [1.0, 1.0, 2.0], 0.01)
    # near 0 some units of 1, not of the scores
    assert judged([[0]], [[1]], [0.0, 15.9 * UNIT, -1.0], 0.0).ties == 1
    with pytest.raises(ExportError, match="any difference"):
        judged([[0]], [[1]], [0.0, 16.1 * UNIT, -1.0], 0.0)
    # the bound of a choice counts for that choice alone: a masked one has a large one
    bounds = np.array([[0.0, 0.0, 9.0]])
    with pytest.raises(ExportError, match="any difference"):
        judged([[0]], [[1]], [2.0, 2.1, -1e8], bounds)
    assert judged([[2]], [[1]], [2.0, 2.1, -6.0], bounds).ties == 1
    with pytest.raises(ExportError, match="any difference"):  # a bound of anything is none
        judged([[2]], [[1]], [2.0, 2.1, -6.0], np.array([[0.0, 0.0, np.inf]]))


def test_several_choices_have_scores_of_their_own() -> None:
    for head in (SimpleNamespace(counts=(2, 3)), None):  # without counts: as many for each
        size = 5 if head else 6
        judge = Judge(spaces.MultiDiscrete([2, 3]), head=head)
        scores = [5.0, 5.0, *([9.0] if size == 6 else []), 1.0, 2.0, 2.0]
        judge.exact, judge.bound = [scores], 0.1
        if head is None:  # three choices: 5, 5, 9, of which the third is the best
            with pytest.raises(ExportError, match="any difference"):
                judge.judge([[0, 1]], [[1, 2]])
            judge.judge([[2, 1]], [[2, 2]])
        else:
            judge.judge([[0, 1]], [[1, 2]])
        assert judge.found.ties == 1
        assert judge.needed == {"typical": 0}  # the numbers themselves are equal
        with pytest.raises(ExportError, match="any difference"):
            judge.judge([[0, 0]], [[0, 1]])


class Running(Judge):
    """`compare`, with the file's and predict()'s outputs from lists of chunks."""

    def __init__(self, space: Any, file: Sequence[Any], predict: Sequence[Any]) -> None:
        super().__init__(space, size=1)
        self.file, self.predicted = iter(file), iter(predict)
        self.given: list[Any] = []
        self.model.policy = SimpleNamespace(device="cpu")
        columns = 0 if self.discrete else 1
        self.plan.net = lambda rows: [rows, th.zeros(len(rows), columns)]  # type: ignore[assignment]
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
    running.exact = np.zeros((100, 1))
    running.compare("typical", [np.zeros((230, 3), np.float32)], 1e-5, chunk=100)
    assert [size for size, _, _ in running.given] == chunks
    assert (running.given[0][1] == 1).all()  # all episodes begin
    later = np.concatenate([starts for _, starts, _ in running.given[1:]])
    assert 0.03 < later.mean() < 0.25  # one of ten
    assert running.given[0][2] == []
    assert [array.shape for _, _, state in running.given[1:] for array in state] == [(100, 2), (30, 2)]
    assert running.given[2][2][0].tolist() == [[0.5, 0.5]] * 30  # what came of the chunk before
    assert running.found.observations == 230


def running(wrong: int, space: Any, rows: int = 100) -> Running:
    """`wrong` of the rows differ, as a tie or by a thousandth."""
    by = 1.0 if isinstance(space, spaces.Discrete) else 1e-3
    want = np.zeros((rows, 1))
    got = np.array([[by]] * wrong + [[0.0]] * (rows - wrong))
    scores = want[:, :0] if by == 1.0 else want
    made = Running(space, [[got, scores]] * 3, [[want]] * 3)
    made.exact, made.bound = np.array([[0.0, 0.1] if by == 1.0 else [0.0]] * rows), 0.1
    return made


@pytest.mark.parametrize("space", [spaces.Discrete(2), ENDLESS], ids=str)
@pytest.mark.parametrize(("wrong", "accepted"), [(1, True), (2, False)])
def test_more_rows_than_one_in_a_hundred_that_only_rounding_explains_are_refused(
    wrong: int, accepted: bool, space: Any
) -> None:
    judge = running(wrong, space)
    if accepted:
        judge.compare("typical", [np.zeros((100, 3), np.float32)], 0.0, chunk=100)
        judge.compare("extreme", [np.zeros((100, 3), np.float32)], 0.0, chunk=100)  # counted by kind
        judge.compare("typical", [np.zeros((100, 3), np.float32)], 0.0, chunk=100)  # 2 of 200
        assert judge.needed == {"typical": 2, "extreme": 1}
        return
    with pytest.raises(ExportError, match=r"too coarse.*too many typical observations") as caught:
        judge.compare("typical", [np.zeros((100, 3), np.float32)], 0.0, chunk=100)
    assert caught.value.got == "2 of 100"
    assert "VecNormalize" in str(caught.value)
    assert (judge.found.ties, judge.found.rounded) == ((2, 0) if space != ENDLESS else (0, 2))


def test_choices_that_the_head_alone_makes_equal_need_no_allowance() -> None:
    """What goes into the head is compared by itself, so that no wrong file hides behind its rounding."""
    for share, needed in ((0.49, 50), (0.51, 0)):  # of a bound of 0.1, for scores that are 0.1 apart
        judge = running(50, spaces.Discrete(2))
        judge.of_head = share
        judge.judge([[1.0]] * 50, [[0.0]] * 50)
        assert (judge.found.ties, judge.needed["typical"]) == (50, needed)


def test_what_is_equal_by_the_ordinary_tolerance_needs_no_allowance() -> None:
    """Also where a smaller one was asked for: then it is only reported."""
    judge = running(50, ENDLESS)
    judge.file = iter([[np.full((100, 1), 9e-6), np.zeros((100, 1))]])
    judge.compare("typical", [np.zeros((100, 3), np.float32)], 1e-7, chunk=100)
    assert (judge.found.rounded, judge.needed["typical"]) == (100, 0)
    judge = running(50, ENDLESS)
    judge.file = iter([[np.full((100, 1), 1.1e-5), np.zeros((100, 1))]])
    with pytest.raises(ExportError, match="could hide in that"):
        judge.compare("typical", [np.zeros((100, 3), np.float32)], 1e-7, chunk=100)
    assert judge.needed["typical"] == 100


def test_a_policy_that_float32_cannot_compute_is_refused_though_both_agree() -> None:
    for off, refused in ((1e-2, False), (1.01e-2, True)):
        judge = running(0, ENDLESS)
        judge.exact = np.array([[0.0]] * 98 + [[off]] * 2)
        if not refused:
            judge.compare("typical", [np.zeros((100, 3), np.float32)], 1e-5, chunk=100)
            continue
        with pytest.raises(ExportError, match=r"too coarse.*predict\(\) is further than 0\.01.*exact result"):
            judge.compare("typical", [np.zeros((100, 3), np.float32)], 1e-5, chunk=100)
    judge = running(0, ENDLESS)
    judge.exact = np.full((100, 1), 0.04)
    judge.compare("typical", [np.zeros((100, 3), np.float32)], 0.05, chunk=100)  # asked for
    judge = running(0, ENDLESS)
    judge.exact = None  # nothing is known of it
    judge.compare("typical", [np.zeros((100, 3), np.float32)], 1e-5, chunk=100)


def test_some_choice_of_each_number_is_allowed_and_some_are_not() -> None:
    judge = Judge(spaces.MultiDiscrete([2, 4]), head=SimpleNamespace(counts=(2, 4)))
    masks = judge._masks((400, 6))
    assert masks[:, :2].any(axis=1).all()
    assert masks[:, 2:].any(axis=1).all()
    assert (masks.mean(axis=0) > 0.5).all()
    assert (masks.mean(axis=0) < 0.85).all()


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
    def sent(space: Any) -> Any:
        model = SimpleNamespace(action_space=space, predict=lambda *_, **__: (np.ones((1, 2)), None))
        return sb3.predict(model, None, np.zeros((1, 3)), [], np.ones(1))[0].tolist()

    assert sent(SimpleNamespace(decode=lambda actions: actions * 2)) == [[2, 2]]
    assert sent(spaces.MultiDiscrete([2, 2], start=[3, 0])) == [[4, 1]]
