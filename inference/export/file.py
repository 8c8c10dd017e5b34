"""From a plan to a file: converted, described, compared with what it was made of, and written in one step.

`export_onnx` makes plans of models of Stable-Baselines3, `ue_rl.plugins.rllib.export_rl_module` of RLlib's modules.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.inference.metadata import (
    ACTION_MASKS,
    METADATA_KEY,
    UNSEALED,
    Comparison,
    PolicyMetadata,
    seal,
    space_to_json,
)
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError, ExportError, InferenceError, words_of
from ue_rl.system.versions import installed

logger = logging.getLogger(__name__)

DEFAULT_OPSET = 15  # what Unity's inference engine documents; onnxruntime reads it since 1.10
# One rounding of float32 is 6e-8 of a number, and a net of a few layers adds up some hundred of them. float16, a wrong
# input or a wrong layer are at least ten times as far off (verify.py has the whole rule).
TOLERANCE = 1e-5
N_VERIFY = 10_000
_LARGE = 1000  # numbers of an observation, above which fewer are compared on; see `rows_to_verify`
_VERSIONS = (
    "ue_rl", "stable-baselines3", "sb3-contrib", "torch", "onnx", "onnxruntime", "numpy", "gymnasium", "ray",
)  # fmt: skip
_LIBRARIES = ("torch", "stable_baselines3", "onnx", "onnxruntime")


@dataclass(kw_only=True)
class ExportReport(Comparison):
    """What was exported, and in the attributes of Comparison how well it agrees with predict().

    Attributes:
        path: the file.
        algorithm: such as "PPO".
        metadata: the description in the file.
        num_bytes: size of the file.
        exporter: torch's converter: "torchscript" or "dynamo"; "adopted": another tool made the file.
        seconds: time taken in all.
        reference: what the file was compared with.
    """

    path: Path
    algorithm: str
    metadata: PolicyMetadata
    num_bytes: int
    exporter: str
    seconds: float
    reference: str = "predict()"

    @property
    def reason(self) -> str:
        """Why the file was accepted: "equal" (within the tolerance everywhere), or "rounding" (see rounded, ties)."""
        if self.rounded or self.ties:
            return "rounding"
        return "equal"

    def verdict(self) -> str:
        """How the file compares with what it was made of, for a summary: "equal to predict(), largest .."."""
        rounding = ","
        if self.reason == "rounding":
            rounding = " but for the rounding of float32;"
        return f"equal to {self.reference}{rounding} largest difference {self.max_abs_difference:.1g}"

    def __str__(self) -> str:
        ties = ""
        if self.ties:
            ties = f", {self.ties} ties"
        rounded = ""
        if self.rounded:
            rounded = (
                f", {self.rounded} of them equal but for the rounding of float32 (from exact arithmetic the file is "
                f"{self.file_error:.3g} of the action range away, {self.reference} {self.predict_error:.3g})"
            )
        return (
            f"{self.path}: {self.algorithm}, {self.metadata.obs_size} -> {self.metadata.act_size} numbers, "
            f"{self.num_bytes / 1024:.0f} KiB; largest difference from {self.reference} {self.max_abs_difference:.3g} "
            f"over {self.observations} observations{rounded}{ties}; {self.seconds:.1f} s"
        )


def rows_to_verify(n_verify: int | None, obs_size: int) -> int:
    """How many observations to compare on: as asked for, else N_VERIFY.

    Fewer of large ones, at least 1000: a picture's convolutions do the same sum at each of its places, so that one
    picture tries a net's weights hundreds of times.
    """
    if n_verify is not None:
        return n_verify
    return max(1000, N_VERIFY * _LARGE // max(_LARGE, obs_size))


def check_target(path: str | PathLike[str], n_verify: int | None) -> Path:
    """`path`, into whose folder a file can be written.

    Raises:
        ExportError: there is no such folder. ConfigurationError: n_verify is below 1000, or `path` names no file.
    """
    if n_verify is not None and n_verify < 1000:
        raise ConfigurationError("too few to verify with", field="n_verify", expected="1000 or more", got=n_verify)
    target = Path(path)
    if not target.name:
        raise ConfigurationError(
            "the file to write has no name", field="path", expected="such as policy.onnx", got=str(path)
        )
    if not target.parent.is_dir():
        raise ExportError(f"the folder {target.parent} does not exist", cure="create it first")
    return target


def describe(plan: Any, spec: EnvSpec | None, **known: Any) -> PolicyMetadata:
    """What a file says of itself; `known`: more fields of PolicyMetadata, the action space as Gymnasium has it."""
    from ue_rl.inference.export.observations import engine_space

    return PolicyMetadata(
        algorithm=plan.algorithm,
        observation_space=space_to_json(engine_space(plan.leaves)),
        action_space=space_to_json(known.pop("action_space")),
        inputs=plan.inputs,
        outputs=plan.outputs,
        stochastic=plan.stochastic,
        flat_input=plan.flat_input,
        versions=installed(*_VERSIONS),
        obs_names=spec.obs_names if spec else (),
        act_names=spec.act_names if spec else (),
        **known,
    )


def check_sizes(spec: EnvSpec, metadata: PolicyMetadata) -> None:
    """Raises ExportError where the engine's handshake has other sizes than the model."""
    if (spec.seen_size, spec.act_size) != (metadata.obs_size, metadata.act_size):
        raise ExportError(
            "the engine's sizes are not the model's",
            field="spec",
            expected=f"{metadata.obs_size} -> {metadata.act_size} numbers",
            got=f"{spec.seen_size} -> {spec.act_size}",
            cure="give the handshake of the game it was trained in",
        )


