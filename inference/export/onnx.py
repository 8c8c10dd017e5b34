"""export_onnx: from a trained model to one self-contained ONNX file that is known to act as predict() does.

The model is checked (graph.py refuses what is not supported), converted in memory, compared
with predict() on 10 000 observations, and only then written: to a temporary file beside the target, which
then replaces it in one step. On any failure an ExportError gives the reason, and the target is left as it was. A
game that watches the file therefore never sees half of it.

docs/deploy.md says what the graph holds, and what stays the engine's task.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from ue_rl.inference.export.file import (
    DEFAULT_OPSET,
    TOLERANCE,
    ExportReport,
    check_libraries,
    check_sizes,
    check_target,
    describe,
    export,
)
from ue_rl.inference.interface import between_files
from ue_rl.inference.metadata import ACTION_MASKS, PolicyMetadata
from ue_rl.protocol.spaces.tree import Branch
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ExportError, words_of

_OF_GRAPH = ("stochastic", "flat_input", "action_masks", "image_layout", "allow_custom")


def export_onnx(
    model: Any,
    path: str | PathLike[str],
    vec_normalize: Any = None,
    *,
    stochastic: bool = False,
    flat_input: bool = False,
    action_masks: bool | None = None,
    optional_masks: bool = False,
    spec: EnvSpec | None = None,
    image_layout: str = "auto",
    recorded: Any = None,
    n_verify: int | None = None,
    tolerance: float = TOLERANCE,
    allow_custom: bool = False,
    opset: int = DEFAULT_OPSET,
    exporter: str = "auto",
) -> ExportReport:
    """Export a trained model to `path`, compare it with predict(), and write it only if both agree.

    Args:
        model: a model of Stable-Baselines3 (PPO, A2C, SAC, TD3, DDPG, DQN) or sb3-contrib (RecurrentPPO, MaskablePPO,
            TQC, QRDQN, TRPO). It is not changed.
        path: the file to write; its folder must exist.
        vec_normalize: a VecNormalize or the path of a saved one; None: the one around the model's own env, if
            there is one; False: no normalisation in any case, though the model shows that it needs some.
        stochastic: actions are sampled: a further input `noise` [N, n], standard normal for continuous
            actions, uniform in (0, 1) for discrete ones (the metadata says which).
        flat_input: one input `obs` [N, total] whatever the space, Dict keys in the order of the space, as the
            Unreal plugin needs it.
        action_masks: MaskablePPO only: a further input `action_masks` [N, choices], 1 = allowed. None: for MaskablePPO,
            not for the others.
        optional_masks: `action_masks` need not be given: without it every choice is allowed. Only onnxruntime in
            Python, C++ and C# knows optional inputs; others ignore the masks that they are given, or refuse them.
        spec: the engine's handshake, for the names of its numbers and the order of its parts; None: that of the env
            which the model holds, if that is an engine's.
        image_layout: how the engine sends images: "channels_last", "channels_first", or "auto" (as the model's
            env does; channels last where there is no env).
        recorded: observations of the env to compare on as well, as the engine sends them: [N, ...], or a mapping
            of keys; None: those in the model's replay or rollout buffer, if it holds any.
        n_verify: how many observations to compare on besides, at least 1000; None: 10 000, of pictures fewer.
        tolerance: what the file may be off from the policy in float64, as a share of the action range and of the
            greatest score; more only where predict() is off as well: 4 times the most that it is.
        allow_custom: try policies and layers that are not torch's, SB3's or sb3-contrib's.
        opset: ONNX operator set; 15 is read by onnxruntime 1.10 and later, and by Unity's inference engine. Where torch
            has its newer converter alone, it is at least 18.
        exporter: "auto", "torchscript" or "dynamo".

    Raises:
        ExportError: unsupported, not convertible, different from predict(), or not writable. No file is left behind.
    """
    return export_model(
        model,
        vec_normalize,
        check_target(path, n_verify),
        recorded=recorded,
        n_verify=n_verify,
        tolerance=tolerance,
        opset=opset,
        exporter=exporter,
        stochastic=stochastic,
        flat_input=flat_input,
        action_masks=action_masks,
        optional_masks=optional_masks,
        spec=spec,
        image_layout=image_layout,
        allow_custom=allow_custom,
    )


def load_and_export(
    model_path: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    vec_normalize: Any = None,
    *,
    algorithm: str | None = None,
    **options: Any,
) -> ExportReport:
    """Export a model.zip.

    Args:
        model_path: what model.save() wrote.
        path: the file to write; None: beside the model, with the suffix .onnx.
        vec_normalize: the file that VecNormalize.save wrote, if the model was trained behind one; None: the one that
            lies beside the model, as ue_rl, Stable-Baselines3's CheckpointCallback or RL Zoo leave it; False: none.
        algorithm: such as "PPO"; None: found out from the file.
        options: as export_onnx.

    Raises:
        ExportError: as export_onnx, or a file cannot be read.
    """
    check_libraries()
    from ue_rl.inference.export.models import load_sb3_model, vec_normalize_of

    model = load_sb3_model(Path(model_path), algorithm)
    statistics = vec_normalize_of(Path(model_path), vec_normalize)
    target = path
    if not target:
        target = Path(model_path).with_suffix(".onnx")
    return export_onnx(model, target, statistics, **options)


def adopt_onnx(
    model: Any,
    file: str | PathLike[str],
    path: str | PathLike[str] | None = None,
    vec_normalize: Any = None,
    *,
    image_layout: str = "auto",
    recorded: Any = None,
    n_verify: int | None = None,
    tolerance: float = TOLERANCE,
    allow_custom: bool = False,
) -> ExportReport:
    """Compare a file that another tool made of an exported one with its model, and seal it again.

    Such are files that were quantised, optimised, given a fixed batch or metadata of others, or converted to
    onnxruntime's format (.ort): their sha256 is no longer true, so that nothing here loads them. Compared are the
    actions and the states of a recurrent policy, by the rule of export_onnx, on typical and recorded observations; a
    quantised file needs a `tolerance`.

    Args:
        model: what the first file was exported from, as export_onnx takes it, or the path of its zip.
        file: what the other tool wrote; float32 must go in and come out. What it says of flat inputs, noise and masks
            holds; one without a description is taken for what export_onnx writes by default.
        path: the file to write; None: `file` itself.
        vec_normalize, image_layout, recorded, n_verify, tolerance, allow_custom: see export_onnx.

    Raises:
        ExportError: it cannot be read, is of another model, or is off by more than the rule allows; it stays as it is.
        UntrustedFile: `model` is a file that would run code.
    """
    from ue_rl.inference.export.adopting import description_in

    check_libraries()
    source = Path(file)
    try:
        content = source.read_bytes()
    except OSError as error:
        what = f"the file {source} cannot be read"
        got = words_of(error)
        raise ExportError(what, field="adopt", got=got, cure="check the path") from error
    if isinstance(model, (str, PathLike)):
        from ue_rl.inference.export.models import load_sb3_model, vec_normalize_of

        zipped = Path(model)
        model = load_sb3_model(zipped)
        vec_normalize = vec_normalize_of(zipped, vec_normalize)
    if path is not None:
        wanted_path = path
    else:
        wanted_path = source
    target = check_target(wanted_path, n_verify)
    said = description_in(content)
    of_graph: dict[str, Any] = {"image_layout": image_layout, "allow_custom": allow_custom}
    if said is not None:
        of_graph |= {"stochastic": said.stochastic, "flat_input": said.flat_input}
        if not said.ports(ACTION_MASKS):
            of_graph["action_masks"] = False
    return export_model(
        model,
        vec_normalize,
        target,
        recorded=recorded,
        n_verify=n_verify,
        tolerance=tolerance,
        adopted=content,
        said=said,
        **of_graph,
    )


def check_exportable(model: Any, vec_normalize: Any = None, **options: Any) -> None:
    """Refuse now what export_onnx would refuse after the training; to be called before the first step.

    Everything is tried but the writing: libraries, algorithm, policy, conversion, and a short comparison
    with predict(). Takes well under a second for an MLP. The model is not changed.

    Args:
        model: the model to be trained; or an algorithm's name or class: then only that and the libraries are checked.
        vec_normalize: as export_onnx.
        options: stochastic, flat_input, action_masks, optional_masks, spec, image_layout, allow_custom, opset,
            exporter.

    Raises:
        ExportError: naming what is not supported and the reason.
    """
    check_libraries()
    if isinstance(model, (str, type)):
        from ue_rl.inference.export.policies import ALGORITHMS

        if isinstance(model, str):
            names = {model}
        else:
            names = {cls.__name__ for cls in model.__mro__}
        if not names & {*ALGORITHMS, *(name.lower() for name in ALGORITHMS)}:
            raise ExportError("this algorithm cannot be exported", expected=", ".join(ALGORITHMS), got=model)
        return
    export_model(model, vec_normalize, None, n_verify=64, **options)


def export_model(
    model: Any,
    vec_normalize: Any,
    target: Path | None,
    *,
    spec: EnvSpec | None = None,
    recorded: Any = None,
    said: PolicyMetadata | None = None,
    **options: Any,
) -> ExportReport:
    """The verified file of a model of Stable-Baselines3, as export_onnx writes it.

    Args:
        said: the description of a file that is adopted. options: of plan_graph and of file.export.
    """
    began = time.perf_counter()
    check_libraries()
    from ue_rl.inference.export.graph import algorithm_of, evaluation_mode, plan_graph
    from ue_rl.inference.export.models import buffered_rows, choose_vec_normalize, on_cpu

    algorithm_of(model)
    if spec is None:
        told = _spec_of(model)
    else:
        told = spec
    tree = None
    if told is not None:
        tree = told.obs_space
    if isinstance(tree, Branch):
        order = tuple(name for name, _ in tree.parts)
    else:
        order = ()
    if said is not None:
        order = tuple(said.observation_space.get("spaces", ()))
    stats = choose_vec_normalize(model, vec_normalize)
    twin = on_cpu(model)
    with evaluation_mode(twin.policy):
        of_graph = {name: options.pop(name) for name in _OF_GRAPH if name in options}
        plan = plan_graph(twin, stats, model.get_env(), order=order, **of_graph)
        if options.get("optional_masks") and all(port.role != ACTION_MASKS for port in plan.inputs):
            raise ExportError(
                "this file takes no action masks, so that they cannot be optional",
                field="optional_masks",
                expected="a model of MaskablePPO, and action_masks not False",
                got=plan.algorithm,
                cure="leave optional_masks out",
            )
        metadata = describe(
            plan,
            told,
            policy=type(model.policy).__name__,
            action_space=model.action_space,
            normalization=_describe(stats),
            num_timesteps=int(model.num_timesteps),
        )
        if spec is not None:
            check_sizes(spec, metadata)
        if said is not None:
            _check_same(said, metadata)
            metadata = replace(metadata, obs_names=said.obs_names, act_names=said.act_names)
        seen = None
        if recorded is None:
            seen = buffered_rows(model, plan.leaves, stats)
        return export(twin, plan, metadata, target, began, stats, recorded=recorded, seen=seen, **options)


def _check_same(said: PolicyMetadata, metadata: PolicyMetadata) -> None:
    """Raises ExportError where a file to adopt says that it is of another model."""
    ours, theirs = (replace(one, obs_names=(), act_names=()) for one in (metadata, said))
    found = between_files(theirs, ours)
    if found is not None:
        raise ExportError(
            "the file to adopt is not of this model",
            fault="caller",
            field=found.field,
            expected=found.got,
            got=found.expected,
            cure="name the model that the file was exported from",
        )


def _spec_of(model: Any) -> EnvSpec | None:
    """The handshake of the engine in which `model` is trained, if it still holds its env."""
    env = model.get_env()
    spec = None
    if env is not None:
        spec = getattr(env.unwrapped, "engine_spec", None)
    if isinstance(spec, EnvSpec):
        return spec
    return None


def _describe(stats: Any) -> dict[str, Any] | None:
    if stats is None:
        return None
    rms = stats.obs_rms
    if isinstance(rms, dict):
        one = next(iter(rms.values()))
    else:
        one = rms
    return {
        "kind": "VecNormalize",
        "clip_obs": float(stats.clip_obs) if math.isfinite(stats.clip_obs) else None,  # JSON has no infinity
        "epsilon": float(stats.epsilon),
        "keys": None if one is rms else list(stats.norm_obs_keys),
        "count": float(one.count),
    }
