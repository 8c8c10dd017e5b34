"""Whether an exported file does what predict() does: observations to try, and the comparison.

Continuous actions are compared relative to the range of the action space. Discrete actions must be equal. There is
one thing that no file can be blamed for: where two choices have scores so close that the rounding of float32
decides, predict() itself answers differently for the same observation in a batch of another size. Such a
row is recognised by computing the net in float64: it counts as a tie only if the scores of both choices differ by
less than float32 errs at that very row. Ties are counted, reported, and limited.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecNormalize

from ue_rl.errors import ExportError, InferenceError
from ue_rl.inference.export.graph import Plan, PolicyGraph
from ue_rl.inference.export.observations import Leaf, stats_of
from ue_rl.inference.metadata import ACTION_MASKS, EPISODE_START, NOISE, STATE
from ue_rl.inference.runtime.onnx import OnnxInference

Floats = NDArray[np.float32]
Rows = list[Floats]

CHUNK = 64  # rows per call: small enough for images, and the row count of a recurrent sequence
TIE_LIMIT = 0.01


@dataclass
class Comparison:
    """What was found, over all observations.

    Attributes:
        observations: how many were compared.
        max_abs: largest absolute difference of any action number.
        max_relative: the same relative to the action range, per kind of observation.
        ties: discrete rows that differ where float32 cannot tell the choices apart.
    """

    observations: int = 0
    max_abs: float = 0.0
    max_relative: dict[str, float] = field(default_factory=dict)
    ties: int = 0


def typical_rows(leaf: Leaf, stats: Any, n: int, rng: np.random.Generator) -> Floats:
    """Observations such as an env gives: around the running statistics, or anywhere within the bounds."""
    space, shape = leaf.space, (n, *leaf.shape)
    if isinstance(space, spaces.Discrete):
        return rng.integers(space.n, size=shape).astype(np.float32)
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(space.nvec, size=shape).astype(np.float32)
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(2, size=shape).astype(np.float32)
    assert isinstance(space, spaces.Box)
    if len(shape) == 4 and is_narrow(space):
        # Noise over a whole image averages out and moves no action: give each image its own colour and contrast.
        base, contrast = rng.random((n, *np.where(_channel_axis(leaf), leaf.shape, 1))), rng.random((n, 1, 1, 1))
        picture = np.clip(base + contrast * (rng.random(shape) - 0.5), 0.0, 1.0)
        return np.asarray(space.low + picture * (space.high - space.low.astype(np.float64)), space.dtype).astype(
            np.float32
        )
    if np.issubdtype(space.dtype, np.integer):
        return rng.integers(space.low, space.high, size=shape, endpoint=True).astype(np.float32)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if stats is not None:
        mean, std = _as_sent(leaf, stats.mean), _as_sent(leaf, np.sqrt(stats.var))
        rows = mean + std * rng.standard_normal(shape)
    else:
        narrow = np.isfinite(low) & np.isfinite(high) & (np.abs(low) < 1e6) & (np.abs(high) < 1e6)
        safe_low, safe_high = np.where(narrow, low, 0.0), np.where(narrow, high, 1.0)
        within = safe_low + (safe_high - safe_low) * rng.random(shape)
        scale = rng.choice([0.1, 1.0, 3.0], size=(n,) + (1,) * (len(shape) - 1))
        rows = np.where(narrow, within, scale * rng.standard_normal(shape))
    return np.clip(rows, low, high).astype(np.float32)


def extreme_rows(leaf: Leaf, stats: Any, n: int, rng: np.random.Generator) -> Floats:
    """Observations at the edges: zeros, bounds, and far out where there are none (beyond the clip of VecNormalize)."""
    space, shape = leaf.space, (n, *leaf.shape)
    if not isinstance(space, spaces.Box):
        return typical_rows(leaf, stats, n, rng)
    if stats is not None:
        centre, far = _as_sent(leaf, stats.mean), 20.0 * _as_sent(leaf, np.sqrt(stats.var)) + 1.0
    else:
        centre, far = np.zeros(leaf.shape), np.full(leaf.shape, 100.0)
    if np.issubdtype(space.dtype, np.integer) or is_narrow(space):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    else:
        low, high = np.maximum(space.low, centre - far), np.minimum(space.high, centre + far)
    picks = rng.integers(3, size=shape)
    rows = np.where(picks == 0, low, np.where(picks == 1, high, np.clip(0.0, low, high)))
    for i, whole in enumerate((low, high, np.clip(0.0, low, high))):
        if i < n:
            rows[i] = whole
    return rows.astype(space.dtype).astype(np.float32)


def _channel_axis(leaf: Leaf) -> NDArray[np.bool_]:
    """Which axis of an image holds the channels: the shortest."""
    return np.asarray(np.arange(len(leaf.shape)) == int(np.argmin(leaf.shape)), np.bool_)


def is_narrow(space: spaces.Box) -> bool:
    """Whether all bounds are finite and small enough to be tried."""
    return bool((np.abs(space.low) < 1e6).all() and (np.abs(space.high) < 1e6).all())


def _as_sent(leaf: Leaf, stat: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.moveaxis(stat, 0, -1) if leaf.transposed else stat


class Verifier:
    """Compares one exported file with predict().

    Args:
        model: the model.
        plan: what was exported of it.
        vec_normalize: the statistics in the graph.
        runtime: the file, loaded.
    """

    def __init__(self, model: Any, plan: Plan, vec_normalize: VecNormalize | None, runtime: OnnxInference) -> None:
        self.model = model
        self.plan = plan
        self.stats = vec_normalize
        self.runtime = runtime
        self.found = Comparison()
        self.rng = np.random.default_rng(0)
        space = model.action_space
        self.discrete = not isinstance(space, spaces.Box)
        if not self.discrete:
            span = space.high.astype(np.float64).ravel() - space.low.astype(np.float64).ravel()
            self.span = np.where(np.isfinite(span) & (span > 0), span, np.nan)
        self._reference: PolicyGraph | None = None

    def draw(self, kind: str, n: int) -> Rows:
        """`n` observations of a kind, one array per leaf."""
        make = typical_rows if kind == "typical" else extreme_rows
        return [make(leaf, stats_of(self.stats, leaf.key), n, self.rng) for leaf in self.plan.leaves]

    def compare(self, kind: str, rows: Rows, tolerance: float) -> None:
        """Run all rows through both and hold them against each other.

        Raises:
            ExportError: a difference above `tolerance` (continuous) or any (discrete, ties aside).
        """
        n = len(rows[0])
        state: tuple[Any, Any] | None = None
        carried: dict[str, Floats] = {}
        # Recurrent: the chunks are the time steps of CHUNK agents, some of which begin anew now and then.
        for at in range(0, n, CHUNK):
            part = [array[at : at + CHUNK] for array in rows]
            size = len(part[0])
            starts = (self.rng.random(size) < 0.1).astype(np.float32) if at else np.ones(size, np.float32)
            extra: dict[str, Any] = {}
            if self.plan.net.lstm is not None:
                if carried and len(next(iter(carried.values()))) != size:
                    carried = {name: array[:size] for name, array in carried.items()}
                    assert state is not None
                    state = (state[0][:, :size], state[1][:, :size])
                extra = {"state": carried or None, "episode_start": starts}
            masks = self._masks(size)
            if masks is not None:
                extra["action_masks"] = masks
            noise = self._noise(size)
            if noise is not None:
                extra["noise"] = noise
            try:
                got, carried_next = self.runtime.run(self.as_sent(part), **extra)
            except InferenceError as error:
                raise ExportError(
                    f"the exported file cannot be run: {error.message}", fault="model", got=error.got
                ) from error
            inputs = self._inputs(part, starts, carried, noise, masks)
            if self.plan.stochastic:
                want = self._sampled(inputs)
            else:
                want, state = self._predict(part, state, starts, masks)
            self._hold(kind, got, want, inputs, tolerance)
            carried = carried_next
        self.found.observations += n
        if self.found.ties > max(1, TIE_LIMIT * self.found.observations):
            raise ExportError(
                "float32 cannot tell the choices of this policy apart on too many observations",
                fault="model",
                expected=f"at most {TIE_LIMIT:.0%}",
                got=f"{self.found.ties} of {self.found.observations}",
                cure="train longer, or export another checkpoint",
            )

    def as_sent(self, rows: Rows) -> Any:
        """The rows as the engine would send them."""
        if self.plan.flat_input:
            return np.concatenate([array.reshape(len(array), -1) for array in rows], axis=1)
        if self.plan.leaves[0].key is None:
            return rows[0]
        return {str(leaf.key): array for leaf, array in zip(self.plan.leaves, rows, strict=True)}

    def _predict(self, rows: Rows, state: Any, starts: Floats, masks: Any) -> tuple[NDArray[Any], Any]:
        obs: Any = {leaf.key: leaf.to_python(array) for leaf, array in zip(self.plan.leaves, rows, strict=True)}
        if None in obs:
            obs = obs[None]
        if self.stats is not None:
            obs = self.stats.normalize_obs(obs)
        more = {} if masks is None else {"action_masks": masks.astype(bool)}
        try:
            actions, state = self.model.predict(
                obs, state=state, episode_start=starts.astype(bool), deterministic=True, **more
            )
        except (ValueError, RuntimeError, TypeError, AssertionError) as error:
            raise ExportError(
                "predict() itself fails on observations of its own space",
                fault="policy",
                got=f"{type(error).__name__}: {error}",
            ) from error
        return np.asarray(actions).reshape(len(rows[0]), -1), state

    def _sampled(self, inputs: tuple[th.Tensor, ...]) -> NDArray[Any]:
        """There is no predict() for given noise: the torch module with the same noise stands in for it."""
        with th.no_grad():
            return np.asarray(self.plan.net(*inputs)[0].cpu().numpy())

    def _noise(self, size: int) -> Floats | None:
        for port in self.plan.inputs:
            if port.role == NOISE:
                if port.distribution == "uniform":
                    return self.rng.uniform(1e-6, 1 - 1e-6, (size, *port.shape)).astype(np.float32)
                return self.rng.standard_normal((size, *port.shape)).astype(np.float32)
        return None

    def _masks(self, size: int) -> Floats | None:
        for port in self.plan.inputs:
            if port.role == ACTION_MASKS:
                masks = (self.rng.random((size, *port.shape)) < 0.5).astype(np.float32)
                at = 0
                for count in self.plan.net.head.counts:  # type: ignore[union-attr]
                    masks[np.arange(size), at + self.rng.integers(count, size=size)] = 1.0  # one is always allowed
                    at += count
                return masks
        return None

    def _inputs(
        self, rows: Rows, starts: Floats, state: dict[str, Floats], noise: Floats | None, masks: Floats | None
    ) -> tuple[th.Tensor, ...]:
        size = len(rows[0])
        sent = self.as_sent(rows)
        observed = iter(sent.values() if isinstance(sent, dict) else [sent])
        arrays = []
        for port in self.plan.inputs:
            if port.role == STATE:
                arrays.append(state.get(port.name, np.zeros((size, *port.shape), np.float32)))
            elif port.role == EPISODE_START:
                arrays.append(starts.reshape(-1, 1))
            elif port.role == NOISE:
                arrays.append(noise if noise is not None else np.zeros(0, np.float32))
            elif port.role == ACTION_MASKS:
                arrays.append(masks if masks is not None else np.zeros(0, np.float32))
            else:
                arrays.append(next(observed))
        device = self.model.policy.device
        return tuple(th.as_tensor(np.ascontiguousarray(a, np.float32), device=device) for a in arrays)

    def _hold(
        self, kind: str, got: Floats, want: NDArray[Any], inputs: tuple[th.Tensor, ...], tolerance: float
    ) -> None:
        if got.shape != want.shape:
            raise ExportError(
                "the exported file gives another shape than predict()",
                fault="model",
                expected=want.shape,
                got=got.shape,
            )
        if not np.isfinite(want).all():
            raise ExportError(
                "predict() itself gives NaN or infinity",
                fault="policy",
                got=want[int(np.flatnonzero(~np.isfinite(want).all(axis=1))[0])],
                cure="the weights may hold NaN: export an earlier checkpoint",
            )
        difference = np.abs(got.astype(np.float64) - want.astype(np.float64))
        if self.discrete:
            for row in np.flatnonzero(difference.max(axis=1) > 0).tolist():
                if self.plan.stochastic or not self._is_tie(row, got[row], want[row], inputs):
                    self._refuse(kind, row, got, want, "any difference of a discrete action")
                self.found.ties += 1
            self.found.max_relative.setdefault(kind, 0.0)
            return
        scale = np.where(np.isnan(self.span), np.maximum(1.0, np.abs(want)), self.span)
        relative = difference / scale
        worst = float(relative.max(initial=0.0))
        self.found.max_abs = max(self.found.max_abs, float(difference.max(initial=0.0)))
        self.found.max_relative[kind] = max(self.found.max_relative.get(kind, 0.0), worst)
        if worst > tolerance:
            row = int(relative.max(axis=1).argmax())
            own = float((self._rounding(row, want, inputs) / scale[row]).max())
            if own >= worst / 4:
                self._refuse(
                    kind,
                    row,
                    got,
                    want,
                    f"a difference of {worst:.3g} of the action range (tolerance {tolerance:.3g}), but this is the "
                    f"rounding of float32: predict() itself is {own:.3g} away from exact arithmetic there",
                    cure=f"the file is as good as the model; pass {'extreme_' if kind == 'extreme' else ''}tolerance",
                )
            self._refuse(
                kind, row, got, want, f"a difference of {worst:.3g} of the action range (tolerance {tolerance:.3g})"
            )

    def _refuse(self, kind: str, row: int, got: Floats, want: NDArray[Any], what: str, cure: str | None = None) -> None:
        raise ExportError(
            f"the exported file acts differently from predict() on a {kind} observation: {what}",
            fault="policy",
            expected=want[row],
            got=got[row],
            cure=cure or "the policy does something that the graph does not hold; nothing was written",
        )

    def _exact(self) -> PolicyGraph:
        """The net in float64."""
        if self._reference is None:
            self._reference = copy.deepcopy(self.plan.net).as_reference()
        return self._reference

    def _rounding(self, row: int, want: NDArray[Any], inputs: tuple[th.Tensor, ...]) -> NDArray[np.float64]:
        """How far predict() is from exact arithmetic at a row."""
        with th.no_grad():
            exact = self._exact()(*(tensor[row : row + 1] for tensor in inputs))[0]
        return np.asarray(np.abs(exact.double().cpu().numpy()[0] - want[row].astype(np.float64)), np.float64)

    def _is_tie(self, row: int, got: Floats, want: NDArray[Any], inputs: tuple[th.Tensor, ...]) -> bool:
        one = tuple(tensor[row : row + 1] for tensor in inputs)
        with th.no_grad():
            here = [s[0].double().cpu().numpy() for s in self.plan.net.scores(*one)]
            exact = [s[0].cpu().numpy() for s in self._exact().scores(*one)]
        for a, b, scores, truth in zip(got.astype(int), want.astype(int), here, exact, strict=True):
            rounding = float(np.abs(scores - truth).max()) + 4 * np.finfo(np.float32).eps * float(np.abs(truth).max())
            if a != b and not abs(truth[a] - truth[b]) <= 4 * rounding:
                return False
        return True
