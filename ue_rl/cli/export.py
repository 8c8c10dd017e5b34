"""`ue-rl export`: a trained model as a verified ONNX file, or its weights alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import click

from ue_rl.cli import completion
from ue_rl.cli.common import WrongCommandLine, console, engine_url, trust_option, two_columns, vecnormalize_option
from ue_rl.inference.statistics import NONE, places_of_statistics, statistics_of
from ue_rl.system.errors import ExportError, printable
from ue_rl.system.plugins import load_plugin
from ue_rl.training.found import Found, config_near, find, handshake_near, is_of_rllib, normalized_in_its_run


@click.command(short_help="Write a verified ONNX file.")
@click.argument("model", metavar="MODEL|RUN", type=click.Path(path_type=Path), shell_complete=completion.run_or_file)
@vecnormalize_option()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="The file to write.  [default: beside MODEL, RUN/model.onnx]",
)
@click.option(
    "--url",
    metavar="URL",
    shell_complete=completion.url,
    help="Ask this engine for names and order of the observation's numbers.",
)
@click.option("--algo", metavar="NAME", help="The algorithm of the zip file.  [default: read from the file]")
@click.option(
    "--adopt",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Compare this file, which another tool made of MODEL's exported one (quantised, optimised, .ort), and seal it "
    "again, in place or as --output.",
)
@click.option("--policy", metavar="NAME", help="Which policy to export, where an RLlib checkpoint has several.")
@click.option("--stochastic", is_flag=True, help="The file samples its actions; a second input takes the noise.")
@click.option(
    "--masks",
    type=click.Choice(["required", "optional", "none"]),
    help="Of MaskablePPO: the input of action masks; only onnxruntime in Python, C++ and C# knows optional inputs."
    "  [default: required]",
)
@click.option("--flat", is_flag=True, help="One flat input for Dict observations. The Unreal plugin needs it.")
@click.option(
    "--tolerance",
    type=float,
    help="What the file may be off from the policy in float64, as a share of the action range; more only where "
    "predict() is, too.  [default: 1e-5]",
)
@click.option(
    "--opset",
    type=click.IntRange(min=9),
    help="ONNX operator set, for runtimes that read no newer one.  [default: 15]",
)
@click.option(
    "--format",
    "written",
    type=click.Choice(["onnx", "safetensors"]),
    default="onnx",
    show_default=True,
    help="safetensors: the weights alone, for programs that have the network.",
)
@click.option(
    "--page",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Also write a web page that plays the agent: the game of a page that it was trained in, or sliders.",
)
@trust_option()
def export(
    model: Path,
    vecnormalize: Path | Literal[False] | None,
    output: Path | None,
    adopt: Path | None,
    algo: str | None,
    stochastic: bool,
    masks: str | None,
    flat: bool,
    tolerance: float | None,
    opset: int | None,
    url: str | None,
    policy: str | None,
    written: str,
    page: Path | None,
) -> None:
    """Write a trained policy as an ONNX file that acts as the policy does, or refuse.

    MODEL is a model.zip. RUN is the folder of a run, of a checkpoint, or of RLlib's Algorithm.save_to_path. One that
    would run code is refused, unless it was made here: see --trust.
    """
    of_graph = {
        "url": url, "policy": policy, "stochastic": stochastic, "masks": masks, "flat": flat, "opset": opset,
        "page": page,
    }  # fmt: skip
    if written == "safetensors":
        others = {**of_graph, "tolerance": tolerance, "adopt": adopt}
        if name := next((name for name, value in others.items() if value), None):
            raise WrongCommandLine("not for safetensors, which hold weights alone", field=name, cure="leave it out")
        _weights(model_in(model), vecnormalize, output, algo)
        return
    if adopt is not None:
        if name := next((name for name, value in of_graph.items() if value), None):
            what = "not for --adopt: what the file takes was decided when it was exported"
            raise WrongCommandLine(what, field=name, cure="leave it out")
        _show(*_adopted(model, adopt, vecnormalize, output, algo, tolerance))
        return
    options: dict[str, Any]
    if tolerance is None:
        options = {}
    else:
        options = {"tolerance": tolerance}
    options |= {"flat_input": flat}
    if opset is not None:
        options |= {"opset": opset}
    stats: Path | Literal[False] | None = vecnormalize
    if is_of_rllib(model):
        has_statistics = vecnormalize is not None
        others = {"vecnormalize": has_statistics, "algo": algo, "stochastic": stochastic, "masks": masks}
        for name, given in others.items():
            if given:
                raise WrongCommandLine("not for a checkpoint of RLlib's", field=name, cure="leave it out")
        report = _of_rllib()(model, output, policy=policy, spec=_handshake(model / "x", url), **options)
    else:
        from ue_rl.inference import load_and_export

        if policy is not None:
            raise WrongCommandLine("a model.zip holds one policy", field="policy", cure="leave it out")
        found = model_in(model)
        require_statistics(found.path, vecnormalize)
        stats = statistics_of(found.path) if vecnormalize is None else vecnormalize
        options |= {"algorithm": algo, "stochastic": stochastic, "spec": _handshake(found.path, url)}
        if masks is not None:
            options |= {"action_masks": masks != "none", "optional_masks": masks == "optional"}
        target = output
        if not target:
            target = found.onnx
        report = load_and_export(found.path, target, stats, **options)
    _show(report, stats)
    if page is not None:
        for sentence in load_plugin("ue_rl.pages", "static")(report.path, page, config_near(model / "x")):
            console().print(printable(sentence), soft_wrap=True)


def _adopted(
    model: Path,
    file: Path,
    vecnormalize: Path | Literal[False] | None,
    output: Path | None,
    algo: str | None,
    tolerance: float | None,
) -> tuple[Any, Path | Literal[False] | None]:
    """The report of a file of another tool's that was sealed again, and where its statistics came from."""
    if is_of_rllib(model):
        cure = "name the model.zip that the file was exported from"
        raise WrongCommandLine("not for a checkpoint of RLlib's", field="adopt", cure=cure)
    from ue_rl.inference import adopt_onnx
    from ue_rl.inference.export.models import load_sb3_model, vec_normalize_of

    found = model_in(model)
    options: dict[str, Any]
    if tolerance is None:
        options = {}
    else:
        options = {"tolerance": tolerance}
    statistics = vec_normalize_of(found.path, vecnormalize)
    report = adopt_onnx(load_sb3_model(found.path, algo), file, output, statistics, **options)
    return report, statistics_of(found.path) if vecnormalize is None else vecnormalize


