"""From the bytes of an ONNX file to a LoadedModel; used by onnx.py.

All checks of a file's names, types and shapes are here, before anything is run. Needs NumPy and onnxruntime only.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.interface import Observations
from ue_rl.inference.metadata import ACTIONS, METADATA_KEY, OBSERVATION, STATE, PolicyMetadata, is_intact
from ue_rl.protocol.spaces.tree import bounds, choices
from ue_rl.system.errors import ConfigurationError, ModelLoadError, ModelMismatch, ModelOutputError, words_of
from ue_rl.system.onnx_runtime import import_onnxruntime

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Shape = tuple["int | None", ...]
_FLOAT = "tensor(float)"
# of a file without a description
_INPUT = "obs"
_OUTPUT = "actions"
_BOUND_SIZE = 4096  # numbers; beyond, the net takes so long that the way there does not matter
_BOUND_COUNTS = 64  # as many batch sizes keep memory of their own


class LoadedModel:
    """A session of onnxruntime and how to feed it; the sizes are None where the file does not say.

    Args:
        observed: (name, shape) of each observation input by its key (where it has none, by its name).
        fixed_batch: the only number of rows that the file takes; None: any.
        optional: the names of the inputs that have a default in the file.
    """

    def __init__(
        self,
        session: Any,
        metadata: PolicyMetadata | None,
        observed: dict[str, tuple[str, Shape]],
        output_name: str,
        act_size: int | None,
        fixed_batch: int | None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self.session = session
        self.optional = optional
        self.metadata = metadata
        self.output_name = output_name
        self.act_size = act_size
        self.fixed_batch = fixed_batch
        self.observed = observed
        if metadata:
            self.side_inputs = tuple(port for port in metadata.inputs if port.role != OBSERVATION)
            self.state_inputs = metadata.ports(STATE)
            state_outputs = metadata.ports(STATE, "outputs")
        else:
            self.side_inputs = ()
            self.state_inputs = ()
            state_outputs = ()
        self._state_names = [str(port.key) for port in state_outputs]
        self._fetch = [output_name, *(port.name for port in state_outputs)]
        shapes = [shape for _, shape in observed.values()]
        self._sizes = [math.prod(dim for dim in shape if dim is not None) for shape in shapes]
        known = all(None not in shape for shape in shapes)
        if not known:
            self.obs_size = None
        else:
            self.obs_size = sum(self._sizes)
        self.provider = str(session.get_providers()[0])
        self._run = session.run
        self._name, self._row_shape = next(iter(observed.values()))
        self._bindable = self.provider == "CPUExecutionProvider"
        self._bound: dict[int, tuple[Any, Floats, Floats]] = {}
        self._lock = Lock()  # the bound memory serves one call at a time; a concurrent call does without it
        self._wrong = partial(ModelOutputError, fault="model", field=output_name)
        if metadata is None:
            self._choices = {}
        else:
            self._choices = _choices(metadata)
        # Whether run_direct may be tried: one input, no state, no noise, any batch.
        self.direct = known and len(observed) == 1 and not self.side_inputs and fixed_batch is None

    def run_direct(self, observations: Any) -> Floats | None:
        """The shortest way for what is nearly every call: a float32 array that fits. None: take the long way.

        Invalid observations or outputs also give None: the long way then raises the named error.
        """
        if (
            type(observations) is not np.ndarray
            or observations.dtype != np.float32
            or observations.shape[1:] != self._row_shape
            or not observations.flags.c_contiguous
            or not observations.size
            or np.count_nonzero(np.isfinite(observations)) != observations.size
            or (self._choices and not self._choices[self._name].fit(observations).all())
        ):
            return None
        try:
            if observations.size <= _BOUND_SIZE and self._bindable and self._lock.acquire(blocking=False):
                try:
                    actions: Any = self._run_bound(observations)
                finally:
                    self._lock.release()
            else:
                actions = self._run(self._fetch, {self._name: observations})[0]
        except Exception:  # noqa: BLE001 (the long way raises it again, as a named error)
            return None
        if actions.dtype != np.float32 or actions.shape != (len(observations), self.act_size):
            return None
        # Counting takes half the time of all().
        return actions if np.count_nonzero(np.isfinite(actions)) == actions.size else None

    def _run_bound(self, observations: Floats) -> Floats:
        """One call on memory that onnxruntime already knows; saves it a third of the time for a small net."""
        n = len(observations)
        bound = self._bound.get(n)
        if bound is None:
            if len(self._bound) >= _BOUND_COUNTS:
                return self._run(self._fetch, {self._name: observations})[0]  # type: ignore[no-any-return]
            taken = np.empty(observations.shape, np.float32)
            act_size = self.act_size
            if not act_size:
                act_size = 0
            given = np.empty((n, act_size), np.float32)
            binding = self.session.io_binding()
            binding.bind_input(self._name, "cpu", 0, np.float32, taken.shape, taken.ctypes.data)
            binding.bind_output(self.output_name, "cpu", 0, np.float32, given.shape, given.ctypes.data)
            bound = self._bound[n] = (binding, taken, given)
        binding, taken, given = bound
        taken[...] = observations
        self.session.run_with_iobinding(binding)
        return given.copy()

    def zero_state(self, n: int) -> dict[str, Floats]:
        """The state of `n` rows before their first step; empty if the policy is not recurrent."""
        return {port.name: np.zeros((n, *port.shape), np.float32) for port in self.state_inputs}

    def run(self, feeds: dict[str, Floats], n: int, batch_size: int | None) -> tuple[Floats, dict[str, Floats]]:
        """The checked actions of `n` rows, at most `batch_size` per call of onnxruntime, and their new state."""
        if n == 0:
            act_size = self.act_size
            if not act_size:
                act_size = 0
            return np.zeros((0, act_size), np.float32), self.zero_state(0)
        limit = self.fixed_batch or batch_size or n
        if self.fixed_batch and n % limit:
            cure = "export the model with a dynamic batch"
            raise _mismatch("the model has a fixed batch", f"a multiple of {limit} rows", f"{n} rows", cure=cure)
        if n <= limit:
            outputs = self._call(feeds)
        else:
            parts = [{name: array[at : at + limit] for name, array in feeds.items()} for at in range(0, n, limit)]
            outputs = [np.concatenate(pieces) for pieces in zip(*map(self._call, parts), strict=True)]
        self._check(outputs[0], n)
        return outputs[0], dict(zip(self._state_names, outputs[1:], strict=True))

    def _call(self, feeds: dict[str, Floats]) -> list[Any]:
        try:
            return list(self._run(self._fetch, feeds))
        except Exception as error:  # onnxruntime's errors share no base class of their own
            raise ModelOutputError(
                "onnxruntime could not run the model",
                got=f"{type(error).__name__}: {error}",
                cure="export the model again",
            ) from error

    def _check(self, actions: Any, n: int) -> None:
        if type(actions) is not np.ndarray or actions.dtype != np.float32:
            got = str(getattr(actions, "dtype", type(actions).__name__))
            raise self._wrong("the model gave another type than float32", expected="float32", got=got)
        if actions.ndim != 2 or actions.shape != (n, self.act_size or actions.shape[1]):
            raise self._wrong(
                "the model gave a wrong shape", expected=(n, self.act_size or "act_size"), got=actions.shape
            )
        if not np.isfinite(actions).all():
            row = int(np.flatnonzero(~np.isfinite(actions).all(axis=1))[0])
            raise self._wrong(
                "the model gave NaN or infinity",
                env_id=row,
                expected="finite numbers",
                got=actions[row],
                cure="the weights may hold NaN: export an earlier checkpoint",
            )

    def as_feeds(self, observations: Observations) -> tuple[dict[str, Floats], int]:
        """Observations as contiguous float32 arrays by input name, and the number of rows."""
        if not isinstance(observations, Mapping):
            if len(self.observed) > 1:
                return self._split(observations)
            if self.metadata is not None and self.metadata.flat_input and np.ndim(observations) > 2:
                observations = np.reshape(observations, (len(observations), -1))
            array = _as_rows(observations, self._name, self._row_shape)
            return self._checked({self._name: array}), len(array)
        parts = {}
        if self.metadata and self.metadata.flat_input:
            parts = self.metadata.observation_space.get("spaces", {})
        if parts and set(observations) == set(parts):  # one input for all of them, in the order of the engine's row
            rows = [np.asarray(observations[key]) for key in parts]
            return self.as_feeds(np.concatenate([part.reshape(len(part), -1) for part in rows], axis=1))
        if set(observations) != set(self.observed):
            raise ModelMismatch(
                "the keys of the observation differ from the model's",
                field="observations",
                expected=sorted(self.observed),
                got=sorted(map(str, observations)),
            )
        feeds = {name: _as_rows(observations[key], name, shape) for key, (name, shape) in self.observed.items()}
        counts = {name: len(array) for name, array in feeds.items()}
        if len(set(counts.values())) != 1:
            raise ModelMismatch("the keys have different numbers of rows", got=counts)
        return self._checked(feeds), next(iter(counts.values()))

    def _checked(self, feeds: dict[str, Floats]) -> dict[str, Floats]:
        """`feeds`, where each choice in them is one: a net would take another for its nearest, or for none."""
        for name, of in self._choices.items():
            fits = of.fit(feeds[name])
            if not fits.all():
                row, number = np.argwhere(~fits)[0].tolist()
                low, high, at = (int(part[number]) for part in (of.low, of.high, of.columns))
                raise ConfigurationError(
                    "the observation is not of the model's space",
                    env_id=row,
                    field=name,
                    expected=f"an integer from {low} to {high} as number {at}",
                    got=feeds[name].reshape(len(feeds[name]), -1)[row, at].item(),
                    cure="send what the model was trained on: choices as the engine counts them",
                )
        return feeds

    def _split(self, observations: Any) -> tuple[dict[str, Floats], int]:
        flat = _as_rows(observations, "observations", (self.obs_size,))
        feeds = {}
        at = 0
        for (name, shape), size in zip(self.observed.values(), self._sizes, strict=True):
            part = flat[:, at : at + size].reshape(len(flat), *(dim or 1 for dim in shape))
            feeds[name] = np.ascontiguousarray(part)
            at += size
        return self._checked(feeds), len(flat)


class _Choices(NamedTuple):
    """Which numbers of an input's rows are choices, with the lowest and the highest one of each; [choices] each."""

    columns: NDArray[np.intp]
    low: Floats
    high: Floats

    def fit(self, array: Floats) -> NDArray[np.bool_]:
        """Of each row and choice, whether it is one."""
        given = array.reshape(len(array), -1)[:, self.columns]
        fits: NDArray[np.bool_] = (given >= self.low) & (given <= self.high) & (given == np.rint(given))
        return fits


