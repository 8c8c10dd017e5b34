"""Whether an exported file does what predict() does: observations to try, and the comparison.

Two things compute the same net in float32 and add up in another order: they differ by rounding, and by how much
depends on the net and the observation. So differences are judged in three steps:

1. Within `tolerance` of the action range (discrete actions: equal): the file agrees with predict(). The states of a
   recurrent policy and the scores from which actions follow, before argmax, tanh or clipping, are compared as well,
   relative to the greatest of each kind: a wrong weight may change no action of those tried.
2. Beyond it the net is computed in float64 as well, with a bound of what float32 can be away from that
   (rounding.py). The difference is only rounding if both the file and predict() are within the bound. For discrete
   actions the bounds of the scores of both choices must reach the best one (a tie), at the same noise.
3. Where float32 has few digits left, the bound is so wide that a wrong file could hide in it. So no more than
   ROW_LIMIT of the rows may need it, a difference beyond SIZE_LIMIT is refused whatever the bound, and so is a policy
   of which predict() itself is further than that from the exact result on more rows than those. A choice between
   numbers that the last functions have made equal (a saturated tanh) hides nothing: what goes into them is compared.

Rows that were accepted for their rounding are counted and reported; everything else is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize

from ue_rl.errors import ExportError, InferenceError
from ue_rl.inference.export.bounds import UNIT, Unbounded
from ue_rl.inference.export.graph import SCORES, Plan
from ue_rl.inference.export.observations import stats_of
from ue_rl.inference.export.rounding import evaluate
from ue_rl.inference.export.sb3 import predict
from ue_rl.inference.export.tries import extreme_rows, typical_rows
from ue_rl.inference.metadata import (
    ACTION_MASKS,
    EPISODE_START,
    OBSERVATION,
    STATE,
    Comparison,
    space_to_json,
    tree_from_json,
)
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.spaces.tree import bounds, choices

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = list[Floats]
Inputs = tuple[th.Tensor, ...]
Exactly = Callable[[], list[tuple[Doubles, Doubles]]]

CHUNK = 64  # rows per call: small enough for images, and the row count of a recurrent sequence
ORDINARY = 1e-5  # a difference up to this needs no allowance, whatever smaller tolerance is asked for
ROW_LIMIT = 0.01  # of the rows of a kind that may differ by more, for rounding alone
SIZE_LIMIT = 1e-2  # of the action range
_TIE_UNITS = 16.0  # by so many units of float32 predict()'s probabilities may round its scores together
_HIDING = "which may be rounding, but a wrong file could hide in that"


class Verifier:
    """Compares one exported file with predict().

    Args:
        model: the model.
        plan: what was exported of it.
        vec_normalize: the statistics in the graph.
        runtime: the file, loaded.
        reference: what the model's predict() is, for messages.
    """

    def __init__(
        self,
        model: Any,
        plan: Plan,
        vec_normalize: VecNormalize | None,
        runtime: OnnxInference,
        reference: str = "predict()",
    ) -> None:
        self.reference = reference
        self.model = model
        self.plan = plan
        self.stats = vec_normalize
        self.runtime = runtime
        self.found = Comparison()
        # of each kind: rows tried, rows that only rounding explains; the greatest state or score of each number
        self.tried: dict[str, int] = defaultdict(int)
        self.needed: dict[str, int] = defaultdict(int)
        self.largest: dict[tuple[str, int], Doubles] = {}
        self.rng = np.random.default_rng(0)
        tree = tree_from_json(space_to_json(model.action_space))  # the action as the engine has it
        low, high = (side.astype(np.float64) for side in bounds(tree))
        self.chosen = choices(tree) > 0  # which numbers of an action are choices
        self.discrete = bool(self.chosen.all())
        self.starts = np.where(self.chosen, low, 0.0)
        span = (high - low)[~self.chosen]
        self.span = np.where(np.isfinite(span) & (span > 0), span, np.nan)

    def draw(self, kind: str, n: int) -> Rows:
        """`n` observations of a kind, one array per leaf."""
        make = typical_rows if kind == "typical" else extreme_rows
        return [make(leaf, stats_of(self.stats, leaf.key), n, self.rng) for leaf in self.plan.leaves]

    def compare(self, kind: str, rows: Rows, tolerance: float, chunk: int = CHUNK) -> None:
        """Run all rows through the file and through predict() and compare the results.

        A recurrent policy takes each chunk as one time step of `chunk` agents, some of which begin a new episode. File
        and predict() are given the same state, and the states that they return are compared like actions.

        Raises:
            ExportError: they differ by more than `tolerance` (discrete: at all), and not only by rounding.
        """
        state: list[Floats] = []
        for at in range(0, len(rows[0]), chunk):
            part = [array[at : at + chunk] for array in rows]
            size = len(part[0])
            starts = (self.rng.random((size, 1)) < (0.1 if at else 1.0)).astype(np.float32)
            arrays = self._arrays(part, starts, [array[:size] for array in state])
            inputs = tuple(th.as_tensor(array, device=self.model.policy.device) for array in arrays)
            with th.no_grad():
                want = [tensor.cpu().numpy() for tensor in self.plan.net(*inputs)]
            if not self.plan.stochastic:  # predict() takes no noise, and it tells no scores
                want[:-1] = self._predict(part, starts, arrays)
            exactly = cache(partial(self._exactly, inputs, th.as_tensor(want[-1], device=inputs[0].device)))
            self._judge(kind, self._run_file(arrays), want, exactly, tolerance)
            if not at:
                self._judge_digits(kind, want, exactly, max(SIZE_LIMIT, tolerance))
            state = want[1:-1]
        self.found.observations += len(rows[0])
        differ = f"the file and {self.reference} differ, {_HIDING}"
        self._allow(kind, self.needed[kind], self.tried[kind], differ)

    # -- running both ----------------------------------------------------------------------------------------------

    def _arrays(self, rows: Rows, starts: Floats, state: list[Floats]) -> list[Floats]:
        """What the graph's inputs are given, in their order."""
        size = len(rows[0])
        flat = [np.concatenate([array.reshape(size, -1) for array in rows], axis=1)]
        observed, states = iter(flat if self.plan.flat_input else rows), iter(state)
        arrays: list[NDArray[Any]] = []
        for port in self.plan.inputs:
            shape = (size, *port.shape)
            if port.role == OBSERVATION:
                arrays.append(next(observed))
            elif port.role == STATE:
                arrays.append(next(states, np.zeros(shape, np.float32)))
            elif port.role == EPISODE_START:
                arrays.append(starts)
            elif port.role == ACTION_MASKS:
                arrays.append(self._masks(shape))
            else:
                uniform = port.distribution == "uniform"
                arrays.append(self.rng.uniform(1e-6, 1 - 1e-6, shape) if uniform else self.rng.standard_normal(shape))
        return [np.ascontiguousarray(array, np.float32) for array in arrays]

    def _masks(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        masks, at = self.rng.random(shape) < 0.5, 0
        for count in self.plan.net.head.counts:  # type: ignore[union-attr]
            masks[np.arange(len(masks)), at + self.rng.integers(count, size=len(masks))] = True  # one is always allowed
            at += count
        return masks

    def _run_file(self, arrays: list[Floats]) -> list[NDArray[Any]]:
        """The actions, the new states and the scores."""
        given = list(zip(self.plan.inputs, arrays, strict=True))
        observed = {port.key: array for port, array in given if port.role == OBSERVATION}
        side: dict[str, Any] = {p.role: array for p, array in given if p.role not in (OBSERVATION, STATE)}
        side["state"] = {port.name: array for port, array in given if port.role == STATE} or None
        try:
            actions, after = self.runtime.run(observed.get(None, observed), **side)  # type: ignore[arg-type]
            scores = self.runtime.run_raw({port.name: array for port, array in given}, SCORES)
        except InferenceError as error:
            raise ExportError(
                f"the exported file cannot be run: {error.message}", fault="model", got=error.got
            ) from error
        return [actions, *(after[str(port.key)] for port in self.plan.outputs if port.role == STATE), scores]

    def _predict(self, rows: Rows, starts: Floats, arrays: list[Floats]) -> list[NDArray[Any]]:
        """The actions and the new states."""
        obs: Any = {leaf.key: leaf.to_python(array) for leaf, array in zip(self.plan.leaves, rows, strict=True)}
        given = list(zip(self.plan.inputs, arrays, strict=True))
        state = [array for port, array in given if port.role == STATE]
        masks = next((array for port, array in given if port.role == ACTION_MASKS), None)
        try:
            actions, after = predict(self.model, self.stats, obs.get(None, obs), state, starts[:, 0], masks)
        except (ValueError, RuntimeError, TypeError, AssertionError) as error:
            raise ExportError(
                f"{self.reference} itself fails on observations of its own space", fault="policy",
                got=f"{type(error).__name__}: {error}",
            ) from error  # fmt: skip
        return [actions, *after]

    # -- comparing -------------------------------------------------------------------------------------------------

    def _judge(
        self, kind: str, got: list[NDArray[Any]], want: list[NDArray[Any]], exactly: Exactly, tolerance: float
    ) -> None:
        """Compare the outputs one by one: actions, states, scores; `exactly` gives what _exactly does."""
        self._check_outputs(got, want)
        allowance = np.zeros(len(got[0]), np.bool_)  # rows that are only accepted because float32 rounds
        chosen = self.chosen
        if chosen.any():
            counted = self.starts[chosen]
            allowance |= self._judge_choices(kind, got[0][:, chosen] - counted, want[0][:, chosen] - counted, exactly)
            self.found.max_relative_difference.setdefault(kind, 0.0)
        first = 1 if self.discrete else 0  # of the outputs that hold numbers: no choice is one
        for index, pair in enumerate(zip(self._numbers(got)[first:], self._numbers(want)[first:], strict=True), first):
            ours, theirs = (np.asarray(array, np.float64) for array in pair)
            scale = self._scale(kind, index, theirs)
            relative = np.abs(ours - theirs) / scale
            if index == 0:
                found, worst = self.found, self.found.max_relative_difference
                found.max_abs_difference = max(found.max_abs_difference, float(np.abs(ours - theirs).max(initial=0.0)))
                worst[kind] = max(worst.get(kind, 0.0), float(relative.max(initial=0.0)))
            largest = relative.max(axis=1, initial=0.0)
            beyond = np.flatnonzero(largest > tolerance)
            if len(beyond):
                self._judge_rounding(kind, index, ours, theirs, scale, beyond, exactly, tolerance)
            allowance |= largest > max(tolerance, ORDINARY)
        self.tried[kind] += len(allowance)
        self.needed[kind] += int(allowance.sum())

    def _check_outputs(self, got: list[NDArray[Any]], want: list[NDArray[Any]]) -> None:
        """Refuse other shapes, NaN and infinity."""
        if [array.shape for array in got] != [array.shape for array in want]:
            raise ExportError(
                f"the exported file gives another shape than {self.reference}", fault="model",
                expected=[array.shape for array in want], got=[array.shape for array in got],
            )  # fmt: skip
        for who, outputs, cure in (
            (f"{self.reference} itself", want, "the weights may hold NaN: export an earlier checkpoint"),
            ("the exported file", got, "the policy does something that the graph does not hold"),
        ):
            for array in outputs:
                if not np.isfinite(array).all():
                    bad = array[~np.isfinite(array.reshape(len(array), -1)).all(axis=1)][:1]
                    raise ExportError(f"{who} gives NaN or infinity", fault="policy", got=bad, cure=cure)

    def _judge_rounding(
        self,
        kind: str,
        index: int,
        got: Doubles,
        want: Doubles,
        scale: Doubles,
        rows: NDArray[np.intp],
        exactly: Exactly,
        tolerance: float,
    ) -> None:
        """Accept the `rows` beyond the tolerance if file and predict() are both within the bound of float32 there.

        Args:
            index: which output of the graph is compared.
            got, want: the outputs [N, columns]; scale: by what they are divided.
        """
        what = "of the action range" if index == 0 else "in the net's scores or state, from which actions follow"
        exact, bound = self._exact_or_refuse(kind, got[rows], want[rows], exactly, f"a difference {what}")[index]
        exact, bound, scale = exact[rows], bound[rows], scale[rows]
        of_file, of_predict = (np.abs(array[rows] - exact) / scale for array in (got, want))
        bound = np.where(np.isfinite(bound), bound / scale, 0.0)  # none: no allowance
        excess = (np.maximum(of_file, of_predict) - bound).max(axis=1)
        apart = (np.abs(got - want)[rows] / scale).max(axis=1)
        worst = int((excess if excess.max() > 0 else apart).argmax())
        row, errors = rows[worst], [float(e[worst].max()) for e in (of_file, of_predict, bound)]
        if excess[worst] > 0:
            self._refuse(
                kind, got[row], want[row],
                f"a difference of {apart[worst]:.3g} {what} (tolerance {tolerance:.3g}), which is not rounding: from "
                f"exact arithmetic the file is {errors[0]:.3g} away and {self.reference} {errors[1]:.3g}, float32 "
                f"accounts for {errors[2]:.3g}",
            )  # fmt: skip
        if apart[worst] > max(SIZE_LIMIT, tolerance):
            self._too_coarse(
                f"on a {kind} observation the file and {self.reference} differ by {apart[worst]:.3g} {what}, {_HIDING}",
                f"at most {SIZE_LIMIT}", got[row],
            )  # fmt: skip
        if index == 0:
            self.found.rounded += len(rows)
            self.found.file_error = max(self.found.file_error, float(of_file.max()))
            self.found.predict_error = max(self.found.predict_error, float(of_predict.max()))

    def _judge_choices(self, kind: str, got: NDArray[Any], want: NDArray[Any], exactly: Exactly) -> NDArray[np.bool_]:
        """Accept rows of discrete actions that are equal, or ties; returns which are ties by the net's rounding."""
        needed = np.zeros(len(got), np.bool_)
        what = "any difference of a discrete action"
        for row in np.flatnonzero((got != want).any(axis=1)).tolist():
            *_, net, head = self._exact_or_refuse(kind, got[[row]], want[[row]], exactly, what)
            of_net, of_head = (self._is_tie(got[row], want[row], one[row], bound[row]) for one, bound in (net, head))
            if not of_net:
                self._refuse(kind, got[row], want[row], what)
            needed[row] = not of_head
            self.found.ties += 1
        return needed

    def _is_tie(self, got: NDArray[Any], want: NDArray[Any], scores: Doubles, bounds: Doubles) -> bool:
        """Whether both choices are the best one as far as float32 can tell; `scores` [all choices] are exact."""
        counts = getattr(self.plan.net.head, "counts", None) or [len(scores) // len(got)] * len(got)
        ends = np.cumsum(counts)[:-1]
        pairs = zip(got.astype(int), want.astype(int), np.split(scores, ends), np.split(bounds, ends), strict=True)
        for a, b, of, bound in pairs:
            best = int(of.argmax())
            units = _TIE_UNITS * UNIT * np.maximum(1.0, np.abs(of))
            reach = bound + bound[best] + np.maximum(units, units[best])
            if a != b and not all(of[best] - of[one] <= reach[one] < np.inf for one in (a, b)):
                return False
        return True

    def _judge_digits(self, kind: str, want: list[NDArray[Any]], exactly: Exactly, limit: float) -> None:
        """Refuse a policy that float32 cannot compute: two kernels may agree on it by luck, others will not."""
        coarse = np.zeros(len(want[0]), np.bool_)
        with suppress(Unbounded):
            for index, (theirs, (exact, _)) in enumerate(zip(self._numbers(want), exactly(), strict=False)):
                scale = self._scale(kind, index, theirs)
                coarse |= ~(np.abs(theirs - exact) <= limit * scale).all(axis=1)
        self._allow(
            kind, int(coarse.sum()), len(coarse),
            f"{self.reference} is further than {limit} of the action range from the exact result",
        )  # fmt: skip

    def _exactly(self, inputs: Inputs, raw: th.Tensor) -> list[tuple[Doubles, Doubles]]:
        """The exact numbers, the bounds of float32 of the outputs as `_numbers` has them, then of the choices' scores.

        The scores come twice: as the whole net gives them, and as they follow from `raw`, float32's own last output.

        Raises:
            Unbounded: the net takes an operation of which it is not known how it rounds.
        """

        def compute() -> list[th.Tensor]:
            outputs = self.plan.net(*inputs)
            last = (outputs[-1], raw) if self.chosen.any() else ()
            return [*self._numbers(outputs), *(th.cat(self.plan.net.scores(one, *inputs), dim=1) for one in last)]

        return [(exact.cpu().numpy(), bound.cpu().numpy()) for exact, bound in evaluate(compute)]

    def _exact_or_refuse(
        self, kind: str, got: NDArray[Any], want: NDArray[Any], exactly: Exactly, what: str
    ) -> list[tuple[Doubles, Doubles]]:
        """What `exactly` gives; raises ExportError where there is no bound."""
        try:
            return exactly()
        except Unbounded as error:
            self._refuse(
                kind, got[0], want[0], f"{what}; whether it is rounding cannot be told, since it is not known how this "
                f"rounds: {error}", "use operations of torch.nn in the policy, or pass a larger tolerance",
            )  # fmt: skip

    def _numbers(self, outputs: Any) -> list[Any]:
        """The outputs without the choices in the actions, each [N, columns]."""
        return [outputs[0][:, ~self.chosen], *(output.reshape(len(output), -1) for output in outputs[1:])]

    def _scale(self, kind: str, index: int, values: NDArray[Any]) -> Doubles:
        """By what differences are divided, [N, columns]: the action range; of states and scores the greatest so far."""
        # Below 1 absolute: onnxruntime's exp(x) - 1 and sigmoid have no relative precision near 0.
        scale = np.maximum(1.0, np.abs(values.astype(np.float64)))
        if index == 0:
            return np.where(np.isnan(self.span), scale, self.span)
        largest = np.maximum(self.largest.get((kind, index), 1.0), scale.max(axis=0, initial=1.0))
        self.largest[kind, index] = largest
        return np.broadcast_to(largest, values.shape)

    def _allow(self, kind: str, rows: int, tried: int, what: str) -> None:
        if rows > max(1, ROW_LIMIT * tried):
            found = f"{rows} of {tried}"
            self._too_coarse(f"on too many {kind} observations {what}", f"at most {ROW_LIMIT:.0%}", found)

    def _too_coarse(self, what: str, expected: object, got: object) -> NoReturn:
        raise ExportError(
            f"float32 is too coarse for this policy: {what}", fault="model", expected=expected, got=got,
            cure="normalise your observations (VecNormalize) and train with that",
        )  # fmt: skip

    def _refuse(
        self,
        kind: str,
        got: NDArray[Any],
        want: NDArray[Any],
        what: str,
        cure: str = "the policy does something that the graph does not hold; nothing was written",
    ) -> NoReturn:
        raise ExportError(
            f"the exported file acts differently from {self.reference} on a {kind} observation: {what}",
            fault="policy", expected=want, got=got, cure=cure,
        )  # fmt: skip