def export(
    model: Any,
    plan: Any,
    metadata: PolicyMetadata,
    target: Path | None,
    began: float,
    stats: Any = None,
    *,
    n_verify: int | None,
    recorded: Any = None,
    seen: list[NDArray[np.float32]] | None = None,
    tolerance: float = TOLERANCE,
    opset: int = DEFAULT_OPSET,
    exporter: str = "auto",
    reference: str = "predict()",
    batches: tuple[int, ...] = (),
    optional_masks: bool = False,
    adopted: bytes | None = None,
    convert: Callable[[Any, int, str], tuple[bytes, str]] | None = None,
) -> ExportReport:
    """Convert `plan`, compare the file with `model`, and write it in one step.

    Args:
        model: what has predict(), action_space and policy.device, as a model of Stable-Baselines3.
        target: None: nothing is written. began: time.perf_counter() when the work began.
        stats: the VecNormalize in the graph. recorded, n_verify, tolerance, opset, exporter: see export_onnx.
        seen: the rows of each leaf where `recorded` is None. reference: what the model's predict() is, for messages.
        batches: compare in batches of these sizes, too.
        optional_masks: see export_onnx.
        adopted: a file that another tool made of an exported one: it is compared and described, nothing is converted.
        convert: (plan, opset, exporter) -> the file and the converter's name; None: graph.to_onnx.

    Raises:
        ExportError: as export_onnx. ConfigurationError: the tolerance is negative, infinite or NaN.
    """
    if not (math.isfinite(tolerance) and tolerance >= 0):
        what = "a tolerance is a share of the action range"
        cure = "leave it out, or give such a number"
        raise ConfigurationError(what, field="tolerance", expected="0 or more, such as 1e-5", got=tolerance, cure=cure)
    from ue_rl.inference.export.adopting import described
    from ue_rl.inference.export.graph import to_onnx
    from ue_rl.inference.export.verify import Verifier

    bare = b""
    used = "adopted"
    if convert is None:
        convert = to_onnx
    if adopted is None:
        bare, used = convert(plan, opset, exporter)
        tried_out = _with_metadata(bare, metadata, optional_masks=optional_masks)
    else:
        tried_out, _ = described(adopted, metadata)
    runtime = OnnxInference()
    try:
        if adopted is None:
            name = "the exported graph"
        else:
            name = "the file to adopt"
        runtime.load_bytes(tried_out, name=name)
    except InferenceError as error:
        raise ExportError(
            f"the exported graph cannot be used: {error.message}", fault="policy", got=error.got, cure=error.cure
        ) from error
    verifier = Verifier(model, plan, stats, runtime, reference, with_scores=adopted is None)
    n_verify = rows_to_verify(n_verify, metadata.obs_size)
    # What another tool made coarser on purpose is so by much on observations that the env never gives.
    if adopted is None:
        kinds = verifier.kinds
    else:
        kinds = ("typical",)
    for kind in kinds:  # a fifth of the observations are neighbours of these
        verifier.compare(kind, verifier.draw(kind, -(-n_verify * 4 // (5 * len(kinds)))), tolerance)
    for size in batches:
        verifier.compare("typical", verifier.draw("typical", 3 * size), tolerance, size)
    if recorded is not None:
        seen = _recorded_rows(recorded, plan.leaves)
    if seen is not None:
        verifier.compare("recorded", seen, tolerance)
    verifier.finish()
    tried = asdict(verifier.found) | {"tolerance": tolerance}
    metadata = replace(metadata, verification=tried, sha256=UNSEALED)
    if adopted is None:
        content, digest = seal(_with_metadata(bare, metadata, optional_masks=optional_masks, final=True))
    else:
        content, digest = described(adopted, metadata)
    if target is not None:
        _write(content, target)
    path = target or Path()
    report = ExportReport(
        path=path,
        algorithm=metadata.algorithm,
        metadata=replace(metadata, sha256=digest),
        num_bytes=len(content),
        exporter=used,
        seconds=time.perf_counter() - began,
        reference=reference,
        **vars(verifier.found),
    )
    if target is not None:
        logger.info("exported %s", report)
    return report


def check_libraries() -> None:
    """Raises ExportError where a library is missing that exporting needs."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise ExportError(
            f"exporting needs libraries that are not installed: {', '.join(missing)}",
            cure="install them with: pip install 'ue_rl[train]'",
        )


def _with_metadata(
    content: bytes, metadata: PolicyMetadata, *, optional_masks: bool = False, final: bool = False
) -> bytes:
    """The graph with its description.

    Args:
        optional_masks: the input of action masks has a default. final: without the output that only the comparison
            needs.
    """
    import onnx

    proto = onnx.load_from_string(content)
    if final:
        names = {port.name for port in metadata.outputs}
        kept = [output for output in proto.graph.output if output.name in names]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    shapes = {port.name: port.shape for port in metadata.outputs}
    for output in proto.graph.output:  # the converter does not find out every size
        dims = output.type.tensor_type.shape.dim[1:]
        for dim, size in zip(dims, shapes.get(output.name, ()), strict=False):
            dim.dim_value = size
    if optional_masks:
        # A default makes an input optional; of one row, it holds for all. Runtimes that do not know such inputs either
        # compute with the default whatever is given, or do not list the input: so masks are optional only where asked.
        for port in metadata.ports(ACTION_MASKS):
            allowed = np.ones((1, port.size), np.float32)
            proto.graph.initializer.append(onnx.numpy_helper.from_array(allowed, port.name))
    onnx.helper.set_model_props(proto, {METADATA_KEY: metadata.to_json()})
    proto.producer_name = "ue_rl"
    proto.graph.name = metadata.algorithm
    onnx.checker.check_model(proto)
    content_with: bytes = proto.SerializeToString()  # type: ignore[no-untyped-call]
    return content_with


def _recorded_rows(recorded: Any, leaves: Any) -> list[NDArray[np.float32]]:
    rows = []
    for leaf in leaves:
        try:
            if leaf.key is None:
                values = recorded
            else:
                values = recorded[leaf.key]
            array = np.asarray(values, np.float32)
            rows.append(array.reshape(len(array), *leaf.shape))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ExportError(
                "the recorded observations do not fit the observation space",
                field=leaf.key,
                expected=f"[N, {', '.join(map(str, leaf.shape))}]",
                got=str(error),
            ) from error
        if not len(array):
            raise ExportError("there are no recorded observations", field="recorded", expected="one or more", got=0)
    return rows


def _write(content: bytes, target: Path) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing may take its place
            target.write_bytes(content)
            return
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        got = words_of(error)
        raise ExportError(
            f"{target} cannot be written",
            got=got,
            cure="check the folder, its free space, and that no program has the file open",
        ) from error