def _choices(metadata: PolicyMetadata) -> dict[str, _Choices]:
    """By the name of the input; only of inputs that have some."""
    parts = dict(metadata.observed.parts)
    found = {}
    for port in metadata.ports(OBSERVATION):
        if port.key is not None:
            tree = parts.get(port.key)
        else:
            tree = metadata.observed
        if tree is not None and choices(tree).any():
            columns = np.flatnonzero(choices(tree))
            low, high = bounds(tree)
            found[port.name] = _Choices(columns, low[columns], high[columns])
    return found


def _as_rows(array: Any, name: str, shape: Shape) -> Floats:
    """`array` as contiguous, finite float32 [N, *shape]; flat rows are given the shape."""
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    if array.dtype != np.float32:
        if array.dtype.kind not in "fiub":
            raise ModelMismatch(
                "observations must be real numbers",
                field=name,
                expected="float32",
                got=str(array.dtype),
            )
        with np.errstate(over="ignore"):  # reported below as not finite
            array = array.astype(np.float32)
    dims = array.shape[1:]
    if array.ndim == 0 or len(dims) != len(shape) or any(s is not None and d != s for d, s in zip(dims, shape)):  # noqa: B905
        if array.ndim == 2 and None not in shape and dims[0] == math.prod(s or 1 for s in shape):
            array = array.reshape(len(array), *(s or 1 for s in shape))
        else:
            wanted = ", ".join("any" if s is None else str(s) for s in shape)
            one = array.ndim == len(shape)
            cure = "load the model that belongs to this env"
            if one:
                cure = "add a batch axis: observations[None]"
            raise ModelMismatch(
                "observations have a wrong shape",
                field=name,
                expected=f"[N, {wanted}]",
                got=list(array.shape),
                cure=cure,
            )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
        raise ConfigurationError(
            "the observation holds NaN or infinity", env_id=row, field=name, expected="finite numbers"
        )
    return np.ascontiguousarray(array)


