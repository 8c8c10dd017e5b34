"""The verdict on an exported file, by itself: what counts as equal, as rounding, as a tie, and what is refused.

The nets are stand-ins, so that each side of each limit can be tried; test_export_comparison.py has real ones.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces

from ue_rl.inference.export import sb3, tries
from ue_rl.inference.export.float64 import in_float64
from ue_rl.inference.export.measured import ObservationBatch, ObservationKind, Outputs, check_outputs
from ue_rl.inference.export.observations import ObservationLeaf
from ue_rl.inference.export.verify import Verifier
from ue_rl.system.errors import ExportError

BOX = spaces.Box(np.float32([-1, 0]), np.float32([3, 10]))  # ranges of 4 and 10
WIDE, ENDLESS = (spaces.Box(-np.inf, np.inf, (n,)) for n in (2, 1))


class Judge(Verifier):
    """The verdict on numbers that are given."""

    def __init__(self, space: Any, head: Any = None) -> None:
        plan: Any = SimpleNamespace(net=SimpleNamespace(head=head), outputs=[], stochastic=False)
        super().__init__(SimpleNamespace(action_space=space), plan, None, None)  # type: ignore[arg-type]

    def judge(
        self, got: Outputs, want: Outputs, exact: Outputs, tolerance: float = 1e-5, kind: str = "typical"
    ) -> None:
        here = ObservationKind()
        rows = np.zeros((len(got.chosen), 3), np.float32)
        self._note(kind, here, ObservationBatch([rows], [rows]), got, want, exact, tolerance)
        self._judge(kind, here, tolerance)


def acting(actions: Any, scores: Any = ((0.0,),)) -> Outputs:
    """Of a policy with continuous actions."""
    numbers = [np.array(actions, np.float64), np.array(scores, np.float64)]
    return Outputs(numbers, np.zeros((len(numbers[0]), 0)), [])


def choosing(choice: Any, scores: Any) -> Outputs:
    """Of a policy with one choice."""
    chosen = np.array(choice, np.float64).reshape(-1, 1)
    raw = np.array(scores, np.float64)
    return Outputs([np.zeros((len(chosen), 0)), raw], chosen, [raw])


def test_numbers_are_compared_relative_to_the_range_of_the_action() -> None:
    judge = Judge(BOX)
    exact = acting([[0.5, 5.0]])
    judge.judge(acting([[0.5 + 3.9e-5, 5.0]]), exact, exact)
    assert judge.found.max_abs_difference == pytest.approx(3.9e-5)
    assert judge.found.max_relative_difference == {"typical": pytest.approx(3.9e-5 / 4)}
    judge.judge(exact, exact, exact)  # the worst stays
    assert judge.found.max_relative_difference == {"typical": pytest.approx(3.9e-5 / 4)}
    judge.judge(acting([[0.5, 5.0 + 9e-5]]), exact, exact)
    for column, span in ((0, 4.0), (1, 10.0)):
        wrong = acting([[0.5, 5.0]])
        wrong.numbers[0][0, column] += 1.1e-5 * span
        with pytest.raises(ExportError, match=r"1\.1e-05 of the action range, which is not rounding"):
            judge.judge(wrong, exact, exact)


def test_numbers_without_a_range_are_compared_relative_to_their_size_and_small_ones_to_1() -> None:
    judge = Judge(WIDE)
    exact = acting([[0.01, 5000.0]])
    judge.judge(acting([[0.01 + 9e-6, 5000.0 + 0.04]]), exact, exact)
    for off in ([1.1e-5, 0.0], [0.0, 0.06]):
        with pytest.raises(ExportError, match="of the action range"):
            judge.judge(acting([[0.01 + off[0], 5000.0 + off[1]]]), exact, exact)


def test_scores_are_compared_relative_to_the_greatest_of_their_kind() -> None:
    """Also where all are small, as those of a policy that has just begun to learn."""
    for size in (1e-3, 1.0, 1e6):
        exact = acting([[0.0, 1.0]] * 2, [[size, 0.0], [0.01 * size, 0.0]])
        right = acting([[0.0, 1.0]] * 2, [[size, 0.0], [0.01 * size, 0.9e-5 * size]])
        wrong = acting([[0.0, 1.0]] * 2, [[size, 0.0], [0.01 * size, 1.1e-5 * size]])
        Judge(BOX).judge(right, exact, exact)
        with pytest.raises(ExportError, match="in the net's scores or state"):
            Judge(BOX).judge(wrong, exact, exact)


@pytest.mark.parametrize("of_scores", [False, True])
@pytest.mark.parametrize(("file", "predict", "tolerance", "refused"), [
    (3.9e-3, 1e-3, 1e-5, False), (4.1e-3, 1e-3, 1e-5, True), (-3.9e-3, 1e-3, 1e-5, False), (4.1e-3, 1e-3, 5e-3, False),
    (0.9e-5, 0.0, 1e-5, False), (1.1e-5, 0.0, 1e-5, True),
])  # fmt: skip
def test_the_rule(file: float, predict: float, tolerance: float, refused: bool, of_scores: bool) -> None:
    """4 times the most that predict() is off by, or the tolerance: of actions and of scores, in whichever row."""
    exact = acting([[0.0, 5.0]] * 2, [[1.0]] * 2)
    if of_scores:
        got = acting([[0.0, 5.0]] * 2, [[1.0 + file], [1.0]])
        want = acting([[0.0, 5.0]] * 2, [[1.0], [1.0 + predict]])
    else:  # the range of the first action is 4
        got = acting([[4.0 * file, 5.0], [0.0, 5.0]], [[1.0]] * 2)
        want = acting([[0.0, 5.0], [4.0 * predict, 5.0]], [[1.0]] * 2)
    judge = Judge(BOX)
    if refused:
        with pytest.raises(ExportError, match=r"which is not rounding.*allowed: 4 times that"):
            judge.judge(got, want, exact, tolerance)
        return
    judge.judge(got, want, exact, tolerance)
    if not of_scores:
        assert judge.found.file_error == pytest.approx(abs(file))
        assert judge.found.predict_error == pytest.approx(predict)
        assert judge.found.rounded == (abs(file) > tolerance) + (predict > tolerance)


def test_choices_may_differ_where_both_could_be_the_best() -> None:
    """predict()'s scores are off by 0.01: each of two by 4 times that, so that their gap is up to 0.08 of rounding."""
    space = spaces.Discrete(3)
    for gap, refused in ((0.079, False), (0.081, True)):
        exact = choosing([0], [[1.0, 1.0 - gap, -5.0]])
        want = choosing([0], [[1.01, 1.0 - gap, -5.0]])
        got = choosing([1], [[1.0 - 0.03, 1.0 - gap + 0.03, -5.0]])
        judge = Judge(space)
        if refused:
            with pytest.raises(ExportError, match="any difference of a discrete action") as caught:
                judge.judge(got, want, exact)
            assert caught.value.got.tolist() == [1.0]
            continue
        judge.judge(got, want, exact)
        assert judge.found.ties == 1
        assert judge.found.max_relative_difference == {"typical": 0.0}
        assert judge.found.max_abs_difference == 0.0


