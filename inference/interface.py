"""InferenceInterface: a trained policy that acts in place of the trainer.

The names follow the Unreal plugin's `UInferenceInterface` (LoadModel, RunInference, IsModelLoaded).
An implementation turns a batch of observations into a batch of actions; it knows no socket, no engine
and no clock. Only NumPy is needed here.

Two policies agree, or one and an engine, where their numbers mean the same: names and their order (of single numbers,
too, where both sides have them; an engine may rename them), kinds, shapes, counts and lowest choices, and of actions
the bounds. What may differ: the bounds and dtypes of observations, which say nothing of where a number stands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.metadata import OBSERVATION, PolicyMetadata, tree_from_json, tree_to_json
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spaces.names import Names, first_moved
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.space_text import space_text
from ue_rl.system.errors import ConfigurationError, ModelLoadError, ModelMismatch

ModelPath: TypeAlias = "str | PathLike[str]"
Observations: TypeAlias = "NDArray[Any] | Mapping[str, NDArray[Any]]"
Floats = NDArray[np.float32]
State = dict[str, Floats]  # by name, the rows first; empty where the policy is not recurrent


class InferenceInterface(ABC):
    """A policy that can be loaded and run.

    Not thread-safe unless an implementation says so; a recurrent policy keeps one state per row between calls.
    """

    @abstractmethod
    def load_model(self, path: ModelPath) -> None:
        """Load the policy at `path`. When that fails, the policy loaded before stays in use.

        Raises:
            ModelLoadError: the file is missing or is not a readable policy.
            ModelMismatch: its names or sizes do not fit.
            ModelOutputError: it gives NaN, or a wrong shape or dtype.
        """

    @abstractmethod
    def is_model_loaded(self) -> bool:
        """Whether run_inference can be called."""

    @abstractmethod
    def run_inference(self, observations: Observations) -> NDArray[np.float32]:
        """Actions for a batch of observations.

        Args:
            observations: float32 [N, obs_size], one row per agent.

        Returns:
            float32 [N, act_size]: continuous actions in the units of the env, discrete ones as whole numbers
            from 0. The caller owns the array.
        """

    def run_inference_for(
        self, agents: Sequence[Hashable], observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> NDArray[np.float32]:
        """As run_inference, for agents by number: a recurrent policy keeps one state per agent, whoever else is asked.

        Args:
            agents: whose observation each row is; reset() takes the same numbers. Don't mix with run_inference.
            observations: one row per agent.
            action_masks: [N, choices], 1 = legal; ignored by a policy that takes none (`takes_masks`).

        Raises:
            ModelMismatch: no masks for a policy that must be given them (`needs_masks`).
        """
        return self.run_inference(observations)

    @property
    def takes_masks(self) -> bool:
        """Whether run_inference_for heeds action masks."""
        return False

    @property
    def needs_masks(self) -> bool:
        """Whether a call without action masks is refused: the policy must be told which choices are legal."""
        return False

    def reset(self, rows: Sequence[Any] | None = None) -> None:  # noqa: B027 (nothing to do is a full answer)
        """A new episode begins in `rows`, or for these agents (None: for all of them).

        A recurrent policy forgets its state there; others have nothing to forget.
        """

    @property
    def obs_size(self) -> int | None:
        """Numbers per observation; None where the model does not say."""
        return None

    @property
    def act_size(self) -> int | None:
        """Numbers per action; None where the model does not say."""
        return None

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """What observations and actions are, in the form of `tree_from_json`; None where the model does not say."""
        return None, None

    @property
    def number_names(self) -> Names:
        """Of each number of an observation, and of an action; () where the model does not say."""
        return (), ()

    def require_spaces(self, spec: EnvSpec, *, as_trainer: bool = False) -> None:
        """Refuse a model that is made for other observations or actions than an engine has.

        Args:
            spec: the engine's handshake. as_trainer: the model is fed from an env class such as UnrealVecEnv, whose
                observations have names, and not from the engine's rows.

        Raises:
            ModelLoadError: no model is loaded.
            ModelMismatch: other sizes; or names, kinds, shapes, counts or lowest choices, as far as both sides say; or
                single numbers in another order; or the policy needs action masks, which the engine does not send.
        """
        self.require(spec.seen_size, spec.act_size)
        self.require_masks(spec)
        found = with_engine(spec, *self.spaces, self.number_names, as_trainer=as_trainer)
        if found is not None:
            raise ModelMismatch(
                "the model is made for another engine: its numbers mean something else",
                **found._asdict(),
                cure="load the model that was trained for this env",
            )

    def require_masks(self, spec: EnvSpec) -> None:
        """Refuse an engine that does not say which choices are legal, for a policy that must be told.

        Raises:
            ModelMismatch: such a pair.
        """
        if self.needs_masks and not spec.mask_size:
            got = ", ".join(sorted(spec.features)) or "none"
            raise ModelMismatch(
                "the policy must be told which choices are legal, and the engine does not say it",
                fault="caller",
                field="FEATURES",
                expected="MASK, and a MASK in each state",
                got=got,
                cure="send the masks of the training (bridges: MASK, docs/protocol.md), or export the model with "
                "`ue-rl export --masks optional`",
            )

    def require(self, obs_size: int, act_size: int) -> None:
        """Refuse a model whose sizes are not these.

        Raises:
            ModelLoadError: no model is loaded.
            ModelMismatch: naming the model's sizes and the required ones.
        """
        if not self.is_model_loaded():
            raise ModelLoadError("no model is loaded", cure="call load_model first")
        mine = (self.obs_size, self.act_size)
        if any(own not in (None, need) for own, need in zip(mine, (obs_size, act_size), strict=True)):
            raise ModelMismatch(
                "the model and the env have different sizes",
                expected=f"{obs_size} observation numbers and {act_size} action numbers, as the env has",
                got=f"{mine[0]} observation numbers and {mine[1]} action numbers, as the model has",
                cure="load the model that was trained for this env, or set the env's sizes to the model's",
            )


def missing_masks(name: str, shape: tuple[int, ...]) -> ModelMismatch:
    """The error for a call without the masks of a policy that must be given them.

    Args:
        name: of the input. shape: that they should have.
    """
    return ModelMismatch(
        "the policy must be told which choices are legal: it was trained with action masks",
        fault="caller",
        field=name,
        expected=f"action masks of shape {list(shape)}, 1 = legal",
        got="none",
        cure="pass action_masks, ones where every choice is legal; or export the model with optional_masks=True",
    )


class Difference(NamedTuple):
    """The first one found: the part's name, and both sides as texts."""

    field: str
    expected: str
    got: str