def unreadable(path: object, error: OSError) -> ModelLoadError:
    """The error for a file that cannot be read."""
    got = words_of(error)
    return ModelLoadError(f"the model {path} cannot be read", got=got, cure="check the path")


def load_session(content: bytes, *, name: str, providers: list[str], threads: int) -> LoadedModel:
    """Make a session of the bytes of a file and check its names, types and shapes.

    Raises:
        ModelLoadError: not an ONNX model or not as it was exported, or onnxruntime is missing or refuses it.
        ModelMismatch: wrong names or shapes.
        ModelOutputError: an output that is not float32.
    """
    try:
        ort = import_onnxruntime()
    except ImportError as error:
        raise ModelLoadError(
            "onnxruntime is not installed", cure="install it with: pip install 'ue_rl[inference]'"
        ) from error
    offered = ort.get_available_providers()
    usable = [provider for provider in providers if provider in offered]
    if not usable:
        raise ConfigurationError(
            "this onnxruntime has none of the providers asked for",
            field="providers",
            expected=offered,
            got=providers,
            cure="for CUDA install onnxruntime-gpu",
        )
    if len(usable) < len(providers):
        missing = [provider for provider in providers if provider not in usable]
        logger.warning("this onnxruntime lacks %s; going on with the rest", ", ".join(missing))
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # failures come as exceptions; no second report on stderr
    try:
        session = ort.InferenceSession(content, sess_options=options, providers=usable)
        text = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    except Exception as error:  # onnxruntime's errors share no base class of their own
        raise ModelLoadError(
            f"{name} is not a readable ONNX model",
            fault="model",
            got=f"{len(content)} bytes; {type(error).__name__}: {error}",
            cure="it may be cut short, still being written, or keep its weights in a second file: export it again",
        ) from error
    if not is_intact(content):
        raise ModelLoadError(
            f"{name} is not as it was exported: it is damaged, or was changed",
            fault="model",
            expected="the sha256 in its description",
            got=f"{len(content)} bytes with another one",
            cure="copy or export it again; after a change on purpose: `ue-rl export MODEL --adopt FILE`",
        )
    if text is None:
        metadata = None
    else:
        metadata = PolicyMetadata.from_json(text)
    return _fit(session, metadata, name)


