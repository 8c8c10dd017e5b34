"""OnnxInference: runs an exported policy with NumPy and onnxruntime alone.

Rules: a file is read whole, checked whole and run once before it replaces the model in use, so a bad file never does.
The description in the file (see metadata.py) decides how it is fed; a file without a description is taken
if it has one float32 input `obs` and one float32 output `actions`, as the Unreal plugin expects. Each number
that goes in or comes out is checked to be finite: an argmax would turn a NaN into action 0 silently.

What this does not do: no torch, no Stable-Baselines3, no normalisation or clipping of its own (that is in the graph).
Calls with a state or a noise input (recurrent, stochastic) belong to one thread; others may come from many.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.interface import Floats, ModelPath, Observations, State, StatefulInference, missing_masks
from ue_rl.inference.metadata import ACTION_MASKS, EPISODE_START, NOISE, STATE, PolicyMetadata, TensorInfo
from ue_rl.inference.runtime.loading import LoadedModel, load_session, unreadable
from ue_rl.protocol.spaces.names import Names
from ue_rl.protocol.spaces.tree import Space
from ue_rl.system.errors import ConfigurationError, ModelLoadError, ModelMismatch
from ue_rl.system.files import require_file

logger = logging.getLogger(__name__)


class OnnxInference(StatefulInference):
    """An ONNX policy. It can be pickled and deep-copied, by the bytes of its file: the copy has a session of its own.

    Args:
        path: the file to load now; None to call load_model later.
        providers: onnxruntime execution providers in order of preference, such as
            ["CUDAExecutionProvider", "CPUExecutionProvider"]; default: the CPU.
        intra_op_threads: onnxruntime's threads; 1 is fastest for the nets of most policies.
        batch_size: rows per call of onnxruntime; a larger batch is split. None: whole batches.
        warm_up: batch sizes to run once while loading, so that no first call is slow.
        seed: of the noise of a stochastic policy; None: a fresh one each time.

    Raises:
        ModelLoadError, ModelMismatch, ModelOutputError: as load_model.
    """

    def __init__(
        self,
        path: ModelPath | None = None,
        *,
        providers: Sequence[str] | None = None,
        intra_op_threads: int = 1,
        batch_size: int | None = None,
        warm_up: Sequence[int] = (1,),
        seed: int | None = None,
    ) -> None:
        super().__init__()
        for name, value in (
            ("intra_op_threads", intra_op_threads),
            ("batch_size", 1 if batch_size is None else batch_size),
            *(("warm_up", n) for n in warm_up),
        ):
            if value < 1:
                raise ConfigurationError("must be 1 or more", field=name, got=value)
        if providers is None:
            providers = ["CPUExecutionProvider"]
        self._options: dict[str, Any] = {
            "providers": list(providers),
            "threads": intra_op_threads,
        }
        self._batch_size = batch_size
        self._warm_up = tuple(warm_up)
        self._seed = seed
        self._rng: Any = None  # made when noise is drawn: importing numpy.random costs 6 MB
        self._model: LoadedModel | None = None
        self._file: tuple[bytes, str] | None = None  # what the model was loaded from, for copies
        if path is not None:
            self.load_model(path)

    # -- loading ---------------------------------------------------------------------------------------------------

    def load_model(self, path: ModelPath) -> None:
        """Load the policy at `path`; see InferenceInterface.load_model."""
        try:
            require_file(path)
            content = Path(path).read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error
        self.load_bytes(content, name=str(path))

    def load_bytes(self, content: bytes, name: str = "model") -> None:
        """Load a policy from memory; `name` is used for it in messages. Raises as load_model does."""
        model = load_session(content, name=name, **self._options)
        self._try_out(model)
        self._model = model
        self._file = (content, name)
        self.reset()
        algorithm = "no description"
        if model.metadata:
            algorithm = model.metadata.algorithm
        sizes = (model.obs_size, model.act_size)
        logger.info("loaded %s: %s, %s -> %s numbers, on %s", name, algorithm, *sizes, model.provider)

    def __getstate__(self) -> dict[str, Any]:
        """All but the session, which onnxruntime cannot copy."""
        return {**self.__dict__, "_model": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Loads the same bytes; raises as load_bytes does. States of agents and random numbers go on as they were."""
        vars(self).update(state)
        if self._file is not None:
            content, name = self._file
            model = load_session(content, name=name, **self._options)
            drawn = self._rng
            self._rng = None
            self._try_out(model)
            self._rng = drawn
            self._model = model

    def _try_out(self, model: LoadedModel) -> None:
        """Run zeros through a model before it is used: wrong shapes, NaN and slow first calls show here."""
        if model.obs_size is None:
            return
        # Two rows as well as one: a graph that adds up over the batch looks right with one.
        if model.fixed_batch:
            sizes = [model.fixed_batch]
        else:
            sizes = sorted({1, 2, *self._warm_up})
        for n in sizes:
            shapes = {name: (n, *(dim or 1 for dim in shape)) for name, shape in model.observed.values()}
            zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
            masked = next((port for port in model.side_inputs if port.role == ACTION_MASKS), None)
            allowed = None
            if masked is not None:
                allowed = np.ones((n, *masked.shape), np.float32)
            actions, _ = self._feed(model, zeros, n, masks=allowed)
            if model.act_size is None:
                model.act_size = actions.shape[1]

    def is_model_loaded(self) -> bool:
        """Whether a model is in use."""
        return self._model is not None

    @property
    def metadata(self) -> PolicyMetadata | None:
        """The description in the file; None for a file without one."""
        return self._loaded().metadata

    @property
    def obs_size(self) -> int | None:
        """Numbers per observation, over all keys; None where the file does not say."""
        if self._model:
            return self._model.obs_size
        return None

    @property
    def act_size(self) -> int | None:
        """Numbers per action; None where the file does not say."""
        if self._model:
            return self._model.act_size
        return None

    @property
    def spaces(self) -> tuple[Space | None, Space | None]:
        """See InferenceInterface.spaces."""
        metadata = self.metadata
        if metadata is None:
            return (None, None)
        return (metadata.observed, metadata.acted)

    @property
    def number_names(self) -> Names:
        """See InferenceInterface.number_names."""
        metadata = self.metadata
        if metadata is None:
            return ((), ())
        return (metadata.obs_names, metadata.act_names)

    @property
    def fixed_batch(self) -> int | None:
        """The only number of rows that the file takes in one call; None: any."""
        return self._loaded().fixed_batch

    @property
    def provider(self) -> str:
        """The execution provider that onnxruntime really uses."""
        return self._loaded().provider

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy carries a state from step to step."""
        return bool(self._loaded().state_inputs)

    @property
    def takes_masks(self) -> bool:
        """Whether the policy heeds action masks."""
        return any(port.role == ACTION_MASKS for port in self._loaded().side_inputs)

    @property
    def needs_masks(self) -> bool:
        """Whether it must be given them; False also where the file says that without any every choice is legal."""
        model = self._loaded()
        return any(port.role == ACTION_MASKS and port.name not in model.optional for port in model.side_inputs)

    def _loaded(self) -> LoadedModel:
        if self._model is None:
            raise ModelLoadError("no model is loaded", cure="call load_model first")
        return self._model

    # -- running ---------------------------------------------------------------------------------------------------

    def run_inference(self, observations: Observations, *, action_masks: NDArray[Any] | None = None) -> Floats:
        """Actions for a batch of observations.

        A recurrent policy keeps one state per row, so row i must be the same agent in each call; call reset()
        when the number of rows changes and reset([i]) when agent i begins a new episode.

        Args:
            observations: [N, obs_size], numbers of any real dtype (float32 is not copied); or in the shape of the
                space, [N, *shape]; or for a Dict observation a mapping from key to such an array.
            action_masks: [N, choices], 1 = allowed; for a policy that takes them, as MaskablePPO's files do. None:
                refused where `needs_masks`.

        Returns:
            float32 [N, act_size].

        Raises:
            ModelMismatch: a wrong shape, dtype or key; masks that are missing, or that the policy does not take.
            ConfigurationError: NaN or infinity in the observations.
            ModelOutputError: NaN or infinity, or a wrong shape or dtype, in what the model gave.
        """
        model = self._model
        if model is not None and model.direct and self._batch_size is None and action_masks is None:
            actions = model.run_direct(observations)
            if actions is not None:
                return actions
        model = self._loaded()
        if not model.state_inputs:
            return self.run(observations, action_masks=action_masks)[0]
        plain = type(observations) is np.ndarray and observations.ndim
        if plain:
            count = len(observations)
        else:
            count = model.as_feeds(observations)[1]
        return self._step_rows(observations, count)

    def _step(self, observations: Any, state: State | None, starts: NDArray[np.bool_]) -> tuple[Floats, State]:
        return self.run(observations, state=state, episode_start=starts)

    def run(
        self,
        observations: Observations,
        *,
        state: State | None = None,
        episode_start: NDArray[Any] | None = None,
        noise: NDArray[Any] | None = None,
        action_masks: NDArray[Any] | None = None,
    ) -> tuple[Floats, State]:
        """As run_inference, with all that a policy may need given by the caller; nothing is kept in this object.

        Args:
            observations: as run_inference.
            state: what the call before returned, rows in the same order; None for zeros.
            episode_start: [N] or [N, 1], 1 where a new episode begins; None for nowhere.
            noise: [N, ...] of a stochastic policy; None: drawn here.
            action_masks: as run_inference.

        Returns:
            The actions, float32 [N, act_size], and the state for the next call (empty if not recurrent): each
            array has the rows as its first axis, so rows can be picked and joined.
        """
        model = self._loaded()
        feeds, n = model.as_feeds(observations)
        return self._feed(model, feeds, n, state, noise, action_masks, episode_start)

    def run_raw(self, feeds: dict[str, Floats], output: str) -> NDArray[Any]:
        """One output of the graph by its name, of inputs by their names; nothing is checked."""
        array: NDArray[Any] = self._loaded().session.run([output], feeds)[0]
        return array

    def initial_state(self, n: int) -> State:
        """The state of `n` rows before their first step: zeros; empty if the policy is not recurrent."""
        return self._loaded().zero_state(n)

    def _feed(
        self,
        model: LoadedModel,
        feeds: dict[str, Floats],
        n: int,
        state: State | None = None,
        noise: NDArray[Any] | None = None,
        masks: NDArray[Any] | None = None,
        starts: NDArray[Any] | None = None,
    ) -> tuple[Floats, State]:
        """Run `model` on observations in `feeds`; other inputs that are not given have their defaults, if any."""
        given = {}
        if model.side_inputs:
            given = {NOISE: noise, ACTION_MASKS: masks, EPISODE_START: starts}
        if masks is not None and all(port.role != ACTION_MASKS for port in model.side_inputs):
            what = "this policy takes no action masks"
            cure = "only policies of MaskablePPO do; leave them out"
            raise ModelMismatch(what, field="action_masks", cure=cure)
        for port in model.side_inputs:
            shape = (n, *port.shape)
            if port.role == ACTION_MASKS and masks is None and port.name not in model.optional:
                raise missing_masks(port.name, shape)
            if port.role == STATE and state is not None:
                value = state.get(port.name)
            elif (told := given.get(port.role)) is not None:
                value = np.ascontiguousarray(told, np.float32)
                if port.role == EPISODE_START:
                    value = value.reshape(-1, 1)
            elif port.role == NOISE:
                value = self._draw(shape, port)
            else:  # every choice is allowed, no episode begins, and states begin at zero
                value = np.full(shape, port.role == ACTION_MASKS, np.float32)
            if value is None or value.shape != shape:
                what = f"wrong shape of {port.role.replace('_', ' ')}"
                got = None
                if value is not None:
                    got = value.shape
                raise ModelMismatch(what, field=port.name, expected=shape, got=got)
            feeds[port.name] = value
        return model.run(feeds, n, self._batch_size)

    def _draw(self, shape: tuple[int, ...], port: TensorInfo) -> Floats:
        if self._rng is None:
            self._rng = np.random.default_rng(self._seed)
        if port.distribution != "uniform":
            return self._rng.standard_normal(shape, dtype=np.float32)  # type: ignore[no-any-return]
        drawn: Floats = self._rng.random(shape, dtype=np.float32)
        float32 = np.finfo(np.float32)
        return np.clip(drawn, float32.tiny, np.float32(1.0) - float32.epsneg, out=drawn)