def between_files(old: PolicyMetadata, new: PolicyMetadata) -> Difference | None:
    """What keeps `new` from taking the place of `old`; None: whoever uses the one can use the other."""
    found = between_spaces(old.observed, new.observed, "observation_space") or between_spaces(
        old.acted, new.acted, "action_space", bounds=True
    )
    names = [("obs_name", old.obs_names, new.obs_names), ("act_name", old.act_names, new.act_names)]
    fields = [(f"{kind}.{at}", *pair) for kind, *both in names for at, pair in enumerate(zip(*both, strict=False))]
    texts: list[tuple[str, ...]] = [*fields, ("input", _fed(old), _fed(new))]
    return found or next((Difference(*text) for text in texts if text[1] != text[2]), None)


def with_engine(
    spec: EnvSpec,
    observed: Space | None,
    acted: Space | None,
    names: Names = ((), ()),
    *,
    as_trainer: bool = False,
    says_actions: bool = False,
) -> Difference | None:
    """What keeps a model from acting in the engine of `spec`, beside the sizes.

    An engine is taken at what it says: where it is silent, whatever has the right size fits. A model that takes one
    plain row fits every observation.

    Args:
        observed, acted: the model's trees in the form of `tree_from_json`; None where it does not say. names: of its
            numbers.
        as_trainer: the model acts where a trainer does: observations have names, in whatever order, and an engine of
            version 1 that is silent about its actions takes a Box.
        says_actions: the engine has said its actions, even if they are what silence means.
    """
    if spec.groups:
        spec, *others = (group.spec for group in spec.groups)
        if any(other != spec for other in others):
            return None  # each group has a policy of its own
    moved = first_moved(spec.number_names(by_name=as_trainer), names)
    if moved is not None:
        return Difference(*moved)
    plain = isinstance(observed, Leaf) and observed.kind is LeafKind.BOX and len(observed.shape) == 1
    if spec.obs_space is not None and observed is not None and not plain:
        theirs = tree_from_json(tree_to_json(spec.obs_space, spec.image))
        found = between_spaces(theirs, observed, "OBS_SPACE", by_name=as_trainer)
        if found is not None:
            return found
    special = spec.action_spec != ActionSpec.box(spec.act_size)
    if acted is None or not (special or says_actions or (as_trainer and spec.version)):
        return None
    return between_spaces(tree_from_json(tree_to_json(spec.action_spec.tree)), acted, "ACT_SPACE", bounds=special)


