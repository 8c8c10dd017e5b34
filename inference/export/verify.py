"""Whether an exported file does what predict() does: observations to try, and the comparison.

Two things compute the same net in float32 and add up in another order: they differ by rounding, and by how much
depends on the net and the observation. So differences are judged in two steps:

1. Within `tolerance` of the action range (discrete actions: equal): the file agrees with predict(). The states of a
   recurrent policy and the scores from which actions follow, before argmax, tanh or clipping, are compared as well:
   a wrong weight may change no action of those tried.
2. Beyond it the net is computed in float64 as well. The difference is only rounding if both the file and predict() are
   as near to that exact result as float32 gets with this net at this observation, within ROUNDING_FACTOR. How near
   that is, is measured: the same net in float32 against float64, with the weights as they are and with all weights
   moved by some units in the last place, which draws new rounding errors but asks the same question. For discrete
   actions the scores of both choices must be that near to the best one (a tie). Such rows are counted and
   reported; everything else is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize

from ue_rl.errors import ExportError, InferenceError
from ue_rl.inference.export.graph import SCORES, Plan, PolicyGraph
from ue_rl.inference.export.observations import stats_of
from ue_rl.inference.export.policies import CountedHead, HybridHead
from ue_rl.inference.export.tries import extreme_rows, typical_rows
from ue_rl.inference.metadata import ACTION_MASKS, EPISODE_START, OBSERVATION, STATE, Comparison
from ue_rl.inference.runtime.onnx import OnnxInference

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = list[Floats]
Inputs = tuple[th.Tensor, ...]

CHUNK = 64  # rows per call: small enough for images, and the row count of a recurrent sequence
TIE_LIMIT = 0.01
ROUNDING_FACTOR = 4.0  # times the largest error of float32 that was measured at the row, ...
ROUNDING_ULPS = 4.0  # ... and so many units in the last place of the result on top
_SAMPLES = 32  # measurements at most; the largest of 32 is about 2.3 standard deviations
_MOVED = 2.0**-20  # how far the weights are moved, relative: 16 units in the last place
_MASKED = -1e7  # a score below is that of a choice that is not allowed (CategoricalHead gives it -1e8)
_EPS = float(np.finfo(np.float32).eps)


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
        self.rng = np.random.default_rng(0)
        space = model.action_space
        head: Any = plan.net.head
        self.discrete = not isinstance(space, spaces.Box)
        self.chosen = np.full(plan.outputs[0].size, self.discrete)  # which numbers of an action are choices
        self.starts = np.zeros(plan.outputs[0].size)
        if isinstance(head, HybridHead):
            self.chosen[:] = head.chosen
            self.starts = np.concatenate([np.full(1 if k == "DISCRETE" else n, s) for k, _, n, s in head.parts])
        elif isinstance(head, CountedHead):
            self.starts = head.starts.cpu().numpy().astype(np.float64)
        if not self.discrete:
            span = space.high.astype(np.float64).ravel() - space.low.astype(np.float64).ravel()
            if isinstance(head, HybridHead):
                span = np.concatenate([span[at : at + n] for k, at, n, _ in head.parts if k == "BOX"] or [span[:0]])
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
            self._judge(kind, self._run_file(arrays), want, inputs, tolerance)
            state = want[1:-1]
        self.found.observations += len(rows[0])
        if self.found.ties > max(1, TIE_LIMIT * self.found.observations):
            raise ExportError(
                "float32 cannot tell the choices of this policy apart on too many observations", fault="model",
                expected=f"at most {TIE_LIMIT:.0%}", got=f"{self.found.ties} of {self.found.observations}",
                cure="train longer, or export another checkpoint",
            )  # fmt: skip

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
        obs = obs.get(None, obs)
        if self.stats is not None:
            obs = self.stats.normalize_obs(obs)
        by_role = {port.role: array for port, array in zip(self.plan.inputs, arrays, strict=True)}
        more = {ACTION_MASKS: by_role[ACTION_MASKS].astype(bool)} if ACTION_MASKS in by_role else {}
        # sb3-contrib has the rows of a state on the second axis.
        state = tuple(a.swapaxes(0, 1) for p, a in zip(self.plan.inputs, arrays, strict=True) if p.role == STATE)
        try:
            actions, after = self.model.predict(
                obs, state=state or None, episode_start=starts[:, 0].astype(bool), deterministic=True, **more
            )
        except (ValueError, RuntimeError, TypeError, AssertionError) as error:
            raise ExportError(
                f"{self.reference} itself fails on observations of its own space", fault="policy",
                got=f"{type(error).__name__}: {error}",
            ) from error  # fmt: skip
        return [
            self._sent(np.asarray(actions).reshape(len(starts), -1)),
            *(array.swapaxes(0, 1) for array in after or ()),
        ]

    def _sent(self, actions: NDArray[Any]) -> NDArray[Any]:
        """predict()'s actions as an engine gets them: those of a HybridBox taken apart, choices in its own counting."""
        if hasattr(self.model.action_space, "decode"):
            decoded: NDArray[Any] = self.model.action_space.decode(actions)
            return decoded
        return actions + self.starts if self.starts.any() else actions

    # -- comparing -------------------------------------------------------------------------------------------------

    def _judge(
        self, kind: str, got: list[NDArray[Any]], want: list[NDArray[Any]], inputs: Inputs, tolerance: float
    ) -> None:
        """Compare the outputs one by one: actions, states, scores."""
        if [array.shape for array in got] != [array.shape for array in want]:
            raise ExportError(
                f"the exported file gives another shape than {self.reference}", fault="model",
                expected=[array.shape for array in want], got=[array.shape for array in got],
            )  # fmt: skip
        if not all(np.isfinite(array).all() for array in want):
            raise ExportError(
                f"{self.reference} itself gives NaN or infinity", fault="policy",
                got=want[0][~np.isfinite(want[0]).all(axis=1)][:1],
                cure="the weights may hold NaN: export an earlier checkpoint",
            )  # fmt: skip
        chosen = self.chosen
        if chosen.any():
            counted = self.starts[chosen]
            self._judge_choices(kind, got[0][:, chosen] - counted, want[0][:, chosen] - counted, inputs)
            self.found.max_relative_difference.setdefault(kind, 0.0)
            got, want = ([array[0][:, ~chosen], *array[1:]] for array in (got, want))
        for index in range(int(chosen.all()), len(got)):
            ours, theirs = (np.asarray(array[index], np.float64).reshape(len(got[0]), -1) for array in (got, want))
            # Below 1 absolute: onnxruntime's exp(x) - 1 and sigmoid have no relative precision near 0.
            scale = np.maximum(1.0, np.abs(theirs))
            if index == 0:
                scale = np.where(np.isnan(self.span), scale, self.span)
            relative = np.abs(ours - theirs) / scale
            if index == 0:
                found, worst = self.found, self.found.max_relative_difference
                found.max_abs_difference = max(found.max_abs_difference, float(np.abs(ours - theirs).max(initial=0.0)))
                worst[kind] = max(worst.get(kind, 0.0), float(relative.max(initial=0.0)))
            beyond = relative.max(axis=1, initial=0.0) > tolerance
            if beyond.any():
                self._judge_rounding(kind, index, ours / scale, theirs / scale, scale, beyond, inputs, tolerance)

    def _judge_rounding(
        self,
        kind: str,
        index: int,
        got: Doubles,
        want: Doubles,
        scale: Doubles,
        beyond: NDArray[np.bool_],
        inputs: Inputs,
        tolerance: float,
    ) -> None:
        """Accept the rows `beyond` the tolerance if file and predict() are as near to exact as float32 gets there.

        Args:
            index: which output of the graph is compared.
            got, want: the outputs relative to `scale`, all [N, columns].
        """

        def compute(net: PolicyGraph) -> Doubles:
            # All rows, as predict() had them: how torch adds up depends on their number.
            output = net(*inputs)[index].detach().double().cpu().numpy()
            if index == 0:
                output = output[:, ~self.chosen]
            return (output.reshape(len(scale), -1) / scale)[beyond]  # type: ignore[no-any-return]

        exact, errors = self._rounding(compute)
        of_file, of_predict = (np.abs(array[beyond] - exact).max(axis=1) for array in (got, want))
        largest = allowed = excess = np.zeros(len(exact))
        for error in errors:
            largest = np.maximum(largest, error.max(axis=1))
            allowed = ROUNDING_FACTOR * largest + ROUNDING_ULPS * _EPS * np.abs(exact).max(axis=1)
            excess = np.maximum(of_file, of_predict) - allowed
            if (excess <= 0).all():
                if index == 0:
                    self.found.rounded += len(exact)
                    self.found.file_error = max(self.found.file_error, float(of_file.max()))
                    self.found.predict_error = max(self.found.predict_error, float(of_predict.max()))
                return
        worst = int(excess.argmax())
        row = int(np.flatnonzero(beyond)[worst])
        what = "of the action range" if index == 0 else "in the net's scores or state, from which actions follow"
        self._refuse(
            kind, got[row] * scale[row], want[row] * scale[row],
            f"a difference of {np.abs(got - want)[row].max():.3g} {what} (tolerance {tolerance:.3g}), "
            f"which is not rounding: from exact arithmetic the file is {of_file[worst]:.3g} away and {self.reference} "
            f"{of_predict[worst]:.3g}, float32 accounts for {allowed[worst]:.3g}",
        )  # fmt: skip

    def _judge_choices(self, kind: str, got: NDArray[Any], want: NDArray[Any], inputs: Inputs) -> None:
        """Accept rows of discrete actions that are equal, or ties."""
        rows = np.flatnonzero((got != want).any(axis=1)).tolist()
        if not rows:
            return

        def compute(net: PolicyGraph) -> Doubles:
            return th.cat(net.scores(*inputs), dim=1).detach().double().cpu().numpy()[rows]

        wrong = rows
        if not self.plan.stochastic:  # where noise decides, equal scores are no tie
            exact, errors = self._rounding(compute)
            largest = np.zeros(len(rows))
            for error in errors:
                largest = np.maximum(largest, np.where(exact > _MASKED, error, 0.0).max(axis=1))
                ties = [self._is_tie(got[r], want[r], exact[i], largest[i]) for i, r in enumerate(rows)]
                wrong = [row for row, tie in zip(rows, ties, strict=True) if not tie]
                if not wrong:
                    self.found.ties += len(rows)
                    return
        self._refuse(kind, got[wrong[0]], want[wrong[0]], "any difference of a discrete action")

    def _is_tie(self, got: NDArray[Any], want: NDArray[Any], scores: Doubles, rounding: float) -> bool:
        """Whether both choices are the best one as far as float32 can tell; `scores` [all choices] are exact."""
        counts = getattr(self.plan.net.head, "counts", None) or [len(scores) // len(got)] * len(got)
        for a, b, of in zip(got.astype(int), want.astype(int), np.split(scores, np.cumsum(counts)[:-1]), strict=True):
            best, worse = of.max(), min(of[a], of[b])
            allowed = ROUNDING_FACTOR * rounding + ROUNDING_ULPS * _EPS * max(1.0, abs(best), abs(worse))
            if a != b and best - worse > allowed:
                return False
        return True

    def _refuse(self, kind: str, got: NDArray[Any], want: NDArray[Any], what: str) -> None:
        raise ExportError(
            f"the exported file acts differently from {self.reference} on a {kind} observation: {what}", fault="policy",
            expected=want, got=got, cure="the policy does something that the graph does not hold; nothing was written",
        )  # fmt: skip

    # -- how exact float32 is --------------------------------------------------------------------------------------

    def _rounding(self, compute: Callable[[PolicyGraph], Doubles]) -> tuple[Doubles, Iterator[Doubles]]:
        """What `compute` gives in float64, and the errors of float32, measured one by one up to _SAMPLES.

        Raises:
            ExportError: the net cannot be computed in float64, or is no function of its inputs.
        """
        net = self.plan.net
        try:
            with th.no_grad():
                if not np.array_equal(compute(net), compute(net)):
                    raise ExportError(
                        "the policy acts differently on the same observation", fault="policy",
                        cure="remove randomness and counters from its forward()",
                    )  # fmt: skip
                exact = compute(copy.deepcopy(net).as_reference())
        except RuntimeError as error:  # such as a constant of float32 in custom code
            raise ExportError(
                f"the exported file acts differently from {self.reference}, and whether this is rounding cannot be "
                "told: the policy does not run in float64", fault="policy", got=str(error),
                cure="make the policy's constants of the dtype of its inputs, or pass a larger tolerance",
            ) from error  # fmt: skip
        return exact, self._errors(compute)

    def _errors(self, compute: Callable[[PolicyGraph], Doubles]) -> Iterator[Doubles]:
        generator = th.Generator().manual_seed(0)
        for sample in range(_SAMPLES):
            net = copy.deepcopy(self.plan.net)
            with th.no_grad():
                for parameter in net.parameters() if sample else ():
                    noise = th.rand(parameter.shape, generator=generator).to(parameter.device)
                    parameter.mul_(1.0 + _MOVED * (2.0 * noise - 1.0))
                single = compute(net)
                yield np.abs(single - compute(net.as_reference()))