def _show(report: Any, stats: Path | Literal[False] | None) -> None:
    table = two_columns()
    table.add_row("file", f"{report.path} ({report.num_bytes / 1024:.0f} KiB)")
    table.add_row("policy", f"{report.algorithm}, {report.metadata.obs_size} -> {report.metadata.act_size} numbers")
    for side, ports in _ports(report.path).items():
        for number, port in enumerate(ports):
            first = ""
            if number == 0:
                first = side
            table.add_row(first, port)
    for side, names in (("observation", report.metadata.obs_names), ("action", report.metadata.act_names)):
        if names:
            table.add_row(f"{side} names", printable(", ".join(names)))
    table.add_row("normalisation", "none" if report.metadata.normalization is None else str(stats))
    table.add_row("compared", f"{report.observations} observations with {report.reference}")
    table.add_row("largest difference", f"{report.max_abs_difference:.3g}")
    for kind, difference in report.max_relative_difference.items():
        table.add_row(f"  {kind}", f"{difference:.3g} of the action range")
    if report.rounded or report.ties:
        text = f"{report.rounded} observations, and {report.ties} ties between choices"
        if report.rounded:
            errors = f"file {report.file_error:.3g}, {report.reference} {report.predict_error:.3g}"
            text += f"; from exact: {errors} of the range"
        table.add_row("equal but for rounding", text)
    console().print(table)


def _weights(found: Found, vecnormalize: Path | Literal[False] | None, output: Path | None, algo: str | None) -> None:
    from ue_rl.inference.export.models import load_sb3_model
    from ue_rl.inference.export.safetensors import export_safetensors

    path = output or found.onnx.with_suffix(".safetensors")
    require_statistics(found.path, vecnormalize)
    model = load_sb3_model(found.path, algo)
    statistics = statistics_of(found.path) if vecnormalize is None else vecnormalize
    shapes = export_safetensors(model, path, statistics)
    table = two_columns(str(path))
    for name, shape in shapes.items():
        table.add_row(name, str([*shape]))
    console().print(table)


def _ports(path: Path) -> dict[str, list[str]]:
    """The inputs and outputs as the file itself names them, such as `obs float32 [N, 4]`; N is any number of rows."""
    import onnx

    from ue_rl.inference.export.adopting import is_ort_format

    content = path.read_bytes()
    if is_ort_format(content):  # onnx does not read it
        return {}
    graph = onnx.load_from_string(content).graph
    sides = {"inputs": graph.input, "outputs": graph.output}
    return {side: [_port(value, onnx.helper) for value in values] for side, values in sides.items()}


def _port(value: Any, helper: Any) -> str:
    tensor = value.type.tensor_type
    rows, *sizes = tensor.shape.dim
    shape = ", ".join([str(rows.dim_value or "N"), *(str(size.dim_value) for size in sizes)])
    return f"{value.name} {helper.tensor_dtype_to_np_dtype(tensor.elem_type)} [{shape}]"


def _handshake(model: Path, url: str | None) -> Any:
    """The EnvSpec of the engine at `url`; else of the handshake that `ue-rl train` left beside the model, or None."""
    if url is None:
        return handshake_near(model)
    from ue_rl.connections.dialling import open_transport

    with closing(open_transport(engine_url(url))) as transport:
        return transport.connect()


def require_statistics(model: Path, given: Path | Literal[False] | None) -> None:
    """Refuses a model of a run whose config.yaml says that there are statistics, where there are none.

    What the zip itself shows is refused where it is loaded.
    """
    if given is None and statistics_of(model) is None and normalized_in_its_run(model):
        raise WrongCommandLine(
            f"{model} was learnt on normalised observations, and their statistics are missing",
            field="vecnormalize",
            expected=places_of_statistics(model),
            got="none; its config.yaml has normalize",
            cure=f"put the file beside the model, or give --vecnormalize FILE; --vecnormalize {NONE} goes on without",
        )


def model_in(path: Path) -> Found:
    """A model.zip, also in the folder of a run or a checkpoint; raises WrongCommandLine: the folder has none."""
    found = find(path)
    if path.is_dir() and not found.path.is_file():
        runs = sorted((run.parent for run in path.glob("*/config.yaml")), key=lambda run: run.stat().st_mtime)
        cure = None
        if runs:
            cure = f"the newest run in it is {runs[-1]}"
        raise WrongCommandLine(
            "no model in this folder",
            field="model",
            expected="a run of `ue-rl train`, or a checkpoint",
            got=str(path),
            cure=cure,
        )
    return found


def _of_rllib() -> Any:
    """What exports checkpoints of RLlib's; raises ExportError where Ray is not installed."""
    from importlib.util import find_spec

    if find_spec("ray") is None:
        cure = "install it with: pip install 'ue_rl[train,rllib]'"
        raise ExportError("a checkpoint of RLlib's needs Ray", cure=cure)
    return load_plugin("ue_rl.exporters", "rllib")