def between_spaces(
    expected: Space, got: Space, field: str, *, bounds: bool = False, by_name: bool = False
) -> Difference | None:
    """The first difference of two trees, both in the form of `tree_from_json`."""
    if isinstance(expected, Leaf) or isinstance(got, Leaf):
        if isinstance(expected, Leaf) and isinstance(got, Leaf) and _same(expected, got, bounds):
            return None
        return Difference(field, _text(expected, bounds), _text(got, bounds))
    names, others = ([name for name, _ in tree.parts] for tree in (expected, got))
    if by_name:
        names = sorted(names)
        others = sorted(others)
    if expected.named != got.named or names != others:
        return Difference(field, _text(expected, bounds), _text(got, bounds))
    parts = dict(got.parts)
    for name, part in expected.parts:
        found = between_spaces(part, parts[name], f"{field}.{name}", bounds=bounds, by_name=by_name)
        if found is not None:
            return found
    return None


def _same(one: Leaf, other: Leaf, bounds: bool) -> bool:
    same = (one.kind, one.shape, one.counts, one.starts) == (other.kind, other.shape, other.counts, other.starts)
    if not same or not bounds:
        return same
    return np.allclose(one.low, other.low, rtol=1e-6) and np.allclose(one.high, other.high, rtol=1e-6)


def _text(space: Space, bounds: bool) -> str:
    if isinstance(space, Branch):
        kind = "TUPLE"
        if space.named:
            kind = "DICT"
        return f"{kind} of {', '.join(name for name, _ in space.parts)}"
    if space.low and not bounds:
        return f"{space.kind.value} [{', '.join(map(str, space.shape))}]"
    return space_text(space)


def _fed(metadata: PolicyMetadata) -> str:
    """What is fed, as text: the observation's parts, and the kinds of the rest: a state's size is the net's own."""
    parts = [f"{port.name} {list(port.shape)}" for port in metadata.ports(OBSERVATION)]
    rest = sorted({port.role for port in metadata.inputs} - {OBSERVATION})
    return f"{', '.join([*parts, *rest])}; {'sampled' if metadata.stochastic else 'deterministic'}"


class StatefulInference(InferenceInterface):
    """Keeps one state per row (run_inference) or per agent (run_inference_for); a subclass does the step."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._starts: NDArray[np.bool_] | None = None  # [rows], True where an episode begins; None: everywhere
        self._agents: dict[Hashable, State] = {}

    @property
    @abstractmethod
    def is_recurrent(self) -> bool:
        """Whether the policy carries a state from step to step; then it heeds no action masks."""

    @abstractmethod
    def run_inference(self, observations: Observations, *, action_masks: NDArray[Any] | None = None) -> Floats:
        """See InferenceInterface; the masks are those of run_inference_for."""

    @abstractmethod
    def _step(self, observations: Any, state: State | None, starts: NDArray[np.bool_]) -> tuple[Floats, State]:
        """Actions and new states; `state` is None where all rows begin, and void where `starts` [N] is True."""

    def _step_rows(self, observations: Any, n: int) -> Floats:
        """One step of `n` rows, with the states that the rows have."""
        if self._starts is None:
            self._starts = np.ones(n, np.bool_)
        elif len(self._starts) != n:
            raise ModelMismatch(
                "a recurrent policy keeps a state per row, and the number of rows changed",
                field="observations",
                expected=f"{len(self._starts)} rows",
                got=f"{n} rows",
                cure="call reset() before a batch of another size",
            )
        actions, state = self._step(observations, self._state, self._starts)
        if state:
            self._state = state
            self._starts = np.zeros(n, np.bool_)
        else:
            self._state = None
            self._starts = None
        return actions

    def run_inference_for(
        self, agents: Sequence[Hashable], observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> Floats:
        """As run_inference, with a state per agent number; see InferenceInterface.run_inference_for."""
        if not self.is_recurrent:
            masks = None
            if self.takes_masks:
                masks = action_masks
            return self.run_inference(observations, action_masks=masks)
        known = [self._agents.get(agent) for agent in agents]
        like = next((state for state in known if state is not None), None)
        joined: State | None = None
        if like is not None:
            blank = {name: np.zeros_like(array) for name, array in like.items()}
            parts = [blank if state is None else state for state in known]
            joined = {name: np.concatenate([part[name] for part in parts]) for name in blank}
        actions, after = self._step(observations, joined, np.array([state is None for state in known], np.bool_))
        if after:
            for row, agent in enumerate(agents):
                # copies: a view would keep the whole batch alive
                self._agents[agent] = {name: array[row : row + 1].copy() for name, array in after.items()}
        return actions

    def reset(self, rows: Sequence[Any] | None = None) -> None:
        """A new episode begins in `rows`, or of these agents (None: everywhere, with any number of rows)."""
        if rows is None:
            self._agents.clear()
            self._state = self._starts = None
        elif self._agents:
            for agent in rows:
                self._agents.pop(agent, None)
        elif self._starts is not None:
            for row in rows:
                if not 0 <= row < len(self._starts):
                    raise ConfigurationError(
                        "no such row", field="rows", expected=f"0 to {len(self._starts) - 1}", got=row
                    )
                self._starts[row] = True
