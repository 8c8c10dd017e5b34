"""Whether an exported file does what the policy does: one rule, on ten thousand observations (tries.py says which).

File and predict() compute the same net in float32 and add up in another order, so that both are off from the policy,
and by how much depends on the net and the observation. So the policy is computed in float64 as well (float64.py), and
on the observations of each kind

    the file may be off from it by 4 times the most that predict() is off by, or by the tolerance, whatever is more.

Being off is measured in the actions, as a share of their range, and in the numbers from which they follow: the scores
before argmax, tanh or clipping, and the state of a recurrent policy, each as a share of the greatest that was seen on
observations of that kind. A wrong weight may change no action of those tried, but no such number stays what it was.

Two choices may differ where that much could have made either the best one: the score of each is off by no more, so that
in float64 theirs are at most twice as much behind the best one. They are counted as ties.

Where float32 has so few digits left that 4 times its error is a hundredth on every kind of observation (but "wide",
which may have nothing to do with the env), a file with an input that is scaled by 1.01 would pass: such a policy is
refused.
"""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize

from ue_rl.inference.export.float64 import doubled, doubled_array, doubled_net, in_float64
from ue_rl.inference.export.graph import SCORES, Plan, is_trusted
from ue_rl.inference.export.measured import (
    Doubles,
    Floats,
    ObservationBatch,
    ObservationKind,
    Outputs,
    Rows,
    Spread,
    check_outputs,
)
from ue_rl.inference.export.observations import stats_of
from ue_rl.inference.export.sb3 import predict
from ue_rl.inference.export.tries import draw_rows, kinds_of, moved, moved_numbers
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
from ue_rl.protocol.spaces.tree import bounds, choices
from ue_rl.system.errors import ExportError, InferenceError

logger = logging.getLogger(__name__)

RATIO = 4.0  # two kernels that add up in other orders differ by a small factor in the most that they are off by
LIMIT = 0.01 / RATIO
# Rows per call, by the numbers of an observation: a call costs as much as hundreds of small rows; images are large.
_CHUNKS = ((100, 1024), (1000, 256), (1 << 62, 64))
_ROWS_WITH_STATE = 256  # per call of a policy with state, whose rows go on from call to call: more rows, fewer calls
_UNIT = 2.0**-24
_REPEATED = 1e-3  # of the largest number: far more than threads that add up in another order differ by
_TIE_UNITS = 16.0  # by so many units of 1 the softmax or sigmoid before a choice may round two scores together
_MASKED = -1e7  # scores below are those of choices that are not legal