def test_a_choice_of_predict_that_is_not_the_best_is_refused_too() -> None:
    """Then what was computed in float64 is not what predict() does."""
    scores = [[1.0, 0.5, -5.0]]
    with pytest.raises(ExportError, match=r"the score of a choice is 0\.5 below"):
        Judge(spaces.Discrete(3)).judge(choosing([0], scores), choosing([1], scores), choosing([0], scores))


def test_what_is_masked_says_nothing_of_how_exact_the_others_are() -> None:
    exact = choosing([0], [[1.0, 0.9, -1e8]])
    want = choosing([0], [[1.0, 0.9, -1e8 + 8.0]])
    got = choosing([1], [[1.0, 0.9, -1e8]])
    with pytest.raises(ExportError, match="any difference of a discrete action"):
        Judge(spaces.Discrete(3)).judge(got, want, exact)
    with pytest.raises(ExportError, match=r"the score of a choice is 1e\+08 below"):
        Judge(spaces.Discrete(3)).judge(choosing([2], exact.scores[0]), exact, exact)


def test_choices_that_a_saturated_function_has_made_equal_are_ties() -> None:
    exact = choosing([0], [[1.0 - 1e-9, 1.0 - 2e-8, -1.0]])
    got = choosing([1], [[1.0, 1.0, -1.0]])
    judge = Judge(spaces.Discrete(3))
    judge.judge(got, choosing([0], got.scores[0]), exact, tolerance=1e-12)
    assert judge.found.ties == 1


@pytest.mark.parametrize(("kind", "off", "refused"), [
    ("typical", 2.4e-3, False), ("typical", 2.6e-3, True), ("wide", 2.6e-3, False),
])  # fmt: skip
def test_a_policy_that_float32_cannot_compute_is_refused(kind: str, off: float, refused: bool) -> None:
    """Though file and predict() agree: a wrong file could hide there."""
    exact, both = acting([[0.0, 5.0]], [[1.0]]), acting([[0.0, 5.0]], [[1.0 + off]])
    judge = Judge(BOX)
    judge.judge(both, both, exact, kind=kind)
    if refused:
        with pytest.raises(ExportError, match=r"float32 is too coarse.*Normalise your observations \(VecNormalize\)"):
            judge.finish()
        judge.judge(exact, exact, exact)  # on some kind it can
    judge.finish()