def _mismatch(
    message: str, expected: object = None, got: object = None, *, field: str | None = None, cure: str | None = None
) -> ModelMismatch:
    return ModelMismatch(message, fault="model", field=field, expected=expected, got=got, cure=cure)


def _fit(session: Any, metadata: PolicyMetadata | None, name: str) -> LoadedModel:
    optional = {node.name: node for node in session.get_overridable_initializers()}  # action masks have a default
    inputs = {node.name: node for node in session.get_inputs()}
    if metadata:
        wanted = {port.name for port in metadata.inputs}
    else:
        wanted = set()
    inputs |= {name: node for name, node in optional.items() if name in wanted}
    outputs = {node.name: node for node in session.get_outputs()}
    if metadata:
        wanted_in = [port.name for port in metadata.inputs]
        wanted_out = [port.name for port in metadata.outputs]
    else:
        wanted_in = [_INPUT]
        wanted_out = [_OUTPUT]
    output_name = _OUTPUT
    if metadata:
        output_name = metadata.ports(ACTIONS, "outputs")[0].name
        keys = {port.key for port in metadata.ports(STATE, "outputs")}
        if keys != {port.name for port in metadata.ports(STATE)}:
            raise _mismatch(f"{name}: the states that come out are not those that go in", got=keys)
    cure = "export it with ue_rl, or with {}={}"
    if set(inputs) != set(wanted_in):
        message = f"{name} has other inputs than expected"
        raise _mismatch(message, wanted_in, list(inputs), cure=cure.format("input_names", wanted_in))
    if not set(wanted_out) <= set(outputs):
        message = f"{name} lacks an output"
        raise _mismatch(message, wanted_out, list(outputs), cure=cure.format("output_names", wanted_out))
    for node in inputs.values():
        if node.type != _FLOAT:
            cure = "leave inputs and outputs float32 (keep_io_types=True of onnxconverter-common)"
            raise _mismatch(f"{name} takes another type than float32", _FLOAT, node.type, field=node.name, cure=cure)
        if len(node.shape) < 2:
            message = f"{name} has an input without a batch axis"
            raise _mismatch(message, "[N, obs_size]", node.shape, field=node.name)
    for key in wanted_out:
        if outputs[key].type != _FLOAT:
            raise ModelOutputError(
                f"{name} gives another type than float32",
                field=key,
                expected=_FLOAT,
                got=outputs[key].type,
                cure="cast the output to float in the graph: the plugin reads it as float*",
            )
    fed = [node for name, node in inputs.items() if name not in optional]
    batches = [node.shape[0] for node in fed if isinstance(node.shape[0], int) and node.shape[0]]
    shapes = {key: tuple(d if isinstance(d, int) else None for d in node.shape[1:]) for key, node in inputs.items()}
    disagree = f"{name}: the graph and its description disagree"
    observed = {}
    if metadata is None:
        observed = {_INPUT: (_INPUT, shapes[_INPUT])}
    for port in metadata.inputs if metadata else ():
        told = shapes[port.name]
        if len(told) != len(port.shape) or any(t not in (None, p) for t, p in zip(told, port.shape, strict=True)):
            raise _mismatch(disagree, port.shape, told, field=port.name, cure="export the model again")
        if port.role == OBSERVATION:
            observed[port.name if port.key is None else port.key] = (port.name, port.shape)
    if not metadata:
        act_size = None
    else:
        act_size = metadata.act_size
    out_shape = outputs[output_name].shape
    if out_shape and (len(out_shape) != 2 or out_shape[1] == 0):
        raise _mismatch(f"{name} gives actions of a wrong shape", "[N, act_size]", out_shape)
    if out_shape and isinstance(out_shape[1], int):
        if act_size not in (None, out_shape[1]):
            raise _mismatch(disagree, act_size, out_shape[1], field=output_name)
        act_size = out_shape[1]
    fixed = next(iter(batches), None)
    return LoadedModel(session, metadata, observed, output_name, act_size, fixed, frozenset(optional))