class Verifier:
    """Compares one exported file with its policy.

    Args:
        model: the model.
        plan: what was exported of it.
        vec_normalize: the statistics in the graph.
        runtime: the file, loaded.
        reference: what the model's predict() is, for messages.
        with_scores: whether the file gives its scores, as one does before it is written; else its actions and states
            alone are compared.
    """

    def __init__(
        self,
        model: Any,
        plan: Plan,
        vec_normalize: VecNormalize | None,
        runtime: OnnxInference,
        reference: str = "predict()",
        *,
        with_scores: bool = True,
    ) -> None:
        self.with_scores = with_scores
        self.reference = reference
        self.model = model
        self.plan = plan
        self.stats = vec_normalize
        self.runtime = runtime
        self.found = Comparison()
        self.rng = np.random.default_rng(0)
        self.digits: list[float] = []  # how far predict()'s scores were off, of each kind but "wide"
        self._twin: tuple[Any, Any] | None = None  # model and net in float64
        self._exact = True  # whether they can be computed there
        self._repeats = False  # whether it was seen to act the same twice
        tree = tree_from_json(space_to_json(model.action_space))  # the action as the engine has it
        low, high = (side.astype(np.float64) for side in bounds(tree))
        self.chosen = choices(tree) > 0  # which numbers of an action are choices
        self.starts = np.where(self.chosen, low, 0.0)
        span = (high - low)[~self.chosen]
        self.span = np.where(np.isfinite(span) & (span > 0), span, np.nan)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of observations to draw."""
        return kinds_of(self.plan.leaves, [stats_of(self.stats, leaf.key) for leaf in self.plan.leaves])

    def draw(self, kind: str, n: int) -> Rows:
        """`n` observations of a kind, one array per leaf."""
        anywhere = is_trusted(self.plan.net)
        return [
            draw_rows(kind, leaf, stats_of(self.stats, leaf.key), n, self.rng, anywhere) for leaf in self.plan.leaves
        ]

    def compare(self, kind: str, rows: Rows, tolerance: float, chunk: int | None = None) -> None:
        """Run all rows, and neighbours of the sensitive ones, through the file, predict() and float64, and judge.

        A recurrent policy takes each chunk as one time step of `chunk` agents, some of which begin a new episode. File
        and predict() are given the same state, and the states that they return are compared like actions.

        Raises:
            ExportError: the file is off by more than the rule allows.
        """
        if chunk is None:
            size = sum(leaf.size for leaf in self.plan.leaves)
            chunk = next(rows_per_call for limit, rows_per_call in _CHUNKS if size < limit)
            if any(port.role == STATE for port in self.plan.inputs):
                chunk = min(chunk, _ROWS_WITH_STATE)
        fixed = self.runtime.fixed_batch
        if fixed is not None:  # every call takes so many rows, or a multiple of them
            chunk = max(fixed, chunk // fixed * fixed)
            whole = len(rows[0]) // fixed * fixed
            enough = np.resize(np.arange(len(rows[0])), max(fixed, whole))
            rows = [array[enough] for array in rows]
        here = ObservationKind()
        state: list[Floats] = []
        for at in range(0, len(rows[0]), chunk):
            part = [array[at : at + chunk] for array in rows]
            size = len(part[0])
            share = 1.0
            if at:
                share = 0.1
            starts = (self.rng.random((size, 1)) < share).astype(np.float32)
            batch = ObservationBatch(part, self._arrays(part, starts, [array[:size] for array in state]))
            state = self._measure(kind, here, batch, tolerance)
        neighbours = self._neighbours(here, len(rows[0]))
        for at in range(0, len(neighbours.rows[0]), chunk):
            span = np.arange(at, min(at + chunk, len(neighbours.rows[0])))
            self._measure(kind, here, neighbours.take(span), tolerance)
        self._judge(kind, here, tolerance)

    def finish(self) -> None:
        """To be called when all kinds were compared; raises ExportError: float32 is too coarse for this policy."""
        if self.with_scores and self._exact and self.digits and min(self.digits) > LIMIT:
            raise ExportError(
                "float32 is too coarse for this policy: a file that is wrong by a hundredth could hide in its rounding",
                fault="model",
                expected=f"{self.reference} off from the policy in float64 by at most {LIMIT:.2g} of its scores",
                got=f"{min(self.digits):.2g}",
                cure="normalise your observations (VecNormalize) and train with that",
            )

    # -- running all three -------------------------------------------------------------------------------------------

    def _measure(self, kind: str, here: ObservationKind, batch: ObservationBatch, tolerance: float) -> list[Floats]:
        """Run a batch through all, and note how far both are off; the new states, as predict() has them."""
        device = self.model.policy.device
        inputs = tuple(th.as_tensor(array, device=device) for array in batch.arrays)
        with th.no_grad():
            raw_want = [tensor.cpu().numpy() for tensor in self.plan.net(*inputs)]
        self._require_the_same_twice(kind, inputs, raw_want)
        if not self.plan.stochastic:  # predict() takes no noise, and it tells no scores
            raw_want[:-1] = self._predict(batch)
        raw_got = self._run_file(batch.arrays)
        if self.with_scores:
            expected = raw_want
        else:
            expected = raw_want[:-1]
        check_outputs(raw_got, expected, self.reference)
        with th.no_grad():
            want = self._outputs(raw_want, self.plan.net, inputs)
        got = self._outputs(raw_got, None, inputs)
        exact = self._exactly(batch, inputs)
        if exact is None:
            reference = want
        else:
            reference = exact
        self._note(kind, here, batch, got, want, reference, tolerance)
        self.found.observations += len(batch.rows[0])
        return raw_want[1:-1]

    def _require_the_same_twice(self, kind: str, inputs: tuple[th.Tensor, ...], first: list[NDArray[Any]]) -> None:
        """Once, on the first rows; raises ExportError: the policy draws numbers of its own."""
        if self._repeats:
            return
        self._repeats = True
        with th.no_grad():
            second = [tensor.cpu().numpy() for tensor in self.plan.net(*inputs)]
        for one, other in zip(first, second, strict=True):
            finite = np.nan_to_num(one.astype(np.float64), posinf=0.0, neginf=0.0)
            size = np.abs(finite).max(initial=1.0)
            if not np.allclose(one, other, rtol=0.0, atol=_REPEATED * size, equal_nan=True):
                raise ExportError(
                    f"the policy acts differently each time that it is given the same {kind} observation",
                    fault="policy",
                    cure="no file can act as it does: take noise and dropout out of what leads to actions",
                )

    def _outputs(self, raw: list[NDArray[Any]], net: Any, inputs: tuple[th.Tensor, ...]) -> Outputs:
        """`raw`: the outputs as the graph has them. `net`: gives the scores; None: they are not asked for."""
        numbers = [raw[0][:, ~self.chosen], *(output.reshape(len(output), -1) for output in raw[1:])]
        chosen = raw[0][:, self.chosen] - self.starts[self.chosen]
        scores: list[NDArray[Any]] = []
        if net is not None and self.chosen.any():
            last = th.as_tensor(raw[-1], device=self.model.policy.device)
            scores = [part.cpu().numpy() for part in net.scores(last, *inputs)]
        return Outputs(numbers, chosen, scores)

    def _exactly(self, batch: ObservationBatch, inputs: tuple[th.Tensor, ...]) -> Outputs | None:
        """What the policy gives in float64; None where its code cannot be run there: then predict() stands for it."""
        if not self._exact:
            return None
        try:
            if self._twin is None:
                self._twin = doubled(self.model), doubled_net(self.plan.net)
            model, net = self._twin
            with in_float64():
                twins = tuple(tensor.double() for tensor in inputs)
                raw = [tensor.cpu().numpy() for tensor in net(*twins)]
                if not self.plan.stochastic:
                    raw[:-1] = self._predicted(model, batch, double=True)
                return self._outputs(raw, net, twins)
        except (TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError) as error:
            logger.info("the policy cannot be computed in float64, the tolerance alone decides: %s", error)
            self._exact = False
            return None

    def _arrays(self, rows: Rows, starts: Floats, state: list[Floats]) -> list[Floats]:
        """What the graph's inputs are given, in their order."""
        size = len(rows[0])
        observed = iter(self._observed(rows))
        states = iter(state)
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
                if uniform:
                    numbers = self.rng.uniform(1e-6, 1 - 1e-6, shape)
                else:
                    numbers = self.rng.standard_normal(shape)
                arrays.append(numbers)
        return [np.ascontiguousarray(array, np.float32) for array in arrays]

    def _observed(self, rows: Rows) -> Rows:
        """The observations as the graph's inputs have them."""
        if not self.plan.flat_input:
            return rows
        return [np.concatenate([array.reshape(len(array), -1) for array in rows], axis=1)]

    def _neighbours(self, here: ObservationKind, n: int) -> ObservationBatch:
        """Neighbours of the sensitive rows among `n`, see tries.py; their masks, noise and episode starts stay."""
        kept = here.sensitive
        assert kept is not None
        each = max(8, -(-n // (4 * len(kept.rows[0]))))  # a quarter of what was drawn: a fifth of all
        again = np.tile(np.arange(len(kept.rows[0])), each)
        fixed = self.runtime.fixed_batch
        if not fixed:
            fixed = 1
        again = np.resize(again, -(-len(again) // fixed) * fixed)
        batch = kept.take(again)
        batch.rows = [moved(leaf, part, self.rng) for leaf, part in zip(self.plan.leaves, batch.rows, strict=True)]
        observed = iter(self._observed(batch.rows))
        for index, port in enumerate(self.plan.inputs):
            if port.role == OBSERVATION:
                batch.arrays[index] = np.ascontiguousarray(next(observed), np.float32)
            elif port.role == STATE:
                batch.arrays[index] = moved_numbers(batch.arrays[index], self.rng)
        return batch

    def _masks(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        masks = self.rng.random(shape) < 0.5
        at = 0
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
            states = [after[str(port.key)] for port in self.plan.outputs if port.role == STATE]
            if not self.with_scores:
                return [actions, *states]
            scores = self.runtime.run_raw({port.name: array for port, array in given}, SCORES)
        except InferenceError as error:
            raise ExportError(
                f"the exported file cannot be run: {error.message}", fault="model", got=error.got
            ) from error
        return [actions, *states, scores]

    def _predict(self, batch: ObservationBatch) -> list[NDArray[Any]]:
        """The actions and the new states."""
        try:
            return self._predicted(self.model, batch, double=False)
        except (ValueError, RuntimeError, TypeError, AssertionError) as error:
            raise ExportError(
                f"{self.reference} itself fails on observations of its own space",
                fault="policy",
                got=f"{type(error).__name__}: {error}",
            ) from error

    def _predicted(self, model: Any, batch: ObservationBatch, *, double: bool) -> list[NDArray[Any]]:
        given = list(zip(self.plan.inputs, batch.arrays, strict=True))
        obs: Any = {leaf.key: leaf.to_python(rows) for leaf, rows in zip(self.plan.leaves, batch.rows, strict=True)}
        obs = obs.get(None, obs)
        state: list[Any] = [array for port, array in given if port.role == STATE]
        masks = next((array for port, array in given if port.role == ACTION_MASKS), None)
        starts = next((array for port, array in given if port.role == EPISODE_START), np.ones((len(batch.rows[0]), 1)))
        stats = self.stats
        if double:
            # Normalised as predict() is given it, rounded to float32: the graph rounds the same number.
            if stats is None:
                normalized = obs
            else:
                normalized = stats.normalize_obs(obs)
            obs = doubled_array(normalized)
            state = [doubled_array(array) for array in state]
            stats = None
        actions, after = predict(model, stats, obs, state, starts[:, 0], masks)
        return [actions, *after]

    # -- noting and judging ------------------------------------------------------------------------------------------

    def _note(
        self,
        kind: str,
        here: ObservationKind,
        batch: ObservationBatch,
        got: Outputs,
        want: Outputs,
        exact: Outputs,
        tolerance: float,
    ) -> None:
        """Note how far file and predict() are off on these rows."""
        errors = np.zeros(len(got.chosen))  # of each row, the greatest share of either
        for index, ours in enumerate(got.numbers):
            theirs = want.numbers[index]
            true = exact.numbers[index].astype(np.float64)
            of_file = np.abs(ours - true)
            of_predict = np.abs(theirs - true)
            if index == 0:  # the actions: as shares of their range
                scale = self._range(true)
                of_file = of_file / scale
                of_predict = of_predict / scale
                self._note_difference(kind, here, ours, theirs, scale, tolerance)
            spread = here.spreads.setdefault(index, Spread())
            size = 1.0
            if index != 0:
                size = float(np.abs(true).max(initial=0.0))
            spread.largest = max(spread.largest, size)
            spread.of_file = max(spread.of_file, float(of_file.max(initial=0.0)))
            spread.of_predict = max(spread.of_predict, float(of_predict.max(initial=0.0)))
            shares = np.maximum(of_file, of_predict).max(axis=1, initial=0.0) / spread.largest
            errors = np.maximum(errors, shares)
        if exact.scores:
            self._note_choices(here, got, want, exact)
            self.found.max_relative_difference.setdefault(kind, 0.0)
        here.keep_sensitive(batch, errors)

    def _note_difference(
        self, kind: str, here: ObservationKind, got: NDArray[Any], want: NDArray[Any], scale: Doubles, tolerance: float
    ) -> None:
        """For the report: how far apart the actions of file and predict() are."""
        if not got.shape[1]:
            return
        apart = np.abs(got.astype(np.float64) - want)
        shares = (apart / scale).max(axis=1)
        worst = self.found.max_relative_difference
        self.found.max_abs_difference = max(self.found.max_abs_difference, float(apart.max()))
        worst[kind] = max(worst.get(kind, 0.0), float(shares.max()))
        self.found.rounded += int((shares > tolerance).sum())
        row = int(shares.argmax())
        if shares[row] > here.apart:
            here.apart = float(shares[row])
            here.example = (got[row], want[row])

    def _note_choices(self, here: ObservationKind, got: Outputs, want: Outputs, exact: Outputs) -> None:
        self.found.ties += int((got.chosen != want.chosen).any(axis=1).sum())
        everyone = np.arange(len(got.chosen))
        for column, true in enumerate(exact.scores):
            legal = true > _MASKED
            here.largest_score = max(here.largest_score, float(np.abs(true[legal]).max(initial=0.0)))
            off = np.abs(want.scores[column] - true)[legal]
            here.score_error = max(here.score_error, float(off.max(initial=0.0)))
            for side in (got, want):
                choice = np.clip(side.chosen[:, column].astype(np.intp), 0, true.shape[1] - 1)
                behind = true.max(axis=1) - true[everyone, choice]
                row = int(behind.argmax())
                if behind[row] > here.behind:
                    here.behind = float(behind[row])
                    here.wrong_choice = got.chosen[row], want.chosen[row]

    def _judge(self, kind: str, here: ObservationKind, tolerance: float) -> None:
        """The rule of the module."""
        for index, spread in here.spreads.items():
            of_file, of_predict = spread.shares()
            if index == 0:
                self.found.file_error = max(self.found.file_error, of_file)
                self.found.predict_error = max(self.found.predict_error, of_predict)
            if of_file > max(RATIO * of_predict, tolerance):
                what = "in the net's scores or state, from which actions follow"
                if index == 0:
                    what = "of the action range"
                self._refuse(
                    kind,
                    *here.example,
                    f"a difference of {of_file:.3g} {what}, which is not rounding: from exact arithmetic the file is "
                    f"{of_file:.3g} away and {self.reference} {of_predict:.3g} (allowed: {RATIO:.0f} times that, or "
                    f"{tolerance:.3g})",
                )
        allowed = max(RATIO * here.score_error, tolerance * here.largest_score)
        allowed = 2.0 * allowed + _TIE_UNITS * _UNIT * max(1.0, here.largest_score)
        if here.behind > allowed:
            self._refuse(
                kind,
                *here.wrong_choice,
                f"any difference of a discrete action: the score of a choice is {here.behind:.3g} below that of the "
                f"best one (allowed: {allowed:.3g})",
            )
        if kind != "wide":  # a net that knows great numbers alone is one that the env may not be for
            self.digits.append(here.spreads[max(here.spreads)].shares()[1])

    def _range(self, actions: Doubles) -> Doubles:
        """By what actions are divided, [N, columns]: their range; without one their size, or 1 where that is more."""
        return np.where(np.isnan(self.span), np.maximum(1.0, np.abs(actions)), self.span)

    def _refuse(self, kind: str, got: Any, want: Any, what: str) -> NoReturn:
        raise ExportError(
            f"the exported file acts differently from {self.reference} on a {kind} observation: {what}",
            fault="policy",
            expected=want,
            got=got,
            cure="the policy does something that the graph does not hold; nothing was written. A tolerance that is "
            "known to be harmless is set by --tolerance",
        )