@pytest.mark.parametrize(("who", "text"), [("got", "the exported file gives NaN"), ("want", "itself gives NaN")])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_is_refused(who: str, text: str, number: float) -> None:
    fine, bad = [np.zeros((3, 2))], [np.array([[0.0, 0.0], [0.0, number], [0.0, 0.0]])]
    with pytest.raises(ExportError, match=text):
        check_outputs(bad if who == "got" else fine, bad if who == "want" else fine, "predict()")


def test_another_shape_is_refused() -> None:
    with pytest.raises(ExportError, match=r"another shape than predict\(\)"):
        check_outputs([np.zeros((3, 1))], [np.zeros((3, 2))], "predict()")


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
        judge._predict(ObservationBatch([np.zeros((2, 3), np.float32)], []))


def test_actions_are_compared_as_an_engine_gets_them() -> None:
    def sent(space: Any) -> Any:
        model = SimpleNamespace(action_space=space, predict=lambda *_, **__: (np.ones((1, 2)), None))
        return sb3.predict(model, None, np.zeros((1, 3)), [], np.ones(1))[0].tolist()

    assert sent(SimpleNamespace(decode=lambda actions: actions * 2)) == [[2, 2]]
    assert sent(spaces.MultiDiscrete([2, 2], start=[3, 0])) == [[4, 1]]


# -- the observations that are tried


def leaf(low: float, high: float, size: int = 3) -> ObservationLeaf:
    space = spaces.Box(np.full(size, low, np.float32), np.full(size, high, np.float32), dtype=np.float32)
    return ObservationLeaf(None, space, space, False)


@pytest.mark.parametrize(("one", "kinds"), [
    (leaf(-1, 1), ("typical", "extreme")), (leaf(-1e5, 1e5), ("typical", "extreme", "near")),
    (leaf(1, 2), ("typical", "extreme", "near")), (leaf(-np.inf, np.inf), ("typical", "extreme", "wide")),
])  # fmt: skip
def test_kinds_of_observations(one: ObservationLeaf, kinds: tuple[str, ...]) -> None:
    assert tries.kinds_of([one], [None]) == kinds
    assert tries.kinds_of([one], [SimpleNamespace(mean=0.0, var=1.0)]) == ("typical", "extreme")


def test_near_and_wide_observations() -> None:
    rng = np.random.default_rng(0)
    near = tries.draw_rows("near", leaf(1e3, 1e5), None, 500, rng, anywhere=True)
    assert 0.5 < np.abs(near).mean() < 3
    inside = tries.draw_rows("near", leaf(1e3, 1e5), None, 500, rng, anywhere=False)
    assert (inside == 1e3).all()
    wide = np.abs(tries.draw_rows("wide", leaf(-np.inf, np.inf), None, 2000, rng, anywhere=True)).max(axis=1)
    for power in range(1, 5):
        assert ((wide > 10**power) & (wide < 10 ** (power + 1))).mean() > 0.15
    bounded = tries.draw_rows("wide", leaf(0, np.inf), None, 500, rng, anywhere=True)
    assert (bounded >= 0).all()


def test_neighbours_differ_in_the_last_digits_and_stay_in_the_space() -> None:
    rng = np.random.default_rng(0)
    one = leaf(-1e5, 1e5)
    rows = np.float32([[1e5, -3.7, 0.0]] * 200)
    near = tries.moved(one, rows, rng)
    assert near.dtype == np.float32
    assert (np.abs(near - rows) <= 5 * 2.0**-23 * np.abs(rows)).all()
    assert near.max() == 1e5
    assert len(np.unique(near[:, 1])) > 3
    whole = spaces.Box(0, 255, (3,), np.uint8)
    assert tries.moved(ObservationLeaf(None, whole, whole, False), rows, rng) is rows


# -- float64


def test_within_float64_nothing_is_float32() -> None:
    x = th.arange(3)
    with in_float64():
        made = [x.float(), th.zeros(2), th.full((2,), 0.5), th.tensor([0.1]) * 2, x / 3, th.ones(2, dtype=th.half)]
        for found in made:
            assert found.dtype == th.float64
        assert (x + 1).dtype == th.int64
        third = x.float() / 3
        assert third[1].item() == 1 / 3
        assert th.nn.functional.linear(th.ones(1, 2), th.ones(3, 2, dtype=th.float64)).dtype == th.float64
    assert x.float().dtype == th.float32
